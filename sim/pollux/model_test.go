package pollux_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/elastic"
	"github.com/lockstep-gpu/lockstep/sim/pollux"
)

// toy is an application whose step takes 1 s on one GPU with 8 samples, 0.6 s on two of one node with 4 each, and
// whose gradients make a batch twice as large worth a third more. Its two epochs take 600 steps.
func toy() fstest.MapFS {
	file := func(lines ...string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(strings.Join(lines, "\n") + "\n")}
	}
	return fstest.MapFS{
		"toy/placements.csv": file("placement,local_bsz,step_time,sync_time",
			"1,4,0.5,0", "1,8,1,0", "2,4,0.6,0.1", "2,8,1,0.1", "11,4,0.8,0.3", "11,8,1.3,0.3", "4,4,0.7,0.2", "4,8,1.2,0.2"),
		"toy/scalability.csv":   file("num_nodes,num_replicas,local_bsz,step_time,sync_time", "6,6,4,1,0.5", "6,6,8,1.5,0.5"),
		"toy/validation-8.csv":  file("progress,iteration,metric,grad_sqr,grad_var", "300,300,.5,1,1", "600,600,.6,1,1"),
		"toy/validation-16.csv": file("progress,iteration,metric,grad_sqr,grad_var", "302,200,.5,1,1", "604,400,.6,1,1"),
	}
}

func toyConfig(t testing.TB) pollux.Config {
	t.Helper()
	p, err := pollux.ReadProfile(toy(), "toy")
	require.NoError(t, err)
	require.Equal(t, "toy", p.Name())
	return pollux.Config{Profiles: []*pollux.Profile{p}, Nodes: 2}
}

func toyJobs(n int) (jobs []pollux.Job) {
	for i := range n {
		jobs = append(jobs, pollux.Job{ID: lockstep.JobID(fmt.Sprint("j", i)), App: "toy", GPUs: 1, Batch: 8, Submit: time.Duration(i) * 10 * time.Second})
	}
	return jobs
}

// One job on one GPU: seen at 60 s, stalled for 30 s, then 600 s of steps of one second.
func TestOneJobByHand(t *testing.T) {
	r, err := pollux.Run(toyConfig(t), toyJobs(1), pollux.NewTiresias())
	require.NoError(t, err)
	require.Equal(t, []pollux.Record{{Job: "j0", End: 690 * time.Second, Service: 630}}, r.Records)
	require.InDelta(t, 690, r.Mean(), 0)
}

// A batch of 16 on two GPUs of one node takes a second, and brings (1+1)/(1/2+1) = 4/3 steps: 600 steps are 450 s.
func TestABatchIsWorthWhatItsGradientsSay(t *testing.T) {
	jobs := toyJobs(1)
	jobs[0].GPUs, jobs[0].Batch = 2, 16
	r, err := pollux.Run(toyConfig(t), jobs, pollux.NewTiresias())
	require.NoError(t, err)
	require.Equal(t, 90*time.Second+450*time.Second, r.Records[0].End)
}

// Two jobs that span both nodes slow each other down, if they are said to.
func TestInterferenceSlowsWhatSharesANode(t *testing.T) {
	jobs := toyJobs(2)
	jobs[1].Submit = 0
	ends := map[float64]time.Duration{}
	for _, slow := range []float64{0, .5} {
		cfg := toyConfig(t)
		cfg.Interference = slow
		r, err := pollux.Run(cfg, jobs, crossing{})
		require.NoError(t, err)
		ends[slow] = r.Records[0].End
	}
	require.Greater(t, ends[.5], ends[0]+300*time.Second)
}

// crossing puts every job across both nodes.
type crossing struct{}

func (crossing) Decide(_ time.Duration, _ pollux.Cluster, jobs []*pollux.Active) ([][]pollux.Slot, error) {
	out := make([][]pollux.Slot, len(jobs))
	for i := range jobs {
		out[i] = []pollux.Slot{{Node: 0, GPUs: 1}, {Node: 1, GPUs: 1}}
	}
	return out, nil
}

// A second job waits for the first, and none is given more than there is.
func TestTiresiasAndOptimusOnACrowdedNode(t *testing.T) {
	cfg := toyConfig(t)
	cfg.Nodes, cfg.GPUsPerNode = 1, 1
	for _, p := range []pollux.Policy{pollux.NewTiresias(), pollux.NewOptimus()} {
		r, err := pollux.Run(cfg, toyJobs(2), p)
		require.NoError(t, err)
		require.Equal(t, 690*time.Second, r.Records[0].End)
		require.Equal(t, 720*time.Second+630*time.Second, r.Records[1].End)
		require.Zero(t, r.Records[1].Restarts)
	}
}

