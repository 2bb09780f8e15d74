package main

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/sim/astraea"
	"github.com/lockstep-gpu/lockstep/sim/trace"
	"github.com/lockstep-gpu/lockstep/topology"
)

// What every run but ASTRAEA's own is charged.
const (
	save    = 5 * time.Second
	restore = 20 * time.Second
)

// input is a trace and the cluster that it runs on.
type input struct {
	name    string
	file    string
	nodes   int
	tick    time.Duration // of ASTRAEA's simulator
	term    time.Duration
	weights bool // of Philly's virtual clusters; else all are alike
	narrow  bool // leaves out jobs wider than their tenant's quota, which ASTRAEA drops
	quick   bool // is part of a quick run
	slow    bool // leaves ASTRAEA's simulator out, which goes tick by tick
}

var inputs = []input{
	{name: "sample-417", file: "astraea_sample500.csv.gz", nodes: 32, tick: 10 * time.Second, term: 30 * time.Minute, narrow: true, quick: true},
	{name: "sample-500", file: "astraea_sample500.csv.gz", nodes: 32, tick: 10 * time.Second, term: 30 * time.Minute},
	{name: "philly-3d", file: "philly_sim3d_20171011.csv.gz", nodes: 24, tick: time.Minute, term: 15 * time.Minute, weights: true},
	{name: "philly-2w", file: "philly_2w_20171016.csv.gz", nodes: 88, tick: time.Minute, term: 15 * time.Minute, weights: true, slow: true},
	{name: "itp-30d", file: "itp_m1_2021.csv.gz", nodes: 80, tick: time.Minute, term: 30 * time.Minute, slow: true},
}

// rule is one row: how a scheduler is set up.
type rule struct {
	name    string
	unknown bool // hides how long jobs run
	config  scheduler.Config
	policy  func(capacity lockstep.MilliGPU, weights map[lockstep.TenantID]int64) (scheduler.Policy, error)
	strict  bool                                       // every lease is released at its end
	guess   func(i int, d time.Duration) time.Duration // what is believed of how long jobs run; nil means the truth
}

func rules(term time.Duration) []rule {
	of := func(make func(*peer) *peer) func(lockstep.MilliGPU, map[lockstep.TenantID]int64) (scheduler.Policy, error) {
		return func(capacity lockstep.MilliGPU, weights map[lockstep.TenantID]int64) (scheduler.Policy, error) {
			return make(newPeer(float64(capacity)/1000, weights)), nil
		}
	}
	return []rule{
		{name: "fifo-easy", config: scheduler.Config{Rule: scheduler.FIFO}},
		{name: "static-quota", config: scheduler.Config{Rule: scheduler.Static}},
		{name: "drf", unknown: true, config: scheduler.Config{Term: term}, policy: of(drf)},
		{name: "kai-decayed-share", unknown: true, config: scheduler.Config{Term: term}, policy: of(kai)},
		{name: "kueue-half-life", unknown: true, config: scheduler.Config{Term: term}, policy: of(kueue)},
		{name: "themis-like", config: scheduler.Config{Term: term}, policy: of(themis)},
		{name: "ltgf", unknown: true, config: scheduler.Config{Term: term, Inside: scheduler.First}},
		{name: "ltgf-strict", unknown: true, strict: true, config: scheduler.Config{Term: term, Inside: scheduler.First}},
		{name: "ltgf-shortest", config: scheduler.Config{Term: term}},
		{name: "ltgf-floor-i", unknown: true, config: floorFew},
		{name: "ltgf-floor-ii", unknown: true, config: floorMore},
		{name: "ltgf-floor-iii", config: floorKnown},
	}
}

// The floors that the targets are about. Their constants were found by search, on the
// sample and on six shuffles of its durations; the shuffles that are printed are others.
var (
	floorFew   = scheduler.Config{Floor: 440_000, Quantum: 135 * time.Second, Term: 10 * time.Minute, Band: 15 * time.Minute, Horizon: 5 * time.Minute, Hysteresis: 150_000, Round: 2 * time.Minute}
	floorMore  = scheduler.Config{Floor: 600_000, Quantum: 150 * time.Second, Term: 8 * time.Minute, Band: 15 * time.Minute, Horizon: 10 * time.Minute, Hysteresis: 400_000}
	floorKnown = scheduler.Config{Floor: 1_000_000, Band: 2 * time.Hour, Horizon: 10 * time.Minute}
)

