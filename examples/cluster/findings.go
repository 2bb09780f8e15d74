package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sim"
)

// findings says which policy is fairest and which fastest, and why, in a few
// sentences. Every word of them comes from the figures.
func findings(w *workload, outcomes []outcome) []string {
	fair := slices.MinFunc(rank(outcomes), func(a, b *outcome) int { return a.MaxLag.Cmp(b.MaxLag) })
	if !slices.ContainsFunc(outcomes, func(x outcome) bool { return x.MaxLag.Sign() > 0 }) {
		fair = nil // nobody was owed anything: all are alike
	}
	var f []string
	f = append(f, fairest(w, outcomes, fair)...)
	f = append(f, fastest(outcomes, fair)...)
	for i := range outcomes {
		if x := &outcomes[i]; x.Released != nil && x.Extensions > 0 {
			f = append(f, fmt.Sprintf("Leases: %s extended %s in place at no cost and paid for %s; had every lease that ended been given back, it would have paid for %s, and for %s GPU-hours of overhead instead of %s.",
				x.Title, plural(x.Extensions, "ended lease"), plural(x.Resumes, "resume"), plural(x.Released.Resumes, "resume"), amount(gpuHours(x.Released.Overhead())), amount(gpuHours(x.Overhead()))))
		}
	}
	return f
}

// rank returns pointers to the outcomes.
func rank(outcomes []outcome) []*outcome {
	list := make([]*outcome, len(outcomes))
	for i := range outcomes {
		list[i] = &outcomes[i]
	}
	return list
}

// fairest compares how much any tenant was ever owed, and looks at how it came to
// that under the policy that let it grow most.
func fairest(w *workload, outcomes []outcome, fair *outcome) []string {
	byLag := rank(outcomes)
	slices.SortStableFunc(byLag, func(a, b *outcome) int { return a.MaxLag.Cmp(b.MaxLag) })
	last := byLag[len(byLag)-1]
	if fair == nil {
		return []string{"Fairness: no policy ever owed a tenant anything while two or more had jobs that waited."}
	}
	if len(byLag) == 1 {
		return []string{fmt.Sprintf("Fairness: the most that a tenant was ever owed under %s is %s GPU-hours (%s); the worst served tenant got %s of its entitlement.",
			fair.Title, amount(gpuHours(fair.MaxLag)), worstTenant(fair.Result).ID, percentWhole(worstIndex(fair)))}
	}
	same := func(a, b *outcome) bool { return amount(gpuHours(a.MaxLag)) == amount(gpuHours(b.MaxLag)) }
	ties := tied(byLag, same)
	text := fmt.Sprintf("Fairest: %s. While tenants competed, none was ever owed more than %s GPU-hours", titles(ties), amount(gpuHours(fair.MaxLag)))
	if len(ties) == 1 {
		text += fmt.Sprintf(" (%s)", worstTenant(fair.Result).ID)
	}
	if len(ties) == len(byLag) {
		return []string{text + "."}
	}
	next := byLag[len(ties)]
	text += fmt.Sprintf("; under the next best, %s, %s was once owed %s", next.Title, worstTenant(next.Result).ID, amount(gpuHours(next.MaxLag)))
	if fair.MaxLag.Sign() > 0 {
		text += fmt.Sprintf(", %s times as much", times(next.MaxLag.GPUSeconds()/fair.MaxLag.GPUSeconds()))
	}
	if len(ties) == 1 {
		best := slices.MaxFunc(byLag, func(a, b *outcome) int { return cmp.Compare(worstIndex(a), worstIndex(b)) })
		text += fmt.Sprintf(". Over the whole run its worst served tenant got %s of its entitlement", percentWhole(worstIndex(fair)))
		if percentWhole(worstIndex(best)) != percentWhole(worstIndex(fair)) {
			text += fmt.Sprintf("; by that measure %s is better, with %s", best.Title, percentWhole(worstIndex(best)))
		}
	}
	return []string{text + ".", blame(w, last)}
}

// tied returns the first of a sorted list and those that read the same.
func tied(sorted []*outcome, same func(a, b *outcome) bool) []*outcome {
	n := 1
	for n < len(sorted) && same(sorted[0], sorted[n]) {
		n++
	}
	return sorted[:n]
}

func titles(list []*outcome) string {
	var names []string
	for _, x := range list {
		names = append(names, x.Title)
	}
	return and(names)
}

// blame says what went on under x while the claim of its most owed tenant grew.
func blame(w *workload, x *outcome) string {
	t := worstTenant(x.Result)
	text := fmt.Sprintf("Least fair: %s, under which %s (%s of the weight) was once owed %s GPU-hours",
		x.Title, t.ID, percent(w.share(t.ID)), amount(gpuHours(t.MaxLag)))
	g, ok := growth(&x.Series, t)
	if !ok {
		return text + "."
	}
	text += fmt.Sprintf(". In the %s in which that built up, it held %s GPUs on average while entitled to %s", clock(g.time.Seconds()), amount(g.held), amount(g.share))
	idle := float64(x.GPUs) - g.all
	switch {
	case idle >= g.share-g.held:
		text += fmt.Sprintf(", though %s of the %d stood idle", amount(idle), x.GPUs)
	case g.excess > 0:
		text += fmt.Sprintf("; most of the difference was with %s, which held %s while entitled to %s", g.most, amount(g.mostHeld), amount(g.mostHeld-g.excess))
	}
	return text + "."
}

