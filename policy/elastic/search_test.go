package elastic_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel/goodput"
	"github.com/lockstep-gpu/lockstep/policy/elastic"
)

// curve is a job that is n^power times as fast on n GPUs of a node, and less by a part where it spans nodes.
type curve struct{ power, apart float64 }

func (c curve) Speedup(nodes, gpus int) (float64, bool) {
	x := math.Pow(float64(gpus), c.power)
	if nodes > 1 {
		x *= 1 - c.apart
	}
	return x, gpus >= nodes && nodes > 0
}

func search(t testing.TB, cfg elastic.SearchConfig, nodes []int, jobs ...elastic.Candidate) []elastic.Placed {
	t.Helper()
	s, err := elastic.NewSearch(cfg)
	require.NoError(t, err)
	placed, err := s.Append(nil, nodes, jobs)
	require.NoError(t, err)
	return placed
}

func candidate(id string, speed elastic.Speeder, most int) elastic.Candidate {
	return elastic.Candidate{ID: lockstep.JobID(id), Speed: speed, Max: most, Age: time.Hour, Capabilities: free}
}

// The model by hand of the package goodput, without overlap: on a node four GPUs are 188.679/86.486 times as fast as
// one, on two nodes 135.593/86.486 with the same batch. So both jobs stay inside a node, though six GPUs are there.
func TestAGoodputModelDecides(t *testing.T) {
	m, err := goodput.New(goodput.Config{
		Params: goodput.Params{Compute: goodput.Linear{Alpha: .05, Beta: .01}, Local: goodput.Linear{Alpha: .05, Beta: .002}, Remote: goodput.Linear{Alpha: .2, Beta: .01}},
		Noise:  goodput.Noise{Norm: 1, Variance: 4}, Initial: 32, Limits: goodput.Limits{MaxSamples: 128},
	})
	require.NoError(t, err)
	got := search(t, elastic.SearchConfig{}, []int{4, 2}, candidate("a", m, 6))
	require.Equal(t, []elastic.Spot{{0, 4}}, got[0].Spots)
	got = search(t, elastic.SearchConfig{}, []int{4, 4}, candidate("a", m, 8), candidate("b", m, 8))
	require.Len(t, got[0].Spots, 1)
	require.Len(t, got[1].Spots, 1)
	require.NotEqual(t, got[0].Spots, got[1].Spots)
	require.EqualValues(t, 1_000_000, got[0].Speedup, "four GPUs are the fair share")
}

// The fitness is the harmonic mean: {2,2,2,2} beats {4,2,1,1} and {3,3,1,1}, so that equal jobs have equal parts.
func TestEqualJobsShareEvenly(t *testing.T) {
	linear := curve{power: 1}
	got := search(t, elastic.SearchConfig{}, []int{4, 4}, candidate("a", linear, 8), candidate("b", linear, 8), candidate("c", linear, 8), candidate("d", linear, 8))
	var xs []float64
	for _, p := range got {
		require.Equal(t, 2, total(p.Spots))
		xs = append(xs, float64(p.Speedup)/1e6*2) // the fair share is two GPUs
	}
	mean, ok := goodput.PowerMean(-1, xs)
	require.True(t, ok)
	require.InDelta(t, 2, mean, 1e-9)
}

func total(spots []elastic.Spot) (n int) {
	for _, s := range spots {
		n += s.GPUs
	}
	return n
}

// A restart leaves a job of ten minutes that had two 0.857 of its speed: twice as fast pays, a tenth does not. One of a
// minute that had three has nothing left.
func TestARestartMustPay(t *testing.T) {
	for _, c := range []struct {
		age      time.Duration
		restarts int
		power    float64
		want     int
		speedup  int64
	}{
		{10 * time.Minute, 2, 1, 2, 857_142},
		{10 * time.Minute, 2, .2, 1, 870_551}, // 2^-0.2 of what two GPUs bring, against 0.857 of it
		{time.Minute, 0, 1, 2, 666_666},
		{time.Minute, 0, .5, 1, 707_107},
		{time.Minute, 3, 1, 1, 500_000},
	} {
		j := candidate("a", curve{power: c.power}, 2)
		j.Age, j.Restarts, j.Held = c.age, c.restarts, []elastic.Spot{{0, 1}}
		got := search(t, elastic.SearchConfig{}, []int{2}, j)[0]
		require.Equal(t, c.want, total(got.Spots), c)
		require.Equal(t, c.want == 2, got.Moved)
		require.Equal(t, c.speedup, got.Speedup, c)
	}
	j := candidate("a", curve{power: .1}, 2)
	j.Age, j.Held = time.Minute, []elastic.Spot{{0, 1}}
	require.Equal(t, 2, total(search(t, elastic.SearchConfig{Delay: -1}, []int{2}, j)[0].Spots), "a restart that takes no time always pays")
}

