package search

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

func points(scale int) []fusion.Point {
	ms := time.Millisecond * time.Duration(scale)
	return []fusion.Point{{Fused: 1, Step: 30 * ms, Memory: 100}, {Fused: 2, Step: 40 * ms, Memory: 150}, {Fused: 4, Step: 50 * ms, Memory: 200}}
}

func config(rule hpo.Config) Config {
	return Config{
		Rule: rule, Transfer: &Transfer{},
		Classes: []Class{
			{Name: "gpu", Profiles: []Profile{{Points: points(1)}}},
			{Name: "bubble", Kind: Bubble, Memory: 180, Profiles: []Profile{{Points: points(7)}}},
		},
	}
}

func rules() []hpo.Config {
	return []hpo.Config{
		{ASHA: &hpo.ASHA{Max: 9, Eta: 2}, Retries: 1},
		{ASHA: &hpo.ASHA{Variant: hpo.Stopping, Max: 9, Eta: 2}, Retries: 1, NaN: hpo.NaNStop},
		{ASHA: &hpo.ASHA{Variant: hpo.Optuna, Max: 9, Eta: 3, Brackets: 2}, Mode: hpo.Maximize},
		{SHA: &hpo.SHA{Max: 8, Eta: 2}},
		{Hyperband: &hpo.Hyperband{Max: 4, Eta: 2}},
		{Median: &hpo.Median{Max: 5, Min: 1}, Mode: hpo.Maximize},
	}
}

// host does what actions ask and checks each of them.
type host struct {
	t       *testing.T
	s       *Search
	bundles map[fusion.BundleID]Action
	on      map[SlotID]string
	targets map[hpo.TrialID]SlotID
	sent    map[hpo.TrialID]int
	log     []string
}

func newHost(t *testing.T, s *Search) *host {
	return &host{t: t, s: s, bundles: map[fusion.BundleID]Action{}, on: map[SlotID]string{}, targets: map[hpo.TrialID]SlotID{}, sent: map[hpo.TrialID]int{}}
}

func (h *host) next() int {
	actions, _ := h.s.Next()
	for _, a := range actions {
		h.log = append(h.log, fmt.Sprintf("%+v", a))
		switch a.Do {
		case Start:
			require.Empty(h.t, h.on[a.Slot])
			for _, b := range h.bundles { // in any order: nothing may be shared
				for _, m := range b.Members {
					require.False(h.t, slices.ContainsFunc(a.Members, func(o Member) bool { return o.Trial == m.Trial }), "a trial runs twice")
				}
			}
			require.LessOrEqual(h.t, len(a.Members), map[bool]int{true: 2, false: 4}[a.Slot[0] == 'b'])
			h.on[a.Slot], h.bundles[a.Bundle] = string(a.Bundle), a
		case Stop:
			delete(h.on, a.Slot)
			delete(h.bundles, a.Bundle)
		case Move:
			require.Empty(h.t, h.on[a.Slot])
			delete(h.on, a.From)
			b := h.bundles[a.Bundle]
			b.Slot = a.Slot
			h.on[a.Slot], h.bundles[a.Bundle] = string(a.Bundle), b
		case Target:
			require.Empty(h.t, h.on[a.Slot])
			require.EqualValues(h.t, 'g', a.Slot[0], "targets run on exclusive devices")
			h.on[a.Slot], h.targets[a.Trial] = "target", a.Slot
			h.sent[a.Trial]++
		}
	}
	v := h.s.View()
	require.Equal(h.t, len(h.bundles), v.Bundles)
	require.Equal(h.t, len(h.targets), v.Targets)
	return len(actions)
}

// vanish drops what ran on a slot that was lost.
func (h *host) vanish(id SlotID) {
	delete(h.on, id)
	for _, b := range h.names() {
		if h.bundles[b].Slot == id {
			delete(h.bundles, b)
		}
	}
	for x, at := range h.targets { // in any order: one at most is there
		if at == id {
			delete(h.targets, x)
			h.sent[x]--
		}
	}
}