// built is how GPUs were spread while one tenant's claim grew: means over time.
type built struct {
	time     time.Duration
	held     float64 // by the tenant
	share    float64 // what it was entitled to
	all      float64 // held by all
	most     lockstep.TenantID
	mostHeld float64 // by the tenant that was furthest above what it was entitled to
	excess   float64 // by how much it was above
}

// growth looks at the stretches in which t was given less than it was entitled to,
// until the first time at which it was owed nearly as much as it ever was.
func growth(s *sim.Series, t *sim.Tenant) (b built, ok bool) {
	k := slices.Index(s.Tenants, t.ID)
	if k < 0 {
		return b, false
	}
	n := len(s.Tenants)
	got, due := make([]float64, n), make([]float64, n)
	seconds := 0.0
	for i := 1; i < len(s.Samples); i++ {
		x, y := &s.Samples[i-1], &s.Samples[i]
		if y.Entitlement[k]-y.Service[k] <= x.Entitlement[k]-x.Service[k] {
			continue
		}
		seconds += (y.Time - x.Time).Seconds()
		for j := range n {
			got[j] += y.Service[j] - x.Service[j]
			due[j] += y.Entitlement[j] - x.Entitlement[j]
		}
		const nearly = 0.95
		if y.Entitlement[k]-y.Service[k] >= nearly*t.MaxLag.GPUSeconds() {
			ok = true
			break
		}
	}
	if !ok || seconds == 0 {
		return b, false
	}
	b.time = time.Duration(seconds * float64(time.Second))
	b.held, b.share = got[k]/seconds, due[k]/seconds
	for j, id := range s.Tenants {
		b.all += got[j] / seconds
		if excess := (got[j] - due[j]) / seconds; excess > b.excess {
			b.most, b.mostHeld, b.excess = id, got[j]/seconds, excess
		}
	}
	return b, true
}

// fastest compares mean completion times, and whose waits made the difference.
func fastest(outcomes []outcome, fair *outcome) []string {
	byJCT := rank(outcomes)
	slices.SortStableFunc(byJCT, func(a, b *outcome) int { return cmp.Compare(a.JCT.Mean, b.JCT.Mean) })
	fast, slow := byJCT[0], byJCT[len(byJCT)-1]
	if len(byJCT) == 1 {
		return []string{fmt.Sprintf("Speed: the mean job completed in %s under %s.", clock(fast.JCT.Mean.Seconds()), fast.Title)}
	}
	ties := tied(byJCT, func(a, b *outcome) bool { return meanJCT(a) == meanJCT(b) })
	text := fmt.Sprintf("Fastest: %s, with a mean completion time of %s", titles(ties), meanJCT(fast))
	if slices.Contains(ties, fair) {
		text = strings.Replace(text, "Fastest: ", "Fastest, too: ", 1)
	}
	if len(ties) == len(byJCT) {
		return []string{text + "."}
	}
	var others []string
	for _, x := range byJCT[len(ties):] {
		if x == fair || x == slow || x.Flag == "fifo" {
			others = append(others, meanJCT(x)+" under "+x.Title)
		}
	}
	text += ", against " + and(others) + "."
	fastShort, fastLong := waits(fast.Result)
	slowShort, slowLong := waits(slow.Result)
	return []string{text + fmt.Sprintf(" The shorter half of all jobs waited %s on average under %s and %s under %s; the longest tenth %s and %s.",
		clock(fastShort.Seconds()), fast.Title, clock(slowShort.Seconds()), slow.Title, clock(fastLong.Seconds()), clock(slowLong.Seconds()))}
}

func meanJCT(x *outcome) string { return clock(x.JCT.Mean.Seconds()) }

// waits returns the mean waits of the shorter half of all jobs, and of the
// longest tenth.
func waits(r *sim.Result) (short, long time.Duration) {
	byLength := slices.Clone(r.Records)
	slices.SortStableFunc(byLength, func(a, b sim.Record) int { return cmp.Compare(a.Duration, b.Duration) })
	mean := func(records []sim.Record) time.Duration {
		sum := 0.0
		for i := range records {
			sum += records[i].Wait.Seconds()
		}
		return time.Duration(sum / float64(max(len(records), 1)) * float64(time.Second))
	}
	n := len(byLength)
	return mean(byLength[:(n+1)/2]), mean(byLength[n-(n+9)/10:])
}

// and joins a list as people do.
func and(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}
