package fleet

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// twoAndTwo is the case that AlpaServe opens with: two models that take a GPU each, and a burst of one at a time. Two
// GPUs with a model each serve a burst of four one after the other; a pipeline over both with both models serves it
// with both GPUs.
func twoAndTwo() (models []Model, apart, pipeline []Group, requests []Request) {
	for _, id := range []ID{"a", "b"} {
		models = append(models, Model{ID: id, Memory: 10, Latency: 100 * ms, Objective: 350 * ms})
	}
	apart = []Group{{ID: "g1", Memory: 10}, {ID: "g2", Memory: 10}}
	pipeline = []Group{{ID: "both", Memory: 20, Stages: 2, Speed: 1000}}
	for burst := range 10 {
		for range 4 {
			requests = append(requests, Request{At: time.Duration(burst) * time.Second, Model: models[burst%2].ID})
		}
	}
	return models, apart, pipeline, requests
}

func TestAPipelineOfTwoServesBurstsThatTwoDevicesDoNot(t *testing.T) {
	models, apart, pipeline, requests := twoAndTwo()
	p, err := Place(models, apart, requests)
	require.NoError(t, err)
	require.Equal(t, Placement{Hosts: []Host{{"g1", []ID{"a"}}, {"g2", []ID{"b"}}}, Served: 30, Of: 40}, p, "100, 200, 300 ms in time, 400 not")
	p, err = Place(models, pipeline, requests)
	require.NoError(t, err)
	require.Equal(t, Placement{Hosts: []Host{{"both", []ID{"a", "b"}}}, Served: 40, Of: 40}, p, "100, 150, 200, 250 ms")
	n, err := Attained(models, pipeline, requests, p)
	require.NoError(t, err)
	require.Equal(t, 40, n)
}

// TestPlaceIsNearTheBest compares the greedy placement with all placements.
func TestPlaceIsNearTheBest(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	r := rand.New(rand.NewPCG(9, 9))
	got, best := 0, 0
	for range rounds {
		var models []Model
		for i := range 4 {
			models = append(models, Model{ID: ID(fmt.Sprint("m", i)), Memory: lockstep.Bytes(1 + r.IntN(4)), Latency: time.Duration(20+r.IntN(100)) * ms, Objective: time.Duration(100+r.IntN(300)) * ms})
		}
		groups := []Group{{ID: "g1", Memory: 6, Stages: 2, Speed: 900}, {ID: "g2", Memory: 4}}
		var requests []Request
		at := time.Duration(0)
		for range 150 {
			at += time.Duration(r.ExpFloat64() * float64(25*ms))
			requests = append(requests, Request{at, models[r.IntN(4)*r.IntN(4)/3].ID})
		}
		p, err := Place(models, groups, requests)
		require.NoError(t, err)
		n, err := Attained(models, groups, requests, p)
		require.NoError(t, err)
		require.Equal(t, p.Served, n)
		most := 0
		for set := range 1 << 8 {
			given := Placement{Hosts: []Host{{Group: "g1"}, {Group: "g2"}}}
			for bit := range 8 {
				if set>>bit&1 == 1 {
					given.Hosts[bit/4].Models = append(given.Hosts[bit/4].Models, models[bit%4].ID)
				}
			}
			if n, err := Attained(models, groups, requests, given); err == nil {
				most = max(most, n)
			} else {
				require.ErrorIs(t, err, lockstep.ErrConflict)
			}
		}
		require.LessOrEqual(t, p.Served, most)
		got += p.Served
		best += most
		r.Shuffle(len(models), func(i, j int) { models[i], models[j] = models[j], models[i] })
		again, err := Place(models, []Group{groups[1], groups[0]}, requests)
		require.NoError(t, err)
		require.Equal(t, p, again)
	}
	t.Logf("%d requests in time, the best placements %d", got, best)
	require.GreaterOrEqual(t, float64(got), .95*float64(best))
}

