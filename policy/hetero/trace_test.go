package hetero

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// gavel reads the throughput tables that Gavel's authors published: steps per second by device and job type.
func gavel(t *testing.T, name string) map[string]map[string]float64 {
	t.Helper()
	path := ""
	for _, dir := range []string{filepath.Join("..", "..", "..", "shared"), filepath.Join("..", "..", "shared")} {
		if p := filepath.Join(dir, "traces", "gavel-osdi20", name); exists(p) {
			path = p
		}
	}
	if path == "" {
		t.Skip("shared traces are absent: the policies on Gavel's measured throughputs are left out")
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var raw map[string]map[string]map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &raw))
	out := map[string]map[string]float64{}
	for class, types := range raw { // into a map again
		out[class] = map[string]float64{}
		for kind, beside := range types {
			var alone float64
			require.NoError(t, json.Unmarshal(beside["null"], &alone))
			out[class][kind] = alone
		}
	}
	return out
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

var scaleFactor = regexp.MustCompile(`, (\d+)\)$`)

// gavelProblem has a group for every job type of the table, of random counts and remaining steps.
func gavelProblem(t *testing.T, table map[string]map[string]float64, devices int, seed uint64) Problem {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 11))
	p := Problem{Classes: []Class{{ID: "k80", Devices: devices, Price: 0.45}, {ID: "p100", Devices: devices, Price: 1.46}, {ID: "v100", Devices: devices, Price: 2.48}}}
	var kinds []string
	for kind := range table["v100"] { // sorted below
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for i, kind := range kinds {
		g := Group{ID: GroupID(fmt.Sprintf("t%02d", i)), Count: 1 + rng.IntN(4)}
		m := scaleFactor.FindStringSubmatch(kind)
		require.NotNil(t, m, kind)
		g.GPUs, _ = strconv.Atoi(m[1])
		for _, c := range p.Classes {
			if v, ok := table[string(c.ID)][kind]; ok {
				g.Rates = append(g.Rates, Rate{Class: c.ID, PerSecond: v})
			}
		}
		g.Remaining = 1000 + 9000*rng.Float64()*table["v100"][kind]
		p.Groups = append(p.Groups, g)
	}
	return p
}

func TestPoliciesOnGavelsTables(t *testing.T) {
	for _, name := range []string{"simulation_throughputs.json", "physical_cluster_throughputs.json"} {
		table := gavel(t, name)
		for seed := range uint64(rounds(3, 1)) {
			p := gavelProblem(t, table, 12*int(seed+1), seed)
			unit := make([]float64, len(p.Groups))
			for g := range unit {
				unit[g] = equalRate(&p, g)
			}
			fast, err := EqualSplit(p)
			require.NoError(t, err)
			checkShares(t, p, fast)
			a, err := MaxMin(p)
			require.NoError(t, err)
			checkShares(t, p, a)
			require.LessOrEqual(t, bound(&p, a.GroupPrice, a.ClassPrice, unit), a.Objective*(1+1e-8))
			require.GreaterOrEqual(t, a.Objective, fast.Objective-1e-9)
			fill, err := WaterFill(p)
			require.NoError(t, err)
			checkShares(t, p, fill)
			require.InEpsilon(t, a.Objective, fill.Objective, 1e-7)
			makespan, err := Makespan(p)
			require.NoError(t, err)
			checkShares(t, p, makespan)
			finish, err := FinishTime(p)
			require.NoError(t, err)
			checkShares(t, p, finish)
			require.LessOrEqual(t, finish.Objective, 1+1e-9) // everybody alone at the same time is the equal split
			cost, err := PerCost(p)
			require.NoError(t, err)
			checkShares(t, p, cost)
			for g := range p.Groups {
				if unit[g] > 0 {
					require.GreaterOrEqual(t, fill.Normal[g], 1-1e-8)
					require.GreaterOrEqual(t, fill.Normal[g], a.Objective*(1-1e-7))
				}
			}
			t.Logf("%s, %d of each class: max-min %.4f of the equal split (fast path %.4f); water-filling %d programmes; rho %.4f in %d", name, p.Classes[0].Devices, a.Objective, fast.Objective, fill.Solves, finish.Objective, finish.Solves)
		}
	}
}

// Rounds of the optimum on the measured table give every job its rate, within three per cent over a hundred hours of six minutes each.
func TestRoundsOnGavelsTableGiveTheRates(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: rounds on Gavel's table are left out")
	}
	p := gavelProblem(t, gavel(t, "simulation_throughputs.json"), 36, 1)
	a, err := WaterFill(p)
	require.NoError(t, err)
	r, err := NewRounds(RoundsConfig{Classes: p.Classes, Idle: true})
	require.NoError(t, err)
	ts := targets(p, a.Shares)
	require.NoError(t, r.Set(ts))
	const n = 1000
	for range n {
		checkRound(t, p.Classes, ts, r.Next())
	}
	received := map[lockstep.JobID][]int64{}
	for _, j := range r.State().Jobs {
		received[j.Job] = j.Got
	}
	worst := 1.0
	for g := range p.Groups {
		for i := range p.Groups[g].count() {
			rate := 0.0
			for c, n2 := range received[lockstep.JobID(fmt.Sprint(p.Groups[g].ID, "-", i))] {
				for _, at := range p.Groups[g].Rates {
					if at.Class == p.Classes[c].ID {
						rate += at.PerSecond * float64(n2) / n
					}
				}
			}
			if a.Rates[g] > 0 {
				worst = min(worst, rate/a.Rates[g])
			}
		}
	}
	t.Log("worst job: ", worst, " of its rate")
	require.Greater(t, worst, 0.9)
}
