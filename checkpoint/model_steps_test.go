package checkpoint

import (
	"bytes"
	"errors"
)

var errModel = errors.New("a planned failure")

// successors calls visit with every state that is one step from w, until it
// says no.
func (k *checker) successors(w *world, visit func(*world) bool) bool {
	return k.deliveries(w, visit) && k.leaderSteps(w, visit) && k.rankSteps(w, visit) && k.mishaps(w, visit)
}

// may says whether a mishap of this kind may happen now.
func (w *world) may(m mishap) bool { return w.left > 0 && w.cfg.mishaps&m != 0 }

// leaderStep is a step of a leader, and all the ways in which it may die in it.
func (k *checker) leaderStep(w *world, i int, visit func(*world) bool, e *Event, wait int64, world0 func(*world)) bool {
	try := func(cut int) (bool, int) {
		v := k.clone(w)
		if world0 != nil {
			world0(v)
		}
		if cut >= 0 {
			v.left--
		}
		n := k.leader(v, i, e, wait, cut)
		return visit(v), n
	}
	ok, n := try(-1)
	if w.may(mishapLeader) {
		for cut := 0; ok && cut < n; cut++ {
			ok, _ = try(cut)
		}
	}
	return ok
}

func (k *checker) agentStep(w *world, r int, visit func(*world) bool, e *Event, wait int64, world0 func(*world)) bool {
	try := func(cut int) (bool, int) {
		v := k.clone(w)
		if world0 != nil {
			world0(v)
		}
		if cut >= 0 {
			v.left--
		}
		n := k.agent(v, r, e, wait, cut)
		return visit(v), n
	}
	ok, n := try(-1)
	if w.may(mishapAgent) {
		for cut := 0; ok && cut < n; cut++ {
			ok, _ = try(cut)
		}
	}
	return ok
}

func (k *checker) deliveries(w *world, visit func(*world) bool) bool {
	for r := range w.cfg.ranks {
		for i := range k.post.list {
			if w.net[r]>>i&1 == 0 {
				continue
			}
			m := k.post.list[i]
			m.Rank = r
			m.Image.Image[0] = byte(r)
			e := &Event{Kind: EventMessage, Message: m}
			if !k.post.up[i] {
				if !w.plants[r].agentOff && !k.idle(w, r, e) && !k.agentStep(w, r, visit, e, 0, nil) {
					return false
				}
				continue
			}
			for j, c := range w.leaders {
				if c != nil && !k.heard(c, &m) && !k.leaderStep(w, j, visit, e, 0, nil) {
					return false
				}
			}
		}
	}
	return true
}

// idle says whether an event changes nothing of an agent, and has it say only
// what it has said before.
func (k *checker) idle(w *world, r int, e *Event) bool {
	k.scratch = w.agents[r]
	a := &k.scratch
	a.out = k.out[:0]
	before := k.agentKey(k.before[:0], a)
	a.take(a.now, e)
	k.out, k.before = a.out, before
	for i := range a.out {
		m := &a.out[i].Message
		if a.out[i].Kind != ActionSend || !k.sent(w, m) {
			return false
		}
	}
	after := k.agentKey(k.after[:0], a)
	k.after = after
	return bytes.Equal(before, after)
}

func (k *checker) sent(w *world, m *Message) bool {
	v := w.net[m.Rank]
	k.mail(w, m)
	same := w.net[m.Rank] == v
	w.net[m.Rank] = v
	return same
}

// heard says whether a leader has taken down all that a message says.
func (k *checker) heard(c *Coordinator, m *Message) bool {
	switch {
	case m.Term > c.cfg.Term:
		return c.stage == stageLost
	case m.Term < c.cfg.Term, m.Epoch != c.epoch, !c.open, c.stage == stageLost, m.Rank >= len(c.seats):
		return true
	}
	s := &c.seats[m.Rank]
	if m.Stored && !s.stored {
		return false
	}
	switch m.Kind {
	case msgReady:
		return s.ready && s.said != ""
	case msgStaged:
		return s.staged
	case msgStored:
		return s.stored
	}
	return s.final == m.Kind
}