// Under Pollux jobs choose their batch and grow, at most to twice what they have seen at a time.
func TestPolluxGrowsByDoubling(t *testing.T) {
	for seed := range uint64(3) {
		var widths []int
		cfg := toyConfig(t)
		cfg.Observe = func(c pollux.Change) {
			n := 0
			for _, s := range c.Slots {
				n += s.GPUs
			}
			widths = append(widths, n)
		}
		p, err := pollux.NewPollux(elastic.SearchConfig{Seed: seed})
		require.NoError(t, err)
		r, err := pollux.Run(cfg, toyJobs(1), p)
		require.NoError(t, err)
		require.Equal(t, 1, widths[0])
		most := 1
		for _, n := range widths {
			require.LessOrEqual(t, n, 2*most)
			most = max(most, n)
		}
		require.Greater(t, most, 1)
		require.Less(t, r.Records[0].End, 690*time.Second)
	}
}

func TestRunsAreDeterministic(t *testing.T) {
	for range 3 {
		p, err := pollux.NewPollux(elastic.SearchConfig{Seed: 7})
		require.NoError(t, err)
		a, err := pollux.Run(toyConfig(t), toyJobs(12), p)
		require.NoError(t, err)
		p, err = pollux.NewPollux(elastic.SearchConfig{Seed: 7})
		require.NoError(t, err)
		b, err := pollux.Run(toyConfig(t), toyJobs(12), p)
		require.NoError(t, err)
		require.Equal(t, a, b)
	}
}

// fixed decides the same for every job, or nothing.
type fixed struct {
	slots []pollux.Slot
	extra int
	err   error
}

func (f fixed) Decide(_ time.Duration, _ pollux.Cluster, jobs []*pollux.Active) ([][]pollux.Slot, error) {
	out := make([][]pollux.Slot, len(jobs)+f.extra)
	for i := range out {
		out[i] = f.slots
	}
	return out, f.err
}

func (fixed) UserBatch() {}

func TestDecisionsThatDoNotFitAreRefused(t *testing.T) {
	for name, p := range map[string]fixed{
		"too many":     {slots: []pollux.Slot{{Node: 0, GPUs: 5}}},
		"none":         {slots: []pollux.Slot{{Node: 0, GPUs: 0}}},
		"no such node": {slots: []pollux.Slot{{Node: 2, GPUs: 1}}},
		"negative":     {slots: []pollux.Slot{{Node: -1, GPUs: 1}}},
		"twice":        {slots: []pollux.Slot{{Node: 0, GPUs: 1}, {Node: 0, GPUs: 1}}},
		"a job more":   {extra: 1},
		"never":        {},
		"too wide":     {slots: []pollux.Slot{{Node: 0, GPUs: 4}, {Node: 1, GPUs: 4}}}, // not measured
	} {
		_, err := pollux.Run(toyConfig(t), toyJobs(1), p)
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
	}
	broken := errors.New("broken")
	_, err := pollux.Run(toyConfig(t), toyJobs(1), fixed{err: broken})
	require.ErrorIs(t, err, broken)
}

