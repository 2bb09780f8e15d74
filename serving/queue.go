package serving

import "github.com/lockstep-gpu/lockstep/internal/instant"

// none is the index of no node; node 0 of a queue is a sentinel that is never in it.
const none int32 = 0

// key orders requests: by level, those in time before the deferred, by what the order looks at, by arrival.
type key struct {
	level    int32
	deferred bool
	rank     int64 // the deadline, or 0 where only arrival counts
	seq      uint64
}

func (k key) less(o key) bool {
	switch {
	case k.level != o.level:
		return k.level < o.level
	case k.deferred != o.deferred:
		return o.deferred
	case k.rank != o.rank:
		return k.rank < o.rank
	}
	return k.seq < o.seq
}

// node is a request that waits.
type node struct {
	key         key
	id          RequestID
	arrived     int64
	due         int64 // the latest end of its batch, slack taken off; instant.Never without a deadline and once deferred
	expires     int64 // when it is dropped or deferred; instant.Never if it is not
	gen         uint32
	used        bool
	left, right int32
	size        int32
	weight      uint32 // heap order of the treap
	at          int32  // place in the heap of expiry, -1 if it does not expire

	// Over the subtree.
	earliest int64 // least arrived
	tightest int64 // least due
}

// sum is what a decision has to know of the first requests of a queue.
type sum struct {
	earliest int64 // when the oldest of them came
	tightest int64 // by when their batch has to be over
}

// queue keeps requests in order in a treap (Seidel and Aragon, "Randomized Search Trees", Algorithmica 1996) with sums,
// in an array that grows to the most that ever waited, and by when they expire in a heap. Weights come from a fixed
// sequence, so that the shape is the same in every run; no decision depends on it.
type queue struct {
	nodes  []node
	root   int32
	free   int32 // list by left
	heap   []int32
	weight uint64
}

func newQueue() queue {
	return queue{nodes: []node{{earliest: instant.Never, tightest: instant.Never}}}
}

// len is how many wait.
func (q *queue) len() int { return int(q.nodes[q.root].size) }

// add keeps n and returns its index.
func (q *queue) add(n node) int32 {
	i := q.free
	if i != none {
		q.free = q.nodes[i].left
	} else {
		q.nodes = append(q.nodes, node{})
		i = int32(len(q.nodes) - 1)
	}
	n.gen, n.used, n.at = q.nodes[i].gen+1, true, -1
	q.nodes[i] = n
	q.insert(i)
	if n.expires != instant.Never {
		q.push(i)
	}
	return i
}

// drop forgets node i.
func (q *queue) drop(i int32) {
	q.remove(i)
	q.unheap(i)
	q.nodes[i].used, q.nodes[i].left = false, q.free
	q.free = i
}

// deferTo moves node i behind those of its level that are in time, never to expire again.
func (q *queue) deferTo(i int32) {
	q.remove(i)
	q.unheap(i)
	n := &q.nodes[i]
	n.key.deferred, n.due, n.expires = true, instant.Never, instant.Never
	q.insert(i)
}

