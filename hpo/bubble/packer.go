package bubble

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Packer fills the bubbles of one main job. Make one with New.
type Packer struct {
	cfg     Config // with defaults
	miss    int64  // MissFraction in parts per million
	choices []choice
	worth   []int64 // of a quantum of each choice, scaled to worthBits
	scale   int     // by how many bits worth is shifted
	harmful harmTest

	jitter  jitter
	parts   []part
	armed   bool
	why     lockstep.Reason // why it is not armed
	fresh   []int64         // samples of windows since it is not
	stale   bool            // what is planned counts on a bundle that is spent
	without set             // what was spent when it was planned

	windows []window
	stages  []stage
	left    []int64 // by bundle with Steps, trial-steps left, times Quanta
	stakes  stakes  // of all windows together
	harm    int64   // stake of the test of overruns
	calm    int64   // stake of the bet, since windows scattered more, that they do not
	counts  counts

	solver solver
	pack   pack
}

// stakes are those of the tests of windows, in thousandths of a natural logarithm.
type stakes struct {
	Longer  int64 `json:"longer,omitempty"`
	Shorter int64 `json:"shorter,omitempty"`
	Wider   int64 `json:"wider,omitempty"`
}

// window is what is known of a window.
type window struct {
	length int64 // nanoseconds
	policy policy
	stakes stakes  // Wider is not used: scatter is judged over all windows
	learns bool    // its length has changed
	seen   []int64 // lengths since then, the last Steady of them
}

// stage is what goes on on a device.
type stage struct {
	held   []held
	last   int64 // the latest time told
	open   int   // one more than the window that is being filled; 0 for none
	began  int64 // when it did
	filled bool  // a quantum was started in the open window
	closed bool  // no more quanta in it
}

// counts are the sums that View returns.
type counts struct {
	Windows  int64 `json:"windows,omitempty"`
	Filled   int64 `json:"filled,omitempty"`
	Overruns int64 `json:"overruns,omitempty"`
	Harm     int64 `json:"harm,omitempty"`
	Quanta   int64 `json:"quanta,omitempty"`
	Work     int64 `json:"work,omitempty"` // trial-steps times Quanta
}

// New returns a packer that knows no jitter yet: it fills nothing until Calibrate, or enough calls of Observe after
// steps were given to Calibrate, have told. It copies cfg.
func New(cfg Config) (*Packer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Packer{cfg: clone(cfg.withDefaults()), why: ReasonSamples}
	p.miss = p.cfg.miss()
	p.harmful = newHarmTest(p.miss)
	var err error
	if p.choices, err = choices(&p.cfg); err != nil {
		return nil, err
	}
	p.windows = make([]window, len(p.cfg.Windows))
	longest := int64(0)
	for i, w := range p.cfg.Windows {
		p.windows[i].length = int64(w.End - w.Start)
		longest = max(longest, p.windows[i].length)
	}
	p.scale = scale(p.choices, p.cfg.Quanta, 2*longest)
	for i := range p.choices {
		p.worth = append(p.worth, shift(p.choices[i].worth, p.scale))
	}
	p.stages = make([]stage, len(p.cfg.Devices))
	for _, b := range p.cfg.Bundles {
		p.left = append(p.left, b.Steps*int64(p.cfg.Quanta))
	}
	return p, nil
}

// Calibrate takes samples of jitter in place of those it had; nil keeps the ones of that kind. With enough of both,
// 1/MissFraction - 1, filling begins or goes on with them, whatever had stopped it, except in windows that are learnt
// anew. With too few it stops, since a guarantee would be a guess. Samples must come from as many iterations as
// possible, with the main job as it runs, and must not be picked.
func (p *Packer) Calibrate(windows, steps []Sample) error {
	ends, err := ratios("windows", windows, off)
	if err != nil {
		return err
	}
	slows, err := ratios("steps", steps, slow)
	if err != nil {
		return err
	}
	for i := range p.stages {
		if p.stages[i].open > 0 {
			return fault(lockstep.ErrConflict, "calibrate", "stage", strconv.Itoa(i), "a window is being filled")
		}
	}
	if windows != nil {
		p.jitter.setEnds(ends)
	}
	if steps != nil {
		p.jitter.setSteps(slows)
	}
	p.fresh = nil
	p.arm()
	return nil
}

// ratios turns samples into ratios.
func ratios(field string, samples []Sample, of func(predicted, actual int64) int64) ([]int64, error) {
	if len(samples) > maxSamples {
		return nil, invalid("calibrate", field, strconv.Itoa(len(samples)), "must be at most "+strconv.Itoa(maxSamples))
	}
	out := make([]int64, len(samples))
	for i, s := range samples {
		if s.Predicted <= 0 || s.Predicted > maxSpan || s.Actual <= 0 || s.Actual > maxStart {
			return nil, invalid("calibrate", at(field, i), s.Predicted.String()+" became "+s.Actual.String(), "must be positive and not longer than is kept")
		}
		out[i] = of(int64(s.Predicted), int64(s.Actual))
	}
	return out, nil
}

// arm starts filling with the samples there are, if they are enough, and all tests anew.
func (p *Packer) arm() {
	p.armed = p.jitter.enough(p.miss)
	p.stakes, p.harm = stakes{}, 0
	for i := range p.windows {
		p.windows[i].stakes = stakes{}
	}
	if !p.armed {
		p.why = ReasonSamples
		return
	}
	p.why = ""
	p.parts = p.jitter.parts()
	p.plan()
}

// trip stops filling until there are new samples of windows.
func (p *Packer) trip(why lockstep.Reason) {
	p.armed, p.why, p.fresh, p.calm = false, why, nil, 0
}

