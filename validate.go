package lockstep

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// faults collects what a validator finds, in the order in which it looks.
type faults struct {
	op   string
	errs []error
}

// err returns all faults joined, nil if there are none.
func (f *faults) err() error { return errors.Join(f.errs...) }

// bad notes an invalid field; value is what was given, as it is to be shown.
func (f *faults) bad(field, value, reason string) {
	f.errs = append(f.errs, invalid(f.op, field, value, reason))
}

// duplicate notes a name that stands twice where each may stand once.
func (f *faults) duplicate(field, name string) {
	f.errs = append(f.errs, &Error{Kind: ErrDuplicate, Op: "lockstep: " + f.op, Field: field, Value: errtext.Quote(name), Reason: "named twice"})
}

// name checks a text that must be a name, as nameFault has it.
func (f *faults) name(field, text string) {
	if reason := nameFault(text); reason != "" {
		f.bad(field, errtext.Quote(text), reason)
	}
}

// nameOrEmpty checks a text that is a name where it is given.
func (f *faults) nameOrEmpty(field, text string) {
	if text != "" {
		f.name(field, text)
	}
}

// labels checks a map of labels, by key so that the faults have one order.
func (f *faults) labels(field string, labels map[string]string) {
	if len(labels) == 0 {
		return // as for nearly every gang; sorting nothing would allocate
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if reason := nameFault(key); reason != "" {
			f.bad(field, errtext.Quote(key), "a label's key "+reason)
			continue
		}
		f.labelValue(field+"."+key, labels[key])
	}
}

// labelValue checks the value of a label: any text of one line, also none.
func (f *faults) labelValue(field, text string) {
	switch {
	case len(text) > MaxIDLength:
		f.bad(field, errtext.Quote(text), "must be at most "+strconv.Itoa(MaxIDLength)+" bytes")
	case !utf8.ValidString(text):
		f.bad(field, errtext.Quote(text), "must be valid UTF-8")
	default:
		for _, r := range text {
			if !unicode.IsPrint(r) {
				f.bad(field, errtext.Quote(text), "must hold only printable characters")
				return
			}
		}
	}
}

// duration checks an estimate: 0 to MaxWalltime.
func (f *faults) duration(field string, d time.Duration) {
	if d < 0 || d > MaxWalltime {
		f.bad(field, d.String(), "want 0 to "+MaxWalltime.String())
	}
}
