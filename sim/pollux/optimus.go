package pollux

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/elastic"
)

// Optimus gives GPUs by marginal gain, with the batches of the users: policy/elastic says how many.
type Optimus struct {
	alloc *elastic.Allocator
	sizes map[sized][]elastic.Size
}

// sized is what a job's sizes depend on.
type sized struct {
	app   string
	batch int64
}

// NewOptimus returns the policy, for runs of one Config.
func NewOptimus() *Optimus {
	a, err := elastic.New(elastic.Config{})
	if err != nil {
		panic("pollux: optimus: " + err.Error()) // invariant: the configuration is a constant one
	}
	return &Optimus{alloc: a, sizes: map[sized][]elastic.Size{}}
}

// UserBatch implements UserBatch.
func (*Optimus) UserBatch() {}

// parts is into how many parts a step is cut to tell what is left of a job, since counts of steps are
// between those of two batches.
const parts = 1 << 10

// Decide implements Policy.
func (o *Optimus) Decide(_ time.Duration, c Cluster, jobs []*Active) ([][]Slot, error) {
	asked := make([]elastic.Job, len(jobs))
	for i, a := range jobs {
		sizes, err := o.sizesOf(a, c)
		if err != nil {
			return nil, err
		}
		asked[i] = elastic.Job{ID: key(a), Sizes: sizes, Work: a.stepsLeft(), Capabilities: lockstep.Capabilities{Resizable: true, Preemptible: true}}
	}
	shares, err := o.alloc.Append(nil, c.Nodes*c.GPUsPerNode, asked) // in the order of the workload, as jobs are
	if err != nil {
		return nil, err
	}
	placed := make([][]Slot, len(jobs))
	var starts []int
	for i, a := range jobs {
		if n := shares[i].GPUs; n == count(a.Held) {
			placed[i] = a.Held
		} else if n > 0 {
			starts = append(starts, i)
		}
	}
	room := newRoom(c, placed)
	slices.SortStableFunc(starts, func(x, y int) int { return cmp.Compare(shares[x].GPUs, shares[y].GPUs) })
	for _, i := range starts {
		placed[i] = room.spread(shares[i].GPUs)
	}
	return placed, nil
}

// stepsLeft returns the parts of steps up to the end of the last epoch, by the steps of the job's batch at
// the ends of epochs; one step in the last.
func (a *Active) stepsLeft() int64 {
	last := a.profile.epochs - 1
	if a.epoch >= last {
		return parts
	}
	steps := a.profile.iterations(a.fixed, last) - a.profile.iterations(a.fixed, a.epoch)
	return int64(math.Round(steps * parts))
}

// sizesOf returns how long a step of a's batch takes on each number of GPUs, on as few nodes as hold them.
func (o *Optimus) sizesOf(a *Active, c Cluster) ([]elastic.Size, error) {
	key := sized{a.profile.name, a.fixed}
	if s, ok := o.sizes[key]; ok {
		return s, nil
	}
	var sizes []elastic.Size
	p := a.profile
	for n := 1; n <= min(a.widest(a.fixed), c.Nodes*c.GPUsPerNode); n++ {
		var slots []Slot
		for left := n; left > 0; left -= c.GPUsPerNode {
			slots = append(slots, Slot{Node: len(slots), GPUs: min(left, c.GPUsPerNode)})
		}
		local, passes := split(p, a.fixed, int64(n), true)
		local = min(local, p.largest()/(int64(n)*(passes+1)))
		t, err := a.w.timing(p, slots, local)
		if err != nil {
			return nil, err
		}
		step := t.step + float64((t.step-t.sync)*float64(passes))
		sizes = append(sizes, elastic.Size{GPUs: n, Time: seconds(step)})
	}
	o.sizes[key] = sizes
	return sizes, nil
}
