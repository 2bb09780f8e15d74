package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/policy"
	"github.com/lockstep-gpu/lockstep/serving/autoscale"
	"github.com/lockstep-gpu/lockstep/serving/llm"
	"github.com/lockstep-gpu/lockstep/sim/serve"
)

const (
	loadTime = 40 * time.Second
	servers  = 96
	gpus     = 2
	initial  = 8            // replicas
	ours     = "high-water" // the rule that is judged
	second   = "forecast"   // another of ours
	madeUp   = "made-up"    // the load where there is no trace
)

// objective is what requests are to keep, and the iterations that it allows.
type objective struct {
	name       string
	ttft, tpot time.Duration
	budget     int // tokens of an iteration
}

var objectives = []objective{
	{"tight", time.Second, 50 * time.Millisecond, 320},
	{"medium", 2 * time.Second, 80 * time.Millisecond, 512},
	{"loose", 5 * time.Second, 150 * time.Millisecond, 1024},
}

// setting is a rule with its knob; the first of a rule has its published default.
type setting struct {
	rule, knob string
	value      autoscale.Rule
}

// point is where a setting lies on the plane.
type point struct {
	setting
	attained float64
	gpuTime  time.Duration
}

// published says whether p is of a rule as it comes out of the box.
func (s setting) published() bool {
	return s.rule == "kpa" && s.knob == "70" || s.rule == "queue-length" && s.knob == "2"
}

func (p point) dominates(q point) bool {
	return p.attained >= q.attained && p.gpuTime <= q.gpuTime && (p.attained > q.attained || p.gpuTime < q.gpuTime)
}

// settings are those of all rules, of which quick plays few. The first of a rule is its default; that of KPA and of Ray
// Serve is the published one. The knob of ours goes in steps of a twentieth of a decade.
func settings(o objective, quick bool) (out []setting) {
	add := func(rule string, few int, value func(n int64) autoscale.Rule, knobs ...int64) {
		if quick {
			knobs = knobs[:few]
		}
		for _, n := range knobs {
			out = append(out, setting{rule, fmt.Sprint(n), value(n)})
		}
	}
	add(ours, 4, func(n int64) autoscale.Rule {
		return autoscale.HighWater{Load: loadTime, Use: int(n), Wait: o.ttft}
	}, 630, 800, 1250, 2000, 400, 450, 500, 560, 710, 900, 1000, 1120, 1400, 1600, 1800, 2240, 2500)
	add("kpa", 2, func(n int64) autoscale.Rule {
		return autoscale.KPA{Target: n * 1000}
	}, 70, 20, 10, 15, 30, 40, 50, 100)
	add("queue-length", 2, func(n int64) autoscale.Rule {
		return autoscale.QueueLength{Target: n * 1000}
	}, 2, 20, 5, 10, 15, 30, 40, 60)
	add("queue-length, 60 s", 1, func(n int64) autoscale.Rule {
		return autoscale.QueueLength{Target: n * 1000, Down: time.Minute}
	}, 20, 2, 5, 10, 15, 30, 40, 60)
	add("head-room", 2, func(n int64) autoscale.Rule {
		return autoscale.HeadRoom{PerReplica: n, Growth: 2000, Load: loadTime}
	}, 3000, 2000, 1000, 1500, 2500, 3500, 4000, 5000)
	add(second, 1, func(n int64) autoscale.Rule {
		return autoscale.Predictive{Load: loadTime, Quantile: int(n)}
	}, 800, 500, 950)
	return out
}

// model is 70 billion parameters (Llama 2, 2023) on two devices of 141 GB.
func model(o objective) (llm.Config, autoscale.Tokens, error) {
	shape := perfmodel.Model{Layers: 80, Hidden: 8192, Heads: 64, KVHeads: 8, FFN: 28672, Vocab: 32000, Gated: true}
	cost, err := llm.NewRoofline(shape, gpus, 2, perfmodel.Rate{Linear: 500e12, Quadratic: 300e12}, 3_800_000_000_000)
	if err != nil {
		return llm.Config{}, autoscale.Tokens{}, err
	}
	cost.Overhead = 5 * time.Millisecond
	engine := llm.Config{
		Blocks: 22_000, MaxSequences: 256, TokenBudget: o.budget, DisableCache: true, Cost: cost,
		Classes: []llm.Class{{TTFT: o.ttft, TPOT: o.tpot}},
	}
	// What a replica can do, from its cost: with its steps full of prompts, arithmetic hides the reading of weights.
	tokens := autoscale.Tokens{
		Step: cost.Overhead, Sequence: cost.Token / 1_000_000, PromptToken: cost.Token / 1_000_000,
		PerToken: o.tpot, Cache: 22_000 * 16,
	}
	return engine, tokens, nil
}

// stream is a load.
type stream struct {
	name     string
	requests []serve.Request
}

