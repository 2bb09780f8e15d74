package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep/detect"
	"github.com/lockstep-gpu/lockstep/detect/signal"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// job is the line that describes the job.
type job struct {
	Stages   int           `json:"stages"`
	Micros   int           `json:"micros"`
	Replicas int           `json:"replicas"`
	Chunks   int           `json:"chunks,omitempty"`
	Schedule string        `json:"schedule,omitempty"`
	Rates    *detect.Rates `json:"rates,omitempty"`
}

// chunk is one measured piece of an iteration.
type chunk struct {
	Replica int     `json:"replica"`
	Stage   int     `json:"stage"`
	Part    int     `json:"part,omitempty"`
	Kind    string  `json:"kind"`
	Micro   *int    `json:"micro,omitempty"`
	Seconds float64 `json:"seconds"`
}

// record is the line of an iteration.
type record struct {
	Iteration       *uint64   `json:"iteration"`
	Seconds         float64   `json:"seconds,omitempty"`
	Documents       [][][]int `json:"documents,omitempty"`
	Chunks          []chunk   `json:"chunks,omitempty"`
	Layout          uint64    `json:"layout,omitempty"`
	Phase           string    `json:"phase,omitempty"`
	TokensPerSecond *float64  `json:"tokens_per_second,omitempty"`
	Loss            *float64  `json:"loss,omitempty"`
	GradNorm        *float64  `json:"grad_norm,omitempty"`
}

// maxLine is the longest line that is read.
const maxLine = 64 << 20

// log reads a training log line by line.
type log struct {
	lines *bufio.Scanner
	line  int
	batch string // global batch size of the last line of Megatron-LM
	shape uint64 // counts its changes
}

func newLog(r io.Reader) *log {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	return &log{lines: s}
}

// next returns the next iteration or description of the job, or io.EOF.
func (l *log) next() (*job, *record, error) {
	for l.lines.Scan() {
		l.line++
		text := strings.TrimSpace(l.lines.Text())
		if !strings.HasPrefix(text, "{") {
			if r := l.megatron(text); r != nil {
				return nil, r, nil
			}
			continue
		}
		r := new(record)
		if err := json.Unmarshal([]byte(text), r); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", l.line, err)
		}
		if r.Iteration != nil {
			return nil, r, nil
		}
		j, err := describe(text)
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", l.line, err)
		}
		return j, nil, nil
	}
	if err := l.lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("line %d: %w", l.line+1, err)
	}
	return nil, nil, io.EOF
}

// describe reads the description of a job. It takes no member that it does not know, since a misspelt one would be
// taken for its default.
func describe(text string) (*job, error) {
	j := new(job)
	if err := json.Unmarshal([]byte(text), j); err != nil {
		return nil, err
	}
	if j.Stages == 0 {
		return nil, errors.New("neither an iteration nor the description of a job")
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(new(job)); err != nil {
		return nil, err
	}
	if j.Stages < 0 {
		return nil, fmt.Errorf("stages %d: must be positive", j.Stages)
	}
	return j, nil
}

// What a line of Megatron-LM says. Immutable.
var (
	megatronStep = regexp.MustCompile(`\biteration\s+(\d+)\s*/\s*\d+`)
	megatronPart = regexp.MustCompile(`\|?\s*([^|:]+):\s*([^|]+?)\s*(?:\||$)`)
)

// megatron reads a line of Megatron-LM, or returns nil for another one.
func (l *log) megatron(text string) *record {
	step := megatronStep.FindStringSubmatchIndex(text)
	if step == nil {
		return nil
	}
	number, err := strconv.ParseUint(text[step[2]:step[3]], 10, 64)
	if err != nil {
		return nil
	}
	r := &record{Iteration: &number}
	for _, part := range megatronPart.FindAllStringSubmatch(text[step[1]:], -1) {
		name := strings.TrimSpace(part[1])
		value, err := strconv.ParseFloat(part[2], 64)
		switch {
		case err != nil:
		case name == "elapsed time per iteration (ms)":
			r.Seconds = value / 1000
		case name == "lm loss":
			r.Loss = &value
		case name == "grad norm":
			r.GradNorm = &value
		case name == "global batch size":
			if l.batch != part[2] {
				l.batch = part[2]
				l.shape++
			}
		}
	}
	r.Layout = l.shape
	if r.Seconds == 0 {
		return nil
	}
	return r
}

// config returns what the description of a job says to a Monitor.
func (j *job) config() (detect.Config, error) {
	cfg := detect.Config{Pipeline: pipeline.Config{Stages: j.Stages, Micros: j.Micros, Chunks: j.Chunks}, Replicas: j.Replicas}
	if j.Schedule != "" {
		if err := cfg.Pipeline.Schedule.UnmarshalText([]byte(j.Schedule)); err != nil {
			return cfg, err
		}
	}
	if j.Rates != nil {
		cfg.Rates = *j.Rates
	}
	return cfg, nil
}

// phases by name. Immutable.
var phases = map[string]detect.Phase{
	"": detect.Training, "training": detect.Training, "warming": detect.Warming, "saving": detect.Saving,
	"evaluating": detect.Evaluating, "resizing": detect.Resizing,
}

// kinds of chunks by name. Immutable.
var kinds = map[string]pipeline.Kind{"F": pipeline.Forward, "B": pipeline.Backward, "W": pipeline.Weight}

// iteration returns what a Monitor takes.
func (r *record) iteration() (*detect.Iteration, error) {
	it := &detect.Iteration{Number: *r.Iteration, Layout: r.Layout}
	var ok bool
	if it.Phase, ok = phases[r.Phase]; !ok {
		return nil, fmt.Errorf("phase %q is not known", r.Phase)
	}
	var err error
	if r.Seconds != 0 {
		if it.Took, err = seconds(r.Seconds); err != nil {
			return nil, err
		}
	}
	for d, micros := range r.Documents {
		var batches []perfmodel.Batch
		for m, lens := range micros {
			b, err := perfmodel.Mask{}.Batch(lens)
			if err != nil {
				return nil, fmt.Errorf("documents[%d][%d]: %w", d, m, err)
			}
			batches = append(batches, b)
		}
		it.Batches = append(it.Batches, batches)
	}
	for i, c := range r.Chunks {
		kind, ok := kinds[c.Kind]
		if !ok {
			return nil, fmt.Errorf("chunks[%d]: kind %q is not F, B or W", i, c.Kind)
		}
		out := detect.Chunk{Replica: c.Replica, Stage: c.Stage, Part: c.Part, Kind: kind, Micro: detect.AllMicros}
		if c.Micro != nil {
			out.Micro = *c.Micro
		}
		if out.Took, err = seconds(c.Seconds); err != nil {
			return nil, fmt.Errorf("chunks[%d]: %w", i, err)
		}
		it.Chunks = append(it.Chunks, out)
	}
	return it, nil
}

// reading returns what Signals take.
func (r *record) reading() signal.Reading {
	out := signal.Reading{TokensPerSecond: r.TokensPerSecond, Loss: r.Loss, GradNorm: r.GradNorm}
	if took, err := seconds(r.Seconds); err == nil {
		out.Step = &took
	}
	return out
}

// seconds returns a positive time of at most a century.
func seconds(s float64) (time.Duration, error) {
	const most = 100 * 365 * 24 * 3600
	if !(s > 0) || s > most {
		return 0, fmt.Errorf("%v seconds: must be positive and at most a century", s)
	}
	return max(1, time.Duration(math.Round(s*float64(time.Second)))), nil
}
