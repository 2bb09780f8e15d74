package autoscale

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
	"github.com/lockstep-gpu/lockstep/policy"
	"github.com/lockstep-gpu/lockstep/serving"
)

func TestBadConfigs(t *testing.T) {
	for name, cfg := range map[string]Config{ // the order does not matter: each stands alone
		"no rule":             {},
		"kpa target":          {Rule: KPA{Target: -1}},
		"kpa burst":           {Rule: KPA{Burst: 2 * time.Minute}},
		"kpa threshold":       {Rule: KPA{Threshold: 999}},
		"kpa up":              {Rule: KPA{Up: 1000}},
		"kpa down":            {Rule: KPA{Down: math.MaxInt64}},
		"queue factor":        {Rule: QueueLength{DownFactor: 1001}},
		"queue target":        {Rule: QueueLength{Target: math.MaxInt64}},
		"head-room":           {Rule: HeadRoom{}},
		"head-room all":       {Rule: HeadRoom{PerReplica: 1, Growth: 1_000_000, Load: time.Second}},
		"no capacity":         {Rule: Predictive{}},
		"loan, no capacity":   {Rule: KPA{}, Loan: LoanConfig{PerReplica: 1000}},
		"quantile":            {Rule: Predictive{Quantile: 1000}, Demand: Demand{Capacity: tenMS}},
		"use":                 {Rule: Predictive{Use: 1001}, Demand: Demand{Capacity: tenMS}},
		"water, no capacity":  {Rule: HighWater{}},
		"water load":          {Rule: HighWater{Load: -1}, Demand: Demand{Capacity: tenMS}},
		"water long":          {Rule: HighWater{Load: 25 * time.Hour}, Demand: Demand{Capacity: tenMS}},
		"water hold":          {Rule: HighWater{Hold: time.Second}, Demand: Demand{Capacity: tenMS}},
		"water use":           {Rule: HighWater{Use: 99}, Demand: Demand{Capacity: tenMS}},
		"water wait":          {Rule: HighWater{Wait: -1}, Demand: Demand{Capacity: tenMS}},
		"slot":                {Rule: Predictive{}, Demand: Demand{Capacity: tenMS, Slot: -1}},
		"long":                {Rule: Predictive{Load: 24 * time.Hour}, Demand: Demand{Capacity: tenMS}},
		"season":              {Rule: Predictive{}, Demand: Demand{Capacity: tenMS, Season: 1}},
		"errors":              {Rule: Predictive{}, Demand: Demand{Capacity: tenMS, Errors: 1}},
		"objective":           {Rule: Predictive{}, Demand: Demand{Capacity: Batched{Latency: serving.Linear{Each: time.Second}, Objective: time.Second}}},
		"no latency":          {Rule: Predictive{}, Demand: Demand{Capacity: Batched{Objective: time.Second}}},
		"tokens":              {Rule: Predictive{}, Demand: Demand{Capacity: Tokens{Step: time.Second, PerToken: time.Millisecond}}},
		"free tokens":         {Rule: Predictive{}, Demand: Demand{Capacity: Tokens{PerToken: time.Millisecond}}},
		"margin":              {Rule: KPA{}, Margin: -2},
		"grace":               {Rule: KPA{}, Grace: -1},
		"expiry":              {Rule: KPA{}, Expiry: 25 * time.Hour},
		"period":              {Rule: KPA{}, Period: -1},
		"bounds":              {Rule: KPA{}, Steady: policy.Steady{Bounded: policy.Bounded{Min: 3, Max: 2}}},
		"too many":            {Rule: KPA{}, Steady: policy.Steady{Bounded: policy.Bounded{Max: MaxReplicas + 1}}},
		"hysteresis":          {Rule: KPA{}, Steady: policy.Steady{Hysteresis: policy.Hysteresis{DownFraction: math.NaN()}}},
		"loan":                {Rule: KPA{}, Demand: Demand{Capacity: tenMS}, Loan: LoanConfig{PerReplica: -1}},
		"loan lasts":          {Rule: KPA{}, Demand: Demand{Capacity: tenMS}, Loan: LoanConfig{PerReplica: 1, Load: time.Minute, Lasts: time.Second}},
		"loan lasts too long": {Rule: KPA{}, Demand: Demand{Capacity: tenMS, Slot: time.Second}, Loan: LoanConfig{PerReplica: 1, Lasts: 24 * time.Hour}},
	} {
		require.ErrorIs(t, cfg.Validate(), lockstep.ErrInvalid, name)
		s, err := New(cfg)
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
		require.Nil(t, s)
	}
	require.Error(t, Config{Rule: KPA{}, Steady: policy.Steady{Delayed: policy.Delayed{State: policy.DelayedState{Known: true}}}}.Validate())
	err := Config{Rule: KPA{Target: -1}, Grace: -1}.Validate()
	require.ErrorContains(t, err, "Target")
	require.ErrorContains(t, err, "Grace", "all at once")
	_, err = NewForecaster(ForecastConfig{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestBadCallsChangeNothing(t *testing.T) {
	cfg := everyRule()["predictive"]
	cfg.Loan = LoanConfig{PerReplica: 1000, Grace: time.Minute}
	s := newScaler(t, cfg)
	observe(t, s, at(time.Minute), Sample{Requests: 10})
	decide(t, s, at(time.Minute), fleet(2, 0))
	before := snapshottest.Save(t, s.Snapshot)
	later := at(2 * time.Minute)
	calls := []struct {
		kind error
		call func() error
	}{
		{lockstep.ErrPast, func() error { return s.Observe(t0, Sample{}) }},
		{lockstep.ErrInvalid, func() error { return s.Observe(time.Time{}, Sample{}) }},
		{lockstep.ErrInvalid, func() error { return s.Observe(later, Sample{Requests: -1}) }},
		{lockstep.ErrInvalid, func() error { return s.Observe(later, Sample{Ongoing: math.MaxInt64, Queued: math.MaxInt64}) }},
		{lockstep.ErrInvalid, func() error { return s.Observe(later, Sample{Source: string(make([]byte, 1000))}) }},
		{lockstep.ErrPast, func() error { _, err := s.Decide(t0, Fleet{}); return err }},
		{lockstep.ErrInvalid, func() error { _, err := s.Decide(later, Fleet{Ready: []Replica{{}}}); return err }},
		{lockstep.ErrDuplicate, func() error {
			_, err := s.Decide(later, Fleet{Ready: []Replica{{ID: "a"}}, Draining: []Replica{{ID: "a"}}})
			return err
		}},
		{lockstep.ErrInvalid, func() error { _, err := s.Decide(later, Fleet{Ready: []Replica{{ID: "a", Ongoing: -1}}}); return err }},
		{lockstep.ErrInvalid, func() error { _, err := s.Loanable(later, -1, 0); return err }},
		{lockstep.ErrInvalid, func() error { _, err := s.Loanable(later, 1000, 2000); return err }},
		{lockstep.ErrPast, func() error { _, err := s.Loanable(t0, 1000, 0); return err }},
		{lockstep.ErrInvalid, func() error { return s.forecast.Observe(-1) }},
		{lockstep.ErrInvalid, func() error { return s.forecast.Observe(math.MaxInt64) }},
	}
	for i, c := range calls {
		require.ErrorIs(t, c.call(), c.kind, "call %d", i)
		require.Equal(t, before, snapshottest.Save(t, s.Snapshot), "call %d", i)
	}
	_, err := newScaler(t, Config{Rule: KPA{}}).Loanable(t0, 1000, 0)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	_, ok := newScaler(t, Config{Rule: KPA{}}).NextWake(t0)
	require.False(t, ok)
}

// TestSavedScalersGoOnAsTheyWould saves and restores at random, and compares every decision and every byte with one that
// was never saved.
func TestSavedScalersGoOnAsTheyWould(t *testing.T) {
	steps := 400
	if testing.Short() {
		steps = 120
	}
	for _, name := range ruleNames {
		cfg := everyRule()[name]
		cfg.Demand = Demand{Capacity: Tokens{Step: 10 * time.Millisecond, Sequence: time.Millisecond, PromptToken: time.Microsecond, PerToken: 50 * time.Millisecond}, Slot: 5 * time.Second, Season: 40, Errors: 64}
		cfg.Loan = LoanConfig{PerReplica: 2000, Grace: 20 * time.Second, Cleanup: 5 * time.Second, Load: 30 * time.Second}
		a, b := newScaler(t, cfg), newScaler(t, cfg)
		r := rand.New(rand.NewPCG(11, 4))
		now := time.Duration(0)
		for range steps {
			now += time.Duration(r.IntN(9000)) * time.Millisecond
			sample := Sample{Source: fmt.Sprint(r.IntN(3)), Requests: int64(r.IntN(50)), Prompt: int64(r.IntN(5000)), Finished: int64(r.IntN(50)), Output: int64(r.IntN(5000)), Ongoing: int64(r.IntN(20)), Queued: int64(r.IntN(5))}
			if r.IntN(40) == 0 {
				now += 5 * time.Minute
			}
			observe(t, a, at(now), sample)
			observe(t, b, at(now), sample)
			f := fleet(r.IntN(20), r.IntN(4))
			require.Equal(t, decide(t, a, at(now), f), decide(t, b, at(now), f))
			if r.IntN(8) == 0 {
				image := snapshottest.Save(t, b.Snapshot)
				require.Equal(t, snapshottest.Save(t, a.Snapshot), image)
				again, err := Restore(cfg, bytes.NewReader(image))
				require.NoError(t, err, "%s", image)
				require.Equal(t, image, snapshottest.Save(t, again.Snapshot))
				b = again
			}
			la, err := a.Loanable(at(now), 64_000, 4000)
			require.NoError(t, err)
			lb, err := b.Loanable(at(now), 64_000, 4000)
			require.NoError(t, err)
			require.Equal(t, la, lb)
			wa, _ := a.NextWake(at(now))
			wb, _ := b.NextWake(at(now))
			require.Equal(t, wa, wb)
		}
	}
}

func TestRestoreRefusesWhatWasNotSaved(t *testing.T) {
	cfg := everyRule()["predictive"]
	cfg.Demand.Errors, cfg.Demand.Season, cfg.Demand.Slot = 16, 4, 15*time.Second
	cfg.Term = 7
	s := newScaler(t, cfg)
	for i := range 40 {
		observe(t, s, at(time.Duration(i)*time.Second*5), Sample{Source: "a", Requests: 10, Ongoing: 3})
		decide(t, s, at(time.Duration(i)*time.Second*5), fleet(3, 0))
	}
	image := snapshottest.Save(t, s.Snapshot)
	restore := func(r io.Reader) error { _, err := Restore(cfg, r); return err }
	if !testing.Short() {
		snapshottest.RefusesDamage(t, image, restore)
	}
	snapshottest.PassesFaultsOn(t, s.Snapshot, restore)
	snapshottest.RefusesForgeries(t, format, version, image, restore, [][2]string{
		{`"want":`, `"want":-`},
		{`"slot":`, `"slot":9`},
		{`"busy":`, `"busy":-`},
		{`"told":`, `"told":9`},
		{`"ongoing":3`, `"ongoing":-3`},
		{`"ongoing":3`, `"ongoing":4`},
		{`"alpha":300`, `"alpha":301`},
		{`"kind":"autoscale.Predictive"`, `"kind":"autoscale.KPA"`},
		{`"period":`, `"unknown":1,"period":`},
		{`"quantile":800`, `"quantile":801`},
		{`"choice":0`, `"choice":-1`},
		{`"tracks":[`, `"tracks":[{},`},
		{`"width":`, `"width":-`},
		{`"DownFraction":0.1`, `"DownFraction":0.2`},
		{`"sum":`, `"sum":1`},
		{`"loss":[`, `"loss":[0,`},
		{`"points":[`, `"points":[1,`},
	})
	other := cfg
	other.Grace = time.Hour
	_, err := Restore(other, bytes.NewReader(image))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	other = cfg
	other.Term = 9
	again, err := Restore(other, bytes.NewReader(image))
	require.NoError(t, err)
	d := decide(t, again, at(time.Hour), fleet(1, 0))
	require.Equal(t, []uint64{9, 1}, []uint64{d.Term, d.Seq}, "a later term begins anew")
}

// TestOrderOfFleetsAndSourcesDoesNotMatter permutes both.
func TestOrderOfFleetsAndSourcesDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for _, name := range ruleNames {
		orderDoesNotMatter(t, r, name)
	}
}

func orderDoesNotMatter(t *testing.T, r *rand.Rand, name string) {
	var want []Decision
	for perm := range 10 {
		s := newScaler(t, everyRule()[name])
		var got []Decision
		for i := range 30 {
			now := at(time.Duration(i) * 5 * time.Second)
			samples := []Sample{{Source: "a", Requests: 50, Ongoing: 9}, {Source: "b", Requests: 70, Ongoing: 2}, {Source: "c", Requests: 20 * int64(i), Queued: 4}}
			f := Fleet{Ready: []Replica{{ID: "a"}, {ID: "b"}, {ID: "c", Ongoing: 1}, {ID: "d"}}, Starting: []Replica{{ID: "e"}, {ID: "f"}}}
			for range 12 * (1 - min(i, 1)) {
				f.Ready = append(f.Ready, Replica{ID: ReplicaID(fmt.Sprintf("x%d", len(f.Ready)))})
			}
			if perm > 0 {
				r.Shuffle(3, func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
				r.Shuffle(len(f.Ready), func(i, j int) { f.Ready[i], f.Ready[j] = f.Ready[j], f.Ready[i] })
				r.Shuffle(2, func(i, j int) { f.Starting[i], f.Starting[j] = f.Starting[j], f.Starting[i] })
			}
			for _, sample := range samples {
				observe(t, s, now, sample)
			}
			got = append(got, decide(t, s, now, f))
		}
		if perm == 0 {
			want = got
		}
		require.Equal(t, want, got, name)
	}
}

// TestMeansOverWindows holds means against sums over every millisecond.
func TestMeansOverWindows(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	const window = 1280 * time.Millisecond
	for range 50 {
		var m mean
		m.begin(1_000_000, window)
		values := []int64{}
		for range 4000 / 5 {
			v := int64(r.IntN(100))
			m.Value = v
			for range 5 { // as long as a piece, so that the mean is exact
				values = append(values, v)
			}
			m.advance(1_000_000+int64(len(values))*1000, 0)
			for _, w := range []time.Duration{5 * time.Millisecond, 100 * time.Millisecond, window} {
				n := min(len(values), int(w/time.Millisecond))
				sum := int64(0)
				for _, x := range values[len(values)-n:] {
					sum += x
				}
				require.Equal(t, sum*1000/int64(n), m.level(w))
			}
			require.LessOrEqual(t, len(m.Marks), pieces+4)
		}
	}
}

func TestLoansAreLentWhenIdleAndRecalledInTime(t *testing.T) {
	cfg := everyRule()["predictive"]
	cfg.Loan = LoanConfig{PerReplica: lockstep.WholeGPU, Grace: 60 * time.Second, Cleanup: 15 * time.Second, Load: 30 * time.Second}
	cfg.Demand.Season = 720 // an hour
	w := newWorld(t, cfg, 30*time.Second, 4)
	r := rand.New(rand.NewPCG(8, 8))
	owned, lent := 40*lockstep.WholeGPU, lockstep.MilliGPU(0)
	type recall struct {
		amount lockstep.MilliGPU
		back   time.Duration // when it is in service again, if replicas start as soon as it is back
	}
	var open []recall
	var lentSeconds, short, seconds int64
	hours := 8
	if testing.Short() {
		hours = 4
	}
	for i := range hours * 3600 {
		rate := 150 + 120*math.Sin(float64(i)*2*math.Pi/3600)
		w.step(int(poisson(r, rate)))
		l, err := w.s.Loanable(at(w.now), owned, lent)
		require.NoError(t, err)
		require.True(t, l.Lend == 0 || l.Recall == 0)
		require.GreaterOrEqual(t, l.Later, l.Need)
		require.LessOrEqual(t, lent+l.Lend, owned)
		require.LessOrEqual(t, l.Recall, lent)
		if l.Recall > 0 {
			require.Equal(t, at(w.now).Add(75*time.Second), l.Deadline)
			open = append(open, recall{l.Recall, w.now + 75*time.Second})
			lent -= l.Recall
		}
		lent += l.Lend
		out := lent
		keep := open[:0]
		for _, o := range open {
			if o.back > w.now {
				keep = append(keep, o)
				out += o.amount
			}
		}
		open = keep
		if i > 2*3600 { // it has seen the season
			seconds++
			lentSeconds += int64(out)
			if int64(w.count())*1000 > int64(owned-out) {
				short++
			}
		}
	}
	t.Logf("lent %.1f GPUs on average; replicas lacked devices %.2f %% of the time", float64(lentSeconds)/float64(seconds)/1000, 100*float64(short)/float64(seconds))
	require.Greater(t, lentSeconds/seconds, int64(5000))
	require.Less(t, float64(short)/float64(seconds), .03)
}

func TestNothingIsLentBeforeForecastsAreKnownToHold(t *testing.T) {
	s := newScaler(t, Config{Rule: KPA{Target: 1000}, Demand: Demand{Capacity: tenMS}, Loan: LoanConfig{PerReplica: 1000, Grace: time.Minute}})
	for i := range 60 {
		now := at(time.Duration(i) * 10 * time.Second)
		observe(t, s, now, Sample{})
		decide(t, s, now, fleet(1, 0))
		l, err := s.Loanable(now, 20_000, 0)
		require.NoError(t, err)
		if i < 8 {
			require.False(t, l.Warm)
		}
		if !l.Warm {
			require.Zero(t, l.Lend)
		}
	}
}

func TestDecisionsAreJSON(t *testing.T) {
	s := newScaler(t, Config{Rule: KPA{Target: 1000}})
	observe(t, s, t0, Sample{Ongoing: 3})
	d := decide(t, s, t0, Fleet{})
	b, err := json.Marshal(d)
	require.NoError(t, err)
	var again Decision
	require.NoError(t, json.Unmarshal(b, &again))
	require.Equal(t, d, again)
}

func TestSkippedSlotsTeachNothing(t *testing.T) {
	f, err := NewForecaster(ForecastConfig{Horizons: []Horizon{{3, 900}}})
	require.NoError(t, err)
	_, ok := f.Bound(0)
	require.False(t, ok)
	f.Skip()
	for range 100 {
		require.NoError(t, f.Observe(1000))
	}
	held, of := f.Kept(0)
	require.Equal(t, []int64{97, 97}, []int64{held, of})
	f.Skip()
	require.NoError(t, f.Observe(1000))
	_, again := f.Kept(0)
	require.Equal(t, of, again, "those that reach over it are not settled")
	p, ok := f.Point(0)
	require.True(t, ok)
	require.Equal(t, int64(1000), p)
	b, _ := f.Bound(0)
	require.Equal(t, int64(1000), b, "a load that never changes needs no allowance")
	_, ok = f.Point(1)
	require.False(t, ok)
	_, ok = f.Bound(-1)
	require.False(t, ok)
	require.False(t, f.Warm(9))
}

// TestHugeCountsDoNotWrap: the mean over an hour of as many requests as may be told is that many, also after hours
// without a call, and is saved and restored.
func TestHugeCountsDoNotWrap(t *testing.T) {
	cfg := Config{Rule: KPA{Stable: time.Hour}, Expiry: 24 * time.Hour}
	for _, gap := range []time.Duration{time.Minute, 5 * time.Hour} {
		s, err := New(cfg)
		require.NoError(t, err)
		now := lockstep.FromNanos(int64(1_800_000_000 * time.Second))
		for range 90 {
			now = now.Add(gap)
			for _, source := range []string{"a", "b", "c"} {
				require.NoError(t, s.Observe(now, Sample{Source: source, Ongoing: maxCount, Queued: maxCount}))
			}
			d, err := s.Decide(now, Fleet{})
			require.NoError(t, err)
			require.Equal(t, int64(maxOngoing*thousand), d.Why.Load)
		}
		var b bytes.Buffer
		require.NoError(t, s.Snapshot(&b))
		_, err = Restore(cfg, &b)
		require.NoError(t, err)
	}
}