func streams(b *harness.Bench, folder string) ([]stream, error) {
	var out []stream
	for _, s := range []struct {
		name   string
		copies int
	}{{"conv", 10}, {"code", 16}} {
		f, err := os.Open(filepath.Join(folder, "azure-llm-2023", "AzureLLMInferenceTrace_"+s.name+".csv"))
		if errors.Is(err, fs.ErrNotExist) {
			b.Note("without the Azure LLM trace a made-up swelling load is replayed")
			q, err := serve.Day{Seed: b.Seed, Span: time.Hour, Period: 30 * time.Minute, Peak: 40}.Requests()
			return []stream{{madeUp, q}}, err
		}
		if err != nil {
			return nil, err
		}
		q, err := serve.ReadAzure(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if b.Quick {
			s.copies /= 4
		}
		out = append(out, stream{s.name, serve.Superpose(q, s.copies, 200*time.Millisecond)})
	}
	return out, nil
}

// play replays a stream by a setting; the second half counts.
func play(o objective, s setting, q []serve.Request) (point, error) {
	_, tokens, err := model(o)
	if err != nil {
		return point{}, err
	}
	scaler, err := autoscale.New(autoscale.Config{
		Rule: s.value, Demand: autoscale.Demand{Capacity: tokens, Slot: 30 * time.Second},
		Steady: policy.Steady{Bounded: policy.Bounded{Min: 1, Max: servers}},
	})
	if err != nil {
		return point{}, err
	}
	p, err := playBy(o, scaler, q)
	p.setting = s
	return p, err
}

// playBy replays a stream by any scaler.
func playBy(o objective, by serve.Scaler, q []serve.Request) (point, error) {
	engine, _, err := model(o)
	if err != nil {
		return point{}, err
	}
	half := q[len(q)-1].At / 2
	r, err := serve.Run(serve.Config{
		Engine: engine, GPUs: gpus, Servers: servers, Initial: initial, Load: loadTime, Cuts: []time.Duration{half},
	}, q, by)
	if err != nil {
		return point{}, err
	}
	return point{attained: r.Parts[1].Attainment(), gpuTime: r.Parts[1].GPUTime}, nil
}

// plane plays all settings, as many at once as there are processors.
func plane(o objective, all []setting, q []serve.Request) ([]point, error) {
	points, errs := make([]point, len(all)), make([]error, len(all))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, s := range all {
		slots <- struct{}{}
		wg.Go(func() {
			points[i], errs[i] = play(o, s, q)
			<-slots
		})
	}
	wg.Wait()
	return points, errors.Join(errs...)
}

func scaling(b *harness.Bench, folder, loads string) error {
	all, err := streams(b, folder)
	if err != nil {
		return err
	}
	for _, s := range all {
		if !named(loads, s.name) && s.name != madeUp {
			continue
		}
		for _, o := range objectives {
			points, err := plane(o, settings(o, b.Quick), s.requests)
			if err != nil {
				return err
			}
			judge(b, s.name+"/"+o.name, points)
			if err := distance(b, s.name+"/"+o.name, o, s.requests, points); err != nil {
				return err
			}
		}
	}
	return nil
}

// judge prints a plane and its verdict: high-water against what others published. The other rule of ours is shown only.
func judge(b *harness.Bench, name string, points []point) {
	b.Printf("\n%s\n", name)
	table := harness.Table{Head: []string{"rule", "knob", "attained", "GPU-s", "dominated by"}}
	lost, left, beaten := 0, map[string]bool{}, map[string]bool{}
	for _, p := range points {
		by := ""
		for _, q := range points {
			if q.dominates(p) && (p.rule == ours) != (q.rule == ours) && (p.rule != ours || q.rule != second) {
				by = q.rule + " " + q.knob
				break
			}
		}
		switch {
		case p.rule == second:
		case p.rule == ours && by != "":
			lost++
		case p.rule != ours && by == "":
			left[p.rule] = true
		case p.rule != ours:
			beaten[p.rule] = true
		}
		table.Add(p.rule, p.knob, fmt.Sprintf("%.4f", p.attained), fmt.Sprintf("%.0f", p.gpuTime.Seconds()), by)
	}
	b.Table(&table)
	published := 0
	for _, p := range points {
		if p.published() && slices.ContainsFunc(points, func(q point) bool { return q.rule == ours && q.dominates(p) }) {
			published++
		}
	}
	b.Result(name+": of two published defaults, those that ours dominates", float64(published), "rules")
	rules := 0
	for rule := range beaten { // counted only
		if !left[rule] {
			rules++
		}
	}
	b.Target(harness.Target{Name: name + ": settings of ours that are dominated", Value: float64(lost), Unit: "settings", Limit: 0})
	b.Target(harness.Target{Name: name + ": rules that ours dominates", Value: float64(rules), Unit: "rules", Limit: 1, AtLeast: true})
}
