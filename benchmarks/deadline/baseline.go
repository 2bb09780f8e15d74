package main

import (
	"cmp"
	"slices"
)

// baseline is a policy without admission: every job runs to its end.
type baseline struct {
	name string

	// key orders jobs, the lower first; ties go by submission, then ID.
	key func(l *live, now int64) int64

	// widest lets a job have as many devices as it can run on, faster or not, or what is left of them, instead of those
	// it asks for.
	widest bool

	// stays lets those that run go on until they end, and nobody pass those that wait.
	stays bool

	// limits are the service, in device-nanoseconds, at which a job's key may change.
	limits []int64
}

// lasLimits are those of the authors' simulator, three queues.
var lasLimits = []int64{3250 * second, 7200 * second}

// baselines are what the admission is measured against.
var baselines = []baseline{
	{name: widest, key: func(l *live, _ int64) int64 { return l.deadline }, widest: true},
	{name: "EDF", key: func(l *live, _ int64) int64 { return l.deadline }},
	{name: "least laxity", key: func(l *live, now int64) int64 { return l.deadline*second - now - l.alone() }},
	{name: las, key: func(l *live, _ int64) int64 {
		q, _ := slices.BinarySearch(lasLimits, l.service+1)
		return int64(q)
	}, limits: lasLimits},
	{name: "FIFO", key: func(l *live, _ int64) int64 { return l.submit }, stays: true},
}

// asked is the most devices that a job can use of those it asks for, and how fast it is on them.
func (j *job) asked() (gpus int, rate int64) {
	for _, p := range j.points {
		if p.GPUs <= j.gpus {
			gpus, rate = p.GPUs, p.Rate
		}
	}
	if r, ok := j.all[j.gpus]; ok {
		return j.gpus, r
	}
	return gpus, rate
}

// alone is how long a job takes yet on what it asks for, in nanoseconds.
func (l *live) alone() int64 {
	c := *l
	_, c.rate = l.asked()
	return c.ends()
}

// replay runs a trace under b.
func (b *baseline) replay(all []*job, gpus int) outcome {
	out := outcome{jobs: len(all), admitted: len(all)}
	var active []*live
	now, next := int64(0), int64(1<<63-1)
	sum := 0.0
	for len(all) > 0 || len(active) > 0 {
		to := next
		if len(all) > 0 && (len(active) == 0 || all[0].submit*second < to) {
			to = max(all[0].submit*second, now)
		}
		kept := active[:0]
		for _, l := range active {
			switch {
			case l.gpus == 0:
				kept = append(kept, l)
			case l.ends() > to-now:
				l.run(to - now)
				l.service += int64(l.gpus) * (to - now)
				kept = append(kept, l)
			default:
				sum += float64(to)/1e9 - float64(l.submit)
				if to <= l.deadline*second {
					out.met++
				}
			}
		}
		active, now = kept, to
		for ; len(all) > 0 && all[0].submit*second <= now; all = all[1:] {
			active = append(active, &live{job: all[0], left: all[0].work})
		}
		next = b.share(active, gpus, now)
	}
	out.missed = out.jobs - out.met
	out.jct = sum / float64(max(out.jobs, 1))
	return out
}

// share gives the devices out and returns when something happens next.
func (b *baseline) share(active []*live, free int, now int64) int64 {
	for _, l := range active {
		l.key = b.key(l, now)
	}
	slices.SortFunc(active, func(x, y *live) int {
		if b.stays && (x.gpus > 0) != (y.gpus > 0) {
			return cmp.Compare(y.gpus, x.gpus)
		}
		return cmp.Or(cmp.Compare(x.key, y.key), cmp.Compare(x.submit, y.submit), cmp.Compare(x.id, y.id))
	})
	next := int64(1<<63 - 1)
	blocked := false
	for _, l := range active {
		want, rate := l.asked()
		if b.widest {
			want, rate = 0, 0
			for n := 1; n <= min(free, maxGPUs); n *= 2 {
				if r, ok := l.all[n]; ok {
					want, rate = n, r
				}
			}
		}
		if want == 0 || want > free || blocked {
			l.gpus = 0
			blocked = b.stays
			continue
		}
		free -= want
		l.gpus, l.rate = want, rate
		next = min(next, now+l.ends())
		for _, limit := range b.limits {
			if l.service < limit {
				next = min(next, now+(limit-l.service+int64(want)-1)/int64(want))
				break
			}
		}
	}
	return next
}
