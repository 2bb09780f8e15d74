package scheduler

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
	"github.com/lockstep-gpu/lockstep/lease"
	"github.com/lockstep-gpu/lockstep/lifecycle"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/policy/order"
)

// Entry is one input of a Scheduler, as data that can be stored and replayed.
// One of the fields behind Seq is set.
type Entry struct {
	Seq    uint64          `json:"seq"`              // Seq is its place in the log, from 1.
	Event  *lockstep.Event `json:"event,omitempty"`  // Event was applied.
	Step   time.Time       `json:"step,omitzero"`    // Step was called at this time.
	Forget lockstep.JobID  `json:"forget,omitempty"` // Forget was called for this job.
	Adopt  *Adoption       `json:"adopt,omitempty"`  // Adopt was called with this.
	Occupy *Occupation     `json:"occupy,omitempty"` // Occupy was called with this, or Vacate where it has no Plan.
	Rebase *Rebasing       `json:"rebase,omitempty"` // Rebase was called with this.
}

func (s *Scheduler) record(e Entry) {
	s.seq++
	if s.cfg.Log != nil {
		e.Seq = s.seq
		s.cfg.Log(e)
	}
}

// Seq returns how many inputs were taken.
func (s *Scheduler) Seq() uint64 { return s.seq }

// Replay takes an entry of the log and returns what it led to. One that was
// taken before is lockstep.ErrDuplicate, one after a gap lockstep.ErrConflict, so
// a log can be replayed on a snapshot from anywhere before it.
func (s *Scheduler) Replay(e Entry) ([]lockstep.Action, error) {
	switch {
	case e.Seq <= s.seq:
		return nil, fault(lockstep.ErrDuplicate, "replay", "Seq", strconv.FormatUint(e.Seq, 10), "taken before")
	case e.Seq > s.seq+1:
		return nil, fault(lockstep.ErrConflict, "replay", "Seq", strconv.FormatUint(e.Seq, 10), "want "+strconv.FormatUint(s.seq+1, 10))
	case e.Event != nil:
		return nil, s.Apply(*e.Event)
	case e.Forget != "":
		return nil, s.Forget(e.Forget)
	case e.Adopt != nil:
		return nil, s.Adopt(e.Adopt.Time, e.Adopt.Plan, e.Adopt.Started)
	case e.Occupy != nil && e.Occupy.Plan != nil:
		return nil, s.Occupy(e.Occupy.Time, e.Occupy.Plan)
	case e.Occupy != nil:
		return nil, s.Vacate(e.Occupy.Time, e.Occupy.Job)
	case e.Rebase != nil:
		return nil, s.Rebase(e.Rebase.Time, e.Rebase.Tree, e.Rebase.Nodes)
	}
	return s.Step(e.Step)
}

// format and version are what a snapshot's header says.
const (
	format  = "lockstep/scheduler"
	version = 2
)

// image is what a snapshot holds: the state of each part, by itself, and what
// the composition keeps.
type image struct {
	Rule    Rule                `json:"rule"`
	Own     bool                `json:"own,omitempty"` // the policy is the host's
	Now     int64               `json:"now"`
	Opened  bool                `json:"opened,omitempty"`
	Seq     uint64              `json:"seq"`
	Jobs    []jobImage          `json:"jobs"` // by ID
	Gone    []lockstep.JobID    `json:"gone"`
	Wait    []lockstep.JobID    `json:"wait,omitempty"`    // granted and not charged, by ID
	Due     []lockstep.JobID    `json:"due,omitempty"`     // holders that compete, by ID
	Charges []chargeImage       `json:"charges,omitempty"` // by job
	Joined  []lockstep.TenantID `json:"joined,omitempty"`  // tenants that joined the quota unnamed
	Foreign []lockstep.JobID    `json:"foreign,omitempty"` // what others occupy, by name
	Room    []byte              `json:"room"`
	Gangs   []byte              `json:"gangs"`
	Policy  []byte              `json:"policy,omitempty"`
	Over    []lockstep.JobID    `json:"over,omitempty"`    // held over, by ID
	Rations *rationsImage       `json:"rations,omitempty"` // under a floor
	Leases  []byte              `json:"leases,omitempty"`
	Lives   []byte              `json:"lives"`
}

type jobImage struct {
	Gang  *lockstep.Gang    `json:"gang"`
	Since int64             `json:"since"`
	On    bool              `json:"on,omitempty"`
	Held  lockstep.MilliGPU `json:"held,omitempty"`
	Gone  bool              `json:"gone,omitempty"`
	Retry bool              `json:"retry,omitempty"`
}

type chargeImage struct {
	Job    lockstep.JobID `json:"job"`
	Counts []int          `json:"counts"`
}

