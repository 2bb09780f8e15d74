package sharing

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// LaneConfig configures Lanes. Memory counts in whole MiB, as in Limits.
type LaneConfig struct {
	Capacity lockstep.Bytes `json:"capacity"`        // Capacity is the device memory that sessions may have together, 1 MiB to 1 PiB.
	Lanes    int            `json:"lanes,omitempty"` // Lanes is how many iterations may run at once; 0 means as many as there is memory for, up to 4096.
}

// Session is a job that runs in iterations on a shared device.
type Session struct {
	ID            lockstep.JobID    `json:"id"`                      // ID names it.
	Persistent    lockstep.Bytes    `json:"persistent,omitempty"`    // Persistent is the memory that it keeps between iterations, such as its model.
	Ephemeral     lockstep.Bytes    `json:"ephemeral,omitempty"`     // Ephemeral is the most that an iteration takes besides and gives back at its end.
	Opportunistic bool              `json:"opportunistic,omitempty"` // Opportunistic sessions run when no guaranteed one of their lane could.
	Priority      lockstep.Priority `json:"priority,omitempty"`      // Priority orders sessions of a class: higher first.
}

// Lanes divides the memory of a device into what sessions keep and lanes, in each
// of which the iterations of its sessions run one after the other, and decides
// whose turn it is. It is made by NewLanes or RestoreLanes.
type Lanes struct {
	cfg        LaneConfig // as given
	capacity   lockstep.Bytes
	now        int64
	sessions   map[lockstep.JobID]*session
	lanes      []lane         // by number; those without sessions are closed
	persistent lockstep.Bytes // sum over sessions
	ephemeral  lockstep.Bytes // sum over lanes
}

// lane is memory that one iteration at a time uses.
type lane struct {
	size     lockstep.Bytes // the most that an iteration of its sessions takes
	sessions []*session     // by ID
	running  *session       // nil while none does
}

// session is a Session with what it does.
type session struct {
	Session
	lane   int
	phase  phase
	since  int64 // start of the iteration that runs; 0 while none does
	served int64 // nanoseconds for which its iterations ran, or more: see Ready
}

// phase is where a session is in its iterations.
type phase int8

const (
	paused  phase = iota // it loads data, or has nothing to do
	ready                // its next iteration could start
	running              // its iteration runs
)

// NewLanes returns a device without sessions. A fault of cfg is ErrInvalid.
func NewLanes(cfg LaneConfig) (*Lanes, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Lanes{cfg: cfg, capacity: down(cfg.Capacity), sessions: make(map[lockstep.JobID]*session)}, nil
}

// Validate reports every fault of c, joined, each an *lockstep.Error of kind
// ErrInvalid.
func (c LaneConfig) Validate() error {
	f := faults{op: "sharing: lanes"}
	if c.Capacity < lockstep.MiB || c.Capacity > maxMemory {
		f.bad("Capacity", c.Capacity.String(), "want 1Mi to 1Pi")
	}
	if c.Lanes < 0 || c.Lanes > maxTenants {
		f.bad("Lanes", strconv.Itoa(c.Lanes), "want 0 to 4096")
	}
	return f.err()
}

// Join takes s in if it is safe and says whether it was: if what all sessions keep
// and the lanes, each as large as the largest iteration in it, fit into Capacity
// together. It gets a lane of its own where there is room for one; else it joins
// the smallest lane that is large enough, with the fewest sessions, of the lowest
// number; else it joins and enlarges the largest one. It is refused for
// ReasonCapacity where it would be alone too, else for ReasonBusy, and may be tried
// again after a Leave. A fault of s is ErrInvalid, an ID that is in already is
// ErrDuplicate, and one session more than 4096 is ErrConflict.
func (l *Lanes) Join(s Session) (lockstep.Verdict, error) {
	const op = "sharing: join"
	s, err := s.rounded(op)
	if err != nil {
		return lockstep.Verdict{}, err
	}
	if _, ok := l.sessions[s.ID]; ok {
		return lockstep.Verdict{}, fault(lockstep.ErrDuplicate, op, "ID", string(s.ID), "is a session already")
	}
	if len(l.sessions) == maxTenants {
		return lockstep.Verdict{}, fault(lockstep.ErrConflict, op, "ID", string(s.ID), "there are 4096 sessions")
	}
	v := lockstep.Verdict{Want: 1}
	number, ok := l.find(s)
	if !ok {
		reason := lockstep.ReasonBusy
		if s.Persistent+s.Ephemeral > l.capacity {
			reason = lockstep.ReasonCapacity
		}
		return short(v, reason, lockstep.ResourceGPUMemory, int64(s.Persistent+s.Ephemeral), int64(l.free())), nil
	}
	l.enter(&session{Session: s, lane: number})
	v.Feasible, v.Fit = true, 1
	return v, nil
}

