package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// entry is one gang of the plan, and the job or array that it belongs to.
type entry struct {
	gang  *lockstep.Gang
	row   *Row // of one that waits
	job   *Job // the first of a heterogeneous job
	plan  *lockstep.Plan
	start time.Time // since when it runs
	needs needs
	over  bool
}

// name is the ID of a gang: numbers are padded, since ties are broken by ID and lower numbers came first.
func name(j *Job, task int) lockstep.JobID {
	id := j.ID
	if j.Het != 0 {
		id = j.Het
	}
	return lockstep.JobID(fmt.Sprintf("%010d:%06d", id, task))
}

// refuse says why a job cannot be planned.
func refuse(j *Job, field, value, reason string) *lockstep.Error {
	return fault(lockstep.ErrInvalid, "plan", "job "+j.String()+"."+field, value, reason)
}

// check refuses numbers that no reader lets through: a View may be made by hand.
func (j *Job) check() *lockstep.Error {
	for _, x := range []struct {
		field     string
		n, lo, hi int64
	}{
		{"node_count", int64(j.MinNodes), 1, maxNodes},
		{"max_nodes", int64(j.MaxNodes), int64(j.MinNodes), maxNodes},
		{"cpus", j.CPUs, 0, 1 << 50},
		{"memory_per_node", int64(j.NodeMemory), 0, 1<<63 - 1},
		{"tres_per_node", j.NodeGPUs, 0, maxCount},
		{"tres_req_str", j.GPUs, 0, maxCount},
		{"array_task_string", int64(j.Tasks), 1, maxTasks},
		{"array_max_tasks", int64(j.TaskLimit), 0, maxCount},
		{"het_job_offset", int64(j.HetOffset), 0, maxCount},
		{"time_limit", int64(j.Limit), 0, int64(lockstep.MaxWalltime)},
	} {
		if x.n < x.lo || x.n > x.hi {
			return refuse(j, x.field, strconv.FormatInt(x.n, 10), "want "+strconv.FormatInt(x.lo, 10)+" to "+strconv.FormatInt(x.hi, 10))
		}
	}
	return nil
}

// gang makes the gang of a job that waits; components are all of a heterogeneous job, or one job.
func (c *cluster) gang(components []*Job, task int) (*lockstep.Gang, *lockstep.Error) {
	j := components[0]
	g := &lockstep.Gang{ID: name(j, task), Tenant: c.tenant(j), Walltime: j.Limit, Preemption: lockstep.PreemptNever}
	for i, part := range components {
		roles, spread, err := c.roles(part)
		if err != nil {
			return nil, err
		}
		for k := range roles {
			roles[k].Name = lockstep.RoleName("part" + strconv.Itoa(i) + string(rune('a'+k)))
		}
		g.Roles = append(g.Roles, roles...)
		if spread {
			g.Strategy = lockstep.Spread
		}
		g.Walltime = max(g.Walltime, part.Limit)
	}
	if j.Switches == 1 && c.leaf != "" {
		g.Preferred = c.leaf
	}
	if err := g.Validate(); err != nil {
		return nil, refuse(j, "gang", "", err.Error())
	}
	return g, nil
}

// roles says what the nodes of a job have to offer, a member for each. Devices that do not divide evenly make two
// roles. Spread says that two members would fit on one node, and Slurm would take two nodes.
func (c *cluster) roles(j *Job) (roles []lockstep.Role, spread bool, err *lockstep.Error) {
	if need := len(j.Require); need > 0 && need < j.MinNodes {
		return c.parted(j)
	}
	k := c.classOf(j)
	if k.bad != "" {
		return nil, false, refuse(j, "features", quote(j.Features), "is no expression of features")
	}
	n, most := int64(j.MinNodes), int64(j.MaxNodes)
	if j.NodeGPUs == 0 && k.gpus > 0 {
		n = max(n, (j.GPUs+int64(k.gpus)-1)/int64(k.gpus)) // of a job that left the number of nodes to Slurm
	}
	if !c.cfg.IgnoreCPUs && k.cpus > 0 {
		n = max(n, (j.CPUs+k.cpus-1)/k.cpus)
	}
	if most = max(n, most); n > lockstep.MaxMembers {
		return nil, false, refuse(j, "node_count", strconv.FormatInt(n, 10), "is too many")
	}
	d := c.demand(j, k, n)
	add := func(lo, hi, gpus int64) {
		one := d
		one.GPUs = int(gpus)
		r := lockstep.Role{Min: int(lo), Max: int(min(hi, lockstep.MaxMembers/2)), Demand: one}
		if k.label != "" {
			r.Constraints.Selector = []lockstep.Requirement{{Key: k.label, Operator: lockstep.Exists}}
		}
		roles = append(roles, r)
	}
	switch each, rest := j.GPUs/n, j.GPUs%n; {
	case j.NodeGPUs > lockstep.MaxDevicesPerNode || each > lockstep.MaxDevicesPerNode:
		return nil, false, refuse(j, "gres", strconv.FormatInt(max(j.NodeGPUs, each), 10), "is more devices than a node may have")
	case j.NodeGPUs > 0:
		add(n, most, j.NodeGPUs)
	case rest == 0:
		add(n, n, each)
	default:
		add(rest, rest, each+1)
		add(n-rest, n-rest, each)
	}
	gpus := int64(roles[0].Demand.GPUs)
	roomy := (gpus == 0 || 2*gpus <= int64(k.gpus)) && (d.CPU == 0 || 2*d.CPU <= lockstep.WholeCPU.Mul(k.cpus)) && (d.Memory == 0 || 2*d.Memory <= k.mem)
	return roles, n > 1 && roomy, nil
}

