package gang

import (
	"cmp"
	"io"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// The format of snapshots and its version.
const (
	format  = "lockstep/gang"
	version = 2
)

type savedState struct {
	Now      int64              `json:"now"`
	Attempts lockstep.Attempt   `json:"attempts"`
	Grants   uint64             `json:"grants,omitempty"`
	Runs     uint64             `json:"runs,omitempty"`
	Epoch    uint64             `json:"epoch"`
	Opens    uint64             `json:"opens"`
	Tight    uint64             `json:"tight"`
	Gen      uint64             `json:"gen"`
	Flow     uint64             `json:"flow,omitempty"`
	Pass     uint64             `json:"pass"`
	Stale    bool               `json:"stale,omitempty"`
	Walked   uint64             `json:"walked,omitempty"`
	WalkedAt int64              `json:"walkedAt,omitempty"`
	Strict   bool               `json:"strict,omitempty"`
	Jobs     []savedJob         `json:"jobs,omitempty"` // by ID
	Gone     []lockstep.JobID   `json:"gone,omitempty"` // oldest first
	Closed   []savedClosure     `json:"closed,omitempty"`
	Windows  []Window           `json:"windows,omitempty"`
	Reserved []savedReservation `json:"reserved,omitempty"`
	Out      []lockstep.Action  `json:"out,omitempty"`
}

type savedJob struct {
	Gang      *lockstep.Gang    `json:"gang"`
	Phase     Phase             `json:"phase"`
	Attempt   lockstep.Attempt  `json:"attempt,omitempty"`
	Submit    int64             `json:"submit"`
	Plan      *lockstep.Plan    `json:"plan,omitempty"` // without its gang
	Old       []lockstep.Member `json:"old,omitempty"`
	Charged   bool              `json:"charged,omitempty"`
	Waits     []lockstep.JobID  `json:"waits,omitempty"`
	Confirmed []bool            `json:"confirmed,omitempty"`
	Deadline  int64             `json:"deadline,omitempty"`
	Begun     bool              `json:"begun,omitempty"`
	Start     int64             `json:"start,omitempty"`
	End       int64             `json:"end"`
	Due       bool              `json:"due,omitempty"`
	Told      bool              `json:"told,omitempty"`
	Replan    bool              `json:"replan,omitempty"`
	Lost      []int             `json:"lost,omitempty"`
	Shrunk    bool              `json:"shrunk,omitempty"`
	Requeue   bool              `json:"requeue,omitempty"`
	Lapses    int               `json:"lapses,omitempty"`
	WaitFor   lockstep.JobID    `json:"waitFor,omitempty"`
	Made      []cause           `json:"made,omitempty"`
	Taken     int               `json:"taken,omitempty"`
	Trial     int               `json:"trial,omitempty"`
	Tried     bool              `json:"tried,omitempty"`
	Keeps     *lockstep.Plan    `json:"keeps,omitempty"` // without its gang
	Passed    bool              `json:"passed,omitempty"`
	NotUntil  int64             `json:"notUntil"`
	Refused   []refusal         `json:"refused,omitempty"`
	Grants    uint64            `json:"grants,omitempty"`
	Failed    uint64            `json:"failed,omitempty"`
	Roomless  delay             `json:"roomless,omitzero"`
	Delays    delay             `json:"delays,omitzero"`
	Verdict   lockstep.Verdict  `json:"verdict"`
	Seen      bool              `json:"seen,omitempty"`
	Spot      []lockstep.Member `json:"spot,omitempty"`
	Reason    lockstep.Reason   `json:"reason,omitempty"`
	Shape     *savedShape       `json:"shape,omitempty"` // with the first job of its shape
}

type savedShape struct {
	Failed     uint64           `json:"failed,omitempty"`
	Delays     delay            `json:"delays,omitzero"`
	Impossible uint64           `json:"impossible,omitempty"`
	Verdict    lockstep.Verdict `json:"verdict"`
	Placeable  bool             `json:"placeable,omitempty"`
	Untaken    untaken          `json:"untaken,omitzero"`
}

type savedClosure struct {
	Node     lockstep.NodeID `json:"node"`
	Down     bool            `json:"down,omitempty"`
	Cordoned bool            `json:"cordoned,omitempty"`
}

type savedReservation struct {
	Job     lockstep.JobID    `json:"job"`
	Start   int64             `json:"start"`
	End     int64             `json:"end"`
	Overdue bool              `json:"overdue,omitempty"`
	Members []lockstep.Member `json:"members"`
	ID      uint64            `json:"id"`
	Epoch   uint64            `json:"epoch"`
	Tight   uint64            `json:"tight"`
	Flow    uint64            `json:"flow,omitempty"`
}

// Snapshot writes all of a's own state to w, so that Restore continues as a
// would. Like states write like bytes. The configuration, and what placer,
// orderer and quota keep, are not in it.
func (a *Admission) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "gang: snapshot", format, version, a.save())
}

