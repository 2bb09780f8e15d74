package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep/sim"
)

// pageTemplate is the report: one file with its style in it, no script, and
// nothing that is fetched from anywhere.
//
//go:embed report.tmpl
var pageTemplate string

// page is what the report shows.
type page struct {
	Themes   template.CSS
	Describe string
	Costs    string
	Findings []finding
	Table    table
	Sections []section
	Story    storyPage
}

// finding is a sentence with its first word set apart.
type finding struct{ Lead, Text string }

// section is a question with the plots that answer it.
type section struct {
	ID, Title, Text string
	Key             []layer  // areas
	Lines           []policy // lines
	Figures         []figure
}

// figure is a plot with its figures as a table.
type figure struct {
	Title string
	SVG   template.HTML
	Data  data
}

// data is a table whose first column names its rows.
type data struct {
	Head []string
	Rows [][]string
}

// storyPage is one job's way through the policies.
type storyPage struct {
	Title, Text string
	Policy      string
	Figure      figure
	Moments     []momentPage
}

// momentPage is an explanation in words.
type momentPage struct {
	Left              int // moments left out before it
	Time, After, What string
	Verdict           string
	Notes             []string
}

// report draws and writes the report, and returns where it is.
func (o *options) report(w *workload, outcomes []outcome, findings []string) (string, error) {
	story, err := o.tell(w, outcomes)
	if err != nil {
		return "", err
	}
	p, err := o.page(w, outcomes, findings, story)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	t, err := template.New("report").Parse(pageTemplate)
	if err != nil {
		return "", err
	}
	if err := t.Execute(&b, p); err != nil {
		return "", err
	}
	return o.write(b.Bytes())
}

// write writes the report to the file of -o, or among the temporary files: under
// a fixed name, or under a new one where that belongs to somebody else.
func (o *options) write(html []byte) (string, error) {
	if o.out != outDefault {
		path, err := filepath.Abs(o.out)
		if err != nil {
			return "", err
		}
		return path, os.WriteFile(path, html, 0o644)
	}
	f, err := os.CreateTemp("", "lockstep-report-*.html")
	if err != nil {
		return "", err
	}
	_, err = f.Write(html)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return "", err
	}
	if path := filepath.Join(os.TempDir(), "lockstep-report.html"); os.Rename(f.Name(), path) == nil {
		return path, nil
	}
	return f.Name(), nil
}

func (o *options) page(w *workload, outcomes []outcome, findings []string, story *story) (*page, error) {
	p := &page{
		Themes:   template.CSS(themes()), //nolint:gosec // constants
		Describe: o.describe(w), Costs: o.costs(), Table: newTable(outcomes),
	}
	for _, f := range findings {
		lead, text, _ := strings.Cut(f, ": ")
		p.Findings = append(p.Findings, finding{Lead: lead, Text: text})
	}
	a := timeAxis(outcomes)
	list := layers(w, outcomes[0].Result)
	for _, make := range []func() (section, error){
		func() (section, error) { return o.occupancySection(outcomes, list, a) },
		func() (section, error) { return serviceSection(outcomes) },
		func() (section, error) { return lagSection(outcomes, list, a) },
		func() (section, error) { return timesSection(outcomes) },
	} {
		s, err := make()
		if err != nil {
			return nil, err
		}
		p.Sections = append(p.Sections, s)
	}
	var err error
	p.Story, err = newStoryPage(w, story)
	return p, err
}

// beyond says that an axis is cut.
func (a *axis) beyond() string {
	if !a.cut {
		return ""
	}
	return " The axis ends a fifth after the median run; slower policies go on beyond it."
}

func (o *options) occupancySection(outcomes []outcome, list []layer, a axis) (section, error) {
	s := section{
		ID: "occupancy", Title: "Who held the GPUs?", Key: list,
		Text: fmt.Sprintf("GPUs held by each tenant, stacked, out of %d. What is empty above the stack is idle.", o.nodes*o.perNode) + a.beyond(),
	}
	for i := range outcomes {
		x := &outcomes[i]
		svg, err := plotOccupancy(x, list, a)
		if err != nil {
			return s, err
		}
		const rows = 12
		d := data{Head: []string{strings.TrimSuffix(a.label, " since the trace began")}}
		for l := range list {
			d.Head = append(d.Head, list[l].Name)
		}
		d.Head = append(d.Head, "all")
		means := occupancy(&x.Series, list, time.Duration(a.end*float64(a.unit)), rows)
		for r := range rows {
			row := []string{fmt.Sprintf("%.2f to %.2f", a.end*float64(r)/rows, a.end*float64(r+1)/rows)}
			all := 0.0
			for l := range list {
				row = append(row, strconv.FormatFloat(means[l][r], 'f', 1, 64))
				all += means[l][r]
			}
			d.Rows = append(d.Rows, append(row, strconv.FormatFloat(all, 'f', 1, 64)))
		}
		s.Figures = append(s.Figures, figure{Title: x.Title, SVG: svg, Data: d})
	}
	return s, nil
}

