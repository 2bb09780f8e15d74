package slurm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/topology"
)

func BenchmarkParse(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			tree, err := topology.Uniform(topology.UniformConfig{Levels: []topology.Level{{Name: "block"}, {Name: "rack"}}, Fanout: []int{nodes / 500, 20, 25}})
			require.NoError(b, err)
			top, err := TreeOf(tree, "core")
			require.NoError(b, err)
			var text bytes.Buffer
			require.NoError(b, top.Write(&text))
			b.SetBytes(int64(text.Len()))
			b.ReportAllocs()
			for b.Loop() {
				read, err := Parse(bytes.NewReader(text.Bytes()))
				require.NoError(b, err)
				_, placed, err := read.Inputs()
				require.NoError(b, err)
				require.Len(b, placed, nodes)
			}
		})
	}
}
