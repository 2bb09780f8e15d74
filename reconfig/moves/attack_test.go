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
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
	"github.com/lockstep-gpu/lockstep/reconfig/resize"
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

	to := planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)})
	to.Groups = []reconfig.Group{{Kind: reconfig.PipelineGroup, Devices: []lockstep.DeviceID{"g00", "g01"}}}
	r := moves.Regroup(plainJob(), old, to)
	require.Equal(t, to.Groups, r.Build, "the same members are another communicator if they do something else")
	require.Empty(t, r.Keep)
}

// TestRestoreReadsNoHostCopies has copies of a later step than the checkpoint's.
func TestRestoreReadsNoHostCopies(t *testing.T) {
	job, devs := plainJob(), tinyFleet(1, 3, 1)
	old, to := planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)}), planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 2)})
	have, err := moves.Held(job, old)
	require.NoError(t, err)
	have = append(have, moves.Holding{Device: "g02", Host: have[1].Shards[:1]})
	between := func(o moves.Options) *moves.Sequence {
		m, err := moves.Between(job, devs, have, to, o)
		require.NoError(t, err)
		return m
	}
	copied := between(moves.Options{NoCheckpoint: true}).Traffic.Host
	require.Positive(t, copied)
	devs[1].State, devs[1].Speed = reconfig.Down, 0
	require.Equal(t, copied, between(moves.Options{CheckpointCurrent: true}).Traffic.Host, "they are of the same step")
	m := between(moves.Options{})
	require.True(t, m.Restore)
	require.Equal(t, m.Traffic.Total(), m.Traffic.Store)
	now, err := m.After(have, 0, 1)
	require.NoError(t, err)
	for _, h := range now {
		require.Empty(t, h.Host, "what is read now does not go with them")
	}
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

func TestBetweenReportsAllFaultsOfWhatIsGiven(t *testing.T) {
	job, devs := plainJob(), tinyFleet(1, 4, 1)
	p := planOf(stages{stageOf(0, 4, 0)})
	job.Micros, job.Reserve = 0, -1
	devs[1].ID, devs[2].Speed = devs[0].ID, 2
	_, err := moves.Between(job, devs, nil, p, moves.Options{Keep: -1, Cursor: resize.Cursor{Step: -1}})
	for _, field := range []string{"Micros", "Reserve", "devs[1].ID", "devs[2].Speed", "o.Keep", "Cursor.Step"} {
		require.ErrorContains(t, err, "moves: between: "+field)
	}
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = moves.Held(job, p)
	require.ErrorContains(t, err, "moves: held: Micros")
}

// TestSumsStopAtTheLargestNumber moves more bytes than can be counted.
func TestSumsStopAtTheLargestNumber(t *testing.T) {
	job, devs := plainJob(), tinyFleet(64, 1, 64)
	job.Model = perfmodel.Model{Layers: 16, Hidden: 1 << 22, Heads: 1, FFN: 1 << 22, Vocab: 1}
	job.Layout = perfmodel.Layout{DP: 64, Precision: perfmodel.Precision{Weight: 64, Optimizer: 64}}
	require.NoError(t, job.Validate())
	var all [][]reconfig.Stage
	for i := range devs {
		all = append(all, stages{stageOf(0, 4, i)})
	}
	old, to := planOf(all[:8]...), planOf(all...)
	for _, p := range []*reconfig.Plan{old, to} {
		for i := range p.Replicas {
			p.Replicas[i].Stages[0].Spans[0].Layers = 16
		}
		p.Digest = p.Sum()
	}
	m := movesOf(t, job, devs, old, to, moves.Options{})
	require.Positive(t, m.Kept)
	require.Positive(t, m.Traffic.Leaf)
	require.Equal(t, lockstep.Bytes(1<<63-1), m.Traffic.Total())
}

// TestReceiversShareTheLoadOfTheSlowLink brings one replica's state to a node of four
// that all need it: each is the door for a part of it.
func TestReceiversShareTheLoadOfTheSlowLink(t *testing.T) {
	job, devs := plainJob(), tinyFleet(2, 4, 1)
	job.Model.Layers = 16
	span := func(device int) []reconfig.Stage { return stages{stageOf(0, 16, device)} }
	m := movesOf(t, job, devs, planOf(span(0)), planOf(span(4), span(5), span(6), span(7)), moves.Options{})
	received := map[lockstep.DeviceID]lockstep.Bytes{}
	for _, p := range m.Phases {
		for _, tr := range p.Transfers {
			if tr.Link == moves.FabricLink {
				received[tr.To] += tr.Bytes
			}
		}
	}
	require.Len(t, received, 4)
	for id, n := range received { // each stands alone, so the order does not matter
		require.Less(t, n, m.Traffic.Fabric*2/5, "%s: a fair share is a quarter", id)
	}
}

