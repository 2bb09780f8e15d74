package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy"
	"github.com/lockstep-gpu/lockstep/serving/autoscale"
	"github.com/lockstep-gpu/lockstep/serving/llm"
	"github.com/lockstep-gpu/lockstep/sim/serve"
)

const load = 40 * time.Second

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mixed:", err)
		os.Exit(1)
	}
}

// run plays the day with loans and without, and prints both.
func run(args []string, out io.Writer) error {
	f := flag.NewFlagSet("mixed", flag.ContinueOnError)
	f.SetOutput(out)
	servers := f.Int("servers", 16, "how many `servers` of one GPU the service owns, 4 to 64")
	hours := f.Int("hours", 6, "in how many `hours` the day is played, 1 to 48")
	file := f.String("out", "", "`file` for the picture (SVG); empty means none")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *servers < 4 || *servers > 64 || *hours < 1 || *hours > 48 {
		return fmt.Errorf("-servers %d -hours %d: want 4 to 64 and 1 to 48", *servers, *hours)
	}
	span := time.Duration(*hours) * time.Hour
	requests, err := serve.Day{Seed: 1, Span: span, Period: span, Peak: float64(*servers) * 0.8}.Requests()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%-8s %10s %10s %12s %12s %8s %8s\n", "loans", "requests", "attained", "inference", "training", "recalls", "in time")
	for _, lends := range []bool{false, true} {
		r, err := play(requests, *servers, lends)
		if err != nil {
			return err
		}
		row(out, r, lends, span)
		if lends && *file != "" {
			return os.WriteFile(*file, []byte(picture(r.Timeline, *servers)), 0o644)
		}
	}
	return nil
}

func row(out io.Writer, r *serve.Result, lends bool, end time.Duration) {
	p, of, met := r.Parts[0], 0, 0
	for _, c := range r.Recalls {
		if c.Deadline < end-time.Minute {
			of++
			if c.Met() {
				met++
			}
		}
	}
	fmt.Fprintf(out, "%-8t %10d %9.3f%% %8.1f GPUh %8.1f GPUh %8d %8d\n",
		lends, p.Requests, 100*p.Attainment(), p.GPUTime.Hours(), p.Trained.Hours(), of, met)
}

func play(requests []serve.Request, servers int, lends bool) (*serve.Result, error) {
	scaler, err := autoscale.New(autoscale.Config{
		Rule: autoscale.Predictive{Load: load, Quantile: 950},
		Demand: autoscale.Demand{Capacity: autoscale.Tokens{
			Step: 20 * time.Millisecond, Sequence: 150 * time.Microsecond, PromptToken: 150 * time.Microsecond, PerToken: 80 * time.Millisecond,
		}},
		Loan:   autoscale.LoanConfig{PerReplica: lockstep.WholeGPU, Grace: time.Minute, Cleanup: 10 * time.Second, Load: load},
		Steady: policy.Steady{Bounded: policy.Bounded{Min: 2, Max: servers}},
	})
	if err != nil {
		return nil, err
	}
	return serve.Run(serve.Config{
		Engine: llm.Config{
			Blocks: 20_000, TokenBudget: 512, DisableCache: true,
			Classes: []llm.Class{{TTFT: 2 * time.Second, TPOT: 80 * time.Millisecond}},
			Cost:    llm.Roofline{Overhead: 5 * time.Millisecond, Weights: 15 * time.Millisecond, Token: 130 * time.Second, KV: 60 * time.Millisecond},
		},
		Servers: servers, Initial: 2, Load: load, Interval: 5 * time.Second,
		Loans: serve.Loans{Enabled: lends, Jobs: []serve.Job{
			{ID: "elastic", Min: 1, Max: servers, Work: 10_000 * time.Hour, Save: 45 * time.Second, Restart: 30 * time.Second},
			{ID: "rigid", Min: 2, Work: 10_000 * time.Hour, Save: time.Minute, Restart: time.Minute},
		}},
	}, requests, scaler)
}

// picture draws who has the servers over the day: replicas from below, training on top of the rest.
func picture(points []serve.Point, servers int) string {
	const width, height = 960, 320
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d"><rect width="%d" height="%d" fill="#eee"/>`, width, height+24, width, height)
	for x := range width {
		p := points[x*len(points)/width]
		up := (p.Ready + p.Starting + p.Draining) * height / servers
		train := p.Training * height / servers
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="1" height="%d" fill="#36c"/><rect x="%d" y="0" width="1" height="%d" fill="#e80"/>`, x, height-up, up, x, train)
	}
	fmt.Fprintf(&b, `<text x="4" y="%d" font-size="13">blue: replicas; orange: training on lent servers; grey: idle</text></svg>`+"\n", height+17)
	return b.String()
}
