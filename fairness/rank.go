package fairness

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// This file is the orders of jobs that depend on the time of the pass: a tenant's
// jobs are ranked when the pass first comes to it.

// ranked says whether jobs are ranked anew in each pass.
func (o JobOrder) ranked() bool { return o == LeastIndex || o == IndexClass || o == LeastExpect }

// ranking is what a job is ranked by: got over due, or its class.
type ranking struct {
	got, due int128.Int // due is 0 for a job without an index
	class    int
	job      *job
}

// bounds, which is immutable, are those of IndexClass, in thousandths: where the discretised order of
// ASTRAEA's simulator (Ye et al., IEEE TPDS 2022, artifact) with five classes cuts.
var bounds = [...]int64{472, 815, 1227, 2117}

// nextRanked returns the first job of t, by rank, that the pass has not proposed and
// that can still be, or nil.
func (l *Ledger) nextRanked(t *tenant) *job {
	turn := l.pass.part(t)
	if !turn.sorted {
		turn.sorted = true
		l.rank(t, turn)
	}
	for len(turn.ranked) > 0 {
		j := turn.ranked[0]
		turn.ranked = turn.ranked[1:]
		if j.proposed != l.pass.seq && !j.done && (!j.running || j.due) {
			return j
		}
	}
	return nil
}

// rank fills turn.ranked with the jobs of t's queue.
func (l *Ledger) rank(t *tenant, turn *turn) {
	v := l.at(l.pass.now)
	list := make([]ranking, 0, t.queue.Len())
	each := l.perJob(t, &v)
	t.queue.Ascend(func(e entry) bool {
		list = append(list, l.ranking(e.job, &v, each))
		return true
	})
	slices.SortFunc(list, compareRankings)
	turn.ranked = turn.ranked[:0]
	for i := range list {
		turn.ranked = append(turn.ranked, list[i].job)
	}
}

// perJob returns what each of t's jobs is entitled to over the quantum, at present
// shares.
func (l *Ledger) perJob(t *tenant, v *view) int128.Int {
	rate := v.levels[t.rank()].rate(uint64(t.demand), t.pull())
	each, _ := int128.Whole(int128.Mul(rate, uint64(l.cfg.Quantum))).QuoRem(uint64(max(t.live, 1)))
	return each
}

func (l *Ledger) ranking(j *job, v *view, each int128.Int) ranking {
	service, wanted := j.at(v.now)
	r := ranking{got: service, due: least(l.share(j, v), wanted), job: j}
	switch l.cfg.JobOrder {
	case LeastExpect:
		more := rated(j.demand, uint64(l.cfg.Quantum))
		r.got, r.due = r.got.Add(more), r.due.Add(least(each, more))
	case IndexClass:
		if r.due.Sign() > 0 && r.got.Sign() > 0 {
			r.class = 1
			for _, bound := range bounds {
				if cmpRatios(r.got, r.due, int128.Of(bound), int128.Of(thousand)) >= 0 {
					r.class++
				}
			}
		}
		r.got, r.due = int128.Int{}, int128.Int{}
	}
	return r
}

func least(a, b int128.Int) int128.Int {
	if b.Cmp(a) < 0 {
		return b
	}
	return a
}

func compareRankings(a, b ranking) int {
	if c := cmp.Compare(a.class, b.class); c != 0 {
		return c
	}
	switch { // without an index comes first
	case a.due.Sign() > 0 && b.due.Sign() > 0:
		if c := cmpRatios(a.got, a.due, b.got, b.due); c != 0 {
			return c
		}
	case a.due.Sign() > 0:
		return 1
	case b.due.Sign() > 0:
		return -1
	}
	if c := cmp.Compare(a.job.submitted, b.job.submitted); c != 0 {
		return c
	}
	return strings.Compare(string(a.job.id), string(b.job.id))
}
