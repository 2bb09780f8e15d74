package signal_test

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/signal"
)

func Example() {
	s, err := signal.New(signal.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var f signal.Findings
	for i := range 100 {
		loss := 2.5 + 0.01*float64(i%7)
		if i == 99 {
			loss = math.NaN()
		}
		f, _ = s.Observe(signal.Reading{Loss: &loss})
	}
	fmt.Println("loss", f.Loss, "throughput", f.Throughput)
	zero := time.Duration(0)
	_, err = s.Observe(signal.Reading{Step: &zero})
	fmt.Println(errors.Is(err, lockstep.ErrInvalid))
	// Output:
	// loss abnormal throughput unknown
	// true
}
