package dra

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/lockstep-gpu/lockstep"
)

// Config says how drivers name things. The zero value reads what NVIDIA's driver and
// the example driver of Kubernetes publish.
type Config struct {
	Classes           map[string]Class // Classes are device classes that are known by name, whatever their selectors say; nil means none.
	ModelAttributes   []string         // ModelAttributes are attributes with the model of a device, the first that is there counts; nil means productName and model.
	ProfileAttributes []string         // ProfileAttributes are attributes with the MIG profile of a device, the first that is there counts; nil means profile.
	MemoryCapacity    string           // MemoryCapacity is the capacity that is a device's memory; "" means memory.
}

// Class is what the devices of a DeviceClass have.
type Class struct {
	Driver string            // Driver published them; "" means any.
	Equal  map[string]string // Equal are attributes and the text that each has, as "domain/name" or, of the driver's own, "name"; nil means any.
}

func (c *Config) model() []string {
	if c.ModelAttributes == nil {
		return []string{"productName", "model"}
	}
	return c.ModelAttributes
}

func (c *Config) profile() []string {
	if c.ProfileAttributes == nil {
		return []string{"profile"}
	}
	return c.ProfileAttributes
}

func (c *Config) memory() string {
	if c.MemoryCapacity == "" {
		return "memory"
	}
	return c.MemoryCapacity
}

// want is what a request asks of each of its devices.
type want struct {
	driver string            // "" means any
	equal  map[string]string // by attribute, as it was written
}

// add takes in more conditions; false says that they contradict those that are there.
func (w *want) add(driver string, equal map[string]string) bool {
	if driver != "" {
		if w.driver != "" && w.driver != driver {
			return false
		}
		w.driver = driver
	}
	for k, v := range equal { // all must agree
		if was, ok := w.equal[k]; ok && was != v {
			return false
		}
		if w.equal == nil {
			w.equal = make(map[string]string)
		}
		w.equal[k] = v
	}
	return true
}

// key is w as text, the same for what means the same.
func (w *want) key() string {
	var b strings.Builder
	b.WriteString(strconv.Quote(w.driver))
	for _, k := range slices.Sorted(maps.Keys(w.equal)) {
		b.WriteString(" " + strconv.Quote(k) + "=" + strconv.Quote(w.equal[k]))
	}
	return b.String()
}

// The parts of a selector that are read: equality of the driver, or of a text
// attribute, to a literal. Nothing writes to them.
var (
	driverTerm    = regexp.MustCompile(`^device\.driver\s*==\s*(?:"([^"\\]*)"|'([^'\\]*)')$`)
	attributeTerm = regexp.MustCompile(`^device\.attributes\[(?:"([^"\\]*)"|'([^'\\]*)')\]\.([A-Za-z_][A-Za-z0-9_]*)\s*==\s*(?:"([^"\\]*)"|'([^'\\]*)')$`)
)

// selectors adds what selectors ask for. CEL as such is not evaluated: what is not an
// equality, or several with && between, is refused.
func (w *want) selectors(list []resourcev1.DeviceSelector) (value, reason string) {
	for i := range list {
		if list[i].CEL == nil {
			return "", "the selector is of a kind that is not known"
		}
		expression := list[i].CEL.Expression
		for term := range strings.SplitSeq(expression, "&&") {
			term = strings.TrimSpace(term)
			ok := false
			if m := driverTerm.FindStringSubmatch(term); m != nil {
				ok = w.add(m[1]+m[2], nil)
			} else if m := attributeTerm.FindStringSubmatch(term); m != nil {
				ok = w.add("", map[string]string{m[1] + m[2] + "/" + m[3]: m[4] + m[5]})
			} else {
				return expression, "only equality of device.driver and of attributes to texts, with && between, is read; name the class in Config.Classes"
			}
			if !ok {
				return expression, "no device can have that, beside what else is asked for"
			}
		}
	}
	return "", ""
}

// text returns the text of an attribute of a device; names without a domain are of
// the driver's own.
func text(d *resourcev1.Device, driver, name string) (string, bool) {
	a, ok := d.Attributes[resourcev1.QualifiedName(name)]
	if domain, short, qualified := strings.Cut(name, "/"); !ok && qualified && domain == driver {
		a, ok = d.Attributes[resourcev1.QualifiedName(short)]
	} else if !ok && !qualified {
		a, ok = d.Attributes[resourcev1.QualifiedName(driver+"/"+name)]
	}
	if !ok || a.StringValue == nil {
		return "", false
	}
	return *a.StringValue, true
}

// matches reports whether a device is as wanted.
func (w *want) matches(d *resourcev1.Device, driver string) bool {
	if w.driver != "" && w.driver != driver {
		return false
	}
	for name, v := range w.equal { // all must hold
		if got, ok := text(d, driver, name); !ok || got != v {
			return false
		}
	}
	return true
}

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "dra: " + op, Field: field, Value: value, Reason: reason}
}
