package slurm

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/slurm"
)

// State says what Slurm does with a job, as far as it matters here.
type State string

// The states. Those of Slurm that are not listed have ended.
const (
	Pending   State = "pending"   // Pending: it waits.
	Running   State = "running"   // Running: it holds nodes and runs, or is about to (CONFIGURING, RESIZING, SIGNALING, STAGE_OUT).
	Suspended State = "suspended" // Suspended: it holds nodes and is stopped, nobody knows for how long.
	Ending    State = "ending"    // Ending: it holds nodes and is about to leave them (COMPLETING).
	Ended     State = "ended"     // Ended: it is over.
)

// Job is one job, array or component of a heterogeneous job, as squeue told of it.
type Job struct {
	ID    uint32 // ID is Slurm's number of it.
	Name  string // Name is what its owner calls it; it may be empty.
	State State  // State is where it stands.

	Reason    string // Reason is why it waits, in Slurm's word, such as "Resources".
	User      string // User is who owns it; the number where Slurm tells no name.
	Account   string // Account is whom it is charged to; it may be empty.
	QOS       string // QOS is its quality of service; it may be empty.
	Partition string // Partition is where it waits or runs; several have commas between them.
	Priority  uint32 // Priority is Slurm's, higher first; 0 of a job that is held.
	Held      bool   // Held says that its owner or an operator holds it.

	Submitted time.Time     // Submitted is when it came.
	Eligible  time.Time     // Eligible is from when on it may start; zero means that something is in the way.
	Started   time.Time     // Started is when it began or, of one that waits, when Slurm expects it to; zero means unknown.
	Limit     time.Duration // Limit is how long it may run; 0 means unlimited or unknown.

	Array      uint32 // Array is the number of the array that it is of; 0 means none.
	Task       int64  // Task is its place in the array; -1 of one that stands for all tasks that wait.
	Tasks      int    // Tasks is how many tasks it stands for, at least 1.
	TaskLimit  int    // TaskLimit is how many tasks of the array may run at once; 0 means no limit.
	Het        uint32 // Het is the number of the heterogeneous job that it is a component of; 0 means none.
	HetOffset  int    // HetOffset is its place there, from 0.
	Dependency string // Dependency is what it waits for, such as "afterok:12(unfulfilled)"; empty means nothing.

	MinNodes   int            // MinNodes is how many nodes it wants at least, at least 1.
	MaxNodes   int            // MaxNodes is how many it wants at most, at least MinNodes.
	CPUs       int64          // CPUs is how many it wants or has on all nodes together.
	NodeMemory lockstep.Bytes // NodeMemory is host memory on each node; 0 means that it did not say.
	NodeGPUs   int64          // NodeGPUs is how many devices on each node, where it said so.
	GPUs       int64          // GPUs is how many devices on all nodes together; 0 means none.
	GPUKind    string         // GPUKind is which; empty means any.
	Exclusive  bool           // Exclusive says that it wants or has its nodes alone.
	Features   string         // Features are what it asks of nodes, such as "h100&nvme".
	Require    []string       // Require are nodes that it must have.
	Exclude    []string       // Exclude are nodes that it must not have.
	Switches   int            // Switches is over how many leaf switches it wants to be spread at most; 0 means any number.
	Resv       string         // Resv is the reservation that it runs in; empty means none.

	On []Part // On is what it holds, by node, while it runs.

	waits string // the tasks of an array that wait, "0-9,12"; empty where Slurm cuts them short
}

// Part is what a job holds on one node.
type Part struct {
	Node    lockstep.NodeID    // Node is where.
	GPUs    int64              // GPUs is how many devices.
	Devices lockstep.DeviceSet // Devices are which; empty where Slurm does not say.
	CPUs    int64              // CPUs is how many, an equal part of all where Slurm does not say.
	Memory  lockstep.Bytes     // Memory is how much; 0 where Slurm does not count it.
}

// String returns the name by which scontrol knows j: "17", "12_3" or "14+1".
func (j *Job) String() string {
	switch {
	case j.Array != 0 && j.Task >= 0:
		return strconv.FormatUint(uint64(j.Array), 10) + "_" + strconv.FormatInt(j.Task, 10)
	case j.Het != 0:
		return strconv.FormatUint(uint64(j.Het), 10) + "+" + strconv.Itoa(j.HetOffset)
	}
	return strconv.FormatUint(uint64(j.ID), 10)
}

