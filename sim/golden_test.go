package sim_test

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/order"
	"github.com/lockstep-gpu/lockstep/sim"
)

// This file reproduces the Tiresias authors' simulator through Run: whole
// seconds, placement that only counts, free preemption. What makes it exact is
// written down in policy/order's test of the same name. Here the rules are a
// Scheduler of its own, so that what is tested is that Run adds nothing to them.

// counting is a scheduler that counts devices and gives all of them out anew at
// every event.
type counting struct {
	queue      *order.Queue
	gpus       int64
	strict     bool // a job that does not fit ends the pass
	preemptive bool
	quirk      bool // wakes itself as the authors' dlas-gpu does

	jobs     map[lockstep.JobID]*counted
	active   []*counted // by submit
	stale    bool
	leaving  int
	starting []lockstep.Action
	wake     time.Time
}

type counted struct {
	id      lockstep.JobID
	gang    *lockstep.Gang
	gpus    int64
	running bool
}

func (c *counting) Apply(e lockstep.Event) error {
	switch e.Kind {
	case lockstep.EventSubmit:
		j := &counted{id: e.Gang.ID, gang: e.Gang, gpus: int64(e.Gang.Roles[0].Demand.GPUs)}
		c.jobs[j.id], c.stale = j, true
		c.active = append(c.active, j)
		return c.queue.Submit(e.Time, order.JobOf(e.Gang))
	case lockstep.EventFinish:
		j := c.jobs[e.Job]
		c.active = slices.Delete(c.active, slices.Index(c.active, j), slices.Index(c.active, j)+1)
		c.stale = true
		return c.queue.Finish(e.Time, e.Job)
	case lockstep.EventEvicted:
		c.leaving--
	}
	return nil
}

func (c *counting) NextWake(now time.Time) (time.Time, bool) {
	if c.leaving == 0 && len(c.starting) > 0 {
		return now, true
	}
	return c.wake, !c.wake.IsZero()
}

func (c *counting) Step(now time.Time) ([]lockstep.Action, error) {
	if c.stale || now.Equal(c.wake) {
		c.stale, c.wake = false, time.Time{}
		out, err := c.pass(now)
		if err != nil || len(out) > 0 {
			return out, err // those who start wait until the others have gone
		}
	}
	if c.leaving > 0 {
		return nil, nil
	}
	out := c.starting
	c.starting = nil
	return out, nil
}

// pass gives out all devices, and returns who must go.
func (c *counting) pass(now time.Time) (out []lockstep.Action, err error) {
	free := c.gpus
	for _, j := range c.active {
		if j.running && c.preemptive {
			if err := c.queue.Due(now, j.id); err != nil {
				return nil, err
			}
		} else if j.running {
			free -= j.gpus
		}
	}
	var stopped []*counted
	c.queue.Begin(now)
	for id, ok := c.queue.Next(); ok; id, ok = c.queue.Next() {
		j := c.jobs[id]
		switch {
		case j.gpus <= free && j.running:
			free -= j.gpus
			c.queue.Outcome(id, lockstep.Kept)
		case j.gpus <= free:
			free -= j.gpus
			c.queue.Outcome(id, lockstep.Granted)
			if err := c.queue.Start(now, id); err != nil {
				return nil, err
			}
			j.running = true
			c.starting = append(c.starting, lockstep.Action{Kind: lockstep.ActionStart, Time: now, Job: id, Plan: &lockstep.Plan{Job: id, Gang: j.gang, Members: []lockstep.Member{{}}}})
		default:
			c.queue.Outcome(id, lockstep.Blocked)
			if j.running {
				stopped = append(stopped, j)
			}
		}
		if c.strict && !j.running {
			break
		}
	}
	for _, j := range stopped {
		if err := c.queue.Stop(now, j.id); err != nil {
			return nil, err
		}
		j.running = false
		c.leaving++
		out = append(out, lockstep.Action{Kind: lockstep.ActionEvict, Time: now, Job: j.id})
	}
	c.sleep(now)
	return out, nil
}

