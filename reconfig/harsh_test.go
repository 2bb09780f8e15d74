package reconfig

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// harsh returns a job like instance does, and more often with what is rare: experts,
// ZeRO 2 and 3 where memory is tight, groups over nodes, odd degrees, layers that
// differ, more replicas or other stages than the layout has.
func harsh(r *rand.Rand) (Job, []Device) {
	job, devs := instance(r)
	a := &job.Allow
	job.Layout.ZeRO = r.IntN(4)
	if r.IntN(4) == 0 {
		a.AllowCrossNodeTP = true
	}
	if r.IntN(4) == 0 {
		a.MaxReplicas = job.Layout.DP + r.IntN(4)
	}
	if r.IntN(6) == 0 {
		a.MinReplicas = 1 + r.IntN(job.Layout.DP)
	}
	if r.IntN(6) == 0 && !a.FixedStages {
		a.MaxStages = job.Layout.PP + r.IntN(3)
	}
	if r.IntN(8) == 0 {
		a.MinTP = 2
	}
	if r.IntN(5) == 0 && job.Chunks <= 1 && job.Layout.DP%2 == 0 {
		job.Model.Experts, job.Model.TopK, job.Layout.EP = 8, 2, 2
	}
	if r.IntN(4) == 0 {
		for range job.Model.Layers {
			c := time.Duration(1+r.IntN(3)) * time.Millisecond
			job.Costs.Layers = append(job.Costs.Layers, Cost{Forward: c, Backward: c, Weight: c})
		}
	}
	if r.IntN(3) == 0 {
		for k := range job.Layout.TP + 1 {
			job.Costs.Collective = append(job.Costs.Collective, time.Duration(k)*10*time.Microsecond)
			job.Costs.Across = append(job.Costs.Across, time.Duration(k)*70*time.Microsecond)
		}
	}
	for i := range devs {
		if devs[i].Memory > 0 && r.IntN(3) == 0 {
			devs[i].Memory = devs[i].Memory * lockstep.Bytes(2+r.IntN(5)) / 4
		}
	}
	return job, devs
}

// shaken returns devs after a random event: faults, cordons, repairs, a node that comes or goes.
func shaken(r *rand.Rand, devs []Device) []Device {
	out := slices.Clone(devs)
	at := r.IntN(len(out))
	switch r.IntN(6) {
	case 0, 1:
		return hurt(r, devs)
	case 2:
		out[at].State = State(r.IntN(3))
	case 3:
		out[at].State, out[at].Speed = Up, 1
	case 4: // its node goes
		for i := range out {
			if out[i].Node == out[at].Node && len(out) > 8 {
				out[i].State = Down
			}
		}
	case 5: // its node comes back
		for i := range out {
			if out[i].Node == out[at].Node {
				out[i].State, out[i].Speed = Up, 1
			}
		}
	}
	return out
}

// walk is a job over a series of events.
type walk struct {
	t    *testing.T
	name string
	job  Job
	devs []Device
	prev *Plan    // the last plan; nil for none
	was  []Device // when it was made
	o    Options
}

// step replans after an event and checks what must hold of any plan.
func (w *walk) step(r *rand.Rand) {
	w.devs, w.o = shaken(r, w.devs), Options{}
	if r.IntN(4) == 0 {
		w.o.Budget = 1
	}
	next, err := Replan(w.job, w.devs, w.prev, w.o)
	if err != nil {
		require.ErrorIs(w.t, err, ErrInfeasible, w.name)
		if w.prev != nil {
			require.Error(w.t, verify(w.job, w.devs, w.prev, false), "%s: the plan before could stay", w.name)
		}
		_, again := Replan(w.job, w.devs, nil, Options{})
		require.ErrorIs(w.t, again, ErrInfeasible, "%s: only with a plan before there is none", w.name)
		return
	}
	require.NoError(w.t, Verify(w.job, w.devs, next), w.name)
	require.LessOrEqual(w.t, next.Estimate.Fluid, next.Estimate.Iteration, w.name)
	if w.prev != nil {
		w.against(next)
	}
	w.prev, w.was = next, w.devs
}

