package hetero

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// AlloX by hand: 300 steps at 2 or 1 a second and 500 at 3 or 2. One on each, the first on the fast machine, ends at 150 and
// 250 s; the other ways round cost 466.7, and both on the fast one 466.7 or 483.3.
func TestMatchByHand(t *testing.T) {
	third := time.Second / 3
	jobs := []Pending{
		{ID: "j0", Takes: []time.Duration{150 * time.Second, 300 * time.Second}},
		{ID: "j1", Takes: []time.Duration{500 * third, 250 * time.Second}},
	}
	turns, left, err := Match([]Machine{{ID: "fast"}, {ID: "slow"}}, jobs, 0)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Equal(t, []Turn{
		{Job: "j0", Machine: "fast", Place: 1, End: 150 * time.Second},
		{Job: "j1", Machine: "slow", Place: 1, End: 250 * time.Second},
	}, turns)
	// With a fast machine only, the shorter one goes first: 150 + 316.7.
	for i := range jobs {
		jobs[i].Takes = jobs[i].Takes[:1]
	}
	turns, _, err = Match([]Machine{{ID: "fast"}}, jobs, 0)
	require.NoError(t, err)
	require.Equal(t, lockstep.JobID("j0"), turns[0].Job)
	require.Equal(t, 150*time.Second+500*third, turns[1].End)
}

// sums tries every machine for every job; on one machine the shortest goes first, which is best.
func sums(machines []Machine, jobs []Pending) (placed int, sum time.Duration) {
	placed = -1
	on := make([]int, len(jobs))
	var try func(i int)
	try = func(i int) {
		if i < len(jobs) {
			for m := -1; m < len(machines); m++ {
				if m < 0 || jobs[i].Takes[m] >= 0 {
					on[i] = m
					try(i + 1)
				}
			}
			return
		}
		n, total := 0, time.Duration(0)
		for m := range machines {
			at := machines[m].FreeIn
			done := make([]bool, len(jobs))
			for {
				next := -1
				for j := range jobs {
					if on[j] == m && !done[j] && (next < 0 || jobs[j].Takes[m] < jobs[next].Takes[m]) {
						next = j
					}
				}
				if next < 0 {
					break
				}
				done[next] = true
				at += jobs[next].Takes[m]
				total += at
				n++
			}
		}
		if n > placed || n == placed && total < sum {
			placed, sum = n, total
		}
	}
	try(0)
	return placed, sum
}

func TestMatchAgainstAllWays(t *testing.T) {
	for seed := range rounds(150, 30) {
		rng := rand.New(rand.NewPCG(uint64(seed), 8))
		var machines []Machine
		for m := range 1 + rng.IntN(3) {
			machines = append(machines, Machine{ID: MachineID(fmt.Sprint("m", m)), FreeIn: time.Duration(rng.IntN(3)*50) * time.Second})
		}
		var jobs []Pending
		for j := range rng.IntN(6) {
			p := Pending{ID: lockstep.JobID(fmt.Sprint("j", j))}
			for range machines {
				d := time.Duration(1+rng.IntN(200)) * time.Second
				if rng.IntN(4) == 0 {
					d = NeverRuns
				}
				p.Takes = append(p.Takes, d)
			}
			jobs = append(jobs, p)
		}
		turns, left, err := Match(machines, jobs, 0)
		require.NoError(t, err)
		placed, sum := sums(machines, jobs)
		require.Len(t, turns, placed)
		require.Len(t, left, len(jobs)-placed)
		total := time.Duration(0)
		for i, turn := range turns {
			total += turn.End
			if turn.Place > 1 {
				require.Equal(t, turns[i-1].End, turn.Start)
			}
		}
		require.Equal(t, sum, total, "seed %d", seed)
	}
}

func TestMatchRefuses(t *testing.T) {
	for field, call := range map[string]func() error{ // the order does not matter: each case stands alone
		"depth":          func() error { _, _, err := Match(nil, nil, -1); return err },
		"machines[0].ID": func() error { _, _, err := Match([]Machine{{}}, nil, 0); return err },
		"machines[1].ID": func() error { _, _, err := Match([]Machine{{ID: "a"}, {ID: "a"}}, nil, 0); return err },
		"FreeIn":         func() error { _, _, err := Match([]Machine{{ID: "a", FreeIn: -1}}, nil, 0); return err },
		"jobs[1].ID":     func() error { _, _, err := Match(nil, []Pending{{ID: "a"}, {ID: "a"}}, 0); return err },
		"jobs[0].ID":     func() error { _, _, err := Match(nil, []Pending{{}}, 0); return err },
		"jobs[0].Takes":  func() error { _, _, err := Match(nil, []Pending{{ID: "a", Takes: []time.Duration{1}}}, 0); return err },
		"Takes[0] = -2ns": func() error {
			_, _, err := Match([]Machine{{ID: "m"}}, []Pending{{ID: "a", Takes: []time.Duration{-2}}}, 0)
			return err
		},
	} {
		require.ErrorContains(t, call(), field)
	}
	// The longest times there are still work, and sums of them are held.
	turns, _, err := Match([]Machine{{ID: "m"}}, []Pending{{ID: "a", Takes: []time.Duration{lockstep.MaxWalltime}}, {ID: "b", Takes: []time.Duration{math.MaxInt64 >> 5}}}, 0)
	require.NoError(t, err)
	require.Len(t, turns, 2)
	turns, left, err := Match(nil, []Pending{{ID: "a"}}, 0)
	require.NoError(t, err)
	require.Empty(t, turns)
	require.Equal(t, []lockstep.JobID{"a"}, left)
}

// Sizes that are allowed one by one are refused where their costs would fill the memory, and places beyond the jobs are none.
func TestMatchBoundsItsMemory(t *testing.T) {
	machines, jobs := make([]Machine, 64), make([]Pending, 2048)
	for i := range machines {
		machines[i].ID = MachineID(fmt.Sprint("m", i))
	}
	for i := range jobs {
		jobs[i] = Pending{ID: lockstep.JobID(fmt.Sprint("j", i)), Takes: make([]time.Duration, len(machines))}
	}
	_, _, err := Match(machines, jobs, 0)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorContains(t, err, "depth")
	few, _, err := Match(machines[:2], []Pending{{ID: "j", Takes: []time.Duration{2, 1}}}, maxMatch)
	require.NoError(t, err)
	require.Equal(t, []Turn{{Job: "j", Machine: "m1", Place: 1, End: 1}}, few)
}
