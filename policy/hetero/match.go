package hetero

import (
	"errors"
	"math/bits"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/assign"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// MachineID names a machine of Match.
type MachineID string

// Machine is what runs one job after the other: a device, or as many as one job takes.
type Machine struct {
	ID     MachineID     // ID is unique.
	FreeIn time.Duration // FreeIn is how long it still runs what it runs now; 0 means that it is free.
}

// Pending is a job that waits for a machine.
type Pending struct {
	ID    lockstep.JobID  // ID is unique.
	Takes []time.Duration // Takes is how long it runs on each machine, in the order of machines; NeverRuns where it cannot.
}

// NeverRuns stands for a machine that a job cannot run on.
const NeverRuns time.Duration = -1

// Turn is a job's place on a machine.
type Turn struct {
	Job     lockstep.JobID // Job is the one.
	Machine MachineID      // Machine is where it runs.
	Place   int            // Place is 1 for the first to run there, and so on.
	Start   time.Duration  // Start is how long from now it starts.
	End     time.Duration  // End is how long from now it ends.
}

// Match puts jobs on machines, in turns, so that the sum of the times until they
// end is as small as it can be. It returns the turns by machine, place and job, and
// those that can run nowhere. A job at the k-th place from the last delays k jobs,
// itself among them, so it costs k times what it takes: an assignment of jobs to
// places (Le et al., "AlloX", EuroSys 2020, section 4, after Horn, 1973). depth is how
// many places a machine has; 0 means as many as there are jobs, which is exact. With fewer, as many jobs as
// there are places get one. It costs O(jobs² × machines × depth) time, and memory for jobs × machines × depth
// costs, of which there may be 2^26.
func Match(machines []Machine, jobs []Pending, depth int) (turns []Turn, left []lockstep.JobID, err error) {
	if err := checkMatch(machines, jobs, depth); err != nil {
		return nil, nil, err
	}
	if depth == 0 || depth > len(jobs) {
		depth = len(jobs) // more places than jobs are of no use
	}
	if pairs := int64(len(jobs)) * int64(len(machines)) * int64(depth); pairs > maxPairs {
		return nil, nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "hetero: match", Field: "depth", Value: strconv.Itoa(depth), Reason: "jobs × machines × depth is more than 2^26"}
	}
	ms := sorted(len(machines), func(i int) string { return string(machines[i].ID) })
	js := sorted(len(jobs), func(i int) string { return string(jobs[i].ID) })
	p := assign.Problem{Rows: len(jobs), Cols: len(machines) * depth}
	for _, j := range js {
		// Places from the last on come first, so that of equal ones the last is taken.
		for k := range depth {
			for _, m := range ms {
				cost := int64(assign.Forbidden)
				if takes := jobs[j].Takes[m]; takes >= 0 {
					cost = delayed(machines[m].FreeIn, takes, k+1)
				}
				p.Cost = append(p.Cost, cost)
			}
		}
	}
	coarsen(&p)
	s, err := assign.Solve(p)
	if err != nil {
		return nil, nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "hetero: match", Field: "Takes", Reason: "are so long that sums overflow"}
	}
	for i, col := range s.ColOf {
		if col < 0 {
			left = append(left, jobs[js[i]].ID)
		}
	}
	for mi, m := range ms {
		turns = append(turns, queue(machines[m], m, jobs, js, s.RowOf, mi, len(ms), depth)...)
	}
	return turns, left, nil
}

// delayed is what a job costs at the k-th place from the last, held where it would
// overflow: k delays of centuries.
func delayed(freeIn, takes time.Duration, k int) int64 {
	hi, lo := bits.Mul64(uint64(takes), uint64(k))
	if hi != 0 || lo > 1<<61 {
		lo = 1 << 61
	}
	return int64(freeIn) + int64(lo)
}

// coarsen halves all costs until sums of them fit. What is lost is a part of about
// 2n²/2^60 of the largest, for n places.
func coarsen(p *assign.Problem) {
	most, n := int64(0), float64(max(p.Rows, p.Cols))
	for _, c := range p.Cost {
		if c != assign.Forbidden {
			most = max(most, c)
		}
	}
	shift := 0
	for float64(most>>shift)*2*n*n >= 1<<60 {
		shift++
	}
	for i, c := range p.Cost {
		if c != assign.Forbidden {
			p.Cost[i] = c >> shift
		}
	}
}

// queue lists the turns of one machine: places from the last on, turned around.
func queue(machine Machine, m int, jobs []Pending, js, rowOf []int, mi, machines, depth int) []Turn {
	var turns []Turn
	at := machine.FreeIn
	for k := depth - 1; k >= 0; k-- {
		row := rowOf[k*machines+mi]
		if row < 0 {
			continue
		}
		j := &jobs[js[row]]
		turns = append(turns, Turn{Job: j.ID, Machine: machine.ID, Place: len(turns) + 1, Start: at, End: at + j.Takes[m]})
		at += j.Takes[m]
	}
	return turns
}

// Bounds of a Match.
const (
	maxMatch = 1 << 12 // jobs, machines and places
	maxPairs = 1 << 26 // of jobs and places on machines: two copies of their costs are a GiB
)

func checkMatch(machines []Machine, jobs []Pending, depth int) error {
	f := faults{op: "hetero: match"}
	if len(machines) > maxMatch || len(jobs) > maxMatch || depth < 0 || depth > maxMatch {
		f.bad("depth", strconv.Itoa(depth), "want 0 to 4096 places, and at most as many jobs and machines")
		return errors.Join(f.errs...)
	}
	seen := map[string]bool{}
	for i, m := range machines {
		field := "machines[" + strconv.Itoa(i) + "]"
		f.name(field+".ID", string(m.ID), lockstep.NodeID(m.ID).Validate())
		f.duration(field+".FreeIn", m.FreeIn)
		if seen[string(m.ID)] {
			f.duplicate(field+".ID", errtext.Quote(m.ID))
		}
		seen[string(m.ID)] = true
	}
	clear(seen)
	for i, j := range jobs {
		field := "jobs[" + strconv.Itoa(i) + "]"
		f.name(field+".ID", string(j.ID), j.ID.Validate())
		if seen[string(j.ID)] {
			f.duplicate(field+".ID", errtext.Quote(j.ID))
		}
		seen[string(j.ID)] = true
		if len(j.Takes) != len(machines) {
			f.bad(field+".Takes", strconv.Itoa(len(j.Takes))+" times", "want one for each machine")
		}
		for k, d := range j.Takes {
			if d != NeverRuns {
				f.duration(field+".Takes["+strconv.Itoa(k)+"]", d)
			}
		}
	}
	return errors.Join(f.errs...)
}
