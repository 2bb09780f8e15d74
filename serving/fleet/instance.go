package fleet

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/serving"
)

// Instance is a type of machine that can be had for a price.
type Instance struct {
	ID       ID              `json:"id"`                 // ID is its name, unique among those that are compared.
	Price    int64           `json:"price"`              // Price is what one costs for a time, in any unit, such as thousandths of a dollar an hour; 1 to 2^40.
	Latency  serving.Latency `json:"-"`                  // Latency is how long a batch takes on one.
	MaxBatch int             `json:"maxBatch,omitempty"` // MaxBatch is the largest batch, at most serving.MaxSize; 0 means that.
}

// Count is how many of an instance type, and the batch in which it serves.
type Count struct {
	Instance ID  `json:"instance"` // Instance is which.
	N        int `json:"n"`        // N is how many, above 0; 2^31 - 1 also where it is more.
	Batch    int `json:"batch"`    // Batch is the largest that keeps the objective.
}

// Mix is which instances to have. The zero Mix has none.
type Mix struct {
	Counts   []Count `json:"counts,omitempty"` // Counts are by instance.
	Cost     int64   `json:"cost"`             // Cost is what they cost together.
	Rate     float64 `json:"rate"`             // Rate is how many requests a second they serve.
	Single   Count   `json:"single,omitzero"`  // Single is the cheapest that does with one type; with N 0 if nothing serves.
	Alone    int64   `json:"alone,omitempty"`  // Alone is what that costs.
	Feasible bool    `json:"feasible"`         // Feasible says that an instance keeps the objective at all, or nothing is asked for.
	Exact    bool    `json:"exact"`            // Exact says that no mix is cheaper; false where the search was cut off.
}

// searchSteps is how many steps a search may take before it is cut off, a second or so.
const searchSteps = 1 << 20

// maxTypes is how many types of instances are mixed at most.
const maxTypes = 32

// offer is an instance as the search sees it.
type offer struct {
	id    ID
	price int64
	micro int64 // millionths of a request a second
	batch int
}

// serves returns what an instance serves under an objective; false if it does not keep it.
func (x Instance) serves(objective time.Duration) (offer, bool) {
	most := x.MaxBatch
	if most == 0 {
		most = serving.MaxSize
	}
	n := serving.Largest(x.Latency, objective/2, most)
	if n == 0 {
		return offer{}, false
	}
	micro := int128.MulDiv(int64(n)*million, int64(time.Second), max(int64(x.Latency.Batch(n)), 1))
	return offer{x.ID, x.Price, micro, n}, micro > 0
}

func (x Instance) check(f *faults, field string) {
	f.count(field+"Price", x.Price, 1, maxPrice)
	f.count(field+"MaxBatch", int64(x.MaxBatch), 0, serving.MaxSize)
	if x.Latency == nil {
		f.bad(field+"Latency", "nil", "is needed")
	} else if d := x.Latency.Batch(1); d <= 0 {
		f.bad(field+"Latency", d.String(), "want more than 0 for a batch of 1")
	}
}

