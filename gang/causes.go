package gang

import (
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// cause names the stretch of a job's life, from submission or its latest start to
// the next, for which another made room.
type cause struct {
	For    lockstep.JobID `json:"for"`
	Submit int64          `json:"submit"`
	Start  int64          `json:"start"` // minTime where it had not run
}

// cause is that of j now.
func (j *job) cause() cause {
	c := cause{For: j.id, Submit: j.submit, Start: minTime}
	if j.begun {
		c.Start = j.start
	}
	return c
}

// beneficiary returns the job of c, or nil when it is not there any more.
func (a *Admission) beneficiary(c cause) *job {
	j := a.jobs[c.For]
	if j == nil || j.phase == Gone || j.submit != c.Submit {
		return nil
	}
	return j
}

// noteMade remembers that h makes room for j, and forgets whom it made room for
// that is not there any more.
func (a *Admission) noteMade(h, j *job) {
	h.made = slices.DeleteFunc(h.made, func(c cause) bool { return a.beneficiary(c) == nil })
	h.made = append(h.made, j.cause())
	j.taken++
}

// servedBy returns the jobs for whom j made room, those for whom they did, and so
// on; nil when there are none. Since nobody takes room from one of them, the
// relation has no cycle, and so many jobs only so many evictions.
func (a *Admission) servedBy(j *job) map[*job]bool {
	if len(j.made) == 0 {
		return nil
	}
	seen := make(map[*job]bool)
	for next := []*job{j}; len(next) > 0; {
		h := next[len(next)-1]
		next = next[:len(next)-1]
		for _, c := range h.made {
			if b := a.beneficiary(c); b != nil && !seen[b] {
				seen[b] = true
				next = append(next, b)
			}
		}
	}
	return seen
}

// untaken remembers that a job of Priority could take no room in State, and so no
// other of its shape can whose priority is not higher. While holders are due it
// counts in the same pass only.
type untaken struct {
	State    [4]uint64         `json:"state"`
	Beside   int               `json:"beside,omitempty"` // how many reservations there were
	ID       uint64            `json:"id,omitempty"`     // the last of them
	Pass     uint64            `json:"pass"`
	Once     bool              `json:"once,omitempty"` // it counts in the same pass only in any case
	Priority lockstep.Priority `json:"priority"`
}

func (a *Admission) takeState() [4]uint64 { return [4]uint64{a.epoch, a.flow, a.runs, a.grants} }

// cannotTake reports whether it is known that a job of shape s and priority p can
// take no room from others in this state.
func (a *Admission) cannotTake(s *shape, p lockstep.Priority) bool {
	u := &s.untaken
	return !a.plain && u.Pass != 0 && u.State == a.takeState() && p <= u.Priority && (a.p.soft == 0 && !u.Once || u.Pass == a.pass) &&
		(u.Beside == 0 || len(a.res) >= u.Beside && a.res[u.Beside-1].id == u.ID)
}

// mayTakeSoon reports whether some job waiting in the line of s, from its next on,
// may be able to take room from others in this state.
func (a *Admission) mayTakeSoon(s *shape) bool {
	if !a.takes {
		return false
	}
	next := s.next
	if a.cfg.Orderer != nil || next >= len(s.line) {
		next = 0
	}
	g := s.line[next].gang
	return g.Preemption != lockstep.PreemptNever && !a.cannotTake(s, g.Priority)
}

// noteUntaken remembers that j can take no room from anybody, where that goes for
// its like too.
func (a *Admission) noteUntaken(j *job) {
	if a.p.partial || j.shape.affinity || len(a.windows) > 0 || len(j.refused) > 0 || a.cfg.MaxVictims > 0 && j.taken > 0 {
		return
	}
	u := untaken{State: a.takeState(), Beside: len(a.res), Pass: a.pass, Once: a.p.later, Priority: j.gang.Priority}
	if u.Beside > 0 {
		u.ID = a.res[u.Beside-1].id
	}
	j.shape.untaken = u
}

// ownerOf numbers whose g is, as far as shapes tell; 0 where that does not matter.
func (a *Admission) ownerOf(g *lockstep.Gang) int32 {
	if !a.takes || a.cfg.Quota == nil || g.Preemption == lockstep.PreemptNever {
		return 0
	}
	who := owner{tenant: g.Tenant, queue: g.Queue}
	n, known := a.owners[who]
	if !known {
		n = int32(len(a.owners) + 1)
		a.owners[who] = n
	}
	return n
}
