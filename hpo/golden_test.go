package hpo

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// begin adds trials and starts them all, in order.
func begin(t testing.TB, cfg Config, ids ...TrialID) *Scheduler {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	for _, id := range ids {
		require.NoError(t, s.Add(id))
	}
	starts, _ := s.Next(len(ids))
	require.Len(t, starts, len(ids))
	return s
}

// names returns t0, t1, ...
func names(n int) []TrialID {
	out := make([]TrialID, n)
	for i := range out {
		out[i] = TrialID(fmt.Sprintf("t%d", i))
	}
	return out
}

// report reports one metric and returns the decision about the trial, with those about others behind.
func report(t testing.TB, s *Scheduler, id TrialID, step uint64, value float64) []Decision {
	t.Helper()
	got, err := s.Report(Report{Trial: id, Step: step, Value: value})
	require.NoError(t, err)
	require.NotEmpty(t, got)
	require.Equal(t, id, got[0].Trial)
	return got
}

// letters runs one rung: the decision about each value, in the order of arrival.
func letters(t testing.TB, cfg Config, values []float64) string {
	t.Helper()
	ids := names(len(values))
	s := begin(t, cfg, ids...)
	var b strings.Builder
	for i, v := range values {
		switch d := report(t, s, ids[i], 1, v)[0]; d.Action {
		case Continue:
			b.WriteByte('C')
		case Stop:
			b.WriteByte('S')
		default:
			require.Fail(t, "neither continues nor stops", d)
		}
	}
	return b.String()
}

var (
	nan = math.NaN()
	inf = math.Inf(1)

	traceA  = []float64{.50, .60, .40, .55, .70, .65, .45, .80, .30}
	equal   = []float64{.5, .5, .5, .5, .5, .5}
	rising  = []float64{.1, .2, .3, .4, .5, .6}
	falling = []float64{.6, .5, .4, .3, .2, .1}
)

// The decisions of five stopping rules at one rung. The column of Ray was made by running the bracket logic of Hydro's
// fork of Ray, that of Syne by running Syne Tune's; the others follow from their sources.
func TestVariantsDecideAsTheirModels(t *testing.T) {
	variants := []Variant{Ray, Syne, SyneQuantile, Optuna, Determined}
	for _, tt := range []struct {
		values []float64
		etas   []uint32
		want   [5]string
	}{
		{traceA, []uint32{2}, [5]string{"CCSCCCSCS", "CCSCCCSCS", "CCSCCCSCS", "CCSCCCSCS", "CCSCCCSCS"}},
		{traceA, []uint32{3}, [5]string{"CCSCCCSCS", "CCSCCCSCS", "CCSCCCSCS", "CCSSCCSCS", "CCSSCCSCS"}},
		{traceA, []uint32{4}, [5]string{"CCSCCCSCS", "CCSCCCSCS", "CCSSCCSCS", "CCSSCSSCS", "CCSSCSSCS"}},
		{equal, []uint32{2, 3, 4}, [5]string{"CCCCCC", "CCCCCC", "CCCCCC", "CCCCCC", "CCCCCC"}},
		{rising, []uint32{2, 3, 4}, [5]string{"CCCCCC", "CCCCCC", "CCCCCC", "CCCCCC", "CCCCCC"}},
		{falling, []uint32{2}, [5]string{"CSSSSS", "CCSSSS", "CSSSSS", "CSSSSS", "CSSSSS"}},
		{falling, []uint32{3, 4}, [5]string{"CSSSSS", "CSSSSS", "CSSSSS", "CSSSSS", "CSSSSS"}},
		{[]float64{nan, .5, .6, .4, .7}, []uint32{2}, [5]string{"CCCSC", "CCCSC", "CSSSS", "SCCSC", "CSSSC"}},
		{[]float64{nan, .5, .6, .4, .7}, []uint32{3, 4}, [5]string{"CCCSC", "CCCSC", "CSSSS", "SCCSC", "CSSSS"}},
		{[]float64{.5, .6, nan, .4, .7, .55}, []uint32{2}, [5]string{"CCCSCC", "CCSCCS", "CCSSSS", "CCSSCS", "CCSSSS"}},
		{[]float64{.5, .6, nan, .4, .7, .55}, []uint32{3, 4}, [5]string{"CCCSCS", "CCSSCS", "CCSSSS", "CCSSCS", "CCSSSS"}},
		{[]float64{nan, nan, .5}, []uint32{2, 3, 4}, [5]string{"CCC", "CCC", "CSS", "SSC", "CSS"}},
		{[]float64{.5, inf, .6, .7, -inf}, []uint32{2}, [5]string{"CCCCS", "CCCCS", "CSSCS", "CCSCS", "CCSCS"}},
	} {
		for _, eta := range tt.etas {
			for i, v := range variants {
				up := Config{Mode: Maximize, ASHA: &ASHA{Variant: v, Max: 1000, Eta: eta}}
				require.Equal(t, tt.want[i], letters(t, up, tt.values), "%s %d %v", v, eta, tt.values)
				down := make([]float64, len(tt.values))
				for j := range down {
					down[j] = -tt.values[j]
				}
				require.Equal(t, tt.want[i], letters(t, Config{ASHA: up.ASHA}, down), "%s %d %v turned around", v, eta, down)
			}
		}
	}
}

