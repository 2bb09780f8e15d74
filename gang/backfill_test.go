package gang_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// randomPlain returns a gang whose estimate is the truth.
func randomPlain(r *rand.Rand, n, largest int) *lockstep.Gang {
	g := plain(lockstep.JobID(fmt.Sprintf("j%03d", n)), 1+r.IntN(largest), 1+r.IntN(40))
	if r.IntN(2) == 0 {
		g.Roles[0].Min = 1 + r.IntN(3) // many small ones, to fill gaps
	}
	if r.IntN(3) == 0 {
		g.Required = placertest.Rack
	}
	return g
}

// alone runs a copy of w in which only job still waits, and says when it starts.
func (w *world) alone(job lockstep.JobID, cfg gang.Config) int {
	w.t.Helper()
	var b bytes.Buffer
	require.NoError(w.t, w.a.Snapshot(&b))
	p := w.p.Clone()
	cfg.Placer = p
	a, err := gang.Restore(cfg, &b)
	require.NoError(w.t, err)
	c := &world{t: w.t, a: a, p: p, now: w.now, true: w.true, starts: map[lockstep.JobID][]int{}}
	for _, h := range w.events {
		if h.event.Kind != lockstep.EventSubmit {
			c.events = append(c.events, h)
		}
	}
	for _, id := range a.AppendJobs(nil, gang.Queued) {
		if id != job {
			require.NoError(w.t, a.Cancel(at(w.now), id))
		}
	}
	c.run(1 << 20)
	require.Len(w.t, c.starts[job], 1)
	return c.starts[job][0]
}

// Whoever gets a reservation starts no later than it first said, and what it
// first said is when it would start if nobody could pass it.
func TestBackfillNeverDelaysAReservation(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 40
	}
	checked := 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		cfg := gang.Config{StartAtOnce: seed%4 != 3, Hold: 3 * time.Second}
		if seed%3 == 1 {
			cfg.Backfill = gang.Conservative
		}
		racks, nodes, devices := 1+r.IntN(3), 1+r.IntN(4), 1+r.IntN(4)
		w := newWorld(t, placertest.NewReference(racks, nodes, devices, 0), cfg)
		for n := range 40 {
			w.submit(r.IntN(120), randomPlain(r, n, racks*nodes*devices))
		}
		promised := map[lockstep.JobID]int{}
		for second := range 200 {
			w.run(second)
			for _, id := range w.a.AppendJobs(nil, gang.Queued) {
				start, ok := forecast(w.a, id)
				if _, known := promised[id]; !ok || known {
					continue
				}
				promised[id] = seconds(start)
				if len(promised)%8 == 0 && cfg.Backfill == gang.EASY && cfg.StartAtOnce {
					require.Equal(t, promised[id], w.alone(id, cfg), "seed %d: %s alone", seed, id)
				}
			}
		}
		w.run(1 << 20)
		for id, s := range promised {
			require.Len(t, w.starts[id], 1, id)
			require.LessOrEqual(t, w.starts[id][0], s, "seed %d: %s was promised %d", seed, id, s)
			checked++
		}
	}
	t.Logf("%d reservations kept", checked)
	require.NotZero(t, checked)
}

// H16: one-device jobs come for ever, faster than they end, and nobody says how
// long anything takes. The gang still gets its room.
func TestSymptomH16AStreamOfSmallJobsDoesNotStarveAGang(t *testing.T) {
	for _, wall := range []int{0, 7} {
		for _, level := range []lockstep.Level{"", placertest.Rack} {
			t.Run(fmt.Sprintf("wall=%d level=%s", wall, level), func(t *testing.T) {
				w := newWorld(t, placertest.NewReference(2, 4, 2, 0), gang.Config{StartAtOnce: true})
				for n := range 600 {
					id := lockstep.JobID(fmt.Sprintf("s%03d", n))
					w.true[id] = 5 + n%9
					w.submit(n/4, plain(id, 1, wall))
				}
				big := plain("big", 8, wall)
				big.Required = level
				w.true["big"] = 10
				w.submit(20, big)
				w.run(149)
				require.Len(t, w.starts["big"], 1)
				require.Less(t, w.starts["big"][0], 60)
				passed := 0
				for id, s := range w.starts {
					if id != "big" && s[0] > 20 && s[0] < w.starts["big"][0] {
						passed++
					}
				}
				if level == placertest.Rack {
					require.NotZero(t, passed, "the other rack is open to small jobs")
				}
			})
		}
	}
}

