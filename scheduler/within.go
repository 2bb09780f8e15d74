package scheduler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/policy/order"
)

// within proposes tenants by what a ledger says they are owed, and the jobs of
// one tenant by an order. Without a ledger the tenant goes first whose foremost
// job was submitted first: each has room of its own, so nobody is owed anything.
//
// What a tenant is owed is looked at as the ledger's own passes do: how its lag
// would stand after the horizon if it got its share and kept what it has, less
// the holders that compete. What the pass grants, or granted before and others
// are still leaving, counts as held; what it took counts as given back.
type within struct {
	ledger  *fairness.Ledger // nil for none
	order   order.Order
	horizon time.Duration

	weights  map[lockstep.TenantID]int64 // that join at the first event
	tenants  map[lockstep.TenantID]*account
	byID     []*account
	jobs     map[lockstep.JobID]*member
	accounts []fairness.Statement

	now   time.Time
	heap  []*account // of the pass
	given *account   // whose job was proposed last
}

// account is a tenant with its jobs.
type account struct {
	id       lockstep.TenantID
	weight   int64
	queue    *order.Queue
	ready    int               // jobs that wait or compete
	promised lockstep.MilliGPU // granted, and not held yet
	going    lockstep.MilliGPU // held, by jobs that compete or have lost it

	lag   lockstep.GPUTime // in the pass
	begun bool
	head  lockstep.JobID // its foremost job, where there is no ledger
	since int64          // when head was submitted
}

// member is a job.
type member struct {
	account *account
	amount  lockstep.MilliGPU // that it asks for, or holds
	stage   stage
}

type stage int

const (
	stageWaiting stage = iota // in the queue
	stageGranted              // room is promised
	stageOn                   // holds devices
	stageDue                  // holds devices and competes
	stageGoing                // lost its devices and is leaving them
)

// Within returns a policy that chooses the tenant by what l says it is owed and
// the job of that tenant by inside; nil is FIFO. A grant is taken to last for the
// horizon, such as the term; 0 means fairness.DefaultHorizon. Tenants join l
// before, or with its default weight. A pass is O(tenants) beside what it proposes.
func Within(l *fairness.Ledger, horizon time.Duration, inside order.Order) (Policy, error) {
	if l == nil {
		return nil, fault(lockstep.ErrInvalid, "within", "l", "nil", "required")
	}
	return newWithin(l, horizon, inside)
}