// Fill says what becomes of a window.
type Fill struct {
	Feasible bool            // the bundles are to be resumed, and MayStartQuantum to be asked
	Reason   lockstep.Reason // why not
	Expected float64         // trial-steps, times their weight, that it is expected to make
	Miss     float64         // the chance that the main job has to wait, as estimated from above
}

// Begin says that a window has begun at now, which is any monotonic clock's, and returns whether it is filled. If it
// is, the host resumes the stage's bundles. Whether it is or not, Observe must tell of the window's end before the
// stage's next one begins.
func (p *Packer) Begin(now time.Duration, window int) (Fill, error) {
	if window < 0 || window >= len(p.windows) {
		return Fill{}, fault(lockstep.ErrUnknown, "begin", "window", strconv.Itoa(window), "is none of Windows")
	}
	s := &p.stages[p.cfg.Windows[window].Stage]
	if s.open > 0 {
		return Fill{}, fault(lockstep.ErrConflict, "begin", "window", strconv.Itoa(window), "window "+strconv.Itoa(s.open-1)+" of its stage has not been observed")
	}
	if err := p.advance("begin", s, now); err != nil {
		return Fill{}, err
	}
	if p.stale {
		p.replan()
	}
	s.open, s.began, s.filled = window+1, int64(now), false
	f := p.judge(window)
	s.closed = !f.Feasible
	return f, nil
}

// judge says whether a window is to be filled.
func (p *Packer) judge(window int) Fill {
	w := &p.windows[window]
	switch {
	case !p.armed:
		return Fill{Reason: p.why}
	case w.learns:
		return Fill{Reason: ReasonDrift}
	case w.policy.next == nil:
		return Fill{Reason: p.lack(window)}
	}
	n := float64(len(p.jitter.ends) + 1)
	worth := float64(w.policy.worth)
	for range p.scale {
		worth /= 2
	}
	for range -p.scale {
		worth *= 2
	}
	return Fill{Feasible: true, Expected: worth / float64(p.cfg.Quanta), Miss: float64(w.policy.miss) / whole / n}
}

// lack says why a window has no policy.
func (p *Packer) lack(window int) lockstep.Reason {
	may := p.stages[p.cfg.Windows[window].Stage].may().suits(p.choices, p.cfg.Windows[window].Kind)
	if may == 0 {
		return ReasonMemory
	}
	for i := range p.choices {
		if may.has(i) && !p.spent(i) {
			return ReasonShort
		}
	}
	return ReasonSupply
}

// replan works out the policies anew once a bundle is spent. What is loaded stays.
func (p *Packer) replan() {
	p.drop()
	if p.armed {
		for w := range p.windows {
			p.resolve(w)
		}
	}
}

// advance takes the time of a call in.
func (p *Packer) advance(op string, s *stage, now time.Duration) error {
	if int64(now) < s.last || now < 0 {
		return fault(lockstep.ErrPast, op, "now", now.String(), "is before "+time.Duration(s.last).String())
	}
	s.last = int64(now)
	return nil
}

// Quantum is a part of a training step of a bundle: Fused members make 1/Quanta of a step each.
type Quantum struct {
	Bundle   BundleID      // which trials
	First    int64         // the first member, as of its Resident
	Fused    int64         // how many members
	Expected time.Duration // how long it takes, as profiled
}

// MayStartQuantum says which quantum the stage is to start at now, or, with a reason, that it is to pause, in the window
// that it is in. The host asks when its bundles have resumed and at every safe point; the quantum before is then
// over. A quantum that it may start counts as started.
func (p *Packer) MayStartQuantum(now time.Duration, stage int) (Quantum, lockstep.Reason, error) {
	if stage < 0 || stage >= len(p.stages) {
		return Quantum{}, "", fault(lockstep.ErrUnknown, "start", "stage", strconv.Itoa(stage), "has no device")
	}
	s := &p.stages[stage]
	if s.open == 0 {
		return Quantum{}, "", fault(lockstep.ErrConflict, "start", "stage", strconv.Itoa(stage), "is in no window")
	}
	if err := p.advance("start", s, now); err != nil {
		return Quantum{}, "", err
	}
	w := &p.windows[s.open-1]
	switch {
	case s.closed:
		return Quantum{}, ReasonShort, nil
	case !p.armed: // another stage's window has told
		s.closed = true
		return Quantum{}, p.why, nil
	case w.learns:
		s.closed = true
		return Quantum{}, ReasonDrift, nil
	}
	c := w.policy.at(int64(now) - s.began - int64(p.cfg.Resume))
	switch {
	case c < 0:
		s.closed = true
		return Quantum{}, ReasonShort, nil
	case p.spent(c):
		s.closed, p.stale = true, true
		return Quantum{}, ReasonSupply, nil
	}
	return p.start(s, c), "", nil
}

// start books a quantum of a choice.
func (p *Packer) start(s *stage, c int) Quantum {
	x := &p.choices[c]
	s.filled = true
	if p.cfg.Bundles[x.bundle].Steps > 0 {
		p.left[x.bundle] -= x.fused
		p.stale = p.stale || p.spent(c)
	}
	p.counts.Quanta++
	p.counts.Work += x.fused
	q := Quantum{Bundle: p.cfg.Bundles[x.bundle].ID, Fused: x.fused}
	for _, h := range s.held {
		if h.choice == c {
			q.First = h.first
		}
	}
	q.Expected = time.Duration(x.quantum(p.cfg.Quanta, p.cfg.Windows[s.open-1].share()))
	return q
}

// at returns the choice to start so long after the bundle has resumed, or -1.
func (p *policy) at(since int64) int {
	if p.cell == 0 {
		return -1
	}
	i := (max(since, 0) + p.cell - 1) / p.cell
	if i >= int64(len(p.next)) {
		return -1
	}
	return int(p.next[i]) - 1
}
