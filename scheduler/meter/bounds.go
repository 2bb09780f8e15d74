package meter

import "github.com/lockstep-gpu/lockstep"

// Other is the value of labels whose own value was one too many.
const Other = "other"

// The defaults of BoundsConfig, and the most that it may ask for.
const (
	DefaultValues = 100  // DefaultValues is BoundsConfig.Values where that is 0.
	DefaultSeries = 1000 // DefaultSeries is BoundsConfig.Series where that is 0.
	maxSeries     = 1 << 20
)

// BoundsConfig configures Bounds. Only Metrics has no default.
type BoundsConfig struct {
	Metrics []lockstep.MetricDescriptor `json:"metrics"`          // Metrics are those that may be recorded; others are dropped. NewBounds copies them.
	Values  int                         `json:"values,omitempty"` // Values is how many different values a label of a metric may have, Other beside; 0 means DefaultValues.
	Series  int                         `json:"series,omitempty"` // Series is how many series a metric may have, the one with all labels Other beside; 0 means DefaultSeries.
}

// Validate reports every fault of c, joined.
func (c BoundsConfig) Validate() error {
	f := faults{op: "bounds"}
	f.add(lockstep.ValidateMetrics(c.Metrics))
	f.count("Values", c.Values, maxSeries)
	f.count("Series", c.Series, maxSeries)
	return f.err()
}

// Bounds keep the number of series small, whatever names tenants and queues are
// given: the first values of each label stay as they are, the others become
// Other. Which come first depends only on the calls. Not safe for concurrent use.
type Bounds struct {
	cfg     BoundsConfig
	metrics map[lockstep.Metric]*bound
}

// bound is what was seen of one metric.
type bound struct {
	lockstep.MetricDescriptor
	values []map[string]bool // by label
	series map[lockstep.MetricLabels]bool
}

// Fate is what Bounds make of a measurement.
type Fate int

// The fates.
const (
	FateKept    Fate = iota // FateKept: it is recorded as it is, without fields that its metric does not have.
	FateFolded              // FateFolded: some of its labels became Other.
	FateUnknown             // FateUnknown: nobody described its metric; it is dropped.
)

// NewBounds returns Bounds that have seen nothing.
func NewBounds(cfg BoundsConfig) (*Bounds, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Values == 0 {
		cfg.Values = DefaultValues
	}
	if cfg.Series == 0 {
		cfg.Series = DefaultSeries
	}
	b := &Bounds{cfg: cfg, metrics: make(map[lockstep.Metric]*bound, len(cfg.Metrics))}
	for _, d := range cfg.Metrics {
		m := &bound{MetricDescriptor: d, values: make([]map[string]bool, len(d.Labels)), series: make(map[lockstep.MetricLabels]bool)}
		for i := range m.values {
			m.values[i] = make(map[string]bool)
		}
		b.metrics[d.Name] = m
	}
	return b, nil
}

// Fold returns the labels under which a measurement is to be recorded. It
// allocates only where it sees a series for the first time.
func (b *Bounds) Fold(m lockstep.Metric, l lockstep.MetricLabels) (lockstep.MetricLabels, Fate) {
	d := b.metrics[m]
	if d == nil {
		return lockstep.MetricLabels{}, FateUnknown
	}
	kept := d.Keep(l)
	if d.series[kept] {
		return kept, FateKept
	}
	fate := FateKept
	for i := range d.Labels {
		f := d.Labels[i].Field
		v := kept.Value(f)
		if v == Other || d.values[i][v] {
			continue
		}
		if len(d.values[i]) < b.cfg.Values {
			d.values[i][v] = true
			continue
		}
		kept.SetValue(f, Other)
		fate = FateFolded
	}
	if d.series[kept] {
		return kept, fate
	}
	if len(d.series) >= b.cfg.Series && len(d.Labels) > 0 {
		for i := range d.Labels {
			kept.SetValue(d.Labels[i].Field, Other)
		}
		return kept, FateFolded
	}
	d.series[kept] = true
	return kept, fate
}

// Recorder returns a Recorder that hands on to next what Fold makes of each
// measurement, and counts Folded and Dropped there if they are described. A nil
// next gives nil. Gauges that fold into one series overwrite each other: such a
// series is some one of them.
func (b *Bounds) Recorder(next lockstep.Recorder) lockstep.Recorder {
	if next == nil {
		return nil
	}
	return &bounded{b, next}
}

// bounded is a Recorder behind Bounds.
type bounded struct {
	*Bounds
	next lockstep.Recorder
}

func (b *bounded) Count(m lockstep.Metric, l lockstep.MetricLabels, n int64) {
	if l, ok := b.fold(m, l); ok {
		b.next.Count(m, l, n)
	}
}

func (b *bounded) Gauge(m lockstep.Metric, l lockstep.MetricLabels, v float64) {
	if l, ok := b.fold(m, l); ok {
		b.next.Gauge(m, l, v)
	}
}

func (b *bounded) Observe(m lockstep.Metric, l lockstep.MetricLabels, v float64) {
	if l, ok := b.fold(m, l); ok {
		b.next.Observe(m, l, v)
	}
}

// fold is Fold that counts.
func (b *bounded) fold(m lockstep.Metric, l lockstep.MetricLabels) (lockstep.MetricLabels, bool) {
	l, fate := b.Fold(m, l)
	switch fate {
	case FateFolded:
		if b.metrics[Folded] != nil {
			b.next.Count(Folded, lockstep.MetricLabels{Kind: string(m)}, 1)
		}
	case FateUnknown:
		if b.metrics[Dropped] != nil {
			b.next.Count(Dropped, lockstep.MetricLabels{}, 1)
		}
	}
	return l, fate != FateUnknown
}

// names are the first names that come; the others are Other, so that what they
// have in common can be added up.
type names struct {
	known map[string]bool
	most  int
}

func newNames(most int) names { return names{known: make(map[string]bool), most: most} }

// fold returns name, or Other for one too many.
func (n *names) fold(name string) string {
	switch {
	case name == Other: // one that is called so is of the others: they have one series
		return Other
	case n.known[name]:
		return name
	case len(n.known) < n.most:
		n.known[name] = true
		return name
	}
	return Other
}
