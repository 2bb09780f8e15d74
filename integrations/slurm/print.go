package slurm

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/slurm"
)

// WriteText writes r as a table for people. Its form may change.
func (r *Report) WriteText(w io.Writer) error {
	b := &printer{w: w}
	b.printf("%s  rule %s  nodes %d (%d open)  devices %d  running %d  waiting %d  changes %d\n\n",
		r.Now.Format(time.RFC3339), ruleName(r.Rule), r.Nodes, r.Open, r.Devices, r.Running, len(r.Rows), len(r.Changes()))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	line := func(cells ...string) {
		for i := range cells {
			cells[i] = printable(cells[i]) // what users named must not add lines
		}
		_, _ = io.WriteString(t, strings.Join(cells, "\t")+"\n") // the printer keeps the error
	}
	line("TURN", "JOB", "USER", "ACCOUNT", "GPUS", "NODES", "LIMIT", "PRIORITY", "NEW", "START", "SLURM SAYS", "WHERE", "REASON")
	for i := range r.Rows {
		line(r.Rows[i].cells(r.Now)...)
	}
	_ = t.Flush()
	for i := range r.Tenants {
		s := &r.Tenants[i]
		if i == 0 {
			b.printf("\nTENANT  WEIGHT  HOLDS  SHARE  OWED (GPU-hours)\n")
		}
		b.printf("%s  %d  %s  %s  %.2f\n", dash(string(s.Tenant)), s.Weight, s.Held, s.Share, s.Lag().GPUSeconds()/3600)
	}
	for i := range r.Rows {
		if e := r.Rows[i].Explanation; e != nil {
			b.printf("\njob %s: %s\n", r.Rows[i].Job, strings.TrimRight(e.String(), "\n"))
		}
	}
	for i, f := range r.Faults {
		if i == 0 {
			b.printf("\nleft out or mended:\n")
		}
		b.printf("  %s\n", printable(f.Error()))
	}
	return b.err
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) Write(data []byte) (int, error) {
	if p.err == nil {
		_, p.err = p.w.Write(data)
	}
	return len(data), nil
}

func (p *printer) printf(format string, args ...any) { _, _ = fmt.Fprintf(p, format, args...) }

func ruleName(r Rule) string {
	if r == LTGF {
		return "ltgf"
	}
	return string(r)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (w *Row) cells(now time.Time) []string {
	job, limit, turn, to, why := w.Job, "-", "-", "", string(w.Reason)
	if w.Tasks > 1 {
		job += "[" + strconv.Itoa(w.Tasks) + "]"
	}
	if w.Limit > 0 {
		limit = w.Limit.String()
	}
	if w.Turn > 0 {
		turn = strconv.Itoa(w.Turn)
	}
	if w.Priority != 0 && w.Priority != w.Current {
		to = strconv.FormatUint(uint64(w.Priority), 10)
	}
	if w.Detail != "" {
		why += " (" + w.Detail + ")"
	}
	return []string{
		turn, job, dash(w.User), dash(w.Account), strconv.FormatInt(w.Devices, 10), strconv.Itoa(w.MinNodes), limit,
		strconv.FormatUint(uint64(w.Current), 10), dash(to), when(w.Start, now), when(w.Expected, now), dash(w.where()), dash(why),
	}
}

// where is the nodes of a row as a host list.
func (w *Row) where() string {
	names := make([]string, len(w.On))
	for i, n := range w.On {
		names[i] = string(n)
	}
	return slurm.Fold(names)
}

// when is t as seen from now.
func when(t, now time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case !t.After(now):
		return "now"
	}
	return "+" + t.Sub(now).Round(time.Second).String()
}

// jsonReport is the form of a Report on the wire.
type jsonReport struct {
	Now     time.Time    `json:"now"`
	Rule    string       `json:"rule"`
	Horizon string       `json:"horizon"`
	Nodes   int          `json:"nodes"`
	Open    int          `json:"open"`
	Devices int          `json:"devices"`
	Running int          `json:"running"`
	Jobs    []jsonRow    `json:"jobs"`
	Tenants []jsonTenant `json:"tenants,omitempty"`
	Faults  []string     `json:"faults,omitempty"`
}

type jsonRow struct {
	ID          uint32                `json:"id"`
	Job         string                `json:"job"`
	Name        string                `json:"name,omitempty"`
	User        string                `json:"user,omitempty"`
	Account     string                `json:"account,omitempty"`
	Partition   string                `json:"partition,omitempty"`
	Turn        int                   `json:"turn,omitempty"`
	Start       time.Time             `json:"start,omitzero"`
	Last        time.Time             `json:"last,omitzero"`
	Planned     int                   `json:"planned"`
	Tasks       int                   `json:"tasks"`
	Nodes       string                `json:"nodes,omitempty"`
	Expected    time.Time             `json:"expected,omitzero"`
	Reason      lockstep.Reason       `json:"reason,omitempty"`
	Detail      string                `json:"detail,omitempty"`
	Current     uint32                `json:"current"`
	Priority    uint32                `json:"priority,omitempty"`
	Explanation *lockstep.Explanation `json:"explanation,omitempty"`
}

type jsonTenant struct {
	Tenant lockstep.TenantID `json:"tenant"`
	Weight int64             `json:"weight"`
	Held   lockstep.MilliGPU `json:"held"`
	Share  lockstep.MilliGPU `json:"share"`
	Owed   lockstep.GPUTime  `json:"owed"`
}

// WriteJSON writes r as one JSON object: now, rule, horizon, nodes, open, devices, running, faults as texts, tenants
// with what they are owed in MilliGPU-nanoseconds, and jobs by turn, with the names of Row in lower case.
func (r *Report) WriteJSON(w io.Writer) error {
	out := jsonReport{
		Now: r.Now, Rule: ruleName(r.Rule), Horizon: r.Horizon.String(), Nodes: r.Nodes, Open: r.Open, Devices: r.Devices,
		Running: r.Running, Jobs: make([]jsonRow, 0, len(r.Rows)),
	}
	for i := range r.Rows {
		s := &r.Rows[i]
		out.Jobs = append(out.Jobs, jsonRow{
			ID: s.ID, Job: s.Job, Name: s.Name, User: s.User, Account: s.Account, Partition: s.Partition, Turn: s.Turn, Start: s.Start,
			Last: s.Last, Planned: s.Planned, Tasks: s.Tasks, Nodes: s.where(), Expected: s.Expected, Reason: s.Reason, Detail: s.Detail,
			Current: s.Current, Priority: s.Priority, Explanation: s.Explanation,
		})
	}
	for i := range r.Tenants {
		s := &r.Tenants[i]
		out.Tenants = append(out.Tenants, jsonTenant{Tenant: s.Tenant, Weight: s.Weight, Held: s.Held, Share: s.Share, Owed: s.Lag()})
	}
	for _, f := range r.Faults {
		out.Faults = append(out.Faults, f.Error())
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
