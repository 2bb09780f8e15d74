package sharing

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func pairs(t testing.TB, cfg PackConfig) *Pairs {
	t.Helper()
	p, err := NewPairs(cfg)
	require.NoError(t, err)
	return p
}

// The worked example O23 of the field.
func TestPackedPairsStayWhileTheyBeatRunningApart(t *testing.T) {
	p := pairs(t, PackConfig{Patience: 1})
	d, err := p.Observe("a", "b", 700, 550)
	require.NoError(t, err)
	require.Equal(t, PackDecision{Pack: true, Known: true, Rates: [2]int64{700, 550}}, d)
	d, err = p.Observe("a", "b", 550, 400)
	require.NoError(t, err)
	require.Equal(t, PackDecision{Known: true, Rates: [2]int64{550, 400}, Bad: 1}, d)
	require.False(t, p.Decide("b", "a").Pack)
}

func TestDecideWantsAMargin(t *testing.T) {
	tests := map[string]struct {
		cfg  PackConfig
		a, b int64
		pack bool
	}{
		"just the default gain": {PackConfig{}, 600, 500, true},
		"less":                  {PackConfig{}, 600, 499, false},
		"a gain of its own":     {PackConfig{Gain: 1}, 501, 500, true},
		"no gain":               {PackConfig{Gain: 1}, 500, 500, false},
		"one starves":           {PackConfig{Least: 300}, 1000, 299, false},
		"nobody starves":        {PackConfig{Least: 300}, 1000, 300, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := pairs(t, tt.cfg)
			require.NoError(t, p.Set("b", "a", tt.b, tt.a))
			require.Equal(t, PackDecision{Pack: tt.pack, Known: true, Rates: [2]int64{tt.a, tt.b}}, p.Decide("a", "b"))
			require.Equal(t, PackDecision{Pack: tt.pack, Known: true, Rates: [2]int64{tt.b, tt.a}}, p.Decide("b", "a"), "the other way round")
		})
	}
	require.Equal(t, PackDecision{}, pairs(t, PackConfig{}).Decide("a", "b"), "nothing is known")
	require.Equal(t, PackDecision{Pack: true}, pairs(t, PackConfig{TryUnknown: true}).Decide("a", "b"))
}

func TestOneBadMeasurementUnpacksNobody(t *testing.T) {
	p := pairs(t, PackConfig{})
	require.NoError(t, p.Set("a", "b", 800, 800))
	for i, tt := range []struct {
		a, b int64
		pack bool
		bad  int
	}{
		{400, 400, true, 1},
		{400, 400, true, 2},
		{500, 500, true, 0}, // no worse than apart
		{400, 400, true, 1},
		{400, 400, true, 2},
		{399, 400, false, 3},
	} {
		d, err := p.Observe("a", "b", tt.a, tt.b)
		require.NoError(t, err)
		require.Equal(t, tt.pack, d.Pack, i)
		require.Equal(t, tt.bad, d.Bad, i)
	}
	d := p.Decide("a", "b")
	require.Equal(t, PackDecision{Known: true, Rates: [2]int64{399, 400}}, d, "what was measured last is what is known")
	require.NoError(t, p.Set("a", "b", 700, 700))
	require.True(t, p.Decide("a", "b").Pack)
}

func TestRatesMoveAQuarterOfTheWay(t *testing.T) {
	p := pairs(t, PackConfig{})
	require.NoError(t, p.Set("b", "a", 800, 600))
	d, err := p.Observe("a", "b", 1000, 802)
	require.NoError(t, err)
	require.Equal(t, [2]int64{700, 801}, d.Rates, "rounded")
}

func TestBestIsKnownThenGreatestThenFirst(t *testing.T) {
	p := pairs(t, PackConfig{TryUnknown: true})
	require.NoError(t, p.Set("new", "x", 600, 600))
	require.NoError(t, p.Set("y", "new", 700, 600))
	require.NoError(t, p.Set("z", "new", 650, 650))
	require.NoError(t, p.Set("bad", "new", 400, 400))
	i, d, ok := p.Best("new", []Kind{"unknown", "bad", "x", "y", "z"})
	require.True(t, ok)
	require.Equal(t, 3, i)
	require.Equal(t, [2]int64{600, 700}, d.Rates)
	i, _, ok = p.Best("new", []Kind{"bad", "unknown", "other"})
	require.True(t, ok)
	require.Equal(t, 1, i)
	_, _, ok = p.Best("new", []Kind{"bad"})
	require.False(t, ok)
	_, _, ok = p.Best("new", nil)
	require.False(t, ok)
}

