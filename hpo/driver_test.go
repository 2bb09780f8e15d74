package hpo

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// sequences is how many random sequences of events the property tests run in total, without -short. The full claim is
// checked with go test ./hpo -run Random -sequences 1000000.
var sequences = flag.Int("sequences", 20_000, "random sequences of events")

// runs returns how many of the sequences a test runs that has one part in so many of them.
func runs(part int) int {
	if testing.Short() {
		return 2000 / part
	}
	return *sequences / part
}

// configs are one of each kind, small, so that short sequences come to their end.
func configs() []Config {
	var out []Config
	for _, v := range []Variant{Promotion, Stopping, Ray, Optuna, Syne, SyneQuantile, Determined} {
		out = append(out,
			Config{ASHA: &ASHA{Variant: v, Max: 9, Eta: 2}, Retries: 1},
			Config{ASHA: &ASHA{Variant: v, Levels: []uint64{1, 2, 5}, Max: 6, Eta: 3, Brackets: 2, RunOn: 1}, Mode: Maximize},
		)
	}
	return append(
		out,
		Config{SHA: &SHA{Max: 8, Eta: 2}, Retries: 1},
		Config{SHA: &SHA{Max: 3, Eta: 2, Trials: 3}, Mode: Maximize},
		Config{Hyperband: &Hyperband{Max: 4, Eta: 2}, Retries: 2},
		Config{Hyperband: &Hyperband{Max: 3, Eta: 3, LargestFirst: true}, NaN: NaNIgnore},
		Config{Median: &Median{Max: 6, Min: 1}, Retries: 1},
		Config{Median: &Median{Grace: 2, Interval: 2, Max: 8, Min: 2}, NaN: NaNStop, Mode: Maximize},
		Config{PBT: &PBT{Interval: 2, Max: 9, QuantileFraction: 0.5, Seed: 3, Params: []Param{{Name: "lr", Low: 1, High: 100}}}, Retries: 1},
		Config{PBT: &PBT{Interval: 2, BurnIn: 1, Max: 6, Seed: 4, Sync: true, Params: []Param{{Name: "lr", Low: 1, High: 100}}}, Retries: 1, Mode: Maximize},
	)
}

// twin is a scheduler that is told the same as another in other words.
type twin struct {
	s       *Scheduler
	name    func(TrialID) TrialID // its names of trials, nil for the same
	value   func(float64) float64 // its metrics, nil for the same
	shuffle bool                  // its batches are in another order
}

func (w *twin) called(id TrialID) TrialID {
	if w.name == nil || id == "" {
		return id
	}
	return w.name(id)
}

// driver is a host that makes random use of schedulers, and holds them against each other.
type driver struct {
	t      testing.TB
	rng    *rand.Rand
	twins  []*twin
	ids    []TrialID
	on     []TrialID          // what runs
	at     map[TrialID]uint64 // steps
	try    map[TrialID]uint32 // attempts
	sent   []Report           // that counted, to be sent again
	seq    uint64
	odd    bool // metrics may be NaN or infinite
	most   int  // trials
	added  int
	over   []TrialID // stopped
	forget bool      // some of them are forgotten, and some of those added again
	decide func(d Decision)
	begin  func(s Start)
	before func(batch []Report)
}

func newDriver(t testing.TB, seed uint64, twins ...*twin) *driver {
	return &driver{t: t, rng: rand.New(rand.NewPCG(seed, 1)), twins: twins, at: map[TrialID]uint64{}, try: map[TrialID]uint32{}, most: 12}
}

func newTwin(t testing.TB, cfg Config) *twin {
	s, err := New(cfg)
	require.NoError(t, err)
	return &twin{s: s}
}

// step does one random thing.
func (d *driver) step() {
	switch p := d.rng.IntN(20); {
	case p < 4 && d.added < d.most:
		d.add(TrialID(fmt.Sprintf("t%d", d.added)))
	case p < 8:
		d.next(1 + d.rng.IntN(3))
	case p == 8 && len(d.on) > 0:
		d.fail(d.on[d.rng.IntN(len(d.on))])
	case p == 9 && len(d.ids) > 0:
		d.fail(d.ids[d.rng.IntN(len(d.ids))])
	case p == 10 && len(d.sent) > 0:
		d.again()
	case p == 11 && d.forget && len(d.over) > 0:
		d.drop(d.over[d.rng.IntN(len(d.over))])
	default:
		d.progress()
	}
	d.check()
}

func (d *driver) add(id TrialID) {
	d.added++
	d.ids = append(d.ids, id)
	for _, w := range d.twins {
		require.NoError(d.t, w.s.Add(w.called(id)))
	}
}

// drop forgets a trial that is over, and may add another of its name.
func (d *driver) drop(id TrialID) {
	is := func(other TrialID) bool { return other == id }
	d.ids, d.over = slices.DeleteFunc(d.ids, is), slices.DeleteFunc(d.over, is)
	d.sent = slices.DeleteFunc(d.sent, func(r Report) bool { return r.Trial == id })
	delete(d.try, id)
	for _, w := range d.twins {
		require.NoError(d.t, w.s.Forget(w.called(id)))
	}
	if d.rng.IntN(2) == 0 {
		d.add(id)
	}
}