// outcome is a row of the table.
type outcome struct {
	mean, p99 time.Duration
	indexes   indexes
	lag       float64 // GPU-h; negative where it is not known
	resumes   int
	overhead  float64 // GPU-h
	finished  int
}

// quality replays traces under all rules.
func (p *program) quality() error {
	for _, in := range inputs {
		if p.Quick && !in.quick {
			continue
		}
		tr, weights, err := p.load(&in)
		if errors.Is(err, fs.ErrNotExist) {
			p.Note("skipped " + in.name + ": " + err.Error())
			continue
		}
		if err != nil {
			return err
		}
		if err := p.replay(&in, tr, weights); err != nil {
			return fmt.Errorf("%s: %w", in.name, err)
		}
		if in.narrow && !p.Quick {
			if err := p.robust(&in, tr, weights); err != nil {
				return fmt.Errorf("%s: %w", in.name, err)
			}
		}
	}
	return nil
}

// load reads an input's trace and weights.
func (p *program) load(in *input) (tr *trace.Trace, weights map[lockstep.TenantID]int64, err error) {
	f, err := os.Open(filepath.Join(p.traces, in.file))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, nil, err
	}
	if tr, err = trace.ReadCSV(z); err != nil {
		return nil, nil, err
	}
	all := map[lockstep.TenantID]int64{}
	if in.weights {
		if all, err = p.phillyWeights(); err != nil {
			return nil, nil, err
		}
	}
	weights = map[lockstep.TenantID]int64{}
	for i := range tr.Jobs {
		id := tr.Jobs[i].Tenant
		weights[id] = max(all[id], 1)
	}
	if in.name == "philly-3d" {
		weights["t12"] = all["t12"] // has a share and no jobs
	}
	if in.narrow {
		quota := quotas(in.nodes*8, weights)
		tr.Jobs = slices.DeleteFunc(tr.Jobs, func(j trace.Job) bool { return float64(j.GPUs) > quota[j.Tenant] })
	}
	return tr, weights, nil
}

