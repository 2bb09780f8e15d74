package elastic

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel/goodput"
)

// Speeder tells how fast a job is. A *goodput.Model is one.
type Speeder interface {
	// Speedup returns how many times as fast the job is on that many GPUs of that many nodes
	// as on one; ok is false where it cannot run so.
	Speedup(nodes, gpus int) (x float64, ok bool)
}

// Spot is the GPUs that a job has on one node.
type Spot struct {
	Node int `json:"node"` // Node is the index of the node in the list of a decision.
	GPUs int `json:"gpus"` // GPUs is how many of it, at least 1.
}

// Candidate is one job of a Search.
type Candidate struct {
	ID    lockstep.JobID // ID names it.
	Speed Speeder        // Speed tells how fast it is; nil means nothing is known: as fast as it has GPUs.

	Min    int   // Min is the fewest GPUs it runs with; 0 means 1.
	Max    int   // Max is the most; 0 means Min. Pollux lets a job grow to twice as many as it was ever measured with.
	Weight int64 // Weight is how much it counts beside others, to MaxWeight; 0 means 1.

	Held     []Spot        // Held is where it runs now, in any order; empty means that it waits.
	Age      time.Duration // Age is the time since it was submitted.
	Restarts int           // Restarts is how often it was restarted.
	Since    time.Duration // Since is how long it has run where it does, for SearchConfig.Dwell.

	// Capabilities say what the job can bear. One that runs and is not Preemptible stays
	// where it is, since any change restarts it. One that is not Resizable runs with as
	// many GPUs as it holds, and with Min once it waits.
	Capabilities lockstep.Capabilities
}

// Bounds of a Search, so that every sum stays inside int64.
const (
	MaxWeight     = 1 << 10 // MaxWeight bounds Candidate.Weight.
	MaxCandidates = 1 << 16 // MaxCandidates bounds the jobs of one Search.
)

// Placed is where one job is to run.
type Placed struct {
	ID    lockstep.JobID `json:"id"`    // ID names the job.
	Spots []Spot         `json:"spots"` // Spots is where, by node; nil means that it waits. The caller may keep it.
	Moved bool           `json:"moved"` // Moved says that a job that runs is restarted, or stopped.

	// Speedup is what counts in the fitness, in millionths: how fast it is beside its fair
	// share of GPUs, less what a restart costs.
	Speedup int64 `json:"speedup"`
}

// SearchConfig configures a Search. The zero value is valid.
type SearchConfig struct {
	Delay  time.Duration `json:"delay,omitempty"`  // Delay is how long a restart takes; 0 means 30 s, as in Pollux, and below 0 no time.
	Dwell  time.Duration `json:"dwell,omitempty"`  // Dwell is how long a job stays where it is; 0 means no time.
	Effort int           `json:"effort,omitempty"` // Effort is how many changes are tried once the free GPUs are given out; 0 means 2^18.
	Seed   uint64        `json:"seed,omitempty"`   // Seed says in which order jobs are looked at; the same one finds the same for the same jobs.
}

// Search looks for the allocation of jobs to nodes with the greatest fitness: Pollux. It
// keeps nothing from one decision to the next but its buffers.
type Search struct {
	cfg    SearchConfig
	free   []int // of each node
	across []int // of each node: the jobs on it that span nodes
	total  int   // GPUs that are free
	top    int   // the most GPUs of a node
	all    shelf // of all nodes
	clean  shelf // of those with no part of a job that spans nodes
	jobs   []state
	turns  []int // the order in which jobs are looked at
	tried  int
	first  []Spot // scratch
	second []Spot
	best   []Spot
	other  []Spot
	sizes  []int
	bids   []bid
	group  []int
	saved  []Spot
}

// state is a job in the course of a search.
type state struct {
	job     *Candidate
	held    []Spot // by node
	cur     []Spot // by node
	heldN   int
	n       int
	least   int
	most    int
	pinned  bool
	factor  float64 // of its speed where it is restarted
	base    float64 // the speed-up that counts as 1
	weight  int64
	cost    int64 // of cur
	speed   [][]int64
	longest int
	was     int // spots that it had before a rebuild
}

// Validate reports every fault of c, joined.
func (c SearchConfig) Validate() error {
	f := faults{op: "search config"}
	if c.Delay > lockstep.MaxWalltime {
		f.bad("Delay", c.Delay.String(), "want at most "+lockstep.MaxWalltime.String())
	}
	f.duration("Dwell", c.Dwell)
	f.count("Effort", int64(c.Effort), 0, math.MaxInt32)
	return f.err()
}

// NewSearch returns a Search.
func NewSearch(cfg SearchConfig) (*Search, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	switch {
	case cfg.Delay == 0:
		cfg.Delay = 30 * time.Second
	case cfg.Delay < 0:
		cfg.Delay = 0
	}
	if cfg.Effort == 0 {
		cfg.Effort = 1 << 18
	}
	return &Search{cfg: cfg}, nil
}

// Append appends where each job is to run to dst, by ID. Nodes are the GPUs of each node,
// in the order of preference. No node is given more than it has, and of jobs that span
// nodes at most one is on each, besides those that must not be moved. What is given wrong is reported and nothing appended.
func (s *Search) Append(dst []Placed, nodes []int, jobs []Candidate) ([]Placed, error) {
	if err := checkSearch(nodes, jobs); err != nil {
		return dst, err
	}
	s.run(nodes, jobs)
	for i := range s.jobs {
		j := &s.jobs[i]
		p := Placed{ID: j.job.ID, Moved: j.heldN > 0 && !slices.Equal(j.held, j.cur), Speedup: j.counted(j.cur)}
		if j.n > 0 {
			p.Spots = slices.Clone(j.cur)
		}
		dst = append(dst, p)
		j.job = nil // it is the caller's
	}
	return dst, nil
}

