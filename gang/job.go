package gang

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Phase is where a job stands with its devices.
type Phase string

// The phases of a job. Only a running job's members run; held, awaiting and
// moving jobs own room that is theirs alone.
const (
	Queued   Phase = "queued"   // Queued: it waits and holds nothing.
	Awaiting Phase = "awaiting" // Awaiting: its room is its own, but others are still leaving it.
	Held     Phase = "held"     // Held: its room is clean; its members confirm until the deadline.
	Running  Phase = "running"  // Running: it was told to start.
	Resizing Phase = "resizing" // Resizing: it runs on with fewer members; the others are leaving.
	Moving   Phase = "moving"   // Moving: it was told to stop and already owns room elsewhere.
	Leaving  Phase = "leaving"  // Leaving: it was told to stop; then it is queued again, or gone.
	Gone     Phase = "gone"     // Gone: it has left for good.
)

// forever is the end of what has no known end; minTime is before all times.
const (
	forever = math.MaxInt64
	minTime = math.MinInt64
)

// job is one submitted gang. Its plan is what the placer has applied for it.
type job struct {
	id     lockstep.JobID
	gang   *lockstep.Gang
	shape  *shape
	minima []int // members of each role that must run
	limits []int // members of each role that may run

	phase   Phase
	attempt lockstep.Attempt
	submit  int64
	plan    *lockstep.Plan    // applied in the placer; nil when it holds nothing
	old     []lockstep.Member // room still dirty with its members though no longer its own
	charged bool              // has a charge in the quota

	waits     []lockstep.JobID // who must leave before its room is clean, sorted
	confirmed []bool           // by rank, while held
	missing   int              // ranks not confirmed yet
	deadline  int64            // of the hold
	begun     bool             // it has run
	start     int64            // when it began to run
	end       int64            // when its room is expected back; forever if unknown

	due      bool              // its term is over, to be decided by the next pass
	told     bool              // the host knows of its room
	replan   bool              // its room lost a node while held
	shrunk   bool              // it has reported members gone in this run
	requeue  bool              // after leaving it is queued again
	inQueue  bool              // is in line
	refusing bool              // counts in its shape's refusing
	span     int64             // its hold and estimate together, while it is in line
	moved    bool              // displaced in this pass and not decided yet
	decided  bool              // due and decided in this pass
	soft     bool              // due and may be displaced in this pass
	victim   bool              // room is taken from it in this pass, though it is not due
	lapses   int               // holds in a row that lapsed
	was      []lockstep.Member // where it sat when the pass began, while due
	waitFor  lockstep.JobID    // whom it makes room for
	seen     uint64            // the pass that proposed it last, or the last before it was in line
	notUntil int64             // not tried before; set by a lapse
	refused  []refusal

	grants   uint64            // rooms given when it was tried last, if its shape has affinity
	failed   uint64            // room in which it did not fit even without reservations
	roomless delay             // the reservations beside which it has no room at any time
	delays   delay             // the reservations that it would delay
	verdict  lockstep.Verdict  // of its last try
	kept     uint64            // the latest pass in which it has a reservation
	spot     []lockstep.Member // room kept for it, or promised: its least members, then its spares
	reason   lockstep.Reason   // why it is leaving or gone

	// What is seldom asked for comes last.
	lost   []int                  // ranks that a lost node took with it, while it runs on and is to get others
	why    lockstep.Reason        // why room is taken from it
	cost   *lockstep.EvictionCost // what stopping it throws away, while room is taken from it
	listed int                    // its place among the candidates listed last, if it is one
	made   []cause                // whom it made room for
	taken  int                    // jobs it took room from since it last ran
	trial  int                    // members that are tried first, while it is held
	tried  bool                   // they confirmed
	keeps  *lockstep.Plan         // while on trial: the room of the whole, of which it holds that of the first members
}

// refusal keeps a gang off a node for a while.
type refusal struct {
	Node  lockstep.NodeID `json:"node"`
	Until int64           `json:"until"`
}

func newJob(g *lockstep.Gang, now int64) *job {
	j := &job{id: g.ID, gang: g, phase: Queued, submit: now, end: forever, notUntil: math.MinInt64}
	counts := make([]int, 2*len(g.Roles))
	j.minima, j.limits = counts[:len(g.Roles)], counts[len(g.Roles):]
	for i := range g.Roles {
		j.minima[i], j.limits[i] = g.Roles[i].Min, g.Roles[i].Limit()
	}
	return j
}

// holds reports whether the placer has room applied for j.
func (j *job) holds() bool { return j.plan != nil }

