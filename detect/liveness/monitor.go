package liveness

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Monitor judges the ranks of one job on one node by their beats and their
// progress. Make one with NewMonitor or RestoreMonitor.
type Monitor struct {
	node lockstep.NodeID
	inc  uint64
	seq  uint64
	t    *table[int]
	due  []int32 // scratch of Check
}

// NewMonitor returns a monitor without ranks for this incarnation of node, or the
// faults of its arguments. Domain and what the coordinator alone needs do not
// matter to it.
func NewMonitor(cfg Config, node lockstep.NodeID, incarnation uint64) (*Monitor, error) {
	if err := node.Validate(); err != nil {
		return nil, err
	}
	cfg.Domain = nil
	t, err := newTable[int](cfg, true)
	if err != nil {
		return nil, err
	}
	return &Monitor{node: node, inc: incarnation, t: t}, nil
}

// Len returns how many ranks there are, those that are dead or left included.
func (m *Monitor) Len() int { return len(m.t.slots) }

// Join makes rank, from 0 to lockstep.MaxMembers-1, a member whose first beat is
// awaited. A rank that is known joins anew, whatever state it is in, as a higher
// incarnation; an equal one is ErrDuplicate and a lower one ErrStale.
func (m *Monitor) Join(now time.Time, rank int, incarnation uint64) error {
	const op = "join"
	ns, err := m.t.enter(op, now)
	if err != nil {
		return err
	}
	if err := checkRank(op, rank); err != nil {
		return err
	}
	if err := m.t.join(op, "rank", strconv.Itoa(rank), rank, incarnation); err != nil {
		return err
	}
	m.t.pass(ns)
	m.t.add(ns, rank, incarnation)
	return nil
}

// Leave takes rank out in good order, so that its silence means nothing. It stays
// known, so that its late beats are Retired, until Forget. One that has left or
// died stays as it is.
func (m *Monitor) Leave(now time.Time, rank int, incarnation uint64) (Outcome, error) {
	return m.to("leave", now, rank, func(i int32, _ int64) Outcome {
		s := &m.t.slots[i]
		if out, no := s.refuse(incarnation); no {
			return out
		}
		s.life = gone
		m.t.set(i)
		return Accepted
	})
}

// Forget removes what is known of a rank that is dead or has left; of another it
// is ErrConflict.
func (m *Monitor) Forget(rank int) error {
	const op = "forget"
	i, ok := m.t.index[rank]
	switch {
	case !ok:
		return fault(lockstep.ErrUnknown, op, "rank", strconv.Itoa(rank), "never joined")
	case m.t.slots[i].life <= live:
		return fault(lockstep.ErrConflict, op, "rank", strconv.Itoa(rank), "is "+m.t.slots[i].state().String())
	}
	m.t.drop(i)
	return nil
}

