package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Variant is one model that can do a task.
type Variant struct {
	ID       ID            `json:"id"`                // ID is its name, unique in its task.
	Accuracy int64         `json:"accuracy"`          // Accuracy is how often it is right, in millionths, 0 to 1000000.
	Cost     int64         `json:"cost"`              // Cost is what serving the task with it costs, loading included where it is not loaded, in any unit; 0 to 2^40.
	Latency  time.Duration `json:"latency,omitempty"` // Latency is how long it takes to answer, 0 to 100 h.
}

// Task is what has to be done by one of several variants.
type Task struct {
	ID        ID            `json:"id"`                  // ID is its name, unique among tasks.
	Weight    int64         `json:"weight,omitempty"`    // Weight is how much its accuracy counts, such as its share of requests, at most 1000000; 0 means 1.
	Objective time.Duration `json:"objective,omitempty"` // Objective is within what it is to be done, up to 100 h; 0 means no limit. Slower variants are left out.
	Floor     int64         `json:"floor,omitempty"`     // Floor is the least accuracy that it may be done with, in millionths. Less accurate variants are left out.
	Variants  []Variant     `json:"variants"`            // Variants are those there are, at most 64.
}

// Goal is what variants are chosen by. One of Budget and Accuracy is used.
type Goal struct {
	Budget   int64 `json:"budget,omitempty"`   // Budget is what all may cost together: the accuracy is to be the highest. It is used where Accuracy is 0; at least 0.
	Accuracy int64 `json:"accuracy,omitempty"` // Accuracy is the least weighted mean, in millionths, at most 1000000: the cost is to be the lowest.
}

// Pick is the variant of a task.
type Pick struct {
	Task    ID `json:"task"`    // Task is which.
	Variant ID `json:"variant"` // Variant is what it is done with.
}

// Selection is which variants do which tasks.
type Selection struct {
	Picks    []Pick  `json:"picks,omitempty"` // Picks are by task; nil if not Feasible.
	Cost     int64   `json:"cost"`            // Cost is what they cost together.
	Accuracy int64   `json:"accuracy"`        // Accuracy is their weighted mean, in millionths, rounded down.
	Price    float64 `json:"price"`           // Price is the dual price of the budget: by how many millionths the weighted mean rises for each unit of cost more, where parts of changes could be made; 0 where nothing is better. One over it is what a millionth more costs.
	Feasible bool    `json:"feasible"`        // Feasible says that the goal can be met.
	Exact    bool    `json:"exact"`           // Exact says that no selection is better; false where there were so many that some were left out.
}

// mostStates is how many combinations are kept at once.
const mostStates = 1 << 16

// state is a combination of variants of the first tasks: there is none that costs no more and is worth as much.
type state struct {
	cost  int64
	value int64 // weighted accuracy
	from  int   // the one of one task fewer that it came from
	pick  int   // the variant
}

// Choose chooses a variant for each task: the least cost for an accuracy, or the most accuracy for a budget, as INFaaS
// (Romero et al., ATC 2021) and Cocktail (Gunasekaran et al., NSDI 2022) ask, each for one task. It is exact: a
// multiple-choice knapsack by the Pareto frontier of costs and values (Nemhauser and Ullmann, 1969). Of equals the one
// that costs less, then the variants given first for the later tasks. Bad input is ErrInvalid or ErrDuplicate.
func Choose(tasks []Task, goal Goal) (Selection, error) {
	if err := checkTasks(tasks, goal); err != nil {
		return Selection{}, err
	}
	sorted := slices.Clone(tasks)
	slices.SortFunc(sorted, func(a, b Task) int { return cmp.Compare(a.ID, b.ID) })
	out := Selection{Exact: true}
	weight := int64(0)
	layers := [][]state{{{}}}
	for _, t := range sorted {
		t.Weight = max(t.Weight, 1)
		weight += t.Weight
		next := extend(layers[len(layers)-1], t)
		if len(next) > mostStates {
			out.Exact = false
			next = thin(next)
		}
		layers = append(layers, next)
	}
	last := layers[len(layers)-1]
	at := find(last, goal, weight)
	if at < 0 || weight == 0 {
		out.Feasible = weight == 0
		return out, nil
	}
	out.Feasible, out.Cost, out.Accuracy = true, last[at].cost, last[at].value/weight
	out.Price = dual(last, at) / float64(weight)
	for i := len(sorted) - 1; i >= 0; i-- {
		s := layers[i+1][at]
		out.Picks = append(out.Picks, Pick{sorted[i].ID, sorted[i].Variants[s.pick].ID})
		at = s.from
	}
	slices.Reverse(out.Picks)
	return out, nil
}