func (a *Admission) save() *savedState {
	s := &savedState{
		Now: a.now, Attempts: a.attempts, Grants: a.grants, Runs: a.runs, Epoch: a.epoch, Opens: a.opens, Tight: a.tight, Gen: a.gen, Flow: a.flow, Pass: a.pass,
		Stale: a.stale, Walked: a.walked, WalkedAt: a.walkedAt, Strict: a.p.strict, Windows: a.windows, Out: a.out,
	}
	shapes := make(map[*shape]bool, len(a.shapes)+len(a.simple))
	for _, id := range a.AppendJobs(nil) {
		j := a.jobs[id]
		s.Jobs = append(s.Jobs, saveJob(j))
		s.Jobs[len(s.Jobs)-1].Seen = j.phase == Queued && j.seen == a.pass
		s.Jobs[len(s.Jobs)-1].Passed = slices.Contains(a.passed, j)
		if j.shape != nil && !shapes[j.shape] {
			shapes[j.shape] = true
			x := j.shape
			s.Jobs[len(s.Jobs)-1].Shape = &savedShape{Failed: x.failed, Delays: x.delays, Impossible: x.impossible, Verdict: x.verdict, Placeable: x.placeable, Untaken: x.untaken}
		}
	}
	for _, j := range a.gone {
		s.Gone = append(s.Gone, j.id)
	}
	for _, c := range a.closed {
		s.Closed = append(s.Closed, savedClosure{Node: c.node, Down: c.down, Cordoned: c.cordoned})
	}
	for i := range a.res {
		r := &a.res[i]
		s.Reserved = append(s.Reserved, savedReservation{
			Job: r.job.id, Start: r.start, End: r.end, Overdue: r.overdue, Members: r.members, ID: r.id, Epoch: r.epoch, Tight: r.tight, Flow: r.flow,
		})
	}
	return s
}

func saveJob(j *job) savedJob {
	s := savedJob{
		Gang: j.gang, Phase: j.phase, Attempt: j.attempt, Submit: j.submit, Old: j.old, Charged: j.charged, Waits: j.waits,
		Confirmed: j.confirmed, Deadline: j.deadline, Begun: j.begun, Start: j.start, End: j.end, Due: j.due, Told: j.told,
		Replan: j.replan, Shrunk: j.shrunk, Requeue: j.requeue, Lapses: j.lapses, WaitFor: j.waitFor, NotUntil: j.notUntil, Refused: j.refused,
		Lost: j.lost, Made: j.made, Taken: j.taken, Trial: j.trial, Tried: j.tried,
		Grants: j.grants, Failed: j.failed, Roomless: j.roomless, Delays: j.delays, Verdict: j.verdict, Spot: j.spot, Reason: j.reason,
	}
	if j.holds() {
		p := *j.plan
		p.Gang = nil
		s.Plan = &p
	}
	if j.keeps != nil {
		p := *j.keeps
		p.Gang = nil
		s.Keeps = &p
	}
	return s
}

// Restore reads what Snapshot wrote, for use with a configuration and with a
// placer, orderer and quota in the same states as then. Bytes that are cut off,
// changed, of another version or at odds with themselves are
// lockstep.ErrInvalid.
func Restore(cfg Config, r io.Reader) (*Admission, error) {
	a, err := New(cfg)
	if err != nil {
		return nil, err
	}
	var s savedState
	body, err := snapshot.ReadJSON(r, "gang: restore", format, version, &s)
	if err != nil {
		return nil, err
	}
	if err := a.load(&s); err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON("gang: restore", body, a.save()); err != nil {
		return nil, err
	}
	return a, nil
}

func corrupt(field, reason string) error {
	return fault(lockstep.ErrInvalid, "restore", field, "", reason)
}

