package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

func TestReconsiderTriesEverybodyAgain(t *testing.T) {
	quota := newLedger(1)
	a := admission(t, placertest.NewReference(1, 2, 1, 0), gang.Config{Quota: quota})
	require.NoError(t, a.Submit(at(0), plain("pair", 2, 0)))
	require.Empty(t, step(t, a, 0))
	quota.limit = 2 // nobody tells a
	require.Empty(t, step(t, a, 1))
	require.NoError(t, a.Reconsider(at(1)))
	require.Equal(t, []string{"reserve pair"}, summary(step(t, a, 1)))
}

func TestWindowsCanEndEarly(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 1, 1, 0), gang.Config{})
	w := gang.Window{Name: "w", Nodes: []lockstep.NodeID{"n0"}, From: at(0), To: at(1000)}
	require.NoError(t, a.Reserve(at(0), w))
	require.ErrorIs(t, a.Reserve(at(0), w), lockstep.ErrDuplicate)
	require.ErrorIs(t, a.Reserve(at(0), gang.Window{Name: "x", From: at(0), To: at(1)}), lockstep.ErrInvalid, "no nodes")
	require.NoError(t, a.Reserve(at(5), gang.Window{Name: "past", Nodes: w.Nodes, From: at(0), To: at(5)}))
	require.NoError(t, a.Submit(at(5), plain("a", 1, 10)))
	require.Empty(t, step(t, a, 5))
	start, ok := forecast(a, "a")
	require.True(t, ok)
	require.Equal(t, 1000, seconds(start))
	wake, ok := a.NextWake(at(5))
	require.True(t, ok)
	require.Equal(t, 1000, seconds(wake))
	windows := a.AppendWindows(nil)
	require.Len(t, windows, 1)
	require.Equal(t, "w", windows[0].Name)
	require.NoError(t, a.Unreserve(at(6), "w"))
	require.Equal(t, []string{"reserve a"}, summary(step(t, a, 6)))
}

func TestAdoptRefusesWhatIsNoPlan(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 1, 1, 0), gang.Config{})
	g := plain("a", 1, 0)
	good := lockstep.Plan{Job: "a", Gang: g, Members: []lockstep.Member{{Node: "n0", Devices: 1}}}
	for name, change := range map[string]func(*lockstep.Plan){ // the order does not matter
		"no gang":      func(p *lockstep.Plan) { p.Gang = nil },
		"another job":  func(p *lockstep.Plan) { p.Job = "b" },
		"no members":   func(p *lockstep.Plan) { p.Members = nil },
		"no such role": func(p *lockstep.Plan) { p.Members = []lockstep.Member{{Role: 3}} },
		"invalid gang": func(p *lockstep.Plan) { p.Gang = &lockstep.Gang{ID: "a"} },
	} {
		p := good
		change(&p)
		require.ErrorIs(t, a.Adopt(at(0), &p, at(0)), lockstep.ErrInvalid, name)
	}
	require.ErrorIs(t, a.Adopt(at(0), nil, at(0)), lockstep.ErrInvalid)
	require.ErrorIs(t, a.Adopt(at(0), &good, at(1)), lockstep.ErrInvalid, "started later")
	require.Empty(t, a.AppendJobs(nil))
}

// tally is a Recorder that adds up.
type tally struct {
	counts map[string]int64
	waits  []float64
	queued float64
}

func (r *tally) Count(m lockstep.Metric, l lockstep.MetricLabels, n int64) {
	r.counts[string(m)+" "+string(l.Reason)] += n
}
func (r *tally) Gauge(_ lockstep.Metric, _ lockstep.MetricLabels, v float64) { r.queued = v }
func (r *tally) Observe(_ lockstep.Metric, _ lockstep.MetricLabels, v float64) {
	r.waits = append(r.waits, v)
}

