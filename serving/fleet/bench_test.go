package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkPack(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) {
			sessions := randomSessions(rand.New(rand.NewPCG(1, 1)), n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Pack(sessions, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkVote(b *testing.B) {
	models := make([]Member, 16)
	for i := range models {
		models[i] = Member{ID: ID(fmt.Sprint(i)), Accuracy: 600_000 + int64(i)*10_000, Cost: int64(i)}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Vote(models, 900_000); err != nil {
			b.Fatal(err)
		}
	}
}
