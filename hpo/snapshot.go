package hpo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused. Its body is of fixed width and little endian, but for texts,
// which have their length in front: configuration, counters, trials by ID, the two queues, and what the rule
// knows. What is recorded is in the order of arrival, so that the bytes depend on no layout.
const (
	format  = "lockstep/hpo"
	version = 1
)

// Snapshot writes the scheduler to w, with its configuration: the same bytes for the same calls.
func (s *Scheduler) Snapshot(w io.Writer) error {
	if err := snapshot.Write(w, format, version, s.encode()); err != nil {
		return fmt.Errorf("hpo: snapshot: %w", err)
	}
	return nil
}

// Restore returns the scheduler that Snapshot wrote to r. Its configuration must be cfg, else it is ErrConflict. Bytes
// that are cut off, altered, of another version or inconsistent are ErrInvalid.
func Restore(cfg Config, r io.Reader) (*Scheduler, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	body, err := snapshot.Read(r, "hpo: restore", format, version)
	if err != nil {
		return nil, err
	}
	d := loader{b: body}
	if have := d.text(); d.bad == "" && have != s.fingerprint() {
		return nil, fault(lockstep.ErrConflict, "restore", "cfg", s.fingerprint(), "the snapshot has "+have)
	}
	s.load(&d)
	if d.check(len(d.b) == 0, "bytes are left over"); d.bad == "" {
		d.check(bytes.Equal(s.encode(), body), "not in the form that is written")
	}
	if d.bad != "" {
		return nil, fault(lockstep.ErrInvalid, "restore", "snapshot", "", d.bad)
	}
	return s, nil
}

// fingerprint returns the configuration as text.
func (s *Scheduler) fingerprint() string {
	text, err := json.Marshal(s.cfg)
	if err != nil {
		panic("hpo: config cannot be written: " + err.Error()) // invariant: Validate refuses numbers that JSON has not
	}
	return string(text)
}

func (s *Scheduler) encode() []byte {
	w := saver{place: make([]int32, len(s.trials))}
	for i := range s.trials {
		if s.trials[i].order > 0 {
			w.slots = append(w.slots, int32(i))
		}
	}
	slices.SortFunc(w.slots, func(a, b int32) int { return cmp.Compare(s.trials[a].id, s.trials[b].id) })
	for i, slot := range w.slots {
		w.place[slot] = int32(i)
	}
	w.text(s.fingerprint())
	w.u64(s.seq)
	w.u64(s.added)
	w.flag(s.closed)
	w.u32(uint32(len(w.slots)))
	for _, slot := range w.slots {
		s.trials[slot].save(&w)
	}
	w.list(s.waiting.slots(s.book, waiting))
	w.list(s.again.slots(s.book, again))
	s.rule.save(&w)
	return w.b
}

func (t *trial) save(w *saver) {
	w.text(string(t.id))
	w.u64(t.order)
	w.u64(t.seq)
	w.u64(t.step)
	w.float(t.key)
	w.u32(t.attempt)
	w.u32(t.crashes)
	w.u32(uint32(t.bracket))
	w.u32(uint32(t.rung))
	w.u32(uint32(t.place))
	w.u32(uint32(t.state))
}

// load fills s, which is new, and leaves in d what is wrong.
func (s *Scheduler) load(d *loader) {
	s.seq, s.added, s.closed = d.u64(), d.u64(), d.flag()
	orders := map[uint64]bool{}
	for range d.u32() {
		t := loadTrial(d)
		d.check(t.id != "" && t.order > 0 && t.order <= s.added && !orders[t.order], "a trial without name or order")
		d.check(t.seq <= s.seq, "a record from after the last")
		d.check(t.attempt < 1<<31 && t.crashes < 1<<31, "more attempts than there can be")
		d.check((t.attempt == 0) == (t.state == waiting) || t.state == done, "a trial that runs and was never started")
		n := len(s.trials)
		if d.check(n == 0 || s.trials[n-1].id < t.id, "trials out of order"); d.bad != "" {
			return
		}
		orders[t.order] = true
		s.trials = append(s.trials, t)
		s.index[t.id] = int32(n)
		s.counts[t.state]++
	}
	s.loadQueue(d, &s.waiting, waiting)
	s.loadQueue(d, &s.again, again)
	if d.bad == "" {
		s.rule.load(d)
	}
}

