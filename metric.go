package lockstep

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// MetricKind says which method of a Recorder a metric is for.
type MetricKind string

// The kinds of metric.
const (
	MetricCounter   MetricKind = "counter"   // MetricCounter: what Count adds to; its name ends in "_total".
	MetricGauge     MetricKind = "gauge"     // MetricGauge: what Gauge sets.
	MetricHistogram MetricKind = "histogram" // MetricHistogram: what Observe adds a sample to.
)

// MetricField names a field of MetricLabels, as monitoring systems call it.
type MetricField string

// The fields of MetricLabels.
const (
	FieldTenant MetricField = "tenant"   // FieldTenant is MetricLabels.Tenant.
	FieldQueue  MetricField = "queue"    // FieldQueue is MetricLabels.Queue.
	FieldLevel  MetricField = "level"    // FieldLevel is MetricLabels.Level.
	FieldReason MetricField = "reason"   // FieldReason is MetricLabels.Reason.
	FieldClass  MetricField = "gpu_type" // FieldClass is MetricLabels.Class.
	FieldModel  MetricField = "model"    // FieldModel is MetricLabels.Model.
	FieldState  MetricField = "state"    // FieldState is MetricLabels.State.
	FieldResult MetricField = "result"   // FieldResult is MetricLabels.Result.
	FieldKind   MetricField = "kind"     // FieldKind is MetricLabels.Kind.
)

// MetricLabel is a label of a metric: which field holds it, and what it is called.
type MetricLabel struct {
	Field MetricField `json:"field"`          // Field is where the value stands.
	Name  string      `json:"name,omitempty"` // Name is what the label is called, such as "lender" for a tenant that lends; "" means as the field.
}

// String returns the name of l.
func (l MetricLabel) String() string {
	if l.Name == "" {
		return string(l.Field)
	}
	return l.Name
}

// MetricDescriptor says what is behind the name of a metric, so that an adapter
// can declare it before the first measurement. Packages that record return
// theirs as a fresh slice, which is the caller's.
type MetricDescriptor struct {
	Name    Metric        `json:"name"`              // Name is unique among the descriptors that are used together: small letters, digits and single underscores.
	Kind    MetricKind    `json:"kind"`              // Kind is which method records it.
	Unit    string        `json:"unit,omitempty"`    // Unit is the base unit of the values, such as "seconds", "bytes", "gpus" or "ratio"; "" means a plain count.
	Help    string        `json:"help"`              // Help is one sentence without a stop.
	Labels  []MetricLabel `json:"labels,omitempty"`  // Labels are the fields that tell its series apart, in the order in which they are shown; the others are ignored.
	Buckets []float64     `json:"buckets,omitempty"` // Buckets are the upper bounds of a histogram, increasing, without infinity; nil for the other kinds.
}

// Value returns the field of l that f names, and "" for any other name.
func (l *MetricLabels) Value(f MetricField) string {
	switch f {
	case FieldTenant:
		return string(l.Tenant)
	case FieldQueue:
		return string(l.Queue)
	case FieldLevel:
		return string(l.Level)
	case FieldReason:
		return string(l.Reason)
	case FieldClass:
		return string(l.Class)
	case FieldModel:
		return l.Model
	case FieldState:
		return l.State
	case FieldResult:
		return l.Result
	case FieldKind:
		return l.Kind
	}
	return ""
}

// SetValue sets the field of l that f names, and nothing for any other name.
func (l *MetricLabels) SetValue(f MetricField, value string) {
	switch f {
	case FieldTenant:
		l.Tenant = TenantID(value)
	case FieldQueue:
		l.Queue = QueueID(value)
	case FieldLevel:
		l.Level = Level(value)
	case FieldReason:
		l.Reason = Reason(value)
	case FieldClass:
		l.Class = DeviceClass(value)
	case FieldModel:
		l.Model = value
	case FieldState:
		l.State = value
	case FieldResult:
		l.Result = value
	case FieldKind:
		l.Kind = value
	}
}

// Keep returns l with only the fields that d has, so that two measurements of
// one series have equal labels. It allocates nothing.
func (d *MetricDescriptor) Keep(l MetricLabels) MetricLabels {
	var kept MetricLabels
	for i := range d.Labels {
		f := d.Labels[i].Field
		kept.SetValue(f, l.Value(f))
	}
	return kept
}

