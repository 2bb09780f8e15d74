package fairness

import "github.com/lockstep-gpu/lockstep/internal/int128"

// This file is the water level: which tenants get all that they ask for, and
// what the others share. It is kept per tier, where one tier is the tenants with
// a weight, and the other those of weight 0, who count 1 each among themselves.
//
// A tier is a treap of its tenants by demand/pull, where pull is the weight, or
// 1. The satisfied tenants are a prefix of that order, and the sums in the tree
// find its end in one descent. Accrual does not visit tenants: it leaves on the
// subtrees of the prefix how much time passed, on the other ones by how much the
// entitlement per weight rose. A tenant's entitlement is what it was credited
// itself plus what lies on its path to the root.

// node is a tenant's place in its tier.
type node struct {
	left, right, parent *tenant
	order               uint64       // order is the heap order of the treap: a parent's is at least its children's.
	sumDemand           uint64       // sumDemand is over the subtree.
	sumPull             uint64       // sumPull is over the subtree.
	entitled            int128.Fixed // entitled is what the tenant was credited, without tags.
	swept               int128.Fixed // swept is for Begin only: the entitlement as of the last accrual.
	passed              uint64       // passed is a tag: nanoseconds in which all of the subtree got its demand.
	rose                int128.Fixed // rose is a tag: entitlement per weight that all of the subtree got.
}

// tier is the tenants that share by weight.
type tier struct {
	root   *tenant
	made   uint64 // made counts insertions, and so seeds the shape; no result depends on the shape.
	active uint64 // active is the pull of its tenants that demand anything.
	rest   uint64 // rest is the part of the entitlement that could not be divided yet, in steps of 2^-64.
}

// level says what a tier gets while nothing changes: tenants whose demand per
// pull is at most room/pull get their demand; room is shared by pull among the
// others, whose pulls add up to pull. If pull is 0 there are no others.
type level struct {
	room, pull uint64
}

// satisfied reports whether a tenant gets all that it demands.
func (v level) satisfied(demand, pull uint64) bool {
	return int128.Mul(demand, v.pull).Cmp(int128.Mul(pull, v.room)) <= 0
}

// rate returns what a tenant is entitled to per nanosecond, rounded down.
func (v level) rate(demand, pull uint64) uint64 {
	if v.satisfied(demand, pull) {
		return demand
	}
	share, _ := int128.Whole(int128.Mul(pull, v.room)).QuoRem(v.pull)
	_, rate := share.Words() // less than demand
	return rate
}

// demand returns what all tenants of the tier ask for together.
func (w *tier) demand() uint64 { return w.root.demandBelow() }

// pull returns what all pulls of the tier add up to.
func (w *tier) pull() uint64 { return w.root.pullBelow() }

func (t *tenant) demandBelow() uint64 {
	if t == nil {
		return 0
	}
	return t.sumDemand
}

func (t *tenant) pullBelow() uint64 {
	if t == nil {
		return 0
	}
	return t.sumPull
}

// water returns the level at which capacity is used up, or all are satisfied.
//
// To raise everyone to a tenant's demand/pull takes the demands of those before
// it and pull×demand/pull for each of the rest; the prefix ends where that is
// more than capacity.
func (w *tier) water(capacity uint64) level {
	if all := w.demand(); all <= capacity {
		return level{room: capacity - all}
	}
	var demand, pull uint64 // of the tenants known to be satisfied
	for total, t := w.pull(), w.root; t != nil; {
		d := demand + t.left.demandBelow() + uint64(t.demand)
		p := pull + t.left.pullBelow() + t.pull()
		if d <= capacity && (level{capacity - d, total - p}).satisfied(uint64(t.demand), t.pull()) {
			demand, pull, t = d, p, t.right
		} else {
			t = t.left
		}
	}
	return level{capacity - demand, w.pull() - pull}
}

// rise returns the entitlement per pull of the tenants above the level over dt
// nanoseconds, and what is left to divide later.
func (w *tier) rise(v level, dt uint64) (rise int128.Fixed, rest uint64) {
	if v.pull == 0 {
		return int128.Fixed{}, w.rest
	}
	return int128.Divide(int128.Mul(v.room, dt), w.rest, v.pull)
}

// accrue credits dt nanoseconds at level v to every tenant of the tier.
func (w *tier) accrue(v level, dt uint64) {
	if w.root == nil {
		return
	}
	if v.pull == 0 {
		w.root.passed += dt
		return
	}
	rise, rest := w.rise(v, dt)
	w.rest = rest
	for t := w.root; t != nil; {
		if v.satisfied(uint64(t.demand), t.pull()) {
			t.entitled = t.entitled.Add(int128.Whole(rated(t.demand, dt)))
			if t.left != nil {
				t.left.passed += dt
			}
			t = t.right
		} else {
			t.entitled = t.entitled.Add(rise.Mul(t.pull()))
			if t.right != nil {
				t.right.rose = t.right.rose.Add(rise)
			}
			t = t.left
		}
	}
}

