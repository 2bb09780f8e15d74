package profile_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel/profile"
)

// Of two jobs that are owed the same, the one whose iterations suffer from distance gets
// the devices that are close together.
func Example() {
	s, err := profile.New(profile.Config{Levels: []lockstep.Level{"cluster", "rack", lockstep.LevelNode}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 6 {
		wobble := time.Duration(i) * time.Millisecond
		_ = s.ObserveLevel("moe", lockstep.LevelNode, 400*time.Millisecond+wobble)
		_ = s.ObserveLevel("moe", "rack", 700*time.Millisecond+wobble)
		_ = s.ObserveLevel("resnet", lockstep.LevelNode, 200*time.Millisecond+wobble)
		_ = s.ObserveLevel("resnet", "rack", 204*time.Millisecond+wobble)
	}
	rack := s.Slowdown("moe", "rack")
	fmt.Printf("moe in a rack: %.1f times as long, %s; across racks: %q\n", rack.Value, rack.Source, s.Slowdown("moe", "cluster").Source)
	need := func(k profile.Kind) int64 { return s.Need(k, lockstep.LevelNode, "rack") }
	claims := []profile.Claim{
		{Job: "images", Owed: 10, Need: need("resnet")},
		{Job: "experts", Owed: 10, Need: need("moe")},
		{Job: "new", Owed: 10, Need: need("unheard-of")},
	}
	slices.SortFunc(claims, profile.Claim.Compare)
	for _, c := range claims {
		fmt.Println(c.Job, c.Need > 0)
	}
	// Output:
	// moe in a rack: 1.7 times as long, measured; across racks: ""
	// experts true
	// images false
	// new false
}

func ExamplePool() {
	p, err := profile.NewPool(profile.PoolConfig{GPUs: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	for _, j := range []struct {
		id   lockstep.JobID
		gpus int
	}{{"large", 4}, {"small", 1}, {"huge", 16}} {
		ok, err := p.Submit(now, j.id, j.gpus)
		fmt.Println(j.id, ok, err)
	}
	for range 3 {
		acts, _ := p.Step(now, nil)
		for _, a := range acts {
			fmt.Println(now.Format(time.TimeOnly), a.Kind, a.Job)
			if a.Kind == profile.PoolStop {
				_ = p.Leave(now, a.Job)
			}
		}
		now, _ = p.NextWake(now)
	}
	// Output:
	// large true <nil>
	// small true <nil>
	// huge false <nil>
	// 09:00:00 start small
	// 09:08:20 stop small
	// 09:08:20 start large
}

func ExampleDurations() {
	d, err := profile.NewDurations(profile.DurationsConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, hours := range []time.Duration{2, 3, 4, 3} {
		job := profile.Job{Tenant: "ann", Name: fmt.Sprintf("bert-run%d", i), GPUs: 8000}
		_ = d.Observe(job, 0, hours*time.Hour)
	}
	like, _ := d.Expect(profile.Job{Tenant: "ann", Name: "bert-run9", GPUs: 8000}, 0)
	fmt.Println(like.Duration, like.Low, like.High, like.Samples, like.Like)
	stranger, _ := d.Expect(profile.Job{Tenant: "bob"}, time.Hour)
	fmt.Println(stranger.Duration, stranger.Like)
	// Output:
	// 3h0m0s 2h0m0s 4h0m0s 4 job
	// 1h12m0s cluster
}

func ExampleDistribution_Gittins() {
	d, err := profile.NewDistribution([]time.Duration{time.Hour, time.Hour, time.Hour, 9 * time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, attained := range []time.Duration{0, time.Hour, 8 * time.Hour} {
		x, _ := d.Gittins(attained)
		fmt.Printf("after %v: %.3f jobs end for an hour\n", attained, 3600*x.PerSecond())
	}
	// Output:
	// after 0s: 0.750 jobs end for an hour
	// after 1h0m0s: 0.125 jobs end for an hour
	// after 8h0m0s: 1.000 jobs end for an hour
}

func ExampleStore_Packing() {
	s, err := profile.New(profile.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = s.ObservePair("bert", "resnet", 700, 550)
	_ = s.ObservePair("bert", "bert", 550, 400)
	for _, with := range []profile.Kind{"resnet", "bert", "unknown"} {
		p := s.Packing("bert", with)
		fmt.Printf("%s: %q %d %v\n", with, p.Source, p.Gain, p.Pays)
	}
	// Output:
	// resnet: "measured" 250 true
	// bert: "measured" -50 false
	// unknown: "" 0 false
}
