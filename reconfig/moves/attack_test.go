package moves_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
)

// TestHostCopiesThatMayBeDroppedDoNotCount loses a device when others have finished
// already, and with them their copies in host memory.
func TestHostCopiesThatMayBeDroppedDoNotCount(t *testing.T) {
	job, devs := plainJob(), tinyFleet(1, 4, 1)
	old, to := planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)}), planOf(stages{stageOf(0, 2, 1), stageOf(2, 4, 0)})
	have, err := moves.Held(job, old)
	require.NoError(t, err)
	for i := range devs {
		devs[i].Memory = max(sizeOf(job, have[0].Shards), sizeOf(job, have[1].Shards))
	}
	x := transition{job: job, devs: devs, old: old, to: to, have: have, step: 7, restored: 7}
	x.moves, err = moves.Between(job, devs, have, to, moves.Options{})
	require.NoError(t, err)
	require.Positive(t, x.moves.Staged)
	f := x.fake()
	d, err := moves.NewDriver(x.moves, to)
	require.NoError(t, err)
	queue, err := d.Step(moves.Report{})
	require.NoError(t, err)
	finished := false
	for len(queue) > 0 {
		a := queue[0]
		queue = queue[1:]
		r := moves.Report{Kind: moves.ReportDone, Device: a.Device, Action: a}
		if a.Kind == moves.DoFinish && finished {
			f.Lose(a.Device)
			devs[1].State, devs[1].Speed = reconfig.Down, 0
			require.Equal(t, devs[1].ID, a.Device)
			r = moves.Report{Kind: moves.ReportLost, Device: a.Device}
		} else {
			require.NoError(t, f.Do(a))
		}
		finished = finished || a.Kind == moves.DoFinish
		more, err := d.Step(r)
		require.NoError(t, err)
		queue = append(queue, more...)
	}
	require.Equal(t, moves.Halted, d.State())
	done, begun := d.Progress()
	now, err := x.moves.After(have, done, begun)
	require.NoError(t, err)
	for _, h := range now {
		require.Empty(t, h.Host, "it may be dropped")
	}
	devs[2].Memory, devs[3].Memory = devs[0].Memory, devs[0].Memory
	next := planOf(stages{stageOf(0, 2, 2), stageOf(2, 4, 0)})
	x.to, x.devs = next, devs
	x.moves, err = moves.Between(job, devs, now, next, moves.Options{})
	require.NoError(t, err)
	require.True(t, x.moves.Restore, "the only copy was lost with its device")
	for _, dev := range devs {
		f.Derive(dev.ID, x.moves)
	}
	d, err = moves.NewDriver(x.moves, next)
	require.NoError(t, err)
	state, err := moves.Drive(d, f)
	require.NoError(t, err)
	require.Equal(t, moves.Done, state)
}

// TestDeviceThatComesBackEmptyIsNoHolder plans around a device that is down, is cut
// short, and plans again when the device is there once more.
func TestDeviceThatComesBackEmptyIsNoHolder(t *testing.T) {
	job, devs := plainJob(), tinyFleet(1, 4, 1)
	old := planOf(stages{stageOf(0, 4, 0)}, stages{stageOf(0, 4, 1)})
	have, err := moves.Held(job, old)
	require.NoError(t, err)
	devs[1].State, devs[1].Speed = reconfig.Down, 0
	to := planOf(stages{stageOf(0, 4, 0)}, stages{stageOf(0, 4, 2)})
	m, err := moves.Between(job, devs, have, to, moves.Options{})
	require.NoError(t, err)
	require.Equal(t, []lockstep.DeviceID{"g01"}, m.Gone)
	now, err := m.After(have, 0, 1)
	require.NoError(t, err)
	devs[1].State, devs[1].Speed = reconfig.Up, 1
	next, err := moves.Between(job, devs, now, old, moves.Options{})
	require.NoError(t, err)
	require.Empty(t, next.Gone)
	require.Equal(t, next.Kept, next.Traffic.Total(), "all of it goes to g01 again")
}

// TestDeviceWithoutARoleMayBeSmall has one whose memory is all reserved.
func TestDeviceWithoutARoleMayBeSmall(t *testing.T) {
	job, devs := plainJob(), tinyFleet(1, 4, 1)
	job.Reserve = 1 << 20
	devs[3].Memory = 1
	devs[2].Memory, devs[2].State, devs[2].Speed = 1, reconfig.Down, 0
	movesOf(t, job, devs, planOf(stages{stageOf(0, 4, 0)}), planOf(stages{stageOf(0, 4, 1)}), moves.Options{})
}

