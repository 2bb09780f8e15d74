package gang_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
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
		return lockstep.Verdict{Reason: lockstep.ReasonQuota, Requested: int64(n), Available: int64(l.limit - l.used[g.Tenant])}
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