func serviceSection(outcomes []outcome) (section, error) {
	s := section{
		ID: "service", Title: "Did tenants get what they were entitled to?",
		Text: "A ring is what a tenant was entitled to, max-min fair by weight, over the time in which it asked for GPUs; a dot is what it got; the figure is their ratio, and on this logarithmic axis the same distance is the same ratio. Who has to wait longer is entitled to more meanwhile.",
	}
	least, most := math.Inf(1), 1.0
	for i := range outcomes {
		for k := range outcomes[i].Tenants {
			t := &outcomes[i].Tenants[k]
			for _, v := range []float64{gpuHours(t.Entitlement), gpuHours(t.Service)} {
				most = max(most, v)
				if v > 0 {
					least = min(least, v)
				}
			}
		}
	}
	for i := range outcomes {
		x := &outcomes[i]
		svg, err := plotService(x, max(min(least, most), most/1e5), most)
		if err != nil {
			return s, err
		}
		d := data{Head: []string{"tenant", "weight", "jobs", "entitled, GPU-h", "got, GPU-h", "ratio", "most owed, GPU-h"}}
		for k := range x.Tenants {
			t := &x.Tenants[k]
			d.Rows = append(d.Rows, []string{
				string(t.ID), count(float64(t.Weight)), count(float64(t.Jobs)), amount(gpuHours(t.Entitlement)),
				amount(gpuHours(t.Service)), three(t.Index), amount(gpuHours(t.MaxLag)),
			})
		}
		s.Figures = append(s.Figures, figure{Title: x.Title, SVG: svg, Data: d})
	}
	return s, nil
}

func lagSection(outcomes []outcome, list []layer, a axis) (section, error) {
	s := section{
		ID: "lag", Title: "How much was owed, and when?",
		Text: "Entitlement less service, a line for each tenant, on one scale: above zero a tenant is owed, below it is ahead. The two furthest from zero are named. The table at the top counts only while two or more tenants had jobs that waited." + a.beyond(),
	}
	lo, hi, cut := lagRange(outcomes, a)
	if cut {
		s.Text += " The scale is that of the second worst policy; lines beyond it run along the edge."
	}
	for i := range outcomes {
		x := &outcomes[i]
		svg, err := plotLag(x, list, a, lo, hi)
		if err != nil {
			return s, err
		}
		d := data{Head: []string{strings.TrimSuffix(a.label, " since the trace began")}}
		for k := range x.Tenants {
			d.Head = append(d.Head, string(x.Tenants[k].ID))
		}
		samples := x.Series.Samples
		every := max(len(samples)/12, 1)
		for k := 0; k < len(samples); k += every {
			row := []string{strconv.FormatFloat(a.of(samples[k].Time), 'f', 2, 64)}
			for t := range x.Tenants {
				row = append(row, amount((samples[k].Entitlement[t]-samples[k].Service[t])/3600))
			}
			d.Rows = append(d.Rows, row)
		}
		s.Figures = append(s.Figures, figure{Title: x.Title, SVG: svg, Data: d})
	}
	return s, nil
}

func policiesOf(outcomes []outcome) (list []policy) {
	for i := range outcomes {
		list = append(list, outcomes[i].policy)
	}
	return list
}

func timesSection(outcomes []outcome) (section, error) {
	s := section{
		ID: "times", Title: "How long did jobs take, and wait?",
		Lines: policiesOf(outcomes),
		Text:  "The part of all jobs that took no longer than a time; the axis is logarithmic. Times under a second are drawn at one second: a curve that begins high up is that of many jobs that did not wait at all.",
	}
	for _, f := range []struct {
		title, what, axis string
		of                func(*sim.Record) time.Duration
	}{
		{"Completion time", "completion time", "from submission to the end (log)", func(r *sim.Record) time.Duration { return r.End - r.Submit }},
		{"Wait", "wait", "time without GPUs (log)", func(r *sim.Record) time.Duration { return r.Wait }},
	} {
		list := curves(outcomes, f.of)
		svg, err := plotCDF(f.what, f.axis, list)
		if err != nil {
			return s, err
		}
		d := data{Head: []string{"jobs"}}
		for i := range list {
			d.Head = append(d.Head, list[i].Title)
		}
		for _, part := range []float64{0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1} {
			row := []string{percentWhole(part)}
			for i := range list {
				row = append(row, clock(list[i].at(part).Seconds()))
			}
			d.Rows = append(d.Rows, row)
		}
		s.Figures = append(s.Figures, figure{Title: f.title, SVG: svg, Data: d})
	}
	return s, nil
}

func newStoryPage(w *workload, t *story) (storyPage, error) {
	svg, err := plotTimeline(t)
	if err != nil {
		return storyPage{}, err
	}
	rec := t.Record
	p := storyPage{
		Title: "The story of job " + string(t.Job), Policy: t.Policy.Title,
		Text: fmt.Sprintf("Tenant %s (%s of the weight) submitted it at %s: %s for %s of work. Under %s it waited %s in all. Thin lines are waits; thick ones are times with GPUs.",
			rec.Tenant, percent(w.share(rec.Tenant)), dayClock(rec.Submit), gpuCount(rec.GPUs), clock(rec.Duration.Seconds()), t.Policy.Title, clock(rec.Wait.Seconds())),
		Figure: figure{Title: "The same job under each policy", SVG: svg, Data: data{
			Head: []string{"policy", "first start after", "waited", "held GPUs", "done after", "stopped", "leases extended"},
		}},
	}
	for i := range t.Ways {
		r := t.Ways[i].Record
		p.Figure.Data.Rows = append(p.Figure.Data.Rows, []string{
			t.Ways[i].Title, clock((r.Start - r.Submit).Seconds()), clock(r.Wait.Seconds()), clock(r.Held.Seconds()), clock((r.End - r.Submit).Seconds()),
			count(float64(r.Preemptions)), count(float64(r.Extensions)),
		})
	}
	for i, m := range t.Moments {
		lines := strings.Split(m.Explain.String(), "\n")
		x := momentPage{
			Time: dayClock(m.At), After: clock((m.At - rec.Submit).Seconds()), What: m.What,
			Verdict: strings.TrimPrefix(lines[0], string(t.Job)+": "),
		}
		if i == momentsFirst {
			x.Left = max(t.Left, 0)
		}
		for _, line := range lines[1:] {
			x.Notes = append(x.Notes, strings.TrimSpace(line))
		}
		p.Moments = append(p.Moments, x)
	}
	return p, nil
}
