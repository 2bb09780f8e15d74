package sim_test

import (
	"encoding/json"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/sim/trace"
)

// checker follows events and actions by itself: who has which device since when.
type checker struct {
	t       *testing.T
	now     time.Time
	owner   map[lockstep.NodeID][64]lockstep.JobID
	holds   map[lockstep.JobID]*holding
	service *big.Int // in MilliGPU-nanoseconds
	ended   int
}

type holding struct {
	plan  *lockstep.Plan
	since time.Time
}

func newChecker(t *testing.T) *checker {
	return &checker{t: t, owner: make(map[lockstep.NodeID][64]lockstep.JobID), holds: make(map[lockstep.JobID]*holding), service: new(big.Int)}
}

func (c *checker) event(e *lockstep.Event) {
	require.False(c.t, e.Time.Before(c.now), "time goes forward")
	c.now = e.Time
	switch e.Kind {
	case lockstep.EventFinish:
		c.ended++
		c.free(e.Job)
	case lockstep.EventEvicted:
		c.free(e.Job)
	}
}

func (c *checker) action(a *lockstep.Action) {
	require.False(c.t, a.Time.Before(c.now), "time goes forward")
	c.now = a.Time
	switch a.Kind {
	case lockstep.ActionReserve, lockstep.ActionStart:
		if h := c.holds[a.Job]; h != nil && a.Kind == lockstep.ActionStart {
			require.Equal(c.t, h.plan.Members, a.Plan.Members, "%s starts where it was reserved", a.Job)
			return
		}
		require.Nil(c.t, c.holds[a.Job], a.Job)
		c.holds[a.Job] = &holding{plan: a.Plan, since: a.Time}
		c.each(a.Plan, func(row *[64]lockstep.JobID, i int) {
			require.Empty(c.t, row[i], "a device given to %s", a.Job)
			row[i] = a.Job
		})
	case lockstep.ActionRelease:
		c.free(a.Job)
	}
}

func (c *checker) each(p *lockstep.Plan, do func(row *[64]lockstep.JobID, i int)) {
	for _, m := range p.Members {
		row := c.owner[m.Node]
		for i := range m.Devices.All {
			do(&row, i)
		}
		c.owner[m.Node] = row
	}
}

func (c *checker) free(id lockstep.JobID) {
	h := c.holds[id]
	require.NotNil(c.t, h, id)
	n := 0
	c.each(h.plan, func(row *[64]lockstep.JobID, i int) {
		require.Equal(c.t, id, row[i])
		row[i] = ""
		n++
	})
	c.service.Add(c.service, new(big.Int).Mul(big.NewInt(int64(n)*1000), big.NewInt(int64(c.now.Sub(h.since)))))
	delete(c.holds, id)
}

// TestEveryRuleCompletesAllJobsWithExactService runs all rules on made up days
// and checks the stream of events and actions with an account of its own.
func TestEveryRuleCompletesAllJobsWithExactService(t *testing.T) {
	tr := synthetic(t, trace.SyntheticConfig{Seed: 7, Span: 24 * time.Hour, GPUs: 64, Load: 1100, Tenants: 5})
	tree := cluster(t, 8)
	for _, rule := range scheduler.Rules() {
		for _, cfg := range []sim.Config{{Tree: tree}, {Tree: tree, Latency: 3 * time.Second}, {Tree: tree, Tick: 10 * time.Second}, {Tree: tree, Unconditional: true}} {
			c := newChecker(t)
			cfg.Event, cfg.Action = c.event, c.action
			jobs := jobsOf(tr)
			r, err := sim.Run(cfg, jobs, newScheduler(t, scheduler.Config{Rule: rule, Tree: tree}))
			require.NoError(t, err, rule)
			require.Equal(t, len(jobs), r.Finished, rule)
			require.Equal(t, len(jobs), c.ended)
			require.Empty(t, c.holds)
			require.Equal(t, r.Service, r.Held, "the ledger and the sum over jobs")
			require.Equal(t, c.service.String(), r.Service.String(), "and the stream")
			account(t, r)
		}
	}
}

