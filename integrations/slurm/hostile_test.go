package slurm

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// TestViewsThatNoReaderMakesDoNoHarm: a View is plain data, so a caller may have filled it with anything.
func TestViewsThatNoReaderMakesDoNoHarm(t *testing.T) {
	for name, spoil := range map[string]func(j *Job){ // each by itself
		"nothing":      func(j *Job) { *j = Job{ID: j.ID, State: Pending, Priority: 1} },
		"no nodes":     func(j *Job) { j.MinNodes, j.MaxNodes = 0, 0 },
		"less nodes":   func(j *Job) { j.MinNodes = -3 },
		"all nodes":    func(j *Job) { j.MinNodes, j.MaxNodes = math.MaxInt, math.MaxInt },
		"devices":      func(j *Job) { j.GPUs, j.NodeGPUs = math.MinInt64, 0 },
		"more devices": func(j *Job) { j.GPUs, j.NodeGPUs = math.MaxInt64, 0 },
		"node devices": func(j *Job) { j.NodeGPUs = math.MaxInt64 },
		"less devices": func(j *Job) { j.NodeGPUs = -1 },
		"cpus":         func(j *Job) { j.CPUs = math.MaxInt64 },
		"less cpus":    func(j *Job) { j.CPUs = -1 },
		"memory":       func(j *Job) { j.NodeMemory = math.MaxInt64 },
		"less memory":  func(j *Job) { j.NodeMemory = -1 },
		"limit":        func(j *Job) { j.Limit = math.MaxInt64 },
		"less limit":   func(j *Job) { j.Limit = -1 },
		"tasks":        func(j *Job) { j.Tasks = -1 },
		"no tasks":     func(j *Job) { j.Tasks = 0 },
		"task":         func(j *Job) { j.Array, j.Task = 7, math.MaxInt64 },
		"less at once": func(j *Job) { j.Array, j.TaskLimit = 7, -1 },
		"switches":     func(j *Job) { j.Switches = math.MinInt },
		"eligible":     func(j *Job) { j.Eligible = time.Unix(math.MaxInt64/2, 0) },
		"long ago":     func(j *Job) { j.Eligible = time.Unix(math.MinInt64/2, 0) },
		"het":          func(j *Job) { j.Het, j.HetOffset = 9, math.MinInt },
		"must":         func(j *Job) { j.MinNodes, j.MaxNodes, j.Require = 2, 1, []string{"n1", "n1", ""} },
		"texts":        func(j *Job) { j.User, j.Account, j.Partition, j.Features = "\x00\n", "\xff", "任", "任&(" },
		"no kind":      func(j *Job) { j.GPUKind = "a b\n" },
		"runs":         func(j *Job) { j.State, j.On = Running, []Part{{Node: "n1", GPUs: -1, CPUs: -1, Memory: -1}} },
		"runs huge": func(j *Job) {
			j.State, j.On = Running, []Part{{Node: "n1", GPUs: math.MaxInt64, Devices: math.MaxUint64, CPUs: math.MaxInt64, Memory: math.MaxInt64}}
		},
		"runs twice":   func(j *Job) { j.State, j.On = Running, []Part{{Node: "n1", GPUs: 1}, {Node: "n1", GPUs: 1}} },
		"runs nowhere": func(j *Job) { j.State, j.On = Running, []Part{{}} },
		"runs later": func(j *Job) {
			j.State, j.Started, j.On = Running, time.Unix(math.MaxInt64/2, 0), []Part{{Node: "n1", GPUs: 1}}
		},
		"runs for long": func(j *Job) {
			j.State, j.Limit, j.Started, j.On = Running, math.MaxInt64, time.Unix(math.MinInt64/2, 0), []Part{{Node: "n1", GPUs: 1}}
		},
		"what": func(j *Job) { j.State = "what" },
	} {
		for _, rule := range []Rule{LTGF, SRTF, Slurm} {
			v := world(2)
			v.add(1, 1, time.Hour)
			v.add(2, 8, time.Hour)
			spoil(&v.Jobs[0])
			r, err := Plan(v, Config{Rule: rule})
			require.NoError(t, err, name)
			for i := range r.Rows {
				require.False(t, r.Rows[i].Planned == 0 && r.Rows[i].Reason == "", "%s: job %s has neither a start nor a reason", name, r.Rows[i].Job)
				if r.Rows[i].ID == 2 {
					require.NotZero(t, r.Rows[i].Turn, "%s harms another", name)
				}
			}
			require.NoError(t, r.WriteJSON(&strings.Builder{}))
		}
	}
	for name, spoil := range map[string]func(n *Node){ // each by itself
		"devices":      func(n *Node) { n.GPUs = -1 },
		"many devices": func(n *Node) { n.GPUs = math.MaxInt },
		"used":         func(n *Node) { n.Used, n.UsedCPUs, n.UsedMemory = math.MinInt, math.MinInt64, math.MinInt64 },
		"much used":    func(n *Node) { n.Used, n.UsedCPUs, n.UsedMemory = math.MaxInt, math.MaxInt64, math.MaxInt64 },
		"cpus":         func(n *Node) { n.CPUs, n.Memory = -1, -1 },
		"many cpus":    func(n *Node) { n.CPUs, n.Memory = math.MaxInt64, math.MaxInt64 },
		"name":         func(n *Node) { n.ID = "a b\n" },
	} {
		v := world(2)
		v.add(1, 1, time.Hour)
		spoil(&v.Nodes[0])
		r, err := Plan(v, Config{})
		if err != nil {
			var e *lockstep.Error
			require.ErrorAs(t, err, &e, name)
			require.ErrorIs(t, err, lockstep.ErrInvalid, name)
			require.NotContains(t, err.Error(), "\n", name)
			continue
		}
		require.Equal(t, epoch, r.Rows[0].Start, name)
	}
}