func newWithin(l *fairness.Ledger, horizon time.Duration, inside order.Order) (*within, error) {
	if horizon == 0 {
		horizon = fairness.DefaultHorizon
	}
	if horizon < 0 || horizon > lockstep.MaxWalltime {
		return nil, fault(lockstep.ErrInvalid, "within", "horizon", horizon.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	if inside == nil {
		inside = order.FIFO{}
	}
	if err := (order.Config{Order: inside}).Validate(); err != nil {
		return nil, err
	}
	w := &within{ledger: l, order: inside, horizon: horizon, tenants: make(map[lockstep.TenantID]*account), jobs: make(map[lockstep.JobID]*member)}
	return w, nil
}

func (w *within) open(now time.Time) error {
	for _, t := range slices.Sorted(maps.Keys(w.weights)) {
		if err := w.ledger.Join(now, t, w.weights[t]); err != nil {
			return err
		}
	}
	return nil
}

func (w *within) setCapacity(now time.Time, amount lockstep.MilliGPU) error {
	if w.ledger == nil {
		return nil
	}
	return w.ledger.SetCapacity(now, amount)
}

// account returns that of a tenant, opening it at its first job.
func (w *within) account(id lockstep.TenantID) (*account, error) {
	if a := w.tenants[id]; a != nil {
		return a, nil
	}
	q, err := order.New(order.Config{Order: w.order})
	if err != nil {
		return nil, err
	}
	a := &account{id: id, queue: q}
	w.tenants[id] = a
	i, _ := slices.BinarySearchFunc(w.byID, id, func(a *account, id lockstep.TenantID) int { return compare(a.id, id) })
	w.byID = slices.Insert(w.byID, i, a)
	return a, nil
}

// Submit is that of Policy.
func (w *within) Submit(now time.Time, g *lockstep.Gang) error {
	amount := mostGPUs(g)
	if w.ledger != nil {
		if err := w.ledger.Submit(now, g.ID, g.Tenant, amount); err != nil {
			return err
		}
	}
	a, err := w.account(g.Tenant)
	if err != nil {
		return err
	}
	if err := a.queue.Submit(now, order.JobOf(g)); err != nil {
		return err
	}
	w.jobs[g.ID] = &member{account: a, amount: amount}
	a.ready++
	return nil
}

func (w *within) find(op string, id lockstep.JobID) (*member, error) {
	if j := w.jobs[id]; j != nil {
		return j, nil
	}
	return nil, fault(lockstep.ErrUnknown, op, "job", quote(id), "was not submitted")
}

func (w *within) knows(id lockstep.JobID, on bool) bool {
	j := w.jobs[id]
	return j != nil && on == (j.stage != stageWaiting && j.stage != stageGranted)
}

// enter moves j to another stage, and the sums with it.
func (j *member) enter(to stage) {
	count := func(s stage, sign int) {
		amount := j.amount.Mul(int64(sign))
		switch s {
		case stageWaiting:
			j.account.ready += sign
		case stageGranted:
			j.account.promised += amount
		case stageDue:
			j.account.ready += sign
			j.account.going += amount
		case stageGoing:
			j.account.going += amount
		}
	}
	count(j.stage, -1)
	j.stage = to
	count(to, 1)
}

// Start is that of Policy.
func (w *within) Start(now time.Time, id lockstep.JobID, held lockstep.MilliGPU) error {
	j, err := w.find("start", id)
	if err != nil {
		return err
	}
	if w.ledger != nil {
		if err := w.ledger.Start(now, id, held); err != nil {
			return err
		}
	}
	if err := j.account.queue.Start(now, id); err != nil {
		return err
	}
	j.enter(stageOn)
	return w.measure(now, id, j, held)
}

// measure notes what j holds, while it is on.
func (w *within) measure(now time.Time, id lockstep.JobID, j *member, held lockstep.MilliGPU) error {
	j.amount = held
	if k, ok := j.account.queue.Job(id); ok && k.GPUs != held {
		return j.account.queue.Resize(now, id, held)
	}
	return nil
}

// Resize is that of Policy.
func (w *within) Resize(now time.Time, id lockstep.JobID, held lockstep.MilliGPU) error {
	j, err := w.find("resize", id)
	if err != nil {
		return err
	}
	if w.ledger != nil {
		if err := w.ledger.Resize(now, id, held); err != nil {
			return err
		}
	}
	was := j.stage
	j.enter(stageOn)
	err = w.measure(now, id, j, held)
	j.enter(was)
	return err
}

// Due is that of Policy.
func (w *within) Due(now time.Time, id lockstep.JobID) error {
	j, err := w.find("due", id)
	if err != nil || j.stage != stageOn {
		return err
	}
	if err := j.account.queue.Due(now, id); err != nil {
		return err
	}
	j.enter(stageDue)
	return nil
}

// Stop is that of Policy.
func (w *within) Stop(now time.Time, id lockstep.JobID) error {
	j, err := w.find("stop", id)
	if err != nil {
		return err
	}
	if w.ledger != nil {
		if err := w.ledger.Stop(now, id); err != nil {
			return err
		}
	}
	if err := j.account.queue.Stop(now, id); err != nil {
		return err
	}
	j.enter(stageWaiting)
	return nil
}

// Finish is that of Policy.
func (w *within) Finish(now time.Time, id lockstep.JobID) error {
	j, err := w.find("finish", id)
	if err != nil {
		return err
	}
	if w.ledger != nil {
		if err := w.ledger.Finish(now, id); err != nil {
			return err
		}
	}
	j.enter(stageOn) // which counts nowhere
	delete(w.jobs, id)
	return j.account.queue.Finish(now, id)
}

// Forget is that of Policy.
func (w *within) Forget(id lockstep.JobID) error {
	if w.ledger == nil {
		return nil
	}
	return w.ledger.Forget(id)
}

// Begin is that of gang.Orderer.
func (w *within) Begin(now time.Time) {
	w.now, w.given = now, nil
	w.heap = w.heap[:0]
	if w.ledger != nil {
		w.measureAll(now)
	}
	for _, a := range w.byID {
		if a.begun = false; a.ready > 0 && (w.ledger != nil || w.look(a)) {
			w.heap = append(w.heap, a)
		}
	}
	for i := len(w.heap)/2 - 1; i >= 0; i-- {
		w.down(i)
	}
}

// measureAll looks up what the tenants are owed.
func (w *within) measureAll(now time.Time) {
	var err error
	if w.accounts, err = w.ledger.AppendStatements(w.accounts[:0], now); err != nil {
		return // a time before the ledger's: what was owed then still orders them
	}
	i := 0
	for k := range w.accounts {
		st := &w.accounts[k]
		for i < len(w.byID) && w.byID[i].id < st.Tenant {
			i++
		}
		if i == len(w.byID) {
			break
		}
		if a := w.byID[i]; a.id == st.Tenant {
			a.weight = st.Weight
			a.lag = st.Lag().Add(lockstep.GPUTimeOf(st.Share-st.Held+a.going-a.promised, w.horizon))
		}
	}
}

// look finds the foremost job of a; false means that there is none.
func (w *within) look(a *account) bool {
	if !a.begun {
		a.begun = true
		a.queue.Begin(w.now)
	}
	id, ok := a.queue.Next()
	if ok {
		j, _ := a.queue.Job(id)
		a.head, a.since = id, j.Submitted().UnixNano()
	}
	return ok
}

// ahead is the order of tenants: those with a weight first, then by what they
// are owed, then by ID. Without a ledger their jobs' submission takes the place
// of what they are owed, and job IDs that of theirs.
func (w *within) ahead(a, b *account) bool {
	if w.ledger != nil {
		if (a.weight == 0) != (b.weight == 0) {
			return b.weight == 0
		}
		if c := a.lag.Cmp(b.lag); c != 0 {
			return c > 0
		}
		return a.id < b.id
	}
	if a.since != b.since {
		return a.since < b.since
	}
	return a.head < b.head
}

func (w *within) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(w.heap) {
			return
		}
		if right := child + 1; right < len(w.heap) && w.ahead(w.heap[right], w.heap[child]) {
			child = right
		}
		if !w.ahead(w.heap[child], w.heap[i]) {
			return
		}
		w.heap[i], w.heap[child] = w.heap[child], w.heap[i]
		i = child
	}
}