// rawJob holds the fields that are read, in whatever form.
type rawJob struct {
	JobID          json.RawMessage `json:"job_id"`
	Name           json.RawMessage `json:"name"`
	JobState       json.RawMessage `json:"job_state"`
	StateReason    json.RawMessage `json:"state_reason"`
	UserName       json.RawMessage `json:"user_name"`
	UserID         json.RawMessage `json:"user_id"`
	Account        json.RawMessage `json:"account"`
	QOS            json.RawMessage `json:"qos"`
	Partition      json.RawMessage `json:"partition"`
	Priority       json.RawMessage `json:"priority"`
	Hold           json.RawMessage `json:"hold"`
	SubmitTime     json.RawMessage `json:"submit_time"`
	EligibleTime   json.RawMessage `json:"eligible_time"`
	StartTime      json.RawMessage `json:"start_time"`
	TimeLimit      json.RawMessage `json:"time_limit"`
	ArrayJobID     json.RawMessage `json:"array_job_id"`
	ArrayTaskID    json.RawMessage `json:"array_task_id"`
	ArrayTasks     json.RawMessage `json:"array_task_string"`
	ArrayMaxTasks  json.RawMessage `json:"array_max_tasks"`
	HetJobID       json.RawMessage `json:"het_job_id"`
	HetJobOffset   json.RawMessage `json:"het_job_offset"`
	Dependency     json.RawMessage `json:"dependency"`
	NodeCount      json.RawMessage `json:"node_count"`
	MaxNodes       json.RawMessage `json:"max_nodes"`
	CPUs           json.RawMessage `json:"cpus"`
	Tasks          json.RawMessage `json:"tasks"`
	MemoryPerNode  json.RawMessage `json:"memory_per_node"`
	MemoryPerCPU   json.RawMessage `json:"memory_per_cpu"`
	TRESPerNode    json.RawMessage `json:"tres_per_node"`
	TRESPerJob     json.RawMessage `json:"tres_per_job"`
	TRESPerTask    json.RawMessage `json:"tres_per_task"`
	TRESPerSocket  json.RawMessage `json:"tres_per_socket"`
	TRESReq        json.RawMessage `json:"tres_req_str"`
	Shared         json.RawMessage `json:"shared"`
	Exclusive      json.RawMessage `json:"exclusive"`
	Features       json.RawMessage `json:"features"`
	Required       json.RawMessage `json:"required_nodes"`
	Excluded       json.RawMessage `json:"excluded_nodes"`
	Switches       json.RawMessage `json:"minimum_switches"`
	RequiredSwitch json.RawMessage `json:"required_switches"`
	Reservation    json.RawMessage `json:"resv_name"`
	Nodes          json.RawMessage `json:"nodes"`
	GRESDetail     json.RawMessage `json:"gres_detail"`
	JobResources   json.RawMessage `json:"job_resources"`
}

// Bounds of what is believed of one job.
const (
	maxNodes    = 1 << 20
	maxTasks    = 1 << 22 // above the 4,000,001 that MaxArraySize may be
	maxWaits    = 1 << 16 // bytes of the tasks of an array: an argument of a command may have 128 KiB
	maxCount    = 1 << 30
	maxMinutes  = int64(lockstep.MaxWalltime / time.Minute)
	maxMegabyte = 1 << 30
)

// ReadJobs reads what squeue --json prints, of Slurm 22.05 and newer. Jobs that cannot be read are left out, and the
// second result says which and why; the error is for a document that is none.
func ReadJobs(r io.Reader) ([]Job, []*lockstep.Error, error) {
	var doc struct {
		Jobs   *[]json.RawMessage `json:"jobs"`
		Errors json.RawMessage    `json:"errors"`
	}
	if err := document("read jobs", r, &doc); err != nil {
		return nil, nil, err
	}
	if doc.Jobs == nil {
		return nil, nil, fault(lockstep.ErrInvalid, "read jobs", "jobs", "", "is not there: want the output of squeue --json")
	}
	faults, err := complaints("read jobs", doc.Errors, len(*doc.Jobs))
	if err != nil {
		return nil, nil, err
	}
	jobs := make([]Job, 0, len(*doc.Jobs))
	seen := make(map[uint32]bool, len(*doc.Jobs))
	for i, raw := range *doc.Jobs {
		j, err := readJob(i, raw)
		if err == nil && seen[j.ID] {
			err = fault(lockstep.ErrDuplicate, "read jobs", "jobs["+strconv.Itoa(i)+"].job_id", strconv.FormatUint(uint64(j.ID), 10), "was there before")
		}
		if err != nil {
			faults = append(faults, err)
			continue
		}
		seen[j.ID] = true
		jobs = append(jobs, j)
	}
	return jobs, faults, nil
}

