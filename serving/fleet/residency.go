package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Model is one that may reside on groups of devices.
type Model struct {
	ID        ID             `json:"id"`        // ID is its name, unique among models.
	Memory    lockstep.Bytes `json:"memory"`    // Memory is what it takes, over all devices of a group, 0 to 2^50.
	Latency   time.Duration  `json:"latency"`   // Latency is how long one device takes for a request, above 0, up to 100 h.
	Objective time.Duration  `json:"objective"` // Objective is within what a request is to be answered, above 0, up to 100 h.
}

// Group is devices that serve together, of one shape of tensor and pipeline parallelism.
type Group struct {
	ID     ID             `json:"id"`               // ID is its name, unique among groups.
	Memory lockstep.Bytes `json:"memory"`           // Memory is what its devices have together, 0 to 2^50.
	Stages int            `json:"stages,omitempty"` // Stages is how many requests are in its pipeline at once, at most 4096; 0 means 1.
	Speed  int            `json:"speed,omitempty"`  // Speed is how many times as fast as one device it answers a request, in thousandths, at most 1000000: above 1000 by tensor parallelism, below by what a pipeline costs; 0 means 1000.
}

// Request is one that came in, or may.
type Request struct {
	At    time.Duration `json:"at"`    // At is when, from any start, 0 to 87600 h.
	Model ID            `json:"model"` // Model is for which.
}

// Placement is which models reside where.
type Placement struct {
	Hosts  []Host `json:"hosts"`  // Hosts are the groups, by ID.
	Served int    `json:"served"` // Served is how many of the requests are answered in time.
	Of     int    `json:"of"`     // Of is how many requests there are.
}

// Host is a group and the models on it.
type Host struct {
	Group  ID   `json:"group"`            // Group is which.
	Models []ID `json:"models,omitempty"` // Models are sorted.
}

// Place puts models on groups, greedily: again and again the model on the group by which the most requests more are
// answered in time, as a simulation of all of them says, until none raises that or none fits (Li et al., "AlpaServe",
// OSDI 2023, section 4.2). Of equals the smaller model goes, then by group, then by model. In the simulation a request
// goes to the group that answers it first, ties by group, and is turned away if that is too late.
//
// Requests are given in the order of their time. Bad input is ErrInvalid, ErrDuplicate, or ErrUnknown for a request of a
// model that is not given.
func Place(models []Model, groups []Group, requests []Request) (Placement, error) {
	p, err := placing("place", models, groups, requests)
	if err != nil {
		return Placement{}, err
	}
	best := 0
	for {
		add, at, served := -1, -1, best
		for g := range p.groups {
			for m := range p.models {
				if p.hosts[g][m] || p.models[m].Memory > p.free[g] {
					continue
				}
				p.hosts[g][m] = true
				n := p.simulate()
				p.hosts[g][m] = false
				if n > served || n == served && add >= 0 && p.models[m].Memory < p.models[add].Memory {
					add, at, served = m, g, n
				}
			}
		}
		if add < 0 {
			break
		}
		p.hosts[at][add] = true
		p.free[at] -= p.models[add].Memory
		best = served
	}
	return p.placement(best), nil
}

// Attained says how many of the requests a given placement answers in time, by the simulation of Place. Its Served and
// Of are not read. What Place refuses is refused, and so is a host or a model of it that is not given (ErrUnknown), or
// that does not fit (ErrConflict).
func Attained(models []Model, groups []Group, requests []Request, given Placement) (served int, err error) {
	const op = "attained"
	p, err := placing(op, models, groups, requests)
	if err != nil {
		return 0, err
	}
	for i, h := range given.Hosts {
		g, ok := slices.BinarySearchFunc(p.groups, h.Group, func(g Group, id ID) int { return cmp.Compare(g.ID, id) })
		if !ok {
			return 0, fault(lockstep.ErrUnknown, op, "given.Hosts["+strconv.Itoa(i)+"].Group", strconv.Quote(string(h.Group)), "is no group")
		}
		for _, id := range h.Models {
			m, ok := p.model(id)
			switch {
			case !ok:
				return 0, fault(lockstep.ErrUnknown, op, "given.Hosts["+strconv.Itoa(i)+"].Models", strconv.Quote(string(id)), "is no model")
			case p.hosts[g][m]:
				continue
			case p.models[m].Memory > p.free[g]:
				return 0, fault(lockstep.ErrConflict, op, "given.Hosts["+strconv.Itoa(i)+"].Models", strconv.Quote(string(id)), "does not fit beside the others")
			}
			p.hosts[g][m] = true
			p.free[g] -= p.models[m].Memory
		}
	}
	return p.simulate(), nil
}