type snapshotter interface{ Snapshot(w io.Writer) error }

// Snapshot writes the whole state: one line with format, version and SHA-256,
// then JSON. Equal states give equal bytes, but for the versions of the room,
// which Restore counts anew. A Policy of the host's own is not in it. With the log
// of the inputs behind it, Restore and Replay decide as s does.
func (s *Scheduler) Snapshot(w io.Writer) error {
	img, err := s.image()
	if err != nil {
		return err
	}
	return snapshot.WriteJSON(w, "scheduler: snapshot", format, version, img)
}

func (s *Scheduler) image() (*image, error) {
	img := &image{
		Rule: s.cfg.Rule, Own: s.cfg.Policy != nil, Now: s.now, Opened: s.opened, Seq: s.seq,
		Gone: append([]lockstep.JobID{}, s.gone...), Jobs: []jobImage{},
	}
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[id]
		img.Jobs = append(img.Jobs, jobImage{Gang: j.gang, Since: j.since, On: j.on, Held: j.held, Gone: j.gone, Retry: j.retry})
	}
	img.Foreign = slices.Sorted(maps.Keys(s.foreign))
	if q := s.quota; q != nil {
		for _, id := range slices.Sorted(maps.Keys(q.charges)) {
			img.Charges = append(img.Charges, chargeImage{Job: id, Counts: q.charges[id].counts})
		}
		img.Joined = slices.Sorted(maps.Keys(q.joined))
	}
	if f, ok := s.policy.(*fair); ok {
		img.Wait, img.Due = slices.Sorted(maps.Keys(f.awaiting)), slices.Sorted(maps.Keys(f.due))
	}
	if f, ok := s.policy.(*floored); ok {
		img.Over, img.Rations = s.over, f.rations.image()
	}
	var err error
	save := func(part any) []byte {
		var b bytes.Buffer
		if p, ok := part.(snapshotter); ok && err == nil {
			err = p.Snapshot(&b)
		}
		return b.Bytes()
	}
	img.Room, img.Gangs, img.Lives = save(s.room), save(s.gangs), save(s.lives)
	if s.leases != nil {
		img.Leases = save(s.leases)
	}
	if !img.Own {
		img.Policy = save(s.policy)
	}
	return img, err
}

// Restore reads what Snapshot wrote, for use with the same configuration. Bytes
// that are cut off, changed or of another version are lockstep.ErrInvalid, those
// of another rule or cluster lockstep.ErrConflict. Config.Nodes are not read: the
// snapshot has them.
func Restore(cfg Config, r io.Reader) (*Scheduler, error) {
	img := new(image)
	body, err := snapshot.ReadJSON(r, "scheduler: restore", format, version, img)
	if err != nil {
		return nil, err
	}
	if img.Rule != cfg.Rule || img.Own != (cfg.Policy != nil) {
		return nil, fault(lockstep.ErrConflict, "restore", "Rule", quote(cfg.Rule), "saved under "+quote(img.Rule))
	}
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	s.now, s.opened, s.seq, s.gone = img.Now, img.Opened, img.Seq, img.Gone
	for _, j := range img.Jobs {
		if j.Gang == nil {
			return nil, fault(lockstep.ErrInvalid, "restore", "snapshot", "", "a job without its gang")
		}
		s.jobs[j.Gang.ID] = &job{gang: j.Gang, since: j.Since, on: j.On, held: j.Held, gone: j.Gone, retry: j.Retry}
		if j.Retry {
			s.again++
		}
		if !j.Gone && loose(j.Gang) {
			s.placer.loose++
		}
	}
	if err := s.restoreParts(img); err != nil {
		return nil, err
	}
	if img, err = s.image(); err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON("scheduler: restore", body, img); err != nil {
		return nil, err
	}
	return s, s.restoreDue()
}

func (s *Scheduler) restoreParts(img *image) (err error) {
	if s.room, err = placement.Restore(s.cfg.Tree, placement.Config{}, bytes.NewReader(img.Room)); err != nil {
		return err
	}
	s.placer.State = s.room
	s.placer.count()
	var p lockstep.Plan
	for _, id := range img.Foreign {
		if !s.room.Plan(id, &p) {
			return inconsistent(id, "occupies nothing")
		}
		s.foreign[id] = true
	}
	for _, id := range s.room.Jobs() {
		if s.room.Plan(id, &p); !s.foreign[id] {
			s.placer.take(&p)
		}
	}
	if err := s.restorePolicy(img); err != nil {
		return err
	}
	if err := s.restoreQuota(img); err != nil {
		return err
	}
	if s.gangs, err = gang.Restore(s.gangConfig(), bytes.NewReader(img.Gangs)); err != nil {
		return err
	}
	if s.lives, err = lifecycle.Restore(bytes.NewReader(img.Lives)); err != nil {
		return err
	}
	if s.leases != nil {
		if s.leases, err = lease.Restore(bytes.NewReader(img.Leases)); err != nil {
			return err
		}
	}
	return s.agree()
}

