package resize

import (
	"strconv"
)

// Cursor is where a job is in its data, between two steps: the order of an epoch's
// samples depends on its number only, and Consumed of them are done. Since it counts
// samples and not steps or ranks, it stays true when the number of replicas or the
// batch changes. A step that did not complete has not moved it.
type Cursor struct {
	Epoch    int64 `json:"epoch"`    // Epoch is the number of the epoch, from 0.
	Consumed int64 `json:"consumed"` // Consumed is how many of its samples are done.
	Step     int64 `json:"step"`     // Step is how many steps are done in all.
}

// Range is a run of samples that follow each other in the order of an epoch.
type Range struct {
	Epoch int64 `json:"epoch"` // Epoch is the number of the epoch.
	First int64 `json:"first"` // First is the place of the first sample in its order, from 0.
	Count int64 `json:"count"` // Count is how many there are, at least 1.
}

// The bounds of places in the data.
const (
	maxEpochs = 1 << 16 // epochs that one step may reach into
	most      = 1 << 60 // of anything that is counted
)

// Take returns the samples of the next step, global of them, of a data set of so many,
// and the cursor behind them. A step that reaches the end of an epoch goes on in the
// next, so that each epoch has each sample once. Cursors out of range and sizes below
// 1 are ErrInvalid.
func (c Cursor) Take(global, samples int64) ([]Range, Cursor, error) {
	f := faults{op: "resize: take"}
	f.within("samples", samples, 1, most)
	f.within("global", global, 1, maxSamples)
	f.within("c.Epoch", c.Epoch, 0, most-maxEpochs)
	f.within("c.Consumed", c.Consumed, 0, max(0, samples))
	f.within("c.Step", c.Step, 0, most-1)
	if len(f.errs) == 0 && global/samples >= maxEpochs {
		f.bad("global", strconv.FormatInt(global, 10), "reaches into too many epochs")
	}
	if err := f.err(); err != nil {
		return nil, c, err
	}
	var out []Range
	for global > 0 {
		if c.Consumed == samples {
			c.Epoch, c.Consumed = c.Epoch+1, 0
		}
		n := min(global, samples-c.Consumed)
		out = append(out, Range{c.Epoch, c.Consumed, n})
		c.Consumed += n
		global -= n
	}
	c.Step++
	return out, c, nil
}

// Deal returns which of a step's samples each replica takes: micro-batch after
// micro-batch in their order, split[i] of them for replica i, of micro samples each.
// It is ErrInvalid if they do not add up to the samples.
func Deal(step []Range, micro int64, split []int) ([][]Range, error) {
	f := faults{op: "resize: deal"}
	f.within("micro", micro, 1, maxSamples)
	total, want := int64(0), int64(0)
	for i, r := range step {
		field := "step[" + strconv.Itoa(i) + "]"
		f.within(field+".Epoch", r.Epoch, 0, most)
		f.within(field+".First", r.First, 0, most)
		f.within(field+".Count", r.Count, 1, maxSamples)
		total += r.Count
	}
	for i, n := range split {
		f.within("split["+strconv.Itoa(i)+"]", int64(n), 0, maxMicros)
		want += int64(n)
	}
	if len(f.errs) == 0 && (want > maxSamples/micro || want*micro != total) {
		f.bad("split", strconv.Itoa(len(split))+" replicas", "the micro-batches do not add up to "+strconv.FormatInt(total, 10)+" samples")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	out := make([][]Range, len(split))
	at, used := 0, int64(0)
	for i, n := range split {
		for left := int64(n) * micro; left > 0; {
			r := step[at]
			take := min(left, r.Count-used)
			out[i] = append(out[i], Range{r.Epoch, r.First + used, take})
			left -= take
			if used += take; used == r.Count {
				at, used = at+1, 0
			}
		}
	}
	return out, nil
}

// validate refuses a cursor that no job can have.
func (c Cursor) validate(f *faults, field string) {
	f.within(field+".Epoch", c.Epoch, 0, most)
	f.within(field+".Consumed", c.Consumed, 0, most)
	f.within(field+".Step", c.Step, 0, most)
}

// Validate reports every fault of c, joined, each an *lockstep.Error.
func (c Cursor) Validate() error {
	f := faults{op: "resize: cursor"}
	c.validate(&f, "Cursor")
	return f.err()
}
