package hpo

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// saver appends values to b.
type saver struct {
	b     []byte
	slots []int32 // of trials, by ID
	place []int32 // by slot: its place among slots
}

func (w *saver) u32(v uint32)    { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *saver) u64(v uint64)    { w.b = binary.LittleEndian.AppendUint64(w.b, v) }
func (w *saver) float(v float64) { w.u64(math.Float64bits(v)) }

func (w *saver) flag(v bool) {
	if v {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
	}
}

func (w *saver) text(v string) {
	w.u32(uint32(len(v)))
	w.b = append(w.b, v...)
}

// list writes slots as places.
func (w *saver) list(slots []int32) {
	w.u32(uint32(len(slots)))
	for _, slot := range slots {
		w.u32(uint32(w.place[slot]))
	}
}

// cut writes entries by arrival, without their trials.
func (w *saver) cut(c *cut) {
	all := slices.Concat(c.top.e, c.rest.e)
	slices.SortFunc(all, bySeq)
	w.u32(uint32(len(all)))
	for _, x := range all {
		w.float(x.key)
		w.u64(x.seq)
	}
}

// live writes the entries of trials that are paused where they were recorded, by arrival.
func (w *saver) live(b *book, entries []entry) {
	var all []entry
	for _, x := range entries {
		if t := &b.trials[x.slot]; t.order > 0 && t.state == paused && t.seq == x.seq {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, bySeq)
	w.u32(uint32(len(all)))
	for _, x := range all {
		w.u32(uint32(w.place[x.slot]))
	}
}

func bySeq(a, b entry) int { return cmp.Compare(a.seq, b.seq) }

// loader takes values off b. Once something is wrong, bad says what, and every value is zero.
type loader struct {
	b   []byte
	bad string
}

func (d *loader) check(ok bool, bad string) {
	if !ok && d.bad == "" {
		d.bad = bad
	}
}

func (d *loader) take(n uint64) []byte {
	d.check(n <= uint64(len(d.b)), "cut off")
	if d.bad != "" {
		return make([]byte, min(n, 8))
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *loader) u64() uint64    { return binary.LittleEndian.Uint64(d.take(8)) }
func (d *loader) float() float64 { return math.Float64frombits(d.u64()) }
func (d *loader) text() string   { return string(d.take(uint64(d.u32()))) }

// u32 takes a number. A count is at most the bytes that are left, so that no loop runs far beyond them.
func (d *loader) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }

func (d *loader) flag() bool {
	v := d.take(1)[0]
	d.check(v <= 1, "a flag that is neither set nor clear")
	return v == 1
}

// below takes a number below n.
func (d *loader) below(n int) int {
	v := d.u32()
	d.check(uint64(v) < uint64(n), "a number out of range")
	if d.bad != "" {
		return 0
	}
	return int(v)
}

// slot takes that of one of n trials.
func (d *loader) slot(n int) int32 { return int32(d.below(n)) }

// cut fills c with entries in the order of arrival, of the trials whose slots are given by arrival, if they count.
func (d *loader) cut(c *cut, latest uint64, slots map[uint64]int32) {
	last := uint64(0)
	for range d.u32() {
		x := entry{key: d.float(), seq: d.u64()}
		x.slot = slots[x.seq]
		d.check(x.key == x.key && x.seq > last && x.seq <= latest, "a record out of order")
		if last = x.seq; d.bad != "" {
			return
		}
		c.add(x)
	}
}

// live returns entries of trials that are paused.
func (d *loader) live(b *book) []entry {
	var out []entry
	last := uint64(0)
	for range d.u32() {
		slot := d.slot(len(b.trials))
		if d.bad != "" {
			return nil
		}
		t := &b.trials[slot]
		d.check(t.state == paused && t.seq > last && t.key == t.key, "a trial that is not at its rung")
		last = t.seq
		out = append(out, entry{t.key, t.seq, slot})
	}
	return out
}