func (a *Admission) load(s *savedState) error {
	if s.Now > latest {
		return corrupt("now", "beyond the last time that calls may have")
	}
	a.now, a.attempts, a.epoch, a.opens, a.tight, a.gen, a.pass = s.Now, s.Attempts, s.Epoch, s.Opens, s.Tight, s.Gen, s.Pass
	a.out = s.Out
	a.grants, a.runs = s.Grants, s.Runs
	for i := range a.out {
		if p := a.out[i].Plan; p != nil {
			p.Inventory = a.cfg.Inventory
		}
	}
	for i := range s.Jobs {
		if err := a.loadJob(&s.Jobs[i]); err != nil {
			return err
		}
	}
	if err := a.loadLists(s); err != nil {
		return err
	}
	for _, c := range s.Closed {
		a.close(c.Node, c.Down, c.Cordoned)
	}
	a.tight, a.flow = s.Tight, s.Flow
	if err := a.loadWindows(s.Windows); err != nil {
		return err
	}
	a.stale, a.walked, a.walkedAt, a.p.strict = s.Stale, s.Walked, s.WalkedAt, s.Strict
	return nil
}

// loadLists reads what names jobs, which are all there.
func (a *Admission) loadLists(s *savedState) error {
	for _, j := range a.awaiting {
		for _, id := range j.waits {
			if w := a.jobs[id]; w == nil || len(w.old) == 0 {
				return corrupt("waits", "of "+string(j.id)+" for a job that is not leaving")
			}
		}
	}
	for _, id := range s.Gone {
		j := a.jobs[id]
		if j == nil || j.phase != Gone || slices.Contains(a.gone, j) {
			return corrupt("gone", string(id)+" is not gone, or twice")
		}
		a.gone = append(a.gone, j)
	}
	for i := range s.Reserved {
		r := &s.Reserved[i]
		j := a.jobs[r.Job]
		if j == nil || j.phase != Queued || !validMembers(j.gang, r.Members) {
			return corrupt("reserved", string(r.Job)+" does not wait")
		}
		a.res = append(a.res, reservation{job: j, start: r.Start, end: r.End, overdue: r.Overdue, members: r.Members, id: r.ID, epoch: r.Epoch, tight: r.Tight, flow: r.Flow})
	}
	return nil
}

func (a *Admission) loadWindows(windows []Window) error {
	for _, w := range windows {
		var err1, err2 error
		w.from, err1 = lockstep.Nanos(w.From)
		w.to, err2 = lockstep.Nanos(w.To)
		i, found := a.windowAt(w.Name)
		if err1 != nil || err2 != nil || w.from >= w.to || found || len(w.Nodes) == 0 {
			return corrupt("windows", w.Name)
		}
		a.windows = slices.Insert(a.windows, i, w)
		a.timers.set(a, w.to, nil)
	}
	return nil
}

func validMembers(g *lockstep.Gang, members []lockstep.Member) bool {
	return !slices.ContainsFunc(members, func(m lockstep.Member) bool { return m.Role < 0 || int(m.Role) >= len(g.Roles) })
}

// consistent reports whether the parts of s suit its phase.
func (s *savedJob) consistent() bool {
	if s.Gang == nil || s.Gang.Validate() != nil || s.Lapses < 0 {
		return false
	}
	if !validMembers(s.Gang, s.Old) || !validMembers(s.Gang, s.Spot) {
		return false
	}
	if s.Plan != nil && (s.Plan.Job != s.Gang.ID || len(s.Plan.Members) == 0 || !validMembers(s.Gang, room(s.Plan))) {
		return false
	}
	if s.Phase != Held && (len(s.Confirmed) > 0 || s.Trial != 0 && s.Keeps == nil) || s.Taken < 0 || !s.onTrial() {
		return false
	}
	switch s.Phase {
	case Queued, Gone:
		return s.Plan == nil && len(s.Old) == 0 && len(s.Waits) == 0 && !s.Due && !s.Replan && !s.Charged
	case Awaiting, Moving:
		return s.Plan != nil && (len(s.Waits) > 0 || s.Replan) && !s.Due
	case Held:
		return s.Plan != nil && len(s.Waits) == 0 && len(s.Confirmed) == s.tells() && !s.Due
	case Running, Resizing:
		return s.Plan != nil && len(s.Waits) == 0 && s.Replan == (len(s.Lost) > 0) && (!s.Replan || s.replaceable())
	case Leaving:
		return (s.Plan != nil || len(s.Old) > 0) && len(s.Waits) == 0 && !s.Due && !s.Replan
	}
	return false
}

