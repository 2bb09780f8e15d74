package serve

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lease"
)

// The loan of all runs, and whose it is.
const (
	loanID = lease.LoanID("idle")
	lender = lockstep.TenantID("serving")
)

// job is a training job as it stands.
type job struct {
	Job
	arrived bool
	servers int // that it holds
	keep    int // of those once it has left the others; servers while it leaves none
	leaving bool
	token   lease.Token
	stalled time.Duration // until when it makes nothing, while it holds servers
	left    time.Duration // work
	gen     int           // of events
}

// running is whether the job holds servers and does not leave all of them.
func (j *job) running() bool { return j.servers > 0 && !j.leaving }

// training is what happens on servers that are lent.
type training struct {
	w      *world
	table  *lease.Table
	lender Lender
	jobs   []*job
	notice time.Duration
	back   int // servers of recalls that are back
}

func newTraining(w *world) (*training, error) {
	by, ok := w.scaler.(Lender)
	if !ok {
		return nil, fault("serve: run", "scaler", "", "is no Lender, and Loans are Enabled")
	}
	table, err := lease.New(lease.Config{})
	if err != nil {
		return nil, err
	}
	t := &training{w: w, table: table, lender: by}
	for _, j := range w.cfg.Loans.Jobs {
		j.Min = max(j.Min, 1)
		j.Max = max(j.Max, j.Min)
		t.jobs = append(t.jobs, &job{Job: j, left: j.Work})
	}
	slices.SortFunc(t.jobs, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID))
	})
	for i, j := range t.jobs {
		w.schedule(j.At, came, i, 0)
	}
	return t, nil
}

// amount is what so many servers are in quota.
func (t *training) amount(servers int) lockstep.MilliGPU {
	return lockstep.WholeGPU.Mul(int64(servers * t.w.cfg.GPUs))
}

func (t *training) servers(amount lockstep.MilliGPU) int {
	return int(int64(amount) / int64(t.amount(1)))
}

// loan is the loan as it stands, zero if there is none.
func (t *training) loan() lease.Loan {
	l, _ := t.table.Loan(loanID)
	return l
}

func (t *training) lent() int { return t.servers(t.loan().Amount) }

func (t *training) running() (n int) {
	for _, j := range t.jobs {
		n += j.servers
	}
	return n
}

// bill counts GPU time between two instants at which nothing changed.
func (t *training) bill(p *Part, from, to time.Duration) {
	gpus := time.Duration(t.w.cfg.GPUs)
	p.Lent += (to - from) * time.Duration(t.lent()) * gpus
	for _, j := range t.jobs {
		if j.servers == 0 || j.leaving && j.keep == 0 {
			continue // a job that leaves saves
		}
		if d := (to - max(from, j.stalled)) * time.Duration(j.keep); d > 0 {
			d = min(d, j.left)
			j.left -= d
			p.Trained += d * gpus
		}
	}
}

// event does what happens to a job, or a deadline of a recall.
func (t *training) event(e event) error {
	switch e.kind {
	case came:
		t.jobs[e.who].arrived = true
	case left:
		if err := t.leave(t.jobs[e.who], e.gen); err != nil {
			return err
		}
	case finished:
		j := t.jobs[e.who]
		if e.gen != j.gen || j.left > 0 || j.servers == 0 {
			return nil
		}
		if err := t.release(j); err != nil {
			return err
		}
	case settled:
		if err := t.settle(); err != nil {
			return err
		}
	}
	return t.place()
}

// tick lends or recalls what the Lender says, and keeps or empties leases.
func (t *training) tick() error {
	now := clock(t.w.now)
	loan := t.loan()
	owned := t.amount(t.w.cfg.Servers)
	say, err := t.lender.Loanable(now, owned, loan.Amount-loan.Recalled)
	if err != nil {
		return err
	}
	if n := min(t.servers(say.Lend), t.spare()); n > 0 && loan.Recalled == 0 {
		t.notice = say.Notice
		if _, err := t.table.Lend(now, loanID, lender, t.amount(n), say.Notice); err != nil {
			return err
		}
	}
	if n := t.servers(say.Recall + t.amount(1) - 1); n > 0 {
		if err := t.recall(n, say.Deadline); err != nil {
			return err
		}
	}
	for _, l := range t.table.AppendDue(nil, now) {
		if t.loan().Short > 0 {
			break // who goes was decided with the recall
		}
		if _, err := t.table.Extend(now, l.Job); err != nil {
			return err
		}
	}
	return t.place()
}

// spare is how many servers can be lent: those that nobody waits for.
func (t *training) spare() int {
	n := t.w.count()
	return max(t.w.free()-n[asked], 0)
}

// recall has servers back.
func (t *training) recall(n int, deadline time.Time) error {
	now := clock(t.w.now)
	loan := t.loan()
	n = min(n, t.servers(loan.Amount-loan.Recalled))
	if n <= 0 {
		return nil
	}
	t.w.result.Recalls = append(t.w.result.Recalls, Recall{At: t.w.now, Deadline: since(deadline), Back: -1, Servers: n})
	before := t.lent()
	after, err := t.table.Recall(now, loanID, t.amount(n), deadline)
	if err != nil {
		return err
	}
	t.w.schedule(since(deadline), settled, 0, 0)
	if err := t.returned(before, false); err != nil {
		return err
	}
	return t.empty(t.servers(after.Short+t.amount(1)-1), deadline)
}

