package elastic

import (
	"errors"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// faults collects what a validator finds, in the order in which it looks.
type faults struct {
	op   string
	errs []error
}

// err returns all faults joined, nil if there are none.
func (f *faults) err() error { return errors.Join(f.errs...) }

func (f *faults) add(kind error, field, value, reason string) {
	f.errs = append(f.errs, &lockstep.Error{Kind: kind, Op: "elastic: " + f.op, Field: field, Value: value, Reason: reason})
}

// bad notes an invalid field; value is what was given, as it is to be shown.
func (f *faults) bad(field, value, reason string) { f.add(lockstep.ErrInvalid, field, value, reason) }

// count checks a whole number.
func (f *faults) count(field string, v, least, most int64) {
	if v < least || v > most {
		f.bad(field, strconv.FormatInt(v, 10), "want "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
	}
}

// at names a field of an element without cost where nothing is wrong.
func at(slice string, i int, field string) string {
	return slice + "[" + strconv.Itoa(i) + "]." + field
}

// checkSearch reports every fault of the arguments of a Search.
func checkSearch(nodes []int, jobs []Candidate) error {
	f := faults{op: "search"}
	if len(nodes) > MaxCandidates {
		f.bad("nodes", strconv.Itoa(len(nodes)), "want at most 65536")
	}
	if len(jobs) > MaxCandidates {
		f.bad("jobs", strconv.Itoa(len(jobs)), "want at most 65536")
	}
	for i, n := range nodes {
		if n < 0 || n > lockstep.MaxDevicesPerNode {
			f.bad("nodes["+strconv.Itoa(i)+"]", strconv.Itoa(n), "want 0 to 64")
		}
	}
	for i := range jobs {
		f.candidate(i, &jobs[i])
	}
	seen := make(map[lockstep.JobID]struct{}, len(jobs))
	for i := range jobs {
		if _, ok := seen[jobs[i].ID]; ok {
			f.twice(i, jobs[i].ID)
		}
		seen[jobs[i].ID] = struct{}{}
	}
	return f.err()
}

// twice notes that a job occurs for the second time.
func (f *faults) twice(i int, id lockstep.JobID) {
	f.add(lockstep.ErrDuplicate, at("jobs", i, "ID"), errtext.Quote(id), "occurs twice")
}

func (f *faults) candidate(i int, c *Candidate) {
	const slice = "jobs"
	within := func(field string, v, most int64) {
		if v < 0 || v > most {
			f.bad(at(slice, i, field), strconv.FormatInt(v, 10), "want 0 to "+strconv.FormatInt(most, 10))
		}
	}
	if c.ID == "" {
		f.bad(at(slice, i, "ID"), `""`, "want a name")
	}
	within("Min", int64(c.Min), MaxGPUs)
	within("Max", int64(c.Max), MaxGPUs)
	if c.Max != 0 && c.Max < c.Min {
		f.bad(at(slice, i, "Max"), strconv.Itoa(c.Max), "want at least Min, "+strconv.Itoa(c.Min))
	}
	within("Weight", c.Weight, MaxWeight)
	within("Age", int64(c.Age), int64(lockstep.MaxWalltime))
	within("Restarts", int64(c.Restarts), 1<<30)
	within("Since", int64(c.Since), int64(lockstep.MaxWalltime))
	for k, s := range c.Held {
		field := "Held[" + strconv.Itoa(k) + "]."
		if s.Node < 0 || s.Node >= MaxCandidates {
			f.bad(at(slice, i, field+"Node"), strconv.Itoa(s.Node), "want 0 to 65535")
		}
		if s.GPUs < 1 || s.GPUs > lockstep.MaxDevicesPerNode {
			f.bad(at(slice, i, field+"GPUs"), strconv.Itoa(s.GPUs), "want 1 to 64")
		}
		for _, o := range c.Held[:k] {
			if o.Node == s.Node {
				f.add(lockstep.ErrDuplicate, at(slice, i, field+"Node"), strconv.Itoa(s.Node), "occurs twice")
			}
		}
	}
}
