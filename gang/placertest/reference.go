package placertest

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Rack is the one level that a Reference knows beside lockstep.LevelNode.
const Rack lockstep.Level = "rack"

// Reference is a gang.Placer and gang.WhatIf over racks of equal nodes. It counts
// devices and, where nodes have some, processor; everything else is unlimited.
type Reference struct {
	perRack  int
	devices  int
	cpu      lockstep.MilliCPU
	now      state
	issued   lockstep.Version
	marks    []saved
	lastMark lockstep.Mark
	index    map[lockstep.NodeID]int
	names    []lockstep.NodeID

	work    state // what a Fit has left so far
	before  state // what it had before it tried a domain
	domains []domain
	allowed []bool
	members []lockstep.Member // with spares behind
	ranks   int               // how many of them are members
}

type state struct {
	free    []lockstep.DeviceSet
	cpu     []lockstep.MilliCPU
	plans   map[lockstep.JobID]*lockstep.Plan
	version lockstep.Version
}

type saved struct {
	mark lockstep.Mark
	state
}

func (s *state) clone() state {
	return state{free: slices.Clone(s.free), cpu: slices.Clone(s.cpu), plans: maps.Clone(s.plans), version: s.version}
}

// NewReference returns an empty cluster of racks with perRack nodes each, named
// n0, n1 and so on, of devices devices each. With cpu above zero nodes have that
// much processor, else as much as anybody asks for.
func NewReference(racks, perRack, devices int, cpu lockstep.MilliCPU) *Reference {
	n := racks * perRack
	p := &Reference{perRack: perRack, devices: devices, cpu: cpu, issued: 1, index: make(map[lockstep.NodeID]int, n)}
	p.now = state{free: make([]lockstep.DeviceSet, n), cpu: make([]lockstep.MilliCPU, n), plans: make(map[lockstep.JobID]*lockstep.Plan), version: 1}
	p.work = state{free: make([]lockstep.DeviceSet, n), cpu: make([]lockstep.MilliCPU, n)}
	p.allowed = make([]bool, n)
	for i := range n {
		p.now.free[i] = full(devices)
		p.now.cpu[i] = cpu
		p.names = append(p.names, lockstep.NodeID("n"+strconv.Itoa(i)))
		p.index[p.names[i]] = i
	}
	return p
}

func full(devices int) lockstep.DeviceSet {
	if devices >= 64 {
		return ^lockstep.DeviceSet(0)
	}
	return 1<<uint(devices) - 1
}

// Nodes returns the names of all nodes. The slice is the caller's.
func (p *Reference) Nodes() []lockstep.NodeID { return slices.Clone(p.names) }

// Free returns the free devices of node.
func (p *Reference) Free(node lockstep.NodeID) lockstep.DeviceSet { return p.now.free[p.index[node]] }

// Plan returns the plan applied for job, or nil. It must not be changed.
func (p *Reference) Plan(job lockstep.JobID) *lockstep.Plan { return p.now.plans[job] }

// Jobs returns the jobs that have plans applied, sorted.
func (p *Reference) Jobs() []lockstep.JobID { return slices.Sorted(maps.Keys(p.now.plans)) }

// Clone returns a copy of p that shares nothing with it that changes; open
// marks are not copied.
func (p *Reference) Clone() *Reference {
	c := NewReference(len(p.names)/max(p.perRack, 1), p.perRack, p.devices, p.cpu)
	c.now, c.issued, c.lastMark = p.now.clone(), p.issued, p.lastMark
	return c
}

// Mark implements gang.WhatIf.
func (p *Reference) Mark() lockstep.Mark {
	p.lastMark++
	p.marks = append(p.marks, saved{mark: p.lastMark, state: p.now.clone()})
	return p.lastMark
}