// replaceable reports whether s may have lost what it says it has.
func (s *savedJob) replaceable() bool {
	last := -1
	for _, rank := range s.Lost {
		if rank <= last || rank >= len(s.Plan.Members) {
			return false
		}
		last = rank
	}
	return s.Phase == Running && s.Gang.Capabilities.Replaceable
}

// onTrial reports whether what s says of a trial holds together.
func (s *savedJob) onTrial() bool {
	if s.Keeps == nil {
		return !s.Passed && s.Trial >= 0 && (s.Trial == 0 || s.Plan != nil && s.Trial < len(s.Plan.Members))
	}
	return s.Plan != nil && (s.Phase == Awaiting || s.Phase == Held) && s.Keeps.Job == s.Gang.ID && validMembers(s.Gang, room(s.Keeps)) &&
		len(s.Plan.Members) < len(s.Keeps.Members) && len(s.Plan.Spares) == 0 && (!s.Passed || s.Phase == Held && !slices.Contains(s.Confirmed, false)) &&
		(s.Passed && s.Trial == 0 || !s.Passed && s.Trial == len(s.Plan.Members))
}

// tells is how many members the hold of s is for.
func (s *savedJob) tells() int {
	if s.Keeps == nil && s.Trial > 0 {
		return s.Trial
	}
	return len(s.Plan.Members)
}

func (a *Admission) loadJob(s *savedJob) error {
	if !s.consistent() || s.Charged && a.cfg.Quota == nil {
		return corrupt("jobs", "a job is at odds with its phase")
	}
	if a.jobs[s.Gang.ID] != nil {
		return corrupt("jobs", string(s.Gang.ID)+" is there twice")
	}
	j := s.job()
	a.jobs[j.id] = j
	if j.phase == Gone {
		return nil
	}
	a.addShape(j)
	if x := s.Shape; x != nil {
		j.shape.failed, j.shape.delays, j.shape.impossible, j.shape.verdict = x.Failed, x.Delays, x.Impossible, x.Verdict
		j.shape.placeable, j.shape.untaken = x.Placeable, x.Untaken
	}
	if s.Plan != nil {
		j.plan = s.Plan
		j.plan.Gang, j.plan.Inventory = j.gang, a.cfg.Inventory
		a.setEnd(j, s.End)
	}
	if len(s.Old) > 0 {
		a.setOld(j, s.Old)
	}
	if s.Keeps != nil {
		s.Keeps.Gang, s.Keeps.Inventory = j.gang, a.cfg.Inventory
		a.keepApart(j, s.Keeps)
	}
	if s.Passed {
		a.passed = insertSorted(a.passed, j, byID)
	}
	j.trial = s.Trial
	waits := slices.Clone(s.Waits)
	slices.Sort(waits)
	a.setWaits(j, waits)
	a.setReplan(j, s.Replan)
	a.setDue(j, s.Due)
	a.loadTimers(j)
	if !s.Seen {
		j.seen = 0
	}
	return nil
}

// job returns the job of s with what it keeps by itself.
func (s *savedJob) job() *job {
	j := newJob(s.Gang, s.Submit)
	j.phase, j.attempt, j.charged, j.confirmed, j.deadline = s.Phase, s.Attempt, s.Charged, s.Confirmed, s.Deadline
	j.begun, j.start, j.end, j.told, j.requeue, j.lapses = s.Begun, s.Start, s.End, s.Told, s.Requeue, s.Lapses
	j.lost = s.Lost
	j.shrunk, j.grants, j.made, j.taken, j.tried = s.Shrunk, s.Grants, s.Made, s.Taken, s.Tried
	j.waitFor, j.notUntil, j.refused, j.failed, j.roomless, j.delays = s.WaitFor, s.NotUntil, s.Refused, s.Failed, s.Roomless, s.Delays
	j.verdict, j.spot, j.reason = s.Verdict, s.Spot, s.Reason
	for _, ok := range j.confirmed {
		if !ok {
			j.missing++
		}
	}
	slices.SortFunc(j.refused, func(x, y refusal) int { return cmp.Compare(x.Node, y.Node) })
	return j
}

func (a *Admission) loadTimers(j *job) {
	if j.phase == Queued {
		a.enqueue(j)
	}
	switch j.phase {
	case Held:
		a.timers.set(a, j.deadline, j)
	case Queued:
		a.timers.set(a, j.notUntil, j)
		for _, r := range j.refused {
			a.timers.set(a, r.Until, j)
		}
	}
}
