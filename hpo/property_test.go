package hpo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// every runs f on each kind of search, in equal parts of the random sequences that this test has.
func every(t *testing.T, part int, f func(t testing.TB, cfg Config, seed uint64)) {
	all := configs()
	n := max(1, runs(part)/len(all))
	for i, cfg := range all {
		text, err := json.Marshal(cfg)
		require.NoError(t, err)
		t.Run(fmt.Sprintf("%d", i), func(t *testing.T) {
			seed := uint64(0)
			defer func() {
				if t.Failed() {
					t.Logf("config %s, seed %d", text, seed)
				}
			}()
			for ; seed < uint64(n); seed++ {
				f(t, cfg, seed)
			}
		})
	}
}

// Invariant 5: nothing hangs, whatever the order of events. Those that wait for each other leave nobody behind.
func TestRandomEventsNeverHang(t *testing.T) {
	every(t, 2, func(t testing.TB, cfg Config, seed uint64) {
		w := newTwin(t, cfg)
		d := newDriver(t, seed, w)
		d.odd, d.forget = seed%2 == 0, seed%3 > 0
		for range 10 + seed%20 {
			d.step()
		}
		d.drain()
		if cfg.ASHA == nil {
			require.Zero(t, w.s.counts[paused])
		}
		require.Zero(t, w.s.counts[running]+w.s.counts[again]+w.s.counts[waiting])
	})
}

// Invariant 2: the order within a batch, the names of trials and the direction of the metric change no decision.
func TestRandomOrderNamesAndSignChangeNothing(t *testing.T) {
	every(t, 4, func(t testing.TB, cfg Config, seed uint64) {
		mirror := cfg
		mirror.Mode = Maximize
		if cfg.Mode == Maximize {
			mirror.Mode = Minimize
		}
		shuffled, renamed, turned := newTwin(t, cfg), newTwin(t, cfg), newTwin(t, mirror)
		shuffled.shuffle, renamed.shuffle, turned.shuffle = true, true, true
		renamed.name = func(id TrialID) TrialID {
			var n int
			_, err := fmt.Sscanf(string(id), "t%d", &n)
			require.NoError(t, err)
			return TrialID(fmt.Sprintf("r%02d", 50-n))
		}
		turned.value = func(v float64) float64 { return -v }
		d := newDriver(t, seed, newTwin(t, cfg), shuffled, renamed, turned)
		d.odd = seed%2 == 0
		for range 10 + seed%20 {
			d.step()
		}
	})
}

// Invariant 2: where only the order of metrics counts, only their order counts.
func TestRandomMonotoneTransformsChangeNothing(t *testing.T) {
	every(t, 20, func(t testing.TB, cfg Config, seed uint64) {
		if cfg.Median != nil || cfg.ASHA != nil && (cfg.ASHA.Variant == Ray || cfg.ASHA.Variant == SyneQuantile) {
			return // these take means
		}
		cubed := newTwin(t, cfg)
		cubed.value = func(v float64) float64 { return v*v*v + 7 }
		d := newDriver(t, seed, newTwin(t, cfg), cubed)
		for range 10 + seed%20 {
			d.step()
		}
	})
}

// Invariant 3: a report that was sent before, or is of an earlier attempt, changes nothing at all.
func TestRandomDuplicatesChangeNothing(t *testing.T) {
	every(t, 40, func(t testing.TB, cfg Config, seed uint64) {
		w := newTwin(t, cfg)
		d := newDriver(t, seed, w)
		for range 10 + seed%30 {
			d.step()
			if len(d.sent) == 0 {
				continue
			}
			was := image(t, w.s)
			d.again()
			require.Equal(t, string(was), string(image(t, w.s)))
		}
	})
}