// forge writes a snapshot of a driver with a sound checksum around any body.
func forge(t testing.TB, d *moves.Driver, change func(m map[string]any)) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, d.Snapshot(&b))
	line, body, ok := bytes.Cut(b.Bytes(), []byte("\n"))
	require.True(t, ok)
	var image struct {
		Digest any `json:"digest"`
		State  any `json:"state"`
		Phase  any `json:"phase"`
		Begun  any `json:"begun"`
		Kind   any `json:"kind"`
		Lost   any `json:"lost"`
		Owes   any `json:"owes"`
	}
	all := map[string]any{}
	require.NoError(t, json.Unmarshal(body, &all))
	change(all)
	text, err := json.Marshal(all)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &image))
	text, err = json.Marshal(image)
	require.NoError(t, err)
	sum := sha256.Sum256(body)
	forged := sha256.Sum256(text)
	line = bytes.Replace(line, fmt.Appendf(nil, "%x", sum), fmt.Appendf(nil, "%x", forged), 1)
	return append(append(line, '\n'), text...)
}

// TestForgedDriverIsRefusedOrGoesOn restores every state in every phase with any
// answers outstanding: what is accepted comes to an end when all is done.
func TestForgedDriverIsRefusedOrGoesOn(t *testing.T) {
	refused, accepted := 0, 0
	states := []moves.DriverState{
		moves.Preparing, moves.Committing, moves.Moving, moves.Finishing, moves.Done,
		moves.Aborting, moves.Aborted, moves.Halting, moves.Halted,
	}
	kinds := []moves.ActionKind{
		moves.DoPrepare, moves.DoCommit, moves.DoMakeRoom, moves.DoTransfer, moves.DoFinish, moves.DoAbort, moves.DoHalt,
	}
	n := 6
	if testing.Short() {
		n = 2
	}
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 20))
		x := newTransition(t, rng, tinyFleet(2, 4, 1), true)
		d, err := moves.NewDriver(x.moves, x.to)
		require.NoError(t, err)
		members := len(d.Members())
		some := func(most int) []int {
			var out []int
			for i := range members {
				if rng.IntN(members) < most {
					out = append(out, i)
				}
			}
			return out
		}
		for _, state := range states {
			for _, kind := range kinds {
				for phase := -1; phase <= len(x.moves.Phases)+1; phase++ {
					for range 6 {
						lost, owes := some(rng.IntN(2)), some(rng.IntN(members+1))
						data := forge(t, d, func(m map[string]any) {
							m["state"], m["kind"], m["phase"], m["begun"], m["lost"], m["owes"] = state, kind, phase, rng.IntN(2) == 0, lost, owes
						})
						back, err := moves.RestoreDriver(bytes.NewReader(data), x.moves, x.to)
						if err != nil {
							require.ErrorIs(t, err, lockstep.ErrInvalid)
							refused++
							continue
						}
						accepted++
						queue, err := back.Step(moves.Report{})
						require.NoError(t, err)
						for len(queue) > 0 {
							a := queue[0]
							require.NotContains(t, lost, slices.Index(d.Members(), a.Device))
							more, err := back.Step(moves.Report{Kind: moves.ReportDone, Device: a.Device, Action: a})
							require.NoError(t, err)
							queue = append(queue[1:], more...)
						}
						require.Contains(t, []moves.DriverState{moves.Done, moves.Aborted, moves.Halted}, back.State(), "%s", data)
					}
				}
			}
		}
	}
	t.Logf("%d forged drivers refused, %d accepted", refused, accepted)
	require.NotZero(t, accepted)
	require.NotZero(t, refused)
}

func TestRegroupOfNoPlanEndsAll(t *testing.T) {
	old := planOf(stages{stageOf(0, 4, 0, 1)})
	old.Groups = []reconfig.Group{{Kind: reconfig.TensorGroup, Devices: []lockstep.DeviceID{"g00", "g01"}}}
	require.Equal(t, old.Groups, moves.Regroup(plainJob(), old, nil).Destroy)
	require.Equal(t, moves.Regrouping{}, moves.Regroup(plainJob(), nil, nil))
}

func TestMovesKeepTheirDigestThroughJSON(t *testing.T) {
	for seed := range uint64(30) {
		x := newTransition(t, rand.New(rand.NewPCG(seed, 21)), tinyFleet(4, 4, 2), true)
		text, err := json.Marshal(x.moves)
		require.NoError(t, err)
		var back moves.Sequence
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, x.moves, &back)
		require.Equal(t, x.moves.Digest, back.Sum())
	}
}
