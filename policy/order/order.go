package order

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/perfmodel/profile"
)

// Order compares jobs. The orders of this package nest by their field Then and are
// given as values, not as pointers; one of your own can be the innermost or be used
// alone.
type Order interface {
	// Compare is negative if a goes before b, positive if after, and 0 where
	// the next criterion decides. It must depend on nothing but the two jobs,
	// and be a strict weak order.
	Compare(a, b *Job) int
}

// nested is an order that may leave ties to another.
type nested interface {
	then() Order
}

// FIFO is the order of submission, then of job IDs. It ends every chain.
type FIFO struct{}

// Compare implements Order.
func (FIFO) Compare(a, b *Job) int {
	if c := cmp.Compare(a.submit, b.submit); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// Priority puts the higher priority first, strictly: a low one may starve.
type Priority struct {
	Then Order // Then breaks ties; nil means FIFO.
}

// Compare implements Order.
func (o Priority) Compare(a, b *Job) int {
	if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
		return c
	}
	return tie(o.Then, a, b)
}

// Aging lets priority rise by one with every Step that a job waits, counted in
// fixed windows of time, so that nobody starves.
type Aging struct {
	Step time.Duration // Step is the wait that is worth one priority; 0 means 10 minutes.
	Then Order         // Then breaks ties; nil means FIFO.
}

const defaultStep = 10 * time.Minute

// Compare implements Order.
func (o Aging) Compare(a, b *Job) int {
	step := int64(o.Step)
	if step == 0 {
		step = int64(defaultStep)
	}
	if c := cmp.Compare(subSat(int128.FloorDiv(a.since, step), int64(a.Priority)), subSat(int128.FloorDiv(b.since, step), int64(b.Priority))); c != 0 {
		return c
	}
	return tie(o.Then, a, b)
}

// SJF puts the shortest expected duration first, whatever was done of it.
type SJF struct {
	Then Order // Then breaks ties; nil means FIFO.
}

// Compare implements Order.
func (o SJF) Compare(a, b *Job) int {
	if c := cmp.Or(unknownLast(a, b), cmp.Compare(a.Duration, b.Duration)); c != 0 {
		return c
	}
	return tie(o.Then, a, b)
}

// Fewest puts the job with the fewest devices first.
type Fewest struct {
	Then Order // Then breaks ties; nil means FIFO.
}

// Compare implements Order.
func (o Fewest) Compare(a, b *Job) int {
	if c := cmp.Compare(a.GPUs, b.GPUs); c != 0 {
		return c
	}
	return tie(o.Then, a, b)
}

// SRTF puts the shortest remaining time first.
type SRTF struct {
	Then Order // Then breaks ties; nil means FIFO.
}

// Compare implements Order.
func (o SRTF) Compare(a, b *Job) int {
	if c := cmp.Or(unknownLast(a, b), cmp.Compare(a.Remaining(), b.Remaining())); c != 0 {
		return c
	}
	return tie(o.Then, a, b)
}

// SRSF puts the shortest remaining service first: remaining time × devices.
type SRSF struct {
	Then Order // Then breaks ties; nil means FIFO.
}

// Compare implements Order.
func (o SRSF) Compare(a, b *Job) int {
	if c := unknownLast(a, b); c != 0 {
		return c
	}
	ra := lockstep.GPUTimeOf(a.GPUs, a.Remaining())
	rb := lockstep.GPUTimeOf(b.GPUs, b.Remaining())
	if c := ra.Cmp(rb); c != 0 {
		return c
	}
	return tie(o.Then, a, b)
}

// Attained puts the least attained service first: devices × time, since submit.
type Attained struct {
	Then Order // Then breaks ties; nil means FIFO.
}

// Compare implements Order.
func (o Attained) Compare(a, b *Job) int {
	if c := a.service.Cmp(b.service); c != 0 {
		return c
	}
	return tie(o.Then, a, b)
}

// QSSF puts the smallest expected service first: expected duration × devices, whatever was done of it. With
// expectations learned from past jobs (perfmodel/profile) and jobs that are never stopped, it is
// quasi-shortest-service-first.
type QSSF struct {
	Then Order // Then breaks ties; nil means FIFO.
}

