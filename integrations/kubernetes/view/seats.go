package view

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/sharing"
)

// Seats numbers the devices of pods that are bound already, since Kubernetes says on
// which node a pod is but not which devices it has: the lowest that are not taken, in
// the order of calls and ranks. A host that adopts gangs keeps it beside its placer,
// and tells it of all that the placer gives out. Not safe for concurrent use; the
// caller serializes calls.
type Seats struct {
	nodes      map[lockstep.NodeID]*bench
	jobs       map[lockstep.JobID][]lockstep.NodeID // where each job holds something, each node once
	geometries map[string]*sharing.Geometry
	known      func(p *Pod) (devices lockstep.DeviceSet, start int32, ok bool)
}

// bench is one node.
type bench struct {
	there       bool // in the cluster
	devices     int
	memory      lockstep.Bytes
	partitioned lockstep.DeviceSet
	geometry    *sharing.Geometry
	held        []holding
}

// holding is what one member holds.
type holding struct {
	job     lockstep.JobID
	devices lockstep.DeviceSet
	demand  lockstep.Demand
	start   int32
}

// NewSeats returns the seats of a cluster, all free. Where known is not nil, it tells
// of pods whose devices are known after all, such as by the allocation of a claim,
// which they are; it must not call back.
func NewSeats(cl *Cluster, known func(p *Pod) (devices lockstep.DeviceSet, start int32, ok bool)) *Seats {
	t := &Seats{
		nodes: make(map[lockstep.NodeID]*bench), jobs: make(map[lockstep.JobID][]lockstep.NodeID),
		geometries: make(map[string]*sharing.Geometry), known: known,
	}
	t.Rebase(cl)
	return t
}

// Rebase goes over to another cluster; what is held stays so. O(nodes).
func (t *Seats) Rebase(cl *Cluster) {
	for id, b := range t.nodes { // each by itself
		if b.there = false; len(b.held) == 0 {
			delete(t.nodes, id)
		}
	}
	for i := range cl.Nodes {
		n := &cl.Nodes[i]
		b := t.bench(n.ID)
		b.there, b.memory, b.partitioned, b.geometry = true, n.GPUMemory, n.Partitioned, nil
		if slot, ok := cl.Tree.Slot(n.ID); ok {
			b.devices = cl.Tree.Shape(slot).Devices()
		}
		if n.MIG != "" {
			b.geometry = t.geometry(n.MIG, cl.Layouts)
		}
	}
}

func (t *Seats) geometry(name string, layouts map[string]sharing.GeometryConfig) *sharing.Geometry {
	if g, ok := t.geometries[name]; ok {
		return g
	}
	cfg, ok := layouts[name]
	if !ok {
		cfg, _ = sharing.ModelConfig(name)
	}
	g, err := sharing.NewGeometry(cfg)
	if err != nil {
		g = nil // the placer refuses it too
	}
	t.geometries[name] = g
	return g
}

func (t *Seats) bench(id lockstep.NodeID) *bench {
	b := t.nodes[id]
	if b == nil {
		b = &bench{}
		t.nodes[id] = b
	}
	return b
}

// Observe returns the plan of the pods of s that are bound and did not end, and of
// those that are leaving, and holds their devices in the place of what the gang held
// before. Its Gang is s.Gang where that could have made it, else one of exactly those
// members. A gang that holds nothing has a plan without members.
//
// It returns lockstep.ErrConflict where a node has too few devices left, and
// lockstep.ErrUnknown where the node is not there; then the gang holds nothing.
// O(pods · members of their nodes).
func (t *Seats) Observe(s *State) (*lockstep.Plan, error) {
	t.Release(s.ID)
	gang, members := relics(s)
	plan := &lockstep.Plan{Job: s.ID, Gang: gang}
	for _, m := range members {
		b := t.nodes[m.pod.Node]
		if b == nil || !b.there {
			t.Release(s.ID)
			return nil, refuseSeat(lockstep.ErrUnknown, s, m.pod, "the node is not there")
		}
		h := holding{job: s.ID, demand: *m.demand}
		if !t.seat(b, m.pod, &h) {
			t.Release(s.ID)
			return nil, refuseSeat(lockstep.ErrConflict, s, m.pod, "the node has too few devices left for "+m.demand.Resources().String())
		}
		t.hold(m.pod.Node, b, h)
		plan.Members = append(plan.Members, lockstep.Member{Role: m.role, Node: m.pod.Node, Devices: h.devices, Start: h.start})
	}
	return plan, nil
}

func refuseSeat(kind error, s *State, p *Pod, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "view: observe " + errtext.Quote(s.ID), Field: "Pods[" + p.Name + "].Node", Value: errtext.Quote(p.Node), Reason: reason}
}

// Hold notes what a plan that a placer made takes, spares included, in the place of
// what its job held. It looks at nothing: the placer did.
func (t *Seats) Hold(p *lockstep.Plan) {
	t.Release(p.Job)
	for _, list := range [][]lockstep.Member{p.Members, p.Spares} {
		for i := range list {
			m := &list[i]
			if m.Devices == 0 || p.Gang == nil || int(m.Role) >= len(p.Gang.Roles) {
				continue
			}
			t.hold(m.Node, t.bench(m.Node), holding{job: p.Job, devices: m.Devices, demand: p.Gang.Roles[m.Role].Demand, start: m.Start})
		}
	}
}

func (t *Seats) hold(node lockstep.NodeID, b *bench, h holding) {
	if h.devices == 0 {
		return
	}
	b.held = append(b.held, h)
	if nodes := t.jobs[h.job]; !slices.Contains(nodes, node) {
		t.jobs[h.job] = append(nodes, node)
	}
}

