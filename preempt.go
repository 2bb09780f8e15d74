package lockstep

// Candidate is a running gang that may have to make room for another.
type Candidate struct {
	Job  JobID        `json:"job"`            // Job is which.
	Cost EvictionCost `json:"cost,omitzero"`  // Cost is what stopping it throws away.
	Tier int32        `json:"tier,omitempty"` // Tier orders candidates before cost: one of a higher tier is never taken where those of lower tiers suffice.

	// Min are the least members of each role with which it can go on, as a
	// shrink, at the cost Shrink; nil means that it goes whole or not at all.
	Min    []int        `json:"min,omitempty"`
	Shrink EvictionCost `json:"shrink,omitzero"` // Shrink is what taking some of its members throws away, however many.

	Limits []int32 `json:"limits,omitempty"` // Limits are the entries of Candidates.Limits that what it gives up counts against.
}

// Candidates say from whom room may be taken for one gang, and how much. Whoever
// may not be touched, such as jobs of higher priority or in a queue that is not
// reclaimable, is not among them.
type Candidates struct {
	Jobs   []Candidate `json:"jobs,omitempty"`   // Jobs are the candidates, in any order; each job once.
	Limits []Resources `json:"limits,omitempty"` // Limits are how much may be taken at most, by name, from the candidates that name the entry together; a name that is absent is not limited.
	Max    int         `json:"max,omitempty"`    // Max is how many jobs may be touched; 0 means any number.
}

// Preempted is how room can be made for a gang: who has to go, and where the gang
// sits once they have. It is made into memory that the caller may use again.
type Preempted struct {
	Evictions []Eviction `json:"evictions,omitempty"` // Evictions are by job; those with Ranks shrink.
	Plan      Plan       `json:"plan,omitzero"`       // Plan is the room; it may be applied once what Evictions name was released.
	Exact     bool       `json:"exact,omitempty"`     // Exact says that the search was complete: nobody cheaper would do.
}

// Reset empties p and keeps its memory.
func (p *Preempted) Reset() {
	p.Evictions = p.Evictions[:0]
	p.Plan.Reset()
	p.Exact = false
}
