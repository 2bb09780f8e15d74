package sim

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Series are samples at equal distances, as many as Config.Points at the most.
type Series struct {
	Every   time.Duration       `json:"every"`   // Every is the distance of samples.
	Tenants []lockstep.TenantID `json:"tenants"` // Tenants are those that the inner slices of samples are for.
	Samples []Sample            `json:"samples"` // Samples are by time.
}

// Sample is how things stood at one time.
type Sample struct {
	Time        time.Duration       `json:"time"`        // Time is when, after Config.Start.
	Waiting     int                 `json:"waiting"`     // Waiting is how many jobs waited.
	Held        []lockstep.MilliGPU `json:"held"`        // Held is what each tenant held.
	Service     []float64           `json:"service"`     // Service is what each tenant had got so far, in GPU-seconds.
	Entitlement []float64           `json:"entitlement"` // Entitlement is what each tenant should have got so far, in GPU-seconds.
}

// sampler takes samples, at distances that it doubles whenever there are too many.
type sampler struct {
	out   Series
	limit int
	next  int64
}

// firstEvery is the distance of samples at first.
const firstEvery = int64(time.Second)

func (s *sampler) init(h *host, a *account) {
	s.limit = h.cfg.Points
	if s.limit == 0 {
		s.limit = 512
	}
	s.out.Every = time.Duration(firstEvery)
	s.next = h.now
	for _, t := range a.tenants {
		s.out.Tenants = append(s.out.Tenants, t.id)
	}
}

// pass takes the samples that are due up to t, before anything happens then.
func (s *sampler) pass(h *host, a *account, t int64) {
	for s.next <= t {
		if len(s.out.Samples) >= s.limit && !s.thin(h) {
			return
		}
		if s.next > t {
			return
		}
		s.take(h, a)
		s.next += int64(s.out.Every)
	}
}

// thin drops every other sample and doubles the distance.
func (s *sampler) thin(h *host) bool {
	if s.limit < 2 {
		s.next = 1<<63 - 1
		return false
	}
	kept := s.out.Samples[:0]
	for i := range s.out.Samples {
		if i%2 == 0 {
			kept = append(kept, s.out.Samples[i])
		}
	}
	clear(s.out.Samples[len(kept):])
	s.out.Samples = kept
	s.out.Every *= 2
	s.next = h.zero + int64(kept[len(kept)-1].Time+s.out.Every)
	return true
}

func (s *sampler) take(h *host, a *account) {
	x := Sample{Time: dur(s.next - h.zero), Waiting: a.waiting}
	var err error
	if a.statements, err = a.ledger.AppendStatements(a.statements[:0], lockstep.FromNanos(s.next)); err != nil {
		return // not before the ledger's time, so never
	}
	n := len(a.tenants)
	x.Held = make([]lockstep.MilliGPU, n)
	sums := make([]float64, 2*n)
	x.Service, x.Entitlement = sums[:n:n], sums[n:]
	for i := range a.statements {
		st := &a.statements[i]
		x.Held[i], x.Service[i], x.Entitlement[i] = st.Held, st.Service.GPUSeconds(), st.Entitlement.GPUSeconds()
	}
	s.out.Samples = append(s.out.Samples, x)
}