func TestWhatIsMeasured(t *testing.T) {
	r := &tally{counts: map[string]int64{}}
	w := newWorld(t, placertest.NewReference(1, 2, 1, 0), gang.Config{Recorder: r, Hold: time.Minute})
	w.submit(0, plain("a", 2, 10), plain("b", 2, 10), plain("c", 2, 10))
	w.run(15)
	require.Equal(t, []float64{0, 10}, r.waits)
	require.Equal(t, 1.0, r.queued)
	require.Equal(t, int64(2), r.counts["gang_actions_total start"])
	require.Equal(t, int64(2), r.counts["gang_actions_total reserve"])
	require.NotZero(t, r.counts["gang_tries_total "])
}

// What failed once is not tried again until room is freed, and one of a shape
// stands for all.
func TestKnownFailuresAreNotTried(t *testing.T) {
	r := &tally{counts: map[string]int64{}}
	a := admission(t, placertest.NewReference(1, 2, 1, 0), gang.Config{Recorder: r, StartAtOnce: true})
	require.NoError(t, a.Submit(at(0), plain("a", 2, 100)))
	step(t, a, 0)
	tries := func() int64 {
		n := r.counts["gang_tries_total "]
		r.counts["gang_tries_total "] = 0
		return n
	}
	require.Equal(t, int64(1), tries())
	for n := range 100 {
		require.NoError(t, a.Submit(at(1), plain(lockstep.JobID("j"+string(rune('a'+n%26))+string(rune('a'+n/26))), 1+n%2, 10)))
		step(t, a, 1)
	}
	require.Equal(t, int64(2), tries(), "two shapes")
	require.NoError(t, a.Finish(at(2), "a", 0))
	step(t, a, 2)
	require.LessOrEqual(t, tries(), int64(6))
}

// A gang that will wait for others to leave may not be counted on to end in time.
func TestRoomBeingLeftIsNoRoomForBackfill(t *testing.T) {
	p := placertest.NewReference(1, 3, 1, 0)
	o := &listed{list: ids{"a", "h", "w"}}
	a := admission(t, p, gang.Config{Orderer: o, StartAtOnce: true})
	long := plain("a", 1, 50)
	require.NoError(t, a.Submit(at(0), long))
	require.NoError(t, a.Submit(at(0), holder("h", 2, 0)))
	step(t, a, 0)
	require.NoError(t, a.Submit(at(10), plain("w", 1, 40)))
	require.NoError(t, a.Due(at(10), "h", 0))
	o.list = ids{"w", "h"}
	require.Equal(t, []string{"evict h term"}, summary(step(t, a, 10)))
	require.NoError(t, a.Submit(at(11), plain("head", 3, 10)))
	require.NoError(t, a.Submit(at(11), plain("tiny", 1, 1)))
	o.list = ids{"head", "tiny", "h"}
	require.Empty(t, step(t, a, 11), "n2 is free, but h is still there and nobody knows for how long")
	require.NoError(t, a.Evicted(at(12), "h", 0))
	require.Equal(t, []string{"start w", "start tiny"}, summary(step(t, a, 12)))
}

func TestACordonedNodeTakesNobodyNew(t *testing.T) {
	a := admission(t, placertest.NewReference(1, 2, 1, 0), gang.Config{StartAtOnce: true})
	require.NoError(t, a.Submit(at(0), plain("a", 1, 0)))
	step(t, a, 0)
	require.NoError(t, a.Cordon(at(1), "n0"))
	require.NoError(t, a.Cordon(at(1), "n1"))
	require.NoError(t, a.Down(at(1), "n1"))
	require.NoError(t, a.Submit(at(1), plain("b", 1, 0)))
	require.Empty(t, step(t, a, 1), "a stays, b does not start")
	require.NoError(t, a.Up(at(2), "n1"))
	require.Empty(t, step(t, a, 2), "still cordoned")
	require.NoError(t, a.Open(at(3), "n1"))
	require.Equal(t, []string{"start b"}, summary(step(t, a, 3)))
}