// insert puts node i, whose key is set, into the tree.
func (q *queue) insert(i int32) {
	q.weight += 0x9e3779b97f4a7c15 // splitmix64: Steele, Lea and Flood, OOPSLA 2014
	z := (q.weight ^ q.weight>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	n := &q.nodes[i]
	n.left, n.right, n.weight = none, none, uint32(z>>32)
	q.pull(i)
	a, b := q.split(q.root, n.key)
	q.root = q.merge(q.merge(a, i), b)
}

// remove takes node i out of the tree.
func (q *queue) remove(i int32) { q.root = q.without(q.root, i) }

func (q *queue) without(t, i int32) int32 {
	n := &q.nodes[t]
	if t == i {
		return q.merge(n.left, n.right)
	}
	if q.nodes[i].key.less(n.key) {
		n.left = q.without(n.left, i)
	} else {
		n.right = q.without(n.right, i)
	}
	q.pull(t)
	return t
}

// pull works out the sums of node i from its children.
func (q *queue) pull(i int32) {
	n := &q.nodes[i]
	l, r := &q.nodes[n.left], &q.nodes[n.right]
	n.size = l.size + r.size + 1
	n.earliest = min(n.arrived, l.earliest, r.earliest)
	n.tightest = min(n.due, l.tightest, r.tightest)
}

// split divides t into what comes before k and what does not.
func (q *queue) split(t int32, k key) (a, b int32) {
	if t == none {
		return none, none
	}
	n := &q.nodes[t]
	if n.key.less(k) {
		n.right, b = q.split(n.right, k)
		a = t
	} else {
		a, n.left = q.split(n.left, k)
		b = t
	}
	q.pull(t)
	return a, b
}

// merge joins a and b, all of a before all of b.
func (q *queue) merge(a, b int32) int32 {
	switch {
	case a == none:
		return b
	case b == none:
		return a
	}
	if q.nodes[a].weight > q.nodes[b].weight {
		q.nodes[a].right = q.merge(q.nodes[a].right, b)
		q.pull(a)
		return a
	}
	q.nodes[b].left = q.merge(a, q.nodes[b].left)
	q.pull(b)
	return b
}

// first returns the index of the first request, none if none waits.
func (q *queue) first() int32 {
	i := q.root
	for q.nodes[i].left != none {
		i = q.nodes[i].left
	}
	return i
}

// ahead is how many requests come before k.
func (q *queue) ahead(k key) int {
	count := int32(0)
	for t := q.root; t != none; {
		n := &q.nodes[t]
		if n.key.less(k) {
			count += q.nodes[n.left].size + 1
			t = n.right
		} else {
			t = n.left
		}
	}
	return int(count)
}

// prefix sums up the first n requests.
func (q *queue) prefix(n int) sum {
	s := sum{instant.Never, instant.Never}
	for t, left := q.root, int32(n); t != none && left > 0; {
		x := &q.nodes[t]
		l := &q.nodes[x.left]
		if l.size >= left {
			t = x.left
			continue
		}
		s.earliest = min(s.earliest, l.earliest, x.arrived)
		s.tightest = min(s.tightest, l.tightest, x.due)
		left -= l.size + 1
		t = x.right
	}
	return s
}

// The heap of expiry: an index heap by (expires, seq).

func (q *queue) sooner(a, b int32) bool {
	x, y := &q.nodes[a], &q.nodes[b]
	return x.expires < y.expires || x.expires == y.expires && x.key.seq < y.key.seq
}

func (q *queue) push(i int32) {
	q.heap = append(q.heap, i)
	q.nodes[i].at = int32(len(q.heap) - 1)
	q.up(len(q.heap) - 1)
}

func (q *queue) unheap(i int32) {
	at := int(q.nodes[i].at)
	if at < 0 {
		return
	}
	last := len(q.heap) - 1
	q.swap(at, last)
	q.heap = q.heap[:last]
	q.nodes[i].at = -1
	if at < last {
		q.down(at)
		q.up(at)
	}
}

func (q *queue) swap(a, b int) {
	q.heap[a], q.heap[b] = q.heap[b], q.heap[a]
	q.nodes[q.heap[a]].at, q.nodes[q.heap[b]].at = int32(a), int32(b)
}

func (q *queue) up(i int) {
	for i > 0 && q.sooner(q.heap[i], q.heap[(i-1)/2]) {
		q.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (q *queue) down(i int) {
	for {
		c := 2*i + 1
		if c+1 < len(q.heap) && q.sooner(q.heap[c+1], q.heap[c]) {
			c++
		}
		if c >= len(q.heap) || !q.sooner(q.heap[c], q.heap[i]) {
			return
		}
		q.swap(i, c)
		i = c
	}
}

// next is when the first request expires, instant.Never if none does.
func (q *queue) next() int64 {
	if len(q.heap) == 0 {
		return instant.Never
	}
	return q.nodes[q.heap[0]].expires
}
