package hpo

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// epoch is when the tests of deadlines begin.
func epoch(seconds int) time.Time { return time.Unix(1_000_000+int64(seconds), 0) }

func deadline() Deadline {
	return Deadline{At: epoch(100), Devices: 8, Most: 4, Step: time.Second, Resize: 2 * time.Second}
}

func TestDevicesGoToTheBestAsTheDeadlineComes(t *testing.T) {
	s := begin(t, Config{Mode: Maximize, ASHA: &ASHA{Variant: Stopping, Min: 10, Max: 1000, Eta: 2}}, names(4)...)
	require.NoError(t, s.Add("new"))

	// At the beginning anybody may still win, and a device is kept for the one that waits.
	got, err := s.Shift(epoch(0), deadline(), nil)
	require.NoError(t, err)
	require.True(t, got.Explore)
	require.Empty(t, got.Stopped)
	require.Equal(t, []Size{{"t0", 4}, {"t1", 1}, {"t2", 1}, {"t3", 1}}, got.Sizes)

	for i, id := range names(4) {
		report(t, s, id, 10, float64(i))
	}
	report(t, s, "t2", 20, 8)
	report(t, s, "t3", 20, 9)
	report(t, s, "t3", 39, 9)

	// A new trial gets to step 39 in 10 seconds on 4 devices, and no sooner.
	got, err = s.Shift(epoch(90), deadline(), nil)
	require.NoError(t, err)
	require.True(t, got.Explore)
	got, err = s.Shift(epoch(91), deadline(), []Size{{"t1", 3}})
	require.NoError(t, err)
	require.False(t, got.Explore)
	// t3 gets 7*4 steps further instead of 9; so does t2, whose next rung is 20 steps away; t1, at 10, needs 10.
	require.Equal(t, []Size{{"t3", 4}, {"t2", 2}, {"t1", 1}, {"t0", 1}}, got.Sizes)
	require.Empty(t, got.Stopped)
	starts, _ := s.Next(9)
	require.Empty(t, starts, "no new trial any more")
	require.False(t, s.Quiescent())

	// With 2 seconds left a resize takes all of them; only the best is let run, on what it has.
	got, err = s.Shift(epoch(98), deadline(), []Size{{"t3", 2}})
	require.NoError(t, err)
	require.Equal(t, []Size{{"t3", 2}}, got.Sizes)
	require.Len(t, got.Stopped, 3)
	require.Equal(t, Decision{Trial: "t2", Attempt: 1, Action: Stop, Reason: ReasonDeadline}, got.Stopped[0])

	got, err = s.Shift(epoch(100), deadline(), nil)
	require.NoError(t, err)
	require.Len(t, got.Stopped, 1)
	require.True(t, s.Quiescent(), "the one that waits will not be started")
}

// With a speed-up that levels off, and costs of resizing, the size is the one that gets furthest.
func TestSizeIsTheOneThatGetsFurthest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 2000 {
		d := Deadline{Devices: 8, Most: 1 + rng.IntN(8), Step: time.Second, Resize: time.Duration(rng.IntN(20)) * time.Second}
		last := int64(1000)
		for range d.Most {
			d.Speedup = append(d.Speedup, last)
			last += int64(rng.IntN(1000))
		}
		left := uint64(rng.IntN(40)) * uint64(time.Second)
		has, most := 1+rng.IntN(8), 1+rng.IntN(8)
		got := d.size(left, has, most)
		far := func(n int) uint64 {
			if n != has {
				return (left - min(left, uint64(d.Resize))) * d.speed(n)
			}
			return left * d.speed(n)
		}
		require.LessOrEqual(t, got, min(most, d.Most))
		for n := 1; n <= min(most, d.Most); n++ {
			require.GreaterOrEqual(t, far(got), far(n))
			if n < got && got != has {
				require.True(t, far(n) < far(got) || left <= uint64(d.Resize), "a device for nothing")
			}
		}
	}
}

