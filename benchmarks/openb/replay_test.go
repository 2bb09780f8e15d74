package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/stretchr/testify/require"
)

// small makes a cluster and a list at random.
func small(rng *rand.Rand, nodes, tasks int) (*trace, *list) {
	t := &trace{models: []string{"A", "B", "C"}}
	for x := range nodes {
		n := node{name: fmt.Sprintf("n%03d", x), cpu: 1000 * (4 + rng.Int64N(60)), devices: []int{1, 2, 4, 8}[rng.IntN(4)], model: rng.IntN(3)}
		t.nodes = append(t.nodes, n)
		t.capacity += int64(n.devices) * milli
	}
	l := &list{name: "small"}
	for range 3 + rng.IntN(12) {
		s := shape{cpu: 500 * (1 + rng.Int64N(40)), models: []uint64{7, 7, 7, 1, 2, 3, 6}[rng.IntN(7)]}
		switch rng.IntN(8) {
		case 0:
			s.models = 7
		case 1:
			s.devices, s.milli = []int{2, 4, 8}[rng.IntN(3)], milli
		case 2, 3:
			s.devices, s.milli = 1, milli
		default:
			s.devices, s.milli = 1, 10*(5+rng.Int64N(90))
		}
		if !slices.Contains(l.shapes, s) {
			l.shapes, l.counts = append(l.shapes, s), append(l.counts, 0)
		}
	}
	l.shapes = append(l.shapes, shape{cpu: 1000, devices: 1, milli: 700, models: 7})
	l.counts = append(l.counts, 0)
	for i := range tasks {
		k := rng.IntN(len(l.shapes))
		l.tasks, l.shape = append(l.tasks, task{name: fmt.Sprint(i)}), append(l.shape, k)
		l.counts[k]++
	}
	return t, l
}

func listed(t *trace) []int {
	nodes := permutation(len(t.nodes), 0)
	slices.Sort(nodes)
	return nodes
}

func allRules() map[string]rule {
	return map[string]rule{"priced": &priced{}, "fgd": &gradient{}, "best-fit": bestFit{}, "first-fit": firstFit{}}
}

func TestEveryRuleKeepsWithinTheCluster(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		tr, l := small(rng, 1+rng.IntN(20), 300)
		order := permutation(len(l.tasks), rng.Uint32())
		for name, r := range allRules() {
			out := replay(tr, l, r, order, permutation(len(tr.nodes), 1), true, nil)
			require.NoError(t, audit(tr, l, order, out.placed), name)
			require.Equal(t, out.refused, obedient(t, tr, l, order, out.placed), name)
		}
	}
}

// obedient requires that nothing was refused that would have fitted, and counts what was.
func obedient(t *testing.T, tr *trace, l *list, order []int, placed []spot) (refused int) {
	c := newCluster(tr, l, listed(tr))
	free := newRecorder(tr, true).free
	cpu := make([]int64, len(tr.nodes))
	for x := range cpu {
		cpu[x] = c.at[x].cpu
	}
	for seq, at := range placed {
		p := l.shapeOf(order[seq])
		if at.node >= 0 {
			cpu[at.node] -= p.cpu
			for _, d := range at.devices {
				free[at.node][d] -= p.milli
			}
			continue
		}
		refused++
		for x := range tr.nodes {
			room := 0
			for _, f := range free[x] {
				if f >= p.milli {
					room++
				}
			}
			require.False(t, cpu[x] >= p.cpu && p.models>>tr.nodes[x].model&1 != 0 && room >= p.devices, "task %d was refused beside node %d", seq, x)
		}
	}
	return refused
}

func TestAuditFindsWhatIsNotPossible(t *testing.T) {
	tr := &trace{models: []string{"A", "B"}, capacity: 2 * milli, nodes: []node{{name: "n", cpu: 4000, devices: 2}}}
	l := &list{
		tasks: make([]task, 4), shape: []int{0, 1, 2, 3},
		shapes: []shape{{cpu: 1000, devices: 1, milli: 600, models: 3}, {cpu: 3000, devices: 2, milli: milli, models: 3}, {cpu: 4000, models: 3}, {devices: 1, milli: 10, models: 2}},
	}
	share := spot{node: 0, devices: []int{1}}
	for _, tc := range []struct {
		name  string
		order []int
		spots []spot
		want  string
	}{
		{"good", []int{0, 0, 1}, []spot{share, {node: 0, devices: []int{0}}, {node: -1}}, ""},
		{"device over", []int{0, 0}, []spot{share, share}, "is over"},
		{"CPU over", []int{0, 2}, []spot{share, {node: 0}}, "out of CPU"},
		{"device twice", []int{1}, []spot{{node: 0, devices: []int{1, 1}}}, "device 1"},
		{"device unknown", []int{0}, []spot{{node: 0, devices: []int{2}}}, "device 2"},
		{"too few devices", []int{1}, []spot{share}, "1 devices for 2"},
		{"model", []int{3}, []spot{share}, "may not use model A"},
		{"missing", []int{0}, nil, "0 placements"},
	} {
		err := audit(tr, l, tc.order, tc.spots)
		if tc.want == "" {
			require.NoError(t, err, tc.name)
		} else {
			require.ErrorContains(t, err, tc.want, tc.name)
		}
	}
}

// TestLibraryDecidesAsThePlainRule compares placement with the rule written again, to
// the device.
func TestLibraryDecidesAsThePlainRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 12 {
		tr, l := small(rng, 5+rng.IntN(40), 1500)
		order := permutation(len(l.tasks), rng.Uint32())
		requireEqualDecisions(t, tr, l, order, fmt.Sprint("round ", round))
	}
}

func TestLibraryDecidesAsThePlainRuleOnTheTrace(t *testing.T) {
	if testing.Short() {
		t.Skip("five lists in several orders take seconds: left out of short tests")
	}
	tr, l := readDefault(t)
	requireEqualDecisions(t, tr, l, l.arrivals(1001, tr.capacity, 130), "default")
}

func requireEqualDecisions(t *testing.T, tr *trace, l *list, order []int, name string) {
	plain := replay(tr, l, &priced{}, order, listed(tr), true, nil)
	library, err := replayLibrary(tr, l, placement.RulePrices, order, func() int64 { return 0 })
	require.NoError(t, err)
	require.NoError(t, audit(tr, l, order, library.placed))
	for seq := range order {
		require.Equal(t, plain.placed[seq], library.placed[seq], "%s, decision %d: %+v", name, seq, *l.shapeOf(order[seq]))
	}
	require.Equal(t, plain.at, library.at)
}

func TestGradientCountsWhatTypicalShapesCannotUse(t *testing.T) {
	l := &list{shapes: []shape{{cpu: 1000, devices: 1, milli: 500, models: 1}, {cpu: 1000, models: 1}, {cpu: 9000, devices: 2, milli: milli, models: 1}}, counts: []int64{6, 3, 1}}
	l.tasks = make([]task, 10)
	tr := &trace{models: []string{"A"}, nodes: []node{{cpu: 8000, devices: 3}}}
	c := newCluster(tr, l, []int{0})
	g := &gradient{}
	g.begin(c, l)
	s := c.state(room{cpu: 8000, devices: 3, free: [maxDevices]int64{1000, 500, 300}})
	// Shares can use all but the 300; a task without devices none, nor can one that lacks CPU.
	require.Equal(t, int64(6*300+3*1800+1*1800), g.fragmented(s))
}
