package bubble

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Observation is a window as it was.
type Observation struct {
	Window  int           // index in Config.Windows
	Start   time.Duration // when it began, as told to Begin if it was
	End     time.Duration // when the main job needed the device, after Start
	Overrun time.Duration // how much longer the device was taken by the bundles, until the pause was over; 0 for not at all
}

// Observe takes in how a window went. Every window is to be observed, filled or not. It returns ReasonDrift, ReasonScale
// or ReasonHarm when something has been found for which filling stops, in that window, in all of them, ReasonRearmed
// when filling goes on, and nothing otherwise. After ReasonRearmed other bundles may have to be loaded: see Residents.
func (p *Packer) Observe(o Observation) (lockstep.Reason, error) {
	if o.Window < 0 || o.Window >= len(p.windows) {
		return "", fault(lockstep.ErrUnknown, "observe", "Window", strconv.Itoa(o.Window), "is none of Windows")
	}
	s := &p.stages[p.cfg.Windows[o.Window].Stage]
	if err := p.checkObservation(&o, s); err != nil {
		return "", err
	}
	p.counts.Windows++
	p.counts.Overruns += int64(min(o.Overrun, 1))
	p.counts.Harm = addSat(p.counts.Harm, int64(o.Overrun))
	filled := s.open > 0 && s.filled
	if filled {
		p.counts.Filled++
	}
	s.last = max(addSat(int64(o.End), int64(o.Overrun)), s.last)
	s.open, s.began, s.filled, s.closed = 0, 0, false, false
	return p.learn(o.Window, int64(o.End-o.Start), filled, o.Overrun > 0), nil
}

func (p *Packer) checkObservation(o *Observation, s *stage) error {
	switch {
	case s.open > 0 && s.open-1 != o.Window:
		return fault(lockstep.ErrConflict, "observe", "Window", strconv.Itoa(o.Window), "window "+strconv.Itoa(s.open-1)+" of its stage is the one that began")
	case s.open > 0 && int64(o.Start) != s.began:
		return fault(lockstep.ErrConflict, "observe", "Start", o.Start.String(), "began at "+time.Duration(s.began).String())
	case s.open == 0 && (o.Start < 0 || int64(o.Start) < s.last):
		return fault(lockstep.ErrPast, "observe", "Start", o.Start.String(), "is before "+time.Duration(s.last).String())
	case o.End <= o.Start || o.End-o.Start > maxStart:
		return invalid("observe", "End", o.End.String(), "must be after Start by at most "+maxStart.String())
	case o.Overrun < 0 || o.Overrun > maxStart:
		return invalid("observe", "Overrun", o.Overrun.String(), "must be from 0 to "+maxStart.String())
	}
	return nil
}

// learn judges the length of a window.
func (p *Packer) learn(i int, length int64, filled, overrun bool) lockstep.Reason {
	w := &p.windows[i]
	if w.learns {
		return p.relearn(i, length)
	}
	u := off(w.length, length)
	if !p.armed {
		return p.collect(u)
	}
	if filled {
		var found bool
		if p.harm, found = p.harmful.bet(p.harm, overrun); found {
			p.trip(ReasonHarm)
			return ReasonHarm
		}
	}
	return p.test(w, u)
}

// collect takes in the deviation of a window while nothing is filled. It arms anew with the samples since then once they
// are enough, or with those before if what looked like more scatter turns out to be none.
func (p *Packer) collect(u int64) lockstep.Reason {
	if p.why == ReasonScale {
		_, _, wider := p.ranks(u)
		var calm bool
		if p.calm, calm = calmTest().against(p.calm, wider, int64(len(p.jitter.ends))+1); calm {
			p.rearm()
			return ReasonRearmed
		}
	}
	if p.fresh = append(p.fresh, u); len(p.fresh) > maxSamples {
		p.fresh = slices.Delete(p.fresh, 0, 1)
	}
	if len(p.fresh) < p.cfg.Samples || int64(len(p.jitter.steps)) < need(p.miss) {
		return ""
	}
	p.jitter.setEnds(p.fresh)
	p.rearm()
	return ReasonRearmed
}

// rearm starts filling again. Windows that have begun stay as they are, since what is loaded may have changed.
func (p *Packer) rearm() {
	for i := range p.stages {
		p.stages[i].closed = p.stages[i].open > 0
	}
	p.fresh = nil
	p.arm()
}

