package meter

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lifecycle"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// gauges are levels by key, some of which a recorder was told of.
type gauges[K comparable] struct {
	now  map[K]int64
	told map[K]bool
}

func (g *gauges[K]) add(k K, n int64) {
	if g.now == nil {
		g.now, g.told = make(map[K]int64), make(map[K]bool)
	}
	if g.now[k] += n; g.now[k] == 0 {
		delete(g.now, k)
	}
}

// tell calls f with each level, in order, and once with 0 for one that has gone.
func (g *gauges[K]) tell(order func(a, b K) int, f func(k K, v float64)) {
	for k := range g.told { // sorted below, so that the order cannot matter
		if g.now[k] == 0 {
			delete(g.told, k)
			g.now[k] = 0
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(g.now), order) {
		f(k, float64(g.now[k]))
		if g.now[k] == 0 {
			delete(g.now, k)
		} else {
			g.told[k] = true
		}
	}
}

// Sample records the levels: how many jobs are in which state, why those wait
// that do, and where devices and device time are. Where src is a Cluster too, it is
// asked for the nodes. Call it now and then, such as before each scrape. O(jobs +
// members + nodes).
func (m *Meter) Sample(src Source, now time.Time) {
	if !m.On() {
		return
	}
	clear(m.why.now)
	if c, ok := src.(Cluster); ok {
		m.park = m.park.renewed(c)
	}
	m.park.reset()
	m.lookAll(src, now.UnixNano(), m.survey)
	m.states.tell(func(a, b queued) int {
		return cmp.Or(strings.Compare(string(a.queue), string(b.queue)), strings.Compare(string(a.state), string(b.state)))
	}, func(k queued, v float64) {
		m.rec.Gauge(Jobs, lockstep.MetricLabels{Queue: k.queue, State: string(k.state)}, v)
	})
	m.why.tell(func(a, b pending) int {
		return cmp.Or(strings.Compare(string(a.queue), string(b.queue)), strings.Compare(string(a.reason), string(b.reason)))
	}, func(k pending, v float64) {
		m.rec.Gauge(PendingReason, lockstep.MetricLabels{Queue: k.queue, Reason: k.reason}, v)
	})
	m.park.tell(m.rec)
	m.settle()
}

// survey notes why a job waits, or what it holds.
func (m *Meter) survey(j *job, st *scheduler.Status) {
	if p := st.Gang.Plan; p != nil {
		m.park.hold(p, st.Gang.Phase == gang.Held || st.Gang.Phase == gang.Awaiting)
	} else if st.Gang.Phase == gang.Queued || j.state == lifecycle.Backoff || j.state == lifecycle.Held {
		m.why.add(pending{j.queue, waitReason(&st.Gang, j.state)}, 1)
	}
}

// waitReason returns why a job waits: what bound first when it was last tried.
func waitReason(st *gang.Status, state lifecycle.State) lockstep.Reason {
	switch {
	case state == lifecycle.Backoff || state == lifecycle.Held:
		return lockstep.Reason(state)
	case st.Verdict.Reason != "":
		return st.Verdict.Reason
	case st.Reason != "":
		return st.Reason
	}
	return "untried"
}

// settle counts the device time that makes whole seconds, and keeps the rest.
func (m *Meter) settle() {
	for _, k := range slices.SortedFunc(maps.Keys(m.spent), func(a, b spending) int {
		return cmp.Or(strings.Compare(string(a.tenant), string(b.tenant)), cmp.Compare(a.part, b.part))
	}) {
		n, rest := wholeSeconds(m.spent[k])
		if n > 0 {
			m.rec.Count(GPUSeconds, lockstep.MetricLabels{Tenant: k.tenant, Kind: k.part.String()}, n)
		}
		if m.spent[k] = rest; rest.Sign() == 0 {
			delete(m.spent, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(m.lost)) {
		n, rest := wholeSeconds(m.lost[k])
		if n > 0 {
			m.rec.Count(LostGPUSeconds, lockstep.MetricLabels{Reason: k}, n)
		}
		m.lost[k] = rest
	}
}

// wholeSeconds returns the whole seconds of one device in t, 0 where t is
// negative, and what is left.
func wholeSeconds(t lockstep.GPUTime) (n int64, rest lockstep.GPUTime) {
	const most = 1 << 33 // of seconds, so that they are nanoseconds in int64; more is left for next time
	if t.Sign() <= 0 {
		return 0, t
	}
	n = int64(min(t.GPUSeconds(), most))
	rest = t.Sub(lockstep.GPUTimeOf(lockstep.WholeGPU, time.Duration(n)*time.Second))
	if rest.Sign() < 0 { // the division was rounded up
		n--
		rest = rest.Add(lockstep.GPUTimeOf(lockstep.WholeGPU, time.Second))
	}
	return n, rest
}

// Tenants records what tenants hold beside what is theirs, from the accounts
// that scheduler.Scheduler.Statements returns. Capacity is all the devices that
// the weights share; at 0 only FairShare is recorded. Those beyond Config.Values
// are added up as Other, whose FairShare is that of the one who is owed most.
func (m *Meter) Tenants(capacity lockstep.MilliGPU, accounts []fairness.Statement) {
	if !m.On() {
		return
	}
	weights := int64(0)
	for i := range accounts {
		if accounts[i].Joined {
			weights += accounts[i].Weight
		}
	}
	var rest holding
	for i := range accounts {
		a := &accounts[i]
		h := holding{held: float64(a.Held)}
		h.index, h.judged = a.Index()
		if a.Joined && weights > 0 {
			h.nominal = float64(capacity) * (float64(a.Weight) / float64(weights))
		}
		h.borrowed, h.lent = max(h.held-h.nominal, 0), max(h.nominal-h.held, 0)
		if name := m.tenants.fold(string(a.Tenant)); name != Other {
			h.tell(m.rec, a.Tenant, capacity)
		} else {
			rest.add(&h)
		}
	}
	if rest.some {
		rest.tell(m.rec, Other, capacity)
	}
}

// holding is what a tenant holds and what is its own, in MilliGPU.
type holding struct {
	held, nominal, borrowed, lent float64

	index  float64
	judged bool // index says something
	some   bool // somebody was added
}

func (h *holding) add(o *holding) {
	h.some = true
	h.held += o.held
	h.nominal += o.nominal
	h.borrowed += o.borrowed
	h.lent += o.lent
	if o.judged && (!h.judged || o.index < h.index) {
		h.index, h.judged = o.index, true
	}
}

func (h *holding) tell(rec lockstep.Recorder, tenant lockstep.TenantID, capacity lockstep.MilliGPU) {
	l := lockstep.MetricLabels{Tenant: tenant}
	if h.judged {
		rec.Gauge(FairShare, l, h.index)
	}
	if capacity <= 0 {
		return
	}
	rec.Gauge(QuotaNominal, l, devices(h.nominal))
	rec.Gauge(QuotaBorrowed, l, devices(h.borrowed))
	rec.Gauge(QuotaLent, l, devices(h.lent))
	rec.Gauge(DominantShare, l, h.held/float64(capacity))
}

// devices is an amount of MilliGPU in devices.
func devices(milli float64) float64 { return milli / float64(lockstep.WholeGPU) }
