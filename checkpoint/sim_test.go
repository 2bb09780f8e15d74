package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// item is something that may happen next in a random run.
type item struct {
	kind itemKind
	rank int // or the leader's number
	op   uint64
	m    Message
}

type itemKind int

const (
	itemToRank itemKind = iota
	itemToLeader
	itemCall
	itemStaged
	itemSave
	itemSettle
	itemLedger
	itemLand
)

// sim is one random run of a job of any size: whatever is pending happens in
// random order, and time passes when nothing is, or by chance.
type sim struct {
	r       *rand.Rand
	req     Request
	defect  defect
	now     int64
	agents  []Agent
	plants  []plant
	records []rankImage
	leaders [2]*Coordinator
	record  leaderImage
	fence   Term
	commits map[Epoch]*Manifest
	pending []item
	out     []Action
	said    []Action
	reports []*Report
	loss    int // of 1024 messages
	faults  int // calls that fail, still to come
	mishap  mishap
	when    int // how many things happen before the mishap
	steps   int
	wrong   string
}

func newSim(ranks int, seed uint64, d defect) *sim {
	s := &sim{r: rand.New(rand.NewPCG(seed, 9)), defect: d, commits: map[Epoch]*Manifest{}}
	s.reset(ranks, seed)
	return s
}

// reset begins the run of a seed.
func (s *sim) reset(ranks int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 9))
	*s = sim{
		r: r, defect: s.defect, now: base, commits: s.commits, pending: s.pending[:0],
		agents: s.agents[:0], out: s.out, said: s.said, plants: s.plants[:0], records: s.records[:0], leaders: [2]*Coordinator{},
		req: Request{Attempts: 1 + r.IntN(2)},
	}
	clear(s.commits)
	switch r.IntN(6) {
	case 0, 1:
		s.req.StopAfter = true
	case 2:
		s.req.Early = true
	case 3:
		s.req.Sequential = ranks <= 16 // one after another takes a long time
	case 4:
		s.req.Cooperative = true
	}
	if r.IntN(4) == 0 {
		s.loss = 20
	}
	s.mishap = 1 << r.IntN(8)
	s.when = r.IntN(12 * ranks)
	if s.mishap == mishapDriver || s.mishap == mishapSave || s.mishap == mishapLedger {
		s.faults = 1 + r.IntN(2)
	}
	first := simAgent(0, s.now, s.defect)
	for i := range ranks {
		first.cfg.Rank = i
		s.agents = append(s.agents, first)
		s.plants = append(s.plants, plant{state: Running})
		s.records = append(s.records, s.agents[i].rankRecord())
	}
	s.leaders[0] = s.leader(1, nil)
	s.lead(0, &Event{Kind: EventStart, Request: s.req})
}

func simAgent(rank int, now int64, d defect) Agent {
	a, err := NewAgent(AgentConfig{Job: "j", Rank: rank})
	if err != nil {
		panic(err)
	}
	a.now, a.defect = now, d
	return *a
}

func (s *sim) leader(term Term, rec *leaderImage) *Coordinator {
	c, err := New(Config{Job: "j", Ranks: len(s.agents), Term: term, MaxAborts: 100, FinishTimeout: 40 * time.Second, SaveTimeout: time.Minute, Resend: 12 * time.Second})
	if err != nil {
		panic(err)
	}
	c.now, c.defect = s.now, s.defect
	if rec != nil {
		c.epoch, c.open, c.req, c.stopped = rec.Epoch, rec.Open, rec.Request, rec.Stopped
		if c.open {
			c.stage = stageRecover
		}
	}
	return c
}

func (s *sim) fail(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, args...)
	}
}

// lead has a leader take an event.
func (s *sim) lead(i int, e *Event) {
	c := s.leaders[i]
	if c == nil {
		return
	}
	c.out = s.said[:0]
	c.take(s.now, e)
	s.said, c.out = c.out, nil
	for n := range s.said {
		switch act := &s.said[n]; act.Kind {
		case ActionSend:
			s.post(itemToRank, act.Message.Rank, &act.Message)
		case ActionRecord:
			if s.leaders[1] == nil || i == 1 {
				s.record = c.image()
			}
		case ActionCommit, ActionSettle:
			s.pending = append(s.pending, item{kind: itemLedger, rank: i, op: act.Op})
		case ActionReport:
			s.report(act.Report)
		}
	}
}

func (s *sim) post(kind itemKind, rank int, m *Message) {
	if s.loss > 0 && s.r.IntN(1024) < s.loss {
		return
	}
	s.pending = append(s.pending, item{kind: kind, rank: rank, m: *m})
	if s.loss > 0 && s.r.IntN(1024) < s.loss {
		s.pending = append(s.pending, item{kind: kind, rank: rank, m: *m})
	}
}

