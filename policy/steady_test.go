package policy

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func at(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }

func TestZeroSteadyReturnsTheWish(t *testing.T) {
	var s Steady
	for _, want := range []Demand{0, 1, One, One + 1, MaxCount * One} {
		v, err := s.Step(at(0), 3, want)
		require.NoError(t, err)
		require.Equal(t, Verdict{Want: want.Ceil(), Target: want.Ceil()}, v)
	}
	_, ok := s.NextWake()
	require.False(t, ok)
}

func TestDemandOf(t *testing.T) {
	for _, c := range []struct {
		load, each float64
		want       Demand
	}{{0, 1, 0}, {25, 2, 12_500}, {1, 3, 333}, {2, 3, 667}, {1e300, 1e-300, MaxCount * One}, {1e-300, 1e300, 0}} {
		got, err := DemandOf(c.load, c.each)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	for _, c := range [][2]float64{{math.NaN(), 1}, {-1, 1}, {math.Inf(1), 1}, {1, 0}, {1, -1}, {1, math.NaN()}, {1, math.Inf(1)}} {
		_, err := DemandOf(c[0], c[1])
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	require.Equal(t, 0, Demand(-5).Ceil())
	require.Equal(t, MaxCount, Demand(math.MaxInt64).Ceil())
	require.Equal(t, "2.5", Demand(2500).String())
}

// Legal against a search over all sizes.
func TestLegalIsTheNearestInItsDirection(t *testing.T) {
	for _, b := range []Bounded{
		{},
		{Min: 3, Max: 9},
		{Step: 4},
		{Min: 1, Max: 20, Step: 4},
		{PowersOfTwo: true},
		{Min: 3, Max: 17, PowersOfTwo: true},
		{Min: 5, Max: 11, Step: 5, RoundUp: true},
		{PowersOfTwo: true, RoundUp: true},
		{Max: 24, PowersOfTwo: true, RoundUp: true},
	} {
		require.NoError(t, b.Validate())
		legal := func(n int) bool {
			if n < b.Min || b.Max > 0 && n > b.Max {
				return false
			}
			return n == 0 || n%max(b.Step, 1) == 0 && (!b.PowersOfTwo || n&(n-1) == 0)
		}
		for want := range 70 {
			down, up := want, want
			for down >= 0 && !legal(down) {
				down--
			}
			for up < 200 && !legal(up) {
				up++
			}
			expect := down
			if down < 0 || b.RoundUp && up < 200 {
				expect = up
			}
			require.Equal(t, expect, b.Legal(want), "%+v %d", b, want)
			for have := range 40 {
				n := b.towards(have, want)
				require.True(t, n == have || legal(n), "%+v %d to %d: %d", b, have, want, n)
				require.GreaterOrEqual(t, n, b.Min)
				if legal(have) { // never past the target, never away from it
					require.LessOrEqual(t, min(have, want), max(n, min(have, want)))
					require.LessOrEqual(t, n, max(have, want, up*btoi(want < b.Min)))
				}
			}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// knative/serving#12765: a steady rate near the target flaps between 1 and 2.
func TestComplaintSteadyRateNearAnEdgeDoesNotFlap(t *testing.T) {
	flaps := func(s Steady) int {
		rng, have, changes := rand.New(rand.NewPCG(1, 1)), 1, 0
		for i := range 1000 {
			want, err := DemandOf(0.97+0.06*rng.Float64(), 1)
			require.NoError(t, err)
			v, err := s.Step(at(time.Duration(i)*time.Second), have, want)
			require.NoError(t, err)
			changes += btoi(v.Target != have)
			have = v.Target
		}
		return changes
	}
	require.Greater(t, flaps(Steady{}), 300)
	require.Zero(t, flaps(Steady{Hysteresis: Hysteresis{UpFraction: 0.05}}))
	require.LessOrEqual(t, flaps(Steady{Hysteresis: Hysteresis{DownFraction: 0.1}}), 1)
	// The other way: a load that grows is followed once it is past the band.
	n, err := Hysteresis{UpFraction: 0.05}.Step(1, 1051)
	require.NoError(t, err)
	require.Equal(t, 2, n)
}

// vllm-project/aibrix#2670: replicas that still load were not counted: 2, 4, 8, 16.
func TestComplaintWhatStartsIsHad(t *testing.T) {
	s := Steady{RateLimited: RateLimited{UpFactor: 2}, Bounded: Bounded{Max: 100}}
	ready, starting := 2, 0
	for i := range 5 { // none becomes ready for five rounds
		v, err := s.Step(at(time.Duration(i)*time.Second), ready+starting, 4*One)
		require.NoError(t, err)
		starting = v.Target - ready
	}
	require.Equal(t, 2, starting)
}

// ray-project/ray#26455, #18925: thrash at constant load.
func TestComplaintConstantLoadDoesNotOscillate(t *testing.T) {
	s := Steady{Delayed: Delayed{Up: 30 * time.Second, Down: time.Minute}, Cooldown: Cooldown{Up: 10 * time.Second, Down: 20 * time.Second}, RateLimited: RateLimited{Interval: time.Minute, UpFactor: 1.5, DownAmount: 1}}
	have, last := 1, 0
	for i := range 500 {
		v, err := s.Step(at(time.Duration(i)*10*time.Second), have, 7300)
		require.NoError(t, err)
		require.GreaterOrEqual(t, v.Target, have)
		if v.Target != have {
			last = i
		}
		have = v.Target
	}
	require.Equal(t, 8, have)
	require.Less(t, last, 100)
}

// The clamp of Knative's pod autoscaler on its own numbers: ready 8, load 3, down rate 2 is 4; ready 2, load 3, up rate 1.1 is 3.
func TestRateWithoutIntervalIsTheClamp(t *testing.T) {
	r := RateLimited{UpFactor: 1.1, DownFactor: 2}
	for _, c := range [][3]int{{8, 3, 4}, {2, 3, 3}, {10, 20, 11}, {0, 5, 2}, {1, 0, 0}, {MaxCount, MaxCount, MaxCount}} {
		n, err := r.Step(at(0), c[0], c[1])
		require.NoError(t, err)
		require.Equal(t, c[2], n, c)
	}
}

// reference keeps all wishes and finds what was wanted throughout by looking at each instant.
type reference struct {
	times []time.Duration
	wants []int
}

func (r *reference) step(d *Delayed, now time.Duration, have, want int) int {
	r.times, r.wants = append(r.times, now), append(r.wants, want)
	throughout := func(span time.Duration, least bool) int {
		if now-r.times[0] < span {
			return have
		}
		v := want
		for i, w := range r.wants {
			held := i+1 == len(r.wants) || r.times[i+1] > now-span
			if held && least {
				v = min(v, w)
			} else if held {
				v = max(v, w)
			}
		}
		return v
	}
	if want > have {
		n := max(have, throughout(d.Up, true))
		if have == 0 && d.FirstAtOnce {
			n = max(n, 1)
		}
		return n
	}
	return min(have, throughout(d.Down, false))
}

func TestDelayedIsTheLeastChangeWantedThroughout(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 20
	}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 2))
		d := Delayed{Up: time.Duration(1 + rng.IntN(20)), Down: time.Duration(rng.IntN(40)), FirstAtOnce: seed%2 == 0}
		var r reference
		now, have := time.Duration(0), rng.IntN(5)
		for range 120 {
			now += time.Duration(rng.IntN(5))
			want := rng.IntN(12)
			got, err := d.Step(at(now), have, want)
			require.NoError(t, err)
			require.Equal(t, r.step(&d, now, have, want), got, "seed %d at %d", seed, now)
			// Nothing else may happen before the wake, and something is looked at then.
			if wake, ok := d.NextWake(); ok {
				require.True(t, wake.After(at(now)))
				again := d
				again.State.Least, again.State.Most = append([]WishUntil(nil), d.State.Least...), append([]WishUntil(nil), d.State.Most...)
				before, err := again.Step(wake.Add(-1), have, want)
				require.NoError(t, err)
				require.Equal(t, got, before)
			}
			if rng.IntN(3) == 0 {
				have = got
			}
		}
	}
}

// Many wishes in one window are merged so that a change comes no sooner.
func TestDelayedKeepsItsWindowShort(t *testing.T) {
	d := Delayed{Up: time.Hour, Down: time.Hour}
	var r reference
	for i := range 1000 {
		got, err := d.Step(at(time.Duration(i)*time.Second), 0, i)
		require.NoError(t, err)
		require.Equal(t, r.step(&d, time.Duration(i)*time.Second, 0, i), got)
		require.LessOrEqual(t, len(d.State.Least), window)
	}
	late := 0 // wishes are ten seconds apart from here on
	for i := 1000; i < 9000; i += 10 {
		now := time.Duration(i) * time.Second
		got, err := d.Step(at(now), 0, 1000)
		require.NoError(t, err)
		exact := r.step(&d, now, 0, 1000)
		require.LessOrEqual(t, got, exact)
		if got < exact {
			late++
		}
	}
	require.Positive(t, late)
	got, err := d.Step(at(9000*time.Second), 0, 1000)
	require.NoError(t, err)
	require.Equal(t, 1000, got)
}

// In no interval does a size rise or fall by more than the rate, whatever is wished for.
func TestRateHoldsInEveryInterval(t *testing.T) {
	for seed := range 100 {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		r := RateLimited{Interval: time.Duration(5 + rng.IntN(50)), UpAmount: 1 + rng.IntN(4), DownAmount: 1 + rng.IntN(4)}
		type change struct {
			at time.Duration
			by int
		}
		now, have := time.Duration(0), rng.IntN(30)
		var changes []change
		most := 0
		for range 200 {
			got, err := r.Step(at(now), have, rng.IntN(60))
			require.NoError(t, err)
			now += time.Duration(1 + rng.IntN(6))
			changes = append(changes, change{now, got - have}) // found at the next step
			have = got
			rises, falls := 0, 0
			for _, c := range changes {
				if c.at > now-r.Interval {
					rises, falls = rises+max(c.by, 0), falls+max(-c.by, 0)
				}
			}
			require.LessOrEqual(t, rises, r.UpAmount)
			require.LessOrEqual(t, falls, r.DownAmount)
			most = max(most, rises)
		}
		require.Equal(t, r.UpAmount, most) // it is used as well
	}
}

func TestCooldownDwells(t *testing.T) {
	c := Cooldown{Up: 10, Down: 20}
	steps := []struct {
		now        time.Duration
		have, want int
		got        int
	}{
		{0, 4, 8, 8}, // nothing is known to have changed before
		{1, 8, 9, 8}, {10, 8, 9, 8}, {11, 8, 9, 9}, {12, 9, 5, 9}, {31, 9, 5, 9}, {32, 9, 5, 5},
	}
	for _, s := range steps {
		got, err := c.Step(at(s.now), s.have, s.want)
		require.NoError(t, err)
		require.Equal(t, s.got, got, s)
		if wake, ok := c.NextWake(); s.got != s.want {
			require.True(t, ok)
			require.True(t, wake.After(at(s.now)))
		}
	}
}

// Random wishes under random decorators: bounds, wakes, and the same state after a round trip through JSON.
func TestSteadyInvariants(t *testing.T) {
	rounds := 80
	if testing.Short() {
		rounds = 10
	}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 4))
		s := Steady{
			Hysteresis:  Hysteresis{UpFraction: rng.Float64() / 4, DownFraction: rng.Float64() / 4},
			Delayed:     Delayed{Up: time.Duration(rng.IntN(20)), Down: time.Duration(rng.IntN(30)), FirstAtOnce: rng.IntN(2) == 0},
			RateLimited: RateLimited{Interval: time.Duration(rng.IntN(20)), UpFactor: 2, DownAmount: 4 * rng.IntN(2)},
			Cooldown:    Cooldown{Up: time.Duration(rng.IntN(10)), Down: time.Duration(rng.IntN(10))},
			Bounded:     Bounded{Min: rng.IntN(3), Max: 8 + rng.IntN(9), Step: 1 + rng.IntN(3)},
		}
		require.NoError(t, s.Validate())
		now, have := time.Duration(0), rng.IntN(20)
		for range 60 {
			want := Demand(rng.IntN(20_000))
			v, err := s.Step(at(now), have, want)
			require.NoError(t, err)
			require.GreaterOrEqual(t, v.Target, s.Bounded.Min)
			require.LessOrEqual(t, v.Target, s.Bounded.Max)
			require.True(t, v.Target == have || v.Target%s.Bounded.Step == 0)
			require.Equal(t, v.Held == Free, v.Target == want.Ceil())

			text, err := json.Marshal(s)
			require.NoError(t, err)
			var saved Steady
			require.NoError(t, json.Unmarshal(text, &saved))
			again, err := json.Marshal(saved)
			require.NoError(t, err)
			require.Equal(t, text, again)
			require.NoError(t, saved.Validate())
			if wake, ok := s.NextWake(); ok {
				require.True(t, wake.After(at(now)))
				early, err := saved.Step(wake.Add(-1), have, want)
				require.NoError(t, err)
				require.Equal(t, v.Target, early.Target, "seed %d", seed)
			} else {
				later, err := saved.Step(at(now+1000), have, want)
				require.NoError(t, err)
				require.Equal(t, v.Target, later.Target, "seed %d", seed)
			}
			have = v.Target
			now += time.Duration(rng.IntN(8))
		}
	}
}