// test puts the deviation of a window to the tests of its length and of the scatter of all.
func (p *Packer) test(w *window, u int64) lockstep.Reason {
	n := int64(len(p.jitter.ends)) + 1
	longer, shorter, wider := p.ranks(u)
	drift, width := driftTest(), scaleTest()
	var all, one, wide [2]bool
	p.stakes.Longer, all[0] = drift.bet(p.stakes.Longer, longer, n)
	p.stakes.Shorter, all[1] = drift.bet(p.stakes.Shorter, shorter, n)
	w.stakes.Longer, one[0] = drift.bet(w.stakes.Longer, longer, n)
	w.stakes.Shorter, one[1] = drift.bet(w.stakes.Shorter, shorter, n)
	p.stakes.Wider, wide[0] = width.bet(p.stakes.Wider, wider, n)
	switch {
	case all[0] || all[1]:
		for i := range p.windows {
			p.windows[i].forget()
		}
		p.stakes = stakes{}
		return ReasonDrift
	case wide[0]:
		p.trip(ReasonScale)
		return ReasonScale
	case one[0] || one[1]:
		w.forget()
		return ReasonDrift
	}
	return ""
}

// ranks returns how many samples, and one for the window itself, are at least as long, at least as short, and at least
// as far from the median.
func (p *Packer) ranks(u int64) (longer, shorter, wider int64) {
	ends, n := p.jitter.ends, len(p.jitter.ends)
	d := distance(u, p.jitter.centre)
	if d <= quiet {
		return int64(n) + 1, int64(n) + 1, int64(n) + 1
	}
	longer = int64(n-sort.Search(n, func(i int) bool { return ends[i] >= u })) + 1
	shorter = int64(sort.Search(n, func(i int) bool { return ends[i] > u })) + 1
	wider = int64(n-sort.Search(n, func(i int) bool { return p.jitter.away[i] >= d })) + 1
	return longer, shorter, wider
}

// forget has a window's length learnt anew.
func (w *window) forget() { w.learns, w.seen, w.stakes = true, nil, stakes{} }

// relearn takes the length of a window that drifted in, and the mean of the last ones for its length once they are alike.
func (p *Packer) relearn(i int, length int64) lockstep.Reason {
	w := &p.windows[i]
	if length > int64(maxSpan) {
		w.seen = nil
		return ""
	}
	if w.seen = append(w.seen, length); len(w.seen) > p.cfg.Steady {
		w.seen = slices.Delete(w.seen, 0, 1)
	}
	sum := int64(0)
	for _, l := range w.seen {
		sum += l
	}
	mean := max(sum/int64(len(w.seen)), 1)
	tolerance := p.tolerance()
	if len(w.seen) < p.cfg.Steady || slices.ContainsFunc(w.seen, func(l int64) bool { return distance(off(mean, l), 0) > tolerance }) {
		return ""
	}
	w.learns, w.seen = false, nil
	if distance(off(w.length, mean), 0) > p.blur() {
		w.length = mean
	}
	if !p.armed {
		return ""
	}
	p.resolve(i)
	return ReasonRearmed
}

// tolerance returns how far lengths may be off in parts per million and still count as alike: a tenth, or one and a
// half margins if that is more.
func (p *Packer) tolerance() int64 {
	m, _ := p.jitter.margin(p.miss)
	return max(million/10, m*3/2)
}

// blur returns how far the mean of Steady lengths may be off in parts per million because windows scatter.
func (p *Packer) blur() int64 {
	m, _ := p.jitter.margin(p.miss)
	return int64(float64(m) / math.Sqrt(float64(p.cfg.Steady)))
}

// View is a copy of what has been counted.
type View struct {
	Armed    bool            // windows are filled
	Reason   lockstep.Reason // why not
	Learning int             // windows whose length is learnt anew
	Samples  int             // of windows, those in use, or, while not armed, those since
	Windows  int64           // windows observed
	Filled   int64           // of these, those in which a quantum was started
	Overruns int64           // of those observed, those after which the main job had to wait
	Harm     time.Duration   // how long it had to wait, summed up
	Quanta   int64           // quanta started
	Steps    float64         // trial-steps made by them
}

// View returns what has been counted.
func (p *Packer) View() View {
	v := View{
		Armed: p.armed, Reason: p.why, Samples: len(p.jitter.ends),
		Windows: p.counts.Windows, Filled: p.counts.Filled, Overruns: p.counts.Overruns,
		Harm: time.Duration(p.counts.Harm), Quanta: p.counts.Quanta,
		Steps: float64(p.counts.Work) / float64(p.cfg.Quanta),
	}
	if !p.armed {
		v.Samples = len(p.fresh)
	}
	for i := range p.windows {
		if p.windows[i].learns {
			v.Learning++
		}
	}
	return v
}
