//go:build linux

package cooperative_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cooperative"
)

// A host and the hook of a job of one rank, here in one process.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "socket")

	host, err := cooperative.New(cooperative.Config{Socket: socket, Ranks: []checkpoint.Target{{Rank: 0}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	serve, stop := context.WithCancel(ctx)
	served, trained := make(chan error), make(chan error)
	go func() { served <- host.Run(serve) }()
	go func() { trained <- train(ctx, socket) }()

	target, err := host.Target(ctx, 0)
	fmt.Println(err)
	fmt.Println(host.Lock(ctx, target, checkpoint.LockOptions{Timeout: time.Minute}))
	at, err := host.TrainingStep(ctx, target)
	fmt.Println(err)
	image, err := host.Save(ctx, target, cooperative.Save{Epoch: 1, Place: filepath.Join(dir, "1.0")})
	fmt.Printf("%d bytes, %x, of the step: %v, %v\n", image.Bytes, image.Image[:4], image.Step == at, err)
	fmt.Println(host.Terminate(ctx, target))
	fmt.Println(<-trained)
	stop()
	fmt.Println(<-served)
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// 5 bytes, fd5f56b4, of the step: true, <nil>
	// <nil>
	// the job is to leave its loop
	// <nil>
}

// train is the loop of a job.
func train(ctx context.Context, socket string) error {
	step := uint64(1)
	hook, err := cooperative.Dial(ctx, cooperative.HookConfig{Socket: socket, Save: func(path string, _ func(done, total uint64)) error {
		return os.WriteFile(path, []byte("99999"), 0o600)
	}})
	if err != nil {
		return err
	}
	defer hook.Close()
	for {
		if err := hook.Next(ctx, step); err != nil {
			return err
		}
		step++ // and train
	}
}