// run searches.
func (s *Search) run(nodes []int, jobs []Candidate) {
	rng := rand.New(rand.NewPCG(s.cfg.Seed, uint64(len(jobs))))
	s.start(nodes, jobs, rng)
	s.fill(s.turns)
	for s.improve(); s.rebuild(rng); {
		s.improve()
	}
}

// start puts every job where it runs, as far as there is room.
func (s *Search) start(nodes []int, jobs []Candidate, rng *rand.Rand) {
	s.lay(nodes)
	s.tried = 0
	s.jobs = slices.Grow(s.jobs[:0], len(jobs))[:len(jobs)]
	fair := max(s.total/max(len(jobs), 1), 1)
	if s.total > fair*len(jobs) {
		fair++
	}
	for i := range jobs {
		s.jobs[i].set(&jobs[i], s.total, fair, &s.cfg)
	}
	slices.SortFunc(s.jobs, func(a, b state) int { return cmp.Compare(a.job.ID, b.job.ID) })
	for _, pinned := range []bool{true, false} { // what may not be moved has the first claim
		for i := range s.jobs {
			if j := &s.jobs[i]; j.pinned == pinned && s.stays(j) {
				j.n, j.cur = j.heldN, append(j.cur[:0], j.held...)
				s.take(j.cur)
			}
		}
	}
	s.turns = s.turns[:0]
	for i := range s.jobs {
		j := &s.jobs[i]
		if j.n < j.heldN {
			j.pinned, j.factor = false, 1 // its nodes or its count are gone: it is restarted whatever is decided
		}
		j.cost = j.costOn(j.cur)
		s.turns = append(s.turns, i)
	}
	rng.Shuffle(len(s.turns), func(a, b int) { s.turns[a], s.turns[b] = s.turns[b], s.turns[a] })
}

// stays says whether j starts where it runs. One that may not be moved does so if there is room, also where a part of another
// job that spans nodes is, for that slows it and a move would break its flag. One with a count that it may no longer have does not.
func (s *Search) stays(j *state) bool {
	if j.pinned {
		return s.room(j.held)
	}
	return j.heldN >= j.least && j.heldN <= j.most && s.fits(j.held)
}

// set makes j stand for a candidate that holds nothing yet.
func (j *state) set(c *Candidate, total, fair int, cfg *SearchConfig) {
	held, cur, speed := j.held[:0], j.cur[:0], j.speed[:0]
	*j = state{job: c, held: append(held, c.Held...), cur: cur, speed: speed, factor: 1, base: 1, weight: max(c.Weight, 1)}
	slices.SortFunc(j.held, func(a, b Spot) int { return cmp.Compare(a.Node, b.Node) })
	for _, s := range j.held {
		j.heldN += s.GPUs
	}
	j.least = max(c.Min, 1)
	j.most = min(max(c.Max, j.least), total)
	running := j.heldN > 0
	if !c.Capabilities.Resizable {
		if running {
			j.least = j.heldN
		}
		j.most = j.least
	}
	j.longest = max(j.most, j.heldN)
	if running {
		j.pinned = !c.Capabilities.Preemptible || c.Since < cfg.Dwell
		j.factor = goodput.RestartFactor(c.Age, c.Restarts, cfg.Delay)
	}
	if c.Speed == nil {
		j.base = float64(fair)
	} else if x, ok := c.Speed.Speedup(1, fair); ok && x > 0 && !math.IsInf(x, 1) {
		j.base = x
	}
}

// Figures of the fitness, as integers.
const (
	micro = 1_000_000 // a speed-up of 1
	idle  = 4_000     // what is added to each speed-up, so that a job that waits has a fitness too
	whole = 1e13      // a cost is this over the speed-up
)

// costOn returns what j costs on those spots: the reciprocal of its speed-up, so that the least sum of costs is the
// greatest harmonic mean.
func (j *state) costOn(spots []Spot) int64 {
	return int64(whole) / (j.counted(spots) + idle) * j.weight
}

// counted returns the speed-up that counts for j on those spots. A job that waits has nothing to lose by a start.
func (j *state) counted(spots []Spot) int64 {
	n := 0
	for _, sp := range spots {
		n += sp.GPUs
	}
	v := j.speedOf(len(spots), n)
	if j.heldN > 0 && j.factor < 1 && !slices.Equal(spots, j.held) {
		v = int64(float64(v) * j.factor)
	}
	return v
}

// speedOf returns the speed-up over the fair share, in millionths.
func (j *state) speedOf(nodes, n int) int64 {
	if n == 0 {
		return 0
	}
	if j.job.Speed == nil {
		return quantise(float64(n) / j.base)
	}
	for len(j.speed) < nodes {
		j.speed = append(j.speed, nil)
	}
	row := j.speed[nodes-1]
	if len(row) == 0 {
		row = make([]int64, j.longest+1)
		for i := range row {
			row[i] = -1
		}
		j.speed[nodes-1] = row
	}
	if row[n] < 0 {
		row[n] = 0
		if x, ok := j.job.Speed.Speedup(nodes, n); ok {
			row[n] = quantise(x / j.base)
		}
	}
	return row[n]
}

// quantise returns a speed-up in millionths, from 0 to 2^40; 0 for what is no number.
func quantise(x float64) int64 {
	if !(x > 0) {
		return 0
	}
	return int64(min(math.Round(x*micro), 1<<40))
}
