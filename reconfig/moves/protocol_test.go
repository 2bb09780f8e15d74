package moves_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
)

// witness sees what goes to a driver and comes from it, and checks the protocol by
// what it has seen.
type witness struct {
	t       *testing.T
	driver  *moves.Driver
	members int
	asked   []moves.Action                // of this round
	history []moves.Action                // of all rounds
	done    map[moves.Action]bool         // of this round
	agreed  map[lockstep.DeviceID]bool    // who has prepared
	lost    map[lockstep.DeviceID]bool    // who is gone
	commits bool                          // some commit went out
	ended   map[moves.ActionKind]struct{} // abort or halt
}

func (w *witness) bytes() []byte {
	var b bytes.Buffer
	require.NoError(w.t, w.driver.Snapshot(&b))
	return b.Bytes()
}

// tell gives a report to the driver.
func (w *witness) tell(r moves.Report) {
	before, expected := w.bytes(), w.driver.Expects(r.Action)
	out, err := w.driver.Step(r)
	if err != nil {
		require.Empty(w.t, out)
		require.Equal(w.t, before, w.bytes(), "an error changes nothing")
		require.False(w.t, expected && r.Kind == moves.ReportDone && r.Device == r.Action.Device, "it was outstanding")
		return
	}
	switch r.Kind {
	case moves.ReportResume:
		require.Equal(w.t, before, w.bytes())
		return
	case moves.ReportLost:
		w.lost[r.Device] = true
	case moves.ReportDone:
		require.True(w.t, expected)
		w.done[r.Action] = true
		if r.Action.Kind == moves.DoPrepare {
			w.agreed[r.Device] = true
		}
	}
	if len(out) > 0 {
		w.round(out)
	}
}

// restart goes on with the driver that is restored from its snapshot.
func (w *witness) restart(x *transition) {
	before := w.bytes()
	d, err := moves.RestoreDriver(bytes.NewReader(before), x.moves, x.to)
	require.NoError(w.t, err)
	require.Equal(w.t, w.driver.Members(), d.Members())
	require.Equal(w.t, w.driver.State(), d.State())
	w.driver = d
	require.Equal(w.t, before, w.bytes())
}

// round checks that actions may follow those before.
func (w *witness) round(out []moves.Action) {
	kind := out[0].Kind
	stops := kind == moves.DoAbort || kind == moves.DoHalt
	for _, a := range w.asked {
		require.True(w.t, stops || w.done[a] || w.lost[a.Device], "%v has not answered before %v", a, out[0])
	}
	require.Empty(w.t, w.ended, "nothing follows %v", kind)
	if stops {
		w.ended[kind] = struct{}{}
	}
	w.commits = w.commits || kind == moves.DoCommit
	require.False(w.t, w.commits && kind == moves.DoAbort, "there is no way back")
	require.False(w.t, !w.commits && kind == moves.DoHalt, "there was a way back")
	if kind == moves.DoCommit {
		require.Len(w.t, w.agreed, w.members, "all have agreed")
	}
	w.asked, w.done = out, map[moves.Action]bool{}
	w.history = append(w.history, out...)
}