// account checks the figures of jobs and tenants against each other.
func account(t *testing.T, r *sim.Result) {
	tenants, total := new(big.Int), new(big.Int)
	for i := range r.Tenants {
		tenants.Add(tenants, r.Tenants[i].Service.Big())
	}
	require.Equal(t, r.Service.String(), tenants.String())
	useful := new(big.Int)
	for i := range r.Records {
		rec := &r.Records[i]
		require.Equal(t, rec.End-rec.Submit, rec.Wait+rec.Held, "%s either waits or holds", rec.Job)
		require.GreaterOrEqual(t, rec.Held, rec.Duration)
		total.Add(total, rec.Service.Big())
		require.Equal(t, new(big.Int).Mul(big.NewInt(int64(rec.GPUs)), big.NewInt(int64(rec.Held))).String(), rec.Service.String())
		useful.Add(useful, new(big.Int).Mul(big.NewInt(int64(rec.GPUs)), big.NewInt(int64(rec.Duration))))
	}
	require.Equal(t, r.Service.String(), total.String())
	spent := new(big.Int).Add(useful, r.Overhead().Big())
	require.GreaterOrEqual(t, r.Service.Big().Cmp(spent), 0, "service is work, overhead and time to confirm")
}

func TestWithoutLatencyServiceIsWorkAndOverheadExactly(t *testing.T) {
	tr := synthetic(t, trace.SyntheticConfig{Seed: 8, Span: 12 * time.Hour, GPUs: 32, Load: 1300, Tenants: 4})
	tree := cluster(t, 4)
	for _, unconditional := range []bool{false, true} {
		r, err := sim.Run(sim.Config{Tree: tree, Unconditional: unconditional}, jobsOf(tr), newScheduler(t, scheduler.Config{Tree: tree}))
		require.NoError(t, err)
		require.Positive(t, r.Preemptions)
		require.Positive(t, r.Extensions)
		useful := new(big.Int)
		for i := range r.Records {
			rec := &r.Records[i]
			useful.Add(useful, new(big.Int).Mul(big.NewInt(int64(rec.GPUs)), big.NewInt(int64(rec.Duration))))
		}
		require.Equal(t, r.Service.String(), useful.Add(useful, r.Overhead().Big()).String())
	}
}

func TestRunsAreAlikeByteForByte(t *testing.T) {
	tree := cluster(t, 4)
	var first string
	for range 3 {
		tr := synthetic(t, trace.SyntheticConfig{Seed: 3, Span: 12 * time.Hour, GPUs: 32, Load: 1000, Tenants: 4})
		jobs := jobsOf(tr)
		if first != "" {
			slices.Reverse(jobs) // the order in which jobs are given does not matter
		}
		r, err := sim.Run(sim.Config{Tree: tree}, jobs, newScheduler(t, scheduler.Config{Tree: tree}))
		require.NoError(t, err)
		data, err := json.Marshal(r)
		require.NoError(t, err)
		if first == "" {
			first = string(data)
		}
		require.Equal(t, first, string(data))
	}
}

// oneJob is a job of one member on n devices.
func oneJob(id lockstep.JobID, tenant lockstep.TenantID, n int, submit, duration time.Duration) sim.Job {
	return sim.Job{Submit: submit, Duration: duration, Gang: &lockstep.Gang{
		ID: id, Tenant: tenant, Walltime: duration,
		Roles:        []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: n}}},
		Capabilities: lockstep.Capabilities{Preemptible: true, Save: save, Restore: restore},
	}}
}

// TestPreemptionCostsACheckpointAndAResume follows two tenants on one node by hand:
//
//	0      a runs; b waits from 100
//	900    the term of a is over: it saves, with its devices still its own
//	905    b runs, for 600 s
//	1505   a resumes for 20 s and does the 300 s that are left
func TestPreemptionCostsACheckpointAndAResume(t *testing.T) {
	tree := cluster(t, 1)
	jobs := []sim.Job{oneJob("a", "t", 8, 0, 1200*time.Second), oneJob("b", "u", 8, 100*time.Second, 600*time.Second)}
	r, err := sim.Run(sim.Config{Tree: tree}, jobs, newScheduler(t, scheduler.Config{Tree: tree}))
	require.NoError(t, err)
	a, b := r.Records[0], r.Records[1]
	require.Equal(t, 905*time.Second, b.Start)
	require.Equal(t, 1505*time.Second, b.End)
	require.Equal(t, 1505*time.Second+restore+300*time.Second, a.End, "the rest of its work behind a resume")
	require.Equal(t, 1, a.Preemptions)
	require.Equal(t, 1, a.Resumes)
	require.Equal(t, 600*time.Second, a.Wait)
	require.InDelta(t, 25*8, r.Overhead().GPUSeconds(), 1e-9)
	require.Equal(t, time.Duration(1825)*time.Second, r.Makespan)
	require.InDelta(t, 1825.0/1825, r.Utilization, 1e-12)
	require.Zero(t, r.Fragmentation)
	require.Equal(t, sim.Quantiles{Mean: (1825 + 1405) * time.Second / 2, P50: 1405 * time.Second, P99: 1825 * time.Second, Max: 1825 * time.Second}, r.JCT)
	// While both want all 8 devices each is entitled to 4: b is owed 4 × 805 at
	// 905, but then nobody waits but a. Two tenants never waited at once.
	require.Zero(t, r.MaxLag.Sign())
}