// placer is what Place works on.
type placer struct {
	models []Model // by ID
	groups []Group // by ID
	of     []int   // the model of each request
	at     []time.Duration
	hosts  [][]bool // by group and model
	free   []lockstep.Bytes
	took   [][]time.Duration // by group and model, how long a request takes
	next   []time.Duration   // by group, when it takes the next request
}

func placing(op string, models []Model, groups []Group, requests []Request) (*placer, error) {
	f := faults{op: op}
	f.count("len(models)", int64(len(models)), 0, maxItems)
	f.count("len(groups)", int64(len(groups)), 0, maxItems)
	f.names("models", len(models), func(i int) ID { return models[i].ID })
	f.names("groups", len(groups), func(i int) ID { return groups[i].ID })
	checkShapes(&f, models, groups)
	if err := f.err(); err != nil {
		return nil, err
	}
	p := &placer{models: slices.Clone(models), groups: slices.Clone(groups), next: make([]time.Duration, len(groups))}
	slices.SortFunc(p.models, func(a, b Model) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(p.groups, func(a, b Group) int { return cmp.Compare(a.ID, b.ID) })
	for i, r := range requests {
		field := "requests[" + strconv.Itoa(i) + "]."
		f.span(field+"At", r.At, 0, lockstep.MaxWalltime)
		if i > 0 && r.At < requests[i-1].At {
			f.bad(field+"At", r.At.String(), "is before the one in front of it")
		}
		m, ok := p.model(r.Model)
		if !ok {
			f.errs = append(f.errs, fault(lockstep.ErrUnknown, op, field+"Model", strconv.Quote(string(r.Model)), "is no model"))
		}
		if len(f.errs) > 0 {
			return nil, f.err() // the first will do: there may be millions
		}
		p.of, p.at = append(p.of, m), append(p.at, r.At)
	}
	p.empty()
	return p, nil
}

// empty works out how long requests take on each group, none of which has a model yet.
func (p *placer) empty() {
	for _, g := range p.groups {
		took := make([]time.Duration, len(p.models))
		for m := range p.models {
			speed := int64(g.Speed)
			if speed == 0 {
				speed = 1000
			}
			took[m] = time.Duration(max(int128.MulDivUp(int64(p.models[m].Latency), 1000, speed), 1))
		}
		p.took = append(p.took, took)
		p.hosts = append(p.hosts, make([]bool, len(p.models)))
		p.free = append(p.free, g.Memory)
	}
}

// checkShapes checks models and groups but for their names.
func checkShapes(f *faults, models []Model, groups []Group) {
	for i, m := range models {
		at := "models[" + strconv.Itoa(i) + "]."
		f.count(at+"Memory", int64(m.Memory), 0, int64(maxMemory))
		f.span(at+"Latency", m.Latency, 1, maxSpan)
		f.span(at+"Objective", m.Objective, 1, maxSpan)
	}
	for i, g := range groups {
		at := "groups[" + strconv.Itoa(i) + "]."
		f.count(at+"Memory", int64(g.Memory), 0, int64(maxMemory))
		f.count(at+"Stages", int64(g.Stages), 0, 4096)
		f.count(at+"Speed", int64(g.Speed), 0, million)
	}
}

func (p *placer) model(id ID) (int, bool) {
	return slices.BinarySearchFunc(p.models, id, func(m Model, id ID) int { return cmp.Compare(m.ID, id) })
}

// simulate returns how many requests are answered in time.
func (p *placer) simulate() (served int) {
	clear(p.next)
	for i, m := range p.of {
		at, end := -1, time.Duration(0)
		for g := range p.groups {
			if !p.hosts[g][m] {
				continue
			}
			if done := max(p.next[g], p.at[i]) + p.took[g][m]; at < 0 || done < end {
				at, end = g, done
			}
		}
		if at < 0 || end-p.at[i] > p.models[m].Objective {
			continue
		}
		// The next one may follow once the first stage is free; stages are equally long.
		stages := time.Duration(max(p.groups[at].Stages, 1))
		p.next[at] = end - p.took[at][m] + (p.took[at][m]+stages-1)/stages
		served++
	}
	return served
}

func (p *placer) placement(served int) Placement {
	out := Placement{Served: served, Of: len(p.of)}
	for g := range p.groups {
		h := Host{Group: p.groups[g].ID}
		for m := range p.models {
			if p.hosts[g][m] {
				h.Models = append(h.Models, p.models[m].ID)
			}
		}
		out.Hosts = append(out.Hosts, h)
	}
	return out
}