// Invariant 6: a scheduler that was saved and read back decides as the one that was not.
func TestRandomRestoresChangeNothing(t *testing.T) {
	every(t, 20, func(t testing.TB, cfg Config, seed uint64) {
		w, back := newTwin(t, cfg), newTwin(t, cfg)
		d := newDriver(t, seed, w, back)
		d.odd, d.forget = seed%2 == 0, seed%3 > 0
		for range 5 + seed%25 {
			d.step()
		}
		saved := image(t, w.s)
		var err error
		back.s, err = Restore(cfg, bytes.NewReader(saved))
		require.NoError(t, err)
		require.Equal(t, string(saved), string(image(t, back.s)))
		require.Equal(t, w.s.Rungs(), back.s.Rungs())
		require.Equal(t, w.s.Running(), back.s.Running())
		for range 10 {
			d.step()
		}
		require.Equal(t, string(image(t, w.s)), string(image(t, back.s)))
	})
}

// Invariant 4: a metric that is not finite is worth no more to the others than the worst number, and nothing to its own.
func TestRandomNaNHelpsNobody(t *testing.T) {
	every(t, 20, func(t testing.TB, cfg Config, seed uint64) {
		if cfg.NaN != NaNWorst || cfg.Median != nil || cfg.ASHA != nil && cfg.ASHA.Variant != Promotion && cfg.ASHA.Variant != Stopping {
			return
		}
		bad := 1e9
		if cfg.Mode == Maximize {
			bad = -1e9
		}
		sick, poor := newTwin(t, cfg), newTwin(t, cfg)
		d := newDriver(t, seed, poor)
		for range 10 + seed%20 {
			d.twins = []*twin{poor, sick}
			d.step()
			if d.rng.IntN(3) > 0 || len(d.on) == 0 {
				continue
			}
			id := d.on[d.rng.IntN(len(d.on))]
			d.at[id]++
			r := Report{Trial: id, Attempt: d.try[id], Step: d.at[id], Value: bad}
			a, err := poor.s.Report(r)
			require.NoError(t, err)
			r.Value = []float64{nan, inf, -inf}[d.rng.IntN(3)]
			b, err := sick.s.Report(r)
			require.NoError(t, err)
			require.NotEqual(t, Copy, b[0].Action == Copy && b[0].Source == id)
			// It is ended in both, so that only what it did to others is left.
			x, err := poor.s.Failed(id, 0, Ended)
			require.NoError(t, err)
			y, err := sick.s.Failed(id, 0, Ended)
			require.NoError(t, err)
			others := func(all ...[]Decision) []Decision {
				return slices.DeleteFunc(slices.Concat(all...), func(d Decision) bool { return d.Trial == id })
			}
			if cfg.SHA != nil || cfg.Hyperband != nil {
				// At the end of a rung the poor one may go on where the sick one may not: it is then the only one.
				if len(x) != len(y) {
					return
				}
			}
			require.Equal(t, others(a, x), others(b, y))
			d.on = slices.DeleteFunc(d.on, func(on TrialID) bool { return on == id })
			d.sent = nil
			d.twins = []*twin{poor, sick}
			d.obey(others(a, x))
		}
	})
}

// Invariant 4: a trial whose latest metric is not finite is never promoted, kept or copied.
func TestRandomNaNIsNeverPromoted(t *testing.T) {
	every(t, 20, func(t testing.TB, cfg Config, seed uint64) {
		if cfg.NaN != NaNWorst || cfg.Median != nil || cfg.ASHA != nil && cfg.ASHA.Variant != Promotion {
			return
		}
		d := newDriver(t, seed, newTwin(t, cfg))
		d.odd = true
		latest := map[TrialID]float64{}
		atRung := map[TrialID]bool{}
		d.before = func(batch []Report) {
			for _, r := range batch {
				if slices.Contains(d.on, r.Trial) {
					latest[r.Trial] = r.Value
				}
			}
		}
		d.decide = func(x Decision) {
			if x.Reason == ReasonRung {
				atRung[x.Trial] = true
			}
			if x.Action == Copy {
				s := d.twins[0].s
				require.True(t, finite(s.trials[s.index[x.Source]].key))
			}
		}
		d.begin = func(x Start) {
			require.False(t, atRung[x.Trial] && !finite(latest[x.Trial]) && cfg.PBT == nil, x)
			atRung[x.Trial] = false
		}
		for range 10 + seed%20 {
			d.step()
		}
	})
}
