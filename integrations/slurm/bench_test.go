package slurm

import (
	"testing"
	"time"
)

// BenchmarkPlan plans full clusters of nodes with 8 devices: reading the documents, and planning a week ahead.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct {
		name           string
		nodes, waiting int
	}{
		{"nodes=100/waiting=500", 100, 500},
		{"nodes=1000/waiting=5000", 1000, 5000},
	} {
		nodeDoc, jobDoc, topology := documents(size.nodes, size.waiting, 1)
		b.Run("read/"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				read(b, nodeDoc, jobDoc, topology)
			}
			b.ReportMetric(float64(len(jobDoc)+len(nodeDoc)), "bytes")
		})
		v := read(b, nodeDoc, jobDoc, topology)
		for _, rule := range []Rule{LTGF, FIFO, Slurm} {
			b.Run("plan/rule="+ruleName(rule)+"/"+size.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Plan(v, Config{Rule: rule}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run("now/"+size.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Plan(v, Config{Horizon: time.Second}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
