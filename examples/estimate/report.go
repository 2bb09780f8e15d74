package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

// grouped writes a number with commas.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// gib writes an amount in GiB.
func gib(b lockstep.Bytes) string {
	return strconv.FormatFloat(float64(b)/float64(lockstep.GiB), 'f', 2, 64)
}

// gb writes an amount in decimal GB or MB, as traffic is sold.
func gb(b lockstep.Bytes) string {
	if b < 1e9 {
		return strconv.FormatFloat(float64(b)/1e6, 'f', 2, 64) + " MB"
	}
	return strconv.FormatFloat(float64(b)/1e9, 'f', 2, 64) + " GB"
}

// gpus writes a number of GPUs.
func gpus(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return strconv.Itoa(n) + " GPUs"
}

func short(d time.Duration) string {
	switch {
	case d > time.Second:
		return d.Round(time.Millisecond).String()
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.String()
}

func (b *bill) print(out io.Writer) error {
	var w bytes.Buffer
	b.head(&w)
	if b.Best == nil {
		b.refused(&w)
	} else {
		b.memory(&w, b.Best)
		b.wire(&w)
		b.time(&w)
		b.limits(&w)
	}
	_, err := out.Write(w.Bytes())
	return err
}

// head says what was asked.
func (b *bill) head(w io.Writer) {
	j := b.job
	m := j.model
	fmt.Fprintf(w, "Model    %s: %s parameters", j.title, grouped(m.Parameters(m.Whole())))
	if m.Experts > 0 {
		fmt.Fprintf(w, ", %s of them for a token", grouped(m.ActiveParameters(m.Whole())))
	}
	fmt.Fprintf(w, ", %d layers\n", m.Layers)
	p := j.layout.Precision
	each := p.Weight + p.Gradient + p.Optimizer + p.Master
	fmt.Fprintf(w, "States   %s: %d + %d + %d + %d bytes for weight, gradient, moments, copy; alone on a device %s\n", j.precision,
		p.Weight, p.Gradient, p.Optimizer, p.Master, gb(lockstep.Bytes(m.Parameters(m.Whole())).Mul(int64(each))))
	fmt.Fprintf(w, "Step     %d sequences of %d tokens, %d in a micro-batch, recompute %v, schedule %v\n", j.batch, j.seq, j.micro, j.recompute, j.schedule)
	fmt.Fprintf(w, "Device   %s GiB, of which %s GiB (%g) are to stay free, in nodes of %d\n", gib(j.memory), gib(j.reserve), j.headroom, j.node)
}

// refused says why nothing fits.
func (b *bill) refused(w io.Writer) {
	p := b.Close
	fmt.Fprintf(w, "\nNothing fits. Nearest, on %s:\n", gpus(p.GPUs))
	b.memory(w, p)
	fmt.Fprintf(w, "\nLimit    %s\n", b.miss(p))
	b.levers(w)
}

// miss says by how much a plan does not fit, and what fills it.
func (b *bill) miss(p *plan) string {
	at, most := p.fullest()
	name, bytes := largest(p.Stages[at].Memory)
	return fmt.Sprintf("%s: stage %d needs %s GiB with the headroom, %s more than the device has; most of it %s (%s GiB)",
		describe(p), at, gib(most), gib(most-b.job.memory), name, gib(bytes))
}

// largest returns the line that takes the most, without context and reserve.
func largest(m perfmodel.Memory) (string, lockstep.Bytes) {
	m.Context, m.Reserve = 0, 0
	var name string
	var most lockstep.Bytes
	for line, bytes := range m.Lines() {
		if bytes > most {
			name, most = line, bytes
		}
	}
	return name, most
}

func describe(p *plan) string {
	l := p.Layout
	text := fmt.Sprintf("%s as TP %d x PP %d x DP %d", gpus(p.GPUs), l.TP, l.PP, l.DP)
	if l.EP > 1 {
		text += fmt.Sprintf(" (EP %d)", l.EP)
	}
	return text + fmt.Sprintf(", ZeRO %d", l.ZeRO)
}

// memory prints the account of each stage; stages that are alike share a column.
func (b *bill) memory(w io.Writer, p *plan) {
	fmt.Fprintf(w, "\nLayout   %s, %d micro-batches a replica\n\nMemory of one GPU, GiB:\n", describe(p), p.Micros)
	columns := p.columns()
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, cell func(c column) string) {
		fmt.Fprintf(t, "%s\t", name)
		for _, c := range columns {
			fmt.Fprintf(t, "%s\t", cell(c))
		}
		fmt.Fprintln(t)
	}
	row("stage", func(c column) string {
		if c.from == c.to {
			return strconv.Itoa(c.from)
		}
		return fmt.Sprintf("%d to %d", c.from, c.to)
	})
	row("layers", func(c column) string { return strconv.Itoa(c.stage.Layers) })
	row("in flight", func(c column) string { return strconv.Itoa(c.stage.InFlight) })
	for name := range p.Stages[0].Memory.Lines() {
		var sum lockstep.Bytes
		for _, s := range p.Stages {
			sum = sum.Add(line(s.Memory, name))
		}
		if sum != 0 {
			row(name, func(c column) string { return gib(line(c.stage.Memory, name)) })
		}
	}
	row("total", func(c column) string { return gib(c.stage.Total) })
	row("left", func(c column) string { return gib(b.job.memory - c.stage.Total) })
	t.Flush()
	shown := 0
	for _, c := range columns {
		shown += c.to - c.from + 1
	}
	if n := len(p.Stages) - shown; n > 0 {
		fmt.Fprintf(w, "%d stages that lie between these are not shown; -json has all\n", n)
	}
}