// sleep sets when a job may sink, as the authors reckon it.
func (c *counting) sleep(now time.Time) {
	limits := []int64{3250, 7200}
	for _, j := range c.active {
		if !c.quirk || !j.running {
			continue
		}
		view, _ := c.queue.Job(j.id)
		if view.Level() >= len(limits) {
			continue
		}
		if d := (limits[view.Level()] - int64(view.Executed()/time.Second)) / j.gpus; d > 0 {
			if at := now.Add(time.Duration(d) * time.Second); c.wake.IsZero() || at.Before(c.wake) {
				c.wake = at
			}
		}
	}
}

func TestGoldenRunsOfTheTiresiasSimulator(t *testing.T) {
	sets := []struct {
		dir, input, golden string
		gpus               int64
		skip               string
	}{
		{"tiresias-nsdi19", "60_job.csv", "golden-60job-8gpu", 8, ""},
		{"muri-sigcomm22", filepath.Join("golden-trace1-64gpu", "input.csv"), "golden-trace1-64gpu", 64, "sjf"},
	}
	policies := []struct {
		name  string
		order order.Order
		counting
	}{
		{"fifo", order.FIFO{}, counting{strict: true}},
		{"fjf", order.FIFO{}, counting{}},
		{"sjf", order.Fewest{}, counting{preemptive: true}},
		{"shortest", order.SRTF{}, counting{preemptive: true}},
		{"shortest-gpu", order.SRSF{}, counting{preemptive: true}},
		{"dlas-gpu", order.LAS{}, counting{preemptive: true, quirk: true}},
	}
	for _, set := range sets {
		dir := shared(t, set.dir)
		for _, p := range policies {
			if p.name == set.skip {
				continue
			}
			t.Run(set.dir+"/"+p.name, func(t *testing.T) {
				q, err := order.New(order.Config{Order: p.order})
				require.NoError(t, err)
				s := p.counting
				s.queue, s.gpus, s.jobs = q, set.gpus, make(map[lockstep.JobID]*counted)
				r, err := sim.Run(sim.Config{Capacity: lockstep.WholeGPU.Mul(set.gpus), Tick: time.Second}, tiresiasJobs(t, filepath.Join(dir, set.input)), &s)
				require.NoError(t, err)
				require.Equal(t, r.Held, r.Service)
				compareGolden(t, r, filepath.Join(dir, set.golden, p.name+".csv"))
			})
		}
	}
}

// tiresiasJobs reads an input of the simulator; IDs are padded so that they sort as numbers.
func tiresiasJobs(t *testing.T, path string) []sim.Job {
	var jobs []sim.Job
	for _, row := range rowsOf(t, path) {
		j := sim.Job{Submit: seconds(t, row["submit_time"]), Duration: seconds(t, row["duration"])}
		gpus, err := strconv.Atoi(row["num_gpu"])
		require.NoError(t, err)
		j.Gang = &lockstep.Gang{
			ID: paddedID(row["job_id"]), Walltime: j.Duration, Capabilities: lockstep.Capabilities{Preemptible: true},
			Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: gpus}}},
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func compareGolden(t *testing.T, r *sim.Result, path string) {
	byID := make(map[lockstep.JobID]*sim.Record)
	for i := range r.Records {
		byID[r.Records[i].Job] = &r.Records[i]
	}
	rows := rowsOf(t, path)
	require.Len(t, rows, len(r.Records))
	for _, row := range rows {
		rec := byID[paddedID(row["job_id"])]
		want := [3]string{row["start_time"], row["end_time"], row["preempt"]}
		got := [3]string{whole(rec.Start), whole(rec.End), strconv.Itoa(rec.Preemptions)}
		require.Equal(t, want, got, "job %s: start, end, preemptions", rec.Job)
	}
}

func paddedID(id string) lockstep.JobID { return lockstep.JobID(fmt.Sprintf("%06s", id)) }

func whole(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

func seconds(t *testing.T, s string) time.Duration {
	v, err := strconv.ParseInt(s, 10, 64)
	require.NoError(t, err)
	return time.Duration(v) * time.Second
}

// rowsOf reads a CSV file as maps from its header.
func rowsOf(t *testing.T, path string) []map[string]string {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	var out []map[string]string
	for _, r := range rows[1:] {
		m := make(map[string]string)
		for i, name := range rows[0] {
			m[name] = r[i]
		}
		out = append(out, m)
	}
	return out
}
