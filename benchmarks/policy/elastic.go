package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/deadline"
	"github.com/lockstep-gpu/lockstep/policy/elastic"
)

// bears is what a job bears that may be resized at a cost.
var bears = lockstep.Capabilities{Resizable: true, Preemptible: true, Restore: 30 * time.Second}

// elasticAllocate gives all devices to all jobs, half of which run.
func elasticAllocate(p *program) (func() error, error) {
	a, err := elastic.New(elastic.Config{Dwell: time.Minute, Horizon: time.Hour})
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(p.Seed, 8))
	kinds := make([][]elastic.Size, 6)
	for k := range kinds {
		for n := 1; n <= 64; n++ {
			kinds[k] = append(kinds[k], elastic.Size{GPUs: n, Time: time.Duration(1e9/float64(n) + 1e7*float64(k+1)*math.Log2(float64(n)+1))})
		}
	}
	jobs := make([]elastic.Job, pending)
	for i := range jobs {
		jobs[i] = elastic.Job{ID: lockstep.JobID(fmt.Sprintf("j%05d", i)), Sizes: kinds[rng.IntN(len(kinds))], Work: 1000 + rng.Int64N(10_000), Held: i % 2, Since: time.Hour, Capabilities: bears}
	}
	var shares []elastic.Share
	return func() error {
		shares, err = a.Append(shares[:0], devices, jobs)
		return err
	}, nil
}

// power is how fast a job is: GPUs to the power of it, and less on several nodes.
type power float64

func (w power) Speedup(nodes, gpus int) (float64, bool) {
	x := math.Pow(float64(gpus), float64(w))
	if nodes > 1 {
		x *= 0.8
	}
	return x, nodes > 0 && gpus >= nodes
}

// elasticSearch looks for nodes of eight devices for all jobs, none of which run yet.
func elasticSearch(p *program) (func() error, error) {
	s, err := elastic.NewSearch(elastic.SearchConfig{Seed: p.Seed})
	if err != nil {
		return nil, err
	}
	nodes := make([]int, devices/8)
	for i := range nodes {
		nodes[i] = 8
	}
	jobs := make([]elastic.Candidate, pending)
	for i := range jobs {
		jobs[i] = elastic.Candidate{ID: lockstep.JobID(fmt.Sprintf("j%05d", i)), Speed: power(.5 + float64(i%5)/10), Max: 16, Age: time.Hour, Capabilities: bears}
	}
	var placed []elastic.Placed
	return func() error {
		placed, err = s.Append(placed[:0], nodes, jobs)
		return err
	}, nil
}

// promised is an Elastic with about as many admitted jobs as are pending and devices for more, and who comes next.
func promised(p *program) (*deadline.Elastic, func() error, error) {
	e, err := deadline.NewElastic(devices)
	if err != nil {
		return nil, nil, err
	}
	rng := rand.New(rand.NewPCG(p.Seed, 7))
	n := 0
	admit := func() error {
		n++
		seconds := 3600 * (1 + rng.Int64N(20))
		_, err := e.Admit(midnight, deadline.ElasticJob{
			ID: lockstep.JobID(fmt.Sprintf("j%05d", n)), Left: 100 * seconds, Deadline: midnight.Add(time.Duration(seconds) * time.Second),
			Points: []deadline.Point{{GPUs: 1, Rate: 60}, {GPUs: 2, Rate: 110}, {GPUs: 4, Rate: 200}, {GPUs: 8, Rate: 340}},
		})
		return err
	}
	for e.Len() < pending-100 && n < 2*pending {
		if err := admit(); err != nil {
			return nil, nil, err
		}
	}
	return e, admit, nil
}

// elasticAdmit is an elastic job that comes beside all others.
func elasticAdmit(p *program) (func() error, error) {
	_, admit, err := promised(p)
	return admit, err
}

// elasticScarce is the same where devices barely do for those who were admitted: others have to move, or it is refused.
func elasticScarce(p *program) (func() error, error) {
	e, admit, err := scarce(p)
	if err != nil {
		return nil, err
	}
	if late := e.AppendAtRisk(nil); len(late) > 0 {
		return nil, fmt.Errorf("%d jobs are at risk", len(late))
	}
	return admit, nil
}

// elasticReplan is a decision after a job has told what it did, where devices are scarce: all plans are made anew.
func elasticReplan(p *program) (func() error, error) {
	e, _, err := scarce(p)
	if err != nil {
		return nil, err
	}
	left := int64(100_000)
	var shares []deadline.Share
	return func() error {
		left--
		if err := e.Ran(midnight, "j00001", left); err != nil {
			return err
		}
		shares, _, _, _, err = e.AppendShares(shares[:0], midnight)
		return err
	}, nil
}

// scarce is an Elastic with as many admitted jobs as are pending, which need more devices than there are unless some of them
// wait, and who comes next.
func scarce(p *program) (*deadline.Elastic, func() error, error) {
	e, err := deadline.NewElastic(8 * devices)
	if err != nil {
		return nil, nil, err
	}
	rng := rand.New(rand.NewPCG(p.Seed, 9))
	n := 0
	admit := func() error {
		n++
		seconds := 3600 + rng.Int64N(20*3600)
		_, err := e.Admit(midnight, deadline.ElasticJob{
			ID: lockstep.JobID(fmt.Sprintf("j%05d", n)), Left: seconds * (40 + rng.Int64N(90)), Deadline: midnight.Add(time.Duration(seconds) * time.Second),
			Points: []deadline.Point{{GPUs: 1, Rate: 60}, {GPUs: 2, Rate: 110}, {GPUs: 4, Rate: 200}, {GPUs: 8, Rate: 340}},
		})
		return err
	}
	for e.Len() < pending {
		if err := admit(); err != nil {
			return nil, nil, err
		}
	}
	return e, admit, e.SetGPUs(midnight, devices)
}