// TestANumberThatIsThereTwice: two jobs of a hand-made View with one number.
func TestANumberThatIsThereTwice(t *testing.T) {
	v := world(1)
	v.add(1, 8, time.Hour)
	v.add(1, 4, 2*time.Hour)
	v.add(2, 8, time.Hour)
	first, err := Plan(v, Config{Rule: FIFO})
	require.NoError(t, err)
	require.Len(t, first.Faults, 1)
	require.ErrorIs(t, first.Faults[0], lockstep.ErrDuplicate)
	require.Equal(t, "job 1.job_id", first.Faults[0].Field)
	require.Len(t, first.Rows, 2)
}

// TestHugeNumbersAreFaults: what readers were given is named, and never another number.
func TestHugeNumbersAreFaults(t *testing.T) {
	for _, field := range []string{
		`"array_job_id":3,"array_task_string":"0-9223372036854775807"`,
		`"array_job_id":3,"array_task_string":"+1-2"`,
		`"tres_per_node":"gpu:99999999999999999999"`,
		`"tres_per_node":"gpu:-1"`,
		`"tres_per_node":"` + strings.TrimSuffix(strings.Repeat("gpu:1125899906842624,", 1<<13), ",") + `"`,
		`"priority":{"set":true,"number":{"set":true,"number":5}}`,
		`"priority":-7`,
		`"time_limit":1e30`,
		`"submit_time":99999999999`,
	} {
		jobs, faults, err := ReadJobs(strings.NewReader(`{"jobs":[{"job_id":1,"job_state":"PENDING",` + field + `}]}`))
		require.NoError(t, err)
		require.Empty(t, jobs, "%.60s", field)
		require.Len(t, faults, 1)
		require.True(t, strings.HasPrefix(faults[0].Field, "job 1."))
	}
	for _, state := range []string{"null", "[]", `""`} {
		jobs, faults, err := ReadJobs(strings.NewReader(`{"jobs":[{"job_id":1,"job_state":` + state + `}]}`))
		require.NoError(t, err)
		require.Empty(t, jobs)
		require.Len(t, faults, 1)
		require.Equal(t, "job 1.job_state", faults[0].Field)
	}
}

