package prometheus

import (
	"errors"
	"maps"
	"math"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

// Recorder is a lockstep.Recorder that Prometheus can scrape. Make one with New.
// It is safe for concurrent use.
type Recorder struct {
	registerer prometheus.Registerer // nil for none
	closed     sync.Once
	all        []*metric // in the order of the table
	byName     map[lockstep.Metric]*metric
	folded     *metric            // nil where it is not described
	dropped    prometheus.Counter // nil where it is not described

	mu     sync.Mutex // held while a series is looked up that is not known
	bounds *meter.Bounds
}

var (
	_ lockstep.Recorder    = (*Recorder)(nil)
	_ prometheus.Collector = (*Recorder)(nil)
)

// key tells the series of one metric apart: the values of its labels, in order.
type key [MaxLabels]string

// series is one of them; one field is set.
type series struct {
	counter   prometheus.Counter
	gauge     prometheus.Gauge
	histogram prometheus.Observer
}

// metric is one metric.
type metric struct {
	lockstep.MetricDescriptor
	counters   *prometheus.CounterVec
	gauges     *prometheus.GaugeVec
	histograms *prometheus.HistogramVec

	mu    sync.RWMutex
	known map[key]series
}

// New returns a Recorder, registered with cfg.Registerer if there is one. A name
// that is taken there already is lockstep.ErrDuplicate.
func New(cfg Config) (*Recorder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	bounds, err := meter.NewBounds(meter.BoundsConfig{Metrics: cfg.Metrics, Values: cfg.Values, Series: cfg.Series})
	if err != nil {
		return nil, err
	}
	r := &Recorder{byName: make(map[lockstep.Metric]*metric, len(cfg.Metrics)), bounds: bounds}
	labels := prometheus.Labels(maps.Clone(cfg.Labels))
	for _, d := range cfg.Metrics {
		m := newMetric(cfg.Prefix, d, labels)
		r.all = append(r.all, m)
		r.byName[d.Name] = m
		if len(d.Labels) == 0 {
			m.known[key{}] = m.make(key{}) // shown as 0 before the first measurement
		}
	}
	if m := r.byName[meter.Folded]; m != nil && m.counters != nil {
		r.folded = m
	}
	if m := r.byName[meter.Dropped]; m != nil && m.counters != nil && len(m.Labels) == 0 {
		r.dropped = m.known[key{}].counter
	}
	if cfg.Registerer == nil {
		return r, nil
	}
	if err := cfg.Registerer.Register(r); err != nil {
		kind := lockstep.ErrConflict
		if errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			kind = lockstep.ErrDuplicate
		}
		return nil, &lockstep.Error{Kind: kind, Op: "prometheus: register", Field: "Registerer", Reason: err.Error()}
	}
	r.registerer = cfg.Registerer
	return r, nil
}

// newMetric declares a metric.
func newMetric(prefix string, d lockstep.MetricDescriptor, labels prometheus.Labels) *metric {
	m := &metric{MetricDescriptor: d, known: make(map[key]series)}
	names := make([]string, len(d.Labels))
	for i, l := range d.Labels {
		names[i] = l.String()
	}
	name := prefix + string(d.Name)
	switch d.Kind {
	case lockstep.MetricCounter:
		m.counters = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: d.Help + ".", ConstLabels: labels}, names)
	case lockstep.MetricGauge:
		m.gauges = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: d.Help + ".", ConstLabels: labels}, names)
	case lockstep.MetricHistogram:
		m.histograms = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: d.Help + ".", ConstLabels: labels, Buckets: d.Buckets}, names)
	}
	return m
}

// Close takes r out of the registry that New put it into, if any. Measurements
// that come later are kept and shown to nobody. Further calls do nothing: the
// registry goes by names, which may be another Recorder's by then.
func (r *Recorder) Close() error {
	if r.registerer != nil {
		r.closed.Do(func() { r.registerer.Unregister(r) })
	}
	return nil
}

