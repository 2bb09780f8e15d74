package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/internal/plane"
)

// options are what is measured.
type options struct {
	nodes, gpus, gangs, members, absent, rounds int

	kinds        string
	plugin       string
	pluginConfig string
	within       time.Duration
	require      bool
	keepLogs     string
	flags        string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.nodes, "nodes", 1000, "how many nodes")
	f.IntVar(&o.gpus, "gpus", 8, "devices of each node")
	f.IntVar(&o.gangs, "gangs", 100, "how many gangs")
	f.IntVar(&o.members, "members", 8, "pods of each gang, with one device each")
	f.IntVar(&o.absent, "absent", 2, "how many of the gangs lack a pod")
	f.IntVar(&o.rounds, "rounds", 3, "how often each scheduler is measured")
	f.StringVar(&o.kinds, "kinds", "", "which schedulers, with commas; none means all that there are")
	f.StringVar(&o.plugin, "plugin", "", "the kube-scheduler with the plugin compiled in; none means that it is left out")
	f.StringVar(&o.pluginConfig, "plugin-config", "", "its configuration, for a profile lockstep-scheduler; KUBECONFIG in it stands for the file that says how to reach the API server; none means one that is made up")
	f.DurationVar(&o.within, "within", 5*time.Minute, "how long one round may take")
	f.BoolVar(&o.require, "require", false, "fail where a target is missed")
	f.StringVar(&o.keepLogs, "logs", "", "folder for the logs of the schedulers; none means that they are dropped")
	f.StringVar(&o.flags, "flags", "", "further flags of standalone, with blanks between")
	quick := f.Bool("quick", false, "a small cluster and one round, to see that it works")
	floor := f.String("as-floor", "", "be the floor, with this kubeconfig; used by the bench itself")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if *floor != "" {
		return nil, beFloor(context.Background(), *floor)
	}
	if *quick {
		o.nodes, o.gangs, o.rounds = min(o.nodes, 50), min(o.gangs, 20), 1
	}
	if o.absent > o.gangs || o.members < 2 || o.rounds < 1 {
		return nil, errors.New("want at least two members, one round, and no more gangs that lack a pod than there are")
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil || o == nil {
		return err
	}
	assets := os.Getenv(plane.Env)
	p, err := plane.Start(ctx, plane.Config{Assets: assets})
	if err != nil {
		return err
	}
	defer func() { _ = p.Stop() }()
	b := &bench{options: *o, plane: p, took: make(map[string][]sample)}
	if b.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.client, err = cluster.Client(p, plane.Admin); err != nil {
		return err
	}
	if err := b.prepare(ctx, assets); err != nil {
		return err
	}
	fmt.Printf("%d nodes x %d GPUs, %d gangs x %d pods x 1 GPU, %d of them a pod short; %d rounds, %s %s/%s, %d CPUs\n",
		o.nodes, o.gpus, o.gangs, o.members, o.absent, o.rounds, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	for round := range o.rounds {
		for i := range b.contenders {
			c := b.contenders[(i+round)%len(b.contenders)]
			if err := b.measure(ctx, c); err != nil {
				return fmt.Errorf("%s, round %d: %w\n%s", c.name, round+1, err, b.log(c))
			}
		}
	}
	return b.report()
}

// contender is one scheduler.
type contender struct {
	name      string
	scheduler string // spec.schedulerName
	native    bool   // its gangs are PodGroups
	command   []string
}

type bench struct {
	options
	plane      *plane.Plane
	client     kubernetes.Interface
	dir        string
	contenders []contender
	took       map[string][]sample
	serial     int
}

// prepare makes the nodes and finds the schedulers.
func (b *bench) prepare(ctx context.Context, assets string) error {
	if err := cluster.MakeNodes(ctx, b.client, cluster.Nodes{Count: b.nodes, GPUs: b.gpus, Rack: 16}); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	kubeconfig := b.plane.Kubeconfig(plane.Admin)
	all := []contender{{name: "floor", scheduler: "floor", command: []string{self, "-as-floor=" + kubeconfig}}}
	if c, ok, err := b.native(assets, kubeconfig); err != nil {
		return err
	} else if ok {
		all = append(all, c)
	}
	program := filepath.Join(b.dir, "lockstep-scheduler")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/lockstep-gpu/lockstep/integrations/kubernetes/standalone/lockstep-scheduler")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building the scheduler: %w", err)
	}
	all = append(all, contender{name: "standalone", scheduler: "lockstep-scheduler", command: []string{program, "-kubeconfig=" + kubeconfig, "-leader-elect=false", "-listen=", "-log-level=warn", "-topology=rack=" + cluster.RackLabel}})
	last := &all[len(all)-1]
	last.command = append(last.command, strings.Fields(b.flags)...)
	if c, ok, err := b.withPlugin(kubeconfig); err != nil {
		return err
	} else if ok {
		all = append(all, c)
	}
	for _, c := range all {
		if b.kinds == "" || slices.Contains(strings.Split(b.kinds, ","), c.name) {
			b.contenders = append(b.contenders, c)
		}
	}
	if len(b.contenders) == 0 {
		return fmt.Errorf("no such scheduler: %q", b.kinds)
	}
	return nil
}

