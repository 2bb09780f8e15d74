package pollux

// room is the free GPUs of each node.
type room []int

// newRoom returns what the placed jobs leave.
func newRoom(c Cluster, placed [][]Slot) room {
	r := make(room, c.Nodes)
	for i := range r {
		r[i] = c.GPUsPerNode
	}
	for _, slots := range placed {
		for _, s := range slots {
			r[s.Node] -= s.GPUs
		}
	}
	return r
}

// spread takes GPUs from the node with the most free ones, the first of them, until there are enough; the
// caller knows that there are.
func (r room) spread(gpus int) (slots []Slot) {
	for gpus > 0 {
		best := 0
		for i, n := range r {
			if n > r[best] {
				best = i
			}
		}
		n := min(r[best], gpus)
		slots = append(slots, Slot{Node: best, GPUs: n})
		r[best] -= n
		gpus -= n
	}
	return slots
}
