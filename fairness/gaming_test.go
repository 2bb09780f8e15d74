package fairness

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// cluster is a simple scheduler whose terms end together, at which all jobs
// compete for all devices.
type cluster struct {
	testing.TB
	l      *Ledger
	now    time.Time
	term   time.Duration
	free   lockstep.MilliGPU // free is what all devices are.
	serial int
}

func newCluster(t testing.TB, cfg Config, devices int, tenants ...lockstep.TenantID) *cluster {
	all := lockstep.WholeGPU.Mul(int64(devices))
	c := &cluster{TB: t, now: epoch, term: 30 * time.Minute, free: all}
	cfg.Capacity, cfg.Horizon = all, c.term
	c.l = start(t, cfg)
	for _, id := range tenants {
		require.NoError(t, c.l.Join(c.now, id, 1))
	}
	return c
}

// submit adds n jobs of tenant under new names.
func (c *cluster) submit(tenant lockstep.TenantID, n, devices int) (jobs []lockstep.JobID) {
	for range n {
		c.serial++
		id := lockstep.JobID(fmt.Sprint(tenant, "-", c.serial))
		require.NoError(c, c.l.Submit(c.now, id, tenant, lockstep.WholeGPU.Mul(int64(devices))))
		jobs = append(jobs, id)
	}
	return jobs
}

// boundary gives the devices to the jobs in the order of a pass, and returns
// the order and who has devices then.
func (c *cluster) boundary() (order []lockstep.JobID, holders map[lockstep.JobID]bool) {
	for _, id := range suits(c.l, EventStop) {
		require.NoError(c, c.l.Due(id))
	}
	free := c.free
	holders = map[lockstep.JobID]bool{}
	order = drain(c.l, c.now, func(id lockstep.JobID) lockstep.Outcome {
		j := c.l.jobs[id]
		switch {
		case j.demand > free:
			return lockstep.Blocked
		case j.running:
			holders[id] = true
			free -= j.demand
			return lockstep.Kept
		}
		holders[id] = true
		free -= j.demand
		return lockstep.Granted
	})
	for _, id := range order {
		switch running := c.l.jobs[id].running; {
		case running && !holders[id]:
			require.NoError(c, c.l.Stop(c.now, id))
		case !running && holders[id]:
			require.NoError(c, c.l.Start(c.now, id, c.l.jobs[id].demand))
		}
	}
	return order, holders
}

// run is n terms, with before ahead of each boundary.
func (c *cluster) run(n int, before func(i int)) {
	for i := range n {
		if before != nil {
			before(i)
		}
		c.boundary()
		c.now = c.now.Add(c.term)
	}
}

// served returns tenant's service in device-terms.
func (c *cluster) served(tenant lockstep.TenantID) float64 {
	s, err := c.l.Statement(c.now, tenant)
	require.NoError(c, err)
	return s.Service.GPUSeconds() / c.term.Seconds()
}

// TestNothingIsGainedByForm is invariant 12: the same demand in more jobs, under
// new names, submitted again at every boundary, or with a tenant that leaves and
// joins again, gets no more than one term of its devices beyond what it gets plainly.
// Nor does a tenant that asks for nothing now and then, whatever it may save up.
func TestNothingIsGainedByForm(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Basis: Active},
		{Basis: Fixed},
		{CreditCap: 2 * time.Hour},
		{Basis: Active, CreditCap: 24 * time.Hour},
		{Memory: Memory{Bucket: time.Hour, Buckets: 24}},
		{Memory: Memory{HalfLife: 5 * time.Hour}},
		{Basis: Active, Memory: Memory{HalfLife: time.Hour}, JobOrder: LeastExpect},
	} {
		t.Run(fmt.Sprintf("%s %+v %s", cfg.Basis, cfg.Memory, cfg.CreditCap), func(t *testing.T) { gainsNothing(t, cfg) })
	}
}

