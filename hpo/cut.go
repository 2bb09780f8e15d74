package hpo

import "math"

// entry is one recorded metric. Larger keys are better; the earlier arrival is better among equals.
type entry struct {
	key  float64 // never NaN
	seq  uint64  // arrival
	slot int32   // of the trial
}

// worst is the key of a metric that counts as worse than all.
var worst = math.Inf(-1) // immutable

func better(a, b entry) bool { return a.key > b.key || a.key == b.key && a.seq < b.seq }

// heap has at its root the best of its entries, or the worst.
type heap struct {
	e       []entry
	worstAt bool // the root is the worst
}

func (h *heap) before(a, b entry) bool { return better(a, b) != h.worstAt }

func (h *heap) push(x entry) {
	h.e = append(h.e, x)
	i := len(h.e) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.before(x, h.e[up]) {
			break
		}
		h.e[i] = h.e[up]
		i = up
	}
	h.e[i] = x
}

func (h *heap) pop() entry {
	n := len(h.e) - 1
	root, x := h.e[0], h.e[n]
	h.e = h.e[:n]
	if n > 0 {
		h.sink(x)
	}
	return root
}

// sink puts x at the root and lets it down to its place.
func (h *heap) sink(x entry) {
	i, n := 0, len(h.e)
	for {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && h.before(h.e[down+1], h.e[down]) {
			down++
		}
		if !h.before(h.e[down], x) {
			break
		}
		h.e[i] = h.e[down]
		i = down
	}
	h.e[i] = x
}

// second returns the entry that comes after the root.
func (h *heap) second() entry {
	if len(h.e) == 2 || h.before(h.e[1], h.e[2]) {
		return h.e[1]
	}
	return h.e[2]
}

// cut keeps entries in two parts, so that the best k are one of them.
type cut struct {
	top  heap // the best; the worst of them at the root
	rest heap // the others; the best of them at the root
}

func newCut() cut { return cut{top: heap{worstAt: true}} }

func (c *cut) len() int { return len(c.top.e) + len(c.rest.e) }

func (c *cut) add(x entry) {
	if len(c.top.e) > 0 && better(x, c.top.e[0]) {
		c.top.push(x)
	} else {
		c.rest.push(x)
	}
}

// resize makes the top the best k, or all if there are fewer, or none if k is below 0.
func (c *cut) resize(k int) {
	k = max(k, 0)
	for len(c.top.e) < k && len(c.rest.e) > 0 {
		c.top.push(c.rest.pop())
	}
	for len(c.top.e) > k {
		c.rest.push(c.top.pop())
	}
}

// holds says whether x, which was added, is in the top.
func (c *cut) holds(x entry) bool { return len(c.top.e) > 0 && !better(c.top.e[0], x) }

// floor returns the worst key of the top, ok if there is one.
func (c *cut) floor() (float64, bool) {
	if len(c.top.e) == 0 {
		return 0, false
	}
	return c.top.e[0].key, true
}