func (s *sim) act(r int, e *Event) {
	a, p := &s.agents[r], &s.plants[r]
	if p.agentOff {
		return
	}
	a.out = s.out[:0]
	a.take(s.now, e)
	s.out, a.out = a.out, nil
	for n := range s.out {
		switch act := &s.out[n]; act.Kind {
		case ActionSend:
			s.post(itemToLeader, 0, &act.Message)
		case ActionRecord:
			s.records[r] = a.rankRecord()
		case ActionSave:
			p.save = act.Op
			if a.plan.Early {
				s.pending = append(s.pending, item{kind: itemStaged, rank: r, op: act.Op})
			}
			s.pending = append(s.pending, item{kind: itemSave, rank: r, op: act.Op})
		case ActionCancel:
		case ActionSettle:
			s.pending = append(s.pending, item{kind: itemSettle, rank: r, op: act.Op})
		default:
			if act.Kind == ActionKill && s.commits[a.epoch] == nil {
				s.fail("rank %d is terminated before the commit", r)
			}
			p.call, p.callOp = act.Kind, act.Op
			s.pending = append(s.pending, item{kind: itemCall, rank: r, op: act.Op})
		}
	}
}

// once says whether a fault of this kind happens now.
func (s *sim) once(m mishap) bool {
	if s.mishap == m && s.faults > 0 && s.steps >= s.when {
		s.faults--
		return true
	}
	return false
}

// step lets one thing happen and says whether there was one.
func (s *sim) step() bool {
	s.steps++
	if s.steps == s.when {
		s.strike()
	}
	if len(s.pending) == 0 || s.r.IntN(8192) == 0 {
		return s.ring()
	}
	i := s.r.IntN(len(s.pending))
	it := &s.pending[i]
	e := Event{Op: it.op}
	r, kind := it.rank, it.kind
	if kind == itemToRank || kind == itemToLeader {
		e.Kind, e.Message = EventMessage, it.m
	}
	last := len(s.pending) - 1
	s.pending[i] = s.pending[last]
	s.pending = s.pending[:last]
	switch kind {
	case itemToRank:
		s.act(r, &e)
	case itemToLeader:
		s.lead(0, &e)
		s.lead(1, &e)
	case itemLand:
		s.plants[r].land()
	case itemLedger:
		s.answer(r, &e)
	default:
		s.ends(kind, r, &e)
	}
	return true
}

// ends is the end of a rank's action.
func (s *sim) ends(kind itemKind, r int, e *Event) {
	a, p := &s.agents[r], &s.plants[r]
	e.Kind = EventDone
	switch kind {
	case itemStaged:
		e.Kind = EventStaged
		if p.save != e.Op || p.dead {
			return
		}
	case itemCall:
		if p.call == 0 || p.callOp != e.Op {
			return // an agent that died has forgotten it
		}
		call, how := p.call, callWell
		p.call = 0
		if call != ActionRead && call != ActionStep && call != ActionKill && s.once(mishapDriver) {
			how = 1 + s.r.IntN(callWays-1)
		}
		e.Step = a.plan.StopStep
		if call == ActionStep {
			e.Step = 7 + uint64(r%3)
		}
		p.end(call, how, e)
		if p.late != 0 {
			s.pending = append(s.pending, item{kind: itemLand, rank: r})
		}
	case itemSave:
		if p.save != e.Op {
			return
		}
		p.save = 0
		e.Image = RankImage{Image: Digest{byte(r), byte(a.epoch)}}
		if s.once(mishapSave) || p.dead && !a.staged {
			e.Err = ErrNoSpace
		} else {
			p.saved = true
		}
	case itemSettle:
		s.settle(a.term+1, a.epoch, e)
	}
	s.act(r, e)
}

// answer is the end of a leader's call of the ledger.
func (s *sim) answer(i int, e *Event) {
	c := s.leaders[i]
	e.Kind = EventDone
	if c == nil || c.op != e.Op {
		return
	}
	fails := s.once(mishapLedger)
	switch {
	case c.doing == ActionSettle && fails:
		e.Err = errModel
	case c.doing == ActionSettle:
		term := c.cfg.Term
		if !c.recover {
			term++
		}
		s.settle(term, c.epoch, e)
	case fails && s.r.IntN(2) == 0:
		e.Err = errModel
	case c.cfg.Term < s.fence:
		e.Err = ErrFenced
	default:
		s.commit(c.manifest)
		if fails {
			e.Err = errModel
		}
	}
	s.lead(i, e)
}

func (s *sim) commit(m *Manifest) {
	s.commits[m.Epoch] = m
	for i := range m.Ranks {
		if m.Ranks[i].Image != (Digest{byte(i), byte(m.Epoch)}) {
			s.fail("epoch %d is committed without the image of rank %d", m.Epoch, i)
		}
	}
}

func (s *sim) settle(term Term, epoch Epoch, e *Event) {
	if s.defect != defectNoFence {
		if term < s.fence {
			e.Err = ErrFenced
		}
		s.fence = max(s.fence, term)
	}
	e.Epoch = s.commits[epoch]
}