func TestBadInputsAreNamed(t *testing.T) {
	good := toyConfig(t)
	for field, edit := range map[string]func(*pollux.Config){
		"Nodes":        func(c *pollux.Config) { c.Nodes = -1 },
		"GPUsPerNode":  func(c *pollux.Config) { c.GPUsPerNode = 10 },
		"Tick":         func(c *pollux.Config) { c.Tick = time.Millisecond },
		"Restart":      func(c *pollux.Config) { c.Restart = -time.Second },
		"Interference": func(c *pollux.Config) { c.Interference = math.NaN() },
		"Profiles":     func(c *pollux.Config) { c.Profiles = nil },
		"Profiles[1]":  func(c *pollux.Config) { c.Profiles = append(c.Profiles[:1:1], nil) },
		"occurs twice": func(c *pollux.Config) { c.Profiles = append(c.Profiles[:1:1], c.Profiles[0]) },
	} {
		cfg := good
		edit(&cfg)
		_, err := pollux.Run(cfg, toyJobs(1), pollux.NewTiresias())
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.ErrorContains(t, err, field)
	}
	for field, edit := range map[string]func(*pollux.Job){
		"ID":     func(j *pollux.Job) { j.ID = "" },
		"Submit": func(j *pollux.Job) { j.Submit = -1 },
		"App":    func(j *pollux.Job) { j.App = "none" },
		"GPUs":   func(j *pollux.Job) { j.GPUs = 0 },
		"Batch":  func(j *pollux.Job) { j.Batch = 7 },
	} {
		jobs := toyJobs(1)
		edit(&jobs[0])
		_, err := pollux.Run(good, jobs, pollux.NewTiresias())
		var e *lockstep.Error
		require.ErrorAs(t, err, &e, field)
		require.Contains(t, e.Field, field)
	}
	jobs := toyJobs(2)
	jobs[1].ID = jobs[0].ID
	_, err := pollux.Run(good, jobs, pollux.NewTiresias())
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = pollux.Run(good, toyJobs(1), nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = pollux.NewPollux(elastic.SearchConfig{Effort: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	r, err := pollux.Run(good, nil, pollux.NewTiresias())
	require.NoError(t, err)
	require.Zero(t, r.Mean())
}

func TestBrokenProfilesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, text string }{
		"no file":            {"toy/placements.csv", ""},
		"no column":          {"toy/placements.csv", "placement,local_bsz\n1,4\n"},
		"no placement 1":     {"toy/placements.csv", "placement,local_bsz,step_time,sync_time\n2,4,1,0\n"},
		"digit":              {"toy/placements.csv", "placement,local_bsz,step_time,sync_time\n1x,4,1,0\n"},
		"not a number":       {"toy/placements.csv", "placement,local_bsz,step_time,sync_time\n1,4,NaN,0\n"},
		"sync above step":    {"toy/placements.csv", "placement,local_bsz,step_time,sync_time\n1,4,1,2\n"},
		"twice":              {"toy/placements.csv", "placement,local_bsz,step_time,sync_time\n1,4,1,0\n1,4,1,0\n"},
		"fewer columns":      {"toy/scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,6\n"},
		"negative":           {"toy/scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,-6,4,1,0\n"},
		"progress that ends": {"toy/validation-8.csv", "progress,iteration,metric,grad_sqr,grad_var\n5,5,1,1,1\n5,6,1,1,1\n"},
		"no gradient":        {"toy/validation-8.csv", "progress,iteration,metric,grad_sqr,grad_var\n5,5,1,0,0\n"},
		"no epoch":           {"toy/validation-8.csv", "progress,iteration,metric,grad_sqr,grad_var\n"},
		"no batch":           {"toy/validation-x.csv", "progress,iteration,metric,grad_sqr,grad_var\n5,5,1,1,1\n"},
	} {
		files := toy()
		if c.text == "" {
			delete(files, c.file)
		} else {
			files[c.file] = &fstest.MapFile{Data: []byte(c.text)}
		}
		_, err := pollux.ReadProfile(files, "toy")
		require.Error(t, err, name)
	}
}

func FuzzReadJobs(f *testing.F) {
	f.Add("name,time,application,num_replicas,batch_size\na,0,toy,1,8\n")
	f.Add("time,name,application,num_replicas,batch_size\n-1,a,toy,1,8\n")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := pollux.ReadJobs(strings.NewReader(text))
		if err != nil {
			require.Empty(t, jobs)
		}
	})
}

func FuzzReadTimings(f *testing.F) {
	f.Add("application,placement,local_bsz,step_time,sync_time\na,1+4,8,1,0.5\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = pollux.ReadTimings(strings.NewReader(text))
	})
}

func FuzzReadProfile(f *testing.F) {
	for name, file := range toy() {
		f.Add(name, string(file.Data))
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		files := toy()
		files[name] = &fstest.MapFile{Data: []byte(text)}
		p, err := pollux.ReadProfile(files, "toy")
		if err != nil {
			return
		}
		jobs := toyJobs(1)
		jobs[0].Batch = 16
		_, _ = pollux.Run(pollux.Config{Profiles: []*pollux.Profile{p}, Tick: time.Hour}, jobs, pollux.NewOptimus())
	})
}

// What was read up to a fault is not handed out with the error.
func TestBadFilesGiveNothing(t *testing.T) {
	const head = "application,placement,local_bsz,step_time,sync_time\n"
	for _, place := range []string{"1+", "", "+1", "12", "0", "1+a"} {
		got, err := pollux.ReadTimings(strings.NewReader(head + "a,1+1,8,1,0\na," + place + ",8,1,0\n"))
		require.ErrorIs(t, err, lockstep.ErrInvalid, place)
		require.Nil(t, got)
	}
	jobs, err := pollux.ReadJobs(strings.NewReader("name,time,application,num_replicas,batch_size\na,0,x,1,8\na,0,x,1,8\n"))
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	require.Nil(t, jobs)
}
