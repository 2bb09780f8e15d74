package interval

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Sample is how much device memory a job used at a moment of a training step.
type Sample struct {
	At   time.Duration  // At is the time since some step began; times beyond the step's length belong to later steps.
	Used lockstep.Bytes // Used is how much was in use; not negative.
}

// Moment is when in a step to save.
type Moment struct {
	Offset time.Duration  // Offset is the time since a step began.
	Used   lockstep.Bytes // Used is the most that was in use for the time of the pause from then on.
	Peak   lockstep.Bytes // Peak is the most that was ever in use.

	// Flat says that the choice makes less than a twentieth of a difference. It is how the memory that a caching
	// allocator has reserved looks from outside: ask the framework instead, or let it give its cache back.
	Flat bool
}

// flat is the part of the peak below which a difference does not count: a twentieth.
const flat = 20

// Quietest returns the moment of a step of length step at which the least memory is in use, over all samples, for as
// long as the pause takes to begin, pause. It wants at least one sample for every 16th of a step; fewer, or samples
// that leave such a gap, are an error. Samples may come in any order.
func Quietest(samples []Sample, step, pause time.Duration) (Moment, error) {
	if err := checkSamples(samples, step, pause); err != nil {
		return Moment{}, err
	}
	folded := make([]Sample, len(samples))
	var m Moment
	for i, s := range samples {
		folded[i] = Sample{At: s.At % step, Used: s.Used}
		m.Peak = max(m.Peak, s.Used)
	}
	slices.SortFunc(folded, func(a, b Sample) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(b.Used, a.Used)) })
	for i, s := range folded {
		next := folded[(i+1)%len(folded)].At
		if i == len(folded)-1 {
			next += step
		}
		if gap := next - s.At; gap > step/16 {
			return Moment{}, fault("quietest", "samples", strconv.Itoa(len(samples)), "leave a gap of "+gap.String()+" of a step of "+step.String())
		}
	}
	at, used := lowest(folded, step, pause)
	m.Offset, m.Used = folded[at].At, used
	m.Flat = int64(m.Peak-m.Used) <= int64(m.Peak)/flat
	return m, nil
}

// lowest finds the sample from which the greatest of the samples within pause is least, the first of equals. It keeps
// the candidates for the greatest in a falling queue while the window slides round the step.
func lowest(folded []Sample, step, pause time.Duration) (at int, used lockstep.Bytes) {
	n := len(folded)
	when := func(i int) time.Duration { return folded[i%n].At + step*time.Duration(i/n) }
	queue := make([]int, 0, 2*n)
	end := 0 // the first that is not in the queue yet
	used = -1
	for i := range n {
		for ; end < i+n && (end == i || when(end) <= when(i)+pause); end++ {
			for len(queue) > 0 && folded[queue[len(queue)-1]%n].Used <= folded[end%n].Used {
				queue = queue[:len(queue)-1]
			}
			queue = append(queue, end)
		}
		for queue[0] < i {
			queue = queue[1:]
		}
		if most := folded[queue[0]%n].Used; used < 0 || most < used {
			at, used = i, most
		}
	}
	return at, used
}

// checkSamples reports every fault.
func checkSamples(samples []Sample, step, pause time.Duration) error {
	var errs []error
	if step <= 0 || step > 24*time.Hour {
		errs = append(errs, fault("quietest", "step", step.String(), "want more than 0, at most 24h"))
	}
	if pause < 0 || pause > step {
		errs = append(errs, fault("quietest", "pause", pause.String(), "want 0 to the length of a step"))
	}
	if len(samples) < 16 || len(samples) > million {
		errs = append(errs, fault("quietest", "samples", strconv.Itoa(len(samples)), "want 16 to 1000000"))
		return errors.Join(errs...)
	}
	for i, s := range samples {
		at := "samples[" + strconv.Itoa(i) + "]."
		if err := within("quietest", at+"At", s.At); err != nil {
			errs = append(errs, err)
		}
		if s.Used < 0 {
			errs = append(errs, fault("quietest", at+"Used", strconv.FormatInt(int64(s.Used), 10), "want 0 or more"))
		}
	}
	return errors.Join(errs...)
}