// against checks a plan against the one before.
func (w *walk) against(next *Plan) {
	if verify(w.job, w.devs, w.prev, false) == nil {
		e, err := Evaluate(w.job, w.devs, w.prev)
		require.NoError(w.t, err)
		require.LessOrEqual(w.t, next.Estimate.Iteration, e.Iteration, "%s: no action is never better", w.name)
	}
	if !slices.ContainsFunc(w.devs, func(d Device) bool {
		return usableSpeed(d) < usableSpeed(w.was[slices.IndexFunc(w.was, func(o Device) bool { return o.ID == d.ID })])
	}) {
		require.LessOrEqual(w.t, next.Estimate.Iteration, w.prev.Estimate.Iteration, "%s: nothing got worse", w.name)
	}
	if w.job.Allow.Uniform || w.job.Layout.EP > 1 {
		return
	}
	if w.o.Budget == 0 {
		uniform := w.job
		uniform.Allow.Uniform = true
		u, err := Replan(uniform, w.devs, w.prev, Options{Disturb: AnyGain})
		a, other := Replan(w.job, w.devs, w.prev, Options{Disturb: AnyGain})
		if err == nil && a != w.prev {
			require.NoError(w.t, other, w.name)
			require.LessOrEqual(w.t, a.Estimate.Iteration, u.Estimate.Iteration, "%s: uniform is never better", w.name)
		}
	}
	if !mendable(w.job, w.devs, w.prev) {
		return
	}
	calm, err := Replan(w.job, w.devs, w.prev, Options{Disturb: 1, Budget: w.o.Budget})
	require.NoError(w.t, err, w.name)
	require.Zero(w.t, changedUnhurt(w.job, w.devs, w.prev, calm), "%s: nothing gains all", w.name)
	if changedUnhurt(w.job, w.devs, w.prev, next) > 0 {
		gain := calm.Estimate.Iteration - next.Estimate.Iteration
		require.GreaterOrEqual(w.t, float64(gain), .0199*float64(calm.Estimate.Iteration), "%s: replicas that lost nothing change for 2 %% only", w.name)
	}
}

func usableSpeed(d Device) float64 {
	if d.State != Up {
		return 0
	}
	return d.Speed
}

func TestHarshJobsKeepEveryProperty(t *testing.T) {
	n := 40
	if testing.Short() {
		n = 10
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 99))
		job, devs := harsh(r)
		w := &walk{t: t, job: job, devs: devs, was: devs}
		w.name = fmt.Sprintf("seed %d: %v ZeRO %d EP %d %+v", seed, job.Schedule, job.Layout.ZeRO, job.Layout.EP, job.Allow)
		var err error
		if w.prev, err = Replan(job, devs, nil, Options{}); err != nil {
			require.ErrorIs(t, err, ErrInfeasible, w.name)
			w.prev = nil
		}
		for range 4 {
			w.step(r)
		}
	}
}

// changedUnhurt counts replicas of prev that lost nothing and have other devices or layers in next.
func changedUnhurt(job Job, devs []Device, prev, next *Plan) int {
	speed := map[lockstep.DeviceID]int64{}
	for _, d := range devs {
		if d.State == Up {
			speed[d.ID] = millionths(d.Speed)
		}
	}
	n := 0
	for i, r := range prev.Replicas {
		if slices.ContainsFunc(prev.Migrations, func(m Migration) bool { return m.Owner == i || m.Host == i }) {
			continue
		}
		alone := &Plan{Replicas: prev.Replicas[i : i+1], Split: prev.Split[i : i+1]}
		e, err := Evaluate(job, devs, alone)
		if err != nil || e.Replicas[0] != prev.Estimate.Replicas[i] {
			continue
		}
		same := slices.ContainsFunc(next.Replicas, func(q Replica) bool {
			return q.Number == r.Number && slices.EqualFunc(q.Stages, r.Stages, func(a, b Stage) bool {
				return slices.Equal(a.Devices, b.Devices) && slices.Equal(a.Spans, b.Spans)
			})
		})
		if !same {
			n++
		}
	}
	return n
}

