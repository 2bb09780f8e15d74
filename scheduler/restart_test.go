package scheduler_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/sim/trace"
)

// recording is a scheduler of which the log, and what each entry led to, is kept.
type recording struct {
	*scheduler.Scheduler
	t       *testing.T
	log     []scheduler.Entry
	actions map[uint64][]byte // of the steps that led to any
	points  []uint64          // at which to take snapshots, sorted
	saved   map[uint64][]byte
}

func (r *recording) Step(now time.Time) ([]lockstep.Action, error) {
	a, err := r.Scheduler.Step(now)
	if len(a) > 0 {
		data, e := json.Marshal(a)
		require.NoError(r.t, e)
		r.actions[r.Seq()] = data
	}
	r.save()
	return a, err
}

func (r *recording) Apply(e lockstep.Event) error {
	err := r.Scheduler.Apply(e)
	r.save()
	return err
}

func (r *recording) save() {
	for len(r.points) > 0 && r.points[0] <= r.Seq() {
		r.points = r.points[1:]
		var b bytes.Buffer
		require.NoError(r.t, r.Snapshot(&b))
		r.saved[r.Seq()] = b.Bytes()
	}
}

// record runs a trace and takes snapshots at random points of the log.
func record(t *testing.T, cfg scheduler.Config, in trace.SyntheticConfig, points int) *recording {
	inputs := 0
	probe := cfg
	probe.Log = func(scheduler.Entry) { inputs++ }
	_, err := sim.Run(sim.Config{Tree: cfg.Tree, Latency: time.Second}, jobs(t, in), newScheduler(t, probe))
	require.NoError(t, err)

	rng := rand.New(rand.NewPCG(in.Seed, uint64(points)))
	r := &recording{t: t, actions: make(map[uint64][]byte), saved: make(map[uint64][]byte)}
	for range points {
		r.points = append(r.points, 1+rng.Uint64N(uint64(inputs)))
	}
	slices.Sort(r.points)
	r.points = slices.Compact(r.points)
	cfg.Log = func(e scheduler.Entry) { r.log = append(r.log, e) }
	r.Scheduler = newScheduler(t, cfg)
	_, err = sim.Run(sim.Config{Tree: cfg.Tree, Latency: time.Second}, jobs(t, in), r)
	require.NoError(t, err)
	require.Len(t, r.log, inputs, "the same trace leads to the same inputs")
	return r
}

// TestRestartContinuesBitForBit restores snapshots taken at random points under
// every rule, replays the log behind them, read back from its JSON form, and
// compares all decisions; from every tenth to the end.
func TestRestartContinuesBitForBit(t *testing.T) {
	total, ahead := 1000, 120
	if testing.Short() {
		total = 50
	}
	cases := []scheduler.Config{
		{},
		{Inside: scheduler.MostOwed, Round: 1},
		{Inside: scheduler.First, Backfill: 4},
		{Rule: scheduler.FIFO},
		{Rule: scheduler.SRTF, Round: time.Minute},
		{Rule: scheduler.LAS, StartAtOnce: true},
		{Rule: scheduler.Static},
		{Floor: 600_000},
		{Floor: 900_000, Quantum: 10 * time.Minute, Term: time.Minute, Band: time.Hour, Round: time.Second},
	}
	restarts := 0
	for i, cfg := range cases {
		cfg.Tree, cfg.Retain = cluster(t, 4), 16
		in := trace.SyntheticConfig{Seed: uint64(i + 1), Span: 16 * time.Hour, GPUs: 32, Load: 1100, Tenants: 4}
		r := record(t, cfg, in, (total+len(cases)-1)/len(cases)+20)
		log, err := json.Marshal(r.log)
		require.NoError(t, err)
		var read []scheduler.Entry
		require.NoError(t, json.Unmarshal(log, &read))
		for seq, data := range r.saved { // the order does not matter: each stands alone
			s, err := scheduler.Restore(cfg, bytes.NewReader(data))
			require.NoError(t, err)
			require.Equal(t, seq, s.Seq())
			rest := read[seq:]
			if restarts%10 != 0 && len(rest) > ahead {
				rest = rest[:ahead]
			}
			replay(t, s, r, rest)
			restarts++
		}
	}
	require.GreaterOrEqual(t, restarts, total)
	t.Logf("%d restarts", restarts)
}

