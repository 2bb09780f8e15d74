package movestest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
)

// Subject is an executor under test, and what a test has to know of it. Content is
// one number for each parameter; a subject with real tensors keeps the number in
// place of them.
type Subject interface {
	moves.Executor
	// Load puts state onto devices, each parameter with the content Tag of the step.
	Load(have []moves.Holding, step uint8)
	// Derive gives a device the moves that it has derived by itself.
	Derive(id lockstep.DeviceID, m *moves.Sequence)
	// Lose takes a device away.
	Lose(id lockstep.DeviceID)
	// Read returns the content of a shard, 0 for each parameter that a device does not hold.
	Read(id lockstep.DeviceID, s moves.Shard) []uint64
	// Used returns how many bytes of state a device holds.
	Used(id lockstep.DeviceID) lockstep.Bytes
}

// steps of what devices and the checkpoint hold.
const (
	liveStep  = 9
	savedStep = 8
)

// TestExecutor runs the conformance tests against executors that newSubject makes,
// each for the job and devices of a bench and with no state.
func TestExecutor(t *testing.T, newSubject func(t *testing.T, b Bench) Subject) {
	t.Helper()
	for _, c := range changes() {
		t.Run(c.name, func(t *testing.T) {
			for _, tt := range []struct {
				name string
				run  func(t *testing.T, s *scene)
			}{
				{"every byte arrives", arrives},
				{"another digest is refused", otherDigest},
				{"the order is kept", keepsOrder},
				{"abort forgets", abortForgets},
				{"there is no way back from a commit", noWayBack},
				{"the same action again does nothing", again},
				{"a lost device is gone", gone},
				{"a halt leaves what is certain", haltsAnywhere},
				{"the same moves may come again", haltsTwice},
				{"an abort works after a finish of the same moves", abortsLater},
			} {
				t.Run(tt.name, func(t *testing.T) {
					tt.run(t, c.scene(t, newSubject))
				})
			}
		})
	}
}

// change is a change of plan.
type change struct {
	name    string
	job     reconfig.Job
	old, to *reconfig.Plan
	down    []int
	tight   bool // devices have just what they need before or after
}

// scene is a change on a fresh subject.
type scene struct {
	change
	new     func(t *testing.T, b Bench) Subject
	bench   Bench
	subject Subject
	have    []moves.Holding
	want    []moves.Holding
	moves   *moves.Sequence
	step    uint8 // of the state before
	after   uint8 // of the state in the end
}

func job(tp, dp, zero int) reconfig.Job {
	return reconfig.Job{
		Model:  perfmodel.Model{Layers: 4, Hidden: 8, Heads: 4, KVHeads: 2, FFN: 16, Vocab: 16, Tied: true},
		Layout: perfmodel.Layout{TP: tp, DP: dp, ZeRO: zero},
		Micros: 4,
		Costs:  reconfig.Costs{Layer: reconfig.Cost{Forward: time.Millisecond, Backward: time.Millisecond}},
	}
}

func name(i int) lockstep.DeviceID { return lockstep.DeviceID(fmt.Sprintf("gpu-%d", i)) }

// stage is a stage of layers first to end-1 on devices.
func stage(first, end int, devices ...int) reconfig.Stage {
	s := reconfig.Stage{Spans: []reconfig.Span{{First: first, Layers: end - first}}}
	for _, d := range devices {
		s.Devices = append(s.Devices, name(d))
	}
	return s
}

func plan(replicas ...[]reconfig.Stage) *reconfig.Plan {
	p := &reconfig.Plan{Version: 1}
	for i, stages := range replicas {
		p.Replicas = append(p.Replicas, reconfig.Replica{Number: i, Stages: stages})
		p.Split = append(p.Split, 1)
	}
	p.Digest = p.Sum()
	return p
}

