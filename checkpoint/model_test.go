package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The model checker below drives Coordinator and Agent themselves through every
// interleaving of a small job. The network is the set of all messages that were
// ever sent: any of them may be delivered at any time, again, or never, which is
// loss, repetition and reordering without bound. A timer may ring whenever it
// is set. At most one thing of the kinds below goes wrong in a run.
type mishap int

const (
	mishapLeader mishap = 1 << iota // the leader dies, at any action; a successor comes some time
	mishapZombie                    // a successor comes although the leader lives
	mishapTarget                    // a target dies
	mishapNode                      // an agent and its target die
	mishapAgent                     // an agent dies, at any action, and comes back with its record
	mishapDriver                    // a call fails, in any of several ways
	mishapSave                      // a save fails
	mishapLedger                    // a commit is lost, or its answer is, or the ledger does not answer
	mishapAll    = 1<<iota - 1
)

const (
	maxModel = 3
	base     = int64(1) << 40 // every node's clock, between two steps
)

type modelConfig struct {
	ranks   int
	req     Request
	mishaps mishap
	budget  int // how many of them
	defect  defect
	quiet   int // every state whose hash is a multiple has its ranks left alone to see that they come back
	limit   int
}

// plant is one target and what is under way at its agent.
type plant struct {
	state    State
	dead     bool
	killed   bool
	locked   bool // it was ever locked in this epoch
	undone   bool // and unlocked
	saved    bool // it has an image of the epoch
	locks    int8
	unlocks  int8
	late     ActionKind // a call that outlived its context and has not taken effect
	call     ActionKind // under way
	callOp   uint64
	save     uint64 // under way
	record   rankImage
	agentOff bool
}

type world struct {
	cfg     *modelConfig
	agents  [maxModel]Agent
	plants  [maxModel]plant
	leaders [2]*Coordinator
	record  leaderImage
	ledger  [2]ActionKind // under way at each leader
	ledgeOp [2]uint64
	settles [maxModel]uint64
	down    [2]bool
	fence   Term
	commit  *Manifest
	net     [maxModel]uint64 // by rank, the messages ever sent to or from it
	left    int
	wrong   string // an invariant that a step broke
}

// post is the table of messages by key.
type post struct {
	index map[string]int
	list  []Message
	up    []bool // whether it goes to a leader
}

type checker struct {
	cfg  modelConfig
	post post
	seen map[[2]uint64]struct{}
	buf  []byte
	keys []byte
	free []*world
	out  []Action

	scratch       Agent
	before, after []byte
	edges         int
}

func modelAgent(rank int, d defect) Agent {
	a, err := NewAgent(AgentConfig{Job: "j", Rank: rank, Poll: 1, Stuck: time.Hour, Tries: 3})
	if err != nil {
		panic(err)
	}
	a.now, a.defect = base, d
	return *a
}

func modelLeader(cfg *modelConfig, term Term, rec *leaderImage) *Coordinator {
	c, err := New(Config{
		Job: "j", Ranks: cfg.ranks, Term: term, LockTimeout: 10, SaveTimeout: 10, FinishTimeout: 10, MaxPause: 10,
		Silence: 10, Resend: 5, MaxAborts: 1000,
	})
	if err != nil {
		panic(err)
	}
	c.cfg.Resend = 50 // a repeated word is in the network already
	c.now, c.defect = base, cfg.defect
	if rec != nil {
		c.epoch, c.open, c.req, c.stopped = rec.Epoch, rec.Open, rec.Request, rec.Stopped
		if c.open {
			c.stage = stageRecover
		}
	}
	return c
}

func (k *checker) start() *world {
	w := &world{cfg: &k.cfg, left: k.cfg.budget}
	for i := range k.cfg.ranks {
		w.agents[i] = modelAgent(i, k.cfg.defect)
		w.plants[i].state = Running
		w.plants[i].record = w.agents[i].rankRecord()
	}
	w.leaders[0] = modelLeader(&k.cfg, 1, nil)
	k.leader(w, 0, &Event{Kind: EventStart, Request: k.cfg.req}, 0, -1)
	return w
}

