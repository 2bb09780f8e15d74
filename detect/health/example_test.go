package health_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/detect/health"
)

func Example() {
	m, err := health.New(health.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := m.Track(now, "node-1", "GPU-0", "GPU-1"); err != nil {
		fmt.Println(err)
		return
	}
	tell := func(after time.Duration, e health.Event) {
		e.Time, e.Node = now.Add(after), "node-1"
		if err := m.Observe(e); err != nil {
			fmt.Println(err)
		}
	}
	tell(0, health.Event{Kind: health.Probe, Device: "GPU-0", Code: "diag", Passed: true})
	tell(time.Minute, health.Event{Kind: health.Fault, Device: "GPU-0", Code: health.XID(95)})
	tell(2*time.Minute, health.Event{Kind: health.Drained, Device: "GPU-0"})
	tell(3*time.Minute, health.Event{Kind: health.Repaired, Device: "GPU-0", Action: health.ActionReset})
	tell(4*time.Minute, health.Event{Kind: health.Probe, Device: "GPU-0", Code: "diag", Passed: true})
	changes, err := m.Step(now.Add(5 * time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	more, err := m.Step(now.Add(time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range append(changes, more...) {
		fmt.Println(c.Time.Format(time.TimeOnly), c.Device, c.From, "to", c.To, "for", c.Reason)
	}
	s, _ := m.Status("node-1", "GPU-1")
	fmt.Println(s.Device, s.State, s.Open)
	// Output:
	// 12:00:00 GPU-0 unknown to healthy for vouched
	// 12:01:00 GPU-0 healthy to draining for evidence
	// 12:02:00 GPU-0 draining to quarantined for drained
	// 12:03:00 GPU-0 quarantined to probation for repaired
	// 12:33:00 GPU-0 probation to healthy for quiet
	// GPU-1 unknown false
}

func ExamplePolicy_With() {
	catalog := health.Catalog()
	e, _ := catalog.Lookup(health.XID(109))
	fmt.Println(e.Code, e.Class, e.Action, e.Date)
	e.Action, e.Source, e.Version, e.Date = health.ActionWatch, "our own figures", "3", "2026-02-01"
	ours := catalog.With(e)
	e, _ = ours.Lookup(health.XID(109))
	text, err := json.Marshal(e)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(text))
	unknown, ok := ours.Lookup(health.XID(4711))
	fmt.Println(unknown.Class, unknown.Action, ok)
	// Output:
	// xid/109 device reset 2025-10-29
	// {"code":"xid/109","name":"context switch timeout","class":"device","action":"watch","source":"our own figures","version":"3","date":"2026-02-01"}
	// unknown cordon false
}

func ExampleMachine_Reconcile() {
	m, err := health.New(health.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := m.Track(now, "node-1", "GPU-0"); err != nil {
		fmt.Println(err)
		return
	}
	drift, err := m.Reconcile([]health.Status{{Node: "node-1", Device: "GPU-0", State: health.Healthy}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range drift {
		fmt.Println(d.Node, d.Device, "is", d.From, "there and", d.To, "here:", d.Action)
	}
	// Output:
	// node-1 GPU-0 is healthy there and unknown here: cordon
}
