package quota

import (
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// indexes are the places of what a Demand names; -1 where it is not limited.
type indexes struct {
	gpu, cpu, memory, rdma, slots int
	classes                       map[lockstep.DeviceClass]int
}

func newIndexes(schema *lockstep.Schema) indexes {
	find := func(name lockstep.ResourceName) int {
		if i, ok := schema.Index(name); ok {
			return i
		}
		return -1
	}
	x := indexes{
		gpu: find(lockstep.ResourceGPU), cpu: find(lockstep.ResourceCPU), memory: find(lockstep.ResourceMemory),
		rdma: find(lockstep.ResourceRDMA), slots: find(lockstep.ResourceSlots),
		classes: make(map[lockstep.DeviceClass]int),
	}
	prefix := string(lockstep.ResourceGPUClass("x"))
	prefix = prefix[:len(prefix)-1]
	for i := range schema.Len() {
		if class, ok := strings.CutPrefix(string(schema.Name(i)), prefix); ok {
			x.classes[lockstep.DeviceClass(class)] = i
		}
	}
	return x
}

// need adds what n members with demand d use to v: Demand.Resources, without the map.
func (q *Quota) need(v *lockstep.Vector, d *lockstep.Demand, n int) {
	add := func(i int, each int64) {
		if i >= 0 && each != 0 {
			v[i] = int64(lockstep.MilliGPU(v[i]).Add(lockstep.MilliGPU(each).Mul(int64(n))))
		}
	}
	gpu := int64(d.DeviceShare().Mul(int64(d.GPUs)))
	add(q.index.gpu, gpu)
	if len(d.Classes) == 1 {
		if i, ok := q.index.classes[d.Classes[0]]; ok {
			add(i, gpu)
		}
	}
	add(q.index.cpu, int64(d.CPU))
	add(q.index.memory, int64(d.Memory))
	add(q.index.rdma, int64(d.RDMA))
	add(q.index.slots, 1)
}

// total returns what counts members use, with room for the spares of roles that
// have any, and how many members they are.
func (q *Quota) total(g *lockstep.Gang, counts []int) (v lockstep.Vector, members int) {
	for i := range g.Roles {
		n := count(g, counts, i)
		members += n
		if n > 0 {
			q.need(&v, &g.Roles[i].Demand, n+g.Roles[i].Spares)
		}
	}
	return v, members
}

func count(g *lockstep.Gang, counts []int, role int) int {
	if counts == nil {
		return g.Roles[role].Min
	}
	return counts[role]
}

// fits reports whether counts are counts of g.
func fits(g *lockstep.Gang, counts []int) bool {
	if counts == nil {
		return true
	}
	for _, n := range counts {
		if n < 0 || n > lockstep.MaxMembers {
			return false
		}
	}
	return len(counts) == len(g.Roles)
}

// fit returns how many members there is room for, in rank order; the room of a
// role's spares is taken before its members'.
func (q *Quota) fit(g *lockstep.Gang, counts []int, room lockstep.Vector) int {
	fit := 0
	for i := range g.Roles {
		var each lockstep.Vector
		q.need(&each, &g.Roles[i].Demand, 1)
		n := int64(count(g, counts, i))
		if n == 0 {
			continue
		}
		spares := int64(g.Roles[i].Spares)
		most := n
		for r := range q.schema.Len() {
			if each[r] > 0 {
				most = min(most, max(room[r]/each[r]-spares, 0))
			}
		}
		fit += int(most)
		if most < n {
			break
		}
		room = room.Sub(each.Mul(n + spares))
	}
	return fit
}