func loadTrial(d *loader) trial {
	t := trial{
		id: TrialID(d.text()), order: d.u64(), seq: d.u64(), step: d.u64(), key: d.float(), attempt: d.u32(), crashes: d.u32(),
		bracket: int32(d.u32()), rung: int32(d.u32()), place: int32(d.u32()),
	}
	v := d.u32()
	d.check(v < uint32(states), "a trial in no known state")
	t.state = state(min(v, uint32(states)))
	return t
}

// loadQueue reads who queues: all in that state, once each.
func (s *Scheduler) loadQueue(d *loader, q *queue, in state) {
	seen := map[int32]bool{}
	for range d.u32() {
		slot := d.slot(len(s.trials))
		if d.bad != "" {
			return
		}
		t := &s.trials[slot]
		d.check(t.state == in && !seen[slot], "a queue with somebody who does not wait")
		seen[slot] = true
		q.push(ticket{t.order, slot})
	}
	d.check(len(seen) == s.counts[in], "somebody who waits in no queue")
}

func (a *asha) save(w *saver) {
	w.u64(a.added)
	for i := range a.lanes {
		l := &a.lanes[i]
		w.u64(l.joined)
		w.cut(&l.last)
		for j := range l.rungs {
			g := &l.rungs[j]
			w.u64(g.recorded)
			w.u64(g.promoted)
			w.flag(g.poisoned)
			w.cut(&g.cut)
			w.u32(uint32(len(g.plain)))
			for _, v := range g.plain {
				w.float(v)
			}
			w.live(a.b, g.open.e)
		}
	}
}

func (a *asha) load(d *loader) {
	a.added = d.u64()
	for i := range a.b.trials {
		t := &a.b.trials[i]
		d.check(t.bracket >= 0 && int(t.bracket) < len(a.lanes), "a trial of no bracket")
		d.check(d.bad != "" || t.rung >= 0 && int(t.rung) <= len(a.lanes[t.bracket].rungs)+1, "a trial at no rung")
	}
	past := map[uint64]int32{} // who ran on past Max, by their records there
	for i := range a.b.trials {
		if t := &a.b.trials[i]; d.bad == "" && a.past(t) {
			past[t.seq] = int32(i)
		}
	}
	for i := range a.lanes {
		l := &a.lanes[i]
		l.joined = d.u64()
		d.cut(&l.last, a.b.seq, past)
		l.last.resize(a.cfg.RunOn)
		for j := range l.rungs {
			l.rungs[j].load(d, a)
		}
	}
}

func (g *rung) load(d *loader, a *asha) {
	g.recorded, g.promoted, g.poisoned = d.u64(), d.u64(), d.flag()
	d.cut(&g.cut, a.b.seq, nil)
	g.cut.resize(g.keep(a.cfg))
	for range d.u32() {
		if g.plain = append(g.plain, d.float()); d.bad != "" {
			return
		}
	}
	for _, x := range d.live(a.b) {
		g.open.push(x)
	}
}

func (h *synchronous) save(w *saver) {
	w.u32(uint32(h.first))
	for i := range h.seen {
		for _, g := range h.seen[i] {
			w.u64(g.Recorded)
			w.u64(g.Promoted)
		}
	}
	w.u32(uint32(len(h.bands)))
	for i := range h.bands {
		x := &h.bands[i]
		w.u32(uint32(x.spec))
		w.u32(uint32(x.rung))
		w.u32(uint32(x.joined))
		w.u32(uint32(x.entered))
		w.flag(x.full)
		w.flag(x.over)
		w.live(h.b, x.arrived)
	}
}

func (h *synchronous) load(d *loader) {
	h.first = int32(d.u32())
	d.check(h.first >= 0, "a band out of range")
	for i := range h.seen {
		for j := range h.seen[i] {
			h.seen[i][j].Recorded, h.seen[i][j].Promoted = d.u64(), d.u64()
		}
	}
	for range d.u32() {
		x := h.loadBand(d)
		if d.bad != "" {
			return
		}
		h.bands = append(h.bands, x)
	}
	h.assign(d)
	for i := range h.bands {
		x := &h.bands[i]
		d.check(x.over == (x.full && x.left == 0), "a band that nobody decides")
		d.check(x.full || i == len(h.bands)-1, "a band that is not full, and not the last")
		for _, e := range x.arrived {
			d.check(h.b.trials[e.slot].bracket == h.first+int32(i), "a trial at a rung of another band")
		}
	}
}