func TestLagIsTakenWhileTwoTenantsWait(t *testing.T) {
	tree := cluster(t, 1)
	jobs := []sim.Job{
		oneJob("a", "t", 8, 0, 1000*time.Second),
		oneJob("b", "u", 8, 0, 100*time.Second),
		oneJob("c", "v", 8, 400*time.Second, 100*time.Second),
	}
	r, err := sim.Run(sim.Config{Tree: tree, Weights: map[lockstep.TenantID]int64{"t": 1, "u": 2, "v": 1}}, jobs, newScheduler(t, scheduler.Config{Rule: scheduler.FIFO, Tree: tree}))
	require.NoError(t, err)
	// u is entitled to 2/3 of 8 devices for 400 s, then to half of them for 600 s.
	require.InDelta(t, 8*400*2/3.0+4*600, r.Tenants[1].MaxLag.GPUSeconds(), 1e-6)
	require.InDelta(t, 2*600, r.Tenants[2].MaxLag.GPUSeconds(), 1e-6)
	require.Equal(t, r.Tenants[1].MaxLag, r.MaxLag)
}

func TestFragmentationIsFreeTimeOnNodesPartlyInUse(t *testing.T) {
	tree := cluster(t, 2)
	jobs := []sim.Job{oneJob("a", "t", 2, 0, 100*time.Second), oneJob("b", "t", 2, 150*time.Second, 50*time.Second)}
	r, err := sim.Run(sim.Config{Tree: tree}, jobs, newScheduler(t, scheduler.Config{Tree: tree}))
	require.NoError(t, err)
	require.InDelta(t, float64(6*100+6*50)/float64(14*100+16*50+14*50), r.Fragmentation, 1e-12)
}

func TestTickDelaysWhatHappensInBetween(t *testing.T) {
	tree := cluster(t, 1)
	jobs := []sim.Job{oneJob("a", "t", 8, 3*time.Second, 42*time.Second), oneJob("b", "t", 8, 11*time.Second, 10*time.Second)}
	r, err := sim.Run(sim.Config{Tree: tree, Tick: 10 * time.Second}, jobs, newScheduler(t, scheduler.Config{Tree: tree}))
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, r.Records[0].Start)
	require.Equal(t, 60*time.Second, r.Records[0].End, "at 52, seen at 60")
	require.Equal(t, 60*time.Second, r.Records[1].Start)
	require.Equal(t, 70*time.Second, r.Records[1].End)
}

func TestSeriesAreBounded(t *testing.T) {
	tr := synthetic(t, trace.SyntheticConfig{Seed: 2, Span: 24 * time.Hour, GPUs: 32, Tenants: 3})
	tree := cluster(t, 4)
	r, err := sim.Run(sim.Config{Tree: tree, Points: 100}, jobsOf(tr), newScheduler(t, scheduler.Config{Tree: tree}))
	require.NoError(t, err)
	n := len(r.Series.Samples)
	require.LessOrEqual(t, n, 100)
	require.Greater(t, n, 49)
	require.Len(t, r.Series.Tenants, 3)
	for i := 1; i < n; i++ {
		a, b := &r.Series.Samples[i-1], &r.Series.Samples[i]
		require.Equal(t, r.Series.Every, b.Time-a.Time)
		for k := range b.Service {
			require.GreaterOrEqual(t, b.Service[k], a.Service[k])
			require.GreaterOrEqual(t, b.Entitlement[k], a.Entitlement[k])
		}
	}
}