// TestADocumentOfErrorsIsNoEmptyQueue: commands of some versions print a document with errors and no jobs, and exit with 0.
func TestADocumentOfErrorsIsNoEmptyQueue(t *testing.T) {
	const doc = `{"meta":{},"errors":[{"description":"Unable to contact slurm controller","error":"slurm_load_jobs()","error_number":1}],%q:[]}`
	_, _, err := ReadJobs(strings.NewReader(fmt.Sprintf(doc, "jobs")))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorContains(t, err, "Unable to contact slurm controller")
	_, _, err = ReadNodes(strings.NewReader(fmt.Sprintf(doc, "nodes")))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, _, err = ReadJobs(strings.NewReader(`{"errors":[],"jobs":[]}`))
	require.NoError(t, err)
	jobs, faults, err := ReadJobs(strings.NewReader(`{"errors":["a part is missing"],"jobs":[{"job_id":1,"job_state":"PENDING"}]}`))
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Len(t, faults, 1, "what is there is read, and that something is missing is told")
}

// TestForeignTextStaysOnItsLine: names that break lines or move the cursor reach neither a fault nor the table.
func TestForeignTextStaysOnItsLine(t *testing.T) {
	evil := "a\tb\n1  9  root\x1b[2J"
	quoted := strconv.Quote(evil)
	quoted = strings.ReplaceAll(quoted, `\x1b`, `\u001b`)
	_, faults, err := ReadNodes(strings.NewReader(`{"nodes":[{"name":` + quoted + `}]}`))
	require.NoError(t, err)
	require.Len(t, faults, 1)
	require.NotContains(t, faults[0].Error(), "\n")
	require.NotContains(t, faults[0].Error(), "\x1b")

	v := world(1)
	v.add(1, 8, time.Hour, func(j *Job) {
		j.User, j.Account, j.Reason, j.Dependency = evil, evil, evil, "afterok:7("+evil
	})
	v.add(2, 8, time.Hour, func(j *Job) { j.Reason = "QOS" + evil })
	r, err := Plan(v, Config{})
	require.NoError(t, err)
	out := text(t, r)
	require.NotContains(t, out, "\x1b")
	require.NotContains(t, out, "\n1  9")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 5, "a heading, an empty line, the table of two: %s", out)
	require.NotContains(t, Config{Weights: map[lockstep.TenantID]int64{"a\nb": -1}}.Validate().Error(), "a\nb")
}

// TestWhoWaitsForWhatIsNotPlannedWaitsOn: not all tasks of a long array are planned, and some jobs never start.
func TestWhoWaitsForWhatIsNotPlannedWaitsOn(t *testing.T) {
	v := world(1)
	v.add(2, 1, time.Hour, func(j *Job) { j.Array, j.Tasks = 2, 20 })
	v.add(3, 1, time.Hour, func(j *Job) { j.Dependency = "afterany:2_*(unfulfilled)" })
	rows := plan(t, v, Config{ArrayTasks: 4})
	require.Equal(t, 4, rows[2].Planned)
	require.Equal(t, ReasonDependency, rows[3].Reason)
	require.Zero(t, rows[3].Start, "sixteen tasks have yet to run")
	rows = plan(t, v, Config{ArrayTasks: 20})
	require.False(t, rows[3].Start.Before(rows[2].Last.Add(time.Hour)))

	v = world(1)
	v.add(2, 9, time.Hour) // no node has so many
	v.add(3, 70, time.Hour)
	v.add(4, 1, time.Hour, func(j *Job) { j.Features = "fast" })
	v.add(5, 1, time.Hour, func(j *Job) { j.Partition = "other" })
	for id := uint32(2); id <= 5; id++ {
		v.add(10+id, 1, time.Hour, func(j *Job) { j.Dependency = fmt.Sprintf("afterany:%d(unfulfilled)", id) })
	}
	rows = plan(t, v, Config{})
	for id := uint32(2); id <= 5; id++ {
		require.Zero(t, rows[id].Start, id)
		require.Zero(t, rows[10+id].Start, "job %d waits for one that never starts", 10+id)
		require.Equal(t, ReasonDependency, rows[10+id].Reason)
	}
}

