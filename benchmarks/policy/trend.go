package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/policy/hetero"
)

// job is one of Shockwave's.
type job struct {
	id       lockstep.JobID
	gpus     int
	arrival  float64 // seconds
	duration float64 // seconds of running
	left     float64
	end      float64
}

// shockwave reads the trace; nil where it is absent.
func (p *program) shockwave() ([]job, error) {
	path := filepath.Join(p.traces, "shockwave-nsdi23", "120_0.2_5_100_40_25.trace")
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		p.Note("Shockwave's trace is absent at " + path + ": the trend is left out")
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	var jobs []job
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 12 {
			return nil, fmt.Errorf("%s: line %d: %d fields", path, len(jobs)+1, len(fields))
		}
		gpus, err1 := strconv.Atoi(fields[6])
		duration, err2 := strconv.ParseFloat(fields[10], 64)
		arrival, err3 := strconv.ParseFloat(fields[11], 64)
		for _, err := range []error{err1, err2, err3} {
			if err != nil {
				return nil, fmt.Errorf("%s: line %d: %w", path, len(jobs)+1, err)
			}
		}
		jobs = append(jobs, job{id: lockstep.JobID(fmt.Sprintf("j%03d", len(jobs))), gpus: gpus, arrival: arrival, duration: duration, left: duration})
	}
	return jobs, nil
}

// The world of the trend, as in the published run.
const (
	trendDevices = 32
	trendRound   = 120. // seconds
)

// trend replays the trace under our policies.
func (p *program) trend() error {
	jobs, err := p.shockwave()
	if err != nil || jobs == nil {
		return err
	}
	table := &harness.Table{Head: []string{"policy", "makespan s", "mean JCT s", "published makespan s", "published mean JCT s"}}
	for _, policy := range []struct {
		name              string
		solve             func(hetero.Problem) (*hetero.Allocation, error)
		makespan, meanJCT float64 // "simulation" rows of the authors' results for 32 GPUs
	}{
		{"max-min (water-filling)", hetero.WaterFill, 33208, 11274},
		{"finish time", hetero.FinishTime, 31929, 11302},
		{"makespan", hetero.Makespan, 24205, 19807},
		{"equal split (fast path)", hetero.EqualSplit, 0, 0},
	} {
		makespan, mean, err := replay(slices.Clone(jobs), policy.solve)
		if err != nil {
			return fmt.Errorf("%s: %w", policy.name, err)
		}
		row := []string{policy.name, harness.Number(makespan), harness.Number(mean), "-", "-"}
		if policy.makespan > 0 {
			row[3], row[4] = harness.Number(policy.makespan), harness.Number(policy.meanJCT)
		}
		table.Add(row...)
		p.Result("trend/"+strings.Fields(policy.name)[0]+"/makespan", makespan, "s")
		p.Result("trend/"+strings.Fields(policy.name)[0]+"/mean-jct", mean, "s")
	}
	p.Table(table)
	p.Note("the published runs change batch sizes while jobs run, as Accordion and GNS do; ours keep the trace's durations. Directions compare, figures do not.")
	return nil
}

// replay runs jobs in rounds. Shares are worked out anew when a job comes or goes.
func replay(jobs []job, solve func(hetero.Problem) (*hetero.Allocation, error)) (makespan, mean float64, err error) {
	classes := []hetero.Class{{ID: "v100", Devices: trendDevices}}
	r, err := hetero.NewRounds(hetero.RoundsConfig{Classes: classes})
	if err != nil {
		return 0, 0, err
	}
	at := make(map[lockstep.JobID]*job, len(jobs))
	for i := range jobs {
		at[jobs[i].id] = &jobs[i]
	}
	last, now, done := "", 0.0, 0
	for ; done < len(jobs); now += trendRound {
		var active []*job
		var names strings.Builder
		for i := range jobs {
			if j := &jobs[i]; j.arrival <= now && j.left > 0 {
				active = append(active, j)
				names.WriteString(string(j.id))
			}
		}
		if names.String() != last {
			last = names.String()
			if err := share(r, classes, active, now, solve); err != nil {
				return 0, 0, err
			}
		}
		for _, g := range r.Next() {
			j := at[g.Job]
			ran := min(j.left, trendRound)
			if j.left -= ran; j.left <= 0 {
				j.end = now + ran
				makespan = max(makespan, j.end)
				mean += (j.end - j.arrival) / float64(len(jobs))
				done++
			}
		}
	}
	return makespan, mean, nil
}

// share asks a policy for the shares of active jobs.
func share(r *hetero.Rounds, classes []hetero.Class, active []*job, now float64, solve func(hetero.Problem) (*hetero.Allocation, error)) error {
	problem := hetero.Problem{Classes: classes}
	for _, j := range active {
		problem.Groups = append(problem.Groups, hetero.Group{
			ID: hetero.GroupID(j.id), GPUs: j.gpus, Rates: []hetero.Rate{{Class: "v100", PerSecond: 1}},
			Remaining: j.left, Elapsed: time.Duration((now - j.arrival) * 1e9), IsolatedElapsed: time.Duration((j.duration - j.left) * 1e9),
		})
	}
	a, err := solve(problem)
	if err != nil {
		return err
	}
	var targets []hetero.Target
	for i, j := range active {
		targets = append(targets, hetero.Target{Job: j.id, GPUs: j.gpus, Shares: a.Shares[i], Able: []bool{true}})
	}
	return r.Set(targets)
}
