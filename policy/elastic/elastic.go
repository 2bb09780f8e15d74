package elastic

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Limits that inputs are held to, so that every product stays inside 128 bits.
const (
	MaxGPUs = 1 << 20 // MaxGPUs bounds what is given out, and every size.
	MaxWork = 1 << 40 // MaxWork bounds Job.Work.
)

// Rule says by what the next GPUs are given.
type Rule string

// The rules.
const (
	// Finish gives to where the time until the job ends falls most for each GPU, and not
	// where it does not fall: Optimus. It is the zero Rule.
	Finish Rule = ""

	// Service gives to where the GPU time until the job ends falls most, or rises least, for
	// each GPU, as long as the job ends sooner: ElasticFlow's marginal return.
	Service Rule = "service"
)

// Size is one number of GPUs that a job can run with.
type Size struct {
	GPUs int           `json:"gpus"` // GPUs is how many, from 1 to MaxGPUs.
	Time time.Duration `json:"time"` // Time is how long a unit of work takes with them, from 1 ns to lockstep.MaxWalltime.
}

// Job is one job of a decision.
type Job struct {
	ID   lockstep.JobID `json:"id"`             // ID names it.
	Rank int64          `json:"rank,omitempty"` // Rank says whose least size comes first, the lower first; ties go by ID.

	// Sizes are what it can run with, by rising GPUs. The first is the least it may
	// have: 1 for Optimus, the minimum share for ElasticFlow. They are read only and
	// may be the same slice for many jobs.
	Sizes []Size `json:"sizes"`
	Work  int64  `json:"work"` // Work is how many units are left, 0 to MaxWork.

	Held  int           `json:"held,omitempty"`  // Held is how many GPUs it has now; 0 means that it waits.
	Since time.Duration `json:"since,omitempty"` // Since is how long it has had that many, at least 0; only read for a job that holds some.

	// Capabilities say what the job can bear. One that is not Resizable gets its least
	// size or nothing, and keeps what it holds; one that holds GPUs and is not Preemptible
	// is not left without; Save and Restore are what a resize costs it.
	Capabilities lockstep.Capabilities `json:"capabilities,omitzero"`
}

// Reason says why a job has what it has.
type Reason int8

// The reasons.
const (
	Given   Reason = iota // Given: what the rule gives it; it may be what the job holds.
	NoRoom                // NoRoom: nothing, since its least size did not fit.
	Fixed                 // Fixed: what it holds, or its least size, since it cannot be resized.
	Settled               // Settled: what it holds, since it was resized too short a time ago.
	TooDear               // TooDear: what it holds, since a resize would cost more than it brings within the horizon.
)

// String returns the name of r.
func (r Reason) String() string {
	names := [...]string{"given", "no room", "fixed", "settled", "too dear"}
	if r < 0 || int(r) >= len(names) {
		return "reason " + strconv.Itoa(int(r))
	}
	return names[r]
}

// Share is what one job gets.
type Share struct {
	ID     lockstep.JobID `json:"id"`     // ID names the job.
	GPUs   int            `json:"gpus"`   // GPUs is how many; 0 means that it waits.
	Held   int            `json:"held"`   // Held is how many it had: a Share with the same GPUs asks for nothing.
	Reason Reason         `json:"reason"` // Reason says why that many.
}

// Config configures an Allocator. The zero value is valid.
type Config struct {
	Rule    Rule          `json:"rule,omitempty"`    // Rule says by what GPUs are given; zero is Finish.
	Dwell   time.Duration `json:"dwell,omitempty"`   // Dwell is how long a job keeps a size, unless it is below its least, or what jobs before it, or jobs that must not be stopped, must have leaves less; 0 means no time.
	Horizon time.Duration `json:"horizon,omitempty"` // Horizon is within which more GPUs must bring more than the resize costs; 0 means that cost does not count.
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	f := faults{op: "config"}
	if c.Rule != Finish && c.Rule != Service {
		f.bad("Rule", errtext.Quote(c.Rule), "not a rule")
	}
	f.duration("Dwell", c.Dwell)
	f.duration("Horizon", c.Horizon)
	return f.err()
}

