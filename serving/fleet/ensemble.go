package fleet

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Member is a model that votes.
type Member struct {
	ID       ID    `json:"id"`       // ID is its name, unique among those that vote.
	Accuracy int64 `json:"accuracy"` // Accuracy is how often it is right by itself, in millionths, 0 to 1000000.
	Cost     int64 `json:"cost"`     // Cost is what having it costs, in any unit; 0 to 2^40.
}

// Ensemble is models that vote, the majority of which is taken.
type Ensemble struct {
	Members  []Member `json:"members,omitempty"` // Members are by ID.
	Accuracy int64    `json:"accuracy"`          // Accuracy is how often their majority is right, in millionths.
	Cost     int64    `json:"cost"`              // Cost is theirs together.
	Feasible bool     `json:"feasible"`          // Feasible says that the accuracy is what was asked for.
}

// Most members that vote, and from which the best ones are chosen exactly.
const (
	maxMembers = 64
	maxChoice  = 16
)

// unit is the scale of probabilities while they are multiplied: a product with millionths stays within 64 bits.
const unit = 1_000_000_000_000

// Majority returns how often more than half of independent voters are right, in millionths, to the nearest; a draw
// counts as wrong. Accuracies are in millionths; those out of range count as the nearest that is in range. No voter is
// never right. (Condorcet's jury theorem, for voters that differ: a Poisson binomial distribution.)
func Majority(accuracies []int64) int64 {
	right := []int64{unit} // by how many were right
	for _, a := range accuracies {
		right = voted(right, min(max(a, 0), million))
	}
	return majority(right)
}

// voted adds a voter of that accuracy.
func voted(right []int64, accuracy int64) []int64 {
	out := make([]int64, len(right)+1)
	for i, p := range right {
		yes := (p*accuracy + million/2) / million // at most 10^18
		out[i+1] += yes
		out[i] += p - yes // nothing is lost by rounding
	}
	return out
}

func majority(right []int64) int64 {
	sum := int64(0)
	for i := len(right)/2 + len(right)%2; i < len(right); i++ {
		if 2*i > len(right)-1 {
			sum += right[i]
		}
	}
	return (sum + unit/million/2) / (unit / million)
}

func checkMembers(f *faults, list string, members []Member, most int) {
	f.count("len("+list+")", int64(len(members)), 0, int64(most))
	f.names(list, len(members), func(i int) ID { return members[i].ID })
	for i, m := range members {
		at := list + "[" + strconv.Itoa(i) + "]."
		f.count(at+"Accuracy", m.Accuracy, 0, million)
		f.count(at+"Cost", m.Cost, 0, maxPrice)
	}
}