// clone copies w into a world that nobody needs any more.
func (k *checker) clone(w *world) *world {
	var c *world
	if n := len(k.free); n > 0 {
		c, k.free = k.free[n-1], k.free[:n-1]
	} else {
		c = new(world)
	}
	old := c.leaders
	*c = *w
	for i, l := range w.leaders {
		if l == nil {
			continue
		}
		d := old[i]
		if d == nil {
			d = new(Coordinator)
		}
		seats, out := d.seats, d.out
		*d = *l
		d.seats, d.out = append(seats[:0], l.seats...), out[:0]
		c.leaders[i] = d
	}
	return c
}

// leader has a leader take an event at its clock plus wait, and begins what it
// wants; but only the first cut actions if cut is not negative, and then it is
// dead.
func (k *checker) leader(w *world, i int, e *Event, wait int64, cut int) int {
	c := w.leaders[i]
	c.out = c.out[:0]
	c.take(c.now+wait, e)
	out := c.out
	for n := range out {
		if n == cut {
			break
		}
		switch act := &out[n]; act.Kind {
		case ActionSend:
			k.mail(w, &act.Message)
		case ActionRecord:
			if i == 0 && w.leaders[1] == nil || i == 1 {
				w.record = c.image()
			}
		case ActionCommit, ActionSettle:
			w.ledger[i], w.ledgeOp[i] = act.Kind, act.Op
		case ActionReport:
			w.reported(act.Report)
		}
	}
	if cut >= 0 {
		w.leaders[i], w.down[i], w.ledger[i] = nil, true, 0
		return len(out)
	}
	c.rebase()
	return len(out)
}

func (c *Coordinator) rebase() {
	d := c.now - base
	c.now = base
	for _, t := range []*int64{&c.deadline, &c.resend, &c.began} {
		if *t != 0 && *t < 1<<62 {
			*t = max(*t-d, 1)
		}
	}
}

func (k *checker) agent(w *world, r int, e *Event, wait int64, cut int) int {
	a, p := &w.agents[r], &w.plants[r]
	a.out = k.out[:0]
	a.take(a.now+wait, e)
	out := a.out
	for n := range out {
		if n == cut {
			break
		}
		switch act := &out[n]; act.Kind {
		case ActionSend:
			k.mail(w, &act.Message)
		case ActionRecord:
			p.record = a.rankRecord()
		case ActionSave:
			p.save = act.Op
		case ActionCancel:
		case ActionSettle:
			w.settles[r] = act.Op
		case ActionKill:
			p.call, p.callOp = act.Kind, act.Op
			if w.commit == nil {
				w.fail("rank %d is terminated before the commit", r)
			}
		default:
			p.call, p.callOp = act.Kind, act.Op
		}
	}
	k.out, a.out = out, nil
	if cut >= 0 {
		w.restart(r)
		return len(out)
	}
	a.rebase()
	return len(out)
}

// restart brings an agent back with its record; a call that was under way goes
// on in the driver.
func (w *world) restart(r int) {
	p := &w.plants[r]
	if p.call == ActionLock || p.call == ActionSuspend || p.call == ActionResume || p.call == ActionUnlock {
		p.late = p.call
	}
	p.call, p.save, w.settles[r] = 0, 0, 0
	a := modelAgent(r, w.cfg.defect)
	a.adopt(&p.record)
	w.agents[r] = a
}

