package meter

import (
	"errors"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lifecycle"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/topology"
)

// Config configures a Meter. The zero value is valid: a Meter that is off.
type Config struct {
	Policy string           `json:"policy,omitempty"` // Policy is the label policy of the decisions; "" means "default".
	Values int              `json:"values,omitempty"` // Values is how many queues and how many tenants are told apart, those that come later being Other together; 0 means DefaultValues.
	Rules  []lifecycle.Rule `json:"rules,omitzero"`   // Rules say which budget pays for a restart, as scheduler.Config.Lifecycle has them; nil means lifecycle.DefaultRules.
	Nodes  []placement.Node `json:"nodes,omitempty"`  // Nodes say of which class the devices of a node are, as scheduler.Config.Nodes does; nodes without one are of the class "". A Source that is a Cluster knows better.

	Tree     *topology.Tree    `json:"-"` // Tree is the cluster, as long as no Cluster says otherwise; nil means that devices are not measured.
	Recorder lockstep.Recorder `json:"-"` // Recorder takes the measurements; nil means that the Meter is off.
}

// Validate reports every fault of c, joined: nodes that Tree does not have, or
// that are named twice.
func (c Config) Validate() error {
	f := faults{op: "config"}
	f.count("Values", c.Values, maxSeries)
	seen := make(map[lockstep.NodeID]bool, len(c.Nodes))
	for i := range c.Nodes {
		id := c.Nodes[i].ID
		if seen[id] {
			f.bad("Nodes", quote(id), "named twice")
		}
		seen[id] = true
		if c.Tree == nil {
			continue
		}
		if _, ok := c.Tree.Slot(id); !ok {
			f.bad("Nodes", quote(id), "not in the tree")
		}
	}
	return f.err()
}

// Source says where a job stands; *scheduler.Scheduler is one.
type Source interface {
	// Status returns where job stands; false means that it is not known.
	Status(job lockstep.JobID) (scheduler.Status, bool)
}

// Cluster is what a Source can also do: say what nodes there are and how they stand.
// *scheduler.Scheduler does. Sample goes by it, and so sees what no event told the
// Meter: nodes that were closed before it was made, as before a restart, and those
// of another tree, as behind scheduler.Scheduler.Rebase.
type Cluster interface {
	// Tree returns the cluster as it is now.
	Tree() *topology.Tree
	// Node returns how a node stands; false if the tree does not have it.
	Node(id lockstep.NodeID) (placement.Status, bool)
}

// Meter makes measurements of what a host sees of a scheduler. Make one with
// New. The methods of a Meter that is off, and those of nil, do nothing and cost
// nothing.
type Meter struct {
	cfg  Config
	rec  lockstep.Recorder
	jobs map[lockstep.JobID]*job
	all  []*job // in the order of their submission; those that have gone are left out now and then
	dead int    // how many of all have gone

	again  []*job // in backoff: they come back without an action or an event
	tries  int64  // of this step, as the tap counted them
	states gauges[queued]
	why    gauges[pending]
	spent  map[spending]lockstep.GPUTime // what is not counted yet; it may be negative
	lost   map[lockstep.Reason]lockstep.GPUTime
	park   *park
	taken  []victims

	queues, tenants names
}

// queued, pending and spending tell series apart.
type (
	queued struct {
		queue lockstep.QueueID
		state lifecycle.State
	}
	pending struct {
		queue  lockstep.QueueID
		reason lockstep.Reason
	}
	spending struct {
		tenant lockstep.TenantID
		part   lifecycle.Part
	}
)

// New returns a Meter that has seen nothing, or the faults of cfg.
func New(cfg Config) (*Meter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Policy == "" {
		cfg.Policy = "default"
	}
	if cfg.Values == 0 {
		cfg.Values = DefaultValues
	}
	if cfg.Rules == nil {
		cfg.Rules = lifecycle.DefaultRules()
	}
	m := &Meter{cfg: cfg, rec: cfg.Recorder}
	if m.rec == nil {
		return m, nil
	}
	m.jobs = make(map[lockstep.JobID]*job)
	m.spent = make(map[spending]lockstep.GPUTime)
	m.lost = make(map[lockstep.Reason]lockstep.GPUTime)
	m.queues, m.tenants = newNames(cfg.Values), newNames(cfg.Values)
	m.park = newPark(cfg.Tree, cfg.Nodes, nil)
	return m, nil
}

