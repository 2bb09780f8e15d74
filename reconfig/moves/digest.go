package moves

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/lockstep-gpu/lockstep/reconfig"
)

func (e *encoder) shard(s Shard) {
	e.str(string(s.Part))
	e.num(int64(s.Block), s.First, s.Count)
}

func (e *encoder) releases(list []Release) {
	e.num(int64(len(list)))
	for _, r := range list {
		e.str(string(r.Device))
		e.shard(r.Shard)
	}
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// basisOf returns the digest of what devices hold; their order does not matter.
func basisOf(have []Holding) reconfig.Digest {
	sorted := slices.Clone(have)
	slices.SortStableFunc(sorted, func(a, b Holding) int { return cmp.Compare(a.Device, b.Device) })
	var e encoder
	e.str("lockstep holdings 1")
	e.num(int64(len(sorted)))
	for _, h := range sorted {
		e.str(string(h.Device))
		for _, list := range [][]Shard{h.Shards, h.Host} {
			list = tidy(slices.Clone(list))
			e.num(int64(len(list)))
			for _, s := range list {
				e.shard(s)
			}
		}
	}
	return sha256.Sum256(e.buf)
}

// Sum returns the digest of all of m but Digest. It is the same for equal moves on
// every platform; since Plan and Basis are in it, members that agree on it agree on
// where they come from and on where they go.
func (m *Sequence) Sum() reconfig.Digest {
	var e encoder
	e.str("lockstep moves 1")
	e.buf = append(e.buf, m.Plan[:]...)
	e.buf = append(e.buf, m.Basis[:]...)
	e.num(int64(len(m.Phases)))
	for _, p := range m.Phases {
		e.releases(p.Free)
		e.releases(p.Stage)
		e.num(int64(len(p.Transfers)))
		for _, t := range p.Transfers {
			e.shard(t.Shard)
			e.str(string(t.From))
			e.str(string(t.To))
			e.str(string(t.Link))
			e.num(flag(t.Host), int64(t.Bytes))
		}
	}
	e.num(int64(len(m.Gone)))
	for _, id := range m.Gone {
		e.str(string(id))
	}
	e.num(int64(len(m.Lost)))
	for _, s := range m.Lost {
		e.shard(s)
	}
	t := m.Traffic
	e.num(flag(m.Restore), int64(m.Kept), int64(t.Host), int64(t.Node), int64(t.Leaf), int64(t.Fabric), int64(t.Store), int64(m.Staged), int64(m.Peak))
	e.num(m.Cursor.Epoch, m.Cursor.Consumed, m.Cursor.Step)
	return sha256.Sum256(e.buf)
}

// encoder writes a canonical form: each number as a varint, each text and each list
// with its length in front of it.
type encoder struct{ buf []byte }

func (e *encoder) num(v ...int64) {
	for _, n := range v {
		e.buf = binary.AppendVarint(e.buf, n)
	}
}

func (e *encoder) str(s string) {
	e.num(int64(len(s)))
	e.buf = append(e.buf, s...)
}
