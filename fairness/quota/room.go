package quota

import "github.com/lockstep-gpu/lockstep"

// way is the way from a queue to the top: the queue is nodes[0], and the root is not
// in it.
type way struct {
	nodes  [MaxDepth]*node
	length int
}

func newWay(q *Quota, n *node) (w way) {
	for ; n != q.root; n = n.parent {
		w.nodes[w.length] = n
		w.length++
	}
	return w
}

// The reasons for a limit, from a queue's place in the tree. Notes of Explain carry
// them.
const (
	ReasonMax         lockstep.Reason = "max"          // ReasonMax: the queue's Max.
	ReasonBorrowLimit lockstep.Reason = "borrow-limit" // ReasonBorrowLimit: the queue's BorrowLimit, or that borrowing is disabled.
	ReasonDeserved    lockstep.Reason = "deserved"     // ReasonDeserved: the queue has all that it has a right to, and nothing is left to borrow.
	ReasonPool        lockstep.Reason = "pool"         // ReasonPool: what is not used is not lent, or all is used.
	ReasonNoQueue     lockstep.Reason = "no-queue"     // ReasonNoQueue: the gang names no queue that jobs can be charged to.
)

// rooms are the room at each node of a way: what it may add to its load without
// anybody giving way, what it has a right to as well, for which others may have to,
// and what it could add at the most for a queue below that has the right. There is
// one more for the root.
type rooms struct {
	free, right, limit [MaxDepth + 1]int64
}

// measure returns the rooms of one resource, where shared says that a right is not
// only to the nominal quota but to the share of what there is; divisions
// must be fresh then.
//
// A node may use, within its limit, what it keeps itself and what its parent has
// free; and all of what it has a right to, for which there must be room above: free, or by
// right in turn, or room that others below the same node make. The latter is counted on only
// where nobody beside the way keeps room that is idle, since a placer would take that.
func (q *Quota) measure(w *way, r int, shared bool) (m rooms) {
	m.free[w.length] = max(q.root.nominal[r]-q.root.load[r], 0)
	m.right[w.length], m.limit[w.length] = noLimit, noLimit
	idle := q.root.load[r] - q.root.used[r] // kept and not used, anywhere
	for _, n := range w.nodes[:w.length] {
		idle -= n.held(r) - n.load[r]
	}
	for i := w.length - 1; i >= 0; i-- {
		n := w.nodes[i]
		ceiling := max(n.most[r]-n.load[r], 0)
		own := max(n.kept[r]-n.load[r], 0)
		due := max(n.deserves(r, shared)-n.load[r], 0)
		m.free[i] = min(ceiling, sum(own, m.free[i+1]))
		m.right[i] = min(ceiling, max(sum(own, m.free[i+1]), min(due, sum(own, m.limit[i+1]))))
		m.limit[i] = m.right[i]
		if idle == 0 {
			m.limit[i] = min(ceiling, sum(own, m.limit[i+1]))
		}
	}
	return m
}

// deserves returns what n has a right to hold.
func (n *node) deserves(r int, shared bool) int64 {
	if shared {
		return max(n.nominal[r], n.got(r))
	}
	return n.nominal[r]
}

// sum returns a+b, held at noLimit.
func sum(a, b int64) int64 {
	if b > noLimit-a {
		return noLimit
	}
	return a + b
}

// room returns how much the queue at the bottom of w may add, at least whether it
// may add need: shares are looked at only where nominal quota and free room do not do.
func (q *Quota) room(w *way, r int, need int64) int64 {
	m := q.measure(w, r, false)
	room := m.right[0]
	if n := w.nodes[0]; room < need && n.asked[r] > n.load[r] {
		q.refresh(w, r)
		m = q.measure(w, r, true)
		room = m.right[0]
	}
	// All charges together stay within MaxAmount, or Charge would refuse.
	return max(min(room, MaxAmount-q.root.used[r]), 0)
}

// binding returns the node of w that limits what the queue at the bottom may add,
// and why; that is the root where nothing is left to borrow.
func (q *Quota) binding(w *way, r int) (*node, lockstep.Reason) {
	shared := w.nodes[0].asked[r] > w.nodes[0].load[r]
	if shared {
		q.refresh(w, r)
	}
	m := q.measure(w, r, shared)
	byRight := true
	for i := range w.length {
		n := w.nodes[i]
		ceiling := max(n.most[r]-n.load[r], 0)
		own := max(n.kept[r]-n.load[r], 0)
		if byRight {
			if m.right[i] == ceiling {
				return n, n.ceiling(r)
			}
			due := max(n.deserves(r, shared)-n.load[r], 0)
			if free := sum(own, m.free[i+1]); min(due, sum(own, m.limit[i+1])) > free {
				if m.right[i] == due {
					return n, ReasonDeserved
				}
				continue
			}
			byRight = false
		} else if m.free[i] == ceiling {
			return n, n.ceiling(r)
		}
	}
	return q.root, ReasonPool
}

// ceiling says what the limit of n is from.
func (n *node) ceiling(r int) lockstep.Reason {
	if n.most[r] == n.given.most[r] {
		return ReasonMax
	}
	return ReasonBorrowLimit
}

// refresh brings the divisions along w up to date for one resource.
func (q *Quota) refresh(w *way, r int) {
	q.distribute(q.root, r)
	for i := w.length - 1; i > 0; i-- {
		q.distribute(w.nodes[i], r)
	}
}

// distribute divides n's part of one resource among its children, unless nothing
// changed since; the division above must be fresh.
//
// Each child first gets what it wants of its nominal quota. What is left goes by turn:
// the children with a weight before those without, higher tiers before lower ones, and
// by weight (equally, where it is 0) within a tier, until each has what it wants.
func (q *Quota) distribute(n *node, r int) {
	pool := n.nominal[r]
	if n != q.root {
		pool = n.got(r)
	}
	if !n.stale.has(r) && n.pool[r] == pool {
		return
	}
	n.stale.drop(r)
	n.pool[r] = pool
	if n.asked[r] <= pool {
		n.sated.add(r)
		return
	}
	n.sated.drop(r)
	for _, c := range n.children {
		c.share[r] = max(c.kept[r], min(c.wants(r), c.nominal[r]))
		pool -= c.share[r]
	}
	for i := 0; i < len(n.turns); {
		k := i
		q.fill.reset()
		for ; k < len(n.turns) && sameTurn(n.turns[i], n.turns[k]); k++ {
			c := n.turns[k]
			q.fill.add(0, c.wants(r)-c.share[r], max(c.spec.Weight, 1))
		}
		q.fill.pour(pool)
		for at := i; at < k; at++ {
			got := q.fill.got(at - i)
			n.turns[at].share[r] += got
			pool -= got
		}
		i = k
	}
}

// sameTurn reports whether siblings share what is left by weight.
func sameTurn(a, b *node) bool {
	return a.spec.Tier == b.spec.Tier && (a.spec.Weight > 0) == (b.spec.Weight > 0)
}
