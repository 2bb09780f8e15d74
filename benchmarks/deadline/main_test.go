package main

import (
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/policy/deadline"
	"github.com/lockstep-gpu/lockstep/policy/elastic"
)

// linear is a job that is 1, 1.8 and 3 times as fast on 1, 2 and 4 devices.
func linear(id lockstep.JobID, submit, deadlineAt, iterations int64, gpus int) *job {
	j := &job{id: id, submit: submit, deadline: deadlineAt, gpus: gpus, work: iterations * micro, all: make(map[int]int64)}
	for _, p := range []deadline.Point{{GPUs: 1, Rate: micro}, {GPUs: 2, Rate: 18 * micro / 10}, {GPUs: 4, Rate: 3 * micro}} {
		j.points = append(j.points, p)
		j.sizes = append(j.sizes, elastic.Size{GPUs: p.GPUs, Time: time.Duration(second * micro / p.Rate)})
		j.all[p.GPUs] = p.Rate
	}
	return j
}

func TestWorkIsCountedWithoutLoss(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		l := &live{job: &job{}, left: 1 + rng.Int64N(1<<44), rate: 1 + rng.Int64N(1<<25)}
		exact := new(big.Int).Mul(big.NewInt(l.left), big.NewInt(second)) // units × nanoseconds
		for range 20 {
			span := 1 + rng.Int64N(3600*second)
			if l.ends() <= span {
				break
			}
			l.run(span)
			exact.Sub(exact, new(big.Int).Mul(big.NewInt(l.rate), big.NewInt(span)))
			now := new(big.Int).Mul(big.NewInt(l.left), big.NewInt(second))
			require.Equal(t, exact, now.Sub(now, big.NewInt(l.sub)))
			require.Positive(t, l.left)
		}
		done := new(big.Int).Mul(big.NewInt(l.rate), big.NewInt(l.ends()))
		require.GreaterOrEqual(t, done.Cmp(exact), 0, "it has ended then")
		require.Negative(t, done.Sub(done, big.NewInt(l.rate)).Cmp(exact), "and not before")
	}
}

// The worked example of package deadline: y fits after x, and z does not.
func TestAdmissionByHand(t *testing.T) {
	all := []*job{linear("x", 0, 400, 1000, 4), linear("y", 0, 600, 500, 4), linear("z", 0, 600, 500, 4)}
	o, err := admission(all, world{gpus: 4, spread: elastic.Config{Rule: elastic.Service}})
	require.NoError(t, err)
	require.Equal(t, []int{3, 2, 2, 0}, []int{o.jobs, o.admitted, o.met, o.missed})
	require.InDelta(t, (1000./3+1500./3)/2, o.jct, 1e-6)
}

func TestPausesAndSlotsByHand(t *testing.T) {
	// It comes at 10, is asked about at 60 and stands still for 6 s, then takes 100 s on four devices.
	pause := func(int, bool) int64 { return 6 * second }
	o, err := admission([]*job{linear("x", 10, 300, 300, 4)}, world{gpus: 4, slot: 60 * second, pause: pause, spread: elastic.Config{Rule: elastic.Finish}})
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 1, 0}, []int{o.jobs, o.admitted, o.met, o.missed})
	require.InDelta(t, 156, o.jct, 1e-6)
	o, err = admission([]*job{linear("x", 10, 300, 300, 4)}, world{gpus: 4, slot: 60 * second, allowance: 141 * second, spread: elastic.Config{Rule: elastic.Finish}})
	require.NoError(t, err)
	require.Zero(t, o.admitted, "141 s before its deadline is less than 100 s from when it is asked about")
}

func TestBaselinesByHand(t *testing.T) {
	replay := func(name string) outcome {
		i := slices.IndexFunc(baselines, func(b baseline) bool { return b.name == name })
		return baselines[i].replay([]*job{linear("a", 0, 1000, 600, 2), linear("b", 1, 100, 90, 4)}, 4)
	}
	require.Equal(t, 1, replay("FIFO").met, "b waits until 333 s")
	require.Equal(t, 2, replay("EDF").met, "b stops a for 30 s")
	o := replay(widest)
	require.Equal(t, 2, o.met)
	require.InDelta(t, (600./3+30+30)/2, o.jct, 1e-6, "a runs on four devices but for 30 s")
}

func TestSlotsByHand(t *testing.T) {
	list := []gang{
		{id: "a", gpus: 2, submit: 0, length: 50, deadline: 110},
		{id: "b", gpus: 2, submit: 0, length: 30, deadline: 45}, // its second slot is needed for 10 s only
		{id: "c", gpus: 2, submit: 0, length: 10},
	}
	for _, eager := range []bool{false, true} {
		o, err := slots(slices.Clone(list), 2, 20, eager)
		require.NoError(t, err)
		require.Equal(t, []int{2, 2, 2, 0, 1}, []int{o.jobs, o.admitted, o.met, o.missed, o.bestEffort}, "eager %v", eager)
		require.Equal(t, int64(160), o.kept)
	}
	o := rivals[0].replay(slices.Clone(list), 2, 20)
	require.Equal(t, []int{2, 2, 0, 1}, []int{o.jobs, o.met, o.missed, o.bestEffort}, "EDF")
	o = rivals[len(rivals)-1].replay(slices.Clone(list), 2, 20)
	require.Equal(t, []int{2, 1, 1}, []int{o.jobs, o.met, o.missed}, "FIFO runs a to 50 and b from 60")
}

func TestAbsentTracesAreSaid(t *testing.T) {
	var out strings.Builder
	b, err := harness.New("deadline", []string{"-check"}, &out, func(*flag.FlagSet) {})
	require.NoError(t, err)
	p := &program{Bench: b, traces: t.TempDir()}
	require.NoError(t, p.elasticFlow())
	require.NoError(t, p.chronus())
	require.Zero(t, p.Close())
	require.Equal(t, 2, strings.Count(out.String(), "the traces are absent"))
}

// Nobody who was admitted misses, at any load, on random curves.
func TestNobodyAdmittedMisses(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var all []*job
		now := int64(0)
		for i := range 60 {
			now += rng.Int64N(200)
			j := linear(lockstep.JobID(fmt.Sprint("j", i)), now, 0, 1+rng.Int64N(2000), 1)
			j.deadline = now + 1 + rng.Int64N(3000)
			all = append(all, j)
		}
		o, err := admission(all, world{gpus: 8, spread: elastic.Config{Rule: elastic.Service}})
		require.NoError(t, err)
		require.Zero(t, o.missed)
		require.Equal(t, o.admitted, o.met)
		require.Positive(t, o.admitted)
		require.Less(t, o.admitted, len(all))
	}
}

// With pauses planned, one in each slot, nobody misses either.
func TestPausesArePlanned(t *testing.T) {
	w := world{slot: 60 * second, planned: true, pause: func(int, bool) int64 { return 15 * second }}
	require.Equal(t, []deadline.Point{{GPUs: 1, Rate: micro * 3 / 4}, {GPUs: 2, Rate: micro * 27 / 20}, {GPUs: 4, Rate: micro * 9 / 4}}, w.plan(linear("x", 0, 0, 1, 1).points))
	w.gpus, w.spread.Rule = 4, elastic.Service
	o, err := admission([]*job{linear("x", 0, 133, 300, 4)}, w)
	require.NoError(t, err)
	require.Zero(t, o.admitted, "133.3 s with the pauses")
	o, err = admission([]*job{linear("x", 0, 134, 300, 4)}, w)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{o.admitted, o.met})
}
