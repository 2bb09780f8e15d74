package e2e

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

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/internal/plane"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/standalone"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/labels"
)

// schedulerName is that of all pods here.
const schedulerName = "lockstep-scheduler"

// world is what one test has: a namespace, nodes, kubelets, and a controller that
// makes pods anew.
type world struct {
	t          *testing.T
	ctx        context.Context
	client     kubernetes.Interface
	ns         string
	controller *cluster.Controller
	watch      *watchdog
}

// newWorld makes one. Everything of it ends with the test.
func newWorld(t *testing.T, n cluster.Nodes, k cluster.Kubelet) *world {
	t.Helper()
	// Both are read here too, since a result that is kept does not know what
	// TestMain reads.
	if assets, required := os.Getenv(plane.Env), os.Getenv(plane.RequireEnv); control == nil {
		if assets != "" || required == "1" {
			t.Fatal("there is no plane")
		}
		t.Skipf("%s names no folder with etcd and kube-apiserver", plane.Env)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	client, err := cluster.Client(control, plane.Admin)
	check(t, err)
	ns := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	w := &world{t: t, ctx: ctx, client: client, ns: ns[:min(len(ns), 60)]}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}, metav1.CreateOptions{})
	check(t, err)
	check(t, cluster.MakeNodes(ctx, client, n))
	t.Cleanup(w.clear)

	k.Client = client
	w.controller = &cluster.Controller{Client: client, After: 20 * time.Millisecond}
	w.watch = newWatchdog(client)
	playing, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { k.Run(playing) })
	all.Go(func() { w.controller.Run(playing) })
	all.Go(func() { w.watch.run(playing) })
	t.Cleanup(func() {
		stop()
		all.Wait()
		if err := w.watch.fault(); err != nil {
			t.Errorf("at some time: %v", err)
		}
	})
	return w
}

// clear removes what the test made.
func (w *world) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	now := int64(0)
	gone := metav1.DeleteOptions{GracePeriodSeconds: &now}
	_ = w.client.CoreV1().Pods(w.ns).DeleteCollection(ctx, gone, metav1.ListOptions{})
	_ = w.client.CoreV1().Nodes().DeleteCollection(ctx, gone, metav1.ListOptions{})
	_ = w.client.SchedulingV1beta1().PodGroups(w.ns).DeleteCollection(ctx, gone, metav1.ListOptions{})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// config is how the schedulers of these tests are set up: impatient, and with the
// racks as a level.
func (w *world) config() standalone.Config {
	return standalone.Config{
		View:   view.Config{Keys: []labels.Key{{Label: cluster.RackLabel, Level: topology.Level{Name: lockstep.Level("rack")}}}},
		Client: w.client, Election: standalone.Election{Disable: true},
		Repair: 500 * time.Millisecond, Regroup: 20 * time.Millisecond, Patience: 300 * time.Millisecond, Repeat: time.Second,
		Logger: logger(w.t),
	}
}

// logger writes to the file that E2E_LOG names, or nowhere.
func logger(t *testing.T) *zap.Logger {
	name := os.Getenv("E2E_LOG")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(t, err)
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(f), zap.DebugLevel)).With(zap.String("test", t.Name()))
}

// schedule runs a scheduler in this process until the test ends or stop is called.
func (w *world) schedule(cfg standalone.Config) (s *standalone.Scheduler, stop func()) {
	w.t.Helper()
	s, err := standalone.New(cfg)
	check(w.t, err)
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the scheduler ended with %v", err)
		}
	})
	w.t.Cleanup(stop)
	return s, stop
}

// process starts the scheduler as a process of its own, with these flags beside those
// that config has. It is killed when the test ends.
func (w *world) process(name string, flags ...string) *exec.Cmd {
	w.t.Helper()
	log, err := os.Create(filepath.Join(w.t.TempDir(), name+".log"))
	check(w.t, err)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			data, _ := os.ReadFile(log.Name())
			w.t.Logf("%s:\n%.6000s", name, data)
		}
		log.Close()
	})
	cmd := exec.Command(program, append([]string{
		"-kubeconfig=" + control.Kubeconfig(plane.Admin), "-topology=rack=" + cluster.RackLabel, "-listen=",
		"-repair=500ms", "-regroup=20ms", "-patience=300ms", "-repeat=1s", "-lease=" + w.ns + "/lockstep", "-identity=" + name,
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	check(w.t, cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// gangs returns n gangs of the namespace.
func (w *world) gangs(prefix string, n, members, gpus int) []cluster.Gang {
	out := make([]cluster.Gang, n)
	for i := range out {
		out[i] = cluster.Gang{Namespace: w.ns, Name: fmt.Sprintf("%s%03d", prefix, i), Scheduler: schedulerName, Members: members, GPUs: gpus}
	}
	return out
}

// make makes the pods of gangs.
func (w *world) make(gangs ...cluster.Gang) {
	w.t.Helper()
	check(w.t, cluster.MakeGangs(w.ctx, w.client, gangs...))
}

// pods returns all pods of the namespace, and all nodes.
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

// eventually waits until ok returns nil.
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

// rests waits until bound gangs are bound whole, waiting ones are not bound at all, and
// no node has too much on it; and that it stays so for a while.
func (w *world) rests(within time.Duration, bound, waiting int) {
	w.t.Helper()
	calm := 0
	w.eventually(within, func() error {
		err := w.isAtRest(bound, waiting)
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

func (w *world) isAtRest(bound, waiting int) error {
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

// watchdog looks at every change of a pod whether its node has too much on it.
type watchdog struct {
	client kubernetes.Interface
	mu     sync.Mutex
	nodes  map[string]*corev1.Node
	pods   map[string]*corev1.Pod
	found  error
	off    bool
}

func newWatchdog(client kubernetes.Interface) *watchdog {
	return &watchdog{client: client, nodes: make(map[string]*corev1.Node), pods: make(map[string]*corev1.Pod)}
}

// forgive lets it look away: somebody else's doing is about to break the rule.
func (d *watchdog) forgive() {
	d.mu.Lock()
	d.off = true
	d.mu.Unlock()
}

func (d *watchdog) fault() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found
}

func (d *watchdog) run(ctx context.Context) {
	f := informers.NewSharedInformerFactory(d.client, 0)
	_, _ = f.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { d.node(obj.(*corev1.Node)) },
	})
	_, _ = f.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { d.pod(obj.(*corev1.Pod), false) },
		UpdateFunc: func(_, obj any) { d.pod(obj.(*corev1.Pod), false) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			d.pod(obj.(*corev1.Pod), true)
		},
	})
	f.StartWithContext(ctx)
	<-ctx.Done()
	f.Shutdown()
}

func (d *watchdog) node(n *corev1.Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes[n.Name] = n
}

func (d *watchdog) pod(p *corev1.Pod, gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := p.Namespace + "/" + p.Name
	if gone || cluster.Over(p) || p.Spec.NodeName == "" {
		delete(d.pods, key)
		return
	}
	d.pods[key] = p
	n := d.nodes[p.Spec.NodeName]
	if n == nil || d.off || d.found != nil {
		return
	}
	var on []corev1.Pod
	for _, q := range d.pods { // a sum, so order cannot matter
		if q.Spec.NodeName == n.Name {
			on = append(on, *q)
		}
	}
	d.found = errors.Join(cluster.Overcommitted(on, []corev1.Node{*n})...)
}

var (
	createOptions = metav1.CreateOptions{}
	getOptions    = metav1.GetOptions{}
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// cleanup is for what is done when a test's own context is over.
func cleanup() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	context.AfterFunc(ctx, cancel)
	return ctx
}