func TestJobsThatNeverFitAreLeft(t *testing.T) {
	tree := cluster(t, 1)
	wide := oneJob("wide", "t", 8, 0, time.Minute)
	wide.Gang.Roles[0].Min = 2
	r, err := sim.Run(sim.Config{Tree: tree}, []sim.Job{wide, oneJob("a", "t", 8, time.Second, time.Minute)}, newScheduler(t, scheduler.Config{Rule: scheduler.FIFO, Tree: tree}))
	require.NoError(t, err)
	require.Equal(t, 2, r.Jobs)
	require.Equal(t, 1, r.Finished)
	require.False(t, r.Records[0].Done)
	require.True(t, r.Records[1].Done)
}

func TestUntilEndsEarly(t *testing.T) {
	tree := cluster(t, 1)
	r, err := sim.Run(sim.Config{Tree: tree, Until: 30 * time.Second}, []sim.Job{oneJob("a", "t", 8, 0, time.Minute), oneJob("b", "t", 8, 0, 10*time.Second)}, newScheduler(t, scheduler.Config{Tree: tree}))
	require.NoError(t, err)
	require.Equal(t, 1, r.Finished)
	require.Equal(t, r.Service, r.Held)
}

func TestProgressIsToldAboutAHundredTimes(t *testing.T) {
	tr := synthetic(t, trace.SyntheticConfig{Seed: 2, Span: 24 * time.Hour, GPUs: 32, Tenants: 3})
	tree := cluster(t, 4)
	var seen []sim.Progress
	r, err := sim.Run(sim.Config{Tree: tree, Progress: func(p sim.Progress) { seen = append(seen, p) }}, jobsOf(tr), newScheduler(t, scheduler.Config{Tree: tree}))
	require.NoError(t, err)
	require.InDelta(t, 100, len(seen), 20)
	require.Equal(t, r.Jobs, seen[len(seen)-1].Finished)
}

func TestBadInputIsRefused(t *testing.T) {
	tree := cluster(t, 1)
	run := func(cfg sim.Config, jobs ...sim.Job) error {
		_, err := sim.Run(cfg, jobs, newScheduler(t, scheduler.Config{Tree: tree, Weights: map[lockstep.TenantID]int64{"t": 1}}))
		return err
	}
	good := oneJob("a", "t", 8, 0, time.Minute)
	at := sim.Config{Tree: tree}
	require.ErrorIs(t, run(sim.Config{}, good), lockstep.ErrInvalid, "no cluster")
	require.ErrorIs(t, run(sim.Config{Tree: tree, Latency: -1, Tick: -1, Until: -1, Points: -1, Capacity: -1}, good), lockstep.ErrInvalid)
	require.ErrorIs(t, run(at, good, good), lockstep.ErrDuplicate, "duplicate job")
	require.ErrorIs(t, run(at, sim.Job{Duration: 1}), lockstep.ErrInvalid, "no gang")
	require.ErrorIs(t, run(at, oneJob("a", "t", 8, 0, 0)), lockstep.ErrInvalid, "no duration")
	require.ErrorIs(t, run(at, oneJob("a", "t", 8, -1, time.Minute)), lockstep.ErrInvalid, "submitted before the start")
	require.ErrorIs(t, run(at, oneJob("a", "t", -8, 0, time.Minute)), lockstep.ErrInvalid, "malformed gang")
	require.ErrorIs(t, run(at, oneJob("a", "u", 8, 0, time.Minute)), lockstep.ErrUnknown, "unknown tenant")
	require.ErrorIs(t, run(sim.Config{Tree: tree, Weights: map[lockstep.TenantID]int64{"t": -1}}, good), lockstep.ErrInvalid, "weight below zero")
	require.NoError(t, run(sim.Config{Tree: tree, Weights: map[lockstep.TenantID]int64{"t": 0}}, good), "a weight of zero is entitled to what is left")
	require.NoError(t, run(at), "no jobs")
}

// liar is a scheduler that decides what it was told to.
type liar struct {
	actions []lockstep.Action
	wake    bool
}

func (l *liar) Apply(lockstep.Event) error { return nil }

func (l *liar) Step(now time.Time) ([]lockstep.Action, error) {
	a := l.actions
	l.actions = nil
	for i := range a {
		a[i].Time = now
	}
	return a, nil
}

