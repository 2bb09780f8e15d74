package autoscale_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy"
	"github.com/lockstep-gpu/lockstep/serving"
	"github.com/lockstep-gpu/lockstep/serving/autoscale"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) // immutable

func Example() {
	s, err := autoscale.New(autoscale.Config{
		Rule: autoscale.HighWater{Load: 40 * time.Second, Wait: time.Second},
		Demand: autoscale.Demand{Capacity: autoscale.Tokens{
			Step: 20 * time.Millisecond, Sequence: time.Millisecond, PromptToken: 100 * time.Microsecond, PerToken: 60 * time.Millisecond,
		}},
		Steady: policy.Steady{Bounded: policy.Bounded{Min: 1, Max: 64}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := start
	fleet := autoscale.Fleet{Ready: []autoscale.Replica{{ID: "r1"}}}
	for range 60 { // ten minutes of 20 requests a second, each of 1000 tokens that make 200
		now = now.Add(10 * time.Second)
		err = s.Observe(now, autoscale.Sample{Requests: 200, Prompt: 200_000, Finished: 200, Output: 40_000, Ongoing: 200})
	}
	d, err := s.Decide(now, fleet)
	fmt.Println(d.Want, d.Add, d.Remove, d.Why.Reason, d.Why.Load, err)
	// Output:
	// 15 14 [] rule 9079 <nil>
}

func ExamplePredictive() {
	s, err := autoscale.New(autoscale.Config{
		Rule: autoscale.Predictive{Load: 40 * time.Second},
		Demand: autoscale.Demand{Capacity: autoscale.Tokens{
			Step: 20 * time.Millisecond, Sequence: time.Millisecond, PromptToken: 100 * time.Microsecond, PerToken: 60 * time.Millisecond,
		}},
		Steady: policy.Steady{Bounded: policy.Bounded{Min: 1, Max: 64}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := start
	fleet := autoscale.Fleet{Ready: []autoscale.Replica{{ID: "r1"}}}
	for range 60 { // ten minutes of 20 requests a second, each of 1000 tokens that make 200
		now = now.Add(10 * time.Second)
		err = s.Observe(now, autoscale.Sample{Requests: 200, Prompt: 200_000, Finished: 200, Output: 40_000, Ongoing: 200})
	}
	d, err := s.Decide(now, fleet)
	fmt.Println(d.Want, d.Add, d.Remove, d.Why.Reason, d.Why.Load, err)
	// Output:
	// 20 19 [] backlog 9079 <nil>
}

func ExampleKPA() {
	s, err := autoscale.New(autoscale.Config{Rule: autoscale.KPA{Target: 7000}})
	err = s.Observe(start, autoscale.Sample{Ongoing: 20})
	err = s.Observe(start.Add(time.Minute), autoscale.Sample{Ongoing: 20})
	d, err := s.Decide(start.Add(time.Minute), autoscale.Fleet{
		Ready:    []autoscale.Replica{{ID: "a", Ongoing: 9}, {ID: "b", Ongoing: 2}, {ID: "c", Ongoing: 9}},
		Starting: []autoscale.Replica{{ID: "d"}, {ID: "e"}},
	})
	fmt.Println(d.Want, d.Remove, err)
	// Output: 4 [e] <nil>
}

func ExampleScaler_Loanable() {
	s, err := autoscale.New(autoscale.Config{
		Rule:   autoscale.Predictive{},
		Demand: autoscale.Demand{Capacity: autoscale.Batched{Latency: serving.Linear{Each: 100 * time.Millisecond}, Objective: time.Second}},
		Loan:   autoscale.LoanConfig{PerReplica: lockstep.WholeGPU, Grace: time.Minute, Cleanup: 15 * time.Second, Load: 45 * time.Second},
	})
	now, owned := start, 20*lockstep.WholeGPU
	for range 1200 {
		now = now.Add(30 * time.Second)
		err = s.Observe(now, autoscale.Sample{Requests: 1200, Ongoing: 4}) // four replicas' work
	}
	l, err := s.Loanable(now, owned, 0)
	fmt.Println(l.Lend, l.Notice, err)
	l, err = s.Loanable(now, owned, 18*lockstep.WholeGPU) // as if too much had been lent
	fmt.Println(l.Recall, l.Deadline.Sub(now), err)
	// Output:
	// 15 1m15s <nil>
	// 3 1m15s <nil>
}

func ExampleFence() {
	var fence autoscale.Fence
	fmt.Println(fence.Admit(autoscale.Decision{Term: 4, Seq: 1, Want: 3}))
	fmt.Println(fence.Admit(autoscale.Decision{Term: 3, Seq: 99, Want: 0}))
	// Output:
	// <nil>
	// autoscale: admit: Term = 3: a controller of term 4 has acted
}

func ExampleForecaster() {
	f, err := autoscale.NewForecaster(autoscale.ForecastConfig{Horizons: []autoscale.Horizon{{Slots: 3, Quantile: 900}}, Season: 4})
	for i := range 200 {
		err = f.Observe([]int64{1000, 2000, 8000, 2000}[i%4])
	}
	point, _ := f.Point(0)
	bound, _ := f.Bound(0)
	held, of := f.Kept(0)
	fmt.Println(point, bound, held, of, err)
	// Output: 8000 8000 195 197 <nil>
}
