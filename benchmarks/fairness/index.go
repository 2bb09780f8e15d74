package main

import (
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// span is what became of a job, whatever ran it.
type span struct {
	tenant      lockstep.TenantID
	gpus        float64
	submit, end time.Duration
	service     float64 // GPU-seconds, overhead included
	useful      float64 // GPU-seconds of its own work
}

// indexes are ASTRAEA's ratios: service over what was deserved.
type indexes struct {
	jobs    []float64 // in increasing order, of useful work
	tenants []float64 // in increasing order, over the whole run
}

// deserve works out ASTRAEA's indexes after the fact. A job deserves the lesser of
// its width and an equal part of its tenant's quota among the tenant's jobs, as long
// as it is in the system; a tenant the lesser of its quota and its demand (Ye et al.,
// IEEE TPDS 2022, artifact).
func deserve(spans []span, quota map[lockstep.TenantID]float64) indexes {
	var out indexes
	byTenant := map[lockstep.TenantID][]*span{}
	for i := range spans {
		s := &spans[i]
		byTenant[s.tenant] = append(byTenant[s.tenant], s)
	}
	for tenant, list := range byTenant { // in any order: sorted below
		jobs, whole := deserveTenant(list, quota[tenant])
		out.jobs = append(out.jobs, jobs...)
		out.tenants = append(out.tenants, whole)
	}
	slices.Sort(out.jobs)
	slices.Sort(out.tenants)
	return out
}

// change is a job that comes or goes.
type change struct {
	at    time.Duration
	job   *span
	comes bool
}

func deserveTenant(list []*span, quota float64) (jobs []float64, whole float64) {
	changes := make([]change, 0, 2*len(list))
	widths := map[float64]float64{} // what a job of this width would have deserved so far
	for _, s := range list {
		changes = append(changes, change{s.submit, s, true}, change{s.end, s, false})
		widths[s.gpus] = 0
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		if a.at != b.at {
			return int(min(max(a.at-b.at, -1), 1))
		}
		if a.comes != b.comes && !b.comes {
			return 1
		}
		return 0
	})
	began := map[*span]float64{}
	last, n, demand, deserved, served := time.Duration(0), 0.0, 0.0, 0.0, 0.0
	for _, c := range changes {
		dt := (c.at - last).Seconds()
		last = c.at
		if n > 0 {
			for w := range widths { // each on its own
				widths[w] += dt * math.Min(w, quota/n)
			}
		}
		deserved += dt * math.Min(demand, quota)
		if c.comes {
			n++
			demand += c.job.gpus
			began[c.job] = widths[c.job.gpus]
			continue
		}
		n--
		demand -= c.job.gpus
		served += c.job.service
		if d := widths[c.job.gpus] - began[c.job]; d > 0 {
			jobs = append(jobs, c.job.useful/d)
		}
	}
	if deserved == 0 {
		return jobs, 1
	}
	return jobs, served / deserved
}

// at returns the value at a part of a sorted list, nearest rank.
func at(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// below counts the values under a bound.
func below(sorted []float64, bound float64) int {
	i, _ := slices.BinarySearch(sorted, bound)
	return i
}
