package liveness

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Accusation is what a rank says of a peer that it could not reach.
type Accusation struct {
	By    int `json:"by"`    // By is who says so.
	Of    int `json:"of"`    // Of is whom it could not reach.
	Group int `json:"group"` // Group is how many ranks were to reach each other, both included, such as those of a collective; at least 2.
}

// accused is an accusation that stands.
type accused struct {
	Of    int   `json:"of"`
	By    int   `json:"by"`
	Group int   `json:"group"`
	First int64 `json:"first"` // when it was made first
	Last  int64 `json:"last"`  // and last
}

func (a accused) compare(b accused) int {
	return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.By, b.By))
}

// Accuse takes in that a rank could not reach a peer. It does not condemn: more than
// half of a group have to say so, the accused aside, for it to be Suspect; and one
// who accuses without being joined, for as long as Config.Accuse, is suspect
// itself, unless somebody was found at fault meanwhile over whom it may have
// stumbled.
func (c *Coordinator) Accuse(now time.Time, a Accusation) (Outcome, error) {
	const op = "accuse"
	ns, err := c.t.enter(op, now)
	if err != nil {
		return 0, err
	}
	for _, number := range []int{a.By, a.Of} {
		if err := checkRank(op, number); err != nil {
			return 0, err
		}
	}
	if a.By == a.Of {
		return 0, fault(lockstep.ErrInvalid, op, "Of", strconv.Itoa(a.Of), "accuses itself")
	}
	if a.Group < 2 || a.Group > lockstep.MaxMembers {
		return 0, fault(lockstep.ErrInvalid, op, "Group", strconv.Itoa(a.Group), "want 2 to "+strconv.Itoa(lockstep.MaxMembers))
	}
	c.t.pass(ns)
	c.news = true
	by, of := c.ranks[a.By], c.ranks[a.Of]
	switch {
	case by == nil || of == nil:
		return Stranger, nil
	case by.told == Dead:
		return Fenced, nil
	case by.told == Left:
		return Retired, nil
	case of.told == Dead || of.told == Left:
		return Repeated, nil
	}
	return c.accuse(ns, accused{Of: a.Of, By: a.By, Group: a.Group, First: ns, Last: ns}), nil
}

func (c *Coordinator) accuse(ns int64, a accused) Outcome {
	i, ok := slices.BinarySearchFunc(c.open, a, accused.compare)
	if ok {
		old := &c.open[i]
		if old.Last == ns && a.Group <= old.Group {
			return Repeated
		}
		old.Last, old.Group = ns, max(old.Group, a.Group)
		return Accepted
	}
	mine := 0
	for _, o := range c.open {
		if o.By == a.By {
			mine++
		}
	}
	if mine >= maxAccuse || len(c.open) >= maxOpen {
		return Dropped
	}
	c.open = slices.Insert(c.open, i, a)
	return Accepted
}

// weigh decides on the accusations that stand.
func (c *Coordinator) weigh(ns int64) {
	c.news = false
	kept := c.open[:0]
	for rest := c.open; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Of == rest[0].Of {
			n++
		}
		kept = c.weighOne(kept, rest[:n], ns)
		rest = rest[n:]
	}
	c.open = kept
	slices.SortFunc(c.blamed, func(a, b *rank) int { return cmp.Compare(a.number, b.number) })
	for _, r := range slices.Clone(c.blamed) {
		if r.until <= ns {
			c.unblame(r)
		}
	}
}

// weighOne decides on all the accusations of one rank, and appends those that stand.
func (c *Coordinator) weighOne(kept, all []accused, ns int64) []accused {
	of := c.ranks[all[0].Of]
	if of.told == Dead || of.told == Left {
		return kept // they were right, or it does not matter
	}
	votes, group, last := 0, 0, int64(0)
	for _, a := range all {
		if by := c.ranks[a.By]; by.trusted() && ns < c.stale(a) {
			votes++
			group, last = max(group, a.Group), max(last, a.Last)
		}
	}
	upheld := votes > 0 && 2*votes > group-1
	if upheld {
		c.blame(of, reasonAccused, instant.Add(last, c.t.cfg.Accuse))
	}
	for _, a := range all {
		by := c.ranks[a.By]
		switch {
		case !takesPart(by.told):
		case upheld && ns < c.stale(a), ns < c.ripe(a):
			kept = append(kept, a)
		case !upheld && of.blame != reasonAccused && !excuses(of.told, of.said) && !c.excused(a):
			c.blame(by, reasonAccuser, instant.Add(ns, c.t.cfg.Accuse))
		}
	}
	return kept
}

// ripe is when a has to be joined by others, and stale when it does not count any more.
func (c *Coordinator) ripe(a accused) int64  { return instant.Add(a.First, c.t.cfg.Accuse) }
func (c *Coordinator) stale(a accused) int64 { return instant.Add(a.Last, c.t.cfg.Accuse) }

// trusted says whether the word of r counts: not once it stood alone with one.
func (r *rank) trusted() bool {
	return takesPart(r.told) && (r.told != Suspect || r.said != reasonAccuser)
}

// excused says whether something was wrong while a stood, or shortly before.
func (c *Coordinator) excused(a accused) bool {
	return c.standing > 0 || c.faultAt >= 0 && c.faultAt >= a.First-int64(c.t.cfg.Accuse)
}

// blame makes r suspect for an accusation.
func (c *Coordinator) blame(r *rank, why lockstep.Reason, until int64) {
	if r.blame == "" {
		c.blamed = append(c.blamed, r)
	}
	if r.blame != reasonAccused {
		r.blame = why
	}
	r.until = max(r.until, until)
	c.touch(r)
}

func (c *Coordinator) unblame(r *rank) {
	if r.blame == "" {
		return
	}
	r.blame, r.until = "", 0
	c.blamed = slices.DeleteFunc(c.blamed, func(o *rank) bool { return o == r })
	c.touch(r)
}

// dropAccusations removes those by and of a rank.
func (c *Coordinator) dropAccusations(number int) {
	c.open = slices.DeleteFunc(c.open, func(a accused) bool { return a.By == number || a.Of == number })
}