// parted makes roles of their own for the nodes that a job must have, where it wants others as well.
func (c *cluster) parted(j *Job) ([]lockstep.Role, bool, *lockstep.Error) {
	must, rest := *j, *j
	need := len(j.Require)
	must.MinNodes, must.MaxNodes = need, need
	rest.MinNodes, rest.MaxNodes = j.MinNodes-need, max(j.MaxNodes-need, j.MinNodes-need)
	rest.Exclude, rest.Require = append(slices.Clone(j.Exclude), j.Require...), nil
	portion := func(n int64) int64 { return (n*int64(need) + int64(j.MinNodes) - 1) / int64(j.MinNodes) }
	must.GPUs, must.CPUs = portion(j.GPUs), portion(j.CPUs)
	rest.GPUs, rest.CPUs = j.GPUs-must.GPUs, j.CPUs-must.CPUs
	first, _, err := c.roles(&must)
	if err != nil {
		return nil, false, err
	}
	others, _, err := c.roles(&rest)
	return append(first, others...), true, err
}

// demand is what each node has to offer besides devices.
func (c *cluster) demand(j *Job, k *class, n int64) lockstep.Demand {
	var d lockstep.Demand
	if j.GPUKind != "" && j.GPUs > 0 {
		d.Classes = []lockstep.DeviceClass{lockstep.DeviceClass(j.GPUKind)}
	}
	if !c.cfg.IgnoreCPUs {
		d.CPU = lockstep.WholeCPU.Mul((j.CPUs + n - 1) / n)
		if j.Exclusive {
			d.CPU = max(d.CPU, lockstep.WholeCPU.Mul(k.cpus)) // where nodes differ, the smaller ones are passed over
		}
	}
	if !c.cfg.IgnoreMemory {
		d.Memory = j.NodeMemory
	}
	return d
}

// left is what is left of a node while jobs that run are put on it.
type left struct {
	devices lockstep.DeviceSet
	cpu     lockstep.MilliCPU
	memory  lockstep.Bytes
}

func (c *cluster) room() []left {
	out := make([]left, len(c.nodes))
	for i := range out {
		n := c.view.Nodes[i].GPUs
		out[i] = left{devices: firsts(n), cpu: c.nodes[i].CPU, memory: c.nodes[i].Memory}
	}
	return out
}

// firsts are the first n devices of a node.
func firsts(n int) lockstep.DeviceSet {
	if n >= 64 {
		return ^lockstep.DeviceSet(0)
	}
	return 1<<n - 1
}

// take picks n devices of what is left: those wanted, where they are free, and else the lowest.
func (l *left) take(want lockstep.DeviceSet, n int64) (got lockstep.DeviceSet) {
	for _, from := range []lockstep.DeviceSet{want & l.devices, l.devices} {
		for i := range from.All {
			if int64(got.Len()) == n {
				break
			}
			got |= 1 << i
			l.devices &^= 1 << i
		}
	}
	return got
}

// held is what a job holds on one node.
type held struct {
	member lockstep.Member
	demand lockstep.Demand
}