// rounded checks s and rounds its memory to whole MiB.
func (s Session) rounded(op string) (Session, error) {
	f := faults{op: op}
	f.wrap("ID", s.ID.Validate())
	if s.Persistent < 0 || s.Persistent > maxMemory {
		f.bad("Persistent", s.Persistent.String(), "want 0 to 1Pi")
	}
	if s.Ephemeral < 0 || s.Ephemeral > maxMemory {
		f.bad("Ephemeral", s.Ephemeral.String(), "want 0 to 1Pi")
	}
	s.Persistent, s.Ephemeral = up(s.Persistent), up(s.Ephemeral)
	return s, f.err()
}

// free returns what neither sessions keep nor lanes hold.
func (l *Lanes) free() lockstep.Bytes { return l.capacity - l.persistent - l.ephemeral }

// find returns the number of the lane for s, which is len(l.lanes) or a closed one for a new lane.
func (l *Lanes) find(s Session) (number int, ok bool) {
	free := l.free() - s.Persistent
	if free < 0 {
		return 0, false
	}
	open, closed := 0, len(l.lanes)
	best := -1
	for i := range l.lanes {
		n := &l.lanes[i]
		if len(n.sessions) == 0 {
			closed = min(closed, i)
			continue
		}
		open++
		if best < 0 || n.suits(&l.lanes[best], s.Ephemeral) {
			best = i
		}
	}
	if s.Ephemeral <= free && (l.cfg.Lanes == 0 || open < l.cfg.Lanes) {
		return closed, true
	}
	if best < 0 || s.Ephemeral-l.lanes[best].size > free {
		return 0, false
	}
	return best, true
}

// suits says whether n is better for an iteration of that size than m, which has a lower number: large enough before
// too small, then the smaller of those that are large enough, or the larger of those that are not, then fewer sessions.
func (n *lane) suits(m *lane, size lockstep.Bytes) bool {
	if fits := n.size >= size; fits != (m.size >= size) {
		return fits
	} else if n.size != m.size {
		return (n.size < m.size) == fits
	}
	return len(n.sessions) < len(m.sessions)
}

// enter puts s into its lane.
func (l *Lanes) enter(s *session) {
	l.sessions[s.ID] = s
	for s.lane >= len(l.lanes) {
		l.lanes = append(l.lanes, lane{})
	}
	n := &l.lanes[s.lane]
	at, _ := slices.BinarySearchFunc(n.sessions, s.ID, func(t *session, id lockstep.JobID) int {
		return strings.Compare(string(t.ID), string(id))
	})
	n.sessions = slices.Insert(n.sessions, at, s)
	l.persistent += s.Persistent
	l.resize(n)
}

// resize makes a lane as large as its sessions need.
func (l *Lanes) resize(n *lane) {
	l.ephemeral -= n.size
	n.size = 0
	for _, s := range n.sessions {
		n.size = max(n.size, s.Ephemeral)
	}
	l.ephemeral += n.size
}

// Leave removes a session and all its memory; its lane shrinks to what the others
// need. A session that is not in is ErrUnknown, a time before the latest ErrPast.
func (l *Lanes) Leave(now time.Time, id lockstep.JobID) error {
	s, ns, err := l.at("leave", now, id)
	if err != nil {
		return err
	}
	l.now = ns
	n := &l.lanes[s.lane]
	if n.running == s {
		n.running = nil
	}
	n.sessions = slices.DeleteFunc(n.sessions, func(t *session) bool { return t == s })
	l.persistent -= s.Persistent
	l.resize(n)
	delete(l.sessions, id)
	for len(l.lanes) > 0 && len(l.lanes[len(l.lanes)-1].sessions) == 0 {
		l.lanes = l.lanes[:len(l.lanes)-1]
	}
	return nil
}

