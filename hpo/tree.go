package hpo

// tree keeps one entry for each of some slots, in order, the worst first. It is a treap whose priorities come from the
// slots, so that the same entries always make the same tree.
type tree struct {
	nodes []node // by slot
	root  int32  // slot + 1; 0 for none
}

// node is the entry of one slot.
type node struct {
	entry
	left, right int32 // slot + 1; 0 for none
	size        int32
}

// grow makes room for n slots.
func (t *tree) grow(n int) {
	for len(t.nodes) < n {
		t.nodes = append(t.nodes, node{})
	}
}

func (t *tree) len() int { return t.size(t.root) }

func (t *tree) size(at int32) int {
	if at == 0 {
		return 0
	}
	return int(t.nodes[at-1].size)
}

// before says whether the node at a is to be nearer the root than that at b.
func before(a, b int32) bool {
	x, y := mix(uint64(a)), mix(uint64(b))
	return x < y
}

// mix is a bijection that looks random (Steele et al., "Fast splittable pseudorandom number generators", 2014).
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// insert adds x, whose slot has no entry yet.
func (t *tree) insert(x entry) {
	at := x.slot + 1
	left, right := t.split(t.root, x)
	t.nodes[x.slot] = node{entry: x, size: 1}
	t.root = t.merge(t.merge(left, at), right)
}

// split cuts a tree in those worse than x and the others.
func (t *tree) split(at int32, x entry) (left, right int32) {
	if at == 0 {
		return 0, 0
	}
	n := &t.nodes[at-1]
	if better(x, n.entry) {
		n.right, right = t.split(n.right, x)
		left = at
	} else {
		left, n.left = t.split(n.left, x)
		right = at
	}
	t.count(at)
	return left, right
}

// merge joins two trees, all of the first worse than all of the second.
func (t *tree) merge(a, b int32) int32 {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	case before(a, b):
		n := &t.nodes[a-1]
		n.right = t.merge(n.right, b)
		t.count(a)
		return a
	}
	n := &t.nodes[b-1]
	n.left = t.merge(a, n.left)
	t.count(b)
	return b
}

func (t *tree) count(at int32) {
	n := &t.nodes[at-1]
	n.size = int32(t.size(n.left) + t.size(n.right) + 1)
}

// remove takes out the entry of a slot.
func (t *tree) remove(slot int32) {
	x := t.nodes[slot].entry
	link := &t.root
	for *link != slot+1 {
		n := &t.nodes[*link-1]
		n.size--
		if better(x, n.entry) {
			link = &n.right
		} else {
			link = &n.left
		}
	}
	*link = t.merge(t.nodes[slot].left, t.nodes[slot].right)
}

// rank returns how many are worse than the entry of a slot.
func (t *tree) rank(slot int32) int {
	x, worse := t.nodes[slot].entry, 0
	for at := t.root; at != 0; {
		n := &t.nodes[at-1]
		if better(x, n.entry) {
			worse += t.size(n.left) + 1
			at = n.right
		} else {
			at = n.left
		}
	}
	return worse
}

// below returns how many keys are at most key.
func (t *tree) below(key float64) int {
	worse := 0
	for at := t.root; at != 0; {
		n := &t.nodes[at-1]
		if n.key <= key {
			worse += t.size(n.left) + 1
			at = n.right
		} else {
			at = n.left
		}
	}
	return worse
}

// at returns the slot of the entry with this rank.
func (t *tree) at(rank int) int32 {
	at := t.root
	for {
		n := &t.nodes[at-1]
		switch left := t.size(n.left); {
		case rank < left:
			at = n.left
		case rank == left:
			return n.slot
		default:
			rank -= left + 1
			at = n.right
		}
	}
}
