package prometheus

import (
	"errors"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/perfmodel/profile"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

// DefaultPrefix is Config.Prefix where that is "".
const DefaultPrefix = "gpusched_"

// MaxLabels is how many labels a metric may have.
const MaxLabels = 4

// Config configures a Recorder. The zero value is valid: a Recorder that is a
// collector, registered nowhere.
type Config struct {
	Prefix  string                      `json:"prefix,omitempty"` // Prefix is what all names begin with: small letters, digits and underscores, an underscore last; "" means DefaultPrefix.
	Metrics []lockstep.MetricDescriptor `json:"metrics,omitzero"` // Metrics are those that may be recorded, each with at most MaxLabels labels; nil means those of Metrics. New copies them.
	Labels  map[string]string           `json:"labels,omitempty"` // Labels stand on every series, such as the name of the cluster; New copies them.
	Values  int                         `json:"values,omitempty"` // Values is how many different values a label of a metric may have, "other" beside; 0 means meter.DefaultValues.
	Series  int                         `json:"series,omitempty"` // Series is how many series a metric may have, the one with all labels "other" beside; 0 means meter.DefaultSeries.

	Registerer prometheus.Registerer `json:"-"` // Registerer takes the Recorder as a collector; nil means that the host does, or not at all.
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

// prefixes are the prefixes that names may have; labelNames the names of labels.
var (
	prefixes   = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*_$`)
	labelNames = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]*$`)
)

// Validate reports every fault of c, joined, each an *lockstep.Error.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "prometheus: config", Field: field, Value: value, Reason: reason})
	}
	if !prefixes.MatchString(c.Prefix) {
		bad("Prefix", errtext.Quote(c.Prefix), "want small letters, digits and single underscores, one at the end")
	}
	if _, err := meter.NewBounds(meter.BoundsConfig{Metrics: c.Metrics, Values: c.Values, Series: c.Series}); err != nil {
		errs = append(errs, err)
	}
	for i := range c.Metrics {
		d := &c.Metrics[i]
		if len(d.Labels) > MaxLabels {
			bad("Metrics["+strconv.Itoa(i)+"].Labels", strconv.Itoa(len(d.Labels)), "want at most "+strconv.Itoa(MaxLabels))
		}
		for _, l := range d.Labels {
			if _, taken := c.Labels[l.String()]; taken {
				bad("Labels", errtext.Quote(l.String()), "is a label of "+string(d.Name))
			}
		}
	}
	for name, value := range c.Labels { // the faults are joined, and whoever reads them does not mind the order
		if !labelNames.MatchString(name) || name == "le" || name == "quantile" {
			bad("Labels", errtext.Quote(name), "is no name of a label")
		}
		if !utf8.ValidString(value) {
			bad("Labels", errtext.Quote(value), "is no text in UTF-8")
		}
	}
	return errors.Join(errs...)
}
