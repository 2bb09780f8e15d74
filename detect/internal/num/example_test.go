package num_test

import (
	"fmt"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

func Example() {
	fmt.Printf("%.4f %.4f %v\n", num.Exp(num.Log(1.5)), num.Normal(1.6449), num.Duration(2.5))
	// Output: 1.5000 0.9500 3ns
}