// Vote returns the cheapest of up to 16 models whose majority is right as often as target, in millionths; of equally
// cheap ones the most accurate, then the fewest, then by ID. If none is, it returns the most accurate ones with
// Feasible false. Bad input is ErrInvalid or ErrDuplicate.
func Vote(models []Member, target int64) (Ensemble, error) {
	f := faults{op: "vote"}
	checkMembers(&f, "models", models, maxChoice)
	f.count("target", target, 0, million)
	if err := f.err(); err != nil {
		return Ensemble{}, err
	}
	v := voting{models: slices.Clone(models), target: target}
	slices.SortFunc(v.models, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	v.walk(0, 0, 0, []int64{unit})
	out := Ensemble{Accuracy: v.accuracy, Cost: v.cost, Feasible: v.accuracy >= target}
	for i, m := range v.models {
		if v.best>>i&1 == 1 {
			out.Members = append(out.Members, m)
		}
	}
	return out, nil
}

// voting is a walk over all sets of models.
type voting struct {
	models   []Member
	target   int64
	best     uint32
	found    bool
	accuracy int64
	cost     int64
	size     int
}

func (v *voting) walk(i int, set uint32, cost int64, right []int64) {
	if i == len(v.models) {
		if a := majority(right); v.better(a, cost, len(right)-1) {
			v.best, v.accuracy, v.cost, v.size, v.found = set, a, cost, len(right)-1, true
		}
		return
	}
	v.walk(i+1, set|1<<i, cost+v.models[i].Cost, voted(right, v.models[i].Accuracy))
	v.walk(i+1, set, cost, right)
}

// better compares a set with the best so far. Of equals the first stays, which has the earlier IDs.
func (v *voting) better(accuracy, cost int64, size int) bool {
	if !v.found {
		return true
	}
	if ok, was := accuracy >= v.target, v.accuracy >= v.target; ok != was {
		return ok
	} else if ok {
		return cmp.Or(cmp.Compare(cost, v.cost), cmp.Compare(v.accuracy, accuracy), cmp.Compare(size, v.size)) < 0
	}
	return cmp.Or(cmp.Compare(v.accuracy, accuracy), cmp.Compare(cost, v.cost), cmp.Compare(size, v.size)) < 0
}

// Change is how an ensemble that votes is to change; at most one of both is set.
type Change struct {
	Drop ID `json:"drop,omitempty"` // Drop is who leaves.
	Add  ID `json:"add,omitempty"`  // Add is who joins.
}

// Resize says how an ensemble should change after an interval in which its majority was right so often as measured, in
// millionths: while it is more accurate than target by margin, the dearest member leaves without which the others come
// to target by themselves, as far as votes are independent and scaled to what was measured; below target the spare one
// joins that makes it most accurate, of equals the most accurate by itself, then the cheapest. Cocktail (NSDI 2022, section 4.3) drops members while the
// accuracy of an interval does, and adds them when it does not; the margin keeps the two apart. Ties go by ID. Bad
// input is ErrInvalid or ErrDuplicate.
func Resize(now, spare []Member, measured, target, margin int64) (Change, error) {
	f := faults{op: "resize"}
	checkMembers(&f, "now", now, maxMembers)
	checkMembers(&f, "spare", spare, maxMembers)
	f.count("measured", measured, 0, million)
	f.count("target", target, 0, million)
	f.count("margin", margin, 0, million)
	both := slices.Concat(now, spare)
	f.names("now and spare", len(both), func(i int) ID { return both[i].ID })
	if err := f.err(); err != nil {
		return Change{}, err
	}
	switch {
	case measured >= target+margin && len(now) > 1:
		return Change{Drop: leaver(now, measured, target)}, nil
	case measured < target && len(spare) > 0:
		return Change{Add: joiner(now, spare)}, nil
	}
	return Change{}, nil
}

func accuracies(members []Member) (out []int64) {
	for _, m := range members {
		out = append(out, m.Accuracy)
	}
	return out
}

// leaver returns who may leave; "" if nobody may.
func leaver(now []Member, measured, target int64) (out ID) {
	all := accuracies(now)
	whole := max(Majority(all), 1)
	var best *Member
	for i := range now {
		m := &now[i]
		if int128.MulDiv(Majority(slices.Delete(slices.Clone(all), i, i+1)), measured, whole) < target {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(best.Cost, m.Cost), cmp.Compare(m.Accuracy, best.Accuracy), cmp.Compare(m.ID, best.ID)) < 0 {
			best, out = m, m.ID
		}
	}
	return out
}

// joiner returns who is to join.
func joiner(now, spare []Member) (out ID) {
	all := accuracies(now)
	var best *Member
	most := int64(0)
	for i := range spare {
		m := &spare[i]
		a := Majority(append(slices.Clone(all), m.Accuracy))
		if best == nil || cmp.Or(cmp.Compare(most, a), cmp.Compare(best.Accuracy, m.Accuracy), cmp.Compare(m.Cost, best.Cost), cmp.Compare(m.ID, best.ID)) < 0 {
			best, most, out = m, a, m.ID
		}
	}
	return out
}