func (h *host) names() []fusion.BundleID {
	var out []fusion.BundleID
	for id := range h.bundles { // in any order: sorted below
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

func (h *host) ended() bool {
	var ids []hpo.TrialID
	for id := range h.targets { // in any order: sorted below
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return false
	}
	id := slices.Min(ids)
	require.NoError(h.t, h.s.TargetEnded(id))
	delete(h.on, h.targets[id])
	delete(h.targets, id)
	return true
}

// play runs a random search to its end: slots come and go, bundles and members fail, metrics are NaN.
func play(t *testing.T, cfg Config, seed uint64, again func(*Search) *Search) *host {
	rng := rand.New(rand.NewPCG(seed, 1))
	s, err := New(cfg)
	require.NoError(t, err)
	h := newHost(t, s)
	var slots []SlotID
	for i := range 1 + rng.IntN(2) {
		slots = append(slots, SlotID(fmt.Sprintf("g%d", i)))
		require.NoError(t, s.AddSlot(slots[len(slots)-1], "gpu"))
	}
	for i := range rng.IntN(3) {
		slots = append(slots, SlotID(fmt.Sprintf("b%d", i)))
		require.NoError(t, s.AddSlot(slots[len(slots)-1], "bubble"))
	}
	n := 1 + rng.IntN(25)
	for i := range n {
		require.NoError(t, s.Add(hpo.TrialID(fmt.Sprintf("t%02d", i)), fusion.Key(fmt.Sprint(i%2))))
	}
	lost := map[SlotID]bool{}
	for step := 0; ; step++ {
		require.Less(t, step, 5000, "it does not end")
		h.s = again(h.s)
		h.next()
		if h.s.Quiescent() {
			return h
		}
		names := h.names()
		require.True(t, len(names)+len(h.targets)+len(lost) > 0, "nothing runs and it is not over: %+v", h.s.View())
		switch x := slots[rng.IntN(len(slots))]; {
		case rng.IntN(12) == 0 && step < 400:
			if lost[x] {
				delete(lost, x)
				require.NoError(t, h.s.Free(x))
				break
			}
			lost[x] = true
			_, err := h.s.Lose(x)
			require.NoError(t, err)
			h.vanish(x)
		case len(lost) > 0 && (len(names)+len(h.targets) == 0 || step >= 400):
			for _, x := range slots {
				delete(lost, x)
				require.NoError(t, h.s.Free(x))
			}
		case len(names) == 0 || rng.IntN(5) == 0 && len(h.targets) > 0:
			h.ended()
		case rng.IntN(15) == 0:
			b := h.bundles[names[rng.IntN(len(names))]]
			who := b.Members[rng.IntN(len(b.Members))].Trial
			if rng.IntN(2) == 0 {
				who = ""
				h.vanish(b.Slot)
			}
			_, err := h.s.Fail(b.Bundle, who, []hpo.FailKind{hpo.Crashed, hpo.Preempted, hpo.Invalid, hpo.Ended}[rng.IntN(4)])
			require.NoError(t, err)
		default:
			var reports []Report
			for _, id := range names {
				if b := h.bundles[id]; rng.IntN(2) == 0 || len(reports) == 0 {
					r := Report{Bundle: id, Step: h.s.bundles[id].from + 1}
					if u := h.s.bundles[id].until; u > 0 && rng.IntN(3) > 0 {
						r.Step = u
					}
					for range b.Members {
						v := rng.Float64()
						if rng.IntN(10) == 0 {
							v = math.NaN()
						}
						r.Values = append(r.Values, v)
					}
					reports = append(reports, r)
				}
			}
			_, err := h.s.Report(reports...)
			require.NoError(t, err)
		}
	}
}

// sequences is how many random searches are played, without -short.
var sequences = flag.Int("sequences", 3000, "random searches that are played to their end")

// runs returns how many searches a test plays that has one part in so many of them.
func runs(part int) int {
	if testing.Short() {
		return 300 / part
	}
	return *sequences / part
}

func TestRandomSearchesComeToTheirEnd(t *testing.T) {
	for i := range runs(1) {
		cfg := config(rules()[i%len(rules())])
		h := play(t, cfg, uint64(i), func(s *Search) *Search { return s })
		for id, n := range h.sent { // in any order: each is checked
			require.LessOrEqual(t, n, 1, "%s was transferred twice", id)
		}
		finite := slices.ContainsFunc(h.s.trials, func(x trial) bool { return x.value == x.value })
		if finite {
			require.NotEmpty(t, h.sent, "the winner is transferred")
		}
		for id := range h.sent { // in any order: each is checked
			require.True(t, h.s.trials[h.s.index[id]].sent)
		}
	}
}

func TestRestoredSearchGoesOnAlike(t *testing.T) {
	for i := range runs(10) {
		cfg := config(rules()[i%len(rules())])
		plain := play(t, cfg, uint64(i), func(s *Search) *Search { return s })
		saved := play(t, cfg, uint64(i), func(s *Search) *Search {
			var b, c bytes.Buffer
			require.NoError(t, s.Snapshot(&b))
			text := b.String()
			r, err := Restore(&b)
			require.NoError(t, err)
			require.NoError(t, r.Snapshot(&c))
			require.Equal(t, text, c.String())
			return r
		})
		require.Equal(t, plain.log, saved.log)
	}
}

func TestStrongTrialsRunOnExclusiveDevicesAndNewOnesInBubbles(t *testing.T) {
	s, err := New(config(hpo.Config{ASHA: &hpo.ASHA{Max: 9, Eta: 2}}))
	require.NoError(t, err)
	for i := range 40 {
		require.NoError(t, s.Add(hpo.TrialID(fmt.Sprintf("t%02d", i)), ""))
	}
	require.NoError(t, s.AddSlot("b0", "bubble"))
	require.NoError(t, s.AddSlot("g0", "gpu"))
	a, _ := s.Next()
	require.Len(t, a, 2)
	require.Len(t, a[0].Members, 4, "the knee of the device")
	require.EqualValues(t, "g0", a[0].Slot)
	require.Len(t, a[1].Members, 2, "what fits the bubble")
	for range 2 {
		_, err = s.Report(Report{Bundle: a[0].Bundle, Step: 1, Values: []float64{1, 2, 3, 4}})
		require.NoError(t, err)
		a, _ = s.Next()
		require.Equal(t, Stop, a[0].Do)
		a = a[1:]
	}
	require.EqualValues(t, 1, a[0].Begin, "four of eight were promoted, and fill the device")
	require.Len(t, a[0].Members, 4)
	_, err = s.Report(Report{Bundle: "b2", Step: 1, Values: []float64{5, 6}})
	require.NoError(t, err)
	a, _ = s.Next()
	require.EqualValues(t, "b0", a[1].Slot)
	require.Zero(t, a[1].Begin)
}

func TestSurvivorsAreFusedAnewAndTheirPlacesRefilled(t *testing.T) {
	cfg := config(hpo.Config{ASHA: &hpo.ASHA{Variant: hpo.Stopping, Max: 9, Eta: 2}})
	cfg.Transfer = nil
	s, err := New(cfg)
	require.NoError(t, err)
	for i := range 8 {
		require.NoError(t, s.Add(hpo.TrialID(fmt.Sprintf("t%d", i)), ""))
	}
	require.NoError(t, s.AddSlot("g0", "gpu"))
	require.NoError(t, s.AddSlot("g1", "gpu"))
	a, _ := s.Next()
	require.Len(t, a, 2)
	_, err = s.Report(Report{"b1", 1, []float64{1, 9, 2, 9}}, Report{"b2", 1, []float64{3, 9, 4, 9}})
	require.NoError(t, err)
	require.NoError(t, s.Add("new", ""))
	a, _ = s.Next()
	require.Equal(t, []Do{Stop, Stop, Start, Start}, []Do{a[0].Do, a[1].Do, a[2].Do, a[3].Do})
	require.Equal(t, []Member{{"t0", 1}, {"t2", 1}, {"t4", 1}, {"t6", 1}}, a[2].Members, "two halves make a whole")
	require.EqualValues(t, 2, a[2].Until)
	require.Equal(t, []Member{{"new", 1}}, a[3].Members, "and the other device is filled")
}

func TestBundleMovesToDeviceWithoutWork(t *testing.T) {
	s, err := New(config(hpo.Config{ASHA: &hpo.ASHA{Max: 9, Eta: 2}}))
	require.NoError(t, err)
	require.NoError(t, s.Add("a", ""))
	require.NoError(t, s.AddSlot("b0", "bubble"))
	a, _ := s.Next()
	require.EqualValues(t, "b0", a[0].Slot)
	require.NoError(t, s.AddSlot("g0", "gpu"))
	a, _ = s.Next()
	require.Equal(t, []Action{{Do: Move, Bundle: "b1", Slot: "g0", From: "b0"}}, a)
}

func TestKeysGoWhereTheyAreFastest(t *testing.T) {
	slow := points(3)
	cfg := Config{Classes: []Class{
		{Name: "x", Profiles: []Profile{{Key: "conv", Points: points(1)}, {Key: "dense", Points: points(2)}}},
		{Name: "y", Profiles: []Profile{{Key: "conv", Points: slow}, {Key: "dense", Points: points(2)}}},
	}}
	s, err := New(cfg)
	require.NoError(t, err)
	for i := range 8 {
		require.NoError(t, s.Add(hpo.TrialID(fmt.Sprintf("d%d", i)), "dense"))
		require.NoError(t, s.Add(hpo.TrialID(fmt.Sprintf("c%d", i)), "conv"))
	}
	require.NoError(t, s.AddSlot("x0", "x"))
	require.NoError(t, s.AddSlot("y0", "y"))
	a, _ := s.Next()
	for _, x := range a {
		require.EqualValues(t, map[SlotID]fusion.Key{"x0": "dense", "y0": "dense"}[x.Slot], x.Key, "dense is as fast as anywhere on both and takes longer")
	}
	require.NoError(t, s.Measure("x", Profile{Key: "dense", Points: points(5)}))
	_, err = s.Lose("x0")
	require.NoError(t, err)
	require.NoError(t, s.Free("x0"))
	a, _ = s.Next()
	require.EqualValues(t, "conv", a[0].Key, "as measured, dense is slower here than elsewhere")
}

func TestTransfersFollowTheRule(t *testing.T) {
	cfg := config(hpo.Config{Median: &hpo.Median{Grace: 4, Max: 4, Min: 100}, Mode: hpo.Maximize})
	s, err := New(cfg)
	require.NoError(t, err)
	for i := range 8 {
		require.NoError(t, s.Add(hpo.TrialID(fmt.Sprintf("t%d", i)), ""))
	}
	require.NoError(t, s.AddSlot("g0", "gpu"))
	require.NoError(t, s.AddSlot("g1", "gpu"))
	s.Next()
	_, err = s.Report(Report{"b2", 2, []float64{math.NaN(), 5, 1, math.Inf(1)}})
	require.NoError(t, err)
	a, _ := s.Next()
	require.Empty(t, a, "nobody is over yet")
	_, err = s.Report(Report{"b1", 4, []float64{1, 2, 3, 4}})
	require.NoError(t, err)
	a, _ = s.Next()
	require.Equal(t, Action{Do: Target, Slot: "g0", Trial: "t5"}, a[1], "half are over, and the best still runs")
	_, err = s.Report(Report{"b2", 4, []float64{math.NaN(), 4, 1, 1}})
	require.NoError(t, err)
	a, _ = s.Next()
	require.EqualValues(t, "t3", a[1].Trial, "the best has changed; of equals the first")
	require.NoError(t, s.TargetEnded("t5"))
	require.NoError(t, s.TargetEnded("t3"))
	a, _ = s.Next()
	require.Empty(t, a)
	require.True(t, s.Quiescent())
}

func TestFaultsChangeNothing(t *testing.T) {
	_, err := New(Config{SlackFraction: 1, FillFraction: math.NaN(), Ahead: -1, Transfer: &Transfer{Best: -1}, Rule: hpo.Config{PBT: &hpo.PBT{}}, Classes: []Class{{Kind: "x", Memory: -1}, {Name: "a", Profiles: []Profile{{}, {}}}, {Name: "a"}}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	for _, field := range []string{"SlackFraction", "FillFraction", "Ahead", "Transfer", "Rule.PBT", "Classes[0].Name", "Classes[0].Kind", "Classes[0].Memory", "Profiles[1].Key", "Classes[2].Name"} {
		require.ErrorContains(t, err, field)
	}
	s, err := New(config(hpo.Config{}))
	require.NoError(t, err)
	require.NoError(t, s.Add("a", ""))
	require.NoError(t, s.AddSlot("g", "gpu"))
	s.Next()
	var was, is bytes.Buffer
	require.NoError(t, s.Snapshot(&was))
	check := func(kind, err error) {
		t.Helper()
		require.ErrorIs(t, err, kind)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
	}
	second := func(_ []hpo.Decision, err error) error { return err }
	check(lockstep.ErrDuplicate, s.Add("a", ""))
	check(lockstep.ErrInvalid, s.AddSlot("", "gpu"))
	check(lockstep.ErrDuplicate, s.AddSlot("g", "gpu"))
	check(lockstep.ErrUnknown, s.AddSlot("h", "x"))
	check(lockstep.ErrUnknown, s.Free("x"))
	check(lockstep.ErrUnknown, second(s.Lose("x")))
	check(lockstep.ErrUnknown, second(s.Remove("x")))
	check(lockstep.ErrUnknown, second(s.Fail("x", "", hpo.Crashed)))
	check(lockstep.ErrUnknown, second(s.Fail("b1", "x", hpo.Crashed)))
	check(lockstep.ErrInvalid, second(s.Fail("b1", "", "x")))
	check(lockstep.ErrUnknown, second(s.Report(Report{Bundle: "x"})))
	check(lockstep.ErrInvalid, second(s.Report(Report{Bundle: "b1", Values: []float64{1}})))
	check(lockstep.ErrInvalid, second(s.Report(Report{Bundle: "b1", Step: 1})))
	check(lockstep.ErrDuplicate, second(s.Report(Report{"b1", 1, []float64{1}}, Report{"b1", 1, []float64{1}})))
	check(lockstep.ErrUnknown, s.TargetEnded("a"))
	check(lockstep.ErrUnknown, s.Measure("x", Profile{}))
	check(lockstep.ErrInvalid, s.Measure("gpu", Profile{}))
	require.NoError(t, s.Snapshot(&is))
	require.Equal(t, was.String(), is.String())
	_, err = Restore(bytes.NewReader(was.Bytes()[:was.Len()-1]))
	check(lockstep.ErrInvalid, err)
}

func TestOrderOfBundlesInACallDoesNotMatter(t *testing.T) {
	for i := range runs(10) {
		cfg := config(rules()[i%len(rules())])
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		var pair [2]*Search
		for j := range pair {
			s, err := New(cfg)
			require.NoError(t, err)
			for _, id := range []SlotID{"g0", "g1", "b0", "b1"} {
				require.NoError(t, s.AddSlot(id, map[byte]ClassName{'g': "gpu", 'b': "bubble"}[id[0]]))
			}
			for k := range 30 {
				require.NoError(t, s.Add(hpo.TrialID(fmt.Sprintf("t%02d", k)), fusion.Key(fmt.Sprint(k%2))))
			}
			pair[j] = s
		}
		for !pair[0].Quiescent() {
			a, _ := pair[0].Next()
			b, _ := pair[1].Next()
			require.Equal(t, a, b)
			for _, x := range a {
				if x.Do == Target {
					require.NoError(t, pair[0].TargetEnded(x.Trial))
					require.NoError(t, pair[1].TargetEnded(x.Trial))
				}
			}
			var reports []Report
			for _, x := range pair[0].slots {
				if x.bundle == nil {
					continue
				}
				r := Report{Bundle: x.bundle.id(), Step: max(x.bundle.until, x.bundle.from+1)}
				for range x.bundle.members {
					r.Values = append(r.Values, rng.Float64())
				}
				reports = append(reports, r)
			}
			_, err := pair[0].Report(reports...)
			require.NoError(t, err)
			rng.Shuffle(len(reports), func(i, j int) { reports[i], reports[j] = reports[j], reports[i] })
			_, err = pair[1].Report(reports...)
			require.NoError(t, err)
		}
	}
}

func TestSearchOfUnknownLengthTransfers(t *testing.T) {
	s, err := New(config(hpo.Config{ASHA: &hpo.ASHA{Max: 9, Eta: 3}}))
	require.NoError(t, err)
	require.NoError(t, s.AddSlot("g0", "gpu"))
	targets := map[hpo.TrialID]bool{}
	for i := range 40 { // trials come as long as the search runs
		for j := range 4 {
			require.NoError(t, s.Add(hpo.TrialID(fmt.Sprintf("t%02d.%d", i, j)), ""))
		}
		actions, _ := s.Next()
		for _, a := range actions {
			switch a.Do {
			case Start:
				v := make([]float64, len(a.Members))
				for k := range v {
					v[k] = 1 / float64(i+k+1)
				}
				_, err := s.Report(Report{a.Bundle, a.Until, v})
				require.NoError(t, err)
			case Target:
				require.False(t, targets[a.Trial])
				targets[a.Trial] = true
				require.NoError(t, s.TargetEnded(a.Trial))
			}
		}
	}
	require.Greater(t, len(targets), 3)
}

func FuzzRestore(f *testing.F) {
	s, err := New(config(hpo.Config{ASHA: &hpo.ASHA{Variant: hpo.Stopping, Max: 9, Eta: 2}}))
	require.NoError(f, err)
	for i := range 9 {
		require.NoError(f, s.Add(hpo.TrialID(fmt.Sprint("t", i)), ""))
	}
	require.NoError(f, s.AddSlot("g0", "gpu"))
	require.NoError(f, s.AddSlot("b0", "bubble"))
	s.Next()
	_, err = s.Report(Report{"b1", 1, []float64{1, 9, 2, 9}})
	require.NoError(f, err)
	var b bytes.Buffer
	require.NoError(f, s.Snapshot(&b))
	_, body, _ := bytes.Cut(b.Bytes(), []byte("\n"))
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		var b bytes.Buffer
		require.NoError(t, snapshot.Write(&b, format, version, body))
		s, err := Restore(&b)
		if err != nil {
			return
		}
		for range 50 { // whatever it is, it can be used
			s.Next()
			for _, x := range slices.Clone(s.slots) {
				if x.bundle != nil && s.bundles[x.bundle.id()] != nil {
					_, _ = s.Report(Report{x.bundle.id(), x.bundle.from + 1, make([]float64, len(x.bundle.members))})
				}
				if x.target >= 0 {
					require.NoError(t, s.TargetEnded(s.trials[x.target].id))
				}
			}
		}
	})
}

func TestLateReportOfBundleThatIsOverIsUnknown(t *testing.T) {
	cfg := config(hpo.Config{ASHA: &hpo.ASHA{Variant: hpo.Stopping, Max: 9, Eta: 2}})
	cfg.Transfer = nil
	s, err := New(cfg)
	require.NoError(t, err)
	for i := range 4 {
		require.NoError(t, s.Add(hpo.TrialID(fmt.Sprint("t", i)), ""))
	}
	require.NoError(t, s.AddSlot("g0", "gpu"))
	s.Next()
	late := Report{"b1", 1, []float64{1, 2, 3, 4}}
	_, err = s.Report(late)
	require.NoError(t, err)
	_, err = s.Report(late)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	a, _ := s.Next()
	require.Equal(t, []Do{Stop, Start}, []Do{a[0].Do, a[1].Do})
	_, err = s.Report(late)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
}

func TestTargetThatLosesItsDeviceIsStartedAgain(t *testing.T) {
	s, err := New(config(hpo.Config{ASHA: &hpo.ASHA{Max: 1}}))
	require.NoError(t, err)
	require.NoError(t, s.Add("t", ""))
	require.NoError(t, s.AddSlot("g0", "gpu"))
	s.Next()
	_, err = s.Report(Report{"b1", 1, []float64{1}})
	require.NoError(t, err)
	a, _ := s.Next()
	require.EqualValues(t, "t", a[1].Trial)
	_, err = s.Remove("g0")
	require.NoError(t, err)
	require.NoError(t, s.AddSlot("b0", "bubble"))
	a, _ = s.Next()
	require.Empty(t, a, "bubbles are for bundles")
	require.False(t, s.Quiescent())
	require.Equal(t, 1, s.View().Pending)
	require.NoError(t, s.AddSlot("g1", "gpu"))
	a, _ = s.Next()
	require.Equal(t, []Action{{Do: Target, Slot: "g1", Trial: "t"}}, a)
	require.NoError(t, s.TargetEnded("t"))
	require.True(t, s.Quiescent())
}

func TestTrialThatFitsNowhereHoldsNobodyUp(t *testing.T) {
	s, err := New(Config{Rule: hpo.Config{ASHA: &hpo.ASHA{Max: 1}}, Classes: []Class{{Name: "gpu", Profiles: []Profile{{Key: "small", Points: points(1)}}}}})
	require.NoError(t, err)
	for i := range 100 {
		require.NoError(t, s.Add(hpo.TrialID(fmt.Sprintf("t%02d", i)), "large"))
	}
	require.NoError(t, s.Add("u", "small"))
	require.NoError(t, s.AddSlot("g0", "gpu"))
	a, _ := s.Next()
	require.Equal(t, []Member{{"u", 1}}, a[0].Members)
	require.Equal(t, 100, s.View().Ready)
}

func TestNextTwiceAsksForNothingNew(t *testing.T) {
	s, err := New(config(hpo.Config{}))
	require.NoError(t, err)
	require.NoError(t, s.Add("t", ""))
	require.NoError(t, s.AddSlot("g0", "gpu"))
	s.Next()
	for range 3 {
		a, d := s.Next()
		require.Empty(t, a)
		require.Empty(t, d)
	}
}
