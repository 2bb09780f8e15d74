package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// program is one run.
type program struct {
	*harness.Bench
	mib, cores, rounds int
	dir, only          string
	bytes              int64 // of one epoch
	work               string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "-child" {
		if err := child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "imagestore:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(start(os.Args[1:]))
}

func start(args []string) int {
	p := &program{}
	var err error
	p.Bench, err = harness.New("imagestore", args, os.Stdout, func(f *flag.FlagSet) {
		f.IntVar(&p.mib, "mib", 0, "size of an `epoch` in MiB; 0 means 128, or 32 with -quick")
		f.IntVar(&p.cores, "cores", 0, "cores that every tool may use; 0 means 2, or all if there are fewer")
		f.IntVar(&p.rounds, "rounds", 0, "rounds; 0 means 3")
		f.StringVar(&p.dir, "dir", "", "`folder` to work in; empty means /dev/shm, or the one for temporary files")
		f.StringVar(&p.only, "only", "", "measure only tools whose name has this `text`, and ours")
	})
	if err != nil {
		return harness.ExitCode(err)
	}
	p.defaults()
	p.work, err = os.MkdirTemp(p.dir, "imagestore-")
	if err == nil {
		err = p.measure()
		if e := os.RemoveAll(p.work); err == nil {
			err = e
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "imagestore:", err)
		return 1
	}
	return p.Close()
}

func (p *program) defaults() {
	def := func(v *int, n int) {
		if *v <= 0 {
			*v = n
		}
	}
	if p.Quick {
		def(&p.mib, 32)
	}
	def(&p.mib, 128)
	def(&p.cores, min(2, runtime.NumCPU()))
	def(&p.rounds, 3)
	if p.dir == "" {
		p.dir = os.TempDir()
		var st syscall.Statfs_t
		if err := syscall.Statfs("/dev/shm", &st); err == nil && int64(st.Bavail)*int64(st.Bsize) > int64(p.mib)<<20*8 {
			p.dir = "/dev/shm"
		}
	}
}

// usage is what one command took.
type usage struct {
	wall, cpu time.Duration
	memory    int64 // bytes of the largest resident set
}

// result is what one tool did in all rounds.
type result struct {
	tool
	save    [epoch][]usage
	restore []usage
	stored  [epoch]int64
}

func (p *program) measure() error {
	src := filepath.Join(p.work, "src")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if out, err := exec.Command(self, "-child", "synth", src, strconv.Itoa(p.mib<<20), strconv.FormatUint(p.Seed, 10)).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	size, err := folderSize(filepath.Join(src, "epoch1"))
	if err != nil {
		return err
	}
	p.bytes = size
	p.Input("image", fmt.Sprintf("%d ranks, %.0f MiB an epoch: 6/10 replicated bf16 (one copy 4 KiB further on), 3/10 own f32, 1/10 zeros; epoch 2: 1 run of 64 KiB in 20 is new", ranks, mib(size)))
	p.Input("cores", strconv.Itoa(p.cores))
	p.Input("folder", p.work)
	p.Input("rounds", strconv.Itoa(p.rounds))
	var list []*result
	for _, t := range tools(self) {
		switch {
		case !t.ours && (p.Quick && p.only == "" || !strings.Contains(t.name, p.only)):
			continue
		case t.missing():
			p.Note(t.name + " is left out: " + t.program + " is not installed (apt-get install zstd restic borgbackup casync)")
			continue
		}
		list = append(list, &result{tool: t})
	}
	for round := range p.rounds {
		for _, r := range list {
			if err := p.round(r, src, round == 0); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	p.report(list)
	p.judge(list)
	return nil
}

// round saves both epochs and restores the second one. In the first round what
// was restored is compared.
func (p *program) round(r *result, src string, first bool) error {
	store, dst := filepath.Join(p.work, "store"), filepath.Join(p.work, "dst")
	defer os.RemoveAll(store)
	defer os.RemoveAll(dst)
	if r.init != nil {
		if _, err := p.run(r, p.work, r.init(store)); err != nil {
			return err
		}
	}
	for e := range epoch {
		from := filepath.Join(src, fmt.Sprintf("epoch%d", e+1))
		u, err := p.run(r, from, r.tool.save(store, from, e+1))
		if err != nil {
			return err
		}
		r.save[e] = append(r.save[e], u)
		if r.stored[e], err = folderSize(store); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dst, 0o700); err != nil {
		return err
	}
	u, err := p.run(r, dst, r.tool.restore(store, dst, epoch))
	if err != nil {
		return err
	}
	r.restore = append(r.restore, u)
	if !first {
		return nil
	}
	// By diff, which reads files a piece at a time: this process stays small.
	want := filepath.Join(src, fmt.Sprintf("epoch%d", epoch))
	if out, err := exec.Command("diff", "-rq", want, dst).CombinedOutput(); err != nil {
		return fmt.Errorf("was not restored as it was: %w: %s", err, out)
	}
	return nil
}

// run runs a command on the cores of this measurement.
func (p *program) run(r *result, dir string, args []string) (usage, error) {
	if _, err := exec.LookPath("taskset"); err == nil {
		args = append([]string{"taskset", "-c", "0-" + strconv.Itoa(p.cores-1)}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(p.cores), "HOME="+p.work)
	cmd.Env = append(cmd.Env, r.env...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	wall := time.Since(began)
	if err != nil {
		return usage{}, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	u := usage{wall: wall, cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.memory = int64(ru.Maxrss) << 10
	}
	return u, nil
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// median returns the middle of what f reads from a list.
func median(list []usage, f func(usage) float64) float64 {
	values := make([]float64, len(list))
	for i, u := range list {
		values[i] = f(u)
	}
	return harness.Median(values)
}

func wall(u usage) float64   { return u.wall.Seconds() }
func cpu(u usage) float64    { return u.cpu.Seconds() }
func memory(u usage) float64 { return mib(u.memory) }

// times returns the seconds of saving both epochs.
func (r *result) times(f func(usage) float64) (s float64) {
	for e := range epoch {
		s += median(r.save[e], f)
	}
	return s
}

func (p *program) report(list []*result) {
	t := &harness.Table{Head: []string{
		"tool", "save 1 MB/s/core wall", "cpu", "save 2 wall", "cpu", "restore 2 wall", "cpu", "stored 1 MiB", "stored 1+2", "memory MiB",
	}}
	for _, r := range list {
		rate := func(list []usage, f func(usage) float64, per int) string {
			return fmt.Sprintf("%.0f", float64(p.bytes)/1e6/median(list, f)/float64(per))
		}
		all := slices.Concat(r.save[0], r.save[1], r.restore)
		peak := 0.0
		for _, u := range all {
			peak = max(peak, memory(u))
		}
		t.Add(r.name, rate(r.save[0], wall, p.cores), rate(r.save[0], cpu, 1), rate(r.save[1], wall, p.cores), rate(r.save[1], cpu, 1),
			rate(r.restore, wall, p.cores), rate(r.restore, cpu, 1), fmt.Sprintf("%.1f", mib(r.stored[0])), fmt.Sprintf("%.1f", mib(r.stored[1])), fmt.Sprintf("%.0f", peak))
		name := strings.ReplaceAll(r.name, " ", "/")
		p.Result(name+"/save", r.times(wall), "s")
		p.Result(name+"/save-cpu", r.times(cpu), "s")
		p.Result(name+"/stored", mib(r.stored[epoch-1]), "MiB")
	}
	p.Table(t)
	p.Note("restic and borg encrypt and are not kept from it; lockstep default-sealed does with AES-256-GCM; the others do not")
	p.Note("cpu is MB per second of processor time; wall is MB per second and core")
}

// judge looks for a level of ours that is as good as each peer in everything.
func (p *program) judge(list []*result) {
	for _, peer := range list {
		if peer.ours {
			continue
		}
		best, worst, by := "", 0.0, [3]float64{}
		for _, r := range list {
			if !r.ours || peer.sealed && !r.sealed {
				continue
			}
			ratios := [3]float64{r.times(wall) / peer.times(wall), r.times(cpu) / peer.times(cpu), float64(r.stored[epoch-1]) / float64(peer.stored[epoch-1])}
			m := max(ratios[0], ratios[1], ratios[2])
			better := m < worst
			if m <= 1 && worst <= 1 { // of those that will do, the fastest
				better = ratios[0] < by[0]
			}
			if best == "" || better {
				best, worst, by = r.name, m, ratios
			}
		}
		p.Note(fmt.Sprintf("%s: %s takes %.2f of its wall time, %.2f of its processor time and %.2f of its bytes", peer.name, best, by[0], by[1], by[2]))
		p.Target(harness.Target{Name: strings.ReplaceAll(peer.name, " ", "/"), Value: worst, Unit: "of-the-peer", Limit: 1})
	}
}