// Cheapest returns the cheapest mix of instances that serves so many requests a second under an objective, each in its
// largest batch of which two fit the objective (as Pack does); of equally cheap ones the one of a single type, then that
// with the most of the type that serves most for its price, ties by ID. Which types pay is the question of MArk (Zhang et al., USENIX ATC 2019); here
// the small integer programme is solved exactly, by branch and bound over the price of what is missing. Bad input is
// ErrInvalid or ErrDuplicate.
func Cheapest(instances []Instance, rate float64, objective time.Duration) (Mix, error) {
	f := faults{op: "cheapest"}
	f.count("len(instances)", int64(len(instances)), 0, maxTypes)
	f.names("instances", len(instances), func(i int) ID { return instances[i].ID })
	for i, x := range instances {
		x.check(&f, "instances["+strconv.Itoa(i)+"].")
	}
	f.rate("rate", rate)
	f.span("objective", objective, 1, maxSpan)
	if err := f.err(); err != nil {
		return Mix{}, err
	}
	micro := int64(math.Round(rate * million))
	if micro == 0 {
		return Mix{Feasible: true, Exact: true}, nil
	}
	var offers []offer
	for _, x := range instances {
		if o, ok := x.serves(objective); ok {
			offers = append(offers, o)
		}
	}
	if len(offers) == 0 {
		return Mix{Exact: true}, nil
	}
	// The best value first, so that the bound is that of the next type.
	slices.SortFunc(offers, func(a, b offer) int {
		return cmp.Or(compareProducts(a.price, b.micro, b.price, a.micro), cmp.Compare(b.micro, a.micro), cmp.Compare(a.id, b.id))
	})
	s := &mixing{offers: offers, counts: make([]int64, len(offers)), best: math.MaxInt64}
	alone := s.single(micro)
	s.walk(0, micro, 0)
	m := Mix{Cost: s.best, Feasible: true, Exact: s.steps < searchSteps, Single: alone, Alone: s.alone}
	sum := int64(0)
	for i, n := range s.kept {
		if n > 0 {
			m.Counts = append(m.Counts, Count{offers[i].id, int(min(n, math.MaxInt32)), offers[i].batch})
			sum = addSat(sum, int128.MulDiv(n, offers[i].micro, 1))
		}
	}
	m.Rate = float64(sum) / million
	slices.SortFunc(m.Counts, func(a, b Count) int { return cmp.Compare(a.Instance, b.Instance) })
	return m, nil
}

// mixing is a branch and bound search.
type mixing struct {
	offers []offer
	counts []int64
	kept   []int64
	best   int64
	alone  int64
	steps  int
}

// single finds the cheapest that does with one type, with which the search begins.
func (s *mixing) single(micro int64) Count {
	var out Count
	for i, o := range s.offers {
		n := int128.MulDivUp(micro, 1, o.micro)
		if cost := int128.MulDiv(n, o.price, 1); out.N == 0 || cost < s.best {
			s.best, out = cost, Count{o.id, int(min(n, math.MaxInt32)), o.batch}
			s.kept = make([]int64, len(s.offers))
			s.kept[i] = n
		}
	}
	s.alone = s.best
	return out
}

// walk tries counts of the types from i on for what is missing, the most of the best value first.
func (s *mixing) walk(i int, missing, cost int64) {
	if missing <= 0 {
		if cost < s.best {
			s.best, s.kept = cost, slices.Clone(s.counts)
		}
		return
	}
	if i == len(s.offers) {
		return
	}
	o := s.offers[i]
	for n := int128.MulDivUp(missing, 1, o.micro); n >= 0; n-- {
		if s.steps++; s.steps >= searchSteps {
			return
		}
		left, paid := missing-n*o.micro, addSat(cost, int128.MulDiv(n, o.price, 1))
		bound := paid
		if left > 0 && i+1 < len(s.offers) {
			next := s.offers[i+1]
			bound = addSat(paid, int128.MulDivUp(left, next.price, next.micro))
		}
		if left > 0 && (bound >= s.best || i+1 == len(s.offers)) {
			break // fewer of the best value only leave more to the others, of which there may be none
		}
		if bound >= s.best {
			continue
		}
		s.counts[i] = n
		s.walk(i+1, left, paid)
		s.counts[i] = 0
	}
}

// BreakEven returns from how many requests a second on one of large costs no more than as much of small: price of
// large / price of small × what one of small serves; false where small does not keep the objective, or large does not
// serve as much. (Of a service that is paid by request, small is one with the price of a request and a rate of one.)
func BreakEven(small, large Instance, objective time.Duration) (rate float64, ok bool) {
	f := faults{op: "break even"}
	small.check(&f, "small.")
	large.check(&f, "large.")
	f.span("objective", objective, 1, maxSpan)
	if f.err() != nil {
		return 0, false
	}
	a, aok := small.serves(objective)
	b, bok := large.serves(objective)
	if !aok || !bok {
		return 0, false
	}
	even := int128.MulDivUp(a.micro, large.Price, small.Price)
	return float64(even) / million, even <= b.micro
}
