package hetero

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// Whatever the figures, over a hundred orders of magnitude: policies answer with shares that can be given, or say that
// they cannot.
func FuzzPolicies(f *testing.F) {
	f.Add([]byte{2, 4, 1, 9, 3, 1, 4, 16, 200, 50, 7, 8, 9, 2, 3, 1, 120, 128, 130})
	f.Add([]byte{3, 255, 0, 7, 9, 255, 255, 255, 0, 1, 255, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Fuzz(func(t *testing.T, text []byte) {
		at := 0
		next := func() int {
			at++
			if at > len(text) {
				return 0
			}
			return int(text[at-1])
		}
		figure := func() float64 { return math.Ldexp(float64(1+next()), next()/2-80) }
		var p Problem
		for c := range 1 + next()%3 {
			p.Classes = append(p.Classes, Class{ID: lockstep.DeviceClass(fmt.Sprint("c", c)), Devices: next() << (next() % 16), Price: figure()})
		}
		for at < len(text) && len(p.Groups) < 12 {
			g := Group{ID: GroupID(fmt.Sprint("g", len(p.Groups))), Count: next() << (next() % 8), GPUs: 1 << (next() % 10), Weight: int64(next()), Remaining: figure(), Elapsed: time.Duration(next()) * time.Hour, IsolatedElapsed: time.Duration(next()) * time.Minute, Deadline: time.Duration(next()) * time.Hour}
			for _, c := range p.Classes {
				if b := next(); b > 20 {
					g.Rates = append(g.Rates, Rate{Class: c.ID, PerSecond: min(figure(), maxRate)})
				}
			}
			p.Groups = append(p.Groups, g)
		}
		if p.Validate() != nil {
			return
		}
		for _, policy := range []func(Problem) (*Allocation, error){MaxMin, WaterFill, FinishTime, Makespan, MinCost, PerCost, EqualSplit} {
			a, err := policy(p)
			switch {
			case errors.Is(err, lockstep.ErrConflict) || errors.Is(err, lockstep.ErrInvalid):
			case err != nil:
				t.Fatal(err)
			case a.Feasible:
				require.NoError(t, Check(p, a.Shares))
			default:
				require.Empty(t, a.Shares)
			}
		}
	})
}