// Rollback implements gang.WhatIf.
func (p *Reference) Rollback(m lockstep.Mark) error {
	i := slices.IndexFunc(p.marks, func(s saved) bool { return s.mark == m })
	if i < 0 {
		return fault(lockstep.ErrStale, "rollback", "mark", strconv.FormatUint(uint64(m), 10))
	}
	p.now = p.marks[i].state
	p.marks = p.marks[:i]
	return nil
}

// Apply implements gang.Placer.
func (p *Reference) Apply(plan *lockstep.Plan) error {
	if plan.Version != p.now.version {
		return fault(lockstep.ErrStale, "apply", "Version", strconv.FormatUint(uint64(plan.Version), 10))
	}
	if p.now.plans[plan.Job] != nil {
		return fault(lockstep.ErrDuplicate, "apply", "Job", string(plan.Job))
	}
	for i, m := range room(plan) {
		n, ok := p.index[m.Node]
		if !ok || m.Devices&^p.now.free[n] != 0 {
			p.undo(plan, i)
			return fault(lockstep.ErrConflict, "apply", "Members["+strconv.Itoa(i)+"]", string(m.Node))
		}
		p.now.free[n] &^= m.Devices
		p.now.cpu[n] -= plan.Gang.Roles[m.Role].Demand.CPU
	}
	p.now.plans[plan.Job] = plan.Clone()
	p.bump()
	return nil
}

// room returns the members of plan, then its spares.
func room(plan *lockstep.Plan) []lockstep.Member { return slices.Concat(plan.Members, plan.Spares) }

func (p *Reference) undo(plan *lockstep.Plan, members int) {
	for _, m := range room(plan)[:members] {
		n := p.index[m.Node]
		p.now.free[n] |= m.Devices
		p.now.cpu[n] += plan.Gang.Roles[m.Role].Demand.CPU
	}
}

// Release implements gang.Placer.
func (p *Reference) Release(job lockstep.JobID) error {
	plan := p.now.plans[job]
	if plan == nil {
		return fault(lockstep.ErrUnknown, "release", "job", string(job))
	}
	p.undo(plan, len(plan.Members)+len(plan.Spares))
	delete(p.now.plans, job)
	p.bump()
	return nil
}

// bump issues a version that no state had, not even one that was rolled back.
func (p *Reference) bump() {
	p.issued++
	p.now.version = p.issued
}

// Fit implements gang.Placer. It packs: the domain with least room that
// suffices, then nodes and devices from the lowest.
func (p *Reference) Fit(r *lockstep.Request, out *lockstep.Plan) (lockstep.Verdict, error) {
	least, most, err := counts(r)
	if err != nil {
		return lockstep.Verdict{}, err
	}
	v := lockstep.Verdict{Want: sum(most)}
	p.prepare(r)
	got := p.search(r, most)
	if !got {
		if got = p.search(r, least); got {
			p.extend(r, slices.Clone(least), most)
		}
	}
	if !got {
		v.Reason = lockstep.ReasonBusy
		if !p.everFits(r, least) {
			v.Reason = lockstep.ReasonCapacity
		}
		return v, nil
	}
	out.Reset()
	out.Job, out.Gang, out.Version = r.Gang.ID, r.Gang, p.now.version
	out.Members = append(out.Members, p.members[:p.ranks]...)
	out.Spares = append(out.Spares, p.members[p.ranks:]...)
	v.Feasible, v.Fit = true, len(out.Members)
	return v, nil
}

func counts(r *lockstep.Request) (least, most []int, err error) {
	for _, l := range []lockstep.Level{r.Gang.Required, r.Gang.Preferred} {
		if l != "" && l != Rack && l != lockstep.LevelNode {
			return nil, nil, fault(lockstep.ErrInvalid, "fit", "Gang.Required", string(l))
		}
	}
	least, most = r.Min, r.Max
	for i := range r.Gang.Roles {
		if r.Min == nil {
			least = append(least, r.Gang.Roles[i].Min)
		}
		if r.Max == nil {
			most = append(most, r.Gang.Roles[i].Limit())
		}
	}
	return least, most, nil
}