// running makes the plan of a job that holds nodes. What it holds is cut to what its nodes have left, so that a view
// that contradicts itself does no more harm than that; what was cut is a fault.
func (c *cluster) running(j *Job, room []left) (*entry, *lockstep.Error) {
	all, bad := c.seat(j, room)
	if len(all) == 0 {
		return nil, bad
	}
	g := &lockstep.Gang{ID: name(j, max(int(j.Task), 0)), Tenant: c.tenant(j), Walltime: j.Limit}
	if j.Het != 0 { // the components run side by side, each a gang of its own
		g.ID = lockstep.JobID(fmt.Sprintf("%010d:h%05d", j.Het, j.HetOffset))
	}
	for i := range all {
		at := slices.IndexFunc(g.Roles, func(r lockstep.Role) bool { return equal(&r.Demand, &all[i].demand) })
		if at < 0 {
			at = len(g.Roles)
			g.Roles = append(g.Roles, lockstep.Role{Name: lockstep.RoleName("part" + strconv.Itoa(at)), Demand: all[i].demand})
		}
		g.Roles[at].Min++
		all[i].member.Role = int32(at)
	}
	if err := g.Validate(); err != nil {
		for i := range all { // so that it counts as what others use
			l := &room[c.at[all[i].member.Node]]
			l.devices |= all[i].member.Devices
			l.cpu, l.memory = l.cpu.Add(all[i].demand.CPU), l.memory.Add(all[i].demand.Memory)
		}
		return nil, refuse(j, "nodes", strconv.Itoa(len(all)), err.Error())
	}
	slices.SortStableFunc(all, func(a, b held) int { return int(a.member.Role) - int(b.member.Role) })
	p := &lockstep.Plan{Job: g.ID, Gang: g}
	for i := range all {
		p.Members = append(p.Members, all[i].member)
	}
	return &entry{gang: g, job: j, plan: p, start: j.Started}, bad
}

// seat takes what a job holds out of what its nodes have left.
func (c *cluster) seat(j *Job, room []left) (all []held, bad *lockstep.Error) {
	note := func(field, value, reason string) {
		if bad == nil {
			bad = refuse(j, field, value, reason)
		}
	}
	for _, p := range j.On {
		i, ok := c.at[p.Node]
		if !ok {
			note("nodes", quote(p.Node), "is not among the nodes")
			continue
		}
		if p.GPUs < 0 || p.CPUs < 0 || p.Memory < 0 {
			note("nodes", quote(p.Node), "has less than nothing there")
			p.GPUs, p.CPUs, p.Memory = max(p.GPUs, 0), max(p.CPUs, 0), max(p.Memory, 0)
		}
		l := &room[i]
		set := l.take(p.Devices, p.GPUs)
		if int64(set.Len()) < p.GPUs || p.Devices&^set != 0 {
			note("gres_detail", p.Devices.String(), "are not free on "+string(p.Node)+": others hold them")
		}
		d := lockstep.Demand{GPUs: set.Len(), CPU: min(lockstep.WholeCPU.Mul(p.CPUs), l.cpu), Memory: min(p.Memory, l.memory)}
		l.cpu, l.memory = l.cpu.Sub(d.CPU), l.memory.Sub(d.Memory)
		all = append(all, held{lockstep.Member{Node: p.Node, Devices: set}, d})
	}
	return all, bad
}

func equal(a, b *lockstep.Demand) bool {
	return a.GPUs == b.GPUs && a.CPU == b.CPU && a.Memory == b.Memory
}

// others makes plans of what is in use on nodes by none of the jobs that the view shows: jobs of others that Slurm
// hides, or of another kind of sharing.
func (c *cluster) others(room []left) (plans []*lockstep.Plan) {
	for i := range c.view.Nodes {
		n, l := &c.view.Nodes[i], &room[i]
		held := firsts(n.GPUs) &^ l.devices
		count := int64(max(n.Used-held.Len(), 0))
		d := lockstep.Demand{}
		set := l.take(n.InUse&^held, count)
		d.GPUs = set.Len()
		if cpu := lockstep.WholeCPU.Mul(n.UsedCPUs); c.nodes[i].CPU > 0 {
			d.CPU = max(min(cpu.Sub(c.nodes[i].CPU.Sub(l.cpu)), l.cpu), 0)
		}
		if c.nodes[i].Memory > 0 {
			d.Memory = max(min(n.UsedMemory.Sub(c.nodes[i].Memory.Sub(l.memory)), l.memory), 0)
		}
		if d.GPUs == 0 && d.CPU == 0 && d.Memory == 0 {
			continue
		}
		l.cpu, l.memory = l.cpu.Sub(d.CPU), l.memory.Sub(d.Memory)
		g := &lockstep.Gang{ID: lockstep.JobID("others@" + string(n.ID)), Roles: []lockstep.Role{{Min: 1, Demand: d}}}
		if g.Validate() != nil {
			continue
		}
		plans = append(plans, &lockstep.Plan{Job: g.ID, Gang: g, Members: []lockstep.Member{{Node: n.ID, Devices: set}}})
	}
	return plans
}