func (d *driver) next(free int) int {
	starts, decisions := d.twins[0].s.Next(free)
	for _, w := range d.twins[1:] {
		got, other := w.s.Next(free)
		require.Len(d.t, got, len(starts))
		for i, x := range starts {
			x.Trial = w.called(x.Trial)
			require.Equal(d.t, x, got[i])
		}
		d.same(w, decisions, other)
	}
	for _, x := range starts {
		require.NotContains(d.t, d.on, x.Trial)
		require.Greater(d.t, x.Attempt, d.try[x.Trial])
		d.on = append(d.on, x.Trial)
		d.try[x.Trial] = x.Attempt
		d.at[x.Trial] = x.From
		if d.rng.IntN(4) == 0 {
			d.at[x.Trial] = 0 // its checkpoint was lost
		}
		if d.begin != nil {
			d.begin(x)
		}
	}
	d.obey(decisions)
	return len(starts) + len(decisions)
}

func (d *driver) same(w *twin, want, got []Decision) {
	require.Len(d.t, got, len(want))
	for i, x := range want {
		x.Trial, x.Source = w.called(x.Trial), w.called(x.Source)
		require.Equal(d.t, x, got[i])
	}
}

func (d *driver) metric() float64 {
	if d.odd && d.rng.IntN(4) == 0 {
		return []float64{nan, inf, -inf}[d.rng.IntN(3)]
	}
	return float64(d.rng.IntN(12) - 4)
}

// progress has some of what runs report, in one batch.
func (d *driver) progress() {
	if len(d.on) == 0 {
		return
	}
	var batch []Report
	for _, i := range d.rng.Perm(len(d.on))[:1+d.rng.IntN(len(d.on))] {
		id := d.on[i]
		d.at[id]++
		if d.rng.IntN(6) == 0 {
			d.at[id] += uint64(d.rng.IntN(4))
		}
		d.seq++
		batch = append(batch, Report{Trial: id, Attempt: d.try[id], Step: d.at[id], Value: d.metric(), Seq: d.seq})
	}
	d.send(batch)
}

func (d *driver) send(batch []Report) {
	if d.before != nil {
		d.before(batch)
	}
	want, err := d.twins[0].s.Report(batch...)
	require.NoError(d.t, err)
	for _, w := range d.twins[1:] {
		order := make([]int, len(batch))
		for i := range order {
			order[i] = i
		}
		if w.shuffle {
			order = d.rng.Perm(len(batch))
		}
		told := make([]Report, len(batch))
		for i, from := range order {
			told[i] = batch[from]
			told[i].Trial = w.called(told[i].Trial)
			if w.value != nil {
				told[i].Value = w.value(told[i].Value)
			}
		}
		got, err := w.s.Report(told...)
		require.NoError(d.t, err)
		back := slices.Clone(got)
		for i, from := range order {
			back[from] = got[i]
		}
		d.same(w, want, back)
	}
	d.sent = append(d.sent, batch...)
	d.obey(want)
}

// again sends a report that was sent before.
func (d *driver) again() {
	r := d.sent[d.rng.IntN(len(d.sent))]
	for _, w := range d.twins {
		told := r
		told.Trial = w.called(r.Trial)
		if w.value != nil {
			told.Value = w.value(r.Value)
		}
		got, err := w.s.Report(told)
		require.NoError(d.t, err)
		require.Len(d.t, got, 1)
		require.NotEqual(d.t, Copy, got[0].Action)
	}
}

func (d *driver) fail(id TrialID) {
	kind := []FailKind{Crashed, Crashed, Preempted, Invalid, Ended}[d.rng.IntN(5)]
	want, err := d.twins[0].s.Failed(id, d.try[id], kind)
	require.NoError(d.t, err)
	for _, w := range d.twins[1:] {
		got, err := w.s.Failed(w.called(id), d.try[id], kind)
		require.NoError(d.t, err)
		d.same(w, want, got)
	}
	d.obey(want)
}

// obey does what decisions say.
func (d *driver) obey(decisions []Decision) {
	for _, x := range decisions {
		if d.decide != nil {
			d.decide(x)
		}
		switch x.Action {
		case Pause, Stop:
			if x.Action == Stop && !slices.Contains(d.over, x.Trial) {
				d.over = append(d.over, x.Trial)
			}
			d.on = slices.DeleteFunc(d.on, func(id TrialID) bool { return id == x.Trial })
		case Copy:
			require.NotEqual(d.t, x.Trial, x.Source)
			if slices.Contains(d.on, x.Trial) { // else Next starts it
				d.try[x.Trial] = x.Attempt
				d.at[x.Trial] = x.Level
			}
		default:
		}
	}
}

// check: something runs, or Next returns a start, or the search is over. If it is over, nothing starts.
func (d *driver) check() {
	s := d.twins[0].s
	require.Len(d.t, d.on, s.counts[running])
	total := 0
	for _, n := range s.counts {
		total += n
	}
	require.Len(d.t, s.index, total)
	if s.Quiescent() {
		require.Empty(d.t, d.on)
		require.Zero(d.t, d.next(9), "the search was over")
		return
	}
	if len(d.on) == 0 {
		require.NotZero(d.t, d.next(1), "the search hangs")
	}
}

// drain lets all run until the search is over.
func (d *driver) drain() {
	for range 2000 {
		if d.twins[0].s.Quiescent() {
			return
		}
		d.next(2)
		d.progress()
		for _, id := range slices.Clone(d.on) {
			if d.at[id] > 40 { // it may run on for ever
				_, err := d.twins[0].s.Failed(id, 0, Ended)
				require.NoError(d.t, err)
				d.on = slices.DeleteFunc(d.on, func(on TrialID) bool { return on == id })
			}
		}
		d.check()
	}
	require.Fail(d.t, "the search does not end")
}

func image(t testing.TB, s *Scheduler) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.Snapshot(&b))
	return b.Bytes()
}