// TestJobsThatWaitForEachOther: a circle is nobody's turn.
func TestJobsThatWaitForEachOther(t *testing.T) {
	v := world(1)
	v.add(1, 1, time.Hour, func(j *Job) { j.Dependency = "afterok:2(unfulfilled)" })
	v.add(2, 1, time.Hour, func(j *Job) { j.Dependency = "afterok:1(unfulfilled)" })
	v.add(3, 1, time.Hour, func(j *Job) { j.Dependency = "afterok:3(unfulfilled)" })
	v.add(4, 1, time.Hour)
	rows := plan(t, v, Config{})
	for id := uint32(1); id <= 3; id++ {
		require.Equal(t, ReasonDependency, rows[id].Reason)
		require.Zero(t, rows[id].Start)
	}
	require.Equal(t, epoch, rows[4].Start)
}

// TestComponentsInAnyOrder: the first of a heterogeneous job may have the greater number, in a View made by hand.
func TestComponentsInAnyOrder(t *testing.T) {
	v := world(2)
	v.add(2, 8, time.Hour, func(j *Job) { j.Het, j.HetOffset = 2, 1 })
	v.add(3, 8, time.Hour, func(j *Job) { j.Het, j.HetOffset = 2, 0 })
	r, err := Plan(v, Config{})
	require.NoError(t, err)
	require.Len(t, r.Rows, 1)
	require.Empty(t, r.Faults)
	require.Len(t, r.Rows[0].On, 2)
}

// TestTasksKeepTheirOrderWhenALimitWasLowered: more tasks run than now may, and none comes before its time and turn.
func TestTasksKeepTheirOrderWhenALimitWasLowered(t *testing.T) {
	v := world(1)
	for i := range uint32(3) {
		v.add(10+i, 1, time.Duration(2+i)*time.Hour, on("n1"), func(j *Job) { j.Array, j.Task, j.TaskLimit = 20, int64(i), 1 })
	}
	v.add(20, 1, time.Hour, func(j *Job) { j.Array, j.Tasks, j.TaskLimit = 20, 4, 1 })
	p, err := prepare(v, Config{})
	require.NoError(t, err)
	var got []lockstep.JobID
	p.watch = func(_ time.Time, e *entry, _ *lockstep.Plan) { got = append(got, e.gang.ID) }
	require.NoError(t, p.run())
	require.Equal(t, []lockstep.JobID{name(&v.Jobs[3], 0), name(&v.Jobs[3], 1), name(&v.Jobs[3], 2), name(&v.Jobs[3], 3)}, got)
	require.Equal(t, epoch.Add(3*time.Hour), p.rows[0].Start, "the last of the three ends then")
}

// TestWhatIsSaidInOneWordOnly: an old version tells of a job by its latest flag alone, or that it waits for others but
// not for which.
func TestWhatIsSaidInOneWordOnly(t *testing.T) {
	jobs, faults, err := ReadJobs(strings.NewReader(`{"jobs":[{"job_id":1,"job_state":"RESV_DEL_HOLD"},{"job_id":2,"job_state":"PENDING","state_reason":"Dependency","priority":7}]}`))
	require.NoError(t, err)
	require.Empty(t, faults)
	require.Equal(t, Pending, jobs[0].State, "it is not over")
	v := world(1)
	v.Jobs = jobs
	rows := plan(t, v, Config{})
	require.Equal(t, ReasonDependency, rows[2].Reason)
	require.Zero(t, rows[2].Priority)
	require.Zero(t, rows[2].Start)
}

