package hpo_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/hpo"
)

// Four trials on four devices; the best half goes on as soon as it is known.
func Example() {
	s, err := hpo.New(hpo.Config{Mode: hpo.Maximize, ASHA: &hpo.ASHA{Max: 4, Eta: 2}})
	if err != nil {
		panic(err)
	}
	for _, id := range []hpo.TrialID{"a", "b", "c", "d"} {
		if err := s.Add(id); err != nil {
			panic(err)
		}
	}
	accuracy := map[hpo.TrialID]float64{"a": 0.5, "b": 0.8, "c": 0.6, "d": 0.9}
	for {
		starts, _ := s.Next(4)
		if len(starts) == 0 {
			break
		}
		for _, x := range starts {
			decisions, err := s.Report(hpo.Report{Trial: x.Trial, Attempt: x.Attempt, Step: x.Until, Value: accuracy[x.Trial]})
			if err != nil {
				panic(err)
			}
			fmt.Println(x.Trial, "to step", x.Until, decisions[0].Action, decisions[0].Reason)
		}
	}
	fmt.Println(s.Quiescent())
	// Output:
	// a to step 1 pause at-rung
	// b to step 1 pause at-rung
	// c to step 1 pause at-rung
	// d to step 1 pause at-rung
	// d to step 2 pause at-rung
	// b to step 2 pause at-rung
	// d to step 4 stop complete
	// true
}

// A bundle of fused trials reports in one call, and is decided as a whole.
func ExampleScheduler_Report() {
	s, _ := hpo.New(hpo.Config{ASHA: &hpo.ASHA{Variant: hpo.Stopping, Max: 9, Eta: 3}})
	for _, id := range []hpo.TrialID{"a", "b", "c"} {
		_ = s.Add(id)
	}
	s.Next(3)
	decisions, err := s.Report(
		hpo.Report{Trial: "a", Step: 1, Value: 0.7},
		hpo.Report{Trial: "b", Step: 1, Value: 0.2},
		hpo.Report{Trial: "c", Step: 1, Value: 0.4},
	)
	for _, d := range decisions {
		fmt.Println(d.Trial, d.Action)
	}
	fmt.Println(err)
	// Output:
	// a stop
	// b continue
	// c stop
	// <nil>
}

func ExampleBrackets() {
	brackets, err := hpo.Brackets(1, 81, 3)
	for s, b := range brackets {
		fmt.Println(s, b.Trials, b.Levels)
	}
	fmt.Println(err)
	// Output:
	// 0 5 [81]
	// 1 8 [27 81]
	// 2 15 [9 27 81]
	// 3 34 [3 9 27 81]
	// 4 81 [1 3 9 27 81]
	// <nil>
}

// A rung of successive halving closes when all have come, those that failed excepted.
func ExampleSHA() {
	s, _ := hpo.New(hpo.Config{SHA: &hpo.SHA{Max: 2, Eta: 2, Trials: 3}})
	for _, id := range []hpo.TrialID{"a", "b", "c"} {
		_ = s.Add(id)
	}
	s.Next(3)
	_, _ = s.Report(hpo.Report{Trial: "a", Step: 1, Value: 0.3}, hpo.Report{Trial: "b", Step: 1, Value: 0.1})
	decisions, _ := s.Failed("c", 0, hpo.Crashed)
	fmt.Println(decisions[0].Trial, decisions[0].Action, decisions[0].Reason)
	starts, _ := s.Next(3)
	for _, x := range starts {
		fmt.Println(x.Trial, "from", x.From, "until", x.Until)
	}
	// Output:
	// c stop failed
	// b from 1 until 2
	// a from 1 until 2
}

// A learning rate in units of 10^-6, and what PBT makes of it.
func ExampleParam_Apply() {
	lr := hpo.Param{Name: "lr", Low: 10, High: 100_000}
	fmt.Println(lr.Apply(1000, hpo.Turn{Param: "lr", Draw: 1 << 63}), lr.Apply(1000, hpo.Turn{Param: "lr"}))
	// Output: 1200 800
}

// Close to its deadline a search gives the best trial more devices.
func ExampleScheduler_Shift() {
	s, _ := hpo.New(hpo.Config{ASHA: &hpo.ASHA{Variant: hpo.Stopping, Max: 100, Eta: 2}})
	_ = s.Add("a")
	_ = s.Add("b")
	s.Next(2)
	_, _ = s.Report(hpo.Report{Trial: "b", Step: 1, Value: 0.4}, hpo.Report{Trial: "a", Step: 1, Value: 0.2})
	_, _ = s.Report(hpo.Report{Trial: "a", Step: 70, Value: 0.1})
	end := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	shift, err := s.Shift(end.Add(-30*time.Second), hpo.Deadline{At: end, Devices: 4, Most: 2, Step: time.Second}, nil)
	fmt.Println(shift.Explore, shift.Sizes, err)
	// Output: false [{a 2}] <nil>
}