func TestUnknownEndsMakeAReservationWithoutATime(t *testing.T) {
	w := newWorld(t, placertest.NewReference(2, 2, 1, 0), gang.Config{StartAtOnce: true})
	w.submit(0, plain("a", 1, 0), plain("b", 1, 0), plain("c", 1, 0), plain("pair", 2, 10), plain("z", 1, 5))
	w.run(0)
	require.Equal(t, gang.Queued, w.phase("pair"))
	_, ok := forecast(w.a, "pair")
	require.False(t, ok)
	e, _ := w.a.Explain("pair")
	require.Contains(t, e.String(), "room is kept for it")
	// The free node may be half of the pair's room: nobody gets in.
	require.Equal(t, gang.Queued, w.phase("z"))
	w.at(3, lockstep.Event{Kind: lockstep.EventFinish, Job: "c"})
	w.run(3)
	require.Equal(t, gang.Running, w.phase("pair"))
}

func TestAJobPastItsEstimateIsExpectedAnyMoment(t *testing.T) {
	w := newWorld(t, placertest.NewReference(1, 2, 1, 0), gang.Config{StartAtOnce: true})
	w.true["a-late"] = 50
	w.submit(0, plain("a-late", 1, 10), plain("pair", 2, 10))
	w.run(9)
	start, ok := forecast(w.a, "pair")
	require.True(t, ok)
	require.Equal(t, 10, seconds(start))
	w.submit(20, plain("short", 1, 1))
	w.run(30)
	start, ok = forecast(w.a, "pair")
	require.True(t, ok)
	require.LessOrEqual(t, seconds(start), 30)
	_, wakes := w.a.NextWake(at(30))
	require.False(t, wakes, "nothing to do until the late one ends")
	w.run(100)
	require.Equal(t, []int{50}, w.starts["pair"])
	require.Equal(t, []int{60}, w.starts["short"])
}

func TestStrictLetsNobodyPass(t *testing.T) {
	w := newWorld(t, placertest.NewReference(1, 2, 1, 0), gang.Config{StartAtOnce: true, Backfill: gang.Strict})
	w.submit(0, plain("a", 1, 10), plain("pair", 2, 10), plain("z", 1, 1))
	w.run(100)
	require.Equal(t, []int{10}, w.starts["pair"])
	require.Equal(t, []int{20}, w.starts["z"])
}

// onlyPlacer hides what else a placer can do.
type onlyPlacer struct{ gang.Placer }

func TestWithoutWhatIfNobodyPassesButOverTheImpossible(t *testing.T) {
	p := placertest.NewReference(1, 2, 1, 0)
	a, err := gang.New(gang.Config{Placer: onlyPlacer{p}, StartAtOnce: true})
	require.NoError(t, err)
	for _, g := range []*lockstep.Gang{plain("a", 1, 10), plain("b-huge", 3, 1), plain("pair", 2, 10), plain("z", 1, 1)} {
		require.NoError(t, a.Submit(at(0), g))
	}
	_, err = a.Step(at(0))
	require.NoError(t, err)
	require.Equal(t, []lockstep.JobID{"a"}, a.AppendJobs(nil, gang.Running))
	require.NoError(t, a.Finish(at(10), "a", 0))
	_, err = a.Step(at(10))
	require.NoError(t, err)
	require.Equal(t, []lockstep.JobID{"pair"}, a.AppendJobs(nil, gang.Running))
}

func TestTheImpossibleIsExplainedAndBlocksNobody(t *testing.T) {
	w := newWorld(t, placertest.NewReference(2, 2, 1, 0), gang.Config{StartAtOnce: true})
	rack := plain("rack", 3, 10) // fits the cluster, but no rack
	rack.Required = placertest.Rack
	w.submit(0, plain("huge", 5, 10), rack, plain("x", 2, 10), plain("y", 2, 10))
	w.run(5)
	require.Equal(t, gang.Running, w.phase("x"))
	require.Equal(t, gang.Running, w.phase("y"))
	e, _ := w.a.Explain("huge")
	require.Equal(t, lockstep.ReasonCapacity, e.Verdict.Reason)
	_, ok := forecast(w.a, "rack")
	require.False(t, ok)
	require.Equal(t, gang.Queued, w.phase("huge"))
}