// leaderSteps are timers and answers of the ledger.
func (k *checker) leaderSteps(w *world, visit func(*world) bool) bool {
	for i, c := range w.leaders {
		if c == nil {
			continue
		}
		if at, ok := c.NextWake(); ok {
			if !k.leaderStep(w, i, visit, &Event{Kind: EventTick}, max(at.UnixNano()-c.now, 0), nil) {
				return false
			}
		}
		if c.stage == stageRecover && !k.leaderStep(w, i, visit, &Event{Kind: EventRecover}, 0, nil) {
			return false
		}
		if c.stage == stageHeld && !k.leaderStep(w, i, visit, &Event{Kind: EventRelease}, 0, nil) {
			return false
		}
		if w.ledger[i] == 0 {
			continue
		}
		kind, op := w.ledger[i], w.ledgeOp[i]
		for _, how := range w.ledgerWays(kind) {
			e := &Event{Kind: EventDone, Op: op}
			done := func(v *world) {
				v.ledger[i] = 0
				v.answer(kind, v.leaders[i], how, e)
			}
			if !k.leaderStep(w, i, visit, e, 0, done) {
				return false
			}
		}
	}
	return true
}

// ledgerWays is how a call of the ledger may end: well, not heard, not done, or
// later than the caller's patience.
func (w *world) ledgerWays(kind ActionKind) []int {
	if !w.may(mishapLedger) {
		return []int{0}
	}
	if kind == ActionCommit {
		return []int{0, 1, 2}
	}
	return []int{0, 2}
}

// answer does what the ledger does.
func (w *world) answer(kind ActionKind, c *Coordinator, how int, e *Event) {
	e.Err, e.Epoch = nil, nil
	if how != 0 {
		w.left--
		e.Err = errModel
		if how == 2 {
			return
		}
	}
	if kind == ActionCommit {
		switch {
		case c.cfg.Term < w.fence:
			e.Err = ErrFenced
		case w.commit == nil:
			w.commit = c.manifest
		case !w.commit.Equal(c.manifest):
			e.Err = errors.New("conflict")
		}
		return
	}
	term := c.cfg.Term
	if !c.recover {
		term++
	}
	w.settle(term, e)
}

// settle fences and looks.
func (w *world) settle(term Term, e *Event) {
	if w.cfg.defect != defectNoFence {
		if term < w.fence {
			e.Err = ErrFenced
		}
		w.fence = max(w.fence, term)
	}
	e.Epoch = w.commit
}

// rankSteps are timers, and the ends of calls and saves.
func (k *checker) rankSteps(w *world, visit func(*world) bool) bool {
	for r := range w.cfg.ranks {
		a, p := &w.agents[r], &w.plants[r]
		if p.agentOff {
			continue
		}
		if at, ok := a.NextWake(); ok && at.UnixNano()-a.now < 1000 {
			if !k.agentStep(w, r, visit, &Event{Kind: EventTick}, max(at.UnixNano()-a.now, 0), nil) {
				return false
			}
		}
		if p.late != 0 {
			v := k.clone(w)
			v.plants[r].land()
			if !visit(v) {
				return false
			}
		}
		if !k.callEnds(w, r, visit) || !k.saveEnds(w, r, visit) || !k.settleEnds(w, r, visit) {
			return false
		}
	}
	return true
}

// land lets a call that outlived its context take effect.
func (p *plant) land() {
	kind := p.late
	p.late = 0
	p.effect(kind)
}

func (p *plant) effect(kind ActionKind) {
	if p.dead {
		return
	}
	switch {
	case kind == ActionLock && p.state == Running:
		p.state, p.locked = Locked, true
		p.locks++
	case kind == ActionSuspend && p.state == Locked:
		p.state = Checkpointed
	case kind == ActionResume && p.state == Checkpointed:
		p.state = Locked
	case kind == ActionUnlock && p.state == Locked:
		p.state, p.undone = Running, true
		p.unlocks++
	case kind == ActionKill:
		p.state, p.dead, p.killed = Gone, true, true
	}
}

// The ways in which a call into the driver may end.
const (
	callWell    = iota
	callNothing // fails and does nothing
	callDone    // fails and has done it
	callLies    // says that it went well and has done nothing
	callFlies   // outlives its context
	callWedges  // leaves the target failed
	callWays
)

func (k *checker) callEnds(w *world, r int, visit func(*world) bool) bool {
	p := &w.plants[r]
	if p.call == 0 {
		return true
	}
	ways := 1
	if w.may(mishapDriver) && p.call != ActionRead && p.call != ActionKill {
		ways = callWays
	}
	kind, op := p.call, p.callOp
	for how := range ways {
		e := &Event{Kind: EventDone, Op: op, Step: 7}
		end := func(v *world) {
			q := &v.plants[r]
			q.call = 0
			if how != callWell {
				v.left--
			}
			q.end(kind, how, e)
		}
		if !k.agentStep(w, r, visit, e, 0, end) {
			return false
		}
	}
	return true
}

