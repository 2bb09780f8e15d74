package checkpoint

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// end closes an epoch once all have heard, or their time is over.
func (c *Coordinator) end() {
	r := Report{Outcome: OutcomeAborted, Blame: c.blame, Broken: c.broken()}
	if c.decision == msgCommit {
		r.Outcome, r.Manifest = OutcomeCommitted, c.manifest
		c.aborts, c.until = 0, 0
		c.stopped = c.req.StopAfter
		r.Stopped = c.stopped && len(r.Broken) == 0
	} else if c.reason != reasonReleased {
		c.aborts++
		if c.aborts >= c.cfg.MaxAborts {
			c.until = instant.Add(c.now, c.cfg.Cooldown)
		}
	}
	if len(r.Broken) > 0 {
		r.Kill = c.survivors()
	}
	if c.again(&r) {
		c.open = false
		c.stage, c.deadline = stageWaiting, instant.Add(c.now, c.backoff())
		return
	}
	c.close(r)
}

// close reports, and notes that nothing is open any more.
func (c *Coordinator) close(r Report) {
	r.Epoch, r.Attempts, r.Reason, r.Fenced = c.epoch, c.attempt, c.reason, c.fenced
	r.Pause = time.Duration(c.now - c.began)
	c.open, c.stage = false, stageIdle
	if c.fenced {
		c.stage = stageLost
	}
	c.out = append(c.out, Action{Kind: ActionReport, Epoch: c.epoch, Report: &r})
	c.save() // if this fails a successor finds out once more, which does no harm
}

// again says whether there is to be another attempt.
func (c *Coordinator) again(r *Report) bool {
	return r.Outcome == OutcomeAborted && !c.recover && !c.fenced && len(r.Broken) == 0 &&
		c.reason != reasonReleased && c.attempt < c.req.Attempts && c.now >= c.until
}

// broken is who did not end as decided.
func (c *Coordinator) broken() []RankFault {
	var list []RankFault
	for i := range c.seats {
		if reason := c.wrong(&c.seats[i]); reason != "" {
			list = append(list, c.fault(i, reason))
		}
	}
	return list
}

// wrong says why a rank's end is not the one that was decided, or "".
func (c *Coordinator) wrong(s *seat) lockstep.Reason {
	kill := c.decision == msgCommit && c.req.StopAfter
	switch s.final {
	case "":
		return reasonSilence
	case msgBroken:
		if s.reason == "" {
			return reasonWedged
		}
		return s.reason
	case msgGone:
		if !kill {
			return reasonGone
		}
	case msgTerminated:
		if !kill {
			return reasonGone
		}
	case msgResumed:
		if kill {
			return reasonStale // it runs, and its peers do not
		}
	case msgRefuse:
		if c.decision == msgCommit {
			return reasonUnknown // it has lost its record
		}
	}
	return ""
}

// survivors is who is alive and has lost a peer.
func (c *Coordinator) survivors() []int {
	var list []int
	for i := range c.seats {
		switch c.seats[i].final {
		case msgResumed, msgRefuse, msgBroken:
			list = append(list, i)
		}
	}
	return list
}