func TestJobsThatCannotMoveStay(t *testing.T) {
	linear := curve{power: 1}
	pinned := candidate("p", linear, 8)
	pinned.Held, pinned.Capabilities.Preemptible = []elastic.Spot{{1, 1}, {0, 1}}, false
	other := candidate("o", linear, 8)
	got := search(t, elastic.SearchConfig{}, []int{4, 4}, pinned, other)
	require.Equal(t, elastic.Placed{ID: "p", Spots: []elastic.Spot{{0, 1}, {1, 1}}, Speedup: 500_000}, got[1])
	require.Equal(t, 3, total(got[0].Spots), "one node only: the other one has a part of a job that spans nodes")

	fresh := candidate("f", linear, 8)
	fresh.Held, fresh.Since = []elastic.Spot{{0, 1}}, time.Minute-1
	require.False(t, search(t, elastic.SearchConfig{Dwell: time.Minute}, []int{4}, fresh)[0].Moved)
	fresh.Since++
	require.True(t, search(t, elastic.SearchConfig{Dwell: time.Minute}, []int{4}, fresh)[0].Moved)

	fixed := candidate("x", linear, 8)
	fixed.Held, fixed.Capabilities.Resizable = []elastic.Spot{{0, 3}}, false
	require.Equal(t, []elastic.Spot{{0, 3}}, search(t, elastic.SearchConfig{}, []int{4, 4}, fixed)[0].Spots)
	fixed.Held, fixed.Min = nil, 2
	require.Equal(t, 2, total(search(t, elastic.SearchConfig{}, []int{4, 4}, fixed)[0].Spots))
}

// When a node is gone or smaller, even what cannot move is placed anew, and nothing is given twice.
func TestLostNodes(t *testing.T) {
	pinned := candidate("p", curve{power: 1}, 4)
	pinned.Held, pinned.Capabilities.Preemptible = []elastic.Spot{{3, 4}}, false
	got := search(t, elastic.SearchConfig{}, []int{2}, pinned)
	require.Equal(t, []elastic.Placed{{ID: "p", Spots: []elastic.Spot{{0, 2}}, Moved: true, Speedup: 1_000_000}}, got)
	require.Equal(t, []elastic.Placed{{ID: "p", Moved: true}}, search(t, elastic.SearchConfig{}, nil, pinned))
	require.Empty(t, search(t, elastic.SearchConfig{}, []int{4}))
}

func TestWeightsCount(t *testing.T) {
	a, b := candidate("a", curve{power: 1}, 8), candidate("b", curve{power: 1}, 8)
	b.Weight = 9
	got := search(t, elastic.SearchConfig{}, []int{8}, a, b)
	require.Equal(t, []int{2, 6}, []int{total(got[0].Spots), total(got[1].Spots)})
}

// wild are jobs of all kinds on small nodes, some of which run.
func wild(rng *rand.Rand) (nodes []int, jobs []elastic.Candidate) {
	for range rng.IntN(5) {
		nodes = append(nodes, rng.IntN(5))
	}
	room, span := slices.Clone(nodes), make([]int, len(nodes))
	for i := range rng.IntN(8) {
		j := candidate(fmt.Sprintf("j%d", i), curve{power: rng.Float64(), apart: rng.Float64()}, 1+rng.IntN(8))
		j.Age, j.Restarts = time.Duration(rng.IntN(7200))*time.Second, rng.IntN(4)
		j.Weight = rng.Int64N(3)
		j.Capabilities = lockstep.Capabilities{Resizable: rng.IntN(4) > 0, Preemptible: rng.IntN(4) > 0}
		if rng.IntN(3) == 0 {
			j.Min = 1 + rng.IntN(2)
			j.Max += j.Min
		}
		if rng.IntN(4) == 0 {
			j.Speed = nil
		}
		var held []elastic.Spot
		for n := range nodes {
			if room[n] > 0 && rng.IntN(3) == 0 && span[n] == 0 {
				held = append(held, elastic.Spot{Node: n, GPUs: 1 + rng.IntN(room[n])})
			}
		}
		if total(held) <= j.Max && total(held) >= max(j.Min, 1) {
			j.Held = held
			for _, s := range held {
				room[s.Node] -= s.GPUs
				if len(held) > 1 {
					span[s.Node]++
				}
			}
		}
		jobs = append(jobs, j)
	}
	return nodes, jobs
}

func TestSearchNeverBreaksALimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range scaled(t, 2000) {
		nodes, jobs := wild(rng)
		got := search(t, elastic.SearchConfig{Seed: rng.Uint64N(4), Effort: rng.IntN(400)}, nodes, jobs...)
		require.Len(t, got, len(jobs))
		room, span := slices.Clone(nodes), make([]int, len(nodes))
		for i, p := range got {
			j := &jobs[i] // both by ID
			require.Equal(t, j.ID, p.ID)
			require.Equal(t, len(j.Held) > 0 && !slices.Equal(j.Held, p.Spots), p.Moved)
			if len(j.Held) > 0 && !j.Capabilities.Preemptible {
				require.False(t, p.Moved)
			}
			switch n := total(p.Spots); {
			case n == 0:
			case len(j.Held) > 0 && !j.Capabilities.Resizable:
				require.Equal(t, total(j.Held), n)
			case !j.Capabilities.Resizable:
				require.Equal(t, max(j.Min, 1), n)
			default:
				require.GreaterOrEqual(t, n, max(j.Min, 1))
				require.LessOrEqual(t, n, max(j.Max, j.Min, 1))
			}
			for _, s := range p.Spots {
				require.Positive(t, s.GPUs)
				room[s.Node] -= s.GPUs
				if len(p.Spots) > 1 {
					span[s.Node]++
				}
			}
		}
		for n := range nodes {
			require.GreaterOrEqual(t, room[n], 0)
			require.LessOrEqual(t, span[n], 1)
		}
	}
}

func TestTheOrderOfCandidatesDoesNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for range scaled(t, 300) {
		nodes, jobs := wild(rng)
		cfg := elastic.SearchConfig{Seed: 5}
		want := search(t, cfg, nodes, jobs...)
		rng.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
		for i := range jobs {
			rng.Shuffle(len(jobs[i].Held), func(a, b int) {
				jobs[i].Held[a], jobs[i].Held[b] = jobs[i].Held[b], jobs[i].Held[a]
			})
		}
		require.Equal(t, want, search(t, cfg, nodes, jobs...))
	}
}

// A Search used before, for other jobs, decides like a new one.
func TestASearchKeepsNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	s, err := elastic.NewSearch(elastic.SearchConfig{})
	require.NoError(t, err)
	for range scaled(t, 300) {
		nodes, jobs := wild(rng)
		got, err := s.Append(nil, nodes, jobs)
		require.NoError(t, err)
		require.Equal(t, search(t, elastic.SearchConfig{}, nodes, jobs...), append([]elastic.Placed(nil), got...))
	}
}

// Under a constant load decisions come to rest: each move must lower the cost, with the restart that it costs.
func TestConstantLoadComesToRest(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	again := 0
	for range scaled(t, 300) {
		nodes, jobs := wild(rng)
		moved := true
		for round := 0; moved; round++ {
			require.Less(t, round, 6)
			moved = false
			for i, p := range search(t, elastic.SearchConfig{}, nodes, jobs...) {
				moved = moved || p.Moved
				jobs[i].Held = p.Spots
			}
			if moved && round > 0 {
				again++
			}
		}
	}
	t.Logf("%d decisions after the first moved a job", again)
}

// broken is a model that answers nonsense.
type broken float64

func (b broken) Speedup(int, int) (float64, bool) { return float64(b), true }

func TestNonsenseFromAModelIsHeld(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 1e300, 5e-324} {
		got := search(t, elastic.SearchConfig{}, []int{4, 4}, candidate("a", broken(x), 8), candidate("b", curve{power: 1}, 8))
		require.LessOrEqual(t, total(got[0].Spots)+total(got[1].Spots), 8)
		if !(x > 0) { // what does not run keeps no GPUs from what does
			require.Empty(t, got[0].Spots)
			require.Equal(t, 8, total(got[1].Spots))
		}
	}
}

