package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sim"
)

// metric is a row of the comparison.
type metric struct {
	Name   string
	Help   string
	value  func(*outcome) float64
	format func(float64) string
	better int // +1 where more is better, -1 where less is, 0 where neither
}

// metrics are the rows of the comparison.
func metrics() []metric {
	return []metric{
		{"JCT mean", "from a job's submission to its end", func(x *outcome) float64 { return x.JCT.Mean.Seconds() }, clock, -1},
		{"JCT p50", "the median job", func(x *outcome) float64 { return x.JCT.P50.Seconds() }, clock, -1},
		{"JCT p99", "99 of 100 jobs take no longer", func(x *outcome) float64 { return x.JCT.P99.Seconds() }, clock, -1},
		{"wait mean", "the part of the JCT without GPUs", func(x *outcome) float64 { return x.Wait.Mean.Seconds() }, clock, -1},
		{"makespan", "from the first submission to the last end", func(x *outcome) float64 { return x.Makespan.Seconds() }, clock, -1},
		{"utilisation", "GPUs held, over the makespan", func(x *outcome) float64 { return x.Utilization }, percent, 1},
		{"fragmentation", "part of the free GPU-time that lay on nodes partly in use", func(x *outcome) float64 { return x.Fragmentation }, percent, -1},
		{"worst tenant index", "least service over entitlement of any tenant; 1 is fair", worstIndex, three, 1},
		{"max tenant lag, GPU-h", "the most that any tenant was owed at any time while two or more waited", func(x *outcome) float64 { return gpuHours(x.MaxLag) }, amount, -1},
		{"job rho min", "least service over entitlement of any job", func(x *outcome) float64 { return x.MinRho }, three, 1},
		{"job rho p1", "first percentile of the same", func(x *outcome) float64 { return x.P1Rho }, three, 1},
		{"preemptions", "how often a running job was told to stop: each is a checkpoint", func(x *outcome) float64 { return float64(x.Preemptions) }, count, 0},
		{"paid resumes", "starts that paid for a resume", func(x *outcome) float64 { return float64(x.Resumes) }, count, 0},
		{"  if always released", "the same, had every lease that ended been given back", released, count, 0},
		{"extended in place", "leases that ended and went on at no cost", func(x *outcome) float64 { return float64(x.Extensions) }, count, 0},
		{"overhead, GPU-h", "GPU-time that checkpoints and resumes took", func(x *outcome) float64 { return gpuHours(x.Overhead()) }, amount, 0},
		{"decisions/s of wall", "actions decided, over the wall time of the run with its simulator", (*outcome).decisions, count, 0},
	}
}

func worstIndex(x *outcome) float64 {
	worst := 1.0
	for i := range x.Tenants {
		worst = min(worst, x.Tenants[i].Index)
	}
	return worst
}

func released(x *outcome) float64 {
	if x.Released == nil {
		return math.NaN()
	}
	return float64(x.Released.Resumes)
}

func gpuHours(g lockstep.GPUTime) float64 { return g.GPUSeconds() / 3600 }

// table is the comparison in text: a row for each metric, a column for each policy.
type table struct {
	Head []string
	Rows []row
}

type row struct {
	Name, Help string
	Cells      []string
	Best       []bool
}

func newTable(outcomes []outcome) table {
	var t table
	for i := range outcomes {
		t.Head = append(t.Head, outcomes[i].Title)
	}
	for _, m := range metrics() {
		r := row{Name: m.Name, Help: m.Help}
		values := make([]float64, len(outcomes))
		for i := range outcomes {
			values[i] = m.value(&outcomes[i])
			r.Cells = append(r.Cells, m.format(values[i]))
		}
		if slices.IndexFunc(values, func(v float64) bool { return !math.IsNaN(v) }) < 0 {
			continue
		}
		best := slices.Min(values)
		if m.better > 0 {
			best = slices.Max(values)
		}
		same := 0
		for i := range values {
			// What reads alike is alike.
			r.Best = append(r.Best, m.better != 0 && r.Cells[i] == m.format(best))
			if r.Best[i] {
				same++
			}
		}
		if same == len(values) {
			clear(r.Best)
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// print writes t in aligned columns; a star marks the best of a row.
func (t *table) print(out io.Writer) error {
	first := 0
	widths := make([]int, len(t.Head))
	for _, r := range t.Rows {
		first = max(first, utf8.RuneCountInString(r.Name))
		for i, c := range r.Cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c), utf8.RuneCountInString(t.Head[i]))
		}
	}
	var b strings.Builder
	line := func(name string, cells []string, best []bool) {
		fmt.Fprintf(&b, "%-*s", first, name)
		for i, c := range cells {
			star := " "
			if best != nil && best[i] {
				star = "*"
			}
			fmt.Fprintf(&b, "  %*s%s", widths[i], c, star)
		}
		trimmed := strings.TrimRight(b.String(), " ")
		b.Reset()
		b.WriteString(trimmed + "\n")
	}
	line("", t.Head, nil)
	for _, r := range t.Rows {
		line(r.Name, r.Cells, r.Best)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// clock formats seconds as people read them: two units at the most.
func clock(s float64) string {
	if math.IsNaN(s) {
		return "-"
	}
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 0, 64) + "s"
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}

func percent(v float64) string { return strconv.FormatFloat(v*100, 'f', 1, 64) + "%" }

func three(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// amount formats a figure of which three digits are enough.
func amount(v float64) string {
	if math.Abs(v) < 100 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return count(v)
}

// count formats a whole number in groups of three digits; "-" is none.
func count(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	digits := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	var b strings.Builder
	if v < 0 && digits != "0" {
		b.WriteByte('-')
	}
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// worstTenant is the one that was owed most.
func worstTenant(r *sim.Result) *sim.Tenant {
	worst := &r.Tenants[0]
	for i := range r.Tenants {
		if t := &r.Tenants[i]; t.MaxLag.Cmp(worst.MaxLag) > 0 {
			worst = t
		}
	}
	return worst
}