func (f *faults) duration(field string, d time.Duration) {
	if d < 0 || d > lockstep.MaxWalltime {
		f.bad(field, d.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
}

// Allocator says how many GPUs each job gets. It keeps nothing from one decision to the
// next but its buffers.
type Allocator struct {
	cfg   Config
	heap  []step
	ids   []int // of jobs, by ID
	order []int // of jobs, by who gets a least size first
	at    []int // of each job: the index of its size, or below
	fixed []Reason
}

// Where a job stands that has none of its sizes.
const (
	none = -1 // no GPUs
	held = -2 // what it holds, whether that is one of its sizes or not
)

// New returns an Allocator.
func New(cfg Config) (*Allocator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Allocator{cfg: cfg}, nil
}

// Append appends what each job gets of that many GPUs to dst, by ID. The shares never add
// up to more than gpus. What is given wrong is reported, all of it, and nothing appended.
func (a *Allocator) Append(dst []Share, gpus int, jobs []Job) ([]Share, error) {
	if err := a.check(gpus, jobs); err != nil {
		return dst, err
	}
	a.fixed = slices.Grow(a.fixed[:0], len(jobs))[:len(jobs)]
	a.order = append(a.order[:0], a.ids...)
	for i := range jobs {
		a.fixed[i] = a.bound(&jobs[i])
	}
	slices.SortFunc(a.order, func(x, y int) int { return precedes(&jobs[x], &jobs[y]) })
	// Each round pins the growth that is not worth its cost; what that sets free goes to
	// others. The last round only takes back, which needs no more GPUs.
	for round := 0; ; round++ {
		a.least(gpus, jobs)
		if !a.pin(jobs) {
			break
		}
		if round == maxRounds {
			a.takeBack(jobs)
			break
		}
	}
	for _, i := range a.ids {
		dst = append(dst, a.share(&jobs[i], i))
	}
	return dst, nil
}

// maxRounds is how often GPUs are given out anew after growth was refused.
const maxRounds = 3

// share is what job i got.
func (a *Allocator) share(j *Job, i int) Share {
	s := Share{ID: j.ID, Held: j.Held, Reason: a.fixed[i]}
	switch a.at[i] {
	case none:
		s.Reason = NoRoom
	case held:
		s.GPUs = j.Held
	default:
		s.GPUs = j.Sizes[a.at[i]].GPUs
	}
	return s
}

// bound says what keeps a job from being resized, before anything is given.
func (a *Allocator) bound(j *Job) Reason {
	switch {
	case !j.Capabilities.Resizable:
		return Fixed
	case j.Held > 0 && j.Held >= j.Sizes[0].GPUs && j.Since < a.cfg.Dwell:
		return Settled
	}
	return Given
}

// least gives each job its least size, or what it holds where that is fixed, in the order
// of who must not be stopped, Rank and ID, and then the rest by the rule.
func (a *Allocator) least(free int, jobs []Job) {
	a.at, a.heap = slices.Grow(a.at[:0], len(jobs))[:len(jobs)], a.heap[:0]
	later := a.musts(jobs)
	for _, i := range a.order {
		j := &jobs[i]
		a.at[i] = none
		want, place := j.Sizes[0].GPUs, 0
		if a.fixed[i] != Given && j.Held > 0 {
			want, place = j.Held, held
		}
		spare := int64(free)
		if j.must() {
			later -= int64(a.need(i, j))
			spare -= later // nobody keeps more than the least at the cost of one that must not be stopped
		}
		if int64(want) > spare && a.fixed[i] != Fixed {
			want, place, a.fixed[i] = j.Sizes[0].GPUs, 0, Given // too little is left for all of it
		}
		if want > free {
			continue
		}
		free -= want
		a.at[i] = place
	}
	for rank, i := range a.order {
		if a.fixed[i] == Given && a.at[i] == 0 {
			a.push(jobs, i, rank)
		}
	}
	a.grow(free, jobs)
}

// musts is what all jobs need that must not be stopped.
func (a *Allocator) musts(jobs []Job) int64 {
	sum := int64(0)
	for _, i := range a.order {
		if !jobs[i].must() {
			break // they come first
		}
		sum += int64(a.need(i, &jobs[i]))
	}
	return sum
}

// need is the least that job i goes on with.
func (a *Allocator) need(i int, j *Job) int {
	if a.fixed[i] == Fixed {
		return j.Held
	}
	return j.Sizes[0].GPUs
}

// must says that a job runs and must not be stopped.
func (j *Job) must() bool { return j.Held > 0 && !j.Capabilities.Preemptible }

// precedes orders jobs by who gets a least size first.
func precedes(x, y *Job) int {
	if x.must() != y.must() {
		if x.must() {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.ID, y.ID))
}

// check reports every fault of the arguments of Append.
func (a *Allocator) check(gpus int, jobs []Job) error {
	f := faults{op: "allocate"}
	f.count("gpus", int64(gpus), 0, MaxGPUs)
	for i := range jobs {
		f.job(i, &jobs[i])
	}
	a.ids = a.ids[:0]
	for i := range jobs {
		a.ids = append(a.ids, i)
	}
	slices.SortFunc(a.ids, func(x, y int) int { return cmp.Or(cmp.Compare(jobs[x].ID, jobs[y].ID), x-y) })
	for k := 1; k < len(a.ids); k++ {
		if i := a.ids[k]; jobs[i].ID == jobs[a.ids[k-1]].ID {
			f.twice(i, jobs[i].ID)
		}
	}
	return f.err()
}

func (f *faults) job(i int, j *Job) {
	const slice = "jobs"
	if j.ID == "" {
		f.bad(at(slice, i, "ID"), `""`, "want a name")
	}
	if j.Work < 0 || j.Work > MaxWork {
		f.bad(at(slice, i, "Work"), strconv.FormatInt(j.Work, 10), "want 0 to 2^40")
	}
	if j.Held < 0 || j.Held > MaxGPUs {
		f.bad(at(slice, i, "Held"), strconv.Itoa(j.Held), "want 0 to 2^20")
	}
	if j.Since < 0 {
		f.bad(at(slice, i, "Since"), j.Since.String(), "must not be negative")
	}
	if c := &j.Capabilities; c.Save < 0 || c.Save > lockstep.MaxWalltime || c.Restore < 0 || c.Restore > lockstep.MaxWalltime {
		f.bad(at(slice, i, "Capabilities"), c.Save.String()+" + "+c.Restore.String(), "want Save and Restore from 0 to "+lockstep.MaxWalltime.String())
	}
	f.sizes(i, j.Sizes)
}

// sizes checks the sizes of job i.
func (f *faults) sizes(i int, sizes []Size) {
	if len(sizes) == 0 {
		f.bad(at("jobs", i, "Sizes"), "none", "want one or more")
	}
	least := 1
	for k, s := range sizes {
		if s.GPUs < least || s.GPUs > MaxGPUs {
			f.bad(at("jobs", i, "Sizes["+strconv.Itoa(k)+"].GPUs"), strconv.Itoa(s.GPUs), "want 1 to 2^20, rising")
		}
		if s.Time <= 0 || s.Time > lockstep.MaxWalltime {
			f.bad(at("jobs", i, "Sizes["+strconv.Itoa(k)+"].Time"), s.Time.String(), "want more than 0, to "+lockstep.MaxWalltime.String())
		}
		least = max(s.GPUs, 0) + 1
	}
}