// Count adds n to a counter. Negative numbers are dropped.
func (r *Recorder) Count(name lockstep.Metric, l lockstep.MetricLabels, n int64) {
	m := r.byName[name]
	if m == nil || m.counters == nil || n < 0 {
		r.drop()
		return
	}
	r.series(m, &l).counter.Add(float64(n))
}

// Gauge sets a level. What is no finite number is dropped.
func (r *Recorder) Gauge(name lockstep.Metric, l lockstep.MetricLabels, v float64) {
	m := r.byName[name]
	if m == nil || m.gauges == nil || !finite(v) {
		r.drop()
		return
	}
	r.series(m, &l).gauge.Set(v)
}

// Observe adds a sample. What is no finite number is dropped, since the sum would
// never get over it.
func (r *Recorder) Observe(name lockstep.Metric, l lockstep.MetricLabels, v float64) {
	m := r.byName[name]
	if m == nil || m.histograms == nil || !finite(v) {
		r.drop()
		return
	}
	r.series(m, &l).histogram.Observe(v)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// drop counts a measurement that no descriptor fits.
func (r *Recorder) drop() {
	if r.dropped != nil {
		r.dropped.Inc()
	}
}

// series returns the series of m that l belongs to.
func (r *Recorder) series(m *metric, l *lockstep.MetricLabels) series {
	k := m.key(l)
	m.mu.RLock()
	s, ok := m.known[k]
	m.mu.RUnlock()
	if !ok {
		s = r.find(m, l)
	}
	return s
}

// key returns the values of the labels of m.
func (m *metric) key(l *lockstep.MetricLabels) (k key) {
	for i := range m.Labels {
		k[i] = l.Value(m.Labels[i].Field)
	}
	return k
}

// find returns the series of labels that are new, or one too many. Those are not
// kept, or there would be no end to them: they come here each time.
func (r *Recorder) find(m *metric, l *lockstep.MetricLabels) series {
	clean := lockstep.MetricLabels{}
	for i := range m.Labels {
		f := m.Labels[i].Field
		clean.SetValue(f, cleaned(l.Value(f)))
	}
	r.mu.Lock()
	kept, fate := r.bounds.Fold(m.Name, clean)
	s := m.at(m.key(&kept))
	r.mu.Unlock()
	if fate == meter.FateFolded && r.folded != nil && m != r.folded {
		r.series(r.folded, &lockstep.MetricLabels{Kind: string(m.Name)}).counter.Inc()
	}
	return s
}

// at returns the series of k, and makes it if there is none.
func (m *metric) at(k key) series {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.known[k]
	if !ok {
		s = m.make(k)
		m.known[k] = s
	}
	return s
}

// make makes a series. Its labels are clean, so that nothing can fail.
func (m *metric) make(k key) (s series) {
	values := k[:len(m.Labels)]
	switch {
	case m.counters != nil:
		s.counter = m.counters.WithLabelValues(values...)
	case m.gauges != nil:
		s.gauge = m.gauges.WithLabelValues(values...)
	case m.histograms != nil:
		s.histogram = m.histograms.WithLabelValues(values...)
	}
	return s
}

// cleaned makes a value fit for a label: valid text, not longer than an ID.
func cleaned(v string) string {
	v = strings.ToValidUTF8(v, "?")
	if len(v) > lockstep.MaxIDLength {
		v = strings.ToValidUTF8(v[:lockstep.MaxIDLength], "") // not half a rune at the end
	}
	return v
}

// Describe is for the registry.
func (r *Recorder) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range r.all {
		m.collector().Describe(ch)
	}
}

// Collect is for the registry.
func (r *Recorder) Collect(ch chan<- prometheus.Metric) {
	for _, m := range r.all {
		m.collector().Collect(ch)
	}
}

func (m *metric) collector() prometheus.Collector {
	switch {
	case m.counters != nil:
		return m.counters
	case m.gauges != nil:
		return m.gauges
	}
	return m.histograms
}