// line returns a line of an account by its name.
func line(m perfmodel.Memory, name string) (b lockstep.Bytes) {
	for at, v := range m.Lines() {
		if at == name {
			b = v
		}
	}
	return b
}

// column is a run of stages that are alike.
type column struct {
	from, to int
	stage    stage
}

// maxColumns is how many columns a page has room for.
const maxColumns = 8

// columns returns the stages to show: all, or the first ones, the fullest and the last ones.
func (p *plan) columns() []column {
	var all []column
	full := 0
	most, _ := p.fullest()
	for i, s := range p.Stages {
		if n := len(all); n > 0 && all[n-1].stage == s {
			all[n-1].to = i
		} else {
			all = append(all, column{i, i, s})
		}
		if i == most {
			full = len(all) - 1
		}
	}
	if len(all) <= maxColumns {
		return all
	}
	const half = maxColumns / 2
	some := append([]column(nil), all[:half]...)
	if full >= half && full < len(all)-half {
		some = append(some, all[full])
	}
	return append(some, all[len(all)-half:]...)
}

// wire prints what a GPU of the busiest stage sends in a step.
func (b *bill) wire(w io.Writer) {
	s := b.Best.Step
	if len(s.Wire) == 0 {
		fmt.Fprint(w, "\nOn the wire: nothing\n")
		return
	}
	fmt.Fprintf(w, "\nOn the wire, each GPU of stage %d, a step:\n", s.Stage)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "dimension\tcollective\tranks\ttimes\tmessage\tsent\talgorithm\ttime\t")
	var sent lockstep.Bytes
	for _, x := range s.Wire {
		if x.Op == perfmodel.PointToPoint {
			x.Algorithm = "" // there is only one way
		}
		fmt.Fprintf(t, "%v\t%v\t%d\t%d\t%s\t%s\t%s\t%s\t\n", x.Dimension, x.Op, x.Ranks, x.Times, gb(x.Size), gb(x.Sent), x.Algorithm, short(x.Took))
		sent = sent.Add(x.Sent)
	}
	fmt.Fprintf(t, "all\t\t\t\t\t%s\t\t\t\n", gb(sent))
	t.Flush()
}

// time prints where a step goes.
func (b *bill) time(w io.Writer) {
	s := b.Best.Step
	j := b.job
	fmt.Fprintf(w, "\nStep     %s at %g TFLOP/s a GPU with nothing overlapped: %.0f tokens a second\n", short(s.Total), j.tflops,
		float64(j.batch)*float64(j.seq)/s.Total.Seconds())
	for _, part := range s.parts() {
		fmt.Fprintf(w, "         %5.1f%% %s\n", 100*part.took.Seconds()/s.Total.Seconds(), part.name)
	}
}

// part is a share of a step.
type part struct {
	name string
	took time.Duration
}

func (s *step) parts() []part {
	return []part{
		{"compute", s.Compute},
		{"tensor and expert collectives", s.Exchange},
		{"pipeline bubble and transfers", s.Bubble},
		{"gradients and weights among replicas", s.Sync},
	}
}

// limits says what keeps the job from fewer GPUs and from a shorter step.
func (b *bill) limits(w io.Writer) {
	p := b.Best
	at, most := p.fullest()
	name, bytes := largest(p.Stages[at].Memory)
	fmt.Fprintf(w, "\nLimits   memory: stage %d has %s GiB left beyond the headroom; most of it is %s (%s GiB)\n", at, gib(b.job.memory-most), name, gib(bytes))
	if b.Close != nil {
		fmt.Fprintf(w, "         fewer: %s\n", b.miss(b.Close))
	}
	worst := part{}
	for _, x := range p.Step.parts() {
		if x.took > worst.took {
			worst = x
		}
	}
	fmt.Fprintf(w, "         time: %s\n", worst.name)
	b.levers(w)
}

func (b *bill) levers(w io.Writer) {
	for _, x := range b.Wider {
		fmt.Fprintf(w, "         with %s: %s\n", x.Setting, gpus(x.GPUs))
	}
}

func (b *bill) printJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Model    perfmodel.Model `json:"model"`
		Schedule string          `json:"schedule"`
		Device   lockstep.Bytes  `json:"device"`
		Reserve  lockstep.Bytes  `json:"reserve"`
		Best     *plan           `json:"best"`
		Nearest  *plan           `json:"nearest,omitempty"`
		Wider    []wider         `json:"wider,omitempty"`
	}{b.job.model, b.job.schedule.String(), b.job.memory, b.job.reserve, b.Best, b.Close, b.Wider})
}