func TestShiftKeepsToTheDevices(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for seed := range uint64(300) {
		w := newTwin(t, Config{ASHA: &ASHA{Variant: []Variant{Promotion, Stopping}[seed%2], Max: 50, Eta: 2}})
		d := newDriver(t, seed, w)
		for range 30 {
			d.step()
		}
		have := len(w.s.Running())
		dl := Deadline{At: epoch(rng.IntN(60)), Devices: max(1, have+rng.IntN(9)), Step: time.Second, Resize: time.Second}
		got, err := w.s.Shift(epoch(0), dl, nil)
		require.NoError(t, err)
		total := 0
		for _, x := range got.Sizes {
			require.Positive(t, x.Devices)
			total += x.Devices
		}
		require.LessOrEqual(t, total, dl.Devices)
		require.Equal(t, have, len(got.Sizes)+len(got.Stopped))
		require.Len(t, w.s.Running(), len(got.Sizes))
	}
}

// On the same devices, for the same time, the best trial gets further with shifts than without.
func TestShiftsTakeTheBestFurther(t *testing.T) {
	play := func(shift bool) (best uint64) {
		s := search(t, Config{Mode: Maximize, ASHA: &ASHA{Variant: Stopping, Min: 2, Max: 1000, Eta: 2}}, 16)
		at, size := map[TrialID]uint64{}, map[TrialID]int{}
		d := Deadline{At: epoch(40), Devices: 8, Step: time.Second, Resize: time.Second}
		for now := range 40 {
			free := d.Devices
			var sizes []Size
			for _, x := range s.Running() {
				free -= max(1, size[x.Trial])
				sizes = append(sizes, Size{x.Trial, max(1, size[x.Trial])})
			}
			s.Next(free)
			if shift && now%5 == 4 {
				got, err := s.Shift(epoch(now), d, sizes)
				require.NoError(t, err)
				for _, x := range got.Sizes {
					size[x.Trial] = x.Devices
				}
			}
			for _, x := range s.Running() {
				at[x.Trial] += uint64(max(1, size[x.Trial]))
				report(t, s, x.Trial, at[x.Trial], -number(x.Trial))
			}
		}
		return at["t0"]
	}
	require.Greater(t, play(true), 2*play(false))
}

func TestShiftRefuses(t *testing.T) {
	s := begin(t, Config{ASHA: &ASHA{Max: 9}}, "a", "b", "c")
	report(t, s, "c", 1, 0)
	was := image(t, s)
	for _, tt := range []struct {
		name  string
		kind  error
		turn  func(d *Deadline)
		sizes []Size
	}{
		{"no devices", lockstep.ErrInvalid, func(d *Deadline) { d.Devices = 0 }, nil},
		{"fewer than run", lockstep.ErrInvalid, func(d *Deadline) { d.Devices, d.Most = 1, 1 }, nil},
		{"most", lockstep.ErrInvalid, func(d *Deadline) { d.Most = 9 }, nil},
		{"most below 0", lockstep.ErrInvalid, func(d *Deadline) { d.Most = -1 }, nil},
		{"no time", lockstep.ErrInvalid, func(d *Deadline) { d.Step = 0 }, nil},
		{"resize", lockstep.ErrInvalid, func(d *Deadline) { d.Resize = -1 }, nil},
		{"short speed-up", lockstep.ErrInvalid, func(d *Deadline) { d.Speedup = []int64{1} }, nil},
		{"falling speed-up", lockstep.ErrInvalid, func(d *Deadline) { d.Speedup = []int64{1, 3, 2, 4} }, nil},
		{"no time at all", lockstep.ErrInvalid, func(d *Deadline) { d.At = time.Time{} }, nil},
		{"unknown", lockstep.ErrUnknown, func(*Deadline) {}, []Size{{"x", 1}}},
		{"twice", lockstep.ErrDuplicate, func(*Deadline) {}, []Size{{"a", 1}, {"a", 1}}},
		{"paused", lockstep.ErrConflict, func(*Deadline) {}, []Size{{"c", 1}}},
		{"without devices", lockstep.ErrInvalid, func(*Deadline) {}, []Size{{"a", 0}}},
	} {
		d := deadline()
		tt.turn(&d)
		_, err := s.Shift(epoch(0), d, tt.sizes)
		require.ErrorIs(t, err, tt.kind, tt.name)
	}
	_, err := s.Shift(time.Time{}, deadline(), nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Equal(t, string(was), string(image(t, s)))
	_, err = begin(t, Config{SHA: &SHA{}}).Shift(epoch(0), deadline(), nil)
	require.ErrorIs(t, err, lockstep.ErrConflict)
}