func (l *liar) NextWake(now time.Time) (time.Time, bool) { return now, l.wake }

func TestWrongDecisionsAreFound(t *testing.T) {
	tree := cluster(t, 1)
	jobs := []sim.Job{oneJob("a", "t", 4, 0, time.Minute), oneJob("b", "t", 4, 0, time.Minute)}
	plan := func(id lockstep.JobID, node lockstep.NodeID, devices lockstep.DeviceSet) *lockstep.Plan {
		return &lockstep.Plan{Job: id, Members: []lockstep.Member{{Node: node, Devices: devices}}}
	}
	start := func(id lockstep.JobID, node lockstep.NodeID, devices lockstep.DeviceSet) lockstep.Action {
		return lockstep.Action{Kind: lockstep.ActionStart, Job: id, Plan: plan(id, node, devices)}
	}
	for name, actions := range map[string][]lockstep.Action{ // the order does not matter: each stands alone
		"device held twice":   {start("a", "n0", 0x0f), start("b", "n0", 0x18)},
		"no such node":        {start("a", "n9", 0x0f)},
		"no such device":      {start("a", "n0", 0xf00)},
		"started twice":       {start("a", "n0", 0x0f), start("a", "n0", 0xf0)},
		"unknown job":         {start("c", "n0", 0x0f)},
		"evicted, not run":    {{Kind: lockstep.ActionEvict, Job: "a"}},
		"extended, not run":   {{Kind: lockstep.ActionExtend, Job: "a"}},
		"released, not held":  {{Kind: lockstep.ActionRelease, Job: "a"}},
		"resize":              {start("a", "n0", 0x0f), {Kind: lockstep.ActionResize, Job: "a"}},
		"rejected, running":   {start("a", "n0", 0x0f), {Kind: lockstep.ActionReject, Job: "a"}},
		"no plan":             {{Kind: lockstep.ActionStart, Job: "a"}},
		"no action":           {{Job: "a"}},
		"more than there are": nil,
	} {
		s := &liar{actions: actions, wake: actions == nil}
		_, err := sim.Run(sim.Config{Tree: tree}, jobs, s)
		require.Error(t, err, name)
	}
}

func TestResultSaysWhatIsUnfinished(t *testing.T) {
	tree := cluster(t, 2)
	for _, rule := range scheduler.Rules() {
		wide := oneJob("wide", "t", 8, 0, time.Hour)
		wide.Gang.Roles[0].Min = 3
		jobs := []sim.Job{wide, oneJob("a", "t", 8, 0, time.Hour), oneJob("b", "u", 8, time.Minute, 2*time.Hour)}
		r, err := sim.Run(sim.Config{Tree: tree}, jobs, newScheduler(t, scheduler.Config{Rule: rule, Tree: tree}))
		require.NoError(t, err)
		require.Equal(t, []int{3, 2, 0, 1}, []int{r.Jobs, r.Finished, r.Rejected, r.Unfinished}, rule)
		require.Equal(t, "wide", string(r.Records[1].Job))
		require.Equal(t, sim.Waiting, r.Records[1].Unfinished)
		require.GreaterOrEqual(t, r.Records[1].Wait, 2*time.Hour)
		require.Equal(t, 2*time.Hour+time.Minute, r.Makespan)
		require.Empty(t, r.Records[0].Unfinished)
	}
}

