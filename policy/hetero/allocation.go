package hetero

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Parts is a share of a job's time, in parts of a million.
type Parts int32

// Whole is all of a job's time.
const Whole Parts = 1_000_000

// Allocation is shares and what they are worth. Slices are in the order of the
// problem's Groups and Classes, and are the caller's.
type Allocation struct {
	Feasible  bool        // Feasible says that the policy could be met. If not, only Blocked and Short are set.
	Objective float64     // Objective is what the policy makes as large, or as small, as it can; its comment says what that is.
	Fluid     [][]float64 // Fluid is the share of time that each job of a group has on each class, before it is rounded.
	Shares    [][]Parts   // Shares are Fluid in parts of a million, by largest remainder, with no class or job above its whole.
	Rates     []float64   // Rates are the steps per second of one job of each group under Fluid.
	Normal    []float64   // Normal is Rates over the rate on the equal split; 0 for a job that can run nowhere.

	// ClassPrice is what the solver's objective changes by with one more device of each class: of Normal's minimum for
	// MaxMin and WaterFill (in its last round that was bound), of steps done per second for Makespan, of cost for MinCost. At least 0;
	// 0 means that there are more than can be used.
	ClassPrice []float64
	// GroupPrice is how much each group binds: parts that sum to 1 for MaxMin, FinishTime and Makespan; for MinCost what it costs
	// if each of its jobs makes one more step per second.
	GroupPrice []float64

	Blocked []Blocked // Blocked are groups that get nothing, by ID, with the reason.
	Short   []GroupID // Short are groups whose deadlines cannot all be met together, by ID; only where Feasible is false.
	Solves  int       // Solves is how many linear programmes were solved.
	Steps   int       // Steps is how many steps they took in all.
}

// Blocked is a group without a share.
type Blocked struct {
	Group  GroupID // Group is the one.
	Reason Reason  // Reason is why.
}

// Reason says why a group gets nothing.
type Reason uint8

// The reasons.
const (
	NoRate      Reason = iota // NoRate means that no class has a rate above 0 for it.
	TooLarge                  // TooLarge means that each class where it has a rate has fewer devices than one job takes.
	NothingLeft               // NothingLeft means that Remaining is 0 and the policy is about what remains.
)

// String returns the name of r in words.
func (r Reason) String() string {
	switch r {
	case NoRate:
		return "no class has a rate"
	case TooLarge:
		return "takes more devices than a class has"
	case NothingLeft:
		return "nothing remains"
	}
	return "Reason(" + strconv.Itoa(int(r)) + ")"
}

// blocked lists groups that can run nowhere, in the order of the model.
func (m *model) blocked() []Blocked {
	var b []Blocked
	for k := range m.groups {
		if m.best(k) > 0 {
			continue
		}
		for _, i := range m.members[k] {
			g := &m.p.Groups[i]
			reason := NoRate
			if slices.ContainsFunc(g.Rates, func(r Rate) bool { return r.PerSecond >= minRate }) {
				reason = TooLarge
			}
			b = append(b, Blocked{g.ID, reason})
		}
	}
	return b
}

// ids appends the IDs of the jobs in group k.
func (m *model) ids(ids []GroupID, k int) []GroupID {
	for _, i := range m.members[k] {
		ids = append(ids, m.p.Groups[i].ID)
	}
	return ids
}

// allocation turns shares in the order of the model into an answer in the order given.
func (m *model) allocation(x [][]float64, blocked []Blocked) *Allocation {
	slices.SortFunc(blocked, func(a, b Blocked) int { return cmp.Compare(a.Group, b.Group) })
	a := &Allocation{Feasible: true, Blocked: blocked}
	n := len(m.p.Groups)
	a.Fluid, a.Shares, a.Rates, a.Normal = make([][]float64, n), make([][]Parts, n), make([]float64, n), make([]float64, n)
	a.GroupPrice, a.ClassPrice = make([]float64, n), make([]float64, len(m.classes))
	parts := m.quantise(x)
	for k := range m.groups {
		rate := m.rate(k, x[k])
		for _, g := range m.members[k] {
			a.Fluid[g], a.Shares[g] = make([]float64, len(m.classes)), make([]Parts, len(m.classes))
			for c, at := range m.classes {
				a.Fluid[g][at], a.Shares[g][at] = x[k][c], parts[k][c]
			}
			if a.Rates[g] = rate; m.equal[k] > 0 {
				a.Normal[g] = rate / m.equal[k]
			}
		}
	}
	return a
}

