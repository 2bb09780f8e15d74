package autoscale

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// gauge is what a source told last of how many requests there are. They are kept by source.
type gauge struct {
	Source  string `json:"source"`
	At      int64  `json:"at"`
	Ongoing int64  `json:"ongoing"`
	Queued  int64  `json:"queued"`
}

// source returns where the gauge of a source is, or belongs.
func (s *Scaler) source(name string) (int, bool) {
	return slices.BinarySearchFunc(s.gauges, name, func(g gauge, name string) int { return strings.Compare(g.Source, name) })
}

// expired returns how many gauges have.
func (s *Scaler) expired(now int64) (n int) {
	for _, g := range s.gauges {
		if now-g.At > int64(s.cfg.Expiry) {
			n++
		}
	}
	return n
}

// expire drops the counts that expire before now, those of one instant together, the first first.
func (s *Scaler) expire(now int64) {
	var due []gauge
	left := int64(0) // of all, not held
	for _, g := range s.gauges {
		left += g.Ongoing + g.Queued
		if instant.Add(g.At, s.cfg.Expiry) < now {
			due = append(due, g)
		}
	}
	if len(due) == 0 {
		return
	}
	slices.SortFunc(due, func(a, b gauge) int { return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Source, b.Source)) })
	for _, g := range due {
		s.level.advance(max(instant.Add(g.At, s.cfg.Expiry)/1000, s.level.Last), 0)
		left -= g.Ongoing + g.Queued
		s.level.Value = min(left, maxOngoing)
	}
	s.gauges = slices.DeleteFunc(s.gauges, func(g gauge) bool { return instant.Add(g.At, s.cfg.Expiry) < now })
}

// ongoing returns how many requests there are.
func (s *Scaler) ongoing() int64 { return ongoing(s.gauges) }

// ongoing adds up gauges, and holds the sum at maxOngoing.
func ongoing(gauges []gauge) (n int64) {
	for _, g := range gauges {
		n += g.Ongoing + g.Queued // at most 2^16 × 2 × 10^9
	}
	return min(n, maxOngoing)
}

// waiting returns how many requests wait.
func (s *Scaler) waiting() (n int64) {
	for _, g := range s.gauges {
		n += g.Queued
	}
	return n
}
