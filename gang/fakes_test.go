package gang_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
)

// ledger is a Quota of so many devices a tenant, which also checks its use.
type ledger struct {
	limit   int
	charges map[lockstep.JobID]charge
	used    map[lockstep.TenantID]int
	wrong   string
}

type charge struct {
	tenant lockstep.TenantID
	counts []int
	gpus   int
}

func newLedger(limit int) *ledger {
	return &ledger{limit: limit, charges: map[lockstep.JobID]charge{}, used: map[lockstep.TenantID]int{}}
}

func (l *ledger) Check(g *lockstep.Gang, counts []int) lockstep.Verdict {
	if n := int(g.GPUs(counts) / lockstep.WholeGPU); l.used[g.Tenant]+n > l.limit {
		milli := int64(lockstep.WholeGPU)
		return lockstep.Verdict{Reason: lockstep.ReasonQuota, Resource: lockstep.ResourceGPU, Requested: int64(n) * milli, Available: int64(l.limit-l.used[g.Tenant]) * milli}
	}
	return lockstep.Verdict{Feasible: true}
}

func (l *ledger) Charge(g *lockstep.Gang, counts []int) error {
	if _, ok := l.charges[g.ID]; ok {
		l.wrong = fmt.Sprintf("%s is charged twice", g.ID)
	}
	n := int(g.GPUs(counts) / lockstep.WholeGPU)
	l.charges[g.ID] = charge{tenant: g.Tenant, counts: slices.Clone(counts), gpus: n}
	l.used[g.Tenant] += n
	if l.used[g.Tenant] > l.limit {
		l.wrong = fmt.Sprintf("%s is over its limit by %s", g.Tenant, g.ID)
	}
	return nil
}

func (l *ledger) Refund(job lockstep.JobID) error {
	c, ok := l.charges[job]
	if !ok {
		l.wrong = fmt.Sprintf("%s is refunded without a charge", job)
	}
	l.used[c.tenant] -= c.gpus
	delete(l.charges, job)
	return nil
}

// shares is a Quota that lends, and a Reclaimer: each tenant deserves so many devices
// and may use more while others use less. What was lent goes back to a tenant
// within what it deserves; within a tenant higher priority takes from lower.
type shares struct {
	*ledger
	total    int
	deserved map[lockstep.TenantID]int
	gangs    map[lockstep.JobID]*lockstep.Gang
	named    map[lockstep.JobID][]lockstep.JobID // from whom each might take, last
}

func newShares(total int, deserved map[lockstep.TenantID]int) *shares {
	return &shares{ledger: newLedger(1 << 30), total: total, deserved: deserved, gangs: map[lockstep.JobID]*lockstep.Gang{}, named: map[lockstep.JobID][]lockstep.JobID{}}
}

func (s *shares) room(t lockstep.TenantID) int {
	all := 0
	for _, n := range s.used {
		all += n
	}
	return max(s.deserved[t]-s.used[t], s.total-all)
}

func (s *shares) Check(g *lockstep.Gang, counts []int) lockstep.Verdict {
	n, room := int(g.GPUs(counts)/lockstep.WholeGPU), s.room(g.Tenant)
	all := 0
	for _, u := range s.used {
		all += u
	}
	if n > room || all+n > s.total {
		milli := int64(lockstep.WholeGPU)
		return lockstep.Verdict{Reason: lockstep.ReasonQuota, Resource: lockstep.ResourceGPU, Requested: int64(n) * milli, Available: int64(min(room, s.total-all)) * milli}
	}
	return lockstep.Verdict{Feasible: true}
}

func (s *shares) Charge(g *lockstep.Gang, counts []int) error {
	s.gangs[g.ID] = g
	err := s.ledger.Charge(g, counts)
	all := 0
	for _, n := range s.used {
		all += n
	}
	if all > s.total {
		s.wrong = fmt.Sprintf("%s makes it %d of %d", g.ID, all, s.total)
	}
	return err
}

func (s *shares) Reclaim(g *lockstep.Gang, counts []int, out *lockstep.Candidates) {
	n := int(g.GPUs(counts) / lockstep.WholeGPU)
	entitled := s.used[g.Tenant]+n <= s.deserved[g.Tenant]
	limits := map[lockstep.TenantID]int32{}
	s.named[g.ID] = nil
	for _, id := range slices.Sorted(maps.Keys(s.charges)) {
		h := s.gangs[id]
		c := lockstep.Candidate{Job: id}
		switch over := s.used[h.Tenant] - s.deserved[h.Tenant]; {
		case h.Tenant == g.Tenant && h.Priority < g.Priority:
			c.Tier = 1
		case h.Tenant != g.Tenant && entitled && over > 0:
			l, ok := limits[h.Tenant]
			if !ok {
				l = int32(len(out.Limits))
				limits[h.Tenant] = l
				out.Limits = append(out.Limits, lockstep.Resources{lockstep.ResourceGPU: int64(over) * int64(lockstep.WholeGPU)})
			}
			c.Limits = []int32{l}
		default:
			continue
		}
		out.Jobs = append(out.Jobs, c)
		s.named[g.ID] = append(s.named[g.ID], id)
	}
}

// shuffled is an Orderer whose order differs from pass to pass, with names in it
// that mean nothing, and which checks that each proposal is answered once.
type shuffled struct {
	w       *storm
	list    []lockstep.JobID
	open    lockstep.JobID
	answers map[lockstep.Outcome]int
}

func (o *shuffled) Begin(now time.Time) {
	o.open = ""
	o.list = o.w.a.AppendJobs(o.list[:0], gang.Queued, gang.Running)
	key := func(id lockstep.JobID) uint64 {
		h := fnv.New64a()
		h.Write(binary.LittleEndian.AppendUint64([]byte(id), uint64(now.UnixNano()/int64(4*time.Second))))
		return h.Sum64()
	}
	slices.SortFunc(o.list, func(a, b lockstep.JobID) int { return cmp.Compare(key(a), key(b)) })
	if n := len(o.list); n > 2 && !o.w.calms {
		o.list = append(o.list[:n-1], "nobody", o.list[0]) // the last is not proposed, the first twice
	}
}

func (o *shuffled) Next() (lockstep.JobID, bool) {
	if o.open != "" {
		o.w.wrong = fmt.Sprintf("no outcome for %s", o.open)
	}
	if len(o.list) == 0 {
		return "", false
	}
	o.open = o.list[0]
	o.list = o.list[1:]
	return o.open, true
}

func (o *shuffled) Outcome(job lockstep.JobID, x lockstep.Outcome) {
	if job != o.open {
		o.w.wrong = fmt.Sprintf("an outcome for %s, not %s", job, o.open)
	}
	o.open = ""
	o.answers[x]++
}
