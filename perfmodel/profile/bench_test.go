package profile

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

func BenchmarkNeed(b *testing.B) {
	s, err := New(Config{Levels: tree()})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 64 {
		if err := s.ObserveLevel("k", tree()[i%4], time.Duration(100+i)*time.Millisecond); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Need("k", lockstep.LevelNode, "rack")
	}
}

func BenchmarkBeside(b *testing.B) {
	for _, kinds := range []int{20, 200, 2000} {
		b.Run(fmt.Sprintf("kinds=%d/pairs=%d/first", kinds, 5*kinds), func(b *testing.B) {
			s, err := New(Config{})
			if err != nil {
				b.Fatal(err)
			}
			name := func(i int) Kind { return Kind(fmt.Sprint("k", i%kinds)) }
			for i := range kinds {
				for j := range 5 {
					if err := s.ObservePair(name(i), name(i+j+1), 900, 800); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				s.model = nil
				s.Beside(name(0), name(kinds/2+1))
			}
		})
	}
}

func BenchmarkDurations(b *testing.B) {
	d, err := NewDurations(DurationsConfig{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		j := Job{Tenant: "t", Name: "train-llama-001", GPUs: lockstep.MilliGPU(i % 64)}
		e, err := d.Expect(j, time.Hour)
		if err == nil {
			err = d.Observe(j, e.Duration, time.Hour)
		}
		if err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkPoolStep(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("waiting=%d", n), func(b *testing.B) {
			p, err := NewPool(PoolConfig{Wait: lockstep.MaxWalltime})
			if err != nil {
				b.Fatal(err)
			}
			for i := range n {
				if _, err := p.Submit(at(0), lockstep.JobID(fmt.Sprint("j", i)), 8); err != nil {
					b.Fatal(err)
				}
			}
			var acts []PoolAction
			b.ReportAllocs()
			for b.Loop() {
				if acts, err = p.Step(at(1), acts[:0]); err != nil {
					b.Fatal(err)
				}
				p.NextWake(at(1))
			}
		})
	}
}