// mendable says whether the replicas that lost nothing can stay.
func mendable(job Job, devs []Device, prev *Plan) bool {
	w, err := newWorld("test", job, devs)
	if err != nil {
		return false
	}
	p := newPlanner(w, Options{})
	p.held = w.hold(prev)
	var local *layout
	for _, l := range p.repairs(prev) {
		p.keep(&local, p.seek(l, false))
	}
	return local != nil
}

func TestExpertReplicasGrowTogether(t *testing.T) {
	job := jobOf(4, 2, 2, 10, 8)
	job.Model.Experts, job.Model.TopK, job.Layout.EP = 8, 2, 2
	job.Allow.MaxReplicas = 3 // of which only two can be
	devs := fleet(16, 4)
	prev := healthy(t, job, devs)
	p, err := Replan(job, with(devs, 0, 0, 1, 2, 3), prev, Options{})
	require.NoError(t, err, "three groups are left, and two of them make two replicas")
	require.Len(t, p.Replicas, 2)
	job.Allow.MaxReplicas = 4
	p, err = Replan(job, devs, nil, Options{Disturb: AnyGain})
	require.NoError(t, err)
	require.NoError(t, Verify(job, devs, p))
	require.Len(t, p.Replicas, 4, "two more at once")
}

func TestATinyBudgetFindsAPlanWhereThereIsOne(t *testing.T) {
	for seed := range 40 {
		r := rand.New(rand.NewPCG(uint64(seed), 23))
		job, devs := harsh(r)
		for i := range devs {
			devs[i].Memory -= devs[i].Memory / 3
		}
		for range 3 {
			_, tiny := Replan(job, devs, nil, Options{Budget: 1})
			if tiny != nil {
				_, err := Replan(job, devs, nil, Options{})
				require.Error(t, err, "seed %d: %v", seed, tiny)
			}
			devs = shaken(r, devs)
		}
	}
}

func TestReplicasThatLostNothingChangeForTheGainThatIsAskedFor(t *testing.T) {
	job, devs := jobOf(2, 2, 2, 8, 8), fleet(8, 2)
	prev := healthy(t, job, devs)
	w, err := newWorld("test", job, with(devs, 0, 7))
	require.NoError(t, err)
	p := newPlanner(w, Options{})
	plan := func(took time.Duration, disturbs bool) *Plan {
		q := copied(t, prev)
		q.Estimate.Iteration = took
		if disturbs { // replica 0 lost nothing
			q.Replicas[0].Stages[0].Spans[0].Layers++
		}
		return q
	}
	for _, c := range []struct {
		wild, calm time.Duration
		o          Options
		want       bool // the wild one
	}{
		{980, 1000, Options{}, true},
		{981, 1000, Options{}, false},
		{1000, 1000, Options{}, false},
		{1001, 1000, Options{}, false},
		{999, 1000, Options{Disturb: AnyGain}, true},
		{1000, 1000, Options{Disturb: AnyGain}, false},
		{501, 1000, Options{Disturb: .5}, false},
		{500, 1000, Options{Disturb: .5}, true},
	} {
		wild, calm := plan(c.wild, true), plan(c.calm, false)
		require.Equal(t, c.want, p.prefer(wild, calm, prev, c.o) == wild, "%+v", c)
		require.Equal(t, c.want, p.prefer(calm, wild, prev, c.o) == wild, "%+v the other way round", c)
	}
	a, b := plan(9, true), plan(8, true)
	require.Same(t, b, p.prefer(a, b, prev, Options{}), "both change it: the faster one")
	require.Same(t, a, p.prefer(a, plan(9, true), prev, Options{}), "the first of equals")
}