func (p *program) phillyWeights() (map[lockstep.TenantID]int64, error) {
	f, err := os.Open(filepath.Join(p.traces, "philly_weights.csv.gz"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(z).ReadAll()
	if err != nil {
		return nil, err
	}
	weights := map[lockstep.TenantID]int64{}
	for _, row := range rows[1:] {
		if weights[lockstep.TenantID(row[0])], err = strconv.ParseInt(row[1], 10, 64); err != nil {
			return nil, err
		}
	}
	return weights, nil
}

// quotas are ASTRAEA's: whole devices, rounded down.
func quotas(gpus int, weights map[lockstep.TenantID]int64) map[lockstep.TenantID]float64 {
	sum := int64(0)
	for _, w := range weights { // a sum is one in any order
		sum += w
	}
	quota := map[lockstep.TenantID]float64{}
	for id, w := range weights { // each on its own
		quota[id] = float64(int64(gpus) * w / sum)
	}
	return quota
}

func (p *program) replay(in *input, tr *trace.Trace, weights map[lockstep.TenantID]int64) error {
	p.Input(in.name, fmt.Sprintf("%d jobs of %d tenants on %d nodes of 8 devices; leases of %s where a rule has one length; 5 s a checkpoint and 20 s a resume, but in ASTRAEA's own simulator none", len(tr.Jobs), len(weights), in.nodes, in.term))
	table := &harness.Table{Head: []string{in.name, "done", "JCT s", "p99 s", "worst rho", "p1", "p5", "<.27", "tenant", "max lag GPU-h", "resumes", "lost GPU-h"}}
	if !in.slow {
		o, err := shipped(in, tr, weights)
		if err != nil {
			return err
		}
		p.row(table, in, "astraea-as-shipped", o)
	}
	for _, r := range rules(in.term) {
		o, err := play(in, tr, weights, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		p.row(table, in, r.name, o)
		if in.narrow {
			p.targets(r.name, o)
		}
	}
	p.Table(table)
	return nil
}

func (p *program) row(table *harness.Table, in *input, name string, o *outcome) {
	lag := "-"
	if o.lag >= 0 {
		lag = harness.Number(o.lag)
	}
	x := o.indexes.jobs
	table.Add(name, fmt.Sprint(o.finished), fmt.Sprintf("%.0f", o.mean.Seconds()), fmt.Sprintf("%.0f", o.p99.Seconds()),
		fmt.Sprintf("%.3f", at(x, 0)), fmt.Sprintf("%.3f", at(x, 0.01)), fmt.Sprintf("%.3f", at(x, 0.05)), fmt.Sprint(below(x, 0.27)),
		fmt.Sprintf("%.3f", at(o.indexes.tenants, 0)), lag, fmt.Sprint(o.resumes), harness.Number(o.overhead))
	at1 := "quality/" + in.name + "/" + name + "/"
	p.Result(at1+"jct", o.mean.Seconds(), "s")
	p.Result(at1+"rho", at(x, 0), "min")
	p.Result(at1+"resumes", float64(o.resumes), "")
}

// robust replays the floors on shuffles of the durations, and the one that knows
// durations with errors in what it knows.
func (p *program) robust(in *input, tr *trace.Trace, weights map[lockstep.TenantID]int64) error {
	table := &harness.Table{Head: []string{in.name, "runs", "worst rho, least", "median", "JCT s, median", "resumes, median"}}
	add := func(name string, runs int, run func(rng *rand.Rand, r rule) (*trace.Trace, rule), r rule) error {
		var worst, mean, resumes []float64
		for k := range runs {
			t, with := run(rand.New(rand.NewPCG(p.Seed, uint64(1000+k))), r)
			o, err := play(in, t, weights, with)
			if err != nil {
				return err
			}
			worst, mean, resumes = append(worst, at(o.indexes.jobs, 0)), append(mean, o.mean.Seconds()), append(resumes, float64(o.resumes))
		}
		table.Add(name, fmt.Sprint(runs), fmt.Sprintf("%.3f", slices.Min(worst)), fmt.Sprintf("%.3f", harness.Median(worst)), fmt.Sprintf("%.0f", harness.Median(mean)), fmt.Sprintf("%.0f", harness.Median(resumes)))
		return nil
	}
	shuffled := func(rng *rand.Rand, r rule) (*trace.Trace, rule) {
		t := &trace.Trace{Jobs: slices.Clone(tr.Jobs)}
		rng.Shuffle(len(t.Jobs), func(i, k int) {
			t.Jobs[i].Duration, t.Jobs[k].Duration = t.Jobs[k].Duration, t.Jobs[i].Duration
		})
		return t, r
	}
	misjudged := func(rng *rand.Rand, r rule) (*trace.Trace, rule) {
		factors := make([]float64, len(tr.Jobs))
		for i := range factors {
			factors[i] = math.Exp(rng.NormFloat64())
		}
		r.guess = func(i int, d time.Duration) time.Duration {
			return max(time.Second, min(time.Duration(float64(d)*factors[i]), lockstep.MaxWalltime))
		}
		return tr, r
	}
	for _, r := range rules(in.term) {
		if r.config.Floor == 0 {
			continue
		}
		if err := add(r.name+", durations shuffled", 30, shuffled, r); err != nil {
			return err
		}
		if !r.unknown {
			if err := add(r.name+", ln-error of 1", 20, misjudged, r); err != nil {
				return err
			}
		}
	}
	p.Table(table)
	return nil
}

// targets judges the rows that have some.
func (p *program) targets(name string, o *outcome) {
	x := o.indexes.jobs
	type bar struct {
		what    string
		value   float64
		limit   float64
		atLeast bool
	}
	bars := map[string][]bar{
		"ltgf-floor-i": {
			{"jct", o.mean.Seconds(), 6004, false},
			{"tenant", at(o.indexes.tenants, 0), 0.879, true},
			{"resumes", float64(o.resumes), 176, false},
			{"worst", at(x, 0), 0.18, true},
			{"p1", at(x, 0.01), 0.25, true},
			{"p5", at(x, 0.05), 0.48, true},
			{"under.27", float64(below(x, 0.27)), 6, false},
		},
		"ltgf-floor-ii": {
			{"jct", o.mean.Seconds(), 6004, false},
			{"tenant", at(o.indexes.tenants, 0), 0.879, true},
			{"resumes", float64(o.resumes), 350, false},
			{"worst", at(x, 0), 0.36, true},
			{"p1", at(x, 0.01), 0.45, true},
			{"under.27", float64(below(x, 0.27)), 0, false},
		},
		"ltgf-floor-iii": {
			{"jct", o.mean.Seconds(), 5000, false},
			{"tenant", at(o.indexes.tenants, 0), 0.879, true},
			{"resumes", float64(o.resumes), 100, false},
			{"worst", at(x, 0), 0.45, true},
		},
	}
	for _, b := range bars[name] {
		p.Target(harness.Target{Name: "quality/" + name + "/" + b.what, Value: b.value, Unit: "", Limit: b.limit, AtLeast: b.atLeast})
	}
}

// shipped runs ASTRAEA's simulator.
func shipped(in *input, tr *trace.Trace, weights map[lockstep.TenantID]int64) (*outcome, error) {
	cfg := astraea.Config{Nodes: in.nodes, Tick: in.tick, Term: in.term}
	ids := make([]lockstep.TenantID, 0, len(weights))
	for id := range weights { // in any order: sorted below
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		cfg.Shares = append(cfg.Shares, astraea.Share{Tenant: id, Weight: weights[id]})
	}
	r, err := astraea.Run(cfg, tr.Jobs)
	if err != nil {
		return nil, err
	}
	o := &outcome{lag: -1, finished: len(r.Records)}
	spans := make([]span, 0, len(r.Records))
	times := make([]time.Duration, 0, len(r.Records))
	for i := range r.Records {
		j := &r.Records[i]
		work := float64(j.GPUs) * j.Duration.Seconds()
		spans = append(spans, span{tenant: j.Tenant, gpus: float64(j.GPUs), submit: j.Submit, end: j.End, service: work, useful: work})
		times = append(times, j.End-j.Submit)
		o.resumes += j.Resumes
	}
	o.times(times)
	o.indexes = deserve(spans, quotas(in.nodes*8, weights))
	return o, nil
}

// times fills in mean and 99th percentile.
func (o *outcome) times(times []time.Duration) {
	slices.Sort(times)
	sum := 0.0
	for _, t := range times {
		sum += t.Seconds()
	}
	if n := len(times); n > 0 {
		o.mean = time.Duration(sum / float64(n) * 1e9)
		o.p99 = times[min(n-1, (n*99+99)/100-1)]
	}
}

// play runs a rule.
func play(in *input, tr *trace.Trace, weights map[lockstep.TenantID]int64, r rule) (*outcome, error) {
	shape, err := topology.UniformShape(8, topology.NVLink(18))
	if err != nil {
		return nil, err
	}
	tree, err := topology.Uniform(topology.UniformConfig{Fanout: []int{in.nodes}, Shape: shape})
	if err != nil {
		return nil, err
	}
	cfg := r.config
	cfg.Tree, cfg.Weights = tree, weights
	if r.policy != nil {
		if cfg.Policy, err = r.policy(lockstep.WholeGPU.Mul(int64(in.nodes*8)), weights); err != nil {
			return nil, err
		}
	}
	s, err := scheduler.New(cfg)
	if err != nil {
		return nil, err
	}
	jobs := make([]sim.Job, len(tr.Jobs))
	for i := range tr.Jobs {
		j := &tr.Jobs[i]
		g := j.Gang(1) // members of one device, so that a gang may spread as in ASTRAEA
		g.Capabilities = lockstep.Capabilities{Preemptible: true, Save: save, Restore: restore}
		switch {
		case r.unknown:
			g.Walltime = 0
		case r.guess != nil:
			g.Walltime = r.guess(i, j.Duration)
		}
		jobs[i] = sim.Job{Gang: g, Submit: j.Submit, Duration: j.Duration}
	}
	got, err := sim.Run(sim.Config{Tree: tree, Weights: weights, Unconditional: r.strict}, jobs, s)
	if err != nil {
		return nil, err
	}
	o := &outcome{lag: got.MaxLag.GPUSeconds() / 3600, resumes: got.Resumes, overhead: got.Overhead().GPUSeconds() / 3600, finished: got.Finished}
	var spans []span
	var times []time.Duration
	for i := range got.Records {
		j := &got.Records[i]
		if !j.Done {
			continue
		}
		gpus := float64(j.GPUs) / 1000
		spans = append(spans, span{tenant: j.Tenant, gpus: gpus, submit: j.Submit, end: j.End, service: j.Service.GPUSeconds(), useful: gpus * j.Duration.Seconds()})
		times = append(times, j.End-j.Submit)
	}
	o.times(times)
	o.indexes = deserve(spans, quotas(in.nodes*8, weights))
	return o, nil
}