// credited returns t's entitlement as of the last accrual.
func (t *tenant) credited() int128.Fixed {
	passed, rose := t.passed, t.rose
	for a := t.parent; a != nil; a = a.parent {
		passed += a.passed
		rose = rose.Add(a.rose)
	}
	return t.tagged(passed, rose)
}

// tagged returns t's entitlement where passed and rose are all tags on its path.
func (t *tenant) tagged(passed uint64, rose int128.Fixed) int128.Fixed {
	return t.entitled.Add(int128.Whole(rated(t.demand, passed))).Add(rose.Mul(t.pull()))
}

// sweep notes the entitlement of all tenants below t in swept, where
// passed and rose are the tags above t. For most of a tier this is cheaper than
// credited for each.
func (t *tenant) sweep(passed uint64, rose int128.Fixed) {
	for ; t != nil; t = t.right {
		passed += t.passed
		rose = rose.Add(t.rose)
		t.swept = t.tagged(passed, rose)
		t.left.sweep(passed, rose)
	}
}

// push settles the tags of t with t and hands them to its children.
func (t *tenant) push() {
	if t.passed != 0 {
		t.entitled = t.entitled.Add(int128.Whole(rated(t.demand, t.passed)))
		if t.left != nil {
			t.left.passed += t.passed
		}
		if t.right != nil {
			t.right.passed += t.passed
		}
		t.passed = 0
	}
	if t.rose != (int128.Fixed{}) {
		t.entitled = t.entitled.Add(t.rose.Mul(t.pull()))
		if t.left != nil {
			t.left.rose = t.left.rose.Add(t.rose)
		}
		if t.right != nil {
			t.right.rose = t.right.rose.Add(t.rose)
		}
		t.rose = int128.Fixed{}
	}
}

// gather computes t's sums anew and makes its children point to it.
func (t *tenant) gather() {
	t.sumDemand, t.sumPull = uint64(t.demand), t.pull()
	if t.left != nil {
		t.left.parent = t
		t.sumDemand += t.left.sumDemand
		t.sumPull += t.left.sumPull
	}
	if t.right != nil {
		t.right.parent = t
		t.sumDemand += t.right.sumDemand
		t.sumPull += t.right.sumPull
	}
}

// before is the order of the treap: least demand per pull first, then by ID.
func (t *tenant) before(u *tenant) bool {
	a, b := int128.Mul(uint64(t.demand), u.pull()), int128.Mul(uint64(u.demand), t.pull())
	if c := a.Cmp(b); c != 0 {
		return c < 0
	}
	return t.id < u.id
}

// insert adds t, which must not be in the tier.
func (w *tier) insert(t *tenant) {
	w.made++
	if t.demand != 0 {
		w.active += t.pull()
	}
	t.order = mix(w.made)
	t.left, t.right = nil, nil
	w.root = insert(w.root, t)
	w.root.parent = nil
}

func insert(root, t *tenant) *tenant {
	if root == nil {
		t.gather()
		return t
	}
	root.push()
	switch {
	case root.order < t.order:
		t.left, t.right = split(root, t)
		t.gather()
		return t
	case t.before(root):
		root.left = insert(root.left, t)
	default:
		root.right = insert(root.right, t)
	}
	root.gather()
	return root
}

// split parts the subtree of root into what comes before t and what after.
func split(root, t *tenant) (less, more *tenant) {
	if root == nil {
		return nil, nil
	}
	root.push()
	if root.before(t) {
		root.right, more = split(root.right, t)
		root.gather()
		return root, more
	}
	less, root.left = split(root.left, t)
	root.gather()
	return less, root
}

// remove takes t out, with all of its entitlement settled in t.entitled.
func (w *tier) remove(t *tenant) {
	pushPath(t)
	if t.demand != 0 {
		w.active -= t.pull()
	}
	parent, heir := t.parent, merge(t.left, t.right)
	if heir != nil {
		heir.parent = parent
	}
	switch {
	case parent == nil:
		w.root = heir
	case parent.left == t:
		parent.left = heir
	default:
		parent.right = heir
	}
	for a := parent; a != nil; a = a.parent {
		a.gather()
	}
	t.left, t.right, t.parent = nil, nil, nil
}

// pushPath pushes the tags from the root down to t, which is as deep as the
// tree is high.
func pushPath(t *tenant) {
	if t.parent != nil {
		pushPath(t.parent)
	}
	t.push()
}

// merge joins two subtrees of which all of a come before all of b.
func merge(a, b *tenant) *tenant {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.order > b.order:
		a.push()
		a.right = merge(a.right, b)
		a.gather()
		return a
	}
	b.push()
	b.left = merge(a, b.left)
	b.gather()
	return b
}

// mix scatters a counter over 64 bits (the finisher of SplitMix64), so that the
// treap is balanced whatever the order of insertion.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
