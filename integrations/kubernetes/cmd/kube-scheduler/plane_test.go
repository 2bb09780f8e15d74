package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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

// world is a namespace with nodes, kubelets and a controller that makes pods anew.
type world struct {
	t          *testing.T
	ctx        context.Context
	client     kubernetes.Interface
	ns         string
	controller *cluster.Controller
	logs       map[string]string // of schedulers, by name
}

func newWorld(t *testing.T, n cluster.Nodes, k cluster.Kubelet) *world {
	t.Helper()
	if control == nil {
		t.Skipf("%s names no folder with etcd and kube-apiserver", plane.Env)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	client, err := cluster.Client(control, plane.Admin)
	check(t, err)
	w := &world{t: t, ctx: ctx, client: client, ns: strings.ToLower(t.Name()), logs: make(map[string]string)}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}, metav1.CreateOptions{})
	check(t, err)
	check(t, cluster.MakeNodes(ctx, client, n))
	k.Client = client
	w.controller = &cluster.Controller{Client: client, After: 20 * time.Millisecond}
	playing, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { k.Run(playing) })
	all.Go(func() { w.controller.Run(playing) })
	t.Cleanup(func() {
		stop()
		all.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		now := int64(0)
		gone := metav1.DeleteOptions{GracePeriodSeconds: &now}
		_ = client.CoreV1().Pods(w.ns).DeleteCollection(ctx, gone, metav1.ListOptions{})
		_ = client.CoreV1().Nodes().DeleteCollection(ctx, gone, metav1.ListOptions{})
	})
	return w
}

// schedulerName is that of all pods here.
const schedulerName = "lockstep-scheduler"

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
	w.t.Helper()
	if len(profiles) == 0 {
		profiles = []string{schedulerName}
	}
	dir := w.t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	check(w.t, os.WriteFile(file, []byte(configuration(w.ns, profiles...)), 0o600))
	log, err := os.Create(filepath.Join(dir, name+".log"))
	check(w.t, err)
	w.logs[name] = log.Name()
	w.t.Cleanup(func() {
		if w.t.Failed() {
			data, _ := os.ReadFile(log.Name())
			w.t.Logf("%s:\n%s", name, data[max(0, len(data)-8000):])
		}
		log.Close()
	})
	cmd := exec.Command(program, "--config="+file, "--secure-port=0", "-v=3")
	cmd.Env = append(os.Environ(), "E2E_ROLE=kube-scheduler")
	cmd.Stdout, cmd.Stderr = log, log
	check(w.t, cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// gangs returns n gangs of the namespace.
func (w *world) gangs(prefix string, n, members, gpus int) []cluster.Gang {
	out := make([]cluster.Gang, n)
	for i := range out {
		out[i] = cluster.Gang{Namespace: w.ns, Name: fmt.Sprintf("%s%03d", prefix, i), Scheduler: schedulerName, Members: members, GPUs: gpus}
	}
	return out
}

// told reports whether a scheduler's log has a text.
func (w *world) told(name, text string) error {
	data, err := os.ReadFile(w.logs[name])
	if err == nil && !strings.Contains(string(data), text) {
		err = fmt.Errorf("%s did not say %q", name, text)
	}
	return err
}

func (w *world) make(gangs ...cluster.Gang) {
	w.t.Helper()
	check(w.t, cluster.MakeGangs(w.ctx, w.client, gangs...))
}

func (w *world) look() ([]corev1.Pod, []corev1.Node, error) {
	ps, err := w.client.CoreV1().Pods(w.ns).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	ns, err := w.client.CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	return ps.Items, ns.Items, nil
}

func (w *world) eventually(within time.Duration, ok func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("not within %v: %v", within, err)
		case <-tick.C:
		}
	}
}

// rests waits until bound gangs are bound whole and waiting ones not at all, no node
// has too much on it, and it has stayed so for a while.
func (w *world) rests(within time.Duration, bound, waiting int) {
	w.t.Helper()
	calm := 0
	w.eventually(within, func() error {
		err := w.atRest(bound, waiting)
		if err != nil {
			calm = 0
			return err
		}
		if calm++; calm < 6 {
			return errors.New("it has not stayed so")
		}
		return nil
	})
}

func (w *world) atRest(bound, waiting int) error {
	pods, nodes, err := w.look()
	if err != nil {
		return err
	}
	if err := cluster.Audit(pods, nodes); err != nil {
		return err
	}
	whole, none := 0, 0
	for _, g := range cluster.Tally(pods) {
		switch {
		case g.Leaving > 0:
			return fmt.Errorf("gang %s has %d pods that are being deleted", g.Name, g.Leaving)
		case g.Bound >= g.Members:
			whole++
		case g.Bound == 0:
			none++
		}
	}
	if whole != bound || none != waiting {
		return fmt.Errorf("%d gangs are bound and %d wait, want %d and %d", whole, none, bound, waiting)
	}
	return nil
}