// changes are those that every executor is tested with.
func changes() []change {
	type stages = []reconfig.Stage
	return []change{
		{
			name: "degree and layers change", job: job(4, 2, 0),
			old:  plan(stages{stage(0, 2, 0, 1, 2, 3), stage(2, 4, 4, 5)}, stages{stage(0, 3, 6, 7), stage(3, 4, 8)}),
			to:   plan(stages{stage(0, 1, 0, 1), stage(1, 4, 4, 5, 6, 7)}, stages{stage(0, 4, 2, 3)}),
			down: []int{8},
		},
		{
			name: "a replica less shares the optimizer", job: job(2, 3, 1),
			old:  plan(stages{stage(0, 4, 0, 1)}, stages{stage(0, 4, 2, 3)}, stages{stage(0, 4, 4)}),
			to:   plan(stages{stage(0, 4, 0, 1)}, stages{stage(0, 4, 3)}),
			down: nil,
		},
		{
			name: "a full swap goes through host memory", job: job(1, 1, 0), tight: true,
			old: plan(stages{stage(0, 2, 0), stage(2, 4, 4)}),
			to:  plan(stages{stage(0, 2, 4), stage(2, 4, 0)}),
		},
		{
			name: "a lost stage is read from the checkpoint", job: job(2, 1, 0),
			old:  plan(stages{stage(0, 2, 0, 1), stage(2, 4, 4)}),
			to:   plan(stages{stage(0, 1, 1), stage(1, 4, 2, 3)}),
			down: []int{4},
		},
	}
}

// scene builds the change on a fresh subject.
func (c change) scene(t *testing.T, newSubject func(t *testing.T, b Bench) Subject) *scene {
	t.Helper()
	s := &scene{change: c, new: newSubject, step: liveStep, after: liveStep}
	var err error
	s.have, err = moves.Held(c.job, c.old)
	require.NoError(t, err)
	s.want, err = moves.Held(c.job, c.to)
	require.NoError(t, err)
	devs := make([]reconfig.Device, 9)
	for i := range devs {
		devs[i] = reconfig.Device{
			ID: name(i), Node: lockstep.NodeID(fmt.Sprintf("node-%d", i/4)), Leaf: fmt.Sprintf("leaf-%d", i/8), Speed: 1,
		}
		if slices.Contains(c.down, i) {
			devs[i].State, devs[i].Speed = reconfig.Down, 0
		}
		if c.tight {
			devs[i].Memory = max(1, s.bytes(t, s.have, devs[i].ID), s.bytes(t, s.want, devs[i].ID))
		}
	}
	s.moves, err = moves.Between(c.job, devs, s.have, c.to, moves.Options{})
	require.NoError(t, err)
	require.Equal(t, c.tight, s.moves.Staged > 0)
	if s.moves.Restore {
		s.after = savedStep
	}
	s.bench = Bench{Job: c.job, Devices: devs, Stored: func(p moves.Part, b moves.Block, i int64) uint64 { return Tag(savedStep, p, b, i) }}
	s.reset(t)
	return s
}

// reset puts everything back to where it began.
func (s *scene) reset(t *testing.T) {
	t.Helper()
	s.subject = s.new(t, s.bench)
	s.subject.Load(s.have, liveStep)
	for _, d := range s.bench.Devices {
		if d.State == reconfig.Down {
			s.subject.Lose(d.ID)
		}
		s.subject.Derive(d.ID, s.moves)
	}
}

func (s *scene) bytes(t *testing.T, list []moves.Holding, id lockstep.DeviceID) lockstep.Bytes {
	t.Helper()
	one, err := s.job.Layout.Precision.States(1, 0, 1)
	require.NoError(t, err)
	n := lockstep.Bytes(0)
	for _, h := range list {
		for _, sh := range h.Shards {
			if h.Device != id {
				continue
			}
			if sh.Part == moves.Parameters {
				n += one.Weights * lockstep.Bytes(sh.Count)
			} else {
				n += (one.Optimizer + one.Master) * lockstep.Bytes(sh.Count)
			}
		}
	}
	return n
}

// holds checks that live devices hold what list says, and nothing else.
func (s *scene) holds(t *testing.T, list []moves.Holding, step uint8) {
	t.Helper()
	for _, d := range s.bench.Devices {
		if d.State == reconfig.Down {
			continue
		}
		require.Equal(t, s.bytes(t, list, d.ID), s.subject.Used(d.ID), "bytes of state on %s", d.ID)
		for _, h := range list {
			if h.Device != d.ID {
				continue
			}
			for _, sh := range h.Shards {
				want := make([]uint64, sh.Count)
				for i := range want {
					want[i] = Tag(step, sh.Part, sh.Block, sh.First+int64(i))
				}
				require.Equal(t, want, s.subject.Read(d.ID, sh), "%s %v", d.ID, sh)
			}
		}
	}
}