// On reports whether m measures anything.
func (m *Meter) On() bool { return m != nil && m.rec != nil }

// Tap returns what to give scheduler.Config.Recorder: it hands all on to
// Config.Recorder, and lets m count the tries that came to nothing. It is nil
// where m is off.
func (m *Meter) Tap() lockstep.Recorder {
	if !m.On() {
		return nil
	}
	return &tap{m}
}

// tap listens to gang admission.
type tap struct{ m *Meter }

func (t *tap) Count(name lockstep.Metric, l lockstep.MetricLabels, n int64) {
	if name == gang.MetricFits {
		t.m.tries += n
	}
	t.m.rec.Count(name, l, n)
}

func (t *tap) Gauge(name lockstep.Metric, l lockstep.MetricLabels, v float64) {
	t.m.rec.Gauge(name, l, v)
}

func (t *tap) Observe(name lockstep.Metric, l lockstep.MetricLabels, v float64) {
	t.m.rec.Observe(name, l, v)
}

// Event takes note of an event behind the Apply that it was given to; err is
// what Apply returned. It keeps nothing of e but a gang's names.
func (m *Meter) Event(src Source, e *lockstep.Event, err error) {
	if !m.On() {
		return
	}
	if err != nil {
		m.refused(e, err)
		return
	}
	now := e.Time.UnixNano()
	switch e.Kind {
	case lockstep.EventSubmit:
		if e.Gang != nil {
			m.begin(now, e.Gang)
			m.look(src, now, e.Gang.ID)
		}
	case lockstep.EventDown, lockstep.EventUp, lockstep.EventCordon, lockstep.EventOpen:
		m.park.close(e.Kind, e.Node)
		if e.Kind == lockstep.EventDown {
			m.lookAll(src, now, nil)
		}
	case lockstep.EventConfirm, lockstep.EventRefuse:
		// The step that follows says what came of it.
	default:
		m.look(src, now, e.Job)
	}
}

// refused counts an event that was not taken.
func (m *Meter) refused(e *lockstep.Event, err error) {
	reason := reasonOf(err)
	m.rec.Count(RefusedEvents, lockstep.MetricLabels{Kind: string(e.Kind), Reason: reason}, 1)
	if reason == "stale" || reason == "past" {
		m.rec.Count(StaleEvents, lockstep.MetricLabels{Kind: string(e.Kind)}, 1)
	}
	if e.Kind == lockstep.EventSubmit {
		m.decided("rejected", 1)
	}
}

// reasonOf returns the word for the kind of an error.
func reasonOf(err error) lockstep.Reason {
	for _, k := range [...]struct {
		kind error
		word lockstep.Reason
	}{
		{lockstep.ErrInvalid, "invalid"},
		{lockstep.ErrDuplicate, "duplicate"},
		{lockstep.ErrUnknown, "unknown"},
		{lockstep.ErrStale, "stale"},
		{lockstep.ErrPast, "past"},
		{lockstep.ErrConflict, "conflict"},
	} {
		if errors.Is(err, k.kind) {
			return k.word
		}
	}
	return "failed"
}

func (m *Meter) decided(result string, n int64) {
	if n > 0 {
		m.rec.Count(Decisions, lockstep.MetricLabels{Kind: m.cfg.Policy, Result: result}, n)
	}
}

// Step takes note of what a step decided at now. Took is how long the step took
// by the host's clock; 0 or less means that it was not measured. It keeps
// nothing of actions.
func (m *Meter) Step(src Source, now time.Time, took time.Duration, actions []lockstep.Action) {
	if !m.On() {
		return
	}
	t := now.UnixNano()
	if took > 0 {
		m.rec.Observe(DecisionDuration, lockstep.MetricLabels{Kind: m.cfg.Policy}, took.Seconds())
	}
	for i := len(m.again) - 1; i >= 0; i-- { // looking takes those out that have come back
		m.look(src, t, m.again[i].id)
	}
	placed, rejected := int64(0), int64(0)
	for i := range actions {
		a := &actions[i]
		switch m.act(t, a) {
		case granted:
			placed++
		case rejectedForGood:
			rejected++
		}
		m.look(src, t, a.Job)
	}
	m.decided("placed", placed)
	m.decided("rejected", rejected)
	m.decided("deferred", max(m.tries-placed, 0))
	m.tries = 0
	m.victims()
}