// wall is how long j runs by its estimate, or forever.
func (j *job) wall() int64 {
	if j.gang.Walltime == 0 {
		return forever
	}
	return int64(j.gang.Walltime)
}

// byOrder is the default order of proposals: higher priority, then earlier
// submission, then ID.
func byOrder(a, b *job) int {
	if c := cmp.Compare(b.gang.Priority, a.gang.Priority); c != 0 {
		return c
	}
	if c := cmp.Compare(a.submit, b.submit); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

// byEnd is the order in which holders are expected to give back their room:
// earlier end, then, which matters where no end is known, later start (what has
// run long tends to run on), then ID.
func byEnd(a, b *job) int {
	if c := cmp.Compare(a.end, b.end); c != 0 {
		return c
	}
	if c := cmp.Compare(b.start, a.start); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

// byStanding is the order in which due holders deserve to stay where the
// orderer has not spoken: higher priority, earlier start, ID.
func byStanding(a, b *job) int {
	if c := cmp.Compare(b.gang.Priority, a.gang.Priority); c != 0 {
		return c
	}
	if c := cmp.Compare(a.start, b.start); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

func byID(a, b *job) int { return cmp.Compare(a.id, b.id) }

// bySpan is shorter span, then ID.
func bySpan(a, b *job) int {
	if c := cmp.Compare(a.span, b.span); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

// insertSorted adds j to a sorted list.
func insertSorted(list []*job, j *job, compare func(a, b *job) int) []*job {
	if n := len(list); n == 0 || compare(list[n-1], j) < 0 {
		return append(list, j)
	}
	i, _ := slices.BinarySearchFunc(list, j, compare)
	return slices.Insert(list, i, j)
}

// removeSorted takes j out of a sorted list that holds it.
func removeSorted(list []*job, j *job, compare func(a, b *job) int) []*job {
	i, found := slices.BinarySearchFunc(list, j, compare)
	if !found || list[i] != j {
		return list
	}
	return deleteAt(list, i)
}

// later returns t+d, held at forever.
func later(t, d int64) int64 {
	if t == forever || d == forever || t > forever-d {
		return forever
	}
	return t + d
}

// delay remembers that a job would delay one of the first Count reservations,
// the last of which is ID, until room is freed in another Epoch. An ID stands
// for all reservations before it too, since they are found one after another. A
// negative Count stands for all reservations, those behind too; ID is then the flow.
type delay struct {
	Epoch uint64 `json:"epoch"`
	ID    uint64 `json:"id"`
	Count int    `json:"count"`
}

// shape is what decides whether a gang fits, shared by all jobs alike in it, so
// that one failed try stands for all.
type shape struct {
	key        string // its text; empty where simple tells all
	simple     simple
	jobs       int
	affinity   bool             // fits may come with grants, so failures prove nothing
	failed     uint64           // room in which it did not fit even without reservations
	delays     delay            // the reservations that it would delay for want of an early end
	hopeless   uint64           // pass in which it does not fit even where due holders sit
	impossible uint64           // openness in which it does not fit an empty cluster
	verdict    lockstep.Verdict // of failed
	harm       harm             // why one of it would delay reservations
	untaken    untaken          // that one of it can take no room
	placeable  bool             // the placer did not call it invalid

	line     []*job // waiting jobs in the default order
	spans    []*job // the same by span
	next     int    // place in line that the pass has come to
	place    int    // among the queue's shapes, while somebody is in line
	refusing int    // jobs in line that refused nodes
}

// shapeKey returns a text that is equal for gangs that fit in the same rooms.
func shapeKey(g *lockstep.Gang) (key string, affinity bool) {
	affinity = len(g.Constraints.Affinity) > 0
	for i := range g.Roles {
		affinity = affinity || len(g.Roles[i].Constraints.Affinity) > 0
	}
	like := lockstep.Gang{
		Roles: g.Roles, Required: g.Required, Preferred: g.Preferred, Strategy: g.Strategy, Preemption: g.Preemption, Constraints: g.Constraints,
	}
	like.Capabilities.Shareable = g.Capabilities.Shareable
	if affinity {
		like.Labels = g.Labels
	}
	text, err := json.Marshal(&like)
	if err != nil {
		// invariant: a Gang is plain data, which encoding/json always writes.
		panic("gang: shape: " + err.Error())
	}
	return string(text), affinity
}

// simple is the shape of a gang of one role or two without constraints, the parts
// of it that shapeKey writes, as a key that costs nothing to make.
type simple struct {
	roles               [2]simpleRole
	required, preferred lockstep.Level
	strategy            lockstep.Strategy
	never               bool // takes room from nobody
	shareable           bool
	owner               int32 // whose it is, see owner
}

// owner is whose a gang is, as far as that decides from whom it may take room:
// only where it may take some and there is a quota.
type owner struct {
	tenant lockstep.TenantID
	queue  lockstep.QueueID
}

type simpleRole struct {
	name              lockstep.RoleName
	least, most       int
	spares            int
	gpus, rdma        int
	share             lockstep.MilliGPU
	profile           lockstep.Profile
	gpuMemory, memory lockstep.Bytes
	cpu               lockstep.MilliCPU
	inner             lockstep.Inner
}

// simpleShape returns the shape of g, and false where it is not as simple.
func simpleShape(g *lockstep.Gang) (k simple, ok bool) {
	if len(g.Roles) > len(k.roles) || !unconstrained(&g.Constraints) {
		return k, false
	}
	k = simple{
		required: g.Required, preferred: g.Preferred, strategy: g.Strategy, never: g.Preemption == lockstep.PreemptNever, shareable: g.Capabilities.Shareable,
	}
	for i := range g.Roles {
		r := &g.Roles[i]
		d := &r.Demand
		if !unconstrained(&r.Constraints) || len(d.Classes) > 0 {
			return k, false
		}
		k.roles[i] = simpleRole{
			name: r.Name, least: r.Min, most: r.Max, spares: r.Spares, gpus: d.GPUs, rdma: d.RDMA, share: d.Share, profile: d.Profile,
			gpuMemory: d.GPUMemory, memory: d.Memory, cpu: d.CPU, inner: r.Inner,
		}
	}
	return k, true
}

func unconstrained(c *lockstep.Constraints) bool {
	return len(c.Selector) == 0 && len(c.Tolerations) == 0 && len(c.Affinity) == 0
}

func (a *Admission) addShape(j *job) {
	k, plain := simpleShape(j.gang)
	who := a.ownerOf(j.gang)
	var s *shape
	if plain {
		k.owner = who
		if s = a.simple[k]; s == nil {
			s = &shape{simple: k}
			a.simple[k] = s
		}
	} else {
		key, affinity := shapeKey(j.gang)
		if who != 0 {
			key += " " + strconv.Itoa(int(who))
		}
		if s = a.shapes[key]; s == nil {
			s = &shape{key: key, affinity: affinity}
			a.shapes[key] = s
		}
	}
	s.jobs++
	j.shape = s
}

func (a *Admission) dropShape(j *job) {
	s := j.shape
	if s == nil {
		return
	}
	if s.jobs--; s.jobs == 0 && s.key == "" {
		delete(a.simple, s.simple)
	} else if s.jobs == 0 {
		delete(a.shapes, s.key)
	}
	j.shape = nil
}

// Status is where a job stands, as a value of its own; only Plan is shared, and
// nothing writes to a plan that was decided.
type Status struct {
	Job       lockstep.JobID   `json:"job"`                // Job is whose.
	Phase     Phase            `json:"phase"`              // Phase is where it stands.
	Attempt   lockstep.Attempt `json:"attempt,omitempty"`  // Attempt is its latest hold; 0 before the first.
	Submitted time.Time        `json:"submitted"`          // Submitted is when it came.
	Started   time.Time        `json:"started,omitzero"`   // Started is when it last began to run; zero while it has not.
	Deadline  time.Time        `json:"deadline,omitzero"`  // Deadline is when its hold ends; zero when it is not held.
	End       time.Time        `json:"end,omitzero"`       // End is when its room is expected back; zero when unknown or when it holds none.
	Plan      *lockstep.Plan   `json:"plan,omitempty"`     // Plan is the room it owns; nil when none. It must not be changed.
	Missing   int              `json:"missing,omitempty"`  // Missing is how many members have not confirmed, while it is held.
	Trial     int              `json:"trial,omitempty"`    // Trial is how many members are being tried first, see Canary; 0 when none.
	Waits     []lockstep.JobID `json:"waits,omitempty"`    // Waits are the jobs still leaving its room, sorted.
	Due       bool             `json:"due,omitempty"`      // Due says that its term is over and the next pass decides.
	Reason    lockstep.Reason  `json:"reason,omitempty"`   // Reason is why it is leaving or gone, or waits.
	Lapses    int              `json:"lapses,omitempty"`   // Lapses is how many of its holds lapsed in a row.
	NotBefore time.Time        `json:"notBefore,omitzero"` // NotBefore is when a lapsed job is tried again; zero means at once.
	Verdict   lockstep.Verdict `json:"verdict,omitzero"`   // Verdict is its last try at room.
}