// driver returns a fresh driver.
func (s *scene) driver(t *testing.T) *moves.Driver {
	t.Helper()
	d, err := moves.NewDriver(s.moves, s.to)
	require.NoError(t, err)
	return d
}

// play steps a driver, one action after the other, as long as f says so.
func (s *scene) play(t *testing.T, d *moves.Driver, f func(a moves.Action) bool) {
	t.Helper()
	queue, err := d.Step(moves.Report{})
	require.NoError(t, err)
	for len(queue) > 0 && f(queue[0]) {
		a := queue[0]
		require.NoError(t, s.subject.Do(a), "%+v", a)
		more, err := d.Step(moves.Report{Kind: moves.ReportDone, Device: a.Device, Action: a})
		require.NoError(t, err)
		queue = append(queue[1:], more...)
	}
}

func arrives(t *testing.T, s *scene) {
	state, err := moves.Drive(s.driver(t), s.subject)
	require.NoError(t, err)
	require.Equal(t, moves.Done, state)
	s.holds(t, s.want, s.after)
}

func otherDigest(t *testing.T, s *scene) {
	d := s.driver(t)
	id := d.Members()[0]
	a := moves.Action{Kind: moves.DoPrepare, Device: id, Digest: reconfig.Digest{1}}
	require.Error(t, s.subject.Do(a))
	a.Kind = moves.DoCommit
	require.Error(t, s.subject.Do(a))
	other := *s.moves
	other.Cursor.Step++
	other.Digest = other.Sum()
	s.subject.Derive(id, &other)
	state, err := moves.Drive(d, s.subject)
	require.NoError(t, err)
	require.Equal(t, moves.Aborted, state)
	s.holds(t, s.have, liveStep)
}

func keepsOrder(t *testing.T, s *scene) {
	for _, id := range s.driver(t).Members() {
		for _, kind := range []moves.ActionKind{moves.DoCommit, moves.DoMakeRoom, moves.DoTransfer, moves.DoFinish, "dance"} {
			require.Error(t, s.subject.Do(moves.Action{Kind: kind, Device: id, Digest: s.moves.Digest}), "%s before prepare", kind)
		}
		a := moves.Action{Kind: moves.DoPrepare, Device: id, Digest: s.moves.Digest}
		require.NoError(t, s.subject.Do(a))
		for _, kind := range []moves.ActionKind{moves.DoMakeRoom, moves.DoTransfer, moves.DoFinish} {
			a.Kind = kind
			require.Error(t, s.subject.Do(a), "%s before commit", kind)
		}
	}
	s.holds(t, s.have, liveStep)
}

func abortForgets(t *testing.T, s *scene) {
	for _, id := range s.driver(t).Members() {
		a := moves.Action{Kind: moves.DoAbort, Device: id, Digest: s.moves.Digest}
		require.NoError(t, s.subject.Do(a), "abort where nothing is prepared")
		a.Kind = moves.DoPrepare
		require.NoError(t, s.subject.Do(a))
		a.Kind = moves.DoAbort
		require.NoError(t, s.subject.Do(a))
		a.Kind = moves.DoCommit
		require.Error(t, s.subject.Do(a), "commit after abort")
	}
	s.holds(t, s.have, liveStep)
	arrives(t, s)
}

func noWayBack(t *testing.T, s *scene) {
	s.play(t, s.driver(t), func(a moves.Action) bool {
		return a.Kind == moves.DoPrepare || a.Kind == moves.DoCommit
	})
	for _, id := range s.driver(t).Members() {
		require.Error(t, s.subject.Do(moves.Action{Kind: moves.DoAbort, Device: id, Digest: s.moves.Digest}))
		other := *s.moves
		other.Cursor.Step++
		other.Digest = other.Sum()
		require.Error(t, s.subject.Do(moves.Action{Kind: moves.DoPrepare, Device: id, Digest: other.Digest}))
	}
	s.holds(t, s.have, liveStep)
}

