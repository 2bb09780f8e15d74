package moves_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
)

// losing does all that a driver says in its order, and has a device die after so many
// actions. If the driver is not told, it hears of it from the device itself, or from
// one that waits for it. It returns how many actions there were.
func (h *host) losing(id lockstep.DeviceID, after int, told bool) int {
	queue, err := h.driver.Step(moves.Report{})
	require.NoError(h.t, err)
	n := 0
	step := func(r moves.Report) {
		more, err := h.driver.Step(r)
		require.NoError(h.t, err)
		queue = append(queue, more...)
	}
	for len(queue) > 0 {
		a := queue[0]
		queue = queue[1:]
		if !h.driver.Expects(a) {
			continue
		}
		if n++; n == after {
			h.lose(id)
			if told {
				step(moves.Report{Kind: moves.ReportLost, Device: id})
			}
			if !h.driver.Expects(a) {
				continue
			}
		}
		h.commits = h.commits || a.Kind == moves.DoCommit
		r := moves.Report{Kind: moves.ReportDone, Device: a.Device, Action: a}
		if err := h.fake.Do(a); errors.Is(err, moves.ErrGone) {
			r.Kind = moves.ReportLost
		} else if err != nil {
			r.Kind = moves.ReportFailed
		}
		step(r)
	}
	return n
}

// TestLossAtAnyPointLeavesWhatIsCertain has every member die at every point of some
// changes.
func TestLossAtAnyPointLeavesWhatIsCertain(t *testing.T) {
	first, end := uint64(2), uint64(6)
	if testing.Short() {
		first, end = 5, 6
	}
	ends := map[moves.DriverState]int{}
	forward, stuck := 0, 0
	for seed := first; seed < end; seed++ {
		whole := func() *host {
			rng := rand.New(rand.NewPCG(seed, 23))
			x := newTransition(t, rng, tinyFleet(2, 4, 1), true)
			return newHost(t, rng, &x, x.fake(), 0)
		}
		h := whole()
		members := h.driver.Members()
		up := slices.DeleteFunc(slices.Clone(h.x.devs), func(d reconfig.Device) bool { return d.State != reconfig.Up })
		if len(up) < 5 {
			continue // too few for another plan
		}
		total := h.losing("", 0, false)
		require.Equal(t, moves.Done, h.driver.State())
		for after := 1; after <= total; after++ {
			for i, id := range members {
				h := whole()
				h.losing(id, after, (after+i)%2 == 0)
				state := h.driver.State()
				ends[state]++
				switch state {
				case moves.Done:
					h.x.requireHeld(t, h.fake, h.x.live(h.x.want), h.x.restored, "done")
				case moves.Aborted:
					require.False(t, h.commits)
					h.x.requireHeld(t, h.fake, h.x.live(h.x.have), h.x.step, "aborted")
				case moves.Halted:
					if ok, _ := h.x.rollForward(t, h.rng, h); ok {
						forward++
					} else {
						stuck++
					}
				default:
					require.Fail(t, "ends nowhere", "seed %d: %s lost after %d: %s", seed, id, after, state)
				}
			}
		}
	}
	t.Logf("ends %v; %d halts led on, for %d the next plan did not fit", ends, forward, stuck)
	require.NotZero(t, forward)
	require.NotZero(t, ends[moves.Aborted])
	if !testing.Short() {
		require.NotZero(t, ends[moves.Done])
	}
}
