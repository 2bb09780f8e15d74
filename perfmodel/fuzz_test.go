package perfmodel

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// numbers takes small or wild numbers from fuzzed bytes, and zero where there are no more.
type numbers []byte

func (n *numbers) next() int64 {
	if len(*n) == 0 {
		return 0
	}
	kind := (*n)[0]
	*n = (*n)[1:]
	if kind < 200 {
		return int64(kind)
	}
	if kind < 230 {
		return 1 << (kind - 200)
	}
	if len(*n) < 8 {
		return -int64(kind)
	}
	v := int64(binary.LittleEndian.Uint64(*n))
	*n = (*n)[8:]
	return v
}

func (n *numbers) small() int { return int(int32(n.next())) }

func (n *numbers) bool() bool { return n.next()%2 != 0 }

func (n *numbers) model() Model {
	return Model{
		Layers: n.small(), Hidden: n.small(), Heads: n.small(), KVHeads: n.small(), HeadDim: n.small(), FFN: n.small(),
		Vocab: n.small(), MaxDoc: n.small(), Learned: n.small(), Gated: n.bool(), Tied: n.bool(), Bias: n.bool(),
		QKVBias: n.bool(), QKNorm: n.bool(), Dropout: n.bool(), Experts: n.small(), TopK: n.small(),
		SharedExperts: n.small(), ExpertFFN: n.small(), Mask: Mask{Full: n.bool(), Window: n.small()},
	}
}

// FuzzAccounts asks for every account of any model, layout, stage and load. Each is an error that names fields, or an
// answer that adds up.
func FuzzAccounts(f *testing.F) {
	f.Add([]byte{2, 8, 2, 0, 0, 8, 9})
	f.Add([]byte{2, 8, 2, 1, 4, 8, 9, 0, 3, 1, 1, 1, 1, 1, 1, 4, 2, 1, 8, 0, 0, 2, 2, 2, 2, 3, 1, 0, 2, 2, 4, 8, 2, 1, 1, 1, 1, 0, 2, 50, 50, 2, 2, 2, 9, 9, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		n := numbers(data)
		m := n.model()
		l := Layout{
			TP: n.small(), PP: n.small(), DP: n.small(), EP: n.small(), ZeRO: n.small(), SequenceParallel: n.bool(), ScatterGather: n.bool(),
			Precision: Precision{n.small(), n.small(), n.small(), n.small(), n.small()},
		}
		s := Stage{Layers: n.small(), First: n.bool(), Last: n.bool(), Flash: n.bool(), Recompute: Recompute(n.next())}
		u := Load{
			Tokens: n.next(), Sequence: n.next(), InFlight: n.small(), Chunks: n.small(), Losses: n.small(),
			Context: lockstep.Bytes(n.next()), Reserve: lockstep.Bytes(n.next()),
		}
		typed := func(err error) {
			for _, e := range flatten(err) {
				var fault *lockstep.Error
				require.ErrorAs(t, e, &fault)
				require.NotEmpty(t, fault.Field)
			}
		}
		b, err := m.Batch([]int{n.small(), n.small()}, 0)
		if err != nil {
			typed(err)
		}
		w := m.Work(s, b)
		if m.Validate() == nil && s.Layers >= 0 {
			require.False(t, math.IsNaN(float64(w.Backward().Total())) || w.Forward.Total() < 0)
		}
		mem, err := m.Memory(l, s, u)
		if err != nil {
			typed(err)
			require.Zero(t, mem)
		} else {
			require.Less(t, mem.Total(), lockstep.Bytes(math.MaxInt64))
			all := float64(mem.Parameters) * float64(max(l.TP, 1)) * float64(max(l.EP, 1))
			require.GreaterOrEqual(t, all*(1+1e-12), float64(m.Parameters(s)), "every parameter is on some rank")
			for _, line := range mem.Lines() {
				require.GreaterOrEqual(t, line, lockstep.Bytes(0))
			}
		}
		transfers, err := m.Transfers(nil, l, s, u, n.small())
		if err != nil {
			typed(err)
			require.Empty(t, transfers)
		}
		for _, x := range transfers {
			require.GreaterOrEqual(t, x.Wire(), lockstep.Bytes(0))
		}
		if _, err = m.KVCache(s, l.TP, n.small(), n.next()); err != nil {
			typed(err)
		}
	})
}
