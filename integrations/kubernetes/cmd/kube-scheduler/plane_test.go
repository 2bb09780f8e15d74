package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/internal/plane"
)

var (
	control *plane.Plane // nil where there is none
	program string       // the scheduler: this program, or one that was built before
)

// programEnv names a kube-scheduler with the plugin that was built before; without it
// the test binary itself is run as one.
const programEnv = "LOCKSTEP_KUBE_SCHEDULER"

func TestMain(m *testing.M) {
	if os.Getenv("E2E_ROLE") == "kube-scheduler" {
		main()
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	assets := os.Getenv(plane.Env)
	if assets == "" {
		if os.Getenv(plane.RequireEnv) == "1" {
			fmt.Fprintf(os.Stderr, "%s=1, and %s names no folder with etcd and kube-apiserver\n", plane.RequireEnv, plane.Env)
			return 1
		}
		return m.Run() // each test says why it is skipped
	}
	var err error
	if program = os.Getenv(programEnv); program == "" {
		if program, err = os.Executable(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if control, err = plane.Start(ctx, plane.Config{Assets: assets}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := control.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return m.Run()
}

// world is a World with schedulers.
type world struct {
	*cluster.World
	logs map[string]string // of schedulers, by name
}

func newWorld(t *testing.T, n cluster.Nodes, k cluster.Kubelet) *world {
	t.Helper()
	return &world{World: cluster.NewWorld(t, control, n, k), logs: make(map[string]string)}
}

// configuration is that of deploy/plugin, but for what a test has of its own: profiles
// that differ in their name only.
func configuration(lease string, profiles ...string) string {
	text := `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  leaseDuration: 3s
  renewDeadline: 2s
  retryPeriod: 500ms
  resourceName: lockstep-scheduler
  resourceNamespace: ` + lease + `
clientConnection:
  kubeconfig: ` + control.Kubeconfig(plane.Admin) + `
  qps: 1000
  burst: 2000
profiles:
`
	for _, name := range profiles {
		text += `- schedulerName: ` + name + `
  plugins:
    multiPoint:
      enabled:
      - name: Lockstep
      disabled:
      - name: DefaultPreemption
      - name: DefaultBinder
    preFilter:
      enabled: [{name: Lockstep}]
    postFilter:
      enabled: [{name: Lockstep}]
  pluginConfig:
  - name: Lockstep
    args:
      permit: 3s
      repair: 500ms
      patience: 300ms
      view:
        keys:
        - label: ` + cluster.RackLabel + `
          level: {name: rack}
`
	}
	return text
}

// schedule starts a scheduler as a process of its own. It is killed when the test ends.
func (w *world) schedule(name string, profiles ...string) *exec.Cmd {
	w.T.Helper()
	if len(profiles) == 0 {
		profiles = []string{cluster.SchedulerName}
	}
	dir := w.T.TempDir()
	file := filepath.Join(dir, "config.yaml")
	cluster.Check(w.T, os.WriteFile(file, []byte(configuration(w.Namespace, profiles...)), 0o600))
	log, err := os.Create(filepath.Join(dir, name+".log"))
	cluster.Check(w.T, err)
	w.logs[name] = log.Name()
	w.T.Cleanup(func() {
		if w.T.Failed() {
			data, _ := os.ReadFile(log.Name())
			w.T.Logf("%s:\n%s", name, data[max(0, len(data)-8000):])
		}
		log.Close()
	})
	cmd := exec.Command(program, "--config="+file, "--secure-port=0", "-v=3")
	cmd.Env = append(os.Environ(), "E2E_ROLE=kube-scheduler")
	cmd.Stdout, cmd.Stderr = log, log
	cluster.Check(w.T, cmd.Start())
	w.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// told reports whether a scheduler's log has a text.
func (w *world) told(name, text string) error {
	data, err := os.ReadFile(w.logs[name])
	if err == nil && !strings.Contains(string(data), text) {
		err = fmt.Errorf("%s did not say %q", name, text)
	}
	return err
}