// effect is what an action means for the job's wait.
type effect int

const (
	noEffect effect = iota
	granted
	rejectedForGood
)

// act counts what an action is.
func (m *Meter) act(now int64, a *lockstep.Action) effect {
	j := m.jobs[a.Job]
	if a.Eviction != nil {
		m.evicted(a.Eviction)
	}
	switch a.Kind {
	case lockstep.ActionReject:
		return rejectedForGood
	case lockstep.ActionResize:
		m.resized(now, j, a)
	case lockstep.ActionRelease:
		if j != nil {
			j.granted, j.held = 0, false
		}
	case lockstep.ActionReserve:
		if j != nil && !j.held {
			m.grant(now, j)
			return granted
		}
	case lockstep.ActionStart:
		if j == nil {
			break
		}
		fresh := !j.held
		if fresh {
			m.grant(now, j)
		}
		m.rec.Observe(StartLatency, lockstep.MetricLabels{Queue: j.queue}, seconds64(now-j.granted))
		j.gpus = planGPUs(a.Plan)
		if fresh {
			return granted
		}
	}
	return noEffect
}

// grant notes that a job has room now.
func (m *Meter) grant(now int64, j *job) {
	j.held, j.granted = true, now
	m.rec.Observe(AdmissionWait, lockstep.MetricLabels{Queue: j.queue}, seconds64(now-j.waits))
}

// resized notes a change of size, which is over when the others have left.
func (m *Meter) resized(now int64, j *job, a *lockstep.Action) {
	if j == nil || a.Plan == nil {
		return
	}
	size, direction := planGPUs(a.Plan), "up"
	switch {
	case size < j.gpus:
		direction = "down"
	case size == j.gpus:
		direction = "same" // other members for those that were lost
	}
	j.gpus, j.resizing, j.direction = size, now, direction
	m.rec.Count(Resizes, lockstep.MetricLabels{Kind: direction}, 1)
}

// victims are those that had to go for one job.
type victims struct {
	preemptor lockstep.JobID
	reason    lockstep.Reason
	n         int
}

// evicted counts an eviction.
func (m *Meter) evicted(e *lockstep.Eviction) {
	m.rec.Count(Evictions, lockstep.MetricLabels{Reason: e.Reason}, 1)
	if e.For == "" {
		return
	}
	m.rec.Count(Preemptions, lockstep.MetricLabels{Reason: e.Reason}, 1)
	at := slices.IndexFunc(m.taken, func(v victims) bool { return v.preemptor == e.For && v.reason == e.Reason })
	if at < 0 {
		at = len(m.taken)
		m.taken = append(m.taken, victims{preemptor: e.For, reason: e.Reason})
	}
	m.taken[at].n++
}

// victims samples how many had to go for each, in the order of the actions.
func (m *Meter) victims() {
	for i := range m.taken {
		m.rec.Observe(Victims, lockstep.MetricLabels{Reason: m.taken[i].reason}, float64(m.taken[i].n))
	}
	clear(m.taken)
	m.taken = m.taken[:0]
}

// seconds64 is a number of nanoseconds in seconds, at least 0.
func seconds64(ns int64) float64 { return time.Duration(max(ns, 0)).Seconds() }

// planGPUs returns the devices of p.
func planGPUs(p *lockstep.Plan) lockstep.MilliGPU {
	if p == nil {
		return 0
	}
	var sum lockstep.MilliGPU
	for i := range p.Members {
		sum = sum.Add(share(p, &p.Members[i]))
	}
	return sum
}

// share returns the devices of one member of p.
func share(p *lockstep.Plan, member *lockstep.Member) lockstep.MilliGPU {
	each := lockstep.WholeGPU
	if p.Gang != nil && int(member.Role) < len(p.Gang.Roles) && member.Role >= 0 {
		each = p.Gang.Roles[member.Role].Demand.DeviceShare()
	}
	return each.Mul(int64(member.Devices.Len()))
}