// Next is that of gang.Orderer.
func (w *within) Next() (lockstep.JobID, bool) {
	if w.ledger == nil {
		return w.nextHead()
	}
	for len(w.heap) > 0 {
		a := w.heap[0]
		if !a.begun {
			a.begun = true
			a.queue.Begin(w.now)
		}
		if id, ok := a.queue.Next(); ok {
			w.given = a
			return id, true
		}
		w.pop()
	}
	return "", false
}

// nextHead is Next without a ledger.
func (w *within) nextHead() (lockstep.JobID, bool) {
	switch given := w.given; {
	case given == nil:
	case w.look(given): // it is still the foremost tenant
		w.down(0)
	default:
		w.pop()
	}
	if len(w.heap) == 0 {
		return "", false
	}
	w.given = w.heap[0]
	return w.given.head, true
}

// pop takes the foremost tenant out of the pass.
func (w *within) pop() {
	last := len(w.heap) - 1
	w.heap[0] = w.heap[last]
	w.heap[last] = nil
	w.heap = w.heap[:last]
	w.down(0)
	w.given = nil
}

// Outcome is that of gang.Orderer.
func (w *within) Outcome(id lockstep.JobID, outcome lockstep.Outcome) {
	j := w.jobs[id]
	if j == nil {
		return
	}
	a := j.account
	a.queue.Outcome(id, outcome)
	switch {
	case outcome == lockstep.Granted && j.stage == stageWaiting:
		j.enter(stageGranted)
	case outcome == lockstep.Kept && j.stage == stageDue:
		j.enter(stageOn)
	case outcome == lockstep.Blocked && j.stage == stageDue:
		j.enter(stageGoing)
		return
	default:
		return
	}
	if w.ledger == nil {
		return
	}
	a.lag = a.lag.Sub(lockstep.GPUTimeOf(j.amount, w.horizon))
	if len(w.heap) > 0 && w.heap[0] == a {
		w.down(0)
	}
}

// skip takes the tenant whose job was proposed last out of the pass.
func (w *within) skip() {
	if len(w.heap) > 0 && w.heap[0] == w.given {
		w.pop()
	}
}

type withinImage struct {
	Ledger  []byte         `json:"ledger,omitempty"`
	Tenants []accountImage `json:"tenants"` // by ID
}

type accountImage struct {
	ID    lockstep.TenantID `json:"id"`
	Queue []byte            `json:"queue"`
	Jobs  []memberImage     `json:"jobs,omitempty"` // by ID
}

type memberImage struct {
	ID     lockstep.JobID    `json:"id"`
	Amount lockstep.MilliGPU `json:"amount"`
	Stage  stage             `json:"stage"`
}

// Snapshot writes the policy, its pass apart.
func (w *within) Snapshot(out io.Writer) error {
	img := withinImage{Tenants: []accountImage{}}
	var b bytes.Buffer
	if w.ledger != nil {
		if err := w.ledger.Snapshot(&b); err != nil {
			return err
		}
		img.Ledger = bytes.Clone(b.Bytes())
	}
	at := make(map[*account]int)
	for i, a := range w.byID {
		b.Reset()
		if err := a.queue.Snapshot(&b); err != nil {
			return err
		}
		at[a] = i
		img.Tenants = append(img.Tenants, accountImage{ID: a.id, Queue: bytes.Clone(b.Bytes())})
	}
	for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
		j := w.jobs[id]
		t := &img.Tenants[at[j.account]]
		t.Jobs = append(t.Jobs, memberImage{ID: id, Amount: j.amount, Stage: j.stage})
	}
	return json.NewEncoder(out).Encode(img)
}

// restore fills a new policy.
func (w *within) restore(cfg fairness.Config, data []byte) error {
	var img withinImage
	if err := json.Unmarshal(data, &img); err != nil {
		return fmt.Errorf("scheduler: restore: %w", err)
	}
	if w.ledger != nil {
		l, err := fairness.Restore(cfg, bytes.NewReader(img.Ledger))
		if err != nil {
			return err
		}
		w.ledger = l
	}
	for _, t := range img.Tenants {
		a, err := w.account(t.ID)
		if err != nil {
			return err
		}
		if a.queue, err = order.Restore(order.Config{Order: w.order}, bytes.NewReader(t.Queue)); err != nil {
			return err
		}
		for _, m := range t.Jobs {
			j := &member{account: a, amount: m.Amount, stage: stageOn}
			w.jobs[m.ID] = j
			j.enter(m.Stage)
		}
	}
	return nil
}

func compare[T ~string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
