package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
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

func (p point) dominates(q point) bool {
	return p.attained >= q.attained && p.gpuTime <= q.gpuTime && (p.attained > q.attained || p.gpuTime < q.gpuTime)
}

func settings(quick bool) (out []setting) {
	add := func(rule string, value autoscale.Rule, knob int64) {
		out = append(out, setting{rule, fmt.Sprint(knob), value})
	}
	every := func(values ...int64) []int64 {
		if quick {
			return values[:min(len(values), 3)]
		}
		return values
	}
	for _, q := range every(800, 950, 300, 500, 100, 900, 990) {
		add("ours", autoscale.Predictive{Load: loadTime, Quantile: int(q)}, q)
	}
	for _, n := range every(70, 20, 40, 10, 15, 30) {
		add("kpa", autoscale.KPA{Target: n * 1000}, n)
	}
	for _, n := range every(2, 20, 40, 10, 15, 30) {
		add("queue-length", autoscale.QueueLength{Target: n * 1000}, n)
	}
	for _, n := range every(2000, 3000, 1000, 1500, 2500) {
		add("head-room", autoscale.HeadRoom{PerReplica: n, Growth: 2000, Load: loadTime}, n)
	}
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
	// What a replica can do, from its cost: weights are read in every step, a prompt takes arithmetic.
	tokens := autoscale.Tokens{
		Step: cost.Overhead + cost.Weights, Sequence: cost.KV * 1500 / 1_000_000, PromptToken: cost.Token / 1_000_000,
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
			return []stream{{"made-up", q}}, err
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
	engine, tokens, err := model(o)
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
	half := q[len(q)-1].At / 2
	r, err := serve.Run(serve.Config{
		Engine: engine, GPUs: gpus, Servers: servers, Initial: 8, Load: loadTime, Cuts: []time.Duration{half},
	}, q, scaler)
	if err != nil {
		return point{}, err
	}
	return point{s, r.Parts[1].Attainment(), r.Parts[1].GPUTime}, nil
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

func scaling(b *harness.Bench, folder string) error {
	all, err := streams(b, folder)
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, o := range objectives {
			points, err := plane(o, settings(b.Quick), s.requests)
			if err != nil {
				return err
			}
			judge(b, s.name+"/"+o.name, points)
		}
	}
	return nil
}

// judge prints a plane and its verdict.
func judge(b *harness.Bench, name string, points []point) {
	b.Printf("\n%s\n", name)
	table := harness.Table{Head: []string{"rule", "knob", "attained", "GPU-s", "dominated by"}}
	lost, left, beaten := 0, map[string]bool{}, map[string]bool{}
	for _, p := range points {
		by := ""
		for _, q := range points {
			if q.dominates(p) && (p.rule == "ours") != (q.rule == "ours") {
				by = q.rule + " " + q.knob
				break
			}
		}
		switch {
		case p.rule == "ours" && by != "":
			lost++
		case p.rule != "ours" && by == "":
			left[p.rule] = true
		case p.rule != "ours":
			beaten[p.rule] = true
		}
		table.Add(p.rule, p.knob, fmt.Sprintf("%.4f", p.attained), fmt.Sprintf("%.0f", p.gpuTime.Seconds()), by)
	}
	b.Table(&table)
	rules := 0
	for rule := range beaten { // counted only
		if !left[rule] {
			rules++
		}
	}
	b.Target(harness.Target{Name: name + ": settings of ours that are dominated", Value: float64(lost), Unit: "settings", Limit: 0})
	b.Target(harness.Target{Name: name + ": rules that ours dominates", Value: float64(rules), Unit: "rules", Limit: 1, AtLeast: true})
}
