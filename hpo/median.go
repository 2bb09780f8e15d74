package hpo

import "math"

// median is the median stopping rule.
type median struct {
	b      *book
	cfg    *Median
	policy NaNPolicy
	own    []history       // by slot
	marks  map[uint64]*cut // running means by step at which trials are judged; the better half is the top
	last   uint64          // the step looked up latest
	cached *cut
}

// history is what a trial reported since Grace.
type history struct {
	best  float64 // key; worst for none
	sum   float64 // of keys
	n     uint64
	step  uint64 // largest reported
	next  uint64 // step of its next judgement
	judge bool   // the present report came to a judgement, at mark
	mark  uint64
	mean  entry // what was recorded there; seq 0 for nothing
}

func newMedian(b *book, cfg Config) *median {
	return &median{b: b, cfg: cfg.Median, policy: cfg.NaN, marks: map[uint64]*cut{}}
}

func (m *median) finite() bool { return true }

func (m *median) join(slot int32) {
	for int(slot) >= len(m.own) {
		m.own = append(m.own, history{})
	}
	m.own[slot] = history{best: worst, next: m.cfg.Grace}
}

// at returns the means at a step, nil if there are none.
func (m *median) at(step uint64) *cut {
	if m.cached == nil || m.last != step {
		m.last, m.cached = step, m.marks[step]
	}
	return m.cached
}

// add records a mean.
func (m *median) add(step uint64, x entry) {
	c := m.at(step)
	if c == nil {
		fresh := newCut()
		c = &fresh
		m.marks[step], m.cached = c, c
	}
	c.add(x)
	c.resize((c.len() + 1) / 2)
}

func (m *median) note(slot int32, r *Report, key float64) {
	h := &m.own[slot]
	h.judge = false
	if r.Step <= h.step {
		return
	}
	h.step = r.Step
	if key != worst && r.Step >= m.cfg.Grace {
		h.best = max(h.best, key)
		h.sum += key
		h.n++
	}
	if r.Step < h.next {
		return
	}
	h.judge = true
	h.mark = m.cfg.Grace + (r.Step-m.cfg.Grace)/m.cfg.Interval*m.cfg.Interval
	h.next = h.mark + m.cfg.Interval
	if h.next < h.mark {
		h.next = math.MaxUint64
	}
	h.mean = entry{}
	if h.n > 0 {
		mean := min(max(h.sum/float64(h.n), -math.MaxFloat64), math.MaxFloat64)
		h.mean = m.b.record(slot, mean)
		m.add(h.mark, h.mean)
	}
}

func (m *median) decide(slot int32, r *Report) (Decision, bool) {
	h := &m.own[slot]
	if m.cfg.Max > 0 && r.Step >= m.cfg.Max {
		m.b.move(slot, done)
		return Decision{Action: Stop, Level: m.cfg.Max, Reason: ReasonComplete}, false
	}
	if !h.judge {
		return Decision{Action: Continue, Reason: ReasonBetween}, false
	}
	means := m.at(h.mark)
	others := 0
	if means != nil {
		others = means.len()
	}
	if h.mean.seq > 0 {
		others--
	}
	d := Decision{Action: Continue, Level: h.mark, Reason: ReasonWithin}
	switch {
	case others < m.cfg.Min || others == 0:
		d.Reason = ReasonFew
	case h.n == 0:
		d.Action, d.Reason = Stop, ReasonNumber
	case h.best < means.medianWithout(h.mean):
		d.Action, d.Reason = Stop, ReasonBelow
	}
	if d.Action == Stop {
		m.b.move(slot, done)
	}
	return d, false
}

// medianWithout returns the median of the keys other than x, of which the better half is the top, with the middle one.
// x is in the cut, or has no seq. There must be another.
func (c *cut) medianWithout(x entry) float64 {
	top, rest := &c.top, &c.rest
	odd := len(top.e) > len(rest.e)
	switch {
	case x.seq == 0 && odd:
		return top.e[0].key
	case x.seq == 0, odd && c.holds(x) && x.seq != top.e[0].seq:
		return middle(rest.e[0].key, top.e[0].key)
	case odd && x.seq == top.e[0].seq:
		return middle(rest.e[0].key, top.second().key)
	case odd:
		return middle(top.e[0].key, top.second().key)
	case c.holds(x):
		return rest.e[0].key
	}
	return top.e[0].key
}

// middle returns the mean of two numbers, neither of which is infinite.
func middle(a, b float64) float64 { return a/2 + b/2 }

func (m *median) settle(dst []Decision) []Decision { return dst }
func (m *median) leave(int32)                      {}
func (m *median) pick() (int32, bool)              { return 0, false }
func (m *median) ready() bool                      { return false }
func (m *median) unblock() bool                    { return false }
func (m *median) bracket(int32) int                { return 0 }
func (m *median) until(slot int32) uint64          { return m.own[slot].next }
func (m *median) end(int32) uint64                 { return m.cfg.Max }
func (m *median) rungs() []Rung                    { return nil }