// TestBothWaysToAskForNodesAreTold: what the first printed, and why the second failed.
func TestBothWaysToAskForNodesAreTold(t *testing.T) {
	c := fake(t, map[string]string{"scontrol": "echo NodeName=n1", "sinfo": "echo no controller >&2; exit 1"})
	_, err := c.View(context.Background())
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	var failed *CommandError
	require.ErrorAs(t, err, &failed)
	_, err = ReadTopology("topology.yaml", strings.NewReader("[]"))
	var e *lockstep.Error
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// TestTheEnvironmentDoesNotFilter: SQUEUE_USERS and the like would hide jobs.
func TestTheEnvironmentDoesNotFilter(t *testing.T) {
	for _, v := range []string{"SQUEUE_USERS", "SQUEUE_STATES", "SQUEUE_PARTITION", "SINFO_PARTITION", "SCONTROL_FUTURE"} {
		t.Setenv(v, "some")
	}
	t.Setenv("SLURM_CONF", "here")
	c := fake(t, map[string]string{"squeue": `env > "$dir/log"; echo '{"jobs":[]}'`})
	_, _, err := c.Jobs(context.Background())
	require.NoError(t, err)
	env, err := os.ReadFile(filepath.Join(c.Bin, "log"))
	require.NoError(t, err)
	var got []string
	for v := range strings.Lines(string(env)) {
		if v = strings.TrimSpace(v); strings.HasPrefix(v, "S") && strings.HasSuffix(v, "=some") || strings.HasPrefix(v, "SLURM_") {
			got = append(got, v)
		}
	}
	slices.Sort(got)
	// Without the second Slurm cuts the tasks of arrays short.
	require.Equal(t, []string{"SLURM_BITSTR_LEN=0", "SLURM_CONF=here", "SLURM_TIME_FORMAT=standard"}, got)
}

// TestAChattyCommandIsHeard: what it writes to standard error is cut, and the rest counts.
func TestAChattyCommandIsHeard(t *testing.T) {
	const noise = `i=0; while [ $i -lt 200 ]; do printf '%01000d\n' 7 >&2; i=$((i+1)); done`
	c := fake(t, map[string]string{"squeue": noise + "\n" + twoJobs})
	jobs, _, err := c.Jobs(context.Background())
	require.NoError(t, err)
	require.Len(t, jobs, 4)
	c = fake(t, map[string]string{"squeue": noise + "\nexit 3"})
	_, _, err = c.Jobs(context.Background())
	var failed *CommandError
	require.ErrorAs(t, err, &failed)
	require.NotEmpty(t, failed.Said)
	require.LessOrEqual(t, len(failed.Said), 1<<16)
	require.Less(t, len(failed.Error()), 300)
}

// TestNamesReachNoShell: what a job is called is no part of a command.
func TestNamesReachNoShell(t *testing.T) {
	c := fake(t, map[string]string{
		"squeue":   `echo '{"jobs":[{"job_id":1,"job_state":"PENDING","priority":5,"array_job_id":1,"array_task_string":"0-3,5-9:2","name":"$(touch x); --all","user_name":"-u root"}]}'`,
		"scontrol": `for a in "$@"; do echo "<$a>" >> "$dir/log"; done`,
	})
	for _, job := range []string{"1 partition=x", "--help", "1;ls", "1_[0-3", "1_[0,9] nice=0", "1\n2", "", "all", "2"} {
		applied, err := c.Apply(context.Background(), []Change{{ID: 1, Job: job, To: 9}})
		require.NoError(t, err)
		require.Len(t, applied, 1)
		require.ErrorIs(t, applied[0].Why, lockstep.ErrInvalid, job)
		require.False(t, applied[0].Done)
	}
	require.NoFileExists(t, filepath.Join(c.Bin, "log"))
	for _, to := range []uint32{0, math.MaxUint32, math.MaxUint32 - 1} { // 0 would hold it, the others mean something else
		applied, err := c.Apply(context.Background(), []Change{{ID: 1, Job: "1", To: to}})
		require.NoError(t, err)
		require.ErrorIs(t, applied[0].Why, lockstep.ErrInvalid)
	}
	require.NoFileExists(t, filepath.Join(c.Bin, "log"))
	applied, err := c.Apply(context.Background(), []Change{{ID: 1, Job: "1_[0-3,5-9:2]", To: 9}})
	require.NoError(t, err)
	require.True(t, applied[0].Done)
	log, err := os.ReadFile(filepath.Join(c.Bin, "log"))
	require.NoError(t, err)
	require.Equal(t, "<update>\n<job=1_[0-3,5-9:2]>\n<priority=9>\n", string(log))
}

// TestAnyBytesAreReadOrNamed changes recordings at random.
func TestAnyBytesAreReadOrNamed(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	jobs, nodes := recording(t, "squeue-22.05.json"), recording(t, "sinfo-22.05.json")
	for range 60 {
		v := &View{Now: epoch}
		var err error
		if v.Nodes, v.Faults, err = ReadNodes(strings.NewReader(spoiled(r, nodes))); err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			continue
		}
		var more []*lockstep.Error
		if v.Jobs, more, err = ReadJobs(strings.NewReader(spoiled(r, jobs))); err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			continue
		}
		v.Faults = append(v.Faults, more...)
		rep, err := Plan(v, Config{})
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			continue
		}
		for _, f := range rep.Faults {
			require.NotContains(t, f.Error(), "\n")
		}
	}
}

