// Command lockstep-scheduler schedules the pods of its scheduler name on a
// Kubernetes cluster, whole gangs at a time. See package standalone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/standalone"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/labels"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options are what the flags say.
type options struct {
	cfg        standalone.Config
	kubeconfig string
	server     string
	level      string
	topology   string
	aliases    string
	queues     string
	lease      string
}

func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("lockstep-scheduler", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how to reach the API server; none means as a pod of the cluster")
	f.StringVar(&o.server, "master", "", "address of the API server, in the place of the kubeconfig's")
	f.StringVar(&o.cfg.View.SchedulerName, "scheduler-name", view.DefaultSchedulerName, "spec.schedulerName of the pods to schedule")
	f.StringVar(&o.topology, "topology", "", "node labels that make the levels of the topology, coarsest first, each as label or level=label, with commas")
	f.StringVar(&o.aliases, "aliases", "", "schedulers whose annotations are read as well, with commas: volcano, kueue, coscheduling, kai")
	f.StringVar((*string)(&o.cfg.Rule), "rule", "", "the policy: priority (the default), ltgf, fifo, srtf, las or static")
	f.StringVar(&o.queues, "queues", "", "ConfigMap with rule and weights, as namespace/name")
	f.StringVar(&o.cfg.Listen, "listen", "127.0.0.1:10269", "address of /healthz and /readyz; empty means none")
	f.IntVar(&o.cfg.Parallel, "parallel", 0, "how many writes are under way at once; 0 means 16")
	f.IntVar(&o.cfg.Reports, "reports", 0, "events and conditions a second at the most; 0 means 20, less means none")
	f.DurationVar(&o.cfg.Patience, "patience", 0, "how long a gang waits before it is told why; 0 means 5s")
	f.DurationVar(&o.cfg.Repeat, "repeat", 0, "least time between two reports about one gang; 0 means 1m")
	f.DurationVar(&o.cfg.Repair, "repair", 0, "how long fewer pods than the least may be bound before a gang is undone; 0 means 5s")
	f.DurationVar(&o.cfg.Regroup, "regroup", 0, "least time between two looks at changed nodes; 0 means 200ms")
	f.DurationVar(&o.cfg.Drain, "drain", 0, "how long a graceful stop waits for bindings; 0 means 10s")
	f.BoolVar(&o.cfg.Evict, "evict", false, "stop pods by the eviction API, which heeds disruption budgets")
	f.BoolVar(&o.cfg.Claims, "claims", false, "give out devices by resource claims too")
	elect := f.Bool("leader-elect", true, "act only while holding the lease")
	f.StringVar(&o.lease, "lease", "kube-system/lockstep-scheduler", "the lease, as namespace/name")
	f.StringVar(&o.cfg.Election.Identity, "identity", "", "unique name of this process; none means one made up")
	f.DurationVar(&o.cfg.Election.Term, "lease-duration", 0, "how long others wait for a holder that does not renew; 0 means 15s")
	f.DurationVar(&o.cfg.Election.Renew, "renew-deadline", 0, "how long after the last renewal a holder still acts; 0 means two thirds of the duration")
	f.DurationVar(&o.cfg.Election.Retry, "retry-period", 0, "time between attempts; 0 means an eighth of the duration")
	f.StringVar(&o.level, "log-level", "info", "debug, info, warn or error")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("lockstep-scheduler: no such argument: %q", f.Arg(0))
	}
	o.cfg.Election.Disable = !*elect
	return o, o.resolve()
}

// resolve reads the flags that have a form of their own.
func (o *options) resolve() error {
	var err error
	if o.cfg.View.Keys, err = parseKeys(o.topology); err != nil {
		return err
	}
	for name := range strings.SplitSeq(o.aliases, ",") {
		if name != "" {
			o.cfg.View.Aliases = append(o.cfg.View.Aliases, view.Dialect(name))
		}
	}
	if o.cfg.Queues, err = objectName("queues", o.queues); err != nil {
		return err
	}
	o.cfg.Election.Lease, err = objectName("lease", o.lease)
	return err
}

func parseKeys(text string) (keys []labels.Key, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		level, label, named := strings.Cut(part, "=")
		if !named {
			level, label = "", part
		}
		if label == "" {
			return nil, fmt.Errorf("lockstep-scheduler: -topology: %q names no label", part)
		}
		keys = append(keys, labels.Key{Label: label, Level: topology.Level{Name: lockstep.Level(level)}})
	}
	return keys, nil
}

func objectName(field, text string) (standalone.ObjectName, error) {
	if text == "" {
		return standalone.ObjectName{}, nil
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" {
		return standalone.ObjectName{}, fmt.Errorf("lockstep-scheduler: -%s: %q is not namespace/name", field, text)
	}
	return standalone.ObjectName{Namespace: namespace, Name: name}, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	log, err := logger(o.level, out)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }()
	klog.LogToStderr(true)
	// What is kept of a small cluster is little beside what is read and dropped again,
	// and would be collected again and again. Memory that is never touched is not
	// used; it only puts the first collections off.
	ballast := make([]byte, 48<<20)
	defer runtime.KeepAlive(ballast)
	// Before the client, which asks for some feature at once.
	gates := &lists{Gates: features.FeatureGates()}
	features.ReplaceFeatureGates(gates)
	rc, err := clientcmd.BuildConfigFromFlags(o.server, o.kubeconfig)
	if err != nil {
		return fmt.Errorf("lockstep-scheduler: %w", err)
	}
	if o.cfg.Client, err = kubernetes.NewForConfig(tune(rc)); err != nil {
		return fmt.Errorf("lockstep-scheduler: %w", err)
	}
	o.cfg.Logger = log
	gates.choose(ctx, o.cfg.Client)
	s, err := standalone.New(o.cfg)
	if err != nil {
		return err
	}
	log.Info("starting", zap.String("version", version()), zap.Time("at", time.Now()))
	return s.Run(ctx)
}

// manyPods is from how many pods on they are listed as a stream: it takes the server
// longer, and neither side has to have all of them in one answer.
const manyPods = 20_000

// lists are the features of client-go, with or without lists as streams.
type lists struct {
	features.Gates
	atOnce atomic.Bool // everything is listed in one answer
}

// Enabled is that of features.Gates.
func (g *lists) Enabled(f features.Feature) bool {
	return (f != features.WatchListClient || !g.atOnce.Load()) && g.Gates.Enabled(f)
}

// choose has everything listed in one answer where there are few pods, unless the
// environment says how client-go is to list. Who cannot say does as client-go does.
func (g *lists) choose(ctx context.Context, client kubernetes.Interface) {
	if os.Getenv("KUBE_FEATURE_WatchListClient") != "" {
		return
	}
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
	g.atOnce.Store(err == nil && (list.RemainingItemCount == nil || *list.RemainingItemCount <= manyPods))
}

// tune has a client speak protobuf, and leaves limits to the API server's own
// priority and fairness.
func tune(rc *rest.Config) *rest.Config {
	rc.ContentType = "application/vnd.kubernetes.protobuf"
	rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	rc.QPS, rc.Burst = -1, -1
	// Lists are few, and a server near by takes longer to compress than to send.
	rc.DisableCompression = true
	rc.UserAgent = "lockstep-scheduler"
	return rc
}

func logger(level string, out io.Writer) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("lockstep-scheduler: -log-level: %w", err)
	}
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(enc), zapcore.Lock(zapcore.AddSync(out)), l)), nil
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}
