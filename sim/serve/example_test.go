package serve_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/serving/autoscale"
	"github.com/lockstep-gpu/lockstep/sim/serve"
)

func ExampleRun() {
	scaler, err := autoscale.New(autoscale.Config{Rule: autoscale.KPA{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	requests := []serve.Request{{Prompt: 100, Output: 10}, {At: time.Minute, Prompt: 100, Output: 10}}
	result, err := serve.Run(serve.Config{Initial: 1}, requests, scaler)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Parts[0].Finished, result.Parts[0].Tokens, result.Parts[0].Attainment())
	// Output: 2 20 1
}
