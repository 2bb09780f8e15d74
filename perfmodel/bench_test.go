package perfmodel

import (
	"strconv"
	"testing"
	"time"
)

func BenchmarkBatch(b *testing.B) {
	m := llama3()
	for _, docs := range []int{1, 16, 160} {
		b.Run("documents="+strconv.Itoa(docs), func(b *testing.B) {
			lens := repeat(docs, 512)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Batch(lens, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWork(b *testing.B) {
	m, s, batch := mixtral(), Stage{Layers: 8, Last: true, Flash: true}, Batch{Tokens: 32768, Pairs: 1e8}
	b.ReportAllocs()
	for b.Loop() {
		if m.Work(s, batch).Forward.Linear == 0 {
			b.Fatal("no work")
		}
	}
}

func BenchmarkMemory(b *testing.B) {
	m, s := llama70B(), Stage{Layers: 10, Last: true, Flash: true}
	l := Layout{TP: 8, PP: 8, DP: 16, ZeRO: 1, SequenceParallel: true}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Memory(l, s, Load{Tokens: 4096, InFlight: 8}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBest(b *testing.B) {
	g := GroupShape{{8, Link{2 * time.Microsecond, 450e9}}, {16, Link{8 * time.Microsecond, 50e9}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := g.Best(AllReduce, 1<<30); !ok {
			b.Fatal("no algorithm")
		}
	}
}
