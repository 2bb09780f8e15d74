package checkpoint

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// receive takes in a message of a rank.
func (c *Coordinator) receive(m *Message) {
	if m.Job != c.cfg.Job || m.Rank < 0 || m.Rank >= len(c.seats) || c.stage == stageLost {
		return
	}
	if m.Term > c.cfg.Term {
		c.lose()
		return
	}
	if m.Seen < math.MaxUint64 {
		c.seen = max(c.seen, m.Seen)
	}
	if m.Kind == msgStep {
		c.stepped(m)
		return
	}
	if m.Epoch != c.epoch || !c.open || m.Term < c.cfg.Term {
		return
	}
	c.note(m)
	c.judge(m.Rank, m.Rank+1)
}

// note takes down what a rank said. It may be an old word: what a rank has once
// reached it has reached, and its outcome is its last word.
func (c *Coordinator) note(m *Message) {
	s := &c.seats[m.Rank]
	before := c.answered(m.Rank)
	switch m.Kind {
	case msgReady:
		mark(&s.ready, &c.count.ready)
	case msgStaged:
		mark(&s.ready, &c.count.ready)
		mark(&s.staged, &c.count.staged)
	case msgStored:
	case msgRefuse, msgResumed, msgTerminated, msgBroken, msgGone:
		if s.final == "" {
			c.count.final++
		}
		if s.final == "" || s.final == msgBroken { // one that was stuck may have come free
			s.final = m.Kind
		}
		s.reason, s.detail = m.Reason, m.Detail
	case msgBusy:
	default:
		return
	}
	if m.Stored {
		mark(&s.ready, &c.count.ready)
		mark(&s.staged, &c.count.staged)
		mark(&s.stored, &c.count.stored)
		s.image = m.Image
		s.image.Rank = m.Rank
	}
	if s.final == "" || s.final == m.Kind {
		s.said, s.state = m.Kind, m.State
	}
	s.bytes = max(s.bytes, m.Bytes)
	if m.Step != 0 {
		s.step = m.Step
	}
	if c.req.Sequential && !before && c.answered(m.Rank) {
		c.next(m.Rank)
	}
}

func mark(flag *bool, n *int) {
	if !*flag {
		*flag = true
		*n++
	}
}

// next tells the rank behind i that it is its turn.
func (c *Coordinator) next(i int) {
	for j := range i {
		if !c.answered(j) {
			return
		}
	}
	for i++; i < len(c.seats); i++ {
		if kind := c.word(i, true); kind != "" {
			c.send(i, kind)
		}
		if !c.answered(i) {
			return
		}
	}
}

// stepped takes in the step of a rank.
func (c *Coordinator) stepped(m *Message) {
	if c.stage != stageAsking {
		return
	}
	s := &c.seats[m.Rank]
	s.stepped, s.step, s.said, s.state = true, m.Step, msgStep, m.State
	most := uint64(0)
	for i := range c.seats {
		if !c.seats[i].stepped {
			return
		}
		most = max(most, c.seats[i].step)
	}
	if most > math.MaxUint64-c.cfg.Margin {
		c.abort(reasonRefused, []RankFault{c.fault(m.Rank, reasonRefused)})
		return
	}
	c.stop = most + c.cfg.Margin
	c.began = c.now
	c.enter(stagePreparing, c.cfg.LockTimeout)
	c.judge(0, len(c.seats)) // one may have refused already
}

// judge goes on when all have answered, and back when one of the ranks from lo
// to hi cannot.
func (c *Coordinator) judge(lo, hi int) {
	n := len(c.seats)
	switch c.stage {
	case stagePreparing, stageSnapshot, stageHeld:
		if bad := c.bad(lo, hi); len(bad) > 0 {
			c.abort(bad[0].Reason, bad)
			return
		}
	case stageFinishing:
		if c.count.final == n && !slices.ContainsFunc(c.seats, c.wants) {
			c.end()
		}
		return
	}
	switch {
	case c.stage == stagePreparing && c.count.ready == n:
		c.prepared()
	case c.stage == stageSnapshot:
		c.saved()
	}
}

// wants says whether a rank's last word leaves something to wait for: one that
// was to be terminated and knows nothing of the epoch may only have come back.
func (c *Coordinator) wants(s seat) bool {
	return c.decision == msgCommit && c.req.StopAfter && s.final == msgRefuse
}

// bad is who can not go on to a commit: a rank that holds nothing any more and
// has stored nothing. One that let go early has still to store.
func (c *Coordinator) bad(lo, hi int) []RankFault {
	var list []RankFault
	for i := lo; i < hi; i++ {
		s := &c.seats[i]
		if s.final == "" || s.stored || c.req.Early && s.final == msgResumed && s.reason == "" {
			continue
		}
		reason := s.reason
		if reason == "" {
			reason = reasonRefused
		}
		list = append(list, c.fault(i, reason))
	}
	return list
}

// prepared goes on once all are locked.
func (c *Coordinator) prepared() {
	if c.req.Cooperative {
		var off []RankFault
		for i := range c.seats {
			if c.seats[i].step != c.stop {
				off = append(off, c.fault(i, reasonRefused))
			}
		}
		if len(off) > 0 {
			c.abort(reasonRefused, off)
			return
		}
	}
	// A rank that may go on early is not paused while its bytes are stored.
	limit := c.cfg.SaveTimeout
	if !c.req.Early {
		limit = min(limit, time.Duration(max(instant.Add(c.began, c.cfg.MaxPause)-c.now, 0)))
	}
	c.enter(stageSnapshot, limit)
}

