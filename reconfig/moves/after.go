package moves

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// After returns what devices hold, for certain, when the first done phases of m are
// over and those before begun have begun: begun is done, or one more if the next was
// cut short, of which then only what it gives up counts. have is what Between was
// given. When all phases are over host copies do not count, since some devices may have
// finished and dropped theirs. Those of Gone are left out. Devices that were lost since
// stay in the list, as long as Between is told that they are down; take them out before
// one comes back empty. What is left of moves with Restore of which a phase has begun is
// of the checkpoint's step, so Options.CheckpointCurrent holds for those that follow.
func (m *Sequence) After(have []Holding, done, begun int) ([]Holding, error) {
	if basisOf(have) != m.Basis || done < 0 || begun < done || begun > min(done+1, len(m.Phases)) {
		return nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "moves: after", Field: "have", Reason: "want what the moves were planned from, and phases that they have"}
	}
	held := make(map[lockstep.DeviceID]*Holding, len(have))
	of := func(id lockstep.DeviceID) *Holding {
		if held[id] == nil {
			held[id] = &Holding{Device: id}
		}
		return held[id]
	}
	for _, h := range have {
		if _, gone := slices.BinarySearch(m.Gone, h.Device); gone {
			continue
		}
		of(h.Device).Shards = slices.Clone(h.Shards)
		if !m.Restore || begun == 0 {
			of(h.Device).Host = slices.Clone(h.Host)
		}
	}
	for i, p := range m.Phases[:begun] {
		p.giveUp(of)
		for _, t := range p.Transfers {
			if i < done {
				of(t.To).Shards = append(of(t.To).Shards, t.Shard)
			}
		}
	}
	var out []Holding
	for _, h := range held { // sorted below, so the order does not matter
		if done == len(m.Phases) {
			h.Host = nil
		}
		h.Shards, h.Host = tidy(h.Shards), tidy(h.Host)
		if len(h.Shards)+len(h.Host) > 0 {
			out = append(out, *h)
		}
	}
	slices.SortFunc(out, func(a, b Holding) int { return cmp.Compare(a.Device, b.Device) })
	return out, nil
}

// giveUp takes what a phase frees and stages out of holdings.
func (p Phase) giveUp(of func(lockstep.DeviceID) *Holding) {
	gone := map[lockstep.DeviceID][]Shard{}
	for _, r := range p.Free {
		gone[r.Device] = append(gone[r.Device], r.Shard)
	}
	for _, r := range p.Stage {
		gone[r.Device] = append(gone[r.Device], r.Shard)
		of(r.Device).Host = append(of(r.Device).Host, r.Shard)
	}
	for id, shards := range gone { // devices do not meet, so their order does not matter
		of(id).Shards = takeOut(of(id).Shards, shards)
	}
}

// compare orders shards by part, block and parameter.
func (s Shard) compare(o Shard) int {
	return cmp.Or(cmp.Compare(o.Part, s.Part), cmp.Compare(s.Block, o.Block), cmp.Compare(s.First, o.First), cmp.Compare(s.Count, o.Count))
}

// tidy sorts shards and joins those that touch.
func tidy(shards []Shard) []Shard {
	slices.SortFunc(shards, Shard.compare)
	out := shards[:0]
	for _, s := range shards {
		if n := len(out); n > 0 && out[n-1].Part == s.Part && out[n-1].Block == s.Block && out[n-1].End() >= s.First {
			out[n-1].Count = max(out[n-1].End(), s.End()) - out[n-1].First
			continue
		}
		out = append(out, s)
	}
	return out
}

// takeOut returns what is left of shards without those of gone.
func takeOut(shards, gone []Shard) []Shard {
	shards, gone = tidy(shards), tidy(gone)
	var out []Shard
	for _, s := range shards {
		at := s.First
		for _, g := range gone {
			if g.Part != s.Part || g.Block != s.Block || g.End() <= at || g.First >= s.End() {
				continue
			}
			if g.First > at {
				out = append(out, Shard{s.Part, s.Block, at, g.First - at})
			}
			at = g.End()
		}
		if at < s.End() {
			out = append(out, Shard{s.Part, s.Block, at, s.End() - at})
		}
	}
	return out
}
