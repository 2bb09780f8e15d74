package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/internal/plane"
)

// The users of the plane beside the administrator.
const (
	serviceAccount = "system:serviceaccount:lockstep-system:lockstep-scheduler" // serviceAccount has the rights that the manifests give.
	nobody         = "nobody"                                                   // nobody has none.
)

var (
	control *plane.Plane // nil where there is none
	program string       // the scheduler's
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	assets := os.Getenv(plane.Env)
	if assets == "" {
		if os.Getenv(plane.RequireEnv) == "1" {
			fmt.Fprintf(os.Stderr, "%s=1, and %s names no folder with etcd and kube-apiserver\n", plane.RequireEnv, plane.Env)
			return 1
		}
		return m.Run() // each test says why it is skipped
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "lockstep-scheduler")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "../standalone/lockstep-scheduler")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the scheduler: %v\n%s", err, out)
		return 1
	}
	control, err = plane.Start(ctx, plane.Config{Assets: assets, Users: []plane.User{
		{Name: serviceAccount, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:lockstep-system"}},
		{Name: nobody},
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := control.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, control.Logs(10))
	}
	return code
}
