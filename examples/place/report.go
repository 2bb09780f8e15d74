package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep/gang"
)

// report is what a replay showed.
type report struct {
	Trace    string `json:"trace"`
	Cluster  string `json:"cluster"`
	Backfill string `json:"backfill"`
	Walltime string `json:"walltime"`

	Jobs     int `json:"jobs"`
	Started  int `json:"started"`
	Rejected int `json:"rejected"`

	WaitMean float64 `json:"waitMeanSeconds"`
	WaitP50  float64 `json:"waitP50Seconds"`
	WaitP99  float64 `json:"waitP99Seconds"`
	WaitMax  float64 `json:"waitMaxSeconds"`
	Makespan float64 `json:"makespanSeconds"`

	Utilization float64   `json:"utilization"`             // mean over the makespan
	Timeline    []float64 `json:"timeline"`                // utilisation of equal parts of the makespan
	Idle        float64   `json:"idleWhileWaiting"`        // part of the devices free while jobs wait
	Scattered   float64   `json:"scatteredOfIdle"`         // part of those on nodes partly held
	Service     float64   `json:"serviceGPUSeconds"`       // devices × time
	Wall        float64   `json:"wallSeconds"`             // of the replay itself
	JobsPerWall float64   `json:"jobsPerWallSecond"`       //
	Faults      []string  `json:"faults"`                  // what the checks found; none when all is well
	FaultsMore  int       `json:"faultsNotShown,omitzero"` // how many more there are
}

const timelineBins = 72

// replay replays the trace and prints the report.
func (o *options) replay(out io.Writer) error {
	jobs, err := readJobsFile(o.trace, o.limit)
	if err != nil {
		return err
	}
	cfg, err := o.replayConfig()
	if err != nil {
		return err
	}
	started := time.Now()
	r, err := newReplayer(cfg)
	if err != nil {
		return err
	}
	if err := r.run(jobs); err != nil {
		return err
	}
	rep := r.report(time.Since(started))
	rep.Trace, rep.Backfill, rep.Walltime = o.trace, o.backfill, o.walltime
	if o.json {
		err = printJSON(out, rep)
	} else {
		err = rep.print(out)
	}
	if err == nil && len(rep.Faults) > 0 {
		err = fmt.Errorf("the replay failed its own checks: %d faults", len(rep.Faults)+rep.FaultsMore)
	}
	return err
}

func (o *options) replayConfig() (replayConfig, error) {
	cfg := replayConfig{Cluster: clusterSpec{Nodes: 24, GPUs: 8}}
	o.resize(&cfg.Cluster)
	switch o.backfill {
	case "easy":
		cfg.Backfill = gang.EASY
	case "conservative":
		cfg.Backfill = gang.Conservative
	case "none":
		cfg.Backfill = gang.Strict
	default:
		n, err := strconv.ParseInt(o.backfill, 10, 32)
		if err != nil || n < 1 {
			return cfg, fmt.Errorf("-backfill %q: want easy, conservative, none or a number of reservations", o.backfill)
		}
		cfg.Backfill = gang.Backfill(n)
	}
	switch o.walltime {
	case "true":
	case "none":
		cfg.HideWalltime = true
	default:
		return cfg, fmt.Errorf("-walltime %q: want true or none", o.walltime)
	}
	return cfg, nil
}

// report sums the replay up and closes the ledger.
func (r *replayer) report(wall time.Duration) *report {
	rep := &report{Jobs: len(r.jobs), Started: r.ledger.started, Rejected: r.rejected, Faults: []string{}}
	racks, blocks := r.cfg.Cluster.racks()
	rep.Cluster = fmt.Sprintf("%d nodes of %d devices in %d %s and %d %s", r.cfg.Cluster.Nodes, r.cfg.Cluster.GPUs,
		racks, plural("rack", racks), blocks, plural("block", blocks))
	waits := make([]time.Duration, 0, len(r.jobs))
	for _, t := range r.jobs { // order: sorted below
		if t.ran {
			waits = append(waits, t.start-t.Submit)
		}
	}
	slices.Sort(waits)
	if len(waits) > 0 {
		for _, w := range waits {
			rep.WaitMean += w.Seconds() / float64(len(waits))
		}
		rep.WaitP50, rep.WaitP99 = quantile(waits, 50).Seconds(), quantile(waits, 99).Seconds()
		rep.WaitMax = waits[len(waits)-1].Seconds()
	}
	first, last := r.history.span()
	rep.Makespan = (last - first).Seconds()
	rep.Utilization = r.history.utilization()
	rep.Timeline = r.history.bins(timelineBins)
	rep.Idle, rep.Scattered = r.history.idleWhileWaiting()
	rep.Wall, rep.JobsPerWall = wall.Seconds(), ratio(float64(len(r.jobs)), wall.Seconds())
	r.ledger.close(len(r.jobs), r.rejected)
	rep.Service = r.ledger.service.seconds()
	rep.Faults, rep.FaultsMore = append(rep.Faults, r.ledger.faults...), r.ledger.more
	return rep
}

// quantile returns the p-th percentile of sorted, by nearest rank.
func quantile(sorted []time.Duration, p int) time.Duration {
	return sorted[max((len(sorted)*p+99)/100, 1)-1]
}

// print writes the report for people.
func (rep *report) print(w io.Writer) error {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{key}, args...)...)
	}
	line("trace", "%s: %d jobs", rep.Trace, rep.Jobs)
	line("cluster", "%s", rep.Cluster)
	line("rules", "first come first served, backfill %s, walltime %s", rep.Backfill, rep.Walltime)
	line("jobs", "%d started, %d rejected", rep.Started, rep.Rejected)
	line("wait", "mean %s, p50 %s, p99 %s, longest %s", seconds(rep.WaitMean), seconds(rep.WaitP50), seconds(rep.WaitP99), seconds(rep.WaitMax))
	line("utilization", "%.1f%% of the devices over %s", rep.Utilization*100, seconds(rep.Makespan))
	line("", "%s", sparkline(rep.Timeline))
	line("idle", "%.2f%% of the devices while jobs wait, %.0f%% of them scattered over nodes partly held", rep.Idle*100, rep.Scattered*100)
	line("speed", "%.2f s for the whole replay, %.0f jobs/s", rep.Wall, rep.JobsPerWall)
	if len(rep.Faults) == 0 {
		line("check", "ok: no device held twice; every gang whole, of its size, for its duration; service given = asked = %.0f GPU-s", rep.Service)
	}
	for _, fault := range rep.Faults {
		line("check", "FAILED: %s", fault)
	}
	if rep.FaultsMore > 0 {
		line("check", "FAILED: %d more", rep.FaultsMore)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// seconds formats a time in seconds to the whole second.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