// Our own stopping rule counts NaN and infinities as the worst, and lets none of them go on.
func TestStoppingCountsWhatIsNotFinite(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		eta    uint32
		want   string
	}{
		{traceA, 2, "CCSCCCSCS"},
		{traceA, 3, "CCSSCCSCS"},
		{traceA, 4, "CCSSCSSCS"},
		{equal, 3, "CCCCCC"},
		{rising, 2, "CCCCCC"},
		{falling, 2, "CSSSSS"},
		{[]float64{nan, .5, .6, .4, .7}, 2, "SCCSC"},
		{[]float64{nan, nan, .5}, 2, "SSC"},
		{[]float64{.5, inf, .6, .7, -inf}, 2, "CSCCS"},
		{[]float64{.9, nan, nan, .5, .95}, 2, "CSSCC"}, // two of four go on, though two are NaN
	} {
		require.Equal(t, tt.want, letters(t, Config{Mode: Maximize, ASHA: &ASHA{Variant: Stopping, Max: 1000, Eta: tt.eta}}, tt.values), tt.values)
	}
	stop := Config{Mode: Maximize, NaN: NaNStop, ASHA: &ASHA{Variant: Stopping, Max: 1000, Eta: 2}}
	require.Equal(t, "CSSSC", letters(t, stop, []float64{.9, nan, nan, .5, .95}))
	ignore := stop
	ignore.NaN = NaNIgnore
	require.Equal(t, "CCCSC", letters(t, ignore, []float64{.9, nan, nan, .5, .95}))
}

// The paper's rule (Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020, algorithm 2), with
// ties to the earlier arrival: "after report i, trial j".
func TestPromotionsOfThePaper(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		eta    uint32
		want   string
	}{
		{traceA, 2, "1→1 3→3 4→4 5→5 7→7"},
		{traceA, 3, "2→1 4→4 5→5 7→7"},
		{traceA, 4, "3→1 4→4 7→7"},
		{equal, 2, "1→0 3→1 5→2"},
		{equal, 3, "2→0 5→1"},
		{equal, 4, "3→0"},
		{falling, 2, "1→0 3→1 5→2"},
		{rising, 2, "1→1 2→2 3→3 4→4 5→5"},
		{rising, 4, "3→3 4→4 5→5"},
	} {
		ids := names(len(tt.values))
		s := begin(t, Config{Mode: Maximize, ASHA: &ASHA{Max: 1000, Eta: tt.eta}}, ids...)
		var got []string
		for i, v := range tt.values {
			require.Equal(t, Pause, report(t, s, ids[i], 1, v)[0].Action)
			starts, _ := s.Next(9)
			for _, x := range starts {
				got = append(got, fmt.Sprintf("%d→%s", i, x.Trial[1:]))
				require.Equal(t, uint64(tt.eta), x.Until)
			}
		}
		require.Equal(t, tt.want, strings.Join(got, " "), "%v %d", tt.values, tt.eta)
		require.Equal(t, uint64(len(got)), s.Rungs()[0].Promoted)
		require.Equal(t, uint64(len(ids)), s.Rungs()[0].Recorded)
	}
}

func TestLevelsAreExact(t *testing.T) {
	for _, tt := range []struct {
		least, most uint64
		eta         uint32
		want        []uint64
	}{
		{1, 81, 3, []uint64{1, 3, 9, 27, 81}},
		{1, 100, 4, []uint64{1, 4, 16, 64}},
		{1, 243, 3, []uint64{1, 3, 9, 27, 81, 243}},
		{1, 1000, 10, []uint64{1, 10, 100, 1000}},
		{5, 4000, 3, []uint64{5, 15, 45, 135, 405, 1215, 3645}},
		{7, 7, 2, []uint64{7}},
		{math.MaxUint64, math.MaxUint64, math.MaxUint32, []uint64{math.MaxUint64}},
	} {
		got, err := Levels(tt.least, tt.most, tt.eta)
		require.NoError(t, err)
		require.Equal(t, tt.want, got)
	}
	for eta := uint32(2); eta < 200; eta++ { // the number of levels to a power is never one short, as of floor(log)
		power := uint64(1)
		for k := 1; power <= 1<<62/uint64(eta); k++ {
			got, err := Levels(1, power, eta)
			require.NoError(t, err)
			require.Len(t, got, k)
			power *= uint64(eta)
			got, err = Levels(1, power-1, eta)
			require.NoError(t, err)
			require.Len(t, got, k)
		}
	}
	got, err := Levels(1, 1<<63, 2)
	require.NoError(t, err)
	require.Len(t, got, 64)
	require.Equal(t, uint64(1)<<63, got[63])
}