func sum(counts []int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// prepare works out what r may use.
func (p *Reference) prepare(r *lockstep.Request) {
	copy(p.work.free, p.now.free)
	copy(p.work.cpu, p.now.cpu)
	for i := range p.allowed {
		p.allowed[i] = true
	}
	for _, id := range r.Exclude {
		if n, ok := p.index[id]; ok {
			p.allowed[n] = false
		}
	}
	for i := range r.Busy {
		if n, ok := p.index[r.Busy[i].Node]; ok {
			p.work.free[n] &^= r.Busy[i].Devices
			p.work.cpu[n] -= r.Busy[i].CPU
		}
	}
}

// everFits reports whether r would fit the empty cluster, all nodes allowed.
func (p *Reference) everFits(r *lockstep.Request, least []int) bool {
	for n := range p.work.free {
		p.work.free[n], p.work.cpu[n], p.allowed[n] = full(p.devices), p.cpu, true
	}
	return p.search(&lockstep.Request{Gang: r.Gang}, least)
}

// extend adds members to those that fit, role by role.
func (p *Reference) extend(r *lockstep.Request, have, most []int) {
	best, ranks := slices.Clone(p.members), p.ranks
	for i := range have {
		for have[i] < most[i] {
			have[i] += max(r.Gang.Roles[i].Inner.Size, 1)
			if !p.search(r, have) {
				have[i] -= max(r.Gang.Roles[i].Inner.Size, 1)
				break
			}
			best, ranks = append(best[:0], p.members...), p.ranks
		}
	}
	p.members, p.ranks = append(p.members[:0], best...), ranks
}

// domain is a run of nodes: its first, its free devices, and minus the members
// that prefer it.
type domain struct{ first, free, prefer int }

// search tries the domains of the level required, that of r.Prefer first, then
// the fullest, and leaves what it finds in p.members.
func (p *Reference) search(r *lockstep.Request, counts []int) bool {
	size := len(p.names)
	switch r.Gang.Required {
	case Rack:
		size = p.perRack
	case lockstep.LevelNode:
		size = 1
	}
	domains := p.domains[:0]
	for first := 0; first < len(p.names); first += size {
		d := domain{first: first}
		for n := first; n < first+size; n++ {
			d.free += p.work.free[n].Len()
		}
		if r.Prefer != nil {
			for i := range r.Prefer.Members {
				if n := p.index[r.Prefer.Members[i].Node]; n >= first && n < first+size {
					d.prefer--
				}
			}
		}
		domains = append(domains, d)
	}
	p.domains = domains
	slices.SortStableFunc(domains, func(a, b domain) int {
		return cmp.Or(cmp.Compare(a.prefer, b.prefer), cmp.Compare(a.free, b.free))
	})
	for _, d := range domains {
		if p.place(r, counts, d.first, d.first+size) {
			return true
		}
	}
	return false
}

// place puts counts members on nodes first to end, preferred places first.
func (p *Reference) place(r *lockstep.Request, counts []int, first, end int) bool {
	slots := p.members[:0]
	for i := range counts {
		for range counts[i] {
			slots = append(slots, lockstep.Member{Role: int32(i)})
		}
	}
	p.ranks = len(slots)
	for i := range counts {
		for range r.Gang.Roles[i].Spares {
			slots = append(slots, lockstep.Member{Role: int32(i)})
		}
	}
	p.members = slots
	p.before.free = append(p.before.free[:0], p.work.free...)
	p.before.cpu = append(p.before.cpu[:0], p.work.cpu...)
	saveFree, saveCPU := p.before.free, p.before.cpu
	defer func() {
		copy(p.work.free, saveFree)
		copy(p.work.cpu, saveCPU)
	}()
	p.stay(r, first, end)
	if p.complete(r.Gang, 0, first, end) {
		return true
	}
	copy(p.work.free, saveFree)
	copy(p.work.cpu, saveCPU)
	for i := range p.members {
		p.members[i].Node, p.members[i].Devices = "", 0
	}
	return p.complete(r.Gang, 0, first, end)
}

// stay puts members and spares where r.Prefer has them, as far as that is free.
func (p *Reference) stay(r *lockstep.Request, first, end int) {
	if r.Prefer == nil {
		return
	}
	p.stayAt(r, 0, p.ranks, r.Prefer.Members, first, end)
	p.stayAt(r, p.ranks, len(p.members), r.Prefer.Spares, first, end)
}

// stayAt puts p.members[from:to] where they are in prefer.
func (p *Reference) stayAt(r *lockstep.Request, from, to int, prefer []lockstep.Member, first, end int) {
	next := 0
	for i := from; i < to; i++ {
		role := p.members[i].Role
		for ; next < len(prefer); next++ {
			m := &prefer[next]
			n, known := p.index[m.Node]
			if m.Role > role {
				break
			}
			if m.Role == role && known && n >= first && n < end && p.allowed[n] && m.Devices&^p.work.free[n] == 0 && p.hasCPU(r.Gang, role, n) {
				p.put(r.Gang, i, n, m.Devices)
				next++
				break
			}
		}
	}
}

func (p *Reference) hasCPU(g *lockstep.Gang, role int32, n int) bool {
	return p.cpu == 0 || g.Roles[role].Demand.CPU <= p.work.cpu[n]
}

func (p *Reference) put(g *lockstep.Gang, i, n int, devices lockstep.DeviceSet) {
	p.members[i].Node, p.members[i].Devices = p.names[n], devices
	p.work.free[n] &^= devices
	p.work.cpu[n] -= g.Roles[p.members[i].Role].Demand.CPU
}

// complete places the members from i on that have no place, trying every node
// for each where they differ, since a first choice may spoil a later one.
func (p *Reference) complete(g *lockstep.Gang, i, first, end int) bool {
	for i < len(p.members) && p.members[i].Node != "" {
		i++
	}
	if i == len(p.members) {
		return true
	}
	role := p.members[i].Role
	want := g.Roles[role].Demand.GPUs
	inner := g.Roles[role].Inner.Size
	if i >= p.ranks {
		inner = 0 // spares belong to no group
	}
	alike := len(g.Roles) == 1 && inner < 2
	for n := first; n < end; n++ {
		if !p.allowed[n] || p.work.free[n].Len() < want || !p.hasCPU(g, role, n) || !p.groupAllows(i, inner, n) {
			continue
		}
		devices := lowest(p.work.free[n], want)
		p.put(g, i, n, devices)
		if p.complete(g, i+1, first, end) {
			return true
		}
		p.members[i].Node, p.members[i].Devices = "", 0
		p.work.free[n] |= devices
		p.work.cpu[n] += g.Roles[role].Demand.CPU
		if alike {
			return false // where the first fit does not lead on, none does
		}
	}
	return false
}

// groupAllows reports whether member i may be on node n as far as its group is
// concerned, which must stay on one node.
func (p *Reference) groupAllows(i, size, n int) bool {
	if size < 2 {
		return true
	}
	start := i
	for start > 0 && p.members[start-1].Role == p.members[i].Role {
		start--
	}
	head := start + (i-start)/size*size
	return head == i || p.members[head].Node == p.names[n]
}

// lowest returns the lowest count devices of s.
func lowest(s lockstep.DeviceSet, count int) lockstep.DeviceSet {
	var out lockstep.DeviceSet
	for range count {
		low := lockstep.DeviceSet(1) << uint(bits.TrailingZeros64(uint64(s)))
		out |= low
		s &^= low
	}
	return out
}

func fault(kind error, op, field, value string) error {
	return &lockstep.Error{Kind: kind, Op: "placertest: " + op, Field: field, Value: value}
}