func TestASizeIsReachedInTheEnd(t *testing.T) {
	s := Steady{RateLimited: RateLimited{Interval: 10, UpFactor: 2, DownFactor: 2}, Bounded: Bounded{PowersOfTwo: true, Max: 64}}
	have := 0
	for i := range 100 {
		want := 64 * One
		if i >= 50 {
			want = 0
		}
		v, err := s.Step(at(time.Duration(i)*10), have, want)
		require.NoError(t, err)
		have = v.Target
		if i == 49 {
			require.Equal(t, 64, have)
		}
	}
	require.Zero(t, have)
}

func TestBadInputChangesNothing(t *testing.T) {
	for field, s := range map[string]Steady{ // the order does not matter: each case stands alone
		"Delayed.Up":                     {Delayed: Delayed{Up: -1}},
		"Delayed.Down":                   {Delayed: Delayed{Down: lockstep.MaxWalltime + 1}},
		"Delayed.State":                  {Delayed: Delayed{State: DelayedState{Known: true}}},
		"Delayed.State.Have":             {Delayed: Delayed{State: DelayedState{Have: -1}}},
		"Delayed.State.Least[1]":         {Delayed: Delayed{State: DelayedState{Known: true, Least: []WishUntil{{2, 0}, {1, 0}}, Most: []WishUntil{{1, 0}}}}},
		"RateLimited.UpFactor":           {RateLimited: RateLimited{UpFactor: 1}},
		"RateLimited.DownFactor":         {RateLimited: RateLimited{DownFactor: math.NaN()}},
		"RateLimited.UpAmount":           {RateLimited: RateLimited{UpAmount: -1}},
		"RateLimited.State.Rises[0]":     {RateLimited: RateLimited{State: RateLimitedState{Rises: []Change{{0, 0}}}}},
		"RateLimited.State.Falls":        {RateLimited: RateLimited{State: RateLimitedState{Falls: make([]Change, window+1)}}},
		"Cooldown.Up":                    {Cooldown: Cooldown{Up: -1}},
		"Cooldown.State":                 {Cooldown: Cooldown{State: CooldownState{Have: 1}}},
		"Bounded.Min":                    {Bounded: Bounded{Min: -1}},
		"Bounded.Max":                    {Bounded: Bounded{Min: 5, Max: 7, PowersOfTwo: true}},
		"Bounded.Step":                   {Bounded: Bounded{Step: 2, PowersOfTwo: true}},
		"Hysteresis.UpFraction":          {Hysteresis: Hysteresis{UpFraction: math.Inf(1)}},
		"Hysteresis.DownFraction":        {Hysteresis: Hysteresis{DownFraction: -0.1}},
		"RateLimited.UpFactor unreached": {RateLimited: RateLimited{UpFactor: 1.5}, Bounded: Bounded{Step: 4}},
		"RateLimited.DownFactor powers":  {RateLimited: RateLimited{DownAmount: 8}, Bounded: Bounded{PowersOfTwo: true}},
	} {
		before, _ := json.Marshal(s)
		_, err := s.Step(at(0), 1, One)
		require.ErrorIs(t, err, lockstep.ErrInvalid, field)
		var e *lockstep.Error
		require.True(t, errors.As(err, &e))
		require.Contains(t, field, e.Field)
		after, _ := json.Marshal(s)
		require.Equal(t, before, after)
	}
	s := Steady{Delayed: Delayed{Up: 1}}
	for _, c := range []struct {
		now  time.Time
		have int
		want Demand
	}{{time.Time{}, 1, One}, {at(0), -1, One}, {at(0), MaxCount + 1, One}, {at(0), 1, -1}, {at(0), 1, MaxCount*One + 1}} {
		_, err := s.Step(c.now, c.have, c.want)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.Equal(t, DelayedState{}, s.Delayed.State)
	}
	_, err := s.Step(at(5), 1, One)
	require.NoError(t, err)
	_, err = s.Step(at(4), 1, One)
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = (&Delayed{}).Step(at(0), 1, -1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = (&RateLimited{}).Step(at(0), -1, 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = (&Cooldown{}).Step(at(0), -1, 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Hysteresis{}.Step(-1, 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Hysteresis{}.Step(1, -1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Equal(t, -3, Bounded{Min: -1}.Legal(-3))
}

func TestNames(t *testing.T) {
	for h := range Held(len(heldNames)) {
		require.NotContains(t, h.String(), strconv.Itoa(int(h)))
	}
	require.Equal(t, "Held(9)", Held(9).String())
	require.Equal(t, "Outcome(9)", Outcome(9).String())
}

func TestStepAllocatesNothingOnceWarm(t *testing.T) {
	s := Steady{Delayed: Delayed{Up: 10, Down: 20}, RateLimited: RateLimited{Interval: 5, UpFactor: 2}, Cooldown: Cooldown{Up: 3}}
	i, have := 0, 4
	step := func() {
		i++
		v, err := s.Step(at(time.Duration(i)), have, Demand(i*7919%9000))
		if err != nil {
			panic(err)
		}
		have = v.Target
	}
	for range 300 {
		step()
	}
	require.Zero(t, testing.AllocsPerRun(100, step))
}

// A size in steps starts from none, and ends at none, under factors alone.
func TestFactorsTakeNoneForAStep(t *testing.T) {
	for name, c := range map[string]struct { // the order does not matter: each case stands alone
		have int
		want Demand
		end  int
	}{
		"from none":           {0, 64 * One, 64},
		"from less than one":  {1, 64 * One, 64},
		"to none":             {64, 0, 0},
		"one step to none":    {8, 0, 0},
		"more than one first": {15, 0, 0},
	} {
		for _, interval := range []time.Duration{0, 3} {
			s := Steady{RateLimited: RateLimited{Interval: interval, UpFactor: 2, DownFactor: 2}, Bounded: Bounded{Step: 8, Max: 64}}
			have := c.have
			for i := range 30 {
				v, err := s.Step(at(time.Duration(i)), have, c.want)
				require.NoError(t, err)
				require.LessOrEqual(t, v.Target, max(2*have, 16), name)
				have = v.Target
			}
			require.Equal(t, c.end, have, name)
		}
	}
}

// One replica of eight is lost while the demand is for eight: the band must not hold seven, which is no legal size, and so halve them.
func TestComplaintALostReplicaDoesNotHalveASize(t *testing.T) {
	s := Steady{Hysteresis: Hysteresis{UpFraction: .4, DownFraction: .4}, Bounded: Bounded{PowersOfTwo: true, Max: 64}}
	v, err := s.Step(at(0), 7, 7888)
	require.NoError(t, err)
	require.Equal(t, Verdict{Want: 8, Target: 8}, v)
}

// Under a constant wish, and with have following the target, a size moves one way only and comes to rest at the wish.
func TestAConstantWishIsReachedOneWay(t *testing.T) {
	rounds := 4000
	if testing.Short() {
		rounds = 400
	}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		delay := func() time.Duration { return time.Duration(rng.IntN(4) * rng.IntN(5)) }
		factor := func() float64 { return []float64{0, 1.5, 2, 3}[rng.IntN(4)] }
		s := Steady{
			Hysteresis:  Hysteresis{UpFraction: float64(rng.IntN(5)) / 10, DownFraction: float64(rng.IntN(5)) / 10},
			Delayed:     Delayed{Up: delay(), Down: delay(), FirstAtOnce: rng.IntN(2) == 0},
			RateLimited: RateLimited{Interval: delay(), UpFactor: factor(), DownFactor: factor(), UpAmount: rng.IntN(9), DownAmount: rng.IntN(9)},
			Cooldown:    Cooldown{Up: delay(), Down: delay()},
			Bounded:     Bounded{Min: rng.IntN(6), Max: 8 + rng.IntN(40), Step: 1 << rng.IntN(4), RoundUp: rng.IntN(2) == 0},
		}
		if rng.IntN(4) == 0 {
			s.Bounded.PowersOfTwo, s.Bounded.Step = true, 0
		}
		if s.Validate() != nil {
			continue // a rate that reaches no neighbour
		}
		now, have, want := time.Duration(0), rng.IntN(20), Demand(rng.IntN(30_000))
		rising, falling := false, false
		for {
			v, err := s.Step(at(now), have, want)
			require.NoError(t, err)
			if v.Target != have {
				rising, falling = rising || v.Target > have, falling || v.Target < have
				require.False(t, rising && falling, "seed %d", seed)
				have = v.Target
				continue
			}
			wake, ok := s.NextWake()
			if !ok {
				break
			}
			now = wake.Sub(at(0))
			require.Less(t, now, time.Duration(10_000), "seed %d: never at rest", seed)
		}
		require.Equal(t, s.Bounded.legal(s.Hysteresis.step(have, want)), have, "seed %d", seed)
	}
}