func readJob(i int, raw json.RawMessage) (Job, *lockstep.Error) {
	r := record{op: "read jobs", name: "jobs[" + strconv.Itoa(i) + "]"}
	var w rawJob
	if isNull(raw) {
		r.fail("job_id", "null", "want an object")
		return Job{}, r.err
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		r.fail("job_id", quote(clip(raw)), "want an object")
		return Job{}, r.err
	}
	id := r.count("job_id", w.JobID, 1<<32-1)
	if id == 0 && r.err == nil {
		r.fail("job_id", "0", "want a number above 0")
	}
	if r.err != nil {
		return Job{}, r.err
	}
	r.name = "job " + strconv.FormatInt(id, 10)
	states := r.list("job_state", w.JobState)
	if len(states) == 0 {
		r.fail("job_state", "", "is not there")
	}
	j := Job{ID: uint32(id), Name: r.text("name", w.Name), State: stateOf(states)}
	if j.State == Ended {
		return j, r.err // nothing else is asked of it
	}
	j.who(&r, &w)
	j.when(&r, &w)
	j.family(&r, &w)
	j.wants(&r, &w)
	if j.State != Pending {
		j.holds(&r, &w)
	}
	return j, r.err
}

// stateOf makes one state of what Slurm says, which newer versions say in several words.
func stateOf(words []string) State {
	state := Ended
	for _, w := range words {
		switch strings.ToUpper(w) {
		case "COMPLETING":
			return Ending
		case "PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED", "RESV_DEL_HOLD":
			state = Pending
		case "RUNNING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT":
			if state == Ended {
				state = Running
			}
		case "SUSPENDED", "STOPPED":
			state = Suspended
		}
	}
	return state
}

func (j *Job) who(r *record, w *rawJob) {
	j.User = r.text("user_name", w.UserName)
	if j.User == "" {
		j.User = r.text("user_id", w.UserID)
	}
	j.Account = r.text("account", w.Account)
	j.QOS = r.text("qos", w.QOS)
	j.Partition = r.text("partition", w.Partition)
	j.Reason = r.text("state_reason", w.StateReason)
	j.Priority = uint32(r.count("priority", w.Priority, 1<<32-1))
	j.Held = r.flag("hold", w.Hold) || strings.HasPrefix(j.Reason, "JobHeld") || j.State == Pending && j.Priority == 0
	j.Resv = r.text("resv_name", w.Reservation)
}

func (j *Job) when(r *record, w *rawJob) {
	j.Submitted = r.instant("submit_time", w.SubmitTime)
	j.Eligible = r.instant("eligible_time", w.EligibleTime)
	j.Started = r.instant("start_time", w.StartTime)
	j.Limit = time.Duration(r.count("time_limit", w.TimeLimit, maxMinutes)) * time.Minute
	j.Dependency = r.text("dependency", w.Dependency)
}

func (j *Job) family(r *record, w *rawJob) {
	j.Array = uint32(r.count("array_job_id", w.ArrayJobID, 1<<32-1))
	j.Task, j.Tasks = -1, 1
	if n := r.number("array_task_id", w.ArrayTaskID); n.set && j.Array != 0 {
		j.Task = n.value
	}
	if list := r.text("array_task_string", w.ArrayTasks); list != "" && j.Task < 0 {
		n, ok := countTasks(list)
		if !ok {
			r.fail("array_task_string", quote(list), "want numbers and ranges, such as 0-9,12%3")
		}
		j.Tasks = max(n, 1)
		if j.waits, _, _ = strings.Cut(list, "%"); strings.Contains(j.waits, "...") || len(j.waits) > maxWaits {
			j.waits = ""
		}
	}
	j.TaskLimit = int(r.count("array_max_tasks", w.ArrayMaxTasks, maxCount))
	j.Het = uint32(r.count("het_job_id", w.HetJobID, 1<<32-1))
	if j.Het != 0 {
		j.HetOffset = int(r.count("het_job_offset", w.HetJobOffset, maxCount))
	}
}