func (a *Agent) rebase() {
	d := a.now - base
	a.now = base
	for _, t := range []*int64{&a.word, &a.since, &a.undoing, &a.retry} {
		if *t != 0 {
			*t = max(*t-d, 1)
		}
	}
	a.out = nil
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// reported checks what a leader says against what is so.
func (w *world) reported(r *Report) {
	if r.Outcome == OutcomeHeld || r.Outcome == OutcomeFenced {
		return
	}
	if (r.Outcome == OutcomeCommitted) != (w.commit != nil) {
		w.fail("reported %s, and the ledger has %v", r.Outcome, w.commit)
	}
	bad := map[int]bool{}
	for _, f := range r.Broken {
		bad[f.Rank] = true
	}
	for i := range w.cfg.ranks {
		p := &w.plants[i]
		if !bad[i] && p.state != Running && !p.dead {
			w.fail("rank %d is %s after the report %s", i, p.state, r)
		}
	}
}

func (k *checker) mail(w *world, m *Message) {
	k.buf = k.buf[:0]
	flags := bits(m.Stored, m.Reason == "")
	if m.Kind == msgBusy && m.Term == 1 {
		return // it says nothing but that the leader has been superseded
	}
	k.buf = append(append(k.buf, m.Kind...), byte(m.Epoch), byte(m.Term), flags)
	i, ok := k.post.index[string(k.buf)]
	if !ok {
		i = len(k.post.list)
		k.post.index[string(k.buf)] = i
		k.post.list = append(k.post.list, *m)
		k.post.up = append(k.post.up, toLeader(m))
		if i >= 64 {
			panic("too many messages")
		}
	}
	w.net[m.Rank] |= 1 << i
}

// toLeader says whether a message is a rank's.
func toLeader(m *Message) bool {
	switch m.Kind {
	case msgAsk, msgPrepare, msgSnapshot, msgResume, msgCommit, msgAbort:
		return false
	}
	return true
}

// check is what has to hold in every state.
func (w *world) check() {
	undone, killed := false, false
	for i := range w.cfg.ranks {
		p := &w.plants[i]
		killed = killed || p.killed
		undone = undone || p.undone
		if w.commit != nil && !p.saved {
			w.fail("committed, and rank %d has no image", i)
		}
		if p.unlocks > p.locks || p.locks > 1 {
			w.fail("rank %d was locked %d times and unlocked %d times", i, p.locks, p.unlocks)
		}
	}
	if w.cfg.req.StopAfter && w.commit != nil && undone {
		w.fail("mixed: an epoch whose ranks stop is committed, and a rank went on")
	}
	if killed && undone {
		w.fail("mixed: one rank terminated, one running")
	}
	for i, c := range w.leaders {
		if c == nil {
			continue
		}
		switch {
		case c.decision == msgAbort && w.commit != nil && c.epoch == w.commit.Epoch:
			w.fail("leader %d gave up an epoch that is committed", i)
		case c.decision == msgCommit && w.commit == nil:
			w.fail("leader %d decided to commit an epoch that is not", i)
		}
	}
}

// settled checks a state in which nothing will happen any more without a leader.
func (w *world) settled() {
	for i := range w.cfg.ranks {
		a, p := &w.agents[i], &w.plants[i]
		if p.dead || p.agentOff || a.phase == phaseBroken {
			continue
		}
		if a.phase != phaseIdle || p.state != Running || p.locks != p.unlocks {
			w.fail("rank %d is left %s in phase %d", i, p.state, a.phase)
		}
	}
}

// rankKey is what there is of a rank, without what cannot matter.
func (k *checker) rankKey(b []byte, w *world, i int) []byte {
	a, p := &w.agents[i], &w.plants[i]
	b = k.agentKey(b, a)
	b = append(b, bits(p.dead, p.killed, p.undone, p.saved, p.agentOff, w.settles[i] != 0), byte(p.locks), byte(p.unlocks), byte(p.late), byte(p.call),
		stateByte(p.state), bits(p.save != 0, p.save == a.saving, p.callOp == a.op))
	if w.may(mishapAgent) {
		b = append(b, byte(p.record.Phase), byte(p.record.Aim), byte(p.record.Hold.Duty), finalByte(p.record.Final), byte(p.record.Epoch), bits(p.record.Stored))
	}
	for _, c := range w.leaders {
		if c != nil && i < len(c.seats) {
			s := &c.seats[i]
			b = append(b, bits(s.ready, s.staged, s.stored, s.reason == "", s.said == ""), finalByte(s.final))
		}
	}
	net := w.net[i] & k.live(w, a, p)
	for s := 0; s < 64; s += 8 {
		b = append(b, byte(net>>s))
	}
	return b
}

// live is the messages that may still do something: a dead leader hears
// nothing, and one that is superseded is not listened to.
func (k *checker) live(w *world, a *Agent, p *plant) uint64 {
	var mask uint64
	for i := range k.post.list {
		m := &k.post.list[i]
		old := w.leaders[0] == nil && w.down[0]
		switch {
		case !k.post.up[i] && p.agentOff:
		case !k.post.up[i] && m.Term < a.term && old:
		case k.post.up[i] && m.Term < 2 && old:
		default:
			mask |= 1 << i
		}
	}
	return mask
}

func (k *checker) agentKey(b []byte, a *Agent) []byte {
	paused := a.hold.Duty != dutyNone && a.aim == aimForward
	return append(b, byte(a.term), byte(a.epoch), byte(a.phase), byte(a.aim), byte(a.hold.Duty), stateByte(a.hold.State), finalByte(a.final), byte(a.tries), byte(a.doing),
		bits(a.stored, a.staged, a.hold.Flight, a.op != 0, a.saving != 0, a.retry > a.now, paused && a.now-a.word >= 10, paused && a.since != 0 && a.now-a.since >= 10),
		bits(a.reason == "", a.plan.StopAfter, a.fresh))
}

// key is a state. Ranks are alike, so which is which cannot matter either,
// unless they have an order.
func (k *checker) key(w *world) [2]uint64 {
	b := k.keys[:0]
	var at [maxModel + 1]int
	var order [maxModel]int
	for i := range w.cfg.ranks {
		b = k.rankKey(b, w, i)
		at[i+1], order[i] = len(b), i
	}
	if !w.cfg.req.Sequential {
		slices.SortFunc(order[:w.cfg.ranks], func(x, y int) int { return bytes.Compare(b[at[x]:at[x+1]], b[at[y]:at[y+1]]) })
	}
	end := len(b)
	for _, i := range order[:w.cfg.ranks] {
		b = append(b, b[at[i]:at[i+1]]...)
	}
	for i, c := range w.leaders {
		b = append(b, byte(w.ledger[i]))
		if c == nil {
			b = append(b, 255, bits(w.down[i]))
			continue
		}
		b = append(b, byte(c.stage), byte(c.epoch), bits(c.open, c.stopped, c.early, c.fenced, c.recover, c.op != 0, c.op == w.ledgeOp[i]), finalByte(c.decision), byte(c.tries), byte(c.doing))
	}
	if w.may(mishapLeader|mishapZombie) || w.down[0] && w.leaders[1] == nil {
		b = append(b, bits(w.record.Open, w.record.Stopped), byte(w.record.Epoch))
	}
	b = append(b, bits(w.commit != nil), byte(w.fence), byte(w.left))
	k.keys = b
	return hash128(b[end:])
}

// hash128 is two FNV-1a style sums with different odd multipliers: 128 bits, so
// that two of ten million states share one with a chance of 2^-81.
func hash128(b []byte) [2]uint64 {
	h, g := uint64(14695981039346656037), uint64(0x9E3779B97F4A7C15)
	for len(b) >= 8 {
		v := binary.LittleEndian.Uint64(b)
		h = mix(h^v, 0xD6E8FEB86659FD93)
		g = mix(g+v, 0xA0761D6478BD642F)
		b = b[8:]
	}
	for _, c := range b {
		h = mix(h^uint64(c), 0xD6E8FEB86659FD93)
		g = mix(g+uint64(c), 0xA0761D6478BD642F)
	}
	return [2]uint64{h, g}
}

func mix(h, m uint64) uint64 {
	h *= m
	return h ^ h>>32
}

func bits(list ...bool) byte {
	var b byte
	for i, v := range list {
		if v {
			b |= 1 << i
		}
	}
	return b
}

func stateByte(s State) byte {
	switch s {
	case "":
		return 0
	case Running:
		return 1
	case Locked:
		return 2
	case Checkpointed:
		return 3
	case Failed:
		return 4
	case Gone:
		return 5
	}
	return 6
}

func finalByte(s string) byte {
	if s == "" {
		return 0
	}
	return s[0] ^ s[2]<<3
}

// explore walks through all states and returns the first fault.
func (k *checker) explore() (states int, wrong string) {
	k.post.index, k.seen = map[string]int{}, map[[2]uint64]struct{}{}
	first := k.start()
	k.seen[k.key(first)] = struct{}{}
	stack := []*world{first}
	visit := func(w *world) bool {
		k.edges++
		if w.wrong == "" {
			w.check()
		}
		if w.wrong != "" {
			wrong = w.wrong
			return false
		}
		key := k.key(w)
		if _, ok := k.seen[key]; ok {
			k.free = append(k.free, w)
			return true
		}
		k.seen[key] = struct{}{}
		if k.cfg.quiet > 0 && key[0]%uint64(k.cfg.quiet) == 0 {
			if q := k.alone(w); q != "" {
				wrong = q
				return false
			}
		}
		stack = append(stack, w)
		return true
	}
	for len(stack) > 0 && len(k.seen) < k.cfg.limit {
		w := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !k.successors(w, visit) {
			break
		}
		k.free = append(k.free, w)
	}
	return len(k.seen), wrong
}

func TestModelIsExhaustive(t *testing.T) {
	percent := debug.SetGCPercent(400) // much is copied, little lives
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	for _, tt := range models(testing.Short()) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := &checker{cfg: tt.cfg}
			k.cfg.limit = 5_000_000
			states, wrong := k.explore()
			t.Logf("%d states, %d edges, %d messages", states, k.edges, len(k.post.list))
			require.Empty(t, wrong)
			require.GreaterOrEqual(t, states, tt.min, "the model has shrunk")
			require.Less(t, states, k.cfg.limit, "the model was not finished")
		})
	}
}