// spoiled puts other values where numbers and texts are.
func spoiled(r *rand.Rand, doc []byte) string {
	s := string(doc)
	for range 12 {
		at := r.IntN(len(s))
		colon := strings.IndexByte(s[at:], ':')
		if colon < 0 {
			continue
		}
		at += colon + 1
		end := strings.IndexAny(s[at:], ",}")
		if end < 0 {
			continue
		}
		s = s[:at] + []string{"-1", "1e18", "18446744073709551615", "null", `""`, `"\u0000"`, "[]", "{}", "true", "4294967294", `"n[1-99999]"`, "0.5"}[r.IntN(12)] + s[at+end:]
	}
	return s
}

// TestStrictStartsAreThoseOfAPlainQueue: where nobody passes, each job starts as soon as all before it have and so many
// devices are free, which a few lines say as well.
func TestStrictStartsAreThoseOfAPlainQueue(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 11))
		v := world(1)
		type span struct {
			until time.Time
			gpus  int64
		}
		var busy []span
		for i, left := uint32(1), int64(8); i <= 3 && left > 0; i++ {
			gpus := min(1+r.Int64N(4), left)
			left -= gpus
			limit := 61 + r.IntN(200)
			v.add(i, gpus, time.Duration(limit)*time.Minute, on("n1"))
			busy = append(busy, span{epoch.Add(time.Duration(limit-60) * time.Minute), gpus})
		}
		type job struct {
			id    uint32
			gpus  int64
			limit time.Duration
		}
		var queue []job
		for id := uint32(10); id < 30; id++ {
			j := job{id, 1 + r.Int64N(8), time.Duration(1+r.IntN(90)) * time.Minute}
			queue = append(queue, j)
			v.add(j.id, j.gpus, j.limit)
		}
		want := map[uint32]time.Time{}
		at := epoch
		for _, j := range queue {
			for {
				free := int64(8)
				next := time.Time{}
				for _, b := range busy {
					if b.until.After(at) {
						free -= b.gpus
						if next.IsZero() || b.until.Before(next) {
							next = b.until
						}
					}
				}
				if free >= j.gpus {
					break
				}
				at = next
			}
			want[j.id] = at
			busy = append(busy, span{at.Add(j.limit), j.gpus})
		}
		for _, cfg := range []Config{{Rule: FIFO, Backfill: -1}, {Rule: Slurm, Backfill: -1}} {
			rows := plan(t, v, cfg)
			for i, j := range queue {
				require.Equal(t, want[j.id], rows[j.id].Start, "seed %d job %d", seed, j.id)
				require.Equal(t, i+1, rows[j.id].Turn)
			}
		}
	}
}
