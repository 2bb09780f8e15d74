package bubble

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Resident is a bundle of members that is to be loaded on a device.
type Resident struct {
	Bundle BundleID       // which trials
	First  int64          // the first of its members, from 0; those up to First+Fused, without it, belong to this device and number alone
	Fused  int64          // how many members run as one
	Memory lockstep.Bytes // what they take
}

// held is a Resident as it is kept.
type held struct {
	choice int
	first  int64
}

// maxSolved is how many of the best sets of a stage are worked out in full.
const maxSolved = 4

// plan works out what is loaded on every device and the policy of every window. Stages come by index; each takes what
// it needs of the members that those before it left.
func (p *Packer) plan() {
	p.drop()
	taken := make([]int64, len(p.cfg.Bundles))
	for stage := range p.stages {
		p.planStage(stage, taken)
	}
}

// drop leaves out from now on what is spent.
func (p *Packer) drop() {
	p.stale, p.without = false, 0
	for i := range p.choices {
		if p.spent(i) {
			p.without |= 1 << i
		}
	}
}

// planStage plans a stage and adds the members that it uses to taken.
func (p *Packer) planStage(stage int, taken []int64) {
	r := rule{all: p.choices, spare: p.cfg.Devices[stage].spare(), residency: p.cfg.Residency, members: make([]int64, len(taken))}
	for b := range r.members {
		r.members[b] = -1
		if n := p.cfg.Bundles[b].Members; n > 0 {
			r.members[b] = n - taken[b]
		}
	}
	var windows []int
	for w := range p.windows {
		if p.cfg.Windows[w].Stage == stage {
			windows = append(windows, w)
		}
	}
	best := p.bestSet(windows, p.ranked(windows, r.sets()))
	for w, pol := range best.policies {
		p.windows[windows[w]].policy = pol
	}
	p.stages[stage].hold(best.may, p.choices, taken)
}

// hold has a set loaded, of the members that come after those taken.
func (s *stage) hold(may set, all []choice, taken []int64) {
	s.held = s.held[:0]
	for i := range all {
		if may.has(i) {
			s.held = append(s.held, held{i, taken[all[i].bundle]})
			taken[all[i].bundle] += all[i].fused
		}
	}
}

// planned is a set with the policy of each window of a stage.
type planned struct {
	may      set
	worth    int64
	policies []policy
}

// ranked returns the sets that are worth solving: those best at an integer knapsack over mean steps and the windows less
// their margin, best first, then as listed.
func (p *Packer) ranked(windows []int, sets []set) []set {
	if len(sets) < 2 || len(windows) == 0 {
		return sets
	}
	margin, _ := p.jitter.margin(p.miss)
	cells := packCells(len(sets), len(p.choices))
	stillEnds, stillSteps := p.jitter.still()
	if !stillEnds || !stillSteps {
		cells = min(cells, leastCells)
	}
	mean := p.jitter.meanStep()
	type ranking struct {
		may   set
		worth int64
	}
	ranks := make([]ranking, len(sets))
	for _, w := range windows {
		quanta := p.quanta(w)
		for i, q := range quanta {
			quanta[i] = max(int128.MulDivUp(q, mean, million), 1)
		}
		room := p.windows[w].length - int128.MulDivUp(p.windows[w].length, margin, million) - int64(p.cfg.Resume+p.cfg.Pause)
		for i, s := range sets {
			ranks[i].may = s
			ranks[i].worth += p.pack.most(room, quanta, p.worth, s.suits(p.choices, p.cfg.Windows[w].Kind), cells, true)
		}
	}
	slices.SortStableFunc(ranks, func(a, b ranking) int { return cmp.Compare(b.worth, a.worth) })
	n := min(len(ranks), maxSolved)
	if stillEnds && stillSteps {
		n = 1
	}
	out := make([]set, n)
	for i := range out {
		out[i] = ranks[i].may
	}
	return out
}

// bestSet returns the first set whose policies are worth most.
func (p *Packer) bestSet(windows []int, sets []set) planned {
	best := planned{worth: -1}
	for _, s := range sets {
		now := planned{may: s, policies: make([]policy, len(windows))}
		for i, w := range windows {
			now.policies[i] = p.solve(w, s)
			now.worth += now.policies[i].worth
		}
		if now.worth > best.worth {
			best = now
		}
	}
	return best
}

// solve returns the policy of a window in which a set may run.
func (p *Packer) solve(w int, may set) policy {
	n := int64(len(p.jitter.ends)) + 1
	still, _ := p.jitter.still()
	return p.solver.solve(task{
		length: p.windows[w].length, resume: int64(p.cfg.Resume), pause: int64(p.cfg.Pause),
		quanta: p.quanta(w), worth: p.worth, may: (may &^ p.without).suits(p.choices, p.cfg.Windows[w].Kind),
		ends: p.jitter.ends, parts: p.parts, stillEnds: still,
		aim: max(int128.MulDiv(n*p.miss, whole, 2*million), whole),
	})
}

// resolve works out the policy of one window anew, with what is loaded.
func (p *Packer) resolve(w int) {
	p.windows[w].policy = p.solve(w, p.stages[p.cfg.Windows[w].Stage].may())
}

// may returns what is loaded, as a set.
func (s *stage) may() (out set) {
	for _, h := range s.held {
		out |= 1 << h.choice
	}
	return out
}

// quanta returns how long a quantum of each choice takes in a window.
func (p *Packer) quanta(w int) []int64 {
	out := make([]int64, len(p.choices))
	for i := range out {
		out[i] = p.choices[i].quantum(p.cfg.Quanta, p.cfg.Windows[w].share())
	}
	return out
}

// spent says whether the bundle of a choice has too few trial-steps left for one more quantum of it.
func (p *Packer) spent(choice int) bool {
	x := &p.choices[choice]
	return p.cfg.Bundles[x.bundle].Steps > 0 && p.left[x.bundle] < x.fused
}

// Residents returns what is to be loaded on the device of a stage before its windows come, by bundle and number fused;
// with FreeSwitching, what is to be at hand. It is empty until something is planned, and changes only in Calibrate and
// when Observe returns ReasonRearmed. The slice is the caller's.
func (p *Packer) Residents(stage int) []Resident {
	if stage < 0 || stage >= len(p.stages) {
		return nil
	}
	var out []Resident
	for _, h := range p.stages[stage].held {
		x := &p.choices[h.choice]
		out = append(out, Resident{p.cfg.Bundles[x.bundle].ID, h.first, x.fused, x.memory})
	}
	return out
}

// Margin returns the share of a window's length by which all but MissFraction of windows, at most, fall short of their
// length: the order statistic ceil((n+1)(1-MissFraction)) of the samples, of which split conformal prediction makes use
// (Vovk et al. 2005; Lei et al., JASA 2018). False if there are too few samples.
func (p *Packer) Margin() (float64, bool) {
	m, ok := p.jitter.margin(p.miss)
	return float64(m) / million, ok
}

// Length returns the length that a window is taken to have: as configured, or as learnt after it drifted. False if
// there is no such window.
func (p *Packer) Length(window int) (time.Duration, bool) {
	if window < 0 || window >= len(p.windows) {
		return 0, false
	}
	return time.Duration(p.windows[window].length), true
}
