package labels_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/topology/labels"
)

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			var text strings.Builder
			text.WriteString(`{"kind":"List","items":[`)
			for i := range n {
				if i > 0 {
					text.WriteString(",\n")
				}
				fmt.Fprintf(&text, `{"kind":"Node","metadata":{"name":"n%d","labels":{"zone":"z%d","rack":"r%d"},"annotations":{"x":"%s"}},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}`,
					i, i/1000, i/20, strings.Repeat("y", 1000))
			}
			text.WriteString("]}")
			b.SetBytes(int64(text.Len()))
			b.ReportAllocs()
			for b.Loop() {
				nodes, err := labels.Parse(strings.NewReader(text.String()))
				require.NoError(b, err)
				_, placed, err := labels.Inputs(labels.Config{Keys: []labels.Key{{Label: "zone"}, {Label: "rack", Unique: true}}}, nodes)
				require.NoError(b, err)
				require.Len(b, placed, n)
			}
		})
	}
}
