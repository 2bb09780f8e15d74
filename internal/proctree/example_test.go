package proctree_test

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/proctree"
)

// It has no Output, as it wants a shell.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	t, err := proctree.Start(exec.Command("sh", "-c", "sleep 100 & sleep 100"), proctree.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.Pause(ctx, 1))
	fmt.Println(t.Resume(ctx, 2))
	fmt.Println(t.Terminate(ctx, time.Second))
	fmt.Println(t.Close())
}