func TestMovesThatFollowARestoreKeepWhatItRead(t *testing.T) {
	job, devs := plainJob(), tinyFleet(1, 3, 1)
	devs[1].State, devs[1].Speed = reconfig.Down, 0
	have, err := moves.Held(job, planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)}))
	require.NoError(t, err)
	to := planOf(stages{stageOf(0, 4, 0)}, stages{stageOf(0, 4, 2)})
	m, err := moves.Between(job, devs, have, to, moves.Options{})
	require.NoError(t, err)
	require.True(t, m.Restore)
	require.Len(t, m.Phases, 2, "from the checkpoint, and on to the other replica")
	now, err := m.After(have, 1, 2)
	require.NoError(t, err)
	next, err := moves.Between(job, devs, now, to, moves.Options{CheckpointCurrent: true})
	require.NoError(t, err)
	require.Zero(t, next.Traffic.Store)
	require.Equal(t, m.Traffic.Store, next.Kept)
	require.Equal(t, m.Traffic.Node, next.Traffic.Total())
}

// TestMovesThatMoveNothingAreLedThroughToo has members agree that all stays.
func TestMovesThatMoveNothingAreLedThroughToo(t *testing.T) {
	x := newTransition(t, rand.New(rand.NewPCG(1, 27)), tinyFleet(2, 4, 1), false)
	x.have, x.step = x.want, x.restored
	m, err := moves.Between(x.job, x.devs, x.have, x.to, moves.Options{NoCheckpoint: true})
	require.NoError(t, err)
	require.Empty(t, m.Phases)
	x.moves = m
	f := x.fake()
	d, err := moves.NewDriver(m, x.to)
	require.NoError(t, err)
	state, err := moves.Drive(d, f)
	require.NoError(t, err)
	require.Equal(t, moves.Done, state)
	x.requireHeld(t, f, x.want, x.step, "nothing moved")
}

// TestKeepHoldsForWhatArrives leaves less room than devices fill in the beginning.
func TestKeepHoldsForWhatArrives(t *testing.T) {
	asked, n := 0, 40
	if testing.Short() {
		n = 10
	}
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 28))
		x := newTransition(t, rng, tinyFleet(2, 4, 1), false)
		had, needs := map[lockstep.DeviceID]lockstep.Bytes{}, map[lockstep.DeviceID]lockstep.Bytes{}
		for _, h := range x.have {
			had[h.Device] = sizeOf(x.job, h.Shards)
		}
		for _, h := range x.want {
			needs[h.Device] = sizeOf(x.job, h.Shards)
		}
		keep := lockstep.Bytes(1 + rng.Int64N(64))
		for i := range x.devs {
			x.devs[i].Memory = max(had[x.devs[i].ID], needs[x.devs[i].ID]+keep)
		}
		var err error
		x.moves, err = moves.Between(x.job, x.devs, x.have, x.to, moves.Options{Keep: keep})
		require.NoError(t, err)
		for i := range x.moves.Phases {
			for done := i; done <= i+1; done++ {
				now, err := x.moves.After(x.have, done, i+1)
				require.NoError(t, err)
				for _, h := range now {
					got := sizeOf(x.job, h.Shards)
					at := slices.IndexFunc(x.devs, func(d reconfig.Device) bool { return d.ID == h.Device })
					if got > x.devs[at].Memory-keep {
						require.LessOrEqual(t, got, had[h.Device], "seed %d: %s has more than it had", seed, h.Device)
						asked++
					}
				}
			}
		}
	}
	require.NotZero(t, asked)
}

// FuzzBetween plans from holdings that anybody may have written.
func FuzzBetween(f *testing.F) {
	job, devs := plainJob(), tinyFleet(2, 2, 1)
	devs[3].State, devs[3].Speed = reconfig.Down, 0
	to := planOf(stages{stageOf(0, 2, 0), stageOf(2, 4, 1)}, stages{stageOf(0, 4, 2)})
	want, err := moves.Held(job, to)
	require.NoError(f, err)
	for i := range devs {
		devs[i].Memory = 64 << 10
	}
	f.Add([]byte(`[{"device":"g00","shards":[{"part":"optimizer","block":3,"first":5,"count":7},{"part":"optimizer","block":3,"first":2,"count":5}]}]`))
	f.Add([]byte(`[{"device":"g03","shards":[{"part":"parameters","block":-2,"count":9}]},{"device":"g02","host":[{"part":"parameters","block":-1,"count":9}]}]`))
	text, err := json.Marshal(want)
	require.NoError(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, data []byte) {
		var have []moves.Holding
		if json.Unmarshal(data, &have) != nil {
			return
		}
		for _, current := range []bool{false, true} {
			m, err := moves.Between(job, devs, have, to, moves.Options{CheckpointCurrent: current})
			if err != nil {
				return
			}
			_, err = moves.NewDriver(m, to)
			require.NoError(t, err)
			transition{moves: m, have: have}.requireSources(t)
			end, err := m.After(have, len(m.Phases), len(m.Phases))
			require.NoError(t, err)
			require.Equal(t, want, end)
		}
	})
}