// Validate reports every fault of d, joined, each an *Error of kind ErrInvalid.
func (d MetricDescriptor) Validate() error {
	f := faults{op: "metric " + errtext.Quote(string(d.Name))}
	if !metricWord(string(d.Name)) {
		f.bad("Name", errtext.Quote(string(d.Name)), "want small letters, digits and single underscores, a letter first")
	}
	total := strings.HasSuffix(string(d.Name), "_total")
	switch d.Kind {
	case MetricCounter, MetricGauge, MetricHistogram:
		if total != (d.Kind == MetricCounter) {
			f.bad("Name", errtext.Quote(string(d.Name)), `counters end in "_total", and nothing else does`)
		}
	default:
		f.bad("Kind", errtext.Quote(string(d.Kind)), `want "counter", "gauge" or "histogram"`)
	}
	if d.Unit != "" && !metricWord(d.Unit) {
		f.bad("Unit", errtext.Quote(d.Unit), "want small letters")
	}
	if d.Help == "" {
		f.bad("Help", "", "must say what is measured")
	}
	d.validateLabels(&f)
	d.validateBuckets(&f)
	return f.err()
}

func (d *MetricDescriptor) validateLabels(f *faults) {
	for i, l := range d.Labels {
		at := "Labels[" + strconv.Itoa(i) + "]"
		if !slices.Contains(metricFields(), l.Field) {
			f.bad(at+".Field", errtext.Quote(string(l.Field)), "no such field")
		}
		if !metricWord(l.String()) || l.String() == "le" || l.String() == "quantile" {
			f.bad(at+".Name", errtext.Quote(l.Name), `want small letters, digits and single underscores, and not "le" or "quantile"`)
		}
		for _, before := range d.Labels[:i] {
			if before.Field == l.Field || before.String() == l.String() {
				f.bad(at, errtext.Quote(l.String()), "is given twice")
			}
		}
	}
}

func (d *MetricDescriptor) validateBuckets(f *faults) {
	if (len(d.Buckets) > 0) != (d.Kind == MetricHistogram) {
		f.bad("Buckets", strconv.Itoa(len(d.Buckets)), "a histogram has some, and nothing else does")
	}
	for i, b := range d.Buckets {
		if math.IsNaN(b) || math.IsInf(b, 0) || i > 0 && b <= d.Buckets[i-1] {
			f.bad("Buckets["+strconv.Itoa(i)+"]", strconv.FormatFloat(b, 'g', -1, 64), "must be finite and above the one before")
		}
	}
}

// metricFields returns all fields.
func metricFields() []MetricField {
	return []MetricField{FieldTenant, FieldQueue, FieldLevel, FieldReason, FieldClass, FieldModel, FieldState, FieldResult, FieldKind}
}

// metricWord reports whether s may name a metric or a label.
func metricWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z':
		case '0' <= c && c <= '9' && i > 0:
		case c == '_' && i > 0 && i < len(s)-1 && s[i-1] != '_':
		default:
			return false
		}
	}
	return s != ""
}

// ValidateMetrics reports every fault of descriptors that are to be used
// together, joined: those of each, and ErrDuplicate for a name given twice, be it
// that of a series which a histogram is shown as.
func ValidateMetrics(descriptors []MetricDescriptor) error {
	f := faults{op: "metrics"}
	seen := make(map[Metric]bool, len(descriptors))
	for i := range descriptors {
		d := &descriptors[i]
		at := "[" + strconv.Itoa(i) + "]"
		if err := d.Validate(); err != nil {
			f.errs = append(f.errs, err)
		}
		if seen[d.Name] {
			f.duplicate(at+".Name", string(d.Name))
		}
		seen[d.Name] = true
	}
	for i := range descriptors {
		if descriptors[i].Kind != MetricHistogram {
			continue
		}
		for _, suffix := range [...]Metric{"_bucket", "_count", "_sum"} {
			if name := descriptors[i].Name + suffix; seen[name] {
				f.duplicate("["+strconv.Itoa(i)+"].Name", string(name))
			}
		}
	}
	return f.err()
}
