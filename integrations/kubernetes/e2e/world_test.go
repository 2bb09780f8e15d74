package e2e

import (
	"context"
	"errors"
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

// world is a World with a watchdog, and schedulers.
type world struct {
	*cluster.World
	watch *watchdog
}

// newWorld makes one. Everything of it ends with the test.
func newWorld(t *testing.T, n cluster.Nodes, k cluster.Kubelet) *world {
	t.Helper()
	w := &world{World: cluster.NewWorld(t, control, n, k)}
	w.watch = newWatchdog(w.Client)
	watching, stop := context.WithCancel(w.Ctx)
	var all sync.WaitGroup
	all.Go(func() { w.watch.run(watching) })
	t.Cleanup(func() {
		stop()
		all.Wait()
		if err := w.watch.fault(); err != nil {
			t.Errorf("at some time: %v", err)
		}
	})
	return w
}

// config is how the schedulers of these tests are set up: impatient, and with the
// racks as a level.
func (w *world) config() standalone.Config {
	return standalone.Config{
		View:   view.Config{Keys: []labels.Key{{Label: cluster.RackLabel, Level: topology.Level{Name: lockstep.Level("rack")}}}},
		Client: w.Client, Election: standalone.Election{Disable: true},
		Repair: 500 * time.Millisecond, Regroup: 20 * time.Millisecond, Patience: 300 * time.Millisecond, Repeat: time.Second,
		Logger: logger(w.T),
	}
}

// logger writes to the file that E2E_LOG names, or nowhere.
func logger(t *testing.T) *zap.Logger {
	name := os.Getenv("E2E_LOG")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	cluster.Check(t, err)
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(f), zap.DebugLevel)).With(zap.String("test", t.Name()))
}

// schedule runs a scheduler in this process until the test ends or stop is called.
func (w *world) schedule(cfg standalone.Config) (s *standalone.Scheduler, stop func()) {
	w.T.Helper()
	s, err := standalone.New(cfg)
	cluster.Check(w.T, err)
	ctx, cancel := context.WithCancel(w.Ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.T.Errorf("the scheduler ended with %v", err)
		}
	})
	w.T.Cleanup(stop)
	return s, stop
}

// process starts the scheduler as a process of its own, with these flags beside those
// that config has. It is killed when the test ends.
func (w *world) process(name string, flags ...string) *exec.Cmd {
	w.T.Helper()
	log, err := os.Create(filepath.Join(w.T.TempDir(), name+".log"))
	cluster.Check(w.T, err)
	w.T.Cleanup(func() {
		if w.T.Failed() {
			data, _ := os.ReadFile(log.Name())
			w.T.Logf("%s:\n%.6000s", name, data)
		}
		log.Close()
	})
	cmd := exec.Command(program, append([]string{
		"-kubeconfig=" + control.Kubeconfig(plane.Admin), "-topology=rack=" + cluster.RackLabel, "-listen=",
		"-repair=500ms", "-regroup=20ms", "-patience=300ms", "-repeat=1s", "-lease=" + w.Namespace + "/lockstep", "-identity=" + name,
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cluster.Check(w.T, cmd.Start())
	w.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
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
