package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/sim/trace"
)

// The forms of a trace.
const (
	formatAuto   = "auto"
	formatCSV    = "csv"
	formatPhilly = "philly"
	formatHelios = "helios"
)

// workload is what is replayed: the same for every policy.
type workload struct {
	Name    string // in words
	Trace   *trace.Trace
	Weights map[lockstep.TenantID]int64 // of every tenant that submits, and of those that might
}

// synthWeights are those of made up tenants, in turn: the first submits most.
// Immutable: never written to.
var synthWeights = [...]int64{4, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1}

// load reads or makes up the workload.
func (o *options) load() (*workload, error) {
	w := &workload{}
	var err error
	if o.trace == "" {
		w.Name = fmt.Sprintf("made up, seed %d", o.seed)
		span := time.Duration(o.days * float64(24*time.Hour)).Round(time.Second)
		w.Trace, err = trace.Synthetic(trace.SyntheticConfig{Seed: o.seed, Span: span, GPUs: o.nodes * o.perNode, Tenants: len(synthWeights)})
	} else {
		w.Name = filepath.Base(o.trace)
		w.Trace, err = readFile(o.trace, func(r *bufio.Reader) (*trace.Trace, error) { return readTrace(r, o.format) })
	}
	if err != nil {
		return nil, err
	}
	if len(w.Trace.Jobs) == 0 {
		return nil, fmt.Errorf("%s: there are no jobs", cmp.Or(o.trace, w.Name))
	}
	if o.weights != "" {
		if w.Weights, err = readFile(o.weights, readWeights); err != nil {
			return nil, err
		}
		return w, w.checkTenants(o.weights)
	}
	w.Weights = make(map[lockstep.TenantID]int64)
	for i, t := range w.Trace.Tenants() {
		w.Weights[t] = 1
		if o.trace == "" {
			w.Weights[t] = synthWeights[i%len(synthWeights)]
		}
	}
	return w, nil
}

// checkTenants names the tenants of the trace that have no weight.
func (w *workload) checkTenants(path string) error {
	var missing []string
	for _, t := range w.Trace.Tenants() {
		if _, ok := w.Weights[t]; !ok {
			missing = append(missing, strconv.Quote(string(t)))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: the trace has tenants without a weight: %s", path, strings.Join(missing, ", "))
	}
	return nil
}

// jobs are those of the trace, as a simulation of its own takes them: they know
// how long they run and may be stopped at a cost.
func (w *workload) jobs(o *options) []sim.Job {
	jobs := make([]sim.Job, len(w.Trace.Jobs))
	for i := range w.Trace.Jobs {
		j := &w.Trace.Jobs[i]
		g := j.Gang(o.perNode)
		g.Capabilities = lockstep.Capabilities{Preemptible: true, Save: o.save, Restore: o.restore}
		jobs[i] = sim.Job{Gang: g, Submit: j.Submit, Duration: j.Duration}
	}
	return jobs
}

// readFile reads a file, unpacking it where it is gzip, whatever its name.
func readFile[T any](path string, read func(*bufio.Reader) (T, error)) (t T, err error) {
	f, err := os.Open(path)
	if err != nil {
		if wd, e := os.Getwd(); e == nil && errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w (looked for from %s)", err, wd)
		}
		return t, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	if magic, _ := r.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(r)
		if err != nil {
			return t, fmt.Errorf("%s: %w", path, err)
		}
		r = bufio.NewReader(z)
	}
	if t, err = read(r); err != nil {
		return t, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func readTrace(r *bufio.Reader, format string) (*trace.Trace, error) {
	if format == formatAuto {
		format = guess(r)
	}
	switch format {
	case formatPhilly:
		return trace.ReadPhilly(r)
	case formatHelios:
		return trace.ReadHelios(r)
	}
	return trace.ReadCSV(r)
}

// guess tells the form of a trace by how it begins.
func guess(r *bufio.Reader) string {
	head, _ := r.Peek(512)
	head = bytes.TrimSpace(bytes.TrimPrefix(head, []byte("\ufeff")))
	if bytes.HasPrefix(head, []byte("[")) {
		return formatPhilly
	}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	if columns := strings.Split(strings.TrimSpace(string(line)), ","); slices.Contains(columns, "vc") {
		return formatHelios
	}
	return formatCSV
}

// readWeights reads rows of a tenant and its weight, in either order of columns.
func readWeights(r *bufio.Reader) (map[lockstep.TenantID]int64, error) {
	rows := csv.NewReader(r)
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("line 1: the file is empty: want the header tenant,weight")
	} else if err != nil {
		return nil, err
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	tenant, weight := slices.Index(header, "tenant"), slices.Index(header, "weight")
	if tenant < 0 || weight < 0 {
		return nil, fmt.Errorf("line 1: header %q: want tenant,weight", strings.Join(header, ","))
	}
	weights := make(map[lockstep.TenantID]int64)
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return weights, nil
		} else if err != nil {
			return nil, err // names the line
		}
		line, _ := rows.FieldPos(0)
		id := lockstep.TenantID(row[tenant])
		if err := id.Validate(); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if _, twice := weights[id]; twice {
			return nil, fmt.Errorf("line %d: tenant %q occurs twice", line, id)
		}
		if weights[id], err = strconv.ParseInt(row[weight], 10, 64); err != nil || weights[id] < 0 || weights[id] > fairness.MaxWeight {
			return nil, fmt.Errorf("line %d: weight %q of %q: want a whole number, 0 to %d", line, row[weight], id, int64(fairness.MaxWeight))
		}
	}
}

// share returns the part of the cluster that the weight of t is.
func (w *workload) share(t lockstep.TenantID) float64 {
	var sum int64
	for _, x := range w.Weights { // order: a sum
		sum += x
	}
	return float64(w.Weights[t]) / float64(cmp.Or(sum, 1))
}