func TestSpareGroupsGoToTheReplicasThatUseThemMost(t *testing.T) {
	job := jobOf(8, 48, 16, 80, 32*48)
	job.Costs.Layer = Cost{Forward: 55 * time.Millisecond, Backward: 55 * time.Millisecond, Weight: 55 * time.Millisecond}
	job.Costs.Head = Cost{Forward: 16 * time.Millisecond, Backward: 16 * time.Millisecond, Weight: 16 * time.Millisecond}
	devs := fleet(48*128, 8)
	prev := healthy(t, job, devs)
	for i := range 32 { // four stages of the first replica
		devs[i].Speed = 0
	}
	p, err := Replan(job, devs, prev, Options{Disturb: AnyGain})
	require.NoError(t, err)
	require.NoError(t, Verify(job, devs, p))
	most := 0
	for _, r := range p.Replicas {
		most = max(most, len(r.Stages))
	}
	require.Less(t, p.Estimate.Iteration, prev.Estimate.Iteration*48/47, "no replica does one more than before as it was")
	require.LessOrEqual(t, most, 18, "not all twelve to one replica")
}

func TestMemoryCountsGuests(t *testing.T) {
	job := jobOf(2, 2, 2, 8, 8)
	job.Allow.AllowMigration, job.Batch.Tokens = true, 512
	devs := fleet(8, 2)
	for i := range devs {
		devs[i].Memory = 10 * lockstep.GiB
	}
	p := copied(t, healthy(t, job, devs))
	p.Migrations = []Migration{{Stage: 0, Owner: 1, Host: 0, Micro: 0}, {Stage: 0, Owner: 1, Host: 0, Micro: 1}}
	e, err := Evaluate(job, devs, p)
	require.NoError(t, err)
	require.Greater(t, e.Memory, p.Estimate.Memory)
	for i := range devs {
		devs[i].Memory = e.Memory - 1
	}
	var no *Infeasible
	require.ErrorAs(t, Verify(job, devs, p), &no)
	require.Equal(t, ReasonMemory, no.Reason)
	require.Equal(t, int64(e.Memory), no.Witness.Need, "as Verify counts them")
}

func TestTooLittleMemoryIsToldWithNumbersThatSaySo(t *testing.T) {
	n := 150
	if testing.Short() {
		n = 40
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 24))
		job, devs := harsh(r)
		for i := range devs {
			devs[i].Memory /= lockstep.Bytes(1 + r.IntN(3))
		}
		_, err := Replan(job, devs, nil, Options{Budget: 1000})
		var no *Infeasible
		if errors.As(err, &no) && no.Reason == ReasonMemory {
			require.Greater(t, no.Witness.Need, no.Witness.Have, "seed %d: %v", seed, err)
		}
	}
}

func TestThePlanBeforeStaysWhereNothingIsFaster(t *testing.T) {
	job := jobOf(1, 2, 4, 4, 24) // one layer a stage
	job.Allow = Constraints{FixedStages: true, AllowMigration: true}
	devs := fleet(8, 1)
	first, slow := healthy(t, job, devs), with(devs, .5, 1, 6)
	w, err := newWorld("test", job, slow)
	require.NoError(t, err)
	p := newPlanner(w, Options{})
	runs, err := w.read("test", first)
	require.NoError(t, err)
	prev := &Plan{Version: 1, Basis: w.basis, Replicas: first.Replicas}
	prev.Split, prev.Migrations = p.migrations(runs, first.Split, 1)
	prev, err = p.seal(prev, nil, Options{})
	require.NoError(t, err)
	require.NoError(t, Verify(job, slow, prev))
	require.NotEmpty(t, prev.Migrations)
	job.Reserve = 1                                                      // another job, but nothing depends on it
	next, err := Replan(job, slow, prev, Options{Budget: 1, Disturb: 1}) // too little to find the migrations anew
	require.NoError(t, err)
	require.Equal(t, prev.Estimate.Iteration, next.Estimate.Iteration)
	require.Equal(t, prev.Migrations, next.Migrations)
	require.Equal(t, prev.Version+1, next.Version)
}