// Compare implements Order.
func (o QSSF) Compare(a, b *Job) int {
	if c := unknownLast(a, b); c != 0 {
		return c
	}
	if c := lockstep.GPUTimeOf(a.GPUs, a.Duration).Cmp(lockstep.GPUTimeOf(b.GPUs, b.Duration)); c != 0 {
		return c
	}
	return tie(o.Then, a, b)
}

// EDF puts the earliest deadline first.
type EDF struct {
	Then Order // Then breaks ties; nil means FIFO.
}

// Compare implements Order.
func (o EDF) Compare(a, b *Job) int {
	if c := cmp.Compare(a.deadline, b.deadline); c != 0 {
		return c
	}
	return tie(o.Then, a, b)
}

// LeastLaxity puts the job first that can wait least and still meet its deadline: deadline less remaining time. One
// without an expected duration counts as if nothing were left of it.
type LeastLaxity struct {
	Then Order // Then breaks ties; nil means FIFO.
}

// Compare implements Order.
func (o LeastLaxity) Compare(a, b *Job) int {
	if c := cmp.Compare(a.slack(), b.slack()); c != 0 {
		return c
	}
	return tie(o.Then, a, b)
}

// Gittins puts the job first that, going by past ones, is most likely to end for the service it takes to see:
// two-dimensional Gittins index with a fixed quantum. Unlike LAS it wants past jobs like those that come: with a few
// hundred of them or fewer, or of another kind, use LAS.
type Gittins struct {
	Past    *profile.Distribution // Past is the service of past jobs, as time of one whole device; it must not be nil or empty.
	Quantum time.Duration         // Quantum is how much service is looked ahead, as time of one whole device; 0 means 3250 s.
	Then    Order                 // Then breaks ties; nil means FIFO.
}

const defaultQuantum = 3250 * time.Second

// Compare implements Order.
func (o Gittins) Compare(a, b *Job) int {
	if c := o.index(a).Compare(o.index(b)); c != 0 {
		return c
	}
	return tie(o.Then, a, b)
}

func (o Gittins) index(j *Job) profile.Index {
	q := o.Quantum
	if q == 0 {
		q = defaultQuantum
	}
	x, _ := o.Past.GittinsWithin(whole(j.service), q)
	return x
}

// whole returns service as time of one whole device, rounded down to the nanosecond; at most lockstep.MaxWalltime,
// which no past job exceeds.
func whole(s lockstep.GPUTime) time.Duration {
	hi, lo := int128.Int(s).Words()
	if hi >= uint64(lockstep.WholeGPU) {
		return lockstep.MaxWalltime
	}
	quo, _ := bits.Div64(hi, lo, uint64(lockstep.WholeGPU))
	return time.Duration(min(quo, uint64(lockstep.MaxWalltime)))
}

// LAS is discretised least attained service. A chain holds at most one.
type LAS struct {
	Limits []time.Duration // Limits are the service, as time of one whole device, at which a job sinks to the next queue, increasing; nil means 3250 s and 7200 s.
	Knob   int             // Knob brings a job back to the first queue when it has waited Knob times as long as it ran; 0 means never.
	Then   Order           // Then orders inside a queue; nil means as doc.go says.
}

// Compare implements Order.
func (o LAS) Compare(a, b *Job) int {
	if c := cmp.Compare(a.level, b.level); c != 0 {
		return c
	}
	if o.Then == nil {
		p, r := &a.place, &b.place
		if c := cmp.Or(cmp.Compare(p.class, r.class), cmp.Compare(p.major, r.major), cmp.Compare(p.minor, r.minor)); c != 0 {
			return c
		}
	}
	return tie(o.Then, a, b)
}

func (o Priority) then() Order { return o.Then }
func (o Aging) then() Order    { return o.Then }
func (o SJF) then() Order      { return o.Then }
func (o Fewest) then() Order   { return o.Then }
func (o SRTF) then() Order     { return o.Then }
func (o SRSF) then() Order     { return o.Then }
func (o Attained) then() Order { return o.Then }
func (o LAS) then() Order      { return o.Then }

func (o QSSF) then() Order        { return o.Then }
func (o EDF) then() Order         { return o.Then }
func (o LeastLaxity) then() Order { return o.Then }
func (o Gittins) then() Order     { return o.Then }

