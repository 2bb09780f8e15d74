package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda"
)

// A host without the driver's library can do nothing, and says why.
func Example() {
	d, err := cuda.New(cuda.Config{Library: "/opt/driver/libcuda.so.1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	caps, err := d.Probe(context.Background())
	fmt.Println(caps.Driver, caps.Abilities, err)
	fmt.Println(caps.Can(checkpoint.CanLock), caps.Limits[2].What, caps.Limits[2].Reason)
	// Output:
	// cuda [] <nil>
	// false lock library
}

// What a scheduler does with each rank of a job, at the same time for all: pause it,
// and whatever fails, have it running again.
func ExampleDriver() {
	pause := func(ctx context.Context, d *cuda.Driver, t checkpoint.Target) error {
		err := d.Lock(ctx, t, checkpoint.LockOptions{Timeout: 10 * time.Second})
		if err == nil {
			_, err = d.Suspend(ctx, t)
		}
		if err != nil {
			return errors.Join(err, d.Undo(context.WithoutCancel(ctx), t))
		}
		return nil
	}
	d, err := cuda.NewCLI(cuda.CLIConfig{Path: "/opt/driver/cuda-checkpoint"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	err = pause(context.Background(), d, checkpoint.Target{PID: 0, Start: 1})
	var e *checkpoint.DriverError
	fmt.Println(errors.As(err, &e), e.Call, e.Err)
	// Output:
	// true cuCheckpointProcessLock cuda: cuCheckpointProcessLock: PID = 0: is no process
}