// TestAnyReportsInAnyOrderKeepTheProtocol repeats, reorders and invents reports.
func TestAnyReportsInAnyOrderKeepTheProtocol(t *testing.T) {
	n := 100
	if testing.Short() {
		n = 25
	}
	ends := map[moves.DriverState]int{}
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 24))
		x := newTransition(t, rng, tinyFleet(2, 4, 1), true)
		d, err := moves.NewDriver(x.moves, x.to)
		require.NoError(t, err)
		members := d.Members()
		w := &witness{
			t: t, driver: d, members: len(members), done: map[moves.Action]bool{}, agreed: map[lockstep.DeviceID]bool{},
			lost: map[lockstep.DeviceID]bool{}, ended: map[moves.ActionKind]struct{}{},
		}
		out, err := d.Step(moves.Report{})
		require.NoError(t, err)
		w.round(out)
		rare := 20 + rng.IntN(300)
		for range 1000 {
			a := w.history[rng.IntN(len(w.history))]
			if rng.IntN(2) == 0 {
				a = w.asked[rng.IntN(len(w.asked))]
			}
			r := moves.Report{Kind: moves.ReportDone, Device: a.Device, Action: a}
			switch rng.IntN(rare) {
			case 0:
				r.Kind = moves.ReportFailed
			case 1:
				r = moves.Report{Kind: moves.ReportLost, Device: members[rng.IntN(len(members))]}
			case 2:
				r = moves.Report{Kind: moves.ReportGiveUp}
			case 3:
				r = moves.Report{}
			case 4:
				r.Device = members[rng.IntN(len(members))]
			case 5:
				r.Action.Digest[0]++
			case 6:
				r.Action.Phase += rng.IntN(3) - 1
			case 7:
				r.Action.Begun = !r.Action.Begun
			}
			w.tell(r)
			if rng.IntN(50) == 0 {
				w.restart(&x)
			}
		}
		d = w.driver
		out, err = d.Step(moves.Report{})
		require.NoError(t, err)
		over := slices.Contains([]moves.DriverState{moves.Done, moves.Aborted, moves.Halted}, d.State())
		require.Equal(t, over, len(out) == 0, "%s", d.State())
		ends[d.State()]++
	}
	t.Logf("ends %v", ends)
	require.NotZero(t, ends[moves.Done])
	require.NotZero(t, ends[moves.Aborted])
	require.NotZero(t, ends[moves.Halted])
}

// TestChunksOfAStageMoveOneByOne goes from an interleaved pipeline to a plain one.
func TestChunksOfAStageMoveOneByOne(t *testing.T) {
	job, devs := plainJob(), tinyFleet(1, 2, 1)
	job.Layout.Precision = perfmodel.Precision{Weight: 1}
	chunked := planOf(stages{stageOf(0, 1, 0), stageOf(1, 2, 1)})
	first := chunked.Replicas[0].Stages
	first[0].Spans = append(first[0].Spans, stageOf(2, 3).Spans...)
	first[1].Spans = append(first[1].Spans, stageOf(3, 4).Spans...)
	chunked.Digest = chunked.Sum()
	m := movesOf(t, job, devs, chunked, planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)}), moves.Options{})
	one := lockstep.Bytes(job.Model.Parameters(perfmodel.Stage{Layers: 1}))
	require.Equal(t, 2*one, m.Traffic.Total(), "layers 1 and 2 change places")
	require.Equal(t, m.Traffic.Total(), m.Traffic.Node)
}

// TestDonorIsNeededUntilItsLastPhaseIsOver loses a device without a role at each point.
func TestDonorIsNeededUntilItsLastPhaseIsOver(t *testing.T) {
	job, devs := plainJob(), tinyFleet(2, 2, 2)
	devs[1].State = reconfig.Cordoned
	to := planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 3)})
	m := movesOf(t, job, devs, planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)}), to, moves.Options{})
	for state, want := range map[moves.DriverState]moves.DriverState{ // each stands alone, so the order does not matter
		moves.Preparing: moves.Aborting, moves.Committing: moves.Halting, moves.Moving: moves.Halting, moves.Finishing: moves.Finishing,
	} {
		d, err := moves.NewDriver(m, to)
		require.NoError(t, err)
		queue, err := d.Step(moves.Report{})
		require.NoError(t, err)
		for d.State() != state {
			more, err := d.Step(moves.Report{Kind: moves.ReportDone, Device: queue[0].Device, Action: queue[0]})
			require.NoError(t, err)
			queue = append(queue[1:], more...)
		}
		if state == moves.Finishing { // the last phase only gave up what is left over
			require.Empty(t, m.Phases[len(m.Phases)-1].Transfers)
		}
		_, err = d.Step(moves.Report{Kind: moves.ReportLost, Device: "g01"})
		require.NoError(t, err)
		require.Equal(t, want, d.State(), "lost when %s", state)
	}
}