func TestPlaceRefusesBadInput(t *testing.T) {
	models, groups, _, requests := twoAndTwo()
	_, err := Place(models, groups, []Request{{Model: "x"}})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, err = Place(models, groups, []Request{{At: 2, Model: "a"}, {At: 1, Model: "a"}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Place([]Model{{ID: "a", Memory: -1}}, groups, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Place(models, append(groups, groups[0]), nil)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = Place(models, []Group{{ID: "g", Speed: -1}}, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Attained(models, groups, requests, Placement{Hosts: []Host{{Group: "x"}}})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, err = Attained(models, groups, requests, Placement{Hosts: []Host{{Group: "g1", Models: []ID{"x"}}}})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, err = Attained(models, groups, requests, Placement{Hosts: []Host{{Group: "g1", Models: []ID{"a", "b"}}}})
	require.ErrorIs(t, err, lockstep.ErrConflict)
	p, err := Place(nil, nil, nil)
	require.NoError(t, err)
	require.Equal(t, Placement{}, p)
}

func TestResidentsOfEqualCostGoByLastUse(t *testing.T) {
	r := Residents{Memory: 30}
	use := func(id ID) []ID {
		_, out, err := r.Use(id, 10, time.Second)
		require.NoError(t, err)
		return out
	}
	for _, id := range []ID{"a", "b", "c"} {
		require.Empty(t, use(id))
	}
	require.Equal(t, []ID{"a"}, use("d"))
	require.Equal(t, []ID{"b"}, use("a"))
	hit, out, err := r.Use("c", 10, time.Second)
	require.NoError(t, err)
	require.True(t, hit)
	require.Empty(t, out)
	require.Equal(t, []ID{"d"}, use("b"), "c was used again")
	require.NoError(t, r.Pin("a", true))
	require.Equal(t, []ID{"c"}, use("e"), "a is at work, and c, used twice, is worth as much as b, used later")
}

func TestResidentsKeepWhatIsDearToLoad(t *testing.T) {
	r := Residents{Memory: 20}
	use := func(id ID, load time.Duration) []ID {
		_, out, err := r.Use(id, 10, load)
		require.NoError(t, err)
		return out
	}
	use("dear", time.Minute)
	use("cheap", time.Second)
	require.Equal(t, []ID{"cheap"}, use("x", time.Second), "though it was used later")
	n := 0
	for ; n < 1000 && r.find("dear") >= 0; n++ {
		use(ID(fmt.Sprint("x", n)), time.Second)
	}
	require.Less(t, n, 70, "but not for ever: a minute is 60 seconds")
	require.Greater(t, n, 50)
}

func TestResidentsAlwaysFit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(6, 6))
	r := Residents{Memory: 100}
	for range 5000 {
		id := ID(fmt.Sprint(rnd.IntN(40)))
		size := lockstep.Bytes(1 + len(id)*7%23)
		before := len(r.Loaded)
		hit, out, err := r.Use(id, size, time.Duration(rnd.IntN(100))*time.Second)
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrConflict)
			require.Len(t, r.Loaded, before)
		}
		if hit {
			require.Empty(t, out)
		}
		sum := lockstep.Bytes(0)
		for _, x := range r.Loaded {
			sum += x.Memory
			if !x.Pinned && rnd.IntN(50) == 0 || x.Pinned {
				require.NoError(t, r.Pin(x.Model, !x.Pinned))
			}
		}
		require.LessOrEqual(t, sum, r.Memory)
		b, err := json.Marshal(r)
		require.NoError(t, err)
		var again Residents
		require.NoError(t, json.Unmarshal(b, &again))
		require.Equal(t, len(r.Loaded), len(again.Loaded))
		r = again
	}
	_, _, err := r.Use("big", 101, 0)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	_, _, err = r.Use("", -1, -1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorIs(t, r.Pin("nobody", true), lockstep.ErrUnknown)
	r = Residents{Memory: 10}
	_, _, err = r.Use("a", 5, 0)
	require.NoError(t, err)
	_, _, err = r.Use("a", 6, 0)
	require.ErrorIs(t, err, lockstep.ErrInvalid, "it has another size")
	_, _, err = r.Use("z", 0, maxSpan)
	require.NoError(t, err)
}

func TestGateGoesThroughACanaryAndUndoes(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var g Gate
	a := Tail{Alone: 60 * ms, Slowdown: 1200, Objective: 100 * ms} // 72
	b := Tail{Alone: 75 * ms, Slowdown: 1200, Objective: 100 * ms} // 90: just the margin
	objectives := [2]time.Duration{100 * ms, 100 * ms}
	consider := func(b Tail, want Phase) {
		t.Helper()
		p, err := g.Consider(now, a, b)
		require.NoError(t, err)
		require.Equal(t, want, p)
	}
	observe := func(x, y time.Duration, want Phase) {
		t.Helper()
		p, err := g.Observe(now, [2]time.Duration{x, y}, objectives)
		require.NoError(t, err)
		require.Equal(t, want, p)
		now = now.Add(time.Minute)
	}
	consider(Tail{Alone: 75*ms + 1, Slowdown: 1200, Objective: 100 * ms}, Apart)
	consider(b, Canary)
	for range 4 {
		observe(80*ms, 95*ms, Canary)
	}
	observe(0, 0, Canary) // nothing was asked
	observe(80*ms, 95*ms, Together)
	observe(80*ms, 101*ms, Together)
	observe(80*ms, 100*ms, Together) // at the objective is in time
	observe(80*ms, 101*ms, Together)
	observe(101*ms, 10*ms, Apart)
	consider(b, Apart)
	observe(1, 1, Apart)
	now = now.Add(10 * time.Minute)
	consider(b, Canary)
	observe(80*ms, 101*ms, Apart) // the first window of a trial parts
	now = now.Add(18 * time.Minute)
	consider(b, Apart)
	now = now.Add(time.Minute)
	consider(b, Canary)
	require.Equal(t, 2, g.Undos)
	saved, err := json.Marshal(g)
	require.NoError(t, err)
	var again Gate
	require.NoError(t, json.Unmarshal(saved, &again))
	require.Equal(t, g, again)
}

// TestGateWaitsLongerEachTime: two tenants that always turn out not to get on are tried ever less often.
func TestGateWaitsLongerEachTime(t *testing.T) {
	var g Gate
	a := Tail{Alone: 1, Slowdown: 1000, Objective: time.Hour}
	tries := 0
	for minute := range 7 * 24 * 60 {
		now := time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)
		p, err := g.Consider(now, a, a)
		require.NoError(t, err)
		if p == Canary {
			tries++
			_, err = g.Observe(now, [2]time.Duration{2, 1}, [2]time.Duration{1, 1})
			require.NoError(t, err)
		}
	}
	require.LessOrEqual(t, tries, 15, "10 min, 20, ... 24 h, 24 h")
	require.GreaterOrEqual(t, tries, 10)
}

func TestGateRefusesBadInput(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := Tail{Alone: 1, Slowdown: 1000, Objective: 1}
	for _, bad := range []Tail{{}, {Alone: 1, Slowdown: 999, Objective: 1}, {Alone: -1, Slowdown: math.MaxInt64, Objective: 1}} {
		var g Gate
		_, err := g.Consider(now, good, bad)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.Zero(t, g)
	}
	var g Gate
	_, err := g.Consider(time.Time{}, good, good)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = g.Observe(now, [2]time.Duration{-1, 0}, [2]time.Duration{1, 1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, g := range []Gate{{Margin: 1000}, {Now: "x"}, {Wait: -1}, {Strikes: -1}, {Windows: -1}, {Undos: -1}} {
		_, err := g.Consider(now, good, good)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}
