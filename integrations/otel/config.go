package otel

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/metric"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/perfmodel/profile"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

// Scope is the instrumentation scope of the instruments and the spans.
const Scope = "github.com/lockstep-gpu/lockstep/integrations/otel"

// DefaultPrefix is Config.Prefix where that is "".
const DefaultPrefix = "gpusched."

// MaxLabels is how many labels a metric may have.
const MaxLabels = 4

// Config configures a Recorder. Only MeterProvider has no default.
type Config struct {
	Prefix  string                      `json:"prefix,omitempty"` // Prefix is what all names begin with: small letters, digits, underscores and dots, a dot last; "" means DefaultPrefix.
	Metrics []lockstep.MetricDescriptor `json:"metrics,omitzero"` // Metrics are those that may be recorded, each with at most MaxLabels labels; nil means those of Metrics. NewRecorder copies them.
	Values  int                         `json:"values,omitempty"` // Values is how many different values an attribute of a metric may have, "other" beside; 0 means meter.DefaultValues.
	Series  int                         `json:"series,omitempty"` // Series is how many series a metric may have, the one with all attributes "other" beside; 0 means meter.DefaultSeries.

	MeterProvider metric.MeterProvider `json:"-"` // MeterProvider makes the instruments; required.
}

// Metrics returns what is recorded by scheduler/meter, gang and
// perfmodel/profile. The slice is the caller's: add to it what the host records
// itself, or change buckets, and hand it to Config.Metrics.
func Metrics() []lockstep.MetricDescriptor {
	all := append(meter.Metrics(), gang.Metrics()...)
	return append(all, profile.Metrics()...)
}

// withDefaults fills in what c leaves open.
func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Metrics == nil {
		c.Metrics = Metrics()
	}
	return c
}

// prefixes are the prefixes that names may have.
var prefixes = regexp.MustCompile(`^[a-z][a-z0-9]*([_.][a-z0-9]+)*\.$`)

// Validate reports every fault of c, joined, each an *lockstep.Error.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if !prefixes.MatchString(c.Prefix) || len(c.Prefix) > 100 {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Prefix", errtext.Quote(c.Prefix), "want small letters, digits, underscores and dots, a dot at the end"))
	}
	if _, err := meter.NewBounds(meter.BoundsConfig{Metrics: c.Metrics, Values: c.Values, Series: c.Series}); err != nil {
		errs = append(errs, err)
	}
	names := make(map[string]bool, len(c.Metrics))
	for i := range c.Metrics {
		name, _ := Instrument(c.Prefix, c.Metrics[i])
		if names[name] {
			errs = append(errs, fault(lockstep.ErrDuplicate, "config", "Metrics["+strconv.Itoa(i)+"].Name", errtext.Quote(string(c.Metrics[i].Name)), "another is called "+name+" too"))
		}
		names[name] = true
		if n := len(c.Metrics[i].Labels); n > MaxLabels {
			errs = append(errs, fault(lockstep.ErrInvalid, "config", "Metrics["+strconv.Itoa(i)+"].Labels", strconv.Itoa(n), "want at most "+strconv.Itoa(MaxLabels)))
		}
	}
	if c.MeterProvider == nil {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "MeterProvider", "nil", "required"))
	}
	return errors.Join(errs...)
}

func fault(kind error, op, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "otel: " + op, Field: field, Value: value, Reason: reason}
}

// Instrument returns what a metric is called here and its unit in UCUM. Names
// carry no "_total" and no unit, as OpenTelemetry has it; a translation to
// Prometheus puts both back, so that its names are those of integrations/prometheus.
func Instrument(prefix string, d lockstep.MetricDescriptor) (name, unit string) {
	name = strings.TrimSuffix(string(d.Name), "_total")
	switch d.Unit {
	case "":
		unit = "1"
		if d.Kind != lockstep.MetricHistogram {
			unit = "{" + noun(name) + "}" // a plain count: an annotation, which nothing is made of
		}
	case "seconds":
		name, unit = strings.TrimSuffix(name, "_seconds"), "s"
	case "bytes":
		name, unit = strings.TrimSuffix(name, "_bytes"), "By"
	case "ratio":
		unit = "1"
		if d.Kind == lockstep.MetricGauge {
			name = strings.TrimSuffix(name, "_ratio")
		}
	default:
		unit = "{" + strings.TrimSuffix(d.Unit, "s") + "}"
	}
	return prefix + name, unit
}

// noun is the last word of a name.
func noun(name string) string {
	if i := strings.LastIndexByte(name, '_'); i >= 0 {
		name = name[i+1:]
	}
	if stem, ok := strings.CutSuffix(name, "ies"); ok {
		return stem + "y"
	}
	return strings.TrimSuffix(name, "s")
}
