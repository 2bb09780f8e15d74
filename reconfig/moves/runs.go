package moves

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// run is a shard inside this package: parameters a to b-1 of a slot, which is a part
// and a block. Slots are numbered as shards are ordered.
type run struct {
	slot int32
	a, b int64
}

func (r run) compare(o run) int {
	return cmp.Or(cmp.Compare(r.slot, o.slot), cmp.Compare(r.a, o.a), cmp.Compare(r.b, o.b))
}

// merge joins sorted runs that touch or overlap, in place.
func merge(runs []run) []run {
	out := runs[:0]
	for _, r := range runs {
		if n := len(out); n > 0 && out[n-1].slot == r.slot && out[n-1].b >= r.a {
			out[n-1].b = max(out[n-1].b, r.b)
			continue
		}
		out = append(out, r)
	}
	return out
}

// union returns what is in any row of any table, sorted and merged; of the slots only
// those that are set, all for nil.
func union(slots []bool, tables ...[][]run) []run {
	var all []run
	for _, rows := range tables {
		for _, row := range rows {
			for _, r := range row {
				if slots == nil || slots[r.slot] {
					all = append(all, r)
				}
			}
		}
	}
	slices.SortFunc(all, run.compare)
	return merge(all)
}

// subtract appends to dst what is in x but not in y; both are sorted and merged.
func subtract(dst, x, y []run) []run {
	i := 0
	for _, r := range x {
		for i < len(y) && (y[i].slot < r.slot || y[i].slot == r.slot && y[i].b <= r.a) {
			i++
		}
		at := r.a
		for j := i; j < len(y) && y[j].slot == r.slot && y[j].a < r.b; j++ {
			if y[j].a > at {
				dst = append(dst, run{r.slot, at, y[j].a})
			}
			at = max(at, y[j].b)
		}
		if at < r.b {
			dst = append(dst, run{r.slot, at, r.b})
		}
	}
	return dst
}

// part returns a·i/n, rounded down, for 0 <= i <= n.
func part(a, i, n int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(i))
	q, _ := bits.Div64(hi, lo, uint64(n))
	return int64(q)
}

// blockOf returns the block of a slot.
func (a *accounts) blockOf(slot int32) Block {
	switch n := int(slot) % (a.layers + 2); n {
	case 0:
		return Head
	case 1:
		return Embedding
	default:
		return Block(n - 2)
	}
}

// slot returns that of a part and a block.
func (a *accounts) slot(optimizer bool, b Block) int32 {
	n := int(b) + 2
	if optimizer {
		n += a.layers + 2
	}
	return int32(n)
}

// partOf returns the part of a slot.
func (a *accounts) partOf(slot int32) Part {
	if int(slot) >= a.layers+2 {
		return Optimizer
	}
	return Parameters
}

// size returns the bytes of a run.
func (a *accounts) size(r run) int64 {
	if int(r.slot) >= a.layers+2 {
		return (r.b - r.a) * a.moments
	}
	return (r.b - r.a) * a.weight
}

// sizes returns the bytes of runs.
func (a *accounts) sizes(runs []run) int64 {
	n := int64(0)
	for _, r := range runs {
		n += a.size(r)
	}
	return n
}

// shard writes r for the outside.
func (a *accounts) shard(r run) Shard {
	return Shard{a.partOf(r.slot), a.blockOf(r.slot), r.a, r.b - r.a}
}

func (a *accounts) shards(runs []run) []Shard {
	var out []Shard
	for _, r := range runs {
		out = append(out, a.shard(r))
	}
	return out
}

// runs reads shards that came from outside.
func (a *accounts) runs(op, field string, shards []Shard) ([]run, error) {
	out := make([]run, 0, len(shards))
	for i, s := range shards {
		bad := func(name, value, reason string) error {
			return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: field + "[" + text(i) + "]." + name, Value: value, Reason: reason}
		}
		if s.Part != Parameters && s.Part != Optimizer {
			return nil, bad("Part", string(s.Part), "want parameters or optimizer")
		}
		if s.Block < Head || int(s.Block) >= a.layers {
			return nil, bad("Block", text(int(s.Block)), "the model has no such block")
		}
		if length := a.block(s.Block).length(); s.First < 0 || s.Count < 1 || s.Count > length || s.First > length-s.Count {
			return nil, bad("Count", "", "the block has no such parameters")
		}
		out = append(out, run{a.slot(s.Part == Optimizer, s.Block), s.First, s.End()})
	}
	slices.SortFunc(out, run.compare)
	return merge(out), nil
}
