package ibnet

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/topology"
)

func BenchmarkParse(b *testing.B) {
	shape := topology.NVSwitch8()
	for _, units := range []int{4, 40, 400} { // 25 hosts each
		b.Run(fmt.Sprintf("hosts=%d/rails=8", units*25), func(b *testing.B) {
			text := railed(units, 25, 8, 4, 4).write(rand.New(rand.NewPCG(5, 9)))
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				f, err := Parse(strings.NewReader(text))
				require.NoError(b, err)
				_, nodes, err := f.Inputs(Config{Shape: shape})
				require.NoError(b, err)
				require.Len(b, nodes, units*25)
			}
		})
	}
}
