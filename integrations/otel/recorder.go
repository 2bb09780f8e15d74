package otel

import (
	"context"
	"math"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

// Recorder is a lockstep.Recorder on the instruments of OpenTelemetry. Make one
// with NewRecorder. It is safe for concurrent use.
type Recorder struct {
	byName  map[lockstep.Metric]*instrument
	folded  *instrument // nil where it is not described
	dropped *instrument // nil where it is not described

	mu     sync.Mutex // held while a series is looked up that is not known
	bounds *meter.Bounds
}

var _ lockstep.Recorder = (*Recorder)(nil)

// instrument is one metric; one of the first three is set.
type instrument struct {
	lockstep.MetricDescriptor
	counter   metric.Int64Counter
	gauge     metric.Float64Gauge
	histogram metric.Float64Histogram

	mu    sync.RWMutex
	known map[key]*series
}

// key tells the series of one metric apart: the values of its labels, in order.
type key [MaxLabels]string

// series are the attributes of one series, as each kind of instrument wants them.
type series struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// NewRecorder returns a Recorder whose instruments cfg.MeterProvider has made.
func NewRecorder(cfg Config) (*Recorder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	bounds, err := meter.NewBounds(meter.BoundsConfig{Metrics: cfg.Metrics, Values: cfg.Values, Series: cfg.Series})
	if err != nil {
		return nil, err
	}
	r := &Recorder{byName: make(map[lockstep.Metric]*instrument, len(cfg.Metrics)), bounds: bounds}
	m := cfg.MeterProvider.Meter(Scope)
	for _, d := range cfg.Metrics {
		i, err := newInstrument(m, cfg.Prefix, d)
		if err != nil {
			return nil, fault(lockstep.ErrInvalid, "new", "Metrics", string(d.Name), err.Error())
		}
		r.byName[d.Name] = i
	}
	if i := r.byName[meter.Folded]; i != nil && i.counter != nil {
		r.folded = i
	}
	if i := r.byName[meter.Dropped]; i != nil && i.counter != nil {
		r.dropped = i
	}
	return r, nil
}

func newInstrument(m metric.Meter, prefix string, d lockstep.MetricDescriptor) (i *instrument, err error) {
	i = &instrument{MetricDescriptor: d, known: make(map[key]*series)}
	name, unit := Instrument(prefix, d)
	help := d.Help + "."
	switch d.Kind {
	case lockstep.MetricCounter:
		i.counter, err = m.Int64Counter(name, metric.WithDescription(help), metric.WithUnit(unit))
	case lockstep.MetricGauge:
		i.gauge, err = m.Float64Gauge(name, metric.WithDescription(help), metric.WithUnit(unit))
	case lockstep.MetricHistogram:
		i.histogram, err = m.Float64Histogram(name, metric.WithDescription(help), metric.WithUnit(unit), metric.WithExplicitBucketBoundaries(d.Buckets...))
	}
	return i, err
}

// Count adds n to a counter. Negative numbers are dropped.
func (r *Recorder) Count(name lockstep.Metric, l lockstep.MetricLabels, n int64) {
	i := r.byName[name]
	if i == nil || i.counter == nil || n < 0 {
		r.drop()
		return
	}
	i.counter.Add(context.Background(), n, r.series(i, &l).add...)
}

// Gauge sets a level. What is no finite number is dropped.
func (r *Recorder) Gauge(name lockstep.Metric, l lockstep.MetricLabels, v float64) {
	i := r.byName[name]
	if i == nil || i.gauge == nil || !finite(v) {
		r.drop()
		return
	}
	i.gauge.Record(context.Background(), v, r.series(i, &l).record...)
}

// Observe adds a sample. What is no finite number is dropped.
func (r *Recorder) Observe(name lockstep.Metric, l lockstep.MetricLabels, v float64) {
	i := r.byName[name]
	if i == nil || i.histogram == nil || !finite(v) {
		r.drop()
		return
	}
	i.histogram.Record(context.Background(), v, r.series(i, &l).record...)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// drop counts a measurement that no descriptor fits.
func (r *Recorder) drop() {
	if r.dropped != nil {
		r.dropped.counter.Add(context.Background(), 1)
	}
}

// series returns the series of i that l belongs to.
func (r *Recorder) series(i *instrument, l *lockstep.MetricLabels) *series {
	k := i.key(l)
	i.mu.RLock()
	s := i.known[k]
	i.mu.RUnlock()
	if s == nil {
		s = r.find(i, k)
	}
	return s
}

// key returns the values of the labels of i.
func (i *instrument) key(l *lockstep.MetricLabels) (k key) {
	for n := range i.Labels {
		k[n] = l.Value(i.Labels[n].Field)
	}
	return k
}

// find returns the series of labels that are new, or one too many. Those are not
// kept, or there would be no end to them: they come here each time.
func (r *Recorder) find(i *instrument, k key) *series {
	var clean lockstep.MetricLabels
	for n := range i.Labels {
		clean.SetValue(i.Labels[n].Field, cleaned(k[n]))
	}
	r.mu.Lock()
	kept, fate := r.bounds.Fold(i.Name, clean)
	s := i.at(i.key(&kept))
	r.mu.Unlock()
	if fate == meter.FateFolded && r.folded != nil && i != r.folded {
		r.folded.counter.Add(context.Background(), 1, r.series(r.folded, &lockstep.MetricLabels{Kind: string(i.Name)}).add...)
	}
	return s
}

// at returns the series of k, and makes it if there is none.
func (i *instrument) at(k key) *series {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.known[k]; s != nil {
		return s
	}
	attributes := make([]attribute.KeyValue, len(i.Labels))
	for n, l := range i.Labels {
		attributes[n] = attribute.String(l.String(), k[n])
	}
	option := metric.WithAttributeSet(attribute.NewSet(attributes...))
	s := &series{add: []metric.AddOption{option}, record: []metric.RecordOption{option}}
	i.known[k] = s
	return s
}

// cleaned makes a value fit for an attribute: valid text, not longer than an ID.
func cleaned(v string) string {
	v = strings.ToValidUTF8(v, "?")
	if len(v) > lockstep.MaxIDLength {
		v = strings.ToValidUTF8(v[:lockstep.MaxIDLength], "") // not half a rune at the end
	}
	return v
}
