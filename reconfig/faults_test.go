package reconfig

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
	"github.com/stretchr/testify/require"
)

func TestBadInputIsATypedError(t *testing.T) {
	job, devs := jobOf(4, 2, 2, 8, 8), fleet(16, 4)
	for _, c := range []struct {
		name   string
		field  string
		break_ func(j *Job, d []Device, o *Options)
	}{
		{"speed above 1", "devs[3].Speed", func(_ *Job, d []Device, _ *Options) { d[3].Speed = 1.5 }},
		{"speed is no number", "devs[3].Speed", func(_ *Job, d []Device, _ *Options) { d[3].Speed = math.NaN() }},
		{"negative speed", "devs[3].Speed", func(_ *Job, d []Device, _ *Options) { d[3].Speed = -1 }},
		{"device twice", "devs[3].ID", func(_ *Job, d []Device, _ *Options) { d[3].ID = d[2].ID }},
		{"device without name", "devs[3].ID", func(_ *Job, d []Device, _ *Options) { d[3].ID = "" }},
		{"node in two leaves", "devs[3].Leaf", func(_ *Job, d []Device, _ *Options) { d[3].Leaf = "elsewhere" }},
		{"negative memory", "devs[3].Memory", func(_ *Job, d []Device, _ *Options) { d[3].Memory = -1 }},
		{"unknown state", "devs[3].State", func(_ *Job, d []Device, _ *Options) { d[3].State = 9 }},
		{"no layers", "Model.Layers", func(j *Job, _ []Device, _ *Options) { j.Model.Layers = 0 }},
		{"fewer layers than stages", "Model.Layers", func(j *Job, _ []Device, _ *Options) { j.Model.Layers = 1 }},
		{"degree does not divide heads", "Model.Heads", func(j *Job, _ []Device, _ *Options) { j.Layout.TP = 16 }},
		{"degree does not divide the vocabulary", "Layout.TP", func(j *Job, _ []Device, _ *Options) { j.Model.Vocab = 8402 }},
		{"no micro-batches", "Micros", func(j *Job, _ []Device, _ *Options) { j.Micros = 0 }},
		{"unknown schedule", "Schedule", func(j *Job, _ []Device, _ *Options) { j.Schedule = 99 }},
		{"chunks without interleaving", "Chunks", func(j *Job, _ []Device, _ *Options) { j.Chunks = 2 }},
		{"negative cost", "Costs.Layer.Forward", func(j *Job, _ []Device, _ *Options) { j.Costs.Layer.Forward = -1 }},
		{"endless cost", "Costs.Head.Forward", func(j *Job, _ []Device, _ *Options) { j.Costs.Head.Forward = math.MaxInt64 }},
		{"costs of other layers", "Costs.Layers", func(j *Job, _ []Device, _ *Options) { j.Costs.Layers = make([]Cost, 3) }},
		{"no costs and no rate", "Rate", func(j *Job, _ []Device, _ *Options) { j.Costs = Costs{} }},
		{"rate is no number", "Rate", func(j *Job, _ []Device, _ *Options) { j.Costs, j.Rate.Linear = Costs{}, lockstep.FLOPs(math.NaN()) }},
		{"pairs are no number", "Batch.Pairs", func(j *Job, _ []Device, _ *Options) { j.Batch.Pairs = math.Inf(1) }},
		{"negative reserve", "Reserve", func(j *Job, _ []Device, _ *Options) { j.Reserve = -1 }},
		{"negative constraint", "Allow.MaxStages", func(j *Job, _ []Device, _ *Options) { j.Allow.MaxStages = -1 }},
		{"negative budget", "Budget", func(_ *Job, _ []Device, o *Options) { o.Budget = -1 }},
		{"threshold is no number", "Disturb", func(_ *Job, _ []Device, o *Options) { o.Disturb = math.NaN() }},
	} {
		j, d, o := job, slices.Clone(devs), Options{}
		c.break_(&j, d, &o)
		_, err := Replan(j, d, nil, o)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e, c.name)
		require.Equal(t, c.field, e.Field, c.name)
		require.True(t, strings.HasPrefix(e.Op, "reconfig: "), c.name)
		require.Equal(t, strings.HasPrefix(c.field, "devs["), ValidateDevices(d) != nil, c.name)
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	job := jobOf(1, 1, 1, 4, 0)
	job.Reserve = -1
	err := job.Validate()
	require.ErrorContains(t, err, "Micros")
	require.ErrorContains(t, err, "Reserve")
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestWhatCannotBeIsInfeasibleWithEvidence(t *testing.T) {
	job, devs := jobOf(4, 2, 2, 8, 8), fleet(16, 4)
	all := make([]int, len(devs))
	for i := range all {
		all[i] = i
	}
	check := func(j Job, d []Device, level Level, reason lockstep.Reason) *Infeasible {
		t.Helper()
		_, err := Replan(j, d, nil, Options{})
		var no *Infeasible
		require.ErrorAs(t, err, &no)
		require.ErrorIs(t, err, ErrInfeasible)
		require.Equal(t, level, no.Level)
		require.Equal(t, reason, no.Reason)
		require.NotEmpty(t, no.Error())
		return no
	}
	check(job, with(devs, 0, all...), TensorLevel, ReasonNoDevices)
	check(job, nil, TensorLevel, ReasonNoDevices)
	small := slices.Clone(devs)
	for i := range small {
		small[i].Memory = lockstep.MiB
	}
	no := check(job, small, PipelineLevel, ReasonMemory)
	require.Greater(t, no.Witness.Need, no.Witness.Have)
	four := job
	four.Allow = Constraints{MinTP: 4, FixedStages: true, MinReplicas: 2}
	no = check(four, with(devs, 0, 0), PipelineLevel, ReasonTooFew)
	require.Equal(t, int64(4), no.Witness.Need)
	require.Equal(t, int64(3), no.Witness.Have)
	odd := job
	odd.Allow.MinTP = 8
	check(odd, devs, TensorLevel, ReasonDegree)
}

func TestAPlanOfAnotherJobIsRefused(t *testing.T) {
	job, devs := jobOf(4, 2, 2, 8, 8), fleet(16, 4)
	p := healthy(t, job, devs)
	for name, change := range map[string]func(*Plan){ // each alone; the order cannot matter
		"digest":   func(p *Plan) { p.Version++ },
		"replicas": func(p *Plan) { p.Replicas = nil },
		"split":    func(p *Plan) { p.Split = p.Split[:1] },
		"layers":   func(p *Plan) { p.Replicas[0].Stages[0].Spans[0].Layers++; p.Digest = p.Sum() },
		"stages":   func(p *Plan) { p.Replicas[0].Stages = nil; p.Digest = p.Sum() },
	} {
		q := copied(t, p)
		change(q)
		_, err := Replan(job, devs[1:], q, Options{})
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
	}
	_, err := Replan(jobOf(4, 2, 2, 10, 8), devs, p, Options{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func copied(t testing.TB, p *Plan) *Plan {
	var q Plan
	require.NoError(t, json.Unmarshal([]byte(describe(p)), &q))
	require.Equal(t, p.Digest, q.Sum(), "a plan survives JSON")
	return &q
}

func TestVerifyFindsEveryBreach(t *testing.T) {
	job := jobOf(2, 2, 2, 8, 8)
	job.Allow.AllowMigration = true
	job.Batch.Tokens = 64
	devs := fleet(10, 2)
	for i := range devs {
		devs[i].Memory = 10 * lockstep.GiB
	}
	job.Allow.FixedStages = true
	p := healthy(t, job, devs)
	require.NoError(t, Verify(job, devs, p))
	for _, c := range []struct {
		name   string
		reason lockstep.Reason
		change func(p *Plan, j *Job, d []Device)
	}{
		{"dead device", ReasonDead, func(p *Plan, _ *Job, d []Device) { d[0].State = Down }},
		{"unknown device", ReasonDead, func(p *Plan, _ *Job, _ []Device) { p.Replicas[0].Stages[0].Devices[0] = "gone" }},
		{"two roles", ReasonTwice, func(p *Plan, _ *Job, _ []Device) {
			p.Replicas[0].Stages[0].Devices[0] = p.Replicas[1].Stages[0].Devices[0]
		}},
		{"number twice", ReasonTwice, func(p *Plan, _ *Job, _ []Device) { p.Replicas[1].Number = p.Replicas[0].Number }},
		{"other nodes", ReasonSpread, func(p *Plan, _ *Job, _ []Device) {
			a, b := p.Replicas[0].Stages[0].Devices, p.Replicas[0].Stages[1].Devices
			a[0], b[0] = b[0], a[0]
		}},
		{"degree", ReasonDegree, func(_ *Plan, j *Job, _ []Device) { j.Allow.MinTP = 4; j.Layout.TP = 4 }},
		{"degree that divides no heads", ReasonDegree, func(_ *Plan, j *Job, _ []Device) {
			j.Model.Heads, j.Model.HeadDim, j.Layout.TP = 21, 40, 1
		}},
		{"too few replicas", ReasonTooFew, func(_ *Plan, j *Job, _ []Device) { j.Allow.MinReplicas = 3 }},
		{"stages", ReasonStages, func(_ *Plan, j *Job, _ []Device) { j.Layout.PP = 3 }},
		{"layer lost", ReasonLayers, func(p *Plan, _ *Job, _ []Device) { p.Replicas[0].Stages[1].Spans[0].Layers-- }},
		{"layer twice", ReasonLayers, func(p *Plan, _ *Job, _ []Device) { p.Replicas[0].Stages[1].Spans[0].First-- }},
		{"layers of another model", ReasonLayers, func(_ *Plan, j *Job, _ []Device) { j.Model.Layers = 9 }},
		{"not uniform", ReasonUniform, func(p *Plan, j *Job, _ []Device) {
			j.Allow.Uniform = true
			s := p.Replicas[1].Stages
			s[0].Spans[0].Layers--
			s[1].Spans[0] = Span{s[1].Spans[0].First - 1, s[1].Spans[0].Layers + 1}
		}},
		{"split", ReasonSplit, func(p *Plan, _ *Job, _ []Device) { p.Split[0]++ }},
		{"idle replica", ReasonSplit, func(p *Plan, _ *Job, _ []Device) { p.Split = []int{0, 8} }},
		{"migration to itself", ReasonMigration, func(p *Plan, _ *Job, _ []Device) { p.Migrations = []Migration{{0, 1, 1, 0}} }},
		{"migration of nothing", ReasonMigration, func(p *Plan, _ *Job, _ []Device) { p.Migrations = []Migration{{0, 1, 0, 99}} }},
		{"migration twice", ReasonMigration, func(p *Plan, _ *Job, _ []Device) { p.Migrations = []Migration{{0, 1, 0, 1}, {0, 1, 0, 1}} }},
		{"migration forbidden", ReasonMigration, func(p *Plan, j *Job, _ []Device) {
			p.Migrations, j.Allow.AllowMigration = []Migration{{0, 1, 0, 1}}, false
		}},
		{"memory", ReasonMemory, func(_ *Plan, _ *Job, d []Device) { d[1].Memory = lockstep.MiB }},
		{"reserve", ReasonMemory, func(_ *Plan, j *Job, _ []Device) { j.Reserve = 10 * lockstep.GiB }},
		{"standby", ReasonStandby, func(p *Plan, _ *Job, _ []Device) { p.Standby = nil }},
		{"group", ReasonGroups, func(p *Plan, _ *Job, _ []Device) { p.Groups = p.Groups[1:] }},
		{"exchange among the wrong", ReasonGroups, func(p *Plan, _ *Job, _ []Device) {
			g := p.Groups[len(p.Groups)-1].Devices
			g[0], g[1] = g[1], g[0]
		}},
		{"digest", ReasonDigest, func(p *Plan, _ *Job, _ []Device) { p.Digest[0]++ }},
		{"version", ReasonDigest, func(p *Plan, _ *Job, _ []Device) { p.Version++ }},
		{"estimate", ReasonEstimate, func(p *Plan, _ *Job, _ []Device) { p.Estimate.Iteration-- }},
	} {
		q, j, d := copied(t, p), job, slices.Clone(devs)
		c.change(q, &j, d)
		err := Verify(j, d, q)
		var no *Infeasible
		require.ErrorAs(t, err, &no, c.name)
		require.Equal(t, c.reason, no.Reason, "%s: %v", c.name, err)
	}
	require.ErrorIs(t, Verify(job, devs, nil), lockstep.ErrInvalid)
	require.ErrorIs(t, Verify(Job{}, devs, p), lockstep.ErrInvalid)
}

func TestEvaluateRefusesWhatItCannotCompute(t *testing.T) {
	job, devs := jobOf(2, 2, 2, 8, 8), fleet(8, 2)
	p := healthy(t, job, devs)
	for name, change := range map[string]func(*Plan){ // each alone; the order cannot matter
		"no replicas":    func(p *Plan) { p.Replicas = nil },
		"no split":       func(p *Plan) { p.Split = nil },
		"negative split": func(p *Plan) { p.Split[0] = -1 },
		"no stages":      func(p *Plan) { p.Replicas[0].Stages = nil },
		"no devices":     func(p *Plan) { p.Replicas[0].Stages[0].Devices = nil },
		"unknown":        func(p *Plan) { p.Replicas[0].Stages[0].Devices[0] = "gone" },
		"no spans":       func(p *Plan) { p.Replicas[0].Stages[0].Spans = nil },
		"gap":            func(p *Plan) { p.Replicas[0].Stages[1].Spans[0].First++ },
		"overflow":       func(p *Plan) { p.Replicas[0].Stages[1].Spans[0].Layers = math.MaxInt },
		"migration":      func(p *Plan) { p.Migrations = []Migration{{Stage: 7}} },
	} {
		q := copied(t, p)
		change(q)
		_, err := Evaluate(job, devs, q)
		require.Error(t, err, name)
		require.True(t, errors.Is(err, ErrInfeasible) || errors.Is(err, lockstep.ErrUnknown), name)
	}
	_, err := Evaluate(job, devs, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Evaluate(job, with(devs, 0, 0), p)
	require.ErrorIs(t, err, ErrInfeasible)
}

// Oobleck #23 and #27: no template for the number of nodes that remain.
func TestEveryRemainingCountHasAPlan(t *testing.T) {
	job := jobOf(2, 4, 4, 16, 32)
	devs := fleet(32, 2)
	p := healthy(t, job, devs)
	for left := len(devs) - 1; left >= 1; left-- {
		devs = with(devs, 0, (left*7)%32)
		alive := 0
		for _, d := range devs {
			if d.Speed > 0 {
				alive++
			}
		}
		if alive == 0 {
			break
		}
		next, err := Replan(job, devs, p, Options{Budget: 100_000})
		require.NoError(t, err, "%d devices left", alive)
		require.NoError(t, Verify(job, devs, next))
		p = next
	}
}

// Megatron-LM #1304: 30 layers on 4 stages must not become 28; #1584: nor may chunks
// of an uneven split begin at the wrong layer.
func TestNoLayerIsLostByUnevenSplits(t *testing.T) {
	for _, schedule := range []pipeline.Schedule{pipeline.OneFOneB, pipeline.Interleaved} {
		job := jobOf(1, 1, 4, 30, 8)
		job.Schedule = schedule
		job.Allow.FixedStages = true
		if schedule == pipeline.Interleaved {
			job.Chunks = 2
		}
		devs := fleet(4, 1)
		devs[2].Speed = .5
		p := healthy(t, job, devs)
		require.NoError(t, Verify(job, devs, p))
		next := 0
		for c := range max(1, job.Chunks) {
			for _, s := range p.Replicas[0].Stages {
				require.Equal(t, next, s.Spans[c].First)
				next = s.Spans[c].End()
			}
		}
		require.Equal(t, 30, next)
	}
}

// zero-bubble #73: no op may start later than what it waits for allows. The estimate
// is the critical path of the schedule, so no replica can be faster than its slowest
// stage, nor slower than all its work in a row.
func TestEstimatesLieBetweenTheBounds(t *testing.T) {
	job := jobOf(1, 1, 4, 16, 12)
	devs := fleet(4, 1)
	devs[1].Speed, devs[3].Speed = .7, .4
	for schedule := range pipeline.ZBH2 + 1 {
		job.Schedule = schedule
		p := healthy(t, job, devs)
		worst, all := time.Duration(0), time.Duration(0)
		for _, s := range p.Replicas[0].Stages {
			speed := 1.0
			for _, d := range devs {
				if d.ID == s.Devices[0] {
					speed = d.Speed
				}
			}
			took := time.Duration(float64(3*time.Millisecond) * float64(s.Layers()) / speed)
			worst, all = max(worst, took), all+took
		}
		require.GreaterOrEqual(t, p.Estimate.Iteration, 12*worst-12*3)
		require.LessOrEqual(t, p.Estimate.Iteration, 12*all+12*3)
	}
}

// dlrover #1399: members that act on different lists desynchronise. Every member that
// knows the same devices has the same digest, in whatever order it learnt of them.
func TestMembersAgreeOnOneDigest(t *testing.T) {
	job := jobOf(2, 2, 2, 8, 8)
	devs := with(fleet(8, 2), .5, 3)
	prev := healthy(t, job, fleet(8, 2))
	p, err := Replan(job, devs, prev, Options{})
	require.NoError(t, err)
	slices.Reverse(devs)
	q, err := Replan(job, devs, copied(t, prev), Options{})
	require.NoError(t, err)
	require.Equal(t, p.Digest, q.Digest)
	devs[0].Speed = .99
	r, err := Replan(job, devs, prev, Options{})
	require.NoError(t, err)
	require.NotEqual(t, p.Digest, r.Digest, "another list is another plan, even with the same layout")
}

func TestDigestIsTheSameOnEveryPlatform(t *testing.T) {
	llama := perfmodel.Model{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, FFN: 14336, Vocab: 128256, Gated: true}
	batch, err := llama.Mask.Batch([]int{5000, 3000, 192})
	require.NoError(t, err)
	job := Job{
		Model: llama, Layout: perfmodel.Layout{TP: 4, PP: 4, DP: 2, ZeRO: 1}, Micros: 32, Batch: batch, Flash: true,
		Reserve: 4 * lockstep.GiB, Rate: perfmodel.Rate{Linear: 312e12 * .55, Quadratic: 312e12 * .4},
		Costs: Costs{Hop: Hops{time.Microsecond, 20 * time.Microsecond, 70 * time.Microsecond}, Exchange: 3 * time.Millisecond},
	}
	devs := fleet(32, 8)
	for i := range devs {
		devs[i].Memory = 80 * lockstep.GiB
		devs[i].Speed = 1 - float64(i*i%17)/100
	}
	p := healthy(t, job, devs)
	devs[5].State, devs[17].Speed = Down, .3
	q, err := Replan(job, devs, p, Options{})
	require.NoError(t, err)
	require.NoError(t, Verify(job, devs, q))
	require.Equal(t, "f19bf172ea22c5fa444b7936e77edc00537ec7fa9bede96566b843b90ec2b1c7 199a1779babc899d85f3b6289fb0fc605c3c82a629e6dd0aaca050df40b6f845", p.Digest.String()+" "+q.Digest.String())
}

func TestTiedReplicasWithoutWorkToShareTakeTheirOwnTime(t *testing.T) {
	// The joint simulation of replicas, with no migration between them, is the same as
	// each alone.
	for _, schedule := range []pipeline.Schedule{pipeline.OneFOneB, pipeline.GPipe} {
		job := jobOf(1, 3, 4, 8, 17)
		job.Schedule = schedule
		devs := with(fleet(12, 4), .6, 5)
		p := healthy(t, job, devs)
		w, err := newWorld("test", job, devs)
		require.NoError(t, err)
		runs, err := w.read("test", p)
		require.NoError(t, err)
		for i := range runs {
			if !slices.Equal(runs[i].virt, runs[0].virt) {
				continue
			}
			took, _, err := w.runJoint(runs, p.Split, nil, []int{i})
			require.NoError(t, err)
			require.Equal(t, p.Estimate.Replicas[i], took)
		}
	}
}