// saved goes on as far as the ranks have stored.
func (c *Coordinator) saved() {
	switch {
	case c.req.Hold:
		if c.count.staged == len(c.seats) {
			c.enter(stageHeld, maxWait)
			c.out = append(c.out, Action{Kind: ActionReport, Epoch: c.epoch, Report: &Report{Epoch: c.epoch, Outcome: OutcomeHeld, Attempts: c.attempt}})
		}
	case c.count.stored == len(c.seats), c.defect == defectEager && c.seats[0].stored:
		c.build()
		if c.defect == defectEarlyKill {
			c.decide(msgCommit, "", nil)
			return
		}
		c.commit()
	case c.req.Early && !c.early && c.count.staged == len(c.seats):
		c.early = true
		c.speak()
	}
}

// build makes the manifest of the epoch.
func (c *Coordinator) build() {
	m := &Manifest{Job: c.cfg.Job, Epoch: c.epoch, Term: c.cfg.Term, Step: c.stop, Ranks: make([]RankImage, len(c.seats))}
	for i := range c.seats {
		m.Ranks[i] = c.seats[i].image
		m.Ranks[i].Rank, m.Ranks[i].Step = i, c.stop
	}
	c.manifest = m
}

func (c *Coordinator) commit() {
	c.stage = stageCommitting
	c.tries++
	c.call(ActionCommit, Action{Manifest: c.manifest.Clone()})
}

// settle asks the ledger how the epoch ended. Whoever asks has shut out all who
// might still commit it, itself too: a commit whose answer was lost may be on
// its way.
func (c *Coordinator) settle() {
	c.stage = stageSettling
	term := c.cfg.Term
	if !c.recover {
		term, c.fenced = term+1, true
	}
	c.call(ActionSettle, Action{Term: term})
}

func (c *Coordinator) call(kind ActionKind, act Action) {
	c.ops++
	c.op, c.doing = c.ops, kind
	act.Kind, act.Op, act.Epoch, act.Timeout = kind, c.ops, c.epoch, c.cfg.FinishTimeout
	c.out = append(c.out, act)
	c.deadline, c.resend = instant.Never, instant.Add(c.now, c.cfg.Resend)
}

// done takes in the end of an action.
func (c *Coordinator) done(e *Event) {
	switch {
	case e.Op == 0:
	case e.Op == c.record && e.Err != nil:
		c.unrecorded()
	case e.Op == c.op:
		c.op = 0
		if c.doing == ActionCommit {
			c.committed(e)
		} else {
			c.found(e)
		}
	}
}

// unrecorded gives up an epoch that nobody has heard of.
func (c *Coordinator) unrecorded() {
	if c.stage == stageAsking || c.stage == stagePreparing {
		c.reason = reasonRecord
		c.seats = nil
		c.close(Report{Outcome: OutcomeAborted})
	}
}

func (c *Coordinator) committed(e *Event) {
	switch {
	case e.Err == nil:
		c.decide(msgCommit, "", nil)
	case c.tries < commits && !errors.Is(e.Err, ErrFenced) && !errors.Is(e.Err, lockstep.ErrConflict):
		c.deadline = instant.Add(c.now, c.cfg.Resend)
	case c.defect == defectLateUndo:
		c.decide(msgAbort, reasonLedger, nil)
	default:
		c.settle()
	}
}

// found takes in what the ledger says.
func (c *Coordinator) found(e *Event) {
	switch {
	case c.recover && errors.Is(e.Err, ErrFenced):
		c.lose()
	case e.Err != nil && !errors.Is(e.Err, ErrFenced):
		c.deadline = instant.Add(c.now, c.cfg.Resend)
	case e.Epoch != nil && (c.recover || e.Epoch.Equal(c.manifest)):
		c.manifest = e.Epoch.Clone()
		c.decide(msgCommit, "", nil)
	case c.recover:
		c.decide(msgAbort, reasonLeader, nil)
	default:
		c.decide(msgAbort, reasonLedger, nil)
	}
}

// abort gives up an epoch that is not committed.
func (c *Coordinator) abort(reason lockstep.Reason, blame []RankFault) {
	c.decide(msgAbort, reason, blame)
}

// decide is the end of doubt: from here on there is one way.
func (c *Coordinator) decide(kind string, reason lockstep.Reason, blame []RankFault) {
	c.decision, c.reason, c.blame = kind, reason, blame
	if c.recover {
		c.seats, c.count = make([]seat, c.cfg.Ranks), tally{}
	}
	c.enter(stageFinishing, c.cfg.FinishTimeout)
	c.judge(0, 0)
}

// lose is the end of this leader. Another decides; the ranks hear from it, or
// find out by themselves.
func (c *Coordinator) lose() {
	busy := c.stage != stageIdle
	c.stage, c.fenced, c.op = stageLost, true, 0
	if busy {
		c.out = append(c.out, Action{Kind: ActionReport, Epoch: c.epoch, Report: &Report{
			Epoch: c.epoch, Outcome: OutcomeFenced, Attempts: c.attempt, Reason: reasonStale, Fenced: true,
		}})
	}
}