func TestBadCandidatesAreNamed(t *testing.T) {
	s, err := elastic.NewSearch(elastic.SearchConfig{})
	require.NoError(t, err)
	for field, edit := range map[string]func(*elastic.Candidate){
		"jobs[0].ID":           func(c *elastic.Candidate) { c.ID = "" },
		"jobs[0].Min":          func(c *elastic.Candidate) { c.Min = -1 },
		"jobs[0].Max":          func(c *elastic.Candidate) { c.Min = 9 },
		"jobs[0].Weight":       func(c *elastic.Candidate) { c.Weight = elastic.MaxWeight + 1 },
		"jobs[0].Age":          func(c *elastic.Candidate) { c.Age = -1 },
		"jobs[0].Restarts":     func(c *elastic.Candidate) { c.Restarts = -1 },
		"jobs[0].Since":        func(c *elastic.Candidate) { c.Since = math.MaxInt64 },
		"jobs[0].Held[0].Node": func(c *elastic.Candidate) { c.Held = []elastic.Spot{{-1, 1}} },
		"jobs[0].Held[0].GPUs": func(c *elastic.Candidate) { c.Held = []elastic.Spot{{0, 0}} },
		"jobs[0].Held[1].Node": func(c *elastic.Candidate) { c.Held = []elastic.Spot{{0, 1}, {0, 1}} },
	} {
		c := candidate("a", nil, 8)
		edit(&c)
		got, err := s.Append(nil, []int{4}, []elastic.Candidate{c})
		var e *lockstep.Error
		require.ErrorAs(t, err, &e, field)
		require.Equal(t, field, e.Field)
		require.Nil(t, got)
	}
	_, err = s.Append(nil, []int{65}, nil)
	require.ErrorContains(t, err, "nodes[0] = 65")
	_, err = s.Append(nil, nil, []elastic.Candidate{candidate("a", nil, 1), candidate("a", nil, 1)})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = elastic.NewSearch(elastic.SearchConfig{Delay: math.MaxInt64, Dwell: -1, Effort: -1})
	for _, field := range []string{"Delay", "Dwell", "Effort"} {
		require.ErrorContains(t, err, field)
	}
}

func BenchmarkSearch(b *testing.B) {
	for _, n := range []int{5, 50, 500, 5000} {
		b.Run(fmt.Sprintf("gpus=%d/jobs=%d", 2*n, n), func(b *testing.B) {
			nodes := make([]int, (2*n+3)/4)
			for i := range nodes {
				nodes[i] = 4
			}
			jobs := make([]elastic.Candidate, n)
			for i := range jobs {
				jobs[i] = candidate(fmt.Sprintf("j%05d", i), curve{power: .5 + float64(i%5)/10, apart: .2}, 8)
			}
			s, err := elastic.NewSearch(elastic.SearchConfig{})
			require.NoError(b, err)
			var dst []elastic.Placed
			b.ReportAllocs()
			for b.Loop() {
				if dst, err = s.Append(dst[:0], nodes, jobs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Two jobs that span nodes share one, as another policy put them there, and must not be moved: a flag comes before a
// link that is shared.
func TestJobsThatCannotMoveStayOnASharedNode(t *testing.T) {
	job := func(id string, held ...elastic.Spot) elastic.Candidate {
		j := candidate(id, curve{power: .9, apart: .9}, 8)
		j.Held, j.Capabilities = held, lockstep.Capabilities{Resizable: true}
		return j
	}
	a, b := job("a", elastic.Spot{Node: 0, GPUs: 2}, elastic.Spot{Node: 1, GPUs: 2}), job("b", elastic.Spot{Node: 1, GPUs: 2}, elastic.Spot{Node: 2, GPUs: 2})
	c := candidate("c", curve{power: .9, apart: .9}, 8)
	for _, p := range search(t, elastic.SearchConfig{}, []int{4, 4, 4}, a, b, c) {
		require.False(t, p.Moved, p)
		require.NotEmpty(t, p.Spots)
	}
}

// A job whose bounds have changed since it was started does not run outside them, unless it must not be moved.
func TestAJobOutsideItsBoundsIsBroughtBack(t *testing.T) {
	job := candidate("a", curve{power: .9, apart: .9}, 2)
	job.Age, job.Held = time.Hour, []elastic.Spot{{Node: 0, GPUs: 8}}
	require.Equal(t, []elastic.Spot{{Node: 0, GPUs: 2}}, search(t, elastic.SearchConfig{}, []int{8}, job)[0].Spots)
	require.Equal(t, job.Held, search(t, elastic.SearchConfig{Dwell: time.Minute}, []int{8}, job)[0].Spots)
	job.Held, job.Min, job.Max = []elastic.Spot{{Node: 0, GPUs: 1}}, 4, 8
	require.GreaterOrEqual(t, total(search(t, elastic.SearchConfig{}, []int{8}, job)[0].Spots), 4)
	require.Empty(t, search(t, elastic.SearchConfig{}, []int{3}, job)[0].Spots)
}
