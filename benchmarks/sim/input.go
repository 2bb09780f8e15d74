package main

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/sim/trace"
	"github.com/lockstep-gpu/lockstep/topology"
)

// What every replay is done with.
const (
	perNode    = 8
	term       = 900 * time.Second
	checkpoint = 5 * time.Second
	resume     = 20 * time.Second
)

// The files of the Philly extract, and where they are found.
const (
	philly2w      = "philly2w" // in results
	phillyTrace   = "philly_2w_20171016.csv.gz"
	phillyWeights = "philly_weights.csv.gz"
	sharedEnv     = "LOCKSTEP_SHARED"
)

// workload is a trace with the weights of its tenants.
type workload struct {
	name    string // in results
	about   string // for people
	trace   *trace.Trace
	weights map[lockstep.TenantID]int64
	span    time.Duration // in which jobs arrive, for the figures of how busy the cluster is
}

// philly reads the two weeks of Philly. Where the files are absent it returns nil
// and why.
func philly() (w *workload, absent string, err error) {
	dir := sharedDir()
	w = &workload{name: philly2w, span: 14 * 24 * time.Hour}
	path := filepath.Join(dir, phillyTrace)
	w.trace, err = readGzip(path, trace.ReadCSV)
	if err == nil {
		path = filepath.Join(dir, phillyWeights)
		w.weights, err = readGzip(path, readWeights)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, "no " + path + "; set " + sharedEnv + " to the directory that has traces/", nil
	}
	if err != nil {
		return nil, "", err
	}
	w.about = describe(phillyTrace+" with the weights of "+phillyWeights, w)
	return w, "", nil
}

// sharedDir is where the traces are: programs run in the module's directory.
func sharedDir() string {
	if dir := os.Getenv(sharedEnv); dir != "" {
		return filepath.Join(dir, "traces")
	}
	return filepath.Join("..", "..", "shared", "traces")
}

// synthetic makes up a trace that offers a cluster of so many devices the load
// that the two weeks of Philly offer one of 704.
func synthetic(seed uint64, gpus int, span time.Duration) (*workload, error) {
	cfg := trace.SyntheticConfig{Seed: seed, Span: span, GPUs: gpus, Load: 976}
	t, err := trace.Synthetic(cfg)
	if err != nil {
		return nil, err
	}
	w := &workload{name: "synthetic", trace: t, span: span}
	w.about = describe(fmt.Sprintf("made up, seed %d, span %v, load %d thousandths of %d GPUs", cfg.Seed, cfg.Span, cfg.Load, cfg.GPUs), w)
	return w, nil
}

func describe(what string, w *workload) string {
	return fmt.Sprintf("%s: %d jobs of %d tenants, %.0f GPUs offered on average over %v",
		what, len(w.trace.Jobs), len(w.trace.Tenants()), float64(w.trace.Work())/float64(w.span), w.span)
}

// jobs are those of the trace, for one replay.
func (w *workload) jobs() []sim.Job {
	jobs := make([]sim.Job, len(w.trace.Jobs))
	for i := range w.trace.Jobs {
		j := &w.trace.Jobs[i]
		g := j.Gang(perNode)
		g.Capabilities = lockstep.Capabilities{Preemptible: true, Save: checkpoint, Restore: resume}
		jobs[i] = sim.Job{Gang: g, Submit: j.Submit, Duration: j.Duration}
	}
	return jobs
}

// cluster is nodes of like devices, all NVLink inside.
func cluster(nodes int) (*topology.Tree, error) {
	shape, err := topology.UniformShape(perNode, topology.NVLink(18))
	if err != nil {
		return nil, err
	}
	return topology.Uniform(topology.UniformConfig{Fanout: []int{nodes}, Shape: shape})
}

func readGzip[T any](path string, read func(io.Reader) (T, error)) (t T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return t, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err == nil {
		t, err = read(z)
	}
	if err != nil {
		return t, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// readWeights reads rows with the header tenant,weight.
func readWeights(r io.Reader) (map[lockstep.TenantID]int64, error) {
	rows := csv.NewReader(r)
	rows.FieldsPerRecord = 2
	head, err := rows.Read()
	if err != nil {
		return nil, err
	}
	if head[0] != "tenant" || head[1] != "weight" {
		return nil, fmt.Errorf("line 1: header %q, want tenant,weight", head)
	}
	weights := make(map[lockstep.TenantID]int64)
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return weights, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := rows.FieldPos(0)
		weight, err := strconv.ParseInt(row[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: weight: %w", line, err)
		}
		tenant := lockstep.TenantID(row[0])
		if _, twice := weights[tenant]; twice {
			return nil, fmt.Errorf("line %d: tenant %q occurs twice", line, tenant)
		}
		weights[tenant] = weight
	}
}