// A gang without quota is passed over: nobody waits for it and nothing is kept.
func TestQuotaBlocksOnlyItsOwner(t *testing.T) {
	quota := newLedger(2)
	w := newWorld(t, placertest.NewReference(1, 4, 1, 0), gang.Config{StartAtOnce: true, Quota: quota})
	x1, x2, y := plain("x1", 2, 10), plain("x2", 1, 10), plain("y", 2, 30)
	x1.Tenant, x2.Tenant, y.Tenant = "x", "x", "y"
	w.submit(0, x1, x2, y)
	w.run(5)
	require.Equal(t, gang.Queued, w.phase("x2"))
	require.Equal(t, gang.Running, w.phase("y"))
	_, ok := forecast(w.a, "x2")
	require.False(t, ok)
	e, _ := w.a.Explain("x2")
	require.Equal(t, lockstep.ReasonQuota, e.Verdict.Reason)
	w.run(10)
	require.Equal(t, gang.Running, w.phase("x2"))
}

func TestWindowsAreKeptFree(t *testing.T) {
	w := newWorld(t, placertest.NewReference(1, 2, 1, 0), gang.Config{StartAtOnce: true})
	require.NoError(t, w.a.Reserve(at(0), gang.Window{Name: "m", Nodes: []lockstep.NodeID{"n0"}, From: at(10), To: at(20)}))
	w.submit(0, plain("a-long", 1, 11), plain("b-short", 1, 10), plain("c-endless", 1, 0))
	w.run(0)
	require.Equal(t, lockstep.NodeID("n1"), status(t, w, "a-long").Plan.Members[0].Node)
	require.Equal(t, lockstep.NodeID("n0"), status(t, w, "b-short").Plan.Members[0].Node)
	w.submit(10, plain("pair", 2, 5))
	w.run(12)
	require.Equal(t, gang.Running, w.phase("c-endless"), "n1 is free from 11 on and has no window")
	w.run(19)
	require.Equal(t, gang.Queued, w.phase("pair"))
	require.NoError(t, w.a.Cancel(at(19), "c-endless"))
	w.run(40)
	require.Equal(t, []int{20}, w.starts["pair"])
	require.Empty(t, w.a.AppendWindows(nil))
}

func status(t *testing.T, w *world, job lockstep.JobID) gang.Status {
	t.Helper()
	s, ok := w.a.State(job)
	require.True(t, ok)
	return s
}

func TestSymptomH17AHigherClaimTakesAReservation(t *testing.T) { // H17
	w := newWorld(t, placertest.NewReference(1, 2, 1, 0), gang.Config{StartAtOnce: true})
	w.submit(0, plain("a", 2, 10), plain("low", 2, 10))
	w.run(1)
	_, ok := forecast(w.a, "low")
	require.True(t, ok)
	high := plain("high", 2, 10)
	high.Priority = 5
	w.submit(2, high)
	w.run(3)
	start, ok := forecast(w.a, "high")
	require.True(t, ok)
	require.Equal(t, 10, seconds(start))
	_, ok = forecast(w.a, "low")
	require.False(t, ok)
	w.run(50)
	require.Equal(t, []int{10}, w.starts["high"])
	require.Equal(t, []int{20}, w.starts["low"])
}

func TestMaxAttemptsOnlySpreadsTheWork(t *testing.T) {
	var logs [][]lockstep.JobID
	for _, most := range []int{0, 1} {
		w := newWorld(t, placertest.NewReference(1, 4, 1, 0), gang.Config{StartAtOnce: true, MaxAttempts: most})
		for n := range 8 {
			w.submit(0, plain(lockstep.JobID(fmt.Sprintf("j%d", n)), 1+n%3, 10+n))
		}
		w.run(200)
		var log []lockstep.JobID
		for _, x := range w.log {
			log = append(log, x.Job)
		}
		logs = append(logs, log)
	}
	require.Equal(t, logs[0], logs[1])
}

func TestMemoryStaysFlat(t *testing.T) {
	w := newWorld(t, placertest.NewReference(1, 2, 1, 0), gang.Config{StartAtOnce: true, Retain: 10})
	var sizes []int
	for n := range 400 {
		w.submit(n, plain(lockstep.JobID(fmt.Sprintf("j%03d", n)), 1+n%2, 1))
		w.run(n)
		if n%100 == 99 {
			var b bytes.Buffer
			require.NoError(t, w.a.Snapshot(&b))
			sizes = append(sizes, b.Len())
		}
	}
	require.LessOrEqual(t, len(w.a.AppendJobs(nil)), 20)
	require.Less(t, slices.Max(sizes), 2*slices.Min(sizes))
	id := w.a.AppendJobs(nil, gang.Gone)[0]
	require.NoError(t, w.a.Forget(id))
	_, ok := w.a.State(id)
	require.False(t, ok)
	require.ErrorIs(t, w.a.Forget(id), lockstep.ErrUnknown)
}