func (h *synchronous) loadBand(d *loader) band {
	x := band{
		spec: d.below(len(h.specs)), rung: d.below(maxBrackets + 1),
		joined: d.below(maxBracket + 1), entered: d.below(maxBracket + 1),
		full: d.flag(), over: d.flag(),
	}
	x.arrived = d.live(h.b)
	last := len(h.levels(&x)) - 1
	d.check(x.over || x.rung <= last, "a band past its last rung")
	d.check(x.over || len(x.arrived) == 0 || x.rung < last, "a band that waits at its last rung")
	return x
}

// assign counts the trials that their bands wait for.
func (h *synchronous) assign(d *loader) {
	for i := range h.b.trials {
		t := &h.b.trials[i]
		if t.state == done {
			continue
		}
		at := int64(t.bracket) - int64(h.first)
		if d.check(at >= 0 && at < int64(len(h.bands)) && !h.bands[at].over, "a trial in no band"); d.bad != "" {
			return
		}
		if t.state != paused {
			h.bands[at].left++
		}
	}
}

func (m *median) save(w *saver) {
	for _, slot := range w.slots {
		h := &m.own[slot]
		w.float(h.best)
		w.float(h.sum)
		w.u64(h.n)
		w.u64(h.step)
		w.u64(h.next)
	}
	steps := make([]uint64, 0, len(m.marks))
	for step := range m.marks { // in any order: sorted below
		steps = append(steps, step)
	}
	slices.Sort(steps)
	w.u32(uint32(len(steps)))
	for _, step := range steps {
		w.u64(step)
		w.cut(m.marks[step])
	}
}

func (m *median) load(d *loader) {
	for range m.b.trials {
		h := history{best: d.float(), sum: d.float(), n: d.u64(), step: d.u64(), next: d.u64()}
		d.check(h.best == h.best && h.sum == h.sum && h.next >= m.cfg.Grace, "an account out of range")
		m.own = append(m.own, h)
	}
	last := uint64(0)
	for range d.u32() {
		step := d.u64()
		d.check(step >= m.cfg.Grace && step > last, "steps out of order")
		if last = step; d.bad != "" {
			return
		}
		c := newCut()
		d.cut(&c, m.b.seq, nil)
		d.check(c.len() > 0, "a step without records")
		c.resize((c.len() + 1) / 2)
		m.marks[step] = &c
	}
}

func (p *pbt) save(w *saver) {
	state, err := p.pcg.MarshalBinary()
	if err != nil {
		panic("hpo: generator cannot be written: " + err.Error()) // invariant: PCG returns no error
	}
	w.text(string(state))
	for _, slot := range w.slots {
		m := &p.own[slot]
		w.u64(m.due)
		w.u64(m.step)
		w.flag(m.fresh)
		w.flag(m.rated)
	}
}

func (p *pbt) load(d *loader) {
	state := d.text()
	d.check(d.bad != "" || p.pcg.UnmarshalBinary([]byte(state)) == nil, "a generator in no known state")
	p.ranks.grow(len(p.b.trials))
	seqs := map[uint64]bool{}
	for i := range p.b.trials {
		m := member{due: d.u64(), step: d.u64(), fresh: d.flag(), rated: d.flag()}
		p.own = append(p.own, m)
		t := &p.b.trials[i]
		d.check(m.rated || t.state != paused, "a trial that waits for others without a score")
		if !m.rated || d.bad != "" {
			continue
		}
		d.check(t.state != done && t.key == t.key && !seqs[t.seq], "a score of nobody")
		seqs[t.seq] = true
		p.ranks.insert(entry{t.key, t.seq, int32(i)})
	}
	c := &p.b.counts
	d.check(c[paused] == 0 || p.cfg.Sync && c[running]+c[again]+c[waiting] > 0, "trials that wait for nobody")
}