type namedModel struct {
	name string
	cfg  modelConfig
	min  int
}

func models(short bool) []namedModel {
	var list []namedModel
	cases := []struct {
		what string
		m    mishap
	}{
		{"the leader dies", mishapLeader},
		{"a target or a node dies", mishapTarget | mishapNode},
		{"an agent dies", mishapAgent},
		{"a call fails", mishapDriver},
		{"a save or the ledger fails", mishapSave | mishapLedger},
	}
	add := func(ranks, quiet int, kind string, req Request, mins ...int) {
		for i, c := range cases {
			cfg := modelConfig{ranks: ranks, req: req, mishaps: c.m, budget: 1, quiet: quiet}
			list = append(list, namedModel{fmt.Sprintf("%d ranks that %s, %s", ranks, kind, c.what), cfg, mins[i]})
		}
	}
	add(2, 2, "go on", Request{}, 12000, 7000, 8000, 9000, 1600)
	add(2, 2, "stop", Request{StopAfter: true}, 20000, 15000, 21000, 19000, 5900)
	add(2, 16, "go on early", Request{Early: true}, 68000, 95000, 116000, 118000, 20000)
	add(2, 2, "go on in order", Request{Sequential: true}, 10000, 6300, 6500, 7400, 1300)
	add(2, 2, "are held", Request{Hold: true}, 6500, 6400, 6200, 8400, 1100)
	if !short {
		add(3, 64, "go on", Request{}, 260000, 76000, 84000, 103000, 13000)
		add(3, 64, "stop", Request{StopAfter: true}, 530000, 250000, 320000, 310000, 74000)
		zombie := modelConfig{ranks: 2, mishaps: mishapZombie, budget: 1, quiet: 64}
		list = append(list, namedModel{"2 ranks that go on, two leaders", zombie, 100000})
		zombie.req.StopAfter = true
		list = append(list, namedModel{"2 ranks that stop, two leaders", zombie, 200000})
	}
	return list
}