func checkTasks(tasks []Task, goal Goal) error {
	f := faults{op: "choose"}
	f.count("len(tasks)", int64(len(tasks)), 0, 256)
	f.names("tasks", len(tasks), func(i int) ID { return tasks[i].ID })
	f.count("goal.Budget", goal.Budget, 0, 1<<50)
	f.count("goal.Accuracy", goal.Accuracy, 0, million)
	for i, t := range tasks {
		field := "tasks[" + strconv.Itoa(i) + "]."
		f.count(field+"Weight", t.Weight, 0, million)
		f.count(field+"Floor", t.Floor, 0, million)
		f.span(field+"Objective", t.Objective, 0, maxSpan)
		f.count("len("+field+"Variants)", int64(len(t.Variants)), 0, 64)
		f.names(field+"Variants", len(t.Variants), func(j int) ID { return t.Variants[j].ID })
		for j, v := range t.Variants {
			at := field + "Variants[" + strconv.Itoa(j) + "]."
			f.count(at+"Accuracy", v.Accuracy, 0, million)
			f.count(at+"Cost", v.Cost, 0, maxPrice)
			f.span(at+"Latency", v.Latency, 0, maxSpan)
		}
	}
	return f.err()
}

// extend returns the frontier with one task more, by rising cost and value.
func extend(from []state, t Task) []state {
	var all []state
	for j, v := range t.Variants {
		if v.Accuracy < t.Floor || t.Objective > 0 && v.Latency > t.Objective {
			continue
		}
		for i, s := range from {
			all = append(all, state{s.cost + v.Cost, s.value + v.Accuracy*t.Weight, i, j})
		}
	}
	slices.SortFunc(all, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(b.value, a.value), cmp.Compare(a.pick, b.pick), cmp.Compare(a.from, b.from))
	})
	kept := all[:0]
	for _, s := range all {
		if len(kept) == 0 || s.value > kept[len(kept)-1].value {
			kept = append(kept, s)
		}
	}
	return slices.Clone(kept) // it is kept for all tasks, what was left out is not
}

// thin keeps as many states as there may be, spread evenly, the last among them.
func thin(all []state) []state {
	out := make([]state, 0, mostStates)
	for i := range mostStates {
		out = append(out, all[int64(len(all)-1)*int64(i)/(mostStates-1)]) // int may have 32 bits
	}
	return out
}

// find returns the state that meets the goal best, -1 if none does.
func find(frontier []state, goal Goal, weight int64) int {
	if goal.Accuracy > 0 {
		i, _ := slices.BinarySearchFunc(frontier, goal.Accuracy*weight, func(s state, v int64) int { return cmp.Compare(s.value, v) })
		if i == len(frontier) {
			return -1
		}
		return i
	}
	i, found := slices.BinarySearchFunc(frontier, goal.Budget, func(s state, v int64) int { return cmp.Compare(s.cost, v) })
	if found {
		return i
	}
	return i - 1
}

// dual is the steepest way up from a state: the slope of the frontier's upper hull there, or beyond.
func dual(frontier []state, at int) float64 {
	best := 0.0
	for _, s := range frontier[at+1:] {
		if cost := s.cost - frontier[at].cost; cost > 0 {
			best = max(best, float64(s.value-frontier[at].value)/float64(cost))
		}
	}
	return best
}
