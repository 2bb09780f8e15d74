package astraea

import "math"

// hours is how many closed hours count (long_term_interval_cnt).
const hours = 24

// closeHour puts what the hour under way came to behind the closed ones.
func (w *world) closeHour() {
	for _, t := range w.tenants {
		t.hours = append(t.hours, t.open)
		t.last = t.last.add(t.open)
		if n := len(t.hours); n > hours {
			old := t.hours[n-1-hours]
			t.last = t.last.add(sums{-old.used, -old.deserved, -old.weighted})
		}
		t.open = sums{}
	}
}

// accountJobs adds to what each job deserves, and rates those that run.
func (w *world) accountJobs() {
	dt := float64(w.tick)
	for _, t := range w.tenants {
		n := len(t.pending) + len(t.active)
		if n == 0 {
			continue
		}
		part := 1 / float64(n)
		share := part * float64(t.quota)
		for _, j := range t.pending {
			j.deserved += float64(min(float64(j.gpus), share) * dt)
			j.fairness = j.utilized / j.deserved
			j.class = classOf(j.fairness)
		}
		for _, j := range t.active {
			j.deserved += float64(min(float64(j.gpus), share) * dt)
			j.rate(j.gpus * j.executed)
		}
	}
}

// rate sets what j has got, and its ratio.
func (j *job) rate(utilized int64) {
	j.utilized = float64(utilized)
	j.fairness = j.utilized / j.deserved
	j.class = classOf(j.fairness)
}

// accountTenants adds the tick to each tenant's hour and rates it by the closed
// ones.
func (w *world) accountTenants() {
	for _, t := range w.tenants {
		var used, demand int64
		for _, j := range t.active {
			used += j.gpus * w.tick
		}
		demand = used
		for _, j := range t.pending {
			demand += j.gpus * w.tick
		}
		weighted := t.quota * w.tick
		s := sums{used, min(demand, weighted), weighted}
		t.open, t.total = t.open.add(s), t.total.add(s)
		t.ratio, t.reported = 1, 1
		if t.last.weighted != 0 {
			t.ratio = float64(t.last.used) / float64(t.last.weighted)
		}
		if t.last.deserved != 0 {
			t.reported = float64(t.last.used) / float64(t.last.deserved)
		}
	}
}

// count sets what each tenant holds.
func (w *world) count() {
	for _, t := range w.tenants {
		t.used = 0
		for _, j := range t.active {
			t.used += j.gpus
		}
	}
}

// classes is how many classes Class tells apart besides that of new jobs.
const classes = 5

// classOf returns the class of a ratio, 0 for a job that got nothing yet.
func classOf(x float64) int {
	if x == 0 {
		return 0
	}
	ln := math.Log(x)
	f := -ln / math.Sqrt(1+float64(ln*ln))
	return int(classes - floorDiv((f+1)/2, 1.0/classes))
}

// floorDiv is a/b rounded down as Python has it, from the exact remainder, for
// b more than 0.
func floorDiv(a, b float64) float64 {
	rest := math.Mod(a, b)
	q := (a - rest) / b
	if rest < 0 {
		q--
	}
	down := math.Floor(q)
	if q-down > 0.5 {
		down++
	}
	return down
}