// TestModelNoticesDefects shows that the checker can fail: each thing that the
// machines could do wrong is found.
func TestModelNoticesDefects(t *testing.T) {
	for _, tt := range []struct {
		name   string
		defect defect
		req    Request
		m      mishap
		want   string
	}{
		{"commits before all have stored", defectEager, Request{}, 0, "has no image"},
		{"aborts after a commit whose answer was lost", defectLateUndo, Request{StopAfter: true}, mishapLedger, "gave up an epoch that is committed"},
		{"goes on by itself although others may be terminated", defectDeadMan, Request{StopAfter: true}, 0, "mixed"},
		{"looks without fencing", defectNoFence, Request{StopAfter: true}, 0, "mixed"},
		{"forgets to unlock", defectForget, Request{}, 0, "is left locked"},
		{"terminates before the commit", defectEarlyKill, Request{StopAfter: true}, 0, "not"},
		{"takes part in an epoch that it has left", defectRelock, Request{}, 0, "locked 2 times"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := &checker{cfg: modelConfig{ranks: 2, req: tt.req, mishaps: tt.m, budget: int(min(tt.m, 1)), defect: tt.defect, quiet: 1, limit: 1_000_000}}
			states, wrong := k.explore()
			t.Logf("%s, after %d states", wrong, states)
			require.Contains(t, wrong, tt.want)
		})
	}
}