func again(t *testing.T, s *scene) {
	s.play(t, s.driver(t), func(a moves.Action) bool {
		require.NoError(t, s.subject.Do(a), "%+v", a)
		require.NoError(t, s.subject.Do(a), "%+v again", a)
		return true
	})
	s.holds(t, s.want, s.after)
}

func gone(t *testing.T, s *scene) {
	d := s.driver(t)
	id := d.Members()[0]
	s.subject.Lose(id)
	a := moves.Action{Kind: moves.DoPrepare, Device: id, Digest: s.moves.Digest}
	require.ErrorIs(t, s.subject.Do(a), moves.ErrGone)
	state, err := moves.Drive(d, s.subject)
	require.NoError(t, err)
	require.Equal(t, moves.Aborted, state)
}

// abortsLater prepares and aborts moves that were made before, as when a plan comes
// back that was in force already.
func abortsLater(t *testing.T, s *scene) {
	arrives(t, s)
	for _, id := range s.driver(t).Members() {
		a := moves.Action{Kind: moves.DoPrepare, Device: id, Digest: s.moves.Digest}
		require.NoError(t, s.subject.Do(a))
		a.Kind = moves.DoAbort
		require.NoError(t, s.subject.Do(a), "it is prepared only")
	}
	s.holds(t, s.want, s.after)
}

// haltsAnywhere fails at each action after the commits, and checks what is left.
func haltsAnywhere(t *testing.T, s *scene) {
	for stop := 0; ; stop++ {
		s.reset(t)
		d := s.driver(t)
		if !s.halt(t, d, stop) {
			require.Equal(t, moves.Done, d.State())
			return
		}
		s.next(t, d).leadOn(t)
	}
}

// haltsTwice fails at the same place twice: the moves that lead on from the first halt
// may be the very same, with the same digest.
func haltsTwice(t *testing.T, s *scene) {
	for stop := range 24 {
		s.reset(t)
		d := s.driver(t)
		if !s.halt(t, d, stop) {
			return
		}
		next := s.next(t, d)
		if d = next.driver(t); next.halt(t, d, stop) {
			next.next(t, d).leadOn(t)
		}
	}
}

// halt plays until so many actions after the commits are done, and has the next one
// fail; false if there is none.
func (s *scene) halt(t *testing.T, d *moves.Driver, after int) bool {
	t.Helper()
	n := 0
	var failed moves.Action
	s.play(t, d, func(a moves.Action) bool {
		if a.Kind != moves.DoPrepare && a.Kind != moves.DoCommit {
			n++
		}
		failed = a
		return n <= after
	})
	if n <= after {
		return false
	}
	queue, err := d.Step(moves.Report{Kind: moves.ReportFailed, Device: failed.Device, Action: failed})
	require.NoError(t, err)
	for _, a := range queue {
		require.NoError(t, s.subject.Do(a), "%+v", a)
		require.NoError(t, s.subject.Do(a), "%+v again", a)
		_, err := d.Step(moves.Report{Kind: moves.ReportDone, Device: a.Device, Action: a})
		require.NoError(t, err)
	}
	require.Equal(t, moves.Halted, d.State())
	return true
}

// next checks what devices hold after a halt, and plans from there.
func (s *scene) next(t *testing.T, d *moves.Driver) *scene {
	t.Helper()
	next := *s
	done, begun := d.Progress()
	var err error
	next.have, err = s.moves.After(s.have, done, begun)
	require.NoError(t, err)
	if s.moves.Restore && begun > 0 {
		next.step = savedStep
	}
	next.holds(t, next.have, next.step)
	next.moves, err = moves.Between(s.job, s.bench.Devices, next.have, s.to, moves.Options{})
	require.NoError(t, err)
	if !s.moves.Restore {
		require.Empty(t, next.moves.Lost, "a halt loses nothing")
	}
	if next.after = next.step; next.moves.Restore {
		next.after = savedStep
	}
	for _, dev := range s.bench.Devices {
		s.subject.Derive(dev.ID, next.moves)
	}
	return &next
}

// leadOn goes to the plan.
func (s *scene) leadOn(t *testing.T) {
	t.Helper()
	state, err := moves.Drive(s.driver(t), s.subject)
	require.NoError(t, err)
	require.Equal(t, moves.Done, state)
	s.holds(t, s.want, s.after)
}