func TestUntilCountsWhatIsUnderWay(t *testing.T) {
	tree := cluster(t, 2)
	jobs := []sim.Job{
		oneJob("done", "t", 8, 0, time.Minute), oneJob("long", "t", 8, 0, 100*time.Hour),
		oneJob("waits", "t", 8, 0, 100*time.Hour), oneJob("zlast", "t", 8, 0, time.Hour), oneJob("never", "t", 8, 50*time.Hour, time.Hour),
	}
	r, err := sim.Run(sim.Config{Tree: tree, Until: 10 * time.Hour}, jobs, newScheduler(t, scheduler.Config{Rule: scheduler.FIFO, Tree: tree}))
	require.NoError(t, err)
	require.Equal(t, 10*time.Hour, r.Makespan, "jobs hold devices at the end")
	require.InDelta(t, 1, r.Utilization, 1e-12)
	require.Equal(t, r.Service, r.Held)
	require.Equal(t, 4, r.Unfinished)
	var sum lockstep.GPUTime
	for _, x := range r.Records {
		sum = sum.Add(x.Service)
		want := map[lockstep.JobID]sim.Unfinished{"long": sim.Holding, "waits": sim.Holding, "zlast": sim.Waiting, "never": sim.Unsubmitted}[x.Job]
		require.Equal(t, want, x.Unfinished, x.Job)
		if x.Unfinished != sim.Unsubmitted && x.Unfinished != "" {
			require.Equal(t, 10*time.Hour, x.Wait+x.Held, x.Job)
		}
	}
	require.Equal(t, r.Service, sum)

	// Cut while a job saves its work, and while one resumes: only what was spent counts.
	pair := []sim.Job{oneJob("a", "t", 8, 0, time.Hour), oneJob("b", "u", 8, time.Second, time.Minute)}
	one := cluster(t, 1)
	r, err = sim.Run(sim.Config{Tree: one, Until: 902 * time.Second}, pair, newScheduler(t, scheduler.Config{Tree: one}))
	require.NoError(t, err)
	require.InDelta(t, 2*8, r.Checkpoint.GPUSeconds(), 1e-9)
	pair = []sim.Job{oneJob("a", "t", 8, 0, time.Hour), oneJob("b", "u", 8, time.Second, time.Minute)}
	r, err = sim.Run(sim.Config{Tree: one, Until: 970 * time.Second}, pair, newScheduler(t, scheduler.Config{Tree: one}))
	require.NoError(t, err)
	require.InDelta(t, 5*8, r.Checkpoint.GPUSeconds(), 1e-9)
	require.InDelta(t, 5*8, r.Resume.GPUSeconds(), 1e-9)
}

// insomniac asks to be woken every minute and decides nothing.
type insomniac struct{ liar }

func (*insomniac) NextWake(now time.Time) (time.Time, bool) { return now.Add(time.Minute), true }

func TestRunEndsThoughTheSchedulerNeverSleeps(t *testing.T) {
	r, err := sim.Run(sim.Config{Tree: cluster(t, 1)}, []sim.Job{oneJob("a", "t", 8, 0, time.Minute)}, &insomniac{})
	require.NoError(t, err)
	require.Equal(t, 1, r.Unfinished)
	require.Zero(t, r.Makespan)
}

func TestTimeDoesNotRunOver(t *testing.T) {
	tree := cluster(t, 1)
	run := func(cfg sim.Config, jobs ...sim.Job) error {
		_, err := sim.Run(cfg, jobs, newScheduler(t, scheduler.Config{Tree: tree, Rule: scheduler.FIFO}))
		return err
	}
	late := sim.Config{Tree: tree, Start: time.Date(2260, 1, 1, 0, 0, 0, 0, time.UTC)}
	year := 365 * 24 * time.Hour
	require.NoError(t, run(late, oneJob("a", "t", 8, 0, year)))
	require.ErrorIs(t, run(late, oneJob("a", "t", 8, 0, 9*year)), lockstep.ErrInvalid)
	require.ErrorIs(t, run(late, oneJob("a", "t", 8, 9*year, time.Hour)), lockstep.ErrInvalid)
	late.Until = 9 * year
	require.NoError(t, run(late, oneJob("a", "t", 8, 0, year)))
	_, err := sim.Run(sim.Config{Tree: tree, Weights: map[lockstep.TenantID]int64{"t": -1}}, nil, nil)
	var e *lockstep.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "Weights[t]", e.Field)
	_, err = sim.Run(sim.Config{Tree: tree}, nil, nil)
	require.ErrorAs(t, err, &e)
	require.Equal(t, "Scheduler", e.Field)
}

func TestReleasesWhileResumingAreCharged(t *testing.T) {
	tree := cluster(t, 1)
	jobs := []sim.Job{oneJob("a", "t", 8, 0, time.Minute)}
	cfg := scheduler.Config{Tree: tree, Term: 10 * time.Second}
	r, err := sim.Run(sim.Config{Tree: tree, Unconditional: true, Until: 100 * time.Second}, jobs, newScheduler(t, cfg))
	require.NoError(t, err)
	// It works for ten seconds. From then on each term adds more than it is long.
	require.InDelta(t, 90*8, r.Overhead().GPUSeconds(), 1e-9)
}
