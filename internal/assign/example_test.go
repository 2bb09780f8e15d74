package assign_test

import (
	"fmt"

	"github.com/lockstep-gpu/lockstep/internal/assign"
)

func Example() {
	s, err := assign.Solve(assign.Problem{Rows: 2, Cols: 3, Cost: []int64{4, 1, 3, 2, 0, 5}})
	fmt.Println(err, s.ColOf, s.RowOf, s.Cost)
	// Output: <nil> [1 0] [1 0 -1] 3
}