// empty tells jobs to leave so many servers, at least cost.
func (t *training) empty(need int, deadline time.Time) error {
	if need <= 0 {
		return nil
	}
	var servers []lease.Server
	byID := map[lockstep.JobID]int{} // read by key only
	gives := make([]int, len(t.jobs))
	for i, j := range t.jobs {
		byID[j.ID] = i
		if j.servers == 0 || j.leaving || j.keep < j.servers {
			continue
		}
		for k := range j.servers {
			s := lease.Server{Node: lockstep.NodeID(string(j.ID) + "/" + strconv.Itoa(k))}
			if k >= j.Min {
				s.Elastic = []lockstep.JobID{j.ID}
			} else {
				s.Jobs = []lockstep.JobID{j.ID}
			}
			servers = append(servers, s)
		}
	}
	stops := make([]bool, len(t.jobs))
	for _, s := range lease.AppendReclaim(nil, servers, need) {
		for _, id := range s.Preempted {
			stops[byID[id]] = true
		}
		for _, id := range s.Shrunk {
			gives[byID[id]]++
		}
	}
	for i, j := range t.jobs {
		switch {
		case stops[i]:
			gives[i] = j.servers
		case gives[i] == 0:
			continue
		}
		if err := t.tell(i, gives[i], deadline); err != nil {
			return err
		}
	}
	return nil
}

// tell has a job leave servers, all or some of its.
func (t *training) tell(i, servers int, deadline time.Time) (err error) {
	j, now := t.jobs[i], clock(t.w.now)
	j.keep = j.servers - servers
	j.gen++
	if j.keep == 0 {
		j.leaving = true
		t.w.current().Preempted++
		_, err = t.table.Yield(now, j.ID, deadline, lease.ReasonRecalled)
	} else {
		t.w.current().Shrunk++
		j.stalled = t.w.now + j.Save + j.Restart
		_, err = t.table.Shrink(now, j.ID, t.amount(j.keep), deadline, lease.ReasonRecalled)
	}
	t.w.schedule(t.w.now+j.Save, left, i, j.gen)
	t.expect(i)
	return err
}

// leave has a job gone from the servers that it was told to leave.
func (t *training) leave(j *job, gen int) error {
	if gen != j.gen || j.servers == 0 {
		return nil
	}
	if j.leaving {
		return t.release(j)
	}
	before := t.lent()
	l, _, err := t.table.Resize(clock(t.w.now), j.ID, t.amount(j.keep))
	if err != nil {
		return err
	}
	j.token, j.servers = l.Token, j.keep
	return t.returned(before, false)
}

// release ends a job's lease.
func (t *training) release(j *job) error {
	before := t.lent()
	if _, err := t.table.Release(clock(t.w.now), j.ID, j.token); err != nil {
		return err
	}
	j.servers, j.keep, j.leaving = 0, 0, false
	j.gen++
	return t.returned(before, false)
}

// settle takes what was not given back by a deadline.
func (t *training) settle() error {
	before := t.lent()
	taken, err := t.table.AppendSettled(nil, clock(t.w.now))
	if err != nil {
		return err
	}
	for _, c := range taken {
		for _, j := range t.jobs {
			if j.ID == c.Job {
				j.servers, j.keep, j.leaving = 0, 0, false
				j.gen++
			}
		}
	}
	return t.returned(before, len(taken) > 0)
}

// returned counts what is lent no more for the recalls, the first first.
func (t *training) returned(before int, forced bool) error {
	t.back += before - t.lent()
	for i := range t.w.result.Recalls {
		r := &t.w.result.Recalls[i]
		if r.Back >= 0 {
			continue
		}
		r.Forced = r.Forced || forced
		if t.back < r.Servers {
			break
		}
		t.back -= r.Servers
		r.Back = t.w.now
	}
	return t.w.fill()
}

// place has jobs borrow what is free, first those that have none, in order; then
// those that can grow.
func (t *training) place() error {
	now := clock(t.w.now)
	for i, j := range t.jobs {
		free := t.servers(t.loan().Free)
		if !j.arrived || j.servers > 0 || j.left <= 0 || j.Min > free || j.Save > t.notice {
			continue
		}
		n := min(j.Max, free)
		l, err := t.table.Borrow(now, j.ID, loanID, t.amount(n), 0, j.Save)
		if err != nil {
			return err
		}
		j.token = l.Token
		t.start(i, n)
	}
	for i, j := range t.jobs {
		n := min(j.Max, j.servers+t.servers(t.loan().Free))
		if !j.running() || j.keep < j.servers || n <= j.servers || j.stalled > t.w.now {
			continue
		}
		l, _, err := t.table.Resize(now, j.ID, t.amount(n))
		if err != nil {
			return err
		}
		j.token = l.Token
		t.start(i, n)
	}
	return nil
}

// start has a job run on servers.
func (t *training) start(i, servers int) {
	j := t.jobs[i]
	j.servers, j.keep = servers, servers
	j.stalled = t.w.now + j.Restart
	j.gen++
	t.expect(i)
}

// expect schedules the end of a job as it runs now.
func (t *training) expect(i int) {
	j := t.jobs[i]
	if j.keep > 0 {
		at := max(j.stalled, t.w.now) + (j.left+time.Duration(j.keep)-1)/time.Duration(j.keep)
		t.w.schedule(at, finished, i, j.gen)
	}
}
