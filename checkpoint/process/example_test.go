package process_test

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/process"
)

// It has no Output, as it wants a job to start.
func Example() {
	ctx := context.Background()
	d, err := process.New(process.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	target, err := d.Start(exec.Command("python3", "train.py"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Lock(ctx, target, checkpoint.LockOptions{Timeout: time.Second}))
	fmt.Println(d.State(ctx, target))
	fmt.Println(d.Unlock(ctx, target))

	r, err := d.Terminate(ctx, target, process.Grace{
		Period:  time.Minute,
		AckFile: "/run/lockstep/job-7/saved",
		Contract: process.Contract{Saved: []int{0}, Image: func(context.Context) (bool, error) {
			return false, nil // look for the image, and verify it
		}},
	})
	fmt.Println(r.Verdict, r.Complaints, err)
}

// What ends well says little about the work.
func ExampleReport() {
	r := process.Report{
		Asked: 1, Exited: true, Exit: process.Exit{Known: true}, Claimed: true,
		Verdict: process.NotSaved, Complaints: []process.Complaint{process.NoImage, process.ShellRoot},
	}
	fmt.Println(r.String())
	// Output: exited, code 0, not-saved, no-image, shell-root
}

func ExampleGrace_Validate() {
	fmt.Println(process.Grace{Period: -time.Second, AckFile: "saved"}.Validate())
	// Output:
	// checkpoint/process: grace: Period = -1s: want 0 to 87600h0m0s
	// checkpoint/process: grace: AckFile = saved: want a clean absolute path
}