// Release gives back what a job holds, if anything.
func (t *Seats) Release(job lockstep.JobID) {
	for _, node := range t.jobs[job] {
		b := t.nodes[node]
		if b.held = slices.DeleteFunc(b.held, func(h holding) bool { return h.job == job }); len(b.held) == 0 && !b.there {
			delete(t.nodes, node)
		}
	}
	delete(t.jobs, job)
}

// seat chooses the devices of h, lowest first.
func (t *Seats) seat(b *bench, p *Pod, h *holding) bool {
	d := &h.demand
	if d.GPUs == 0 {
		return true
	}
	if t.known != nil {
		if set, start, ok := t.known(p); ok && set.Len() == d.GPUs {
			h.devices, h.start = set, start
			return true
		}
	}
	if d.Profile != "" {
		return b.instance(h)
	}
	for i := 0; i < b.devices && h.devices.Len() < d.GPUs; i++ {
		if b.fits(i, d) {
			h.devices |= 1 << i
		}
	}
	return h.devices.Len() == d.GPUs
}

// fits reports whether device i has room for a member with demand d.
func (b *bench) fits(i int, d *lockstep.Demand) bool {
	if b.partitioned.Has(i) {
		return false
	}
	share, memory := d.DeviceShare(), d.GPUMemory
	for k := range b.held {
		h := &b.held[k]
		if !h.devices.Has(i) {
			continue
		}
		if d.Share == 0 || h.demand.Share == 0 {
			return false
		}
		share, memory = share.Add(h.demand.Share), memory.Add(h.demand.GPUMemory)
	}
	return share <= lockstep.WholeGPU && (d.Share == 0 || b.memory == 0 || memory <= b.memory)
}

// instance finds a place for a MIG instance: on the lowest device that has one.
func (b *bench) instance(h *holding) bool {
	if b.geometry == nil {
		return false
	}
	profile, ok := b.geometry.Lookup(h.demand.Profile)
	if !ok {
		return false
	}
	for i := range b.devices {
		if b.partitioned != 0 && !b.partitioned.Has(i) {
			continue
		}
		held, whole := b.occupied(i)
		if whole {
			continue
		}
		if start, ok := b.geometry.BestStart(held, profile); ok {
			h.devices, h.start = 1<<i, int32(start)
			return true
		}
	}
	return false
}

// occupied returns the slices of device i that instances hold; whole says that it is
// held in another way.
func (b *bench) occupied(i int) (o sharing.Occupancy, whole bool) {
	for k := range b.held {
		h := &b.held[k]
		if !h.devices.Has(i) {
			continue
		}
		p, ok := b.geometry.Lookup(h.demand.Profile)
		if !ok {
			return 0, true
		}
		if after, ok := b.geometry.Take(o, p, int(h.start)); ok {
			o = after
		}
	}
	return o, false
}

// relicMember is a member that is there.
type relicMember struct {
	pod    *Pod
	role   int32
	demand *lockstep.Demand
}

// relics returns the members of s that hold something, and a gang that they can be.
func relics(s *State) (*lockstep.Gang, []relicMember) {
	var all []relicMember
	for _, list := range [][]Pod{s.Pods, s.Leaving} {
		for i := range list {
			p := &list[i]
			if p.Node == "" || p.Ended {
				continue
			}
			takes := p.Takes()
			for k := range takes {
				all = append(all, relicMember{p, p.Role, &takes[k]})
			}
		}
	}
	if s.Gang != nil && len(s.Leaving) == 0 && suits(s.Gang, all) {
		return s.Gang, all
	}
	return relicGang(s, all)
}

// suits reports whether g could have been placed as all, who come role by role.
func suits(g *lockstep.Gang, all []relicMember) bool {
	counts := make([]int, len(g.Roles))
	for i := range all {
		m := &all[i]
		if i > 0 && all[i-1].pod == m.pod || int(m.role) >= len(g.Roles) || !equalDemand(&g.Roles[m.role].Demand, m.demand) {
			return false
		}
		counts[m.role]++
	}
	for r, n := range counts {
		role := &g.Roles[r]
		if n < role.Min || n > role.Limit() || role.Inner.Size > 1 && n%role.Inner.Size != 0 {
			return false
		}
	}
	return true
}

// relicGang makes a gang of exactly the members that are there, with a role for each
// demand in the order in which they come.
func relicGang(s *State, all []relicMember) (*lockstep.Gang, []relicMember) {
	space := ""
	if len(all) > 0 {
		space = all[0].pod.Namespace
	}
	g := &lockstep.Gang{ID: s.ID, Tenant: lockstep.TenantID(space)}
	if s.Gang != nil {
		*g = *s.Gang
		g.Required, g.Preferred, g.Canary, g.Constraints = "", "", 0, lockstep.Constraints{}
	}
	g.Roles = nil
	for i := range all {
		m := &all[i]
		at := slices.IndexFunc(g.Roles, func(r lockstep.Role) bool { return equalDemand(&r.Demand, m.demand) })
		if at < 0 {
			at = len(g.Roles)
			g.Roles = append(g.Roles, lockstep.Role{Name: lockstep.RoleName("part-" + strconv.Itoa(at)), Demand: *m.demand})
		}
		g.Roles[at].Min++
		m.role = int32(at)
	}
	slices.SortStableFunc(all, func(a, b relicMember) int { return cmp.Compare(a.role, b.role) })
	return g, all
}