// end does what a driver does, and says what the runner would.
func (p *plant) end(kind ActionKind, how int, e *Event) {
	e.Err, e.Before = nil, p.state
	if kind == ActionRead || kind == ActionStep {
		e.State = p.state
		return
	}
	if p.late != 0 && kind != ActionKill {
		e.Err, e.State = ErrInFlight, p.state
		return
	}
	switch how {
	case callWell, callDone:
		if !(kind == ActionLock && p.state != Running) {
			p.effect(kind)
		}
		if how == callDone {
			e.Err = ErrTimeout
		}
	case callNothing:
		e.Err = ErrTimeout
	case callFlies:
		p.late = kind
		e.Err = ErrInFlight
	case callWedges:
		if !p.dead {
			p.state = Failed
		}
		e.Err = ErrDriver
	}
	e.State = p.state
	if p.dead && kind != ActionKill {
		e.Err = ErrGone
	}
}

func (k *checker) saveEnds(w *world, r int, visit func(*world) bool) bool {
	p := &w.plants[r]
	if p.save == 0 {
		return true
	}
	op := p.save
	if w.agents[r].plan.Early && !w.agents[r].staged && w.agents[r].aim == aimForward {
		if !k.agentStep(w, r, visit, &Event{Kind: EventStaged, Op: op}, 0, nil) {
			return false
		}
	}
	for _, fails := range []bool{false, true} {
		if fails && !w.may(mishapSave) && w.agents[r].aim == aimForward && !p.dead {
			continue
		}
		e := &Event{Kind: EventDone, Op: op, Image: RankImage{Image: Digest{byte(r), 1}}}
		if fails {
			e.Err = ErrNoSpace
		}
		end := func(v *world) {
			q := &v.plants[r]
			q.save = 0
			if fails && v.agents[r].aim == aimForward && !q.dead {
				v.left--
			}
			if !fails {
				q.saved = true
			}
		}
		if p.dead && !fails && !w.agents[r].staged {
			continue // there is nothing left to save
		}
		if !k.agentStep(w, r, visit, e, 0, end) {
			return false
		}
	}
	return true
}

func (k *checker) settleEnds(w *world, r int, visit func(*world) bool) bool {
	if w.settles[r] == 0 {
		return true
	}
	op := w.settles[r]
	for _, how := range w.ledgerWays(ActionSettle) {
		e := &Event{Kind: EventDone, Op: op}
		end := func(v *world) {
			v.settles[r] = 0
			if how != 0 {
				v.left--
				e.Err, e.Epoch = errModel, nil
				return
			}
			e.Err = nil
			v.settle(v.agents[r].term+1, e)
		}
		if !k.agentStep(w, r, visit, e, 0, end) {
			return false
		}
	}
	return true
}

// mishaps are what happens at no step of a node.
func (k *checker) mishaps(w *world, visit func(*world) bool) bool {
	successor := w.leaders[1] == nil && !w.down[1] && (w.down[0] || w.may(mishapZombie) && w.record.Epoch != 0)
	if successor {
		v := k.clone(w)
		if !w.down[0] {
			v.left--
		}
		v.leaders[1] = modelLeader(w.cfg, 2, &v.record)
		if !visit(v) {
			return false
		}
	}
	for r := range w.cfg.ranks {
		if w.plants[r].dead {
			continue
		}
		for _, m := range []mishap{mishapTarget, mishapNode} {
			if !w.may(m) {
				continue
			}
			v := k.clone(w)
			v.left--
			p := &v.plants[r]
			p.state, p.dead = Gone, true
			if m == mishapNode {
				p.agentOff, p.call, p.save, p.late, v.settles[r] = true, 0, 0, 0, 0
			}
			if !visit(v) {
				return false
			}
		}
	}
	return true
}

// alone lets no message through any more, ends every call well and has every
// timer ring: each rank has to come back by itself, or to its end.
func (k *checker) alone(w *world) string {
	v := k.clone(w)
	v.left = 0
	only := func(next *world) bool {
		*v = *next
		return false
	}
	for r := range v.cfg.ranks {
		for range 60 {
			a, p := &v.agents[r], &v.plants[r]
			switch {
			case p.agentOff:
			case p.late != 0:
				p.land()
				continue
			case p.call != 0:
				k.callEnds(v, r, only)
				continue
			case p.save != 0:
				k.saveEnds(v, r, only)
				continue
			case v.settles[r] != 0:
				k.settleEnds(v, r, only)
				continue
			default:
				if at, ok := a.NextWake(); ok && at.UnixNano()-a.now < 1000 {
					k.agentStep(v, r, only, &Event{Kind: EventTick}, max(at.UnixNano()-a.now, 0), nil)
					continue
				}
			}
			break
		}
	}
	if v.wrong == "" {
		v.check()
	}
	if v.wrong == "" {
		v.settled()
	}
	if v.wrong != "" {
		return "left alone: " + v.wrong
	}
	return ""
}