func TestBracketsOfHyperband(t *testing.T) {
	for _, tt := range []struct {
		most uint64
		eta  uint32
		want string
	}{
		{81, 3, "5,81 8,27 15,9 34,3 81,1"},
		{100, 3, "5,100 8,33 15,11 34,3 81,1"},
		{8, 2, "4,8 4,4 6,2 8,1"},
		{10, 3, "3,10 5,3 9,1"},
	} {
		got, err := Brackets(1, tt.most, tt.eta)
		require.NoError(t, err)
		var text []string
		for _, b := range got {
			text = append(text, fmt.Sprintf("%d,%d", b.Trials, b.Levels[0]))
		}
		require.Equal(t, tt.want, strings.Join(text, " "))
	}
	levels := func(most uint64, eta uint32, s int) []uint64 {
		b, err := Brackets(1, most, eta)
		require.NoError(t, err)
		return b[s].Levels
	}
	require.Equal(t, []uint64{4, 8}, levels(8, 2, 1))
	require.Equal(t, []uint64{1, 2, 4, 8}, levels(8, 2, 3))
	require.Equal(t, []uint64{1, 3, 9, 27, 81}, levels(81, 3, 4))
	require.Equal(t, []uint64{33, 99}, levels(100, 3, 1))
	b, err := Brackets(1, 1_000_000, 1000)
	require.NoError(t, err)
	require.Equal(t, 1_000_000, b[2].Trials)
	_, err = Brackets(1, 1<<62, 2)
	require.ErrorContains(t, err, "2^30")
}

// The brackets of Optuna's Hyperband: trial n of study "s" goes where CRC-32 of "s_n" falls among the budgets.
func TestOptunaBracketsByHash(t *testing.T) {
	ids := names(12)
	s := begin(t, Config{ASHA: &ASHA{Variant: Optuna, Max: 81, Eta: 3, Brackets: 5, Study: "s"}}, ids...)
	var got []int
	for _, id := range ids {
		got = append(got, int(s.trials[s.index[id]].bracket))
	}
	require.Equal(t, []int{0, 0, 0, 1, 0, 1, 0, 0, 0, 2, 0, 0}, got)
	var budgets []uint64
	for i := range 5 {
		budgets = append(budgets, budget(5, 4-i, 3))
	}
	require.Equal(t, []uint64{81, 34, 15, 8, 5}, budgets)
}

// Without a hash each bracket gets its share of trials as they come.
func TestBracketsHaveTheirShares(t *testing.T) {
	s := begin(t, Config{ASHA: &ASHA{Variant: Stopping, Max: 81, Eta: 3, Brackets: 5}}, names(1430)...)
	var got []int
	for i := range s.rule.(*asha).lanes {
		got = append(got, int(s.rule.(*asha).lanes[i].joined))
	}
	require.Equal(t, []int{810, 340, 150, 80, 50}, got)
}

func TestMedianRule(t *testing.T) {
	cfg := Config{Mode: Maximize, Median: &Median{Min: 3}}
	for _, tt := range []struct {
		name string
		own  float64
		all  []float64
		want Action
	}{
		{"best of all", 100, []float64{0, 0, 0}, Continue},
		{"one other is NaN", 100, []float64{0, nan, 0, 0}, Continue},
		{"all equal", 0, []float64{0, 0, 0}, Continue},
		{"worse than the median", 1, []float64{0, 2, 3}, Stop},
		{"as good as the median", 2, []float64{0, 2, 3}, Continue},
		{"too few", -1, []float64{0, 0}, Continue},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ids := names(len(tt.all))
			s := begin(t, cfg, append(ids, "own")...)
			for i, v := range tt.all {
				report(t, s, ids[i], 1, v)
			}
			require.Equal(t, tt.want, report(t, s, "own", 1, tt.own)[0].Action)
		})
	}
}

func TestQuantilesOfPBT(t *testing.T) {
	for _, tt := range []struct {
		n        int
		fraction float64
		want     int
	}{
		{0, .25, 0},
		{1, .25, 0},
		{1, .5, 0},
		{2, .25, 1},
		{3, .25, 1},
		{4, .25, 1},
		{4, .5, 2},
		{5, .25, 2},
		{5, .5, 2},
		{8, .25, 2},
		{10, .25, 3},
		{30, .1, 3}, // 0.1*30 is above 3 in floats
		{100, 0, 0},
		{1_000_000, 1e-6, 1},
		{math.MaxInt32, .5, math.MaxInt32 / 2},
	} {
		require.Equal(t, tt.want, count(tt.n, quantise(tt.fraction)), tt)
	}
}
