package fairness

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// This file is the orders of jobs that depend on the time of the pass: a tenant's
// jobs are ranked when the pass first comes to it. So are those of any order in a
// pass of a recent that looks ahead to another epoch, in whose units no key is.

// ranked says whether jobs are ranked anew in each pass.
func (o JobOrder) ranked() bool { return o == LeastIndex || o == IndexClass || o == LeastExpect }

// ranking is what a job is ranked by: got over due, or its class.
type ranking struct {
	got, due int128.Int // due is 0 for a job without an index, and 1 where got is its key
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
	if !turn.ranked {
		turn.ranked = true
		l.rank(t, turn)
	}
	for turn.next < turn.end {
		j := l.pass.ranked[turn.next]
		turn.next++
		if j.proposed != l.pass.seq && !j.done && (!j.running || j.due) {
			return j
		}
	}
	return nil
}

// rank appends the jobs of t's queue to pass.ranked.
func (l *Ledger) rank(t *tenant, turn *turn) {
	p, v := &l.pass, l.look(l.pass.now)
	list := p.rankings[:0]
	each := l.perJob(t, &v, p.quantum)
	t.queue.Ascend(func(e entry) bool {
		list = append(list, l.ranking(e.job, &v, each, p.quantum))
		return true
	})
	slices.SortFunc(list, compareRankings)
	turn.next = len(p.ranked)
	for i := range list {
		p.ranked = append(p.ranked, list[i].job)
	}
	turn.end = len(p.ranked)
	clear(list)
	p.rankings = list
}

// perJob returns what each of t's jobs is entitled to over the quantum, at present
// shares.
func (l *Ledger) perJob(t *tenant, v *view, quantum uint64) int128.Int {
	rate := v.levels[t.rank()].rate(uint64(t.demand), t.pull())
	each, _ := int128.Whole(int128.Mul(rate, quantum)).QuoRem(uint64(max(t.live, 1)))
	return each
}

func (l *Ledger) ranking(j *job, v *view, each int128.Int, quantum uint64) ranking {
	service, wanted := j.seen(v)
	r := ranking{got: service, job: j}
	switch l.cfg.JobOrder {
	case LeastIndex, IndexClass:
		r.due = least(l.share(j, v), wanted)
		if l.cfg.JobOrder == IndexClass {
			r.class = r.classOf()
			r.got, r.due = int128.Int{}, int128.Int{}
		}
	case LeastExpect:
		more := rated(j.demand, quantum)
		r.got, r.due = r.got.Add(more), least(l.share(j, v), wanted).Add(least(each, more))
	case FIFO:
		r.got, r.due = int128.Int{}, int128.Of(1)
	default:
		r.got, r.due = v.agedInt(j.share).Add(service), int128.Of(1)
		if l.cfg.JobOrder != MostOwed {
			r.got = l.keyOf(j, service, j.ranBy(v))
		}
	}
	return r
}

// classOf returns which of IndexClass r belongs to.
func (r *ranking) classOf() int {
	if r.due.Sign() <= 0 || r.got.Sign() <= 0 {
		return 0
	}
	class := 1
	for _, bound := range bounds {
		if cmpRatios(r.got, r.due, int128.Of(bound), int128.Of(thousand)) >= 0 {
			class++
		}
	}
	return class
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
