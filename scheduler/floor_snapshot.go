package scheduler

import (
	"maps"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// rationsImage is the saved form of rations: what the gangs and weights do not tell.
type rationsImage struct {
	Capacity lockstep.MilliGPU `json:"capacity"`
	Tenants  []portionImage    `json:"tenants"` // by ID
	Jobs     []rationImage     `json:"jobs"`    // by ID
}

type portionImage struct {
	ID     lockstep.TenantID `json:"id"`
	Weight int64             `json:"weight"`
	At     int64             `json:"at"`
	Widths []widthImage      `json:"widths,omitempty"` // by amount
}

type widthImage struct {
	Amount lockstep.MilliGPU `json:"amount"`
	Total  uint64            `json:"total"`
}

type rationImage struct {
	ID        lockstep.JobID    `json:"id"`
	Amount    lockstep.MilliGPU `json:"amount"`
	Offset    uint64            `json:"offset"`
	Used      uint64            `json:"used"`
	Run       int64             `json:"run"`
	Since     int64             `json:"since"`
	Late      int64             `json:"late,omitempty"`
	Stopped   bool              `json:"stopped,omitempty"`
	Submitted int64             `json:"submitted"`
}

func (r *rations) image() *rationsImage {
	img := &rationsImage{Capacity: r.capacity, Tenants: []portionImage{}, Jobs: []rationImage{}}
	for _, p := range r.byID {
		t := portionImage{ID: p.id, Weight: p.weight, At: p.at}
		for _, w := range p.widths {
			t.Widths = append(t.Widths, widthImage{w.amount, w.total})
		}
		img.Tenants = append(img.Tenants, t)
	}
	for _, id := range slices.Sorted(maps.Keys(r.jobs)) {
		j := r.jobs[id]
		img.Jobs = append(img.Jobs, rationImage{
			ID: id, Amount: j.amount, Offset: j.offset, Used: j.used, Run: j.run, Since: j.since, Late: j.late, Stopped: j.stopped, Submitted: j.submitted,
		})
	}
	return img
}

// restore returns the rations of img, for jobs that have not left, at now.
func (img *rationsImage) restore(jobs map[lockstep.JobID]*job, now int64) (*rations, error) {
	broken := func(reason string) (*rations, error) {
		return nil, fault(lockstep.ErrInvalid, "restore", "rations", "", reason)
	}
	if img == nil || img.Capacity < 0 {
		return broken("are not there, or of no capacity")
	}
	r := newRations(img.Capacity)
	for i := range img.Tenants {
		t := &img.Tenants[i]
		if r.tenants[t.ID] != nil || t.Weight < 0 || t.Weight > math.MaxInt64/2-r.weights || t.At > now {
			return broken("a tenant that stands twice, or out of range")
		}
		r.join(t.At, t.ID, t.Weight)
	}
	for i := range img.Tenants { // now that nothing divides the quotas any more
		t := &img.Tenants[i]
		p := r.tenants[t.ID]
		p.at = t.At
		for _, w := range t.Widths {
			if n := len(p.widths); w.Amount < 0 || n > 0 && p.widths[n-1].amount >= w.Amount {
				return broken("widths out of order")
			}
			p.widths = append(p.widths, width{w.Amount, w.Total})
		}
	}
	for i := range img.Jobs {
		if reason := r.adopt(&img.Jobs[i], jobs, now); reason != "" {
			return broken(reason)
		}
	}
	for id, j := range jobs { // all faults of them read alike, so the order does not matter
		if !j.gone && r.jobs[id] == nil {
			return broken("a job without one")
		}
	}
	return r, nil
}

// adopt takes in a job, or says what is impossible about it.
func (r *rations) adopt(img *rationImage, jobs map[lockstep.JobID]*job, now int64) string {
	known := jobs[img.ID]
	switch {
	case known == nil || known.gone || r.jobs[img.ID] != nil:
		return "one without its job"
	case r.tenants[known.gang.Tenant] == nil:
		return "one without its tenant"
	case img.Amount < 0 || img.Run < 0 || img.Late < 0 || img.Since > now || img.Submitted > now:
		return "one out of range"
	}
	p := r.tenants[known.gang.Tenant]
	at, widths := p.at, slices.Clone(p.widths)
	j := r.submit(p.at, p, known.gang, img.Amount)
	p.at, p.widths = at, widths
	j.offset, j.used, j.run, j.since, j.late = img.Offset, img.Used, img.Run, img.Since, img.Late
	j.stopped, j.submitted = img.Stopped, img.Submitted
	if j.since != never {
		j.leave()
	}
	return ""
}
