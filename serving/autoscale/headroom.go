package autoscale

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/policy"
)

// HeadRoom is the rule of INFaaS (Romero et al., USENIX ATC 2021): keep so much capacity free that the load may grow
// while a replica loads, ⌈(q - nT + h·nT·t)/T⌉ more with load q, n replicas of rate T, growth h and load time t; give
// back one where one fewer carries the load; and change nothing while replicas load. The paper gives one back without a
// look at the head-room of those left, and starts it again at once where that is short; here it has to do as well.
type HeadRoom struct {
	PerReplica int64         `json:"perReplica"`       // PerReplica is T, how many requests a second a replica carries, in thousandths; more than 0.
	Growth     int64         `json:"growth,omitempty"` // Growth is h, by which part the load may grow in a second, in millionths; 0 means none. With Load it has to come to less than all.
	Load       time.Duration `json:"load,omitempty"`   // Load is t, how long a replica takes to be ready, at most 24 h.
	Window     time.Duration `json:"window,omitempty"` // Window is over how long the load is averaged, at most an hour; 0 means 10 s.
}

// Validate reports every fault of h, joined.
func (h HeadRoom) Validate() error {
	f := faults{op: "head-room"}
	f.count("PerReplica", h.PerReplica, 1, maxCount*thousand)
	f.count("Growth", h.Growth, 0, thousand*thousand)
	f.span("Load", h.Load, 0, 24*time.Hour)
	f.span("Window", or(h.Window, time.Second), time.Millisecond, time.Hour)
	if err := f.err(); err != nil {
		return err
	}
	if h.room() >= thousand*thousand {
		f.bad("Growth", strconv.FormatInt(h.Growth, 10), "with Load asks for all of the capacity to be free")
	}
	return f.err()
}

// room is which part of the capacity is to be free, in millionths.
func (h HeadRoom) room() int64 { return int128.MulDivUp(h.Growth, int64(h.Load), int64(time.Second)) }

// Delta is the rule's arithmetic: how many replicas more (or, -1, fewer) than n the load wants, in thousandths of
// requests a second. The caller has validated h.
func (h HeadRoom) Delta(load int64, n int) int {
	have := int64(min(max(n, 0), MaxReplicas))
	capacity := have * h.PerReplica // at most 2^20 × 10^12: it fits
	need := add(max(load, 0), int128.MulDivUp(capacity, h.room(), thousand*thousand))
	if need > capacity {
		return int(min(int128.MulDivUp(need-capacity, 1, h.PerReplica), MaxReplicas-have))
	}
	less := capacity - h.PerReplica
	if have > 0 && add(max(load, 0), int128.MulDivUp(less, h.room(), thousand*thousand)) <= less {
		return -1
	}
	return 0
}

func (h HeadRoom) filled() Rule {
	h.Window = or(h.Window, 10*time.Second)
	return h
}

func (h HeadRoom) windows() (level, rate time.Duration) { return 0, h.Window }

func (h HeadRoom) ahead(time.Duration) []Horizon { return nil }

func (h HeadRoom) delays() policy.Delayed { return policy.Delayed{} }

func (h HeadRoom) propose(s *signals, _ *memory) proposal {
	load, n := s.arrivals.rate(h.Window), s.count()
	p := proposal{n: n, need: int128.MulDivUp(load, thousand, h.PerReplica), load: load, reason: ReasonRule}
	if s.starting > 0 {
		p.reason = ReasonLoading
		return p
	}
	p.n = max(n+h.Delta(load, n), 0)
	return p
}
