package lp_test

import (
	"fmt"

	"github.com/lockstep-gpu/lockstep/internal/lp"
)

// The largest t such that two jobs get t each of one device.
func Example() {
	s, err := lp.Solve(&lp.Problem{
		Cost: []float64{0, 0, -1},
		Rows: []lp.Row{
			{Entries: []lp.Entry{{Col: 0, Val: 1}, {Col: 1, Val: 1}}, RHS: 1},
			{Entries: []lp.Entry{{Col: 2, Val: 1}, {Col: 0, Val: -1}}},
			{Entries: []lp.Entry{{Col: 2, Val: 1}, {Col: 1, Val: -1}}},
		},
	})
	fmt.Println(err, s.Status, s.X, s.Y)
	// Output: <nil> optimal [0.5 0.5 0.5] [-0.5 -0.5 -0.5]
}