// prices sets the prices of groups and classes, given in the order of the model. A
// group's is that of all its jobs; members have their part by count.
func (a *Allocation) prices(m *model, groups, classes []float64) {
	for k, v := range groups {
		for _, g := range m.members[k] {
			a.GroupPrice[g] = v * float64(m.p.Groups[g].count()) / float64(m.groups[k].Count)
		}
	}
	for c, at := range m.classes {
		a.ClassPrice[at] = classes[c]
	}
}

// quantise rounds shares to parts. All are rounded down; then those that lost most
// get one more, as far as the job's and the class's whole allow.
func (m *model) quantise(x [][]float64) [][]Parts {
	type rest struct {
		k, c int
		lost float64
	}
	parts, left := make([][]Parts, len(x)), make([]int64, len(m.classes))
	for c := range left {
		left[c] = int64(m.class(c).Devices) * int64(Whole)
	}
	var rests []rest
	wants := make([]int64, len(x)) // what is left of a job's own sum
	for k := range x {
		parts[k] = make([]Parts, len(m.classes))
		sum := 0.0
		for c, v := range x[k] {
			exact := min(max(v, 0), 1) * float64(Whole)
			sum += exact
			down := int64(exact)
			down = min(down, left[c]/m.units(k), int64(Whole)+wants[k]) // rounding of the solver may leave a class or a job a hair over
			parts[k][c] = Parts(down)
			wants[k] -= down
			left[c] -= down * m.units(k)
			if lost := exact - float64(down); lost > 1e-6 {
				rests = append(rests, rest{k, c, lost})
			}
		}
		wants[k] += int64(min(math.Round(sum), float64(Whole)))
	}
	slices.SortFunc(rests, func(a, b rest) int {
		return cmp.Or(cmp.Compare(b.lost, a.lost), cmp.Compare(a.k, b.k), cmp.Compare(a.c, b.c))
	})
	for _, r := range rests {
		if wants[r.k] > 0 && left[r.c] >= m.units(r.k) {
			parts[r.k][r.c]++
			wants[r.k]--
			left[r.c] -= m.units(r.k)
		}
	}
	return parts
}

func (m *model) units(k int) int64 {
	return int64(m.group(k).Count) * int64(m.group(k).GPUs)
}

// Check says what keeps shares, by group and class in the order of p, from being
// given: a job above its whole time, a class above its devices, a share where the
// job cannot run. It is exact, and is what a policy.Seam can judge both the fast
// path and a solver with. All faults are joined, of kind ErrInvalid for shapes and
// for shares out of range, ErrConflict for the rest.
func Check(p Problem, shares [][]Parts) error {
	m, err := newModel(&p)
	if err != nil {
		return err
	}
	f := faults{op: "hetero: check"}
	if len(shares) != len(p.Groups) {
		f.bad("shares", strconv.Itoa(len(shares))+" groups", "want "+strconv.Itoa(len(p.Groups)))
		return errors.Join(f.errs...)
	}
	used := make([]int64, len(m.classes))
	for k, members := range m.members {
		for _, g := range members {
			f.shares(m, k, g, shares[g], used)
		}
	}
	for c := range used {
		if used[c] > int64(m.class(c).Devices)*int64(Whole) {
			f.conflict("Classes["+strconv.Itoa(m.classes[c])+"]", errtext.Quote(m.class(c).ID), "is given more often than there are devices")
		}
	}
	return errors.Join(f.errs...)
}

// shares checks those of group g of the problem, which is in group k of the model,
// and adds what they use.
func (f *faults) shares(m *model, k, g int, shares []Parts, used []int64) {
	group := &m.p.Groups[g]
	if len(shares) != len(m.classes) {
		f.bad("shares["+strconv.Itoa(g)+"]", strconv.Itoa(len(shares))+" classes", "want "+strconv.Itoa(len(m.classes)))
		return
	}
	sum := int64(0)
	for c, at := range m.classes {
		v := shares[at]
		if v == 0 {
			continue
		}
		if v < 0 || v > Whole {
			f.bad("shares["+strconv.Itoa(g)+"]["+strconv.Itoa(at)+"]", strconv.Itoa(int(v)), "want 0 to a million")
			continue
		}
		if m.rates[k][c] == 0 {
			f.conflict("shares["+strconv.Itoa(g)+"]["+strconv.Itoa(at)+"]", errtext.Quote(group.ID), "cannot run there")
		}
		sum += int64(v)
		used[c] += int64(v) * int64(group.count()) * int64(group.gpus()) // at most 2^60 in all
	}
	if sum > int64(Whole) {
		f.conflict("shares["+strconv.Itoa(g)+"]", errtext.Quote(group.ID), "has more than the whole of its time")
	}
}

func (f *faults) conflict(field, value, reason string) {
	f.errs = append(f.errs, &lockstep.Error{Kind: lockstep.ErrConflict, Op: f.op, Field: field, Value: value, Reason: reason})
}