// Beat takes in what rank says of itself. Of the beats of a rank with one time the
// one with the greatest progress counts, in whatever order they come.
func (m *Monitor) Beat(now time.Time, rank int, b Beat) (Outcome, error) {
	const op = "beat"
	ns, err := m.t.enter(op, now)
	if err != nil {
		return 0, err
	}
	if b.Phase >= maxPhases || m.t.rules[b.Phase].Gap == 0 {
		return 0, fault(lockstep.ErrInvalid, op, "Phase", b.Phase.String(), "has no rule")
	}
	if b.Pause < 0 || b.Pause > lockstep.MaxWalltime {
		return 0, fault(lockstep.ErrInvalid, op, "Pause", b.Pause.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	m.t.pass(ns)
	i, ok := m.t.index[rank]
	if !ok {
		return Stranger, nil
	}
	return m.t.beat(i, ns, &b), nil
}

// Evidence takes in what the host knows of rank. Check tells what follows, and
// NextWake is then now.
func (m *Monitor) Evidence(now time.Time, rank int, incarnation uint64, e Evidence) (Outcome, error) {
	if e > Seen {
		return 0, fault(lockstep.ErrInvalid, "evidence", "e", e.String(), "is no evidence")
	}
	return m.to("evidence", now, rank, func(i int32, ns int64) Outcome { return m.t.report(i, ns, incarnation, e) })
}

// to does f to the slot of rank.
func (m *Monitor) to(op string, now time.Time, rank int, f func(i int32, ns int64) Outcome) (Outcome, error) {
	ns, err := m.t.enter(op, now)
	if err != nil {
		return 0, err
	}
	m.t.pass(ns)
	i, ok := m.t.index[rank]
	if !ok {
		return Stranger, nil
	}
	return f(i, ns), nil
}

// Pause excuses all ranks until a time, at most lockstep.MaxWalltime from now:
// silence and lack of progress count from then on. A later call replaces it, so
// Pause(now, now) ends it. Evidence counts all the while.
func (m *Monitor) Pause(now, until time.Time) error {
	ns, end, err := m.t.pausing("pause", now, until)
	if err != nil {
		return err
	}
	m.t.pass(ns)
	m.t.pause(end)
	return nil
}

// pausing reads the times of a pause.
func (t *table[K]) pausing(op string, now, until time.Time) (ns, end int64, err error) {
	if ns, err = t.enter(op, now); err != nil {
		return 0, 0, err
	}
	if end, err = in.SinceEpoch(op, "until", until); err != nil {
		return 0, 0, err
	}
	if end < ns || end-ns > int64(lockstep.MaxWalltime) {
		return 0, 0, fault(lockstep.ErrInvalid, op, "until", until.UTC().String(), "want now to "+lockstep.MaxWalltime.String()+" from now")
	}
	return ns, end, nil
}

// Tune replaces the configuration from now on, which an operator may do while the
// job runs: thresholds, gaps, all but Window. What was learned stays.
func (m *Monitor) Tune(now time.Time, cfg Config) error {
	const op = "tune"
	ns, err := m.t.enter(op, now)
	if err != nil {
		return err
	}
	cfg.Domain = nil
	if err := m.t.tune(op, cfg); err != nil {
		return err
	}
	m.t.pass(ns)
	return nil
}

// Check decides at now, and appends what changed to dst: that the caller was late,
// then ranks in increasing order. Give the beats and the evidence of an instant
// first.
func (m *Monitor) Check(dst []Event, now time.Time) ([]Event, error) {
	ns, err := m.t.enter("check", now)
	if err != nil {
		return dst, err
	}
	m.t.pass(ns)
	m.t.refresh()
	m.due = m.t.list(m.due[:0], ns)
	dst = m.t.tellLate(dst, ns)
	at := lockstep.FromNanos(ns)
	for _, i := range m.due {
		s := &m.t.slots[i]
		m.t.step(s, ns)
		if s.unsaid() {
			dst = append(dst, Event{Kind: RankChanged, At: at, Rank: s.key, Node: m.node})
			s.tell(&dst[len(dst)-1])
		}
		m.t.at[i] = m.t.due(s)
	}
	m.t.seeing(ns)
	return dst, nil
}

// list appends the slots to look at by ns, in the order of their keys.
func (t *table[K]) list(dst []int32, ns int64) []int32 {
	for i, at := range t.at {
		if at <= ns {
			dst = append(dst, int32(i))
		}
	}
	if t.mixed {
		slices.SortFunc(dst, func(a, b int32) int { return cmp.Compare(t.slots[a].key, t.slots[b].key) })
	}
	return dst
}

// tellLate appends that the caller was away, if it was and this is not told yet.
func (t *table[K]) tellLate(dst []Event, ns int64) []Event {
	if t.late == never {
		return dst
	}
	e := Event{Kind: ObserverLate, At: lockstep.FromNanos(ns), Reason: reasonLate, Since: lockstep.FromNanos(t.late)}
	t.late = never
	return append(dst, e)
}

// NextWake returns the earliest time at which Check can tell something, or now if it
// can already; false if there is none.
func (m *Monitor) NextWake(now time.Time) (time.Time, bool) { return m.t.nextWake(now, m.t.wake()) }

func (t *table[K]) nextWake(now time.Time, at int64) (time.Time, bool) {
	if t.late != never {
		return now, true
	}
	if at == never {
		return time.Time{}, false
	}
	if wake := lockstep.FromNanos(at); wake.After(now) {
		return wake, true
	}
	return now, true
}

// Report returns all ranks as Check last told of them, for the coordinator. The
// members are new memory. The sequence follows the time, so that a monitor that was
// restored from an older state does not repeat those that it has forgotten.
func (m *Monitor) Report() Report {
	m.seq = max(m.seq+1, uint64(m.t.now))
	r := Report{Node: m.node, Incarnation: m.inc, Sequence: m.seq, Members: make([]Member, 0, len(m.t.slots))}
	for i := range m.t.slots {
		s := &m.t.slots[i]
		r.Members = append(r.Members, Member{
			Rank: s.key, Node: m.node, Incarnation: s.of,
			State: s.told, Reason: s.said, Since: s.heard(s.told),
		})
	}
	slices.SortFunc(r.Members, func(a, b Member) int { return cmp.Compare(a.Rank, b.Rank) })
	return r
}

// Status returns all that is known of rank, seen from now.
func (m *Monitor) Status(now time.Time, rank int) (Status, bool) {
	i, ok := m.t.index[rank]
	if !ok {
		return Status{}, false
	}
	s := m.t.status(i, now)
	s.Rank, s.Node = rank, m.node
	return s, true
}

// status is the status of slot i, without its name.
func (t *table[K]) status(i int32, now time.Time) Status {
	t.refresh()
	s := &t.slots[i]
	st := Status{
		Member: Member{Incarnation: s.inc, State: s.state(), Reason: s.reason(), Since: s.heard(s.state())},
		Phase:  s.phase, Progress: s.progress, Last: lockstep.FromNanos(s.last),
		Mean: time.Duration(s.win.mean()), Sigma: max(time.Duration(s.win.sigma()), t.cfg.MinSigma),
	}
	if s.life <= live {
		st.SuspectAt, st.DeadAt = lockstep.FromNanos(s.quietAt), lockstep.FromNanos(s.deadAt)
	}
	if s.life == live {
		from := lockstep.FromNanos(max(s.last, s.paused, t.pausedTo)).Add(t.rules[s.phase].Pause + time.Duration(t.cfg.pause()))
		st.Phi = phi(max(now.Sub(from), 0), st.Mean, st.Sigma)
	}
	if t.judged(s) {
		st.HungAt = lockstep.FromNanos(t.hungAt(s))
	}
	return st
}

func checkRank(op string, rank int) error {
	if rank < 0 || rank >= lockstep.MaxMembers {
		return fault(lockstep.ErrInvalid, op, "rank", strconv.Itoa(rank), "want 0 to "+strconv.Itoa(lockstep.MaxMembers-1))
	}
	return nil
}
