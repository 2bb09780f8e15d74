package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/serving/autoscale"
	"github.com/lockstep-gpu/lockstep/serving/llm"
	"github.com/lockstep-gpu/lockstep/sim/serve"
)

// grain is the length of a slot of a plan.
const grain = 2 * time.Second

// foresight is a Scaler that knows all that comes: it has a plan of how many
// replicas are ready in every slot, and starts each a load time ahead.
type foresight struct {
	plan  []int
	first time.Time
}

// Observe looks at nothing.
func (f *foresight) Observe(now time.Time, _ autoscale.Sample) error {
	if f.first.IsZero() {
		f.first = now
	}
	return nil
}

// Decide asks for what the plan has at any time until a replica that is started now is ready.
func (f *foresight) Decide(now time.Time, fleet autoscale.Fleet) (d autoscale.Decision, err error) {
	at := min(int(now.Sub(f.first)/grain), len(f.plan)-1)
	until := min(at+int(loadTime/grain)+1, len(f.plan)-1)
	d.Want = max(slices.Max(f.plan[at:until+1]), 1) // whatever comes is over in the end
	have := len(fleet.Starting) + len(fleet.Ready)
	d.Add = max(d.Want-have, 0)
	for _, part := range [][]autoscale.Replica{fleet.Starting, fleet.Ready} {
		part = slices.SortedFunc(slices.Values(part), autoscale.CompareVictims)
		for _, r := range part[:min(max(have-d.Want-len(d.Remove), 0), len(part))] {
			d.Remove = append(d.Remove, r.ID)
		}
	}
	return d, nil
}

// slot is what comes in a slot.
type slot struct {
	requests, load float64 // load in replicas
}

func slots(tokens autoscale.Tokens, q []serve.Request) []slot {
	traffic := make([]autoscale.Traffic, q[len(q)-1].At/grain+1)
	for _, r := range q {
		t := &traffic[r.At/grain]
		t.Requests, t.Prompt, t.Output = t.Requests+1, t.Prompt+int64(r.Prompt), t.Output+int64(r.Output)
	}
	out := make([]slot, len(traffic))
	for i, t := range traffic {
		if t.Requests > 0 {
			out[i] = slot{float64(t.Requests), float64(tokens.Busy(t)) / float64(grain)}
		}
	}
	return out
}

// late returns how many requests of each slot wait for longer than wait, where so
// much capacity serves them in order of arrival.
func late(all []slot, capacity float64, wait time.Duration) []float64 {
	most, backlog := float64(wait)/float64(grain), 0.0
	out := make([]float64, len(all))
	for i, s := range all {
		first, last := backlog/capacity, max((backlog+s.load)/capacity-1, 0) // slots that the first and the last wait
		switch over := max(first, last) - most; {
		case over <= 0:
		case min(first, last) >= most:
			out[i] = s.requests
		default:
			out[i] = s.requests * over / math.Abs(last-first)
		}
		backlog = max(backlog+s.load-capacity, 0)
	}
	return out
}

// plan returns how many replicas to have ready in every slot, so that GPU time, and
// price for each request that is late, are least in all. Each replica has the part
// use of its capacity; to have one more takes it a load time longer.
func plan(all []slot, wait time.Duration, price, use float64) []int {
	missed := make([][]float64, servers+1)
	for n := range missed {
		missed[n] = late(all, max(float64(n), 1e-3)*use, wait)
	}
	start := float64(loadTime / grain)
	cost := make([]float64, servers+1) // least up to here, by how many are ready
	for n := range cost {
		cost[n] = max(float64(n-initial), 0) * start
	}
	before := make([][]int, len(all))
	for i := range all {
		from := make([]int, servers+1)
		next := make([]float64, servers+1)
		for n, least := servers, servers; n >= 0; n-- { // from as many or more
			if cost[n] <= cost[least] {
				least = n
			}
			from[n], next[n] = least, cost[least]
		}
		for n, least := 1, 0; n <= servers; n++ { // from fewer
			if cost[n-1]-float64(n-1)*start < cost[least]-float64(least)*start {
				least = n - 1
			}
			if c := cost[least] + float64(n-least)*start; c < next[n] {
				from[n], next[n] = least, c
			}
		}
		for n := range next {
			next[n] += float64(n) + price*missed[n][i]/grain.Seconds()/gpus
		}
		before[i], cost = from, next
	}
	n := 0
	for m := range cost {
		if cost[m] < cost[n] {
			n = m
		}
	}
	out := make([]int, len(all))
	for i := len(all) - 1; i >= 0; i-- {
		out[i], n = n, before[i][n]
	}
	return out
}

// foreseen plays plans at several prices. None is a bound; one who knows what comes can have each.
func foreseen(o objective, q []serve.Request, quick bool) ([]point, error) {
	_, tokens, err := model(o)
	if err != nil {
		return nil, err
	}
	all := slots(tokens, q)
	var out []point
	for _, use := range []float64{0.85, 0.7, 0.55} {
		for _, price := range []float64{20, 5} { // GPU seconds for a request
			if quick && len(out) > 0 {
				return out, nil
			}
			p, err := playBy(o, &foresight{plan: plan(all, o.ttft, price, use)}, q)
			if err != nil {
				return nil, err
			}
			p.setting = setting{rule: "foresight", knob: fmt.Sprintf("%g of capacity, %g s for a request", use, price)}
			out = append(out, p)
		}
	}
	return out, nil
}

// floor returns a GPU time below which no rule attains that share of the second
// half: that of the arithmetic of so many of its shortest prompts, as far as they
// are to be through before the end.
func floor(o objective, q []serve.Request, share float64) (time.Duration, error) {
	engine, _, err := model(o)
	if err != nil {
		return 0, err
	}
	end := q[len(q)-1].At
	var prompts []int
	all := 0
	for _, r := range q {
		if r.At < end/2 {
			continue
		}
		all++
		if r.At <= end-o.ttft {
			prompts = append(prompts, r.Prompt)
		}
	}
	slices.Sort(prompts)
	beyond := all - len(prompts) // those that may be through after the end
	tokens := 0
	for _, n := range prompts[:min(max(int(share*float64(all))-beyond, 0), len(prompts))] {
		tokens += n
	}
	return engine.Cost.Iteration(llm.Load{Prefill: tokens}) * gpus, nil
}

// distance prints how far the default of ours is from what foresight makes of the
// plane, and from what nobody can.
func distance(b *harness.Bench, name string, o objective, q []serve.Request, points []point) error {
	at := points[slices.IndexFunc(points, func(p point) bool { return p.rule == ours })] // the first is the default
	foreseen, err := foreseen(o, q, b.Quick)
	if err != nil {
		return err
	}
	table := harness.Table{Head: []string{"foresight", "attained", "GPU-s"}}
	best := time.Duration(0)
	for _, p := range foreseen {
		table.Add(p.knob, fmt.Sprintf("%.4f", p.attained), fmt.Sprintf("%.0f", p.gpuTime.Seconds()))
		if p.attained >= at.attained && (best == 0 || p.gpuTime < best) {
			best = p.gpuTime
		}
	}
	b.Table(&table)
	least, err := floor(o, q, at.attained)
	if err != nil {
		return err
	}
	b.Result(name+": GPU time of the default over what prompts alone take", at.gpuTime.Seconds()/least.Seconds(), "x")
	if best > 0 {
		b.Result(name+": the same over the least with foresight that attains as much", at.gpuTime.Seconds()/best.Seconds(), "x")
	} else {
		b.Note(name + ": no plan of foresight attains what the default does")
	}
	return nil
}