// tie hands on to the next order, and to FIFO at the end of the chain.
func tie(next Order, a, b *Job) int {
	if next != nil {
		if c := next.Compare(a, b); c != 0 {
			return c
		}
	}
	return FIFO{}.Compare(a, b)
}

func unknownLast(a, b *Job) int {
	switch {
	case (a.Duration == 0) == (b.Duration == 0):
		return 0
	case a.Duration == 0:
		return 1
	}
	return -1
}

// subSat returns a-b held at the ends of int64.
func subSat(a, b int64) int64 { return int64(lockstep.MilliGPU(a).Sub(lockstep.MilliGPU(b))) }

// describe names a chain for snapshots, faults included. It stops at a pointer to
// an order of this package and at what embeds one: they would compare, but their
// settings would not be found.
func describe(o Order) (string, *LAS, error) {
	var parts []string
	var errs []error
	var las *LAS
	for ; o != nil; o = thenOf(o) {
		switch o := o.(type) {
		case *FIFO, *Priority, *Aging, *SJF, *Fewest, *SRTF, *SRSF, *Attained, *LAS, *QSSF, *EDF, *LeastLaxity, *Gittins:
			errs = append(errs, fault(lockstep.ErrInvalid, "config", "Order", fmt.Sprintf("%T", o), "want the value, not a pointer"))
			return "", nil, errors.Join(errs...)
		case Aging:
			if o.Step < 0 || o.Step > lockstep.MaxWalltime {
				errs = append(errs, fault(lockstep.ErrInvalid, "config", "Aging.Step", o.Step.String(), "want 0 to "+lockstep.MaxWalltime.String()))
			}
			parts = append(parts, fmt.Sprintf("Aging(%d)", o.Step))
		case LAS:
			if las != nil {
				errs = append(errs, fault(lockstep.ErrInvalid, "config", "LAS", "", "a chain holds at most one"))
			}
			las = &o
			if o.Limits == nil {
				o.Limits = []time.Duration{3250 * time.Second, 7200 * time.Second}
			}
			errs = append(errs, o.faults()...)
			parts = append(parts, fmt.Sprintf("LAS(%d,%d)", o.Limits, o.Knob))
		case Gittins:
			if faults := o.faults(); len(faults) > 0 {
				errs = append(errs, faults...)
				continue
			}
			parts = append(parts, fmt.Sprintf("Gittins(%d,%d past,%d)", o.Quantum, o.Past.Len(), o.Past.Mean()))
		case FIFO, Priority, SJF, Fewest, SRTF, SRSF, Attained, QSSF, EDF, LeastLaxity:
			parts = append(parts, strings.TrimPrefix(fmt.Sprintf("%T", o), "order."))
		default:
			parts = append(parts, fmt.Sprintf("%T", o))
			if _, ok := o.(nested); ok {
				errs = append(errs, fault(lockstep.ErrInvalid, "config", "Order", fmt.Sprintf("%T", o), "must not embed an order of this package"))
				return "", nil, errors.Join(errs...)
			}
		}
	}
	return strings.Join(parts, "/"), las, errors.Join(errs...)
}

// faults returns what is wrong with the settings of o.
func (o *LAS) faults() (errs []error) {
	for i, l := range o.Limits {
		if l <= 0 || i > 0 && l <= o.Limits[i-1] {
			errs = append(errs, fault(lockstep.ErrInvalid, "config", "LAS.Limits", fmt.Sprint(o.Limits), "must be positive and increase"))
			break
		}
	}
	if o.Knob < 0 || o.Knob > maxKnob {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "LAS.Knob", strconv.Itoa(o.Knob), "want 0 to "+strconv.Itoa(maxKnob)))
	}
	return errs
}

// faults returns what is wrong with the settings of o.
func (o *Gittins) faults() (errs []error) {
	if o.Past.Len() == 0 {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Gittins.Past", "", "there are no past jobs"))
	}
	if o.Quantum < 0 || o.Quantum > lockstep.MaxWalltime {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Gittins.Quantum", o.Quantum.String(), "want 0 to "+lockstep.MaxWalltime.String()))
	}
	return errs
}

const maxKnob = 1 << 20

func thenOf(o Order) Order {
	if n, ok := o.(nested); ok {
		return n.then()
	}
	return nil
}