// What Observe unpacks, Decide does not pack again by itself.
func TestPairsDoNotFlap(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 11))
		cfg := PackConfig{Gain: 1 + rng.Int64N(300), Least: rng.Int64N(500), Patience: 1 + rng.IntN(4)}
		cfg.Keep = rng.Int64N(cfg.Gain + 1)
		p := pairs(t, cfg)
		bad := 0
		for range 60 {
			a, b := rng.Int64N(1200), rng.Int64N(1200)
			d, err := p.Observe("a", "b", a, b)
			require.NoError(t, err)
			if a+b < 1000+cfg.Keep || min(a, b) < cfg.Least {
				bad++
			} else {
				bad = 0
			}
			require.Equal(t, bad, d.Bad)
			require.Equal(t, bad < cfg.Patience, d.Pack)
			if !d.Pack {
				require.False(t, p.Decide("a", "b").Pack)
				bad = 0
			}
			if rng.IntN(10) == 0 {
				p = reloadPairs(t, p)
			}
		}
	}
}

func reloadPairs(t testing.TB, p *Pairs) *Pairs {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, p.Snapshot(&b))
	saved := slices.Clone(b.Bytes())
	again, err := RestorePairs(&b)
	require.NoError(t, err)
	require.Equal(t, p, again)
	var c bytes.Buffer
	require.NoError(t, again.Snapshot(&c))
	require.Equal(t, saved, c.Bytes())
	return again
}

func TestPairsRefuseBadInput(t *testing.T) {
	_, err := NewPairs(PackConfig{Gain: -1, Keep: -1, Least: 10001, Patience: -1})
	requireFields(t, err, "Gain", "Keep", "Least", "Patience")
	_, err = NewPairs(PackConfig{Gain: 5, Keep: 6})
	requireFields(t, err, "Keep")
	_, err = NewPairs(PackConfig{Keep: 101})
	requireFields(t, err, "Keep")
	p := pairs(t, PackConfig{})
	requireFields(t, p.Set("", "a b", -1, 10001), "a", "b", "rateA", "rateB")
	_, err = p.Observe("", "a b", -1, 10001)
	requireFields(t, err, "a", "b", "rateA", "rateB")
	require.Equal(t, pairs(t, PackConfig{}), p)
}

func TestDecideAllocatesNothing(t *testing.T) {
	p := pairs(t, PackConfig{})
	require.NoError(t, p.Set("a", "b", 700, 700))
	with := []Kind{"b", "c"}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		p.Decide("b", "a")
		p.Best("a", with)
	}))
}

// The published co-location measurements of Gavel: what the table packs is what the rates say, and it is worth it.
func TestPairsOfTheGavelTable(t *testing.T) {
	name := filepath.Join("..", "..", "shared", "traces", "gavel-osdi20", "simulation_throughputs.json")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Skip("no measurements at " + name)
	}
	var table map[string]map[string]map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &table))
	v100 := table["v100"]
	var kinds []string // of jobs on one device
	alone := map[string]float64{}
	for _, k := range slices.Sorted(maps.Keys(v100)) {
		var rate float64
		if json.Unmarshal(v100[k]["null"], &rate) == nil && rate > 0 {
			kinds = append(kinds, k)
			alone[k] = rate
		}
	}
	p := pairs(t, PackConfig{})
	known, packed, gain := 0, 0, int64(0)
	for i, a := range kinds {
		for j, b := range kinds[:i+1] {
			var together [2]float64
			if json.Unmarshal(v100[a][b], &together) != nil {
				continue
			}
			known++
			ra, rb := min(10000, int64(1000*together[0]/alone[a])), min(10000, int64(1000*together[1]/alone[b]))
			ka, kb := Kind("k"+strconv.Itoa(i)), Kind("k"+strconv.Itoa(j))
			require.NoError(t, p.Set(ka, kb, ra, rb))
			d := p.Decide(ka, kb)
			require.Equal(t, ra+rb >= 1100, d.Pack)
			if d.Pack {
				packed++
				gain += ra + rb - 1000
			}
		}
	}
	require.Greater(t, known, 300)
	t.Logf("%d kinds, %d pairs measured, %d packed, mean gain of those %d thousandths", len(kinds), known, packed, gain/int64(max(packed, 1)))
	require.Positive(t, packed)
	require.Less(t, packed, known)
	reloadPairs(t, p)
	require.ErrorIs(t, p.Set("x", "", 1, 1), lockstep.ErrInvalid)
}
