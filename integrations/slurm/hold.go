package slurm

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// rawResources is job_resources, whose form changed twice.
type rawResources struct {
	Nodes     json.RawMessage `json:"nodes"`           // a host list, or since 24.05 an object
	Allocated json.RawMessage `json:"allocated_nodes"` // until then
}

type rawAllocation struct {
	Name     json.RawMessage `json:"name"`
	NodeName json.RawMessage `json:"nodename"`

	MemoryAllocated json.RawMessage `json:"memory_allocated"`
	Memory          *struct {
		Allocated json.RawMessage `json:"allocated"`
	} `json:"memory"`
	CPUsUsed json.RawMessage `json:"cpus_used"`
	CPUs     *struct {
		Count json.RawMessage `json:"count"`
	} `json:"cpus"`
	Sockets json.RawMessage `json:"sockets"`
}

// holds reads where a job sits. Devices come by node, in the order of the host list.
func (j *Job) holds(r *record, w *rawJob) {
	names := r.nodes("nodes", w.Nodes)
	if len(names) == 0 {
		r.fail("nodes", "", "is not there, of a job that runs")
		return
	}
	details := r.list("gres_detail", w.GRESDetail)
	at := make(map[string]int, len(names))
	j.On = make([]Part, len(names))
	for i, n := range names {
		id := lockstep.NodeID(n)
		if _, twice := at[n]; twice || id.Validate() != nil {
			r.fail("nodes", quote(n), "is no name of a node, or is there twice")
			return
		}
		at[n] = i
		j.On[i] = Part{Node: id, CPUs: j.CPUs / int64(len(names))}
		if i < len(details) {
			list, ok := parseGRES(details[i])
			if !ok {
				r.fail("gres_detail", quote(details[i]), "want name:kind:count(IDX:…)")
			}
			j.On[i].GPUs, _, j.On[i].Devices, _ = gpus(list)
		} else {
			j.On[i].GPUs = j.share(i, len(names))
		}
		if n := j.On[i].Devices.Len(); n > 0 {
			j.On[i].GPUs = int64(n)
		}
	}
	j.MinNodes, j.MaxNodes = len(names), len(names)
	for _, a := range r.allocations(w.JobResources) {
		j.allocated(r, &a, at)
	}
}

// share is how many devices the i-th of n nodes has of a job that does not tell.
func (j *Job) share(i, n int) int64 {
	if j.NodeGPUs > 0 {
		return j.NodeGPUs
	}
	q, rest := j.GPUs/int64(n), j.GPUs%int64(n)
	if int64(i) < rest {
		q++
	}
	return q
}

// allocations finds the list of nodes in job_resources. It is optional, and what cannot be read there is not used.
func (r *record) allocations(raw json.RawMessage) []rawAllocation {
	if isNull(raw) {
		return nil
	}
	var res rawResources
	if json.Unmarshal(raw, &res) != nil {
		return nil
	}
	var list []rawAllocation
	if !isNull(res.Allocated) {
		_ = json.Unmarshal(res.Allocated, &list)
		return list
	}
	var in struct {
		Allocation []rawAllocation `json:"allocation"`
	}
	if json.Unmarshal(res.Nodes, &in) != nil {
		return nil
	}
	return in.Allocation
}

func (j *Job) allocated(r *record, a *rawAllocation, at map[string]int) {
	name := r.text("job_resources.name", a.Name)
	if name == "" {
		name = r.text("job_resources.nodename", a.NodeName)
	}
	i, ok := at[name]
	if !ok {
		return
	}
	memory := a.MemoryAllocated
	if a.Memory != nil {
		memory = a.Memory.Allocated
	}
	j.On[i].Memory = lockstep.MiB.Mul(r.count("job_resources.memory", memory, maxMegabyte))
	var cpus int64
	if a.CPUs != nil {
		cpus = r.count("job_resources.cpus", a.CPUs.Count, maxCount)
	} else {
		cpus = max(r.count("job_resources.cpus_used", a.CPUsUsed, maxCount), coresOf(a.Sockets))
	}
	if cpus > 0 {
		j.On[i].CPUs = cpus
	}
}

// coresOf counts the cores that old versions list by socket: {"0": {"cores": {"0": "allocated"}}}.
func coresOf(raw json.RawMessage) (n int64) {
	if isNull(raw) {
		return 0
	}
	var sockets map[string]struct {
		Cores map[string]string `json:"cores"`
	}
	if json.Unmarshal(raw, &sockets) != nil {
		return 0
	}
	for _, s := range sockets { // a sum, so order cannot matter
		for _, state := range s.Cores { // likewise
			if strings.HasPrefix(strings.ToLower(state), "allocated") {
				n++
			}
		}
	}
	return n
}

// label names a number in texts.
func label(id uint32) string { return strconv.FormatUint(uint64(id), 10) }
