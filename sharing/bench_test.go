package sharing

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/lockstep-gpu/lockstep"
)

func BenchmarkNewGeometry(b *testing.B) {
	cfg, _ := ModelConfig("h100-80gb")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewGeometry(cfg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBestStart(b *testing.B) {
	g := geometry(b, "h100-80gb")
	b.ReportAllocs()
	for b.Loop() {
		start, _ := g.BestStart(0b11, 3)
		_, _ = g.Take(0b11, 3, start)
	}
}

func BenchmarkPack(b *testing.B) {
	g := geometry(b, "h100-80gb")
	for _, profiles := range [][]int{{4}, {4, 3, 3}, {0, 0, 0, 0, 0, 0, 0}, {1, 0, 3, 2, 0}} {
		b.Run(fmt.Sprintf("profiles=%d", len(profiles)), func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]Instance, 0, 8)
			for b.Loop() {
				dst, _ = g.Pack(dst[:0], 0, profiles)
			}
		})
	}
}

func BenchmarkRepartition(b *testing.B) {
	g := geometry(b, "h100-80gb")
	for _, n := range []int{1, 4, 7} {
		b.Run(fmt.Sprintf("instances=%d", n), func(b *testing.B) {
			var held []Held
			for i := range n {
				held = append(held, Held{Instance: Instance{0, i}, Tenant: lockstep.JobID(strconv.Itoa(i)), Cost: int64(i), Return: i%2 == 0})
			}
			var out Repartition
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Repartition(held, []int{4, 3}, &out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAdmit(b *testing.B) {
	l := Limits{Mode: MPS, Memory: 80 * gib, Context: 300 * mib}
	c := Claim{Share: 250, Memory: 2000 * mib}
	b.ReportAllocs()
	for b.Loop() {
		d, _ := l.Admit(l.Empty(), c)
		_, _ = l.Release(d, c)
	}
}

func BenchmarkRelieve(b *testing.B) {
	for _, n := range []int{4, 48, 480} {
		b.Run(fmt.Sprintf("tenants=%d", n), func(b *testing.B) {
			l := ledger(b, LedgerConfig{Capacity: lockstep.Bytes(n) * gib, Factor: 2000, High: 500, Low: 400})
			ids := make([]lockstep.JobID, n)
			for i := range ids {
				ids[i] = lockstep.JobID(strconv.Itoa(i))
				admit(b, l, Tenant{ID: ids[i], Request: gib, Opportunistic: true})
			}
			var dst []Relief
			now := 0
			b.ReportAllocs()
			for b.Loop() {
				now += 100
				for _, id := range ids {
					if err := l.Report(at(now), id, gib, false); err != nil {
						b.Fatal(err)
					}
				}
				dst, _, _ = l.Relieve(at(now), dst[:0])
			}
		})
	}
}
