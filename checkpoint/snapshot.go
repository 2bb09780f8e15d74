package checkpoint

import (
	"io"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

const (
	leaderFormat = "lockstep/checkpoint-leader"
	rankFormat   = "lockstep/checkpoint-rank"
	version      = 1
)

// leaderImage is what a leader's successor has to know.
type leaderImage struct {
	Job     lockstep.JobID `json:"job"`
	Ranks   int            `json:"ranks"`
	Term    Term           `json:"term"`
	Epoch   Epoch          `json:"epoch"`
	Open    bool           `json:"open,omitempty"`
	Request Request        `json:"request"`
	Stopped bool           `json:"stopped,omitempty"`
	Aborts  int            `json:"aborts,omitempty"`
	Until   int64          `json:"until,omitempty"`
}

func (c *Coordinator) image() leaderImage {
	return leaderImage{
		Job: c.cfg.Job, Ranks: c.cfg.Ranks, Term: c.cfg.Term, Epoch: c.epoch, Open: c.open,
		Request: c.req, Stopped: c.stopped, Aborts: c.aborts, Until: c.until,
	}
}

// Snapshot writes what a successor needs: the number of the last epoch, what was
// wanted of it, and whether it is known how it ended.
func (c *Coordinator) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "checkpoint: snapshot", leaderFormat, version, c.image())
}

// Restore returns the next leader of the job whose last leader wrote r. If that
// one left an epoch open, the term of cfg has to be greater than its, and an
// EventRecover has to come before a request: Pending says so.
func Restore(cfg Config, r io.Reader) (*Coordinator, error) {
	const op = "checkpoint: restore"
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	var img leaderImage
	body, err := snapshot.ReadJSON(r, op, leaderFormat, version, &img)
	if err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, img); err != nil {
		return nil, err
	}
	if err := img.check(cfg); err != nil {
		return nil, err
	}
	c.epoch, c.open, c.req = max(img.Epoch, cfg.After), img.Open, img.Request
	c.stopped, c.aborts, c.until = img.Stopped, img.Aborts, img.Until
	if c.open {
		if c.epoch != img.Epoch {
			return nil, fault(lockstep.ErrConflict, "restore", "After", strconv.FormatUint(uint64(cfg.After), 10), "epoch "+strconv.FormatUint(uint64(img.Epoch), 10)+" is open")
		}
		c.stage = stageRecover
	}
	return c, nil
}

func (img *leaderImage) check(cfg Config) error {
	bad := func(kind error, field, value, reason string) error {
		return fault(kind, "restore", field, value, reason)
	}
	switch {
	case img.Job != cfg.Job:
		return bad(lockstep.ErrConflict, "job", string(img.Job), "want "+string(cfg.Job))
	case img.Ranks != cfg.Ranks:
		return bad(lockstep.ErrConflict, "ranks", strconv.Itoa(img.Ranks), "want "+strconv.Itoa(cfg.Ranks))
	case img.Aborts < 0 || img.Until < 0 || img.Term == 0 || img.Open && img.Epoch == 0:
		return bad(lockstep.ErrInvalid, "snapshot", "", "holds a number out of range")
	case cfg.Term < img.Term || img.Open && cfg.Term == img.Term:
		return bad(ErrFenced, "Term", strconv.FormatUint(uint64(cfg.Term), 10), "want more than "+strconv.FormatUint(uint64(img.Term), 10))
	}
	return img.Request.Validate()
}

// rankImage is what an agent owes, across its own death.
type rankImage struct {
	Job    lockstep.JobID  `json:"job"`
	Rank   int             `json:"rank"`
	Term   Term            `json:"term"`
	Epoch  Epoch           `json:"epoch"`
	Plan   Plan            `json:"plan"`
	Hold   hold            `json:"hold"`
	Phase  phase           `json:"phase"`
	Aim    aim             `json:"aim"`
	Stored bool            `json:"stored,omitempty"`
	Image  RankImage       `json:"image,omitzero"`
	Final  string          `json:"final,omitempty"`
	Reason lockstep.Reason `json:"reason,omitempty"`
}

func (a *Agent) rankRecord() rankImage {
	return rankImage{
		Job: a.cfg.Job, Rank: a.cfg.Rank, Term: a.term, Epoch: a.epoch, Plan: a.plan, Hold: a.hold,
		Phase: a.phase, Aim: a.aim, Stored: a.stored, Image: a.image, Final: a.final, Reason: a.reason,
	}
}

// Snapshot writes what the agent owes its target and the leader.
func (a *Agent) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "checkpoint: snapshot", rankFormat, version, a.rankRecord())
}

// RestoreAgent returns the agent of the same target after the one that wrote r
// has died. It gives back what was held, but for what may be committed: about
// that it asks the ledger, if the ranks were to be terminated.
func RestoreAgent(cfg AgentConfig, r io.Reader) (*Agent, error) {
	const op = "checkpoint: restore agent"
	a, err := NewAgent(cfg)
	if err != nil {
		return nil, err
	}
	var img rankImage
	body, err := snapshot.ReadJSON(r, op, rankFormat, version, &img)
	if err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, img); err != nil {
		return nil, err
	}
	switch {
	case img.Job != cfg.Job || img.Rank != cfg.Rank:
		return nil, fault(lockstep.ErrConflict, "restore agent", "rank", string(img.Job)+"/"+strconv.Itoa(img.Rank), "is another rank's")
	case img.Phase < phaseIdle || img.Phase > phaseBroken, img.Aim < aimForward || img.Aim > aimKill,
		img.Hold.Duty < dutyNone || img.Hold.Duty > dutyKill, img.Plan.Silence < 0 || img.Plan.Pause < 0:
		return nil, fault(lockstep.ErrInvalid, "restore agent", "snapshot", "", "holds a number out of range")
	}
	a.adopt(&img)
	return a, nil
}

// adopt takes over from an agent that died. Calls that it made may be under way
// still.
func (a *Agent) adopt(img *rankImage) {
	a.term, a.epoch, a.plan, a.hold, a.phase, a.aim = img.Term, img.Epoch, img.Plan, img.Hold, img.Phase, img.Aim
	a.stored, a.image, a.final, a.reason = img.Stored, img.Image, img.Final, img.Reason
	if a.plan.Early && a.final == msgResumed && !a.stored && a.reason == "" {
		a.reason = reasonSave // what was being stored is lost
	}
	if a.phase == phaseIdle || a.phase == phaseBroken {
		return
	}
	a.fresh = true
	a.hold.State, a.hold.Flight = "", true
	if a.phase != phaseStored && a.aim == aimForward {
		a.aim = aimUndo
		if a.reason == "" {
			a.reason = reasonLeader
		}
	}
}