// Ready says that the next iteration of a session could start: its data is there.
// If it was paused, its account of the time for which its iterations ran is raised
// to the least of those in its lane that wait or run, so that it does not make up
// for its pause at their cost. While its iteration runs that is ErrConflict; other errors are as for Leave.
func (l *Lanes) Ready(now time.Time, id lockstep.JobID) error {
	s, ns, err := l.at("ready", now, id)
	if err != nil {
		return err
	}
	if s.phase == running {
		return fault(lockstep.ErrConflict, "sharing: ready", "id", strconv.Quote(string(id)), "its iteration runs")
	}
	l.now = ns
	if s.phase == paused {
		s.phase = ready
		s.served = max(s.served, l.lanes[s.lane].least(s))
	}
	return nil
}

// least returns the account of the session of n other than s that is ready or runs and has the smallest; 0 without one.
func (n *lane) least(s *session) int64 {
	var least int64
	found := false
	for _, t := range n.sessions {
		if t != s && t.phase != paused && (!found || t.served < least) {
			least, found = t.served, true
		}
	}
	return least
}

// Pause says that the iteration of a session is over and its ephemeral memory given
// back; it loads data for the next one, or has nothing to do, and its lane is free
// for others until it is Ready. While no iteration of it runs that is ErrConflict;
// other errors are as for Leave.
func (l *Lanes) Pause(now time.Time, id lockstep.JobID) error {
	s, ns, err := l.at("pause", now, id)
	if err != nil {
		return err
	}
	if s.phase != running {
		return fault(lockstep.ErrConflict, "sharing: pause", "id", strconv.Quote(string(id)), "no iteration of it runs")
	}
	l.now = ns
	s.phase = paused
	s.served += ns - s.since
	s.since = 0
	l.lanes[s.lane].running = nil
	return nil
}

// Next appends to dst the sessions whose iteration is to start now, at most one for
// each lane in which none runs, by number of the lane. In a lane guaranteed ones go
// first, then those of higher priority, then those with the smaller account of the
// time for which their iterations ran, then by ID. A time before the latest is ErrPast.
func (l *Lanes) Next(now time.Time, dst []lockstep.JobID) ([]lockstep.JobID, error) {
	ns, err := in.SinceEpoch("next", "now", now)
	if err == nil {
		err = in.NotBefore("next", "now", now, ns, l.now)
	}
	if err != nil {
		return dst, err
	}
	l.now = ns
	for i := range l.lanes {
		n := &l.lanes[i]
		if n.running != nil {
			continue
		}
		for _, s := range n.sessions {
			if s.phase == ready && (n.running == nil || s.order(n.running) < 0) {
				n.running = s
			}
		}
		if s := n.running; s != nil {
			s.phase, s.since = running, ns
			dst = append(dst, s.ID)
		}
	}
	return dst, nil
}

// order compares whose turn it is in a lane; its sessions are visited by ID.
func (s *session) order(t *session) int {
	return cmp.Or(first(t.Opportunistic, s.Opportunistic), cmp.Compare(t.Priority, s.Priority), cmp.Compare(s.served, t.served))
}

// Lane returns the number of the lane that a session is in, from 0; ok is false
// when it is in none.
func (l *Lanes) Lane(id lockstep.JobID) (number int, ok bool) {
	s, ok := l.sessions[id]
	if !ok {
		return 0, false
	}
	return s.lane, true
}

// Free returns the memory that neither sessions keep nor lanes hold.
func (l *Lanes) Free() lockstep.Bytes { return l.free() }

// at reads a time and looks a session up.
func (l *Lanes) at(op string, now time.Time, id lockstep.JobID) (*session, int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err == nil {
		err = in.NotBefore(op, "now", now, ns, l.now)
	}
	if err != nil {
		return nil, 0, err
	}
	s, ok := l.sessions[id]
	if !ok {
		return nil, 0, fault(lockstep.ErrUnknown, "sharing: "+op, "id", strconv.Quote(string(id)), "no such session")
	}
	return s, ns, nil
}