// countTasks counts what "0-9:2,12%3" stands for. Slurm cuts long ones with "...", and only those before are counted.
func countTasks(list string) (int, bool) {
	list, _, _ = strings.Cut(list, "%")
	n := 0
	for _, part := range split(list) {
		if strings.Contains(part, "...") {
			break
		}
		part, step, stepped := strings.Cut(part, ":")
		lo, hi, ranged := strings.Cut(part, "-")
		if !ranged {
			hi = lo
		}
		if !stepped {
			step = "1"
		}
		a, err := strconv.ParseUint(lo, 10, 31)
		b, err2 := strconv.ParseUint(hi, 10, 31)
		by, err3 := strconv.ParseUint(step, 10, 31)
		if err != nil || err2 != nil || err3 != nil || b < a || by == 0 {
			return 0, false
		}
		if n += int((b-a)/by) + 1; n > maxTasks {
			return 0, false
		}
	}
	return n, true
}

// wants reads what a job asks for.
func (j *Job) wants(r *record, w *rawJob) {
	req, ok := parseTRES(r.text("tres_req_str", w.TRESReq))
	if !ok {
		r.fail("tres_req_str", quote(r.text("tres_req_str", w.TRESReq)), "want name=amount with commas between")
	}
	// While a job waits, node_count is the most that it may get where it gave a range, and the request says the least.
	count := r.count("node_count", w.NodeCount, maxNodes)
	j.MinNodes = int(max(count, 1))
	if j.State == Pending && req.node > 0 && req.node < count {
		j.MinNodes = int(req.node)
	}
	j.MaxNodes = int(max(r.count("max_nodes", w.MaxNodes, 1<<32-1), int64(j.MinNodes)))
	if j.MaxNodes > maxNodes || j.State != Pending {
		j.MaxNodes = j.MinNodes
	}
	j.CPUs = max(r.count("cpus", w.CPUs, maxCount), req.cpu)
	j.memory(r, w)
	j.devices(r, w, &req)
	j.Exclusive = exclusive(r.text("shared", w.Shared)) || r.flag("exclusive", w.Exclusive)
	j.Features = r.text("features", w.Features)
	j.Require = r.nodes("required_nodes", w.Required)
	j.Exclude = r.nodes("excluded_nodes", w.Excluded)
	j.Switches = int(max(r.count("minimum_switches", w.Switches, maxCount), r.count("required_switches", w.RequiredSwitch, maxCount)))
}

func exclusive(shared string) bool {
	return strings.EqualFold(shared, "none") || strings.EqualFold(shared, "exclusive")
}

func (j *Job) memory(r *record, w *rawJob) {
	perNode := r.count("memory_per_node", w.MemoryPerNode, maxMegabyte)
	perCPU := r.count("memory_per_cpu", w.MemoryPerCPU, maxMegabyte)
	j.NodeMemory = lockstep.MiB.Mul(perNode)
	if perNode == 0 && perCPU > 0 {
		j.NodeMemory = lockstep.MiB.Mul(perCPU).Mul((j.CPUs + int64(j.MinNodes) - 1) / int64(j.MinNodes))
	}
}

// devices reads how many devices a job wants. Slurm knows five ways to say so.
func (j *Job) devices(r *record, w *rawJob, req *tres) {
	read := func(field string, raw json.RawMessage) int64 {
		text := r.text(field, raw)
		list, ok := parseGRES(text)
		if !ok {
			r.fail(field, quote(text), "want name:kind:count with commas between")
		}
		n, kind, _, kinds := gpus(list)
		if n > maxCount {
			r.fail(field, quote(text), "is too many")
			n = 0
		}
		if kinds == 1 && kind != "" {
			j.GPUKind = kind
		}
		return n
	}
	node := read("tres_per_node", w.TRESPerNode)
	job := read("tres_per_job", w.TRESPerJob)
	task := read("tres_per_task", w.TRESPerTask)
	socket := read("tres_per_socket", w.TRESPerSocket)
	switch {
	case node > 0:
		j.NodeGPUs, j.GPUs = node, node*int64(j.MinNodes)
	case job > 0:
		j.GPUs = job
	case task > 0:
		j.GPUs = task * max(r.count("tasks", w.Tasks, maxCount), 1)
	case req.gpu > 0:
		j.GPUs = req.gpu
	case socket > 0:
		j.GPUs = socket * int64(j.MinNodes) // of one socket each
	}
	if j.GPUKind == "" {
		j.GPUKind = req.kind
	}
	if j.GPUs > maxCount {
		r.fail("tres_req_str", strconv.FormatInt(j.GPUs, 10), "is too many devices")
	}
}

// nodes reads a host list.
func (r *record) nodes(field string, raw json.RawMessage) []string {
	s := r.text(field, raw)
	if s == "" || s == "None assigned" {
		return nil
	}
	names, err := slurm.Expand(s)
	if err != nil {
		r.fail(field, quote(s), "want a host list")
		return nil
	}
	return names
}
