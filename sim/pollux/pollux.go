package pollux

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/elastic"
)

// Pollux chooses counts, nodes and batches for the greatest goodput, by what jobs have learned of themselves:
// policy/elastic searches.
type Pollux struct {
	search *elastic.Search
}

// NewPollux returns the policy.
func NewPollux(cfg elastic.SearchConfig) (*Pollux, error) {
	s, err := elastic.NewSearch(cfg)
	if err != nil {
		return nil, err
	}
	return &Pollux{search: s}, nil
}

// widest is the most GPUs that the authors let a job have, since their simulator has no figures for more.
const widest = 64

// Decide implements Policy.
func (p *Pollux) Decide(now time.Duration, c Cluster, jobs []*Active) ([][]Slot, error) {
	nodes := make([]int, c.Nodes)
	for i := range nodes {
		nodes[i] = c.GPUsPerNode
	}
	asked := make([]elastic.Candidate, len(jobs))
	for i, a := range jobs {
		asked[i] = elastic.Candidate{
			ID: key(a), Max: min(max(2*a.most, 1), widest, a.widest(a.profile.largest())), Age: now - a.Job.Submit, Restarts: a.Restarts(),
			Capabilities: lockstep.Capabilities{Resizable: true, Preemptible: true},
		}
		if m := a.Model(); m != nil {
			asked[i].Speed = m
		}
		for _, s := range a.Held {
			asked[i].Held = append(asked[i].Held, elastic.Spot(s))
		}
	}
	found, err := p.search.Append(nil, nodes, asked) // in the order of the workload, as jobs are
	if err != nil {
		return nil, err
	}
	placed := make([][]Slot, len(jobs))
	for i := range found {
		for _, s := range found[i].Spots {
			placed[i] = append(placed[i], Slot(s))
		}
		if !found[i].Moved && jobs[i].Held != nil {
			placed[i] = slices.Clone(jobs[i].Held)
		}
	}
	return placed, nil
}