// strike is the one thing that goes wrong.
func (s *sim) strike() {
	r := s.r.IntN(len(s.agents))
	p := &s.plants[r]
	switch s.mishap {
	case mishapLeader, mishapZombie:
		if s.mishap == mishapLeader {
			s.leaders[0] = nil
		}
		s.leaders[1] = s.leader(2, &s.record)
	case mishapNode, mishapTarget:
		p.state, p.dead = Gone, true
		if s.mishap == mishapNode {
			p.agentOff, p.call, p.save, p.late = true, 0, 0, 0
		}
	case mishapAgent:
		if p.call >= ActionLock && p.call <= ActionUnlock && p.call != ActionSave {
			p.late = p.call
			s.pending = append(s.pending, item{kind: itemLand, rank: r})
		}
		p.call, p.save = 0, 0
		ops := s.agents[r].ops
		s.agents[r] = simAgent(r, s.now, s.defect)
		s.agents[r].ops = ops + 1000
		s.agents[r].adopt(&s.records[r])
	}
}

// ring lets time pass until the next timer rings, and says whether one does.
func (s *sim) ring() bool {
	at, who := int64(1<<62), -1
	for i := range s.agents {
		if s.plants[i].agentOff {
			continue
		}
		if t, ok := s.agents[i].NextWake(); ok && t.UnixNano() < at {
			at, who = t.UnixNano(), i
		}
	}
	for i, c := range s.leaders {
		if c == nil {
			continue
		}
		if _, ok := c.Pending(); ok {
			s.lead(i, &Event{Kind: EventRecover})
			return true
		}
		if t, ok := c.NextWake(); ok && t.UnixNano() < at {
			at, who = t.UnixNano(), len(s.agents)+i
		}
	}
	if who < 0 {
		return len(s.pending) > 0
	}
	s.now = max(s.now, at)
	if who < len(s.agents) {
		s.act(who, &Event{Kind: EventTick})
	} else {
		s.lead(who-len(s.agents), &Event{Kind: EventTick})
	}
	return true
}

func (s *sim) report(r *Report) {
	s.reports = append(s.reports, r)
	if r.Outcome == OutcomeHeld || r.Outcome == OutcomeFenced {
		return
	}
	if (r.Outcome == OutcomeCommitted) != (s.commits[r.Epoch] != nil) {
		s.fail("reported %s of epoch %d, and the ledger has %v", r.Outcome, r.Epoch, s.commits[r.Epoch] != nil)
	}
	broken := 0
	for i := range s.plants {
		for broken < len(r.Broken) && r.Broken[broken].Rank < i {
			broken++
		}
		if p := &s.plants[i]; !(broken < len(r.Broken) && r.Broken[broken].Rank == i) && p.state != Running && !p.dead {
			s.fail("rank %d is %s after %s", i, p.state, r)
		}
	}
}

// run goes on until nothing happens any more, and says what is wrong then.
func (s *sim) run() string {
	for s.wrong == "" && s.step() {
		if s.steps > 1_000_000 {
			s.fail("never ends")
		}
	}
	if s.wrong != "" {
		return s.wrong
	}
	running, ended := 0, 0
	for i := range s.plants {
		a, p := &s.agents[i], &s.plants[i]
		switch {
		case p.killed:
			ended++
		case p.dead, p.agentOff, a.phase == phaseBroken:
			continue
		case p.state == Running && a.phase == phaseIdle:
			running++
		default:
			s.fail("rank %d is left %s in phase %d", i, p.state, a.phase)
		}
		if !p.killed && p.locks != p.unlocks {
			s.fail("rank %d was locked %d times and unlocked %d times", i, p.locks, p.unlocks)
		}
	}
	if running > 0 && ended > 0 {
		s.fail("mixed: %d run and %d have been terminated", running, ended)
	}
	if s.req.StopAfter && running > 0 && len(s.commits) > 0 {
		s.fail("mixed: %d run although an epoch that was to stop them is committed", running)
	}
	return s.wrong
}

// simulate makes n random runs and returns the first fault.
func simulate(n, ranks int, d defect) (wrong string, outcomes map[Outcome]int, events int64) {
	outcomes = map[Outcome]int{}
	// Little lives and much is copied: a collector that is always at work takes more time than the runs.
	defer debug.SetGCPercent(debug.SetGCPercent(2000))
	var mu sync.Mutex
	var next, total atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			s := newSim(ranks, 0, d)
			seen := map[Outcome]int{}
			for seed := next.Add(1); seed <= int64(n); seed = next.Add(1) {
				s.reset(ranks, uint64(seed))
				if w := s.run(); w != "" {
					mu.Lock()
					wrong = fmt.Sprintf("seed %d: %s", seed, w)
					mu.Unlock()
					next.Store(int64(n))
				}
				total.Add(int64(s.steps))
				for _, r := range s.reports {
					seen[r.Outcome]++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for k, v := range seen { // sums: order cannot matter
				outcomes[k] += v
			}
		})
	}
	wg.Wait()
	return wrong, outcomes, total.Load()
}

func TestRandomRunsEndAllRunningOrAllSaved(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 2_000
	}
	wrong, outcomes, events := simulate(n, 64, defectNone)
	t.Logf("%d runs of 64 ranks, %d events, %v", n, events, outcomes)
	require.Empty(t, wrong)
	require.Greater(t, outcomes[OutcomeCommitted], n/3)
	require.Greater(t, outcomes[OutcomeAborted], n/50)
	wrong, _, _ = simulate(n/10, 5, defectNone)
	require.Empty(t, wrong)
}