// started reports whether a job in this state has been started and not left.
func started(s lifecycle.State) bool {
	switch s {
	case lifecycle.Starting, lifecycle.Running, lifecycle.Draining, lifecycle.Lost, lifecycle.Cleaning:
		return true
	}
	return false
}

// agree checks that the parts speak of the same jobs.
func (s *Scheduler) agree() error {
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		if j := s.jobs[id]; !j.gone {
			if reason := s.disagree(id, j); reason != "" {
				return inconsistent(id, reason)
			}
		}
	}
	left := make(map[lockstep.JobID]bool)
	for _, id := range s.gone {
		if j := s.jobs[id]; j == nil || !j.gone || j.retry || left[id] {
			return inconsistent(id, "is said to have left")
		}
		left[id] = true
	}
	for _, id := range s.room.Jobs() {
		if j := s.jobs[id]; s.foreign[id] == (j != nil && !j.gone) {
			return inconsistent(id, "has room and is not there, or is of others as well")
		}
	}
	return nil
}

// disagree says what the parts do not agree on about a job that has not left.
func (s *Scheduler) disagree(id lockstep.JobID, j *job) string {
	st, ok := s.gangs.State(id)
	life, lives := s.lives.Job(id)
	_, leased := s.lease(id)
	policy, asked := s.policy.(knower)
	var room lockstep.Plan
	switch {
	case !ok || !lives:
		return "not known to every part"
	case s.leases != nil && leased != started(life.State):
		return "has a lease and does not run, or runs without"
	case j.on && (st.Phase == gang.Queued || st.Phase == gang.Awaiting):
		return "holds devices and waits"
	case st.Plan != nil && !(s.room.Plan(id, &room) && slices.Equal(room.Members, st.Plan.Members)):
		return "has a plan and not its room"
	case asked && !policy.knows(id, j.on):
		return "is not what the policy has it for"
	}
	return ""
}

func inconsistent(id lockstep.JobID, reason string) error {
	return fault(lockstep.ErrInvalid, "restore", "snapshot", quote(id), reason)
}

func (s *Scheduler) restorePolicy(img *image) error {
	if img.Own {
		return nil
	}
	in := bytes.NewReader(img.Policy)
	switch p := s.policy.(type) {
	case *fair:
		l, err := fairness.Restore(s.ledgerConfig(0), in)
		if err != nil {
			return err
		}
		p.Ledger = l
		for _, id := range img.Wait {
			p.awaiting[id] = true
		}
		for _, id := range img.Due {
			if err := p.Due(lockstep.FromNanos(s.now), id); err != nil {
				return inconsistent(id, err.Error())
			}
		}
	case *floored:
		if err := p.restore(s.ledgerConfig(0), img.Policy); err != nil {
			return err
		}
		r, err := img.Rations.restore(s.jobs, millis(lockstep.FromNanos(s.now)))
		if err != nil {
			return err
		}
		p.rations, s.over = r, img.Over
		if !slices.IsSorted(s.over) {
			return fault(lockstep.ErrInvalid, "restore", "snapshot", "", "jobs held over are out of order")
		}
	case *within:
		return p.restore(s.ledgerConfig(0), img.Policy)
	case *ordered:
		q, err := order.Restore(order.Config{Order: s.cfg.order()}, in)
		if err != nil {
			return err
		}
		p.Queue = q
	}
	return nil
}

func (s *Scheduler) restoreQuota(img *image) error {
	if s.quota == nil {
		return nil
	}
	for _, t := range img.Joined {
		if err := s.quota.join(t); err != nil {
			return err
		}
	}
	for _, c := range img.Charges {
		j := s.jobs[c.Job]
		if j == nil {
			return fault(lockstep.ErrInvalid, "restore", "snapshot", "", "a charge without its job")
		}
		if err := s.quota.Charge(j.gang, c.Counts); err != nil {
			return err
		}
	}
	return nil
}

// restoreDue tells the policy which holders' terms are over: it keeps that for
// passes only.
func (s *Scheduler) restoreDue() error {
	for _, id := range s.gangs.AppendJobs(nil, gang.Running, gang.Resizing) {
		st, _ := s.gangs.State(id)
		if !st.Due {
			continue
		}
		if err := s.policy.Due(lockstep.FromNanos(s.now), id); err != nil {
			return err
		}
		s.placer.rivals++
	}
	return nil
}