func (b *bench) native(assets, kubeconfig string) (contender, bool, error) {
	program, err := filepath.Abs(filepath.Join(assets, "kube-scheduler"))
	if err != nil {
		return contender{}, false, err
	}
	if _, err := os.Stat(program); err != nil {
		fmt.Printf("native is left out: %v\n", err)
		return contender{}, false, nil
	}
	config := filepath.Join(b.dir, "native.yaml")
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" +
		"leaderElection: {leaderElect: false}\n" +
		"clientConnection: {kubeconfig: " + kubeconfig + ", qps: 5000, burst: 5000, contentType: application/vnd.kubernetes.protobuf}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return contender{}, false, err
	}
	return contender{
		name: "native", scheduler: "default-scheduler", native: true,
		command: []string{program, "--config=" + config, "--feature-gates=GenericWorkload=true", "--secure-port=0"},
	}, true, nil
}

// pluginConfig is that of the plugin where none is given.
const pluginConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: KUBECONFIG, qps: 5000, burst: 5000, contentType: application/vnd.kubernetes.protobuf}
profiles:
- schedulerName: lockstep-scheduler
  plugins:
    multiPoint:
      enabled: [{name: Lockstep}]
      disabled: [{name: DefaultPreemption}, {name: DefaultBinder}]
    preFilter: {enabled: [{name: Lockstep}]}
    postFilter: {enabled: [{name: Lockstep}]}
  pluginConfig:
  - name: Lockstep
    args:
      view: {keys: [{label: ` + cluster.RackLabel + `}]}
`

// withPlugin returns the scheduler with the plugin, with its configuration.
func (b *bench) withPlugin(kubeconfig string) (contender, bool, error) {
	if b.plugin == "" {
		return contender{}, false, nil
	}
	program, err := filepath.Abs(b.plugin)
	if err != nil {
		return contender{}, false, err
	}
	text := []byte(pluginConfig)
	if b.pluginConfig != "" {
		if text, err = os.ReadFile(b.pluginConfig); err != nil {
			return contender{}, false, fmt.Errorf("-plugin-config: %w", err)
		}
	}
	config := filepath.Join(b.dir, "plugin.yaml")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(string(text), "KUBECONFIG", kubeconfig)), 0o600); err != nil {
		return contender{}, false, err
	}
	return contender{
		name: "plugin", scheduler: "lockstep-scheduler",
		command: []string{program, "--config=" + config, "--secure-port=0"},
	}, true, nil
}

// backlog returns the gangs of one round.
func (b *bench) backlog(c contender, namespace string) []cluster.Gang {
	out := make([]cluster.Gang, b.gangs)
	for i := range out {
		out[i] = cluster.Gang{Namespace: namespace, Name: fmt.Sprintf("g%04d", i), Scheduler: c.scheduler, Members: b.members, GPUs: 1, Native: c.native}
		if b.absent > 0 && i%(b.gangs/b.absent) == b.gangs/b.absent/2 && i/(b.gangs/b.absent) < b.absent {
			out[i].Absent = 1
		}
	}
	return out
}

func (b *bench) namespace(ctx context.Context, name string) error {
	_, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}