func gainsNothing(t *testing.T, cfg Config) {
	const terms, devices = 300, 6
	// What is forgotten is forgiven: a term of its devices in each window, or, since it
	// decays all the time, in each half-life/ln 2.
	forgiven := 0.0
	if m := cfg.Memory; m != (Memory{}) {
		forgiven = terms * 0.5 / (m.Bucket.Hours()*float64(m.Buckets) + m.HalfLife.Hours()/math.Ln2)
	}
	play := func(jobs, each int, before func(c *cluster, mine *[]lockstep.JobID, i int)) float64 {
		c := newCluster(t, cfg, 16, "a", "b", "c")
		mine := c.submit("a", jobs, each)
		c.submit("b", 16, 1)
		c.submit("c", 8, 2)
		c.run(terms, func(i int) {
			if before != nil {
				before(c, &mine, i)
			}
		})
		return c.served("a")
	}
	again := func(c *cluster, mine *[]lockstep.JobID, _ int) {
		for _, id := range *mine {
			require.NoError(t, c.l.Finish(c.now, id))
			require.NoError(t, c.l.Forget(id))
		}
		*mine = c.submit("a", len(*mine), devices/len(*mine))
	}
	plain := play(3, 2, nil)
	t.Logf("plainly: %.2f device-terms of %d", plain, terms*16)
	for name, got := range map[string]float64{ // order does not matter: each is checked
		"split":       play(6, 1, nil),
		"merged":      play(1, 6, nil),
		"resubmitted": play(3, 2, again),
		"split and resubmitted": play(6, 1, func(c *cluster, mine *[]lockstep.JobID, i int) {
			if i%3 == 0 {
				again(c, mine, i)
			}
		}),
		"left and joined": play(3, 2, func(c *cluster, mine *[]lockstep.JobID, i int) {
			for _, id := range *mine {
				require.NoError(t, c.l.Finish(c.now, id))
			}
			_, err := c.l.Leave(c.now, "a")
			require.NoError(t, err)
			require.NoError(t, c.l.Join(c.now, "a", 1))
			*mine = c.submit("a", 3, 2)
		}),
		"now and then": play(3, 2, func(c *cluster, mine *[]lockstep.JobID, i int) {
			for _, id := range *mine {
				require.NoError(t, c.l.Finish(c.now, id))
			}
			if *mine = nil; i/7%2 == 0 {
				*mine = c.submit("a", 3, 2)
			}
		}),
	} {
		t.Logf("%s: %.2f", name, got)
		require.LessOrEqual(t, got, plain+devices*(1+forgiven), name)
	}
}

// TestADummyEarnsUnlessItAsksForNothing is invariant 12 for jobs that nobody
// means to run. What a job asks for is owed while it waits, so a host that finds
// that a job cannot be placed sets its demand to 0; then it earns nothing.
func TestADummyEarnsUnlessItAsksForNothing(t *testing.T) {
	const terms = 100
	play := func(dummy lockstep.MilliGPU) float64 {
		c := newCluster(t, Config{}, 16, "a", "b")
		c.submit("a", 1, 1)
		c.submit("b", 16, 1)
		require.NoError(t, c.l.Submit(c.now, "dummy", "a", dummy))
		c.run(terms, nil)
		require.NoError(t, c.l.Finish(c.now, "dummy"))
		c.submit("a", 15, 1)
		before := c.served("a")
		c.run(terms, nil)
		return c.served("a") - before
	}
	const fair = terms * 16 / 2
	require.InDelta(t, fair, play(0), 16)
	require.Greater(t, play(64000), fair+16*8.0)
}

// TestPassesDoNotPingPong is invariant 7: who displaced whom at a boundary does
// so again at another one at the same instant, whatever the state.
func TestPassesDoNotPingPong(t *testing.T) {
	displaced := 0
	both(t, 400, func(t *testing.T, seed int, cfg Config, src *source) {
		src.jobs = 24
		if seed%3 == 0 {
			cfg.JobOrder = FIFO
		}
		l := start(t, cfg)
		c := &cluster{TB: t, l: l, free: 8000}
		for range 6 {
			for range 25 {
				_ = l.Apply(src.next(l)) // what is refused changes nothing
			}
			for _, id := range suits(l, EventStop) { // a due job asks for what it holds
				require.NoError(t, l.Demand(src.now, id, l.jobs[id].grant))
			}
			c.now = src.now
			ran := suits(l, EventStop)
			order, holders := c.boundary()
			for _, id := range ran {
				if !holders[id] {
					displaced++
				}
			}
			orderAgain, holdersAgain := c.boundary()
			require.Equal(t, order, orderAgain, "seed %d", seed)
			require.Equal(t, holders, holdersAgain, "seed %d", seed)
		}
	})
	t.Log(displaced, "displaced")
	require.Positive(t, displaced)
}
