package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep/internal/lp"
	"github.com/lockstep-gpu/lockstep/policy/hetero"
)

// kind is a job type with its rates on K80, P100, V100.
type kind struct {
	gpus  int
	rates [3]float64
}

// kinds reads Gavel's table, or makes one up where it is absent.
func (p *program) kinds() ([]kind, error) {
	path := filepath.Join(p.traces, "gavel-osdi20", "simulation_throughputs.json")
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		p.Note("Gavel's throughputs are absent at " + path + ": rates are made up")
		return madeUp(rand.New(rand.NewPCG(p.Seed, 0))), nil
	} else if err != nil {
		return nil, err
	}
	var table map[string]map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &table); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var names []string
	for name := range table["v100"] {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []kind
	for _, name := range names {
		k := kind{gpus: 1}
		if at := strings.LastIndex(name, ", "); at >= 0 {
			if k.gpus, err = strconv.Atoi(strings.TrimSuffix(name[at+2:], ")")); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", path, name, err)
			}
		}
		for c, class := range []string{"k80", "p100", "v100"} {
			if raw, ok := table[class][name]["null"]; ok {
				if err := json.Unmarshal(raw, &k.rates[c]); err != nil {
					return nil, fmt.Errorf("%s: %s %q: %w", path, class, name, err)
				}
			}
		}
		all = append(all, k)
	}
	p.Input("rates", fmt.Sprintf("%d job types of Gavel's simulation table", len(all)))
	return all, nil
}

func madeUp(rng *rand.Rand) []kind {
	all := make([]kind, 80)
	for i := range all {
		k80 := math.Exp(3 * rng.Float64())
		all[i] = kind{1 << rng.IntN(4), [3]float64{k80, k80 * (1 + 3*rng.Float64()), k80 * (2 + 7*rng.Float64())}}
	}
	return all
}

// problem draws types from the table, each varied a little, and devices for about a third of what they ask for.
func problem(kinds []kind, types int, seed uint64) hetero.Problem {
	rng := rand.New(rand.NewPCG(seed, uint64(types)))
	p := hetero.Problem{Classes: []hetero.Class{{ID: "k80"}, {ID: "p100"}, {ID: "v100"}, {ID: "next"}}}
	for i := range types {
		k := kinds[rng.IntN(len(kinds))]
		g := hetero.Group{ID: hetero.GroupID(fmt.Sprintf("t%05d", i)), Count: 1 + rng.IntN(20), GPUs: k.gpus, Remaining: 1e4 * (1 + rng.Float64())}
		for c, class := range p.Classes {
			rate := k.rates[min(c, 2)] * math.Exp(0.2*rng.NormFloat64())
			if c == 3 {
				rate *= 1.3 + 0.9*rng.Float64()
			}
			if rate > 0 {
				g.Rates = append(g.Rates, hetero.Rate{Class: class.ID, PerSecond: rate})
			}
			p.Classes[c].Devices += g.Count * g.GPUs
		}
		p.Groups = append(p.Groups, g)
	}
	for c := range p.Classes {
		p.Classes[c].Devices = p.Classes[c].Devices/12 + 8
		p.Classes[c].Price = float64(1 + c)
	}
	return p
}

// programme is Gavel's max-min over a problem: shares, then the level. It is built here anew and not by package hetero.
func programme(p hetero.Problem) *lp.Problem {
	jobs := 0.0
	for _, g := range p.Groups {
		jobs += float64(g.Count)
	}
	n := len(p.Groups)*len(p.Classes) + 1
	out := &lp.Problem{Cost: make([]float64, n)}
	out.Cost[n-1] = -1
	capacity := make([]lp.Row, len(p.Classes))
	for c := range capacity {
		capacity[c].RHS = float64(p.Classes[c].Devices)
	}
	for i, g := range p.Groups {
		whole, rate := lp.Row{RHS: 1}, lp.Row{Entries: []lp.Entry{{Col: n - 1, Val: 1}}}
		equal, sum := 0.0, 0.0
		for _, r := range g.Rates {
			c := slices.IndexFunc(p.Classes, func(c hetero.Class) bool { return c.ID == r.Class })
			share := float64(p.Classes[c].Devices) / jobs / float64(g.GPUs)
			equal, sum = equal+share*r.PerSecond, sum+share
		}
		equal /= max(sum, 1)
		for _, r := range g.Rates {
			c := slices.IndexFunc(p.Classes, func(c hetero.Class) bool { return c.ID == r.Class })
			col := i*len(p.Classes) + c
			whole.Entries = append(whole.Entries, lp.Entry{Col: col, Val: 1})
			rate.Entries = append(rate.Entries, lp.Entry{Col: col, Val: -r.PerSecond / equal})
			capacity[c].Entries = append(capacity[c].Entries, lp.Entry{Col: col, Val: float64(g.Count * g.GPUs)})
		}
		out.Rows = append(out.Rows, whole, rate)
	}
	out.Rows = append(out.Rows, capacity...)
	return out
}