func replay(t *testing.T, s *scheduler.Scheduler, r *recording, rest []scheduler.Entry) {
	for _, e := range rest {
		a, err := s.Replay(e)
		require.NoError(t, err)
		var got []byte
		if len(a) > 0 {
			got, err = json.Marshal(a)
			require.NoError(t, err)
		}
		if want := r.actions[e.Seq]; !bytes.Equal(want, got) {
			require.Equal(t, string(want), string(got), "entry %d of a run restored at %d", e.Seq, r.log[0].Seq)
		}
	}
}

func TestReplayRefusesGapsAndRepeats(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1)})
	_, err := s.Replay(scheduler.Entry{Seq: 2, Step: at(0)})
	require.ErrorIs(t, err, lockstep.ErrConflict)
	_, err = s.Replay(scheduler.Entry{Seq: 1, Step: at(0)})
	require.NoError(t, err)
	_, err = s.Replay(scheduler.Entry{Seq: 1, Step: at(0)})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
}

func TestRestoreRefusesWhatIsNotItsOwn(t *testing.T) {
	cfg := scheduler.Config{Tree: cluster(t, 2)}
	s := newScheduler(t, cfg)
	submit(t, s, at(0), gangOf("a", "t", 8, time.Hour), gangOf("b", "t", 8, time.Hour), gangOf("c", "u", 8, time.Hour))
	confirm(t, s, step(t, s, at(0)))
	var b bytes.Buffer
	require.NoError(t, s.Snapshot(&b))
	data := b.Bytes()

	restore := func(r io.Reader) error {
		_, err := scheduler.Restore(cfg, r)
		return err
	}
	snapshottest.PassesFaultsOn(t, s.Snapshot, restore)
	for i := 0; i < len(data); i += 1 + len(data)/97 {
		require.ErrorIs(t, restore(bytes.NewReader(data[:i])), lockstep.ErrInvalid, "cut at %d", i)
		bad := bytes.Clone(data)
		bad[i] ^= 1
		require.ErrorIs(t, restore(bytes.NewReader(bad)), lockstep.ErrInvalid, "changed at %d", i)
	}
	other := cfg
	other.Rule = scheduler.FIFO
	_, err := scheduler.Restore(other, bytes.NewReader(data))
	require.ErrorIs(t, err, lockstep.ErrConflict)
	other = cfg
	other.Tree = cluster(t, 3)
	_, err = scheduler.Restore(other, bytes.NewReader(data))
	require.ErrorIs(t, err, lockstep.ErrConflict)
}

// TestRestoreRefusesPartsThatDisagree forges snapshots with a right checksum.
func TestRestoreRefusesPartsThatDisagree(t *testing.T) {
	cfg := scheduler.Config{Tree: cluster(t, 2), StartAtOnce: true}
	s := newScheduler(t, cfg)
	empty := parts(t, s)
	submit(t, s, at(0), gangOf("a", "t", 8, time.Hour))
	require.Len(t, step(t, s, at(0)), 1)
	full := parts(t, s)
	part := func(name string) [2]string { return [2]string{field(name, full[name]), field(name, empty[name])} }
	restore := func(r io.Reader) error {
		_, err := scheduler.Restore(cfg, r)
		return err
	}
	snapshottest.RefusesForgeries(t, "lockstep/scheduler", 1, snapshottest.Save(t, s.Snapshot), restore, [][2]string{
		part("jobs"), part("room"), part("gangs"), part("lives"), part("policy"), part("leases"),
		{`"on":true,`, ``},
		{`"on":true,`, `"on":true,"retry":true,`},
		{`"gang":`, `"gone":true,"gang":`},
		{`"gang":`, `"gong":`},
		{`"gone":[]`, `"gone":["a"]`},
	})
}

func field(name string, value json.RawMessage) string {
	return strconv.Quote(name) + ":" + string(value)
}

// parts takes a snapshot apart.
func parts(t *testing.T, s *scheduler.Scheduler) map[string]json.RawMessage {
	var out map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(snapshottest.Body(t, snapshottest.Save(t, s.Snapshot)), &out))
	return out
}
