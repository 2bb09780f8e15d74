package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// judgedSeed is the seed of the first judged order under -seed 1. The published
// runs have ten orders; ours are their own, made the same way.
const judgedSeed = 42

// names are the lists, the one that the published comparison rests on first.
var names = []string{"default", "cpu100", "multigpu20", "gpushare100", "gpuspec33"}

func main() {
	// One core: decisions are timed.
	runtime.GOMAXPROCS(1)
	p := &program{orders: 10}
	only := strings.Join(names, ",")
	b, err := harness.New("openb", os.Args[1:], os.Stdout, func(f *flag.FlagSet) {
		f.StringVar(&p.dir, "traces", "", "`directory` of the trace; empty: ../shared/traces/openb beside the repository")
		f.StringVar(&only, "lists", only, "task lists to run, joined by commas")
		f.IntVar(&p.orders, "orders", p.orders, "`number` of arrival orders; 1 under -quick")
		f.StringVar(&p.write, "write", "", "`directory` to write arrivals and the library's placements to, for a judge; empty: none")
	})
	if err != nil {
		os.Exit(harness.ExitCode(err))
	}
	p.Bench = b
	p.lists = strings.Split(only, ",")
	if i := slices.IndexFunc(p.lists, func(n string) bool { return !slices.Contains(names, n) }); i >= 0 {
		fmt.Fprintf(os.Stderr, "openb: -lists: no list %q\n", p.lists[i])
		os.Exit(2)
	}
	if p.orders < 1 || p.orders > 1000 {
		fmt.Fprintf(os.Stderr, "openb: -orders %d: want 1 to 1000\n", p.orders)
		os.Exit(2)
	}
	if b.Quick {
		p.orders = 1
	}
	dir, ok := p.find()
	if !ok {
		p.Note("skipped, nothing was measured: the trace openb is not at ../shared/traces/openb beside the repository; give its directory with -traces")
		return
	}
	if err := p.run(dir); err != nil {
		fmt.Fprintln(os.Stderr, "openb:", err)
		os.Exit(1)
	}
	os.Exit(b.Close())
}

// program is one run of all lists.
type program struct {
	*harness.Bench
	dir    string
	lists  []string
	orders int
	write  string
}

// find returns where the trace lies: as the flag says, else beside the repository,
// seen from its root, from this module or from this package.
func (p *program) find() (string, bool) {
	if p.dir != "" {
		return p.dir, true
	}
	return findTraces()
}

func findTraces() (string, bool) {
	for _, up := range []string{"..", "../..", "../../.."} {
		dir := filepath.Join(filepath.FromSlash(up), "shared", "traces", "openb")
		if _, err := os.Stat(filepath.Join(dir, "node_list_gpu.csv.gz")); err == nil {
			return dir, true
		}
	}
	return "", false
}

func (p *program) run(dir string) error {
	t, err := readTrace(dir)
	if err != nil {
		return err
	}
	peers, err := readPublished(dir)
	if err != nil {
		return err
	}
	p.Input("data", "openb, a production cluster of 2023, Apache-2.0, of github.com/hkust-adsl/kubernetes-scheduler-simulator 8f3d641 (data/csv); published figures: its results, 10 orders each")
	p.Input("cluster", fmt.Sprintf("%d nodes, %d devices", len(t.nodes), t.capacity/milli))
	p.Input("arrivals", fmt.Sprintf("shuffled, to 130%% of all devices, %d orders, seeds %d to %d; nothing leaves, what does not fit is refused", p.orders, p.first(), int(p.first())+p.orders-1))
	for _, name := range p.lists {
		l, err := readList(dir, name, t)
		if err != nil {
			return err
		}
		if err := p.list(t, l, peers); err != nil {
			return err
		}
	}
	return nil
}

// first returns the seed of the first order.
func (p *program) first() uint32 { return uint32(p.Seed) + judgedSeed - 1 }
