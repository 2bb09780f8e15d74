package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// update is whether golden files are written rather than compared.
// Immutable after flags are parsed.
var update = flag.Bool("update", false, "write golden files")

// tiny are the arguments of a run on a trace of six jobs.
func tiny(more ...string) []string {
	return append([]string{
		"-trace", filepath.Join("testdata", "tiny.csv"), "-weights", filepath.Join("testdata", "tiny_weights.csv"),
		"-nodes", "1", "-gpus-per-node", "4",
	}, more...)
}

func replayOf(t *testing.T, args ...string) (*options, *workload, []outcome) {
	t.Helper()
	o, err := parse(args, io.Discard)
	require.NoError(t, err)
	w, err := o.load()
	require.NoError(t, err)
	outcomes, err := o.replay(w, func(int) {})
	require.NoError(t, err)
	return &o, w, outcomes
}

func TestTinyTableIsGolden(t *testing.T) {
	_, w, outcomes := replayOf(t, tiny()...)
	table := newTable(outcomes)
	require.Equal(t, "decisions/s of wall", table.Rows[len(table.Rows)-1].Name)
	table.Rows = table.Rows[:len(table.Rows)-1] // which is of this machine
	var b bytes.Buffer
	require.NoError(t, table.print(&b))
	for _, f := range findings(w, outcomes) {
		b.WriteString("\n" + wrap(f, 100))
	}
	path := filepath.Join("testdata", "tiny.golden")
	if *update {
		require.NoError(t, os.WriteFile(path, append(b.Bytes(), '\n'), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String()+"\n")
}

func TestJSONIsTheSameForOneSeed(t *testing.T) {
	print := func(seed string) map[string]any {
		var b bytes.Buffer
		require.NoError(t, execute([]string{"-json", "-check", "-seed", seed, "-days", "0.5", "-nodes", "4"}, &b, io.Discard))
		var v map[string]any
		require.NoError(t, json.Unmarshal(b.Bytes(), &v))
		require.Contains(t, v, "wall")
		delete(v, "wall")
		return v
	}
	first := print("7")
	require.Equal(t, first, print("7"))
	require.NotEqual(t, first["policies"], print("8")["policies"])
	require.Len(t, first["policies"], 5)
	require.Empty(t, first["faults"])
}

func TestCheckFindsWhatDoesNotAddUp(t *testing.T) {
	_, w, outcomes := replayOf(t, tiny("-policies", "ltgf")...)
	lines, err := verifyAll(w, outcomes)
	require.NoError(t, err)
	require.Len(t, lines, 2, "with and without extension in place")

	r := outcomes[0].Result
	r.Records[0].Held++
	require.ErrorContains(t, verify(w, r), "job a1")
	r.Records[0].Held--
	r.Finished--
	require.ErrorContains(t, verify(w, r), "5 of 6 jobs completed")
	r.Finished++
	r.Checkpoint = r.Checkpoint.Add(r.Records[0].Service)
	require.ErrorContains(t, verify(w, r), "work and overhead")
}

func TestCheckFailsWhereJobsCannotRun(t *testing.T) {
	var b bytes.Buffer
	err := execute(tiny("-gpus-per-node", "2", "-policies", "fifo", "-o", outNone, "-check"), &b, io.Discard)
	require.ErrorContains(t, err, "check failed")
	require.Contains(t, b.String(), "5 of 6 jobs completed")
}

func TestReportStandsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	var out, errOut bytes.Buffer
	require.NoError(t, execute([]string{"-days", "1", "-nodes", "4", "-o", path}, &out, &errOut))
	require.Contains(t, out.String(), path)
	require.Empty(t, errOut.String(), "no progress bar without a terminal")
	html, err := os.ReadFile(path)
	require.NoError(t, err)
	page := string(html)

	require.NotRegexp(t, regexp.MustCompile(`(?i)https?://`), page, "nothing is fetched, nor named as if")
	require.NotRegexp(t, regexp.MustCompile(`(?i)<(script|link|img|iframe|object|embed)\b|@import|url\(|\b(src|href)=`), page)
	require.NotContains(t, page, "ZgotmplZ", "the template refused a value")
	wellFormed(t, page)

	svgs := strings.Count(page, "<svg viewBox")
	titles := strings.Count(page, `role="img"><title>`)
	hidden := strings.Count(page, `aria-hidden="true"`)
	require.Equal(t, svgs, titles+hidden, "every plot has a title")
	require.Equal(t, 5+5+5+2+1, titles)
	require.Equal(t, titles, strings.Count(page, "The figures as a table"), "every plot has a table")
	require.Contains(t, page, "prefers-color-scheme:dark")
	require.Contains(t, page, "submitted</b>")
	require.Contains(t, page, "finished</b>")
}

// wellFormed holds every element to be closed where it was opened.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Entity = xml.HTMLEntity
	ids := make(map[string]bool)
	for {
		token, err := d.Token()
		if err == io.EOF {
			return
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "id" {
					require.False(t, ids[a.Value], "id %q occurs twice", a.Value)
					ids[a.Value] = true
				}
			}
		}
	}
}

func TestReportGoesWhereItIsTold(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	require.NoError(t, execute(tiny("-policies", "fifo"), &out, io.Discard))
	require.Contains(t, out.String(), "report: "+filepath.Join(os.TempDir(), "lockstep-report.html"))
	require.NoError(t, os.Remove(filepath.Join(os.TempDir(), "lockstep-report.html")))

	out.Reset()
	require.NoError(t, execute(tiny("-policies", "fifo", "-o", outNone), &out, io.Discard))
	require.NoError(t, execute(tiny("-policies", "fifo", "-json"), io.Discard, io.Discard))
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "neither none nor -json leaves a file")
}

func TestStoryIsOfTheJobAskedFor(t *testing.T) {
	o, w, outcomes := replayOf(t, tiny("-policies", "fifo,ltgf", "-job", "b2")...)
	s, err := o.tell(w, outcomes)
	require.NoError(t, err)
	require.Equal(t, lockstep.JobID("b2"), s.Job)
	require.Equal(t, scheduler.LTGF, s.Policy.Rule)
	require.Len(t, s.Ways, 2)
	require.Equal(t, "submitted", s.Moments[0].What)
	last := s.Moments[len(s.Moments)-1]
	require.Equal(t, "finished", last.What)
	require.Equal(t, s.Record.End, last.At, "the run that is watched is the run that was measured")
	for _, way := range s.Ways {
		var waited, held int64
		for _, x := range way.Spans {
			if x.State == waiting {
				waited += int64(x.To - x.From)
			} else {
				held += int64(x.To - x.From)
			}
		}
		require.Equal(t, int64(way.Record.Wait), waited, way.Title)
		require.Equal(t, int64(way.Record.Held), held, way.Title)
	}

	o.job = "b3"
	_, err = o.tell(w, outcomes)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
}

// TestColoursAreLegible holds text to 4.5:1 and lines to 3:1, in both forms.
func TestColoursAreLegible(t *testing.T) {
	seen := make(map[string]bool)
	for _, k := range inks() {
		require.False(t, seen[k.Light] || seen[k.Name], "%s is not the only one", k.Name)
		seen[k.Light], seen[k.Name] = true, true
		want := 4.5
		switch k {
		case surface, grid: // no figure needs these to be seen
			continue
		case faint:
			want = 3
		}
		require.GreaterOrEqual(t, contrast(t, k.Light, surface.Light), want, k.Name)
		require.GreaterOrEqual(t, contrast(t, k.Dark, surface.Dark), want, k.Name)
	}
}

// contrast is that of WCAG 2.2.
func contrast(t *testing.T, a, b string) float64 {
	luminance := func(hex string) float64 {
		n, err := strconv.ParseUint(hex[1:], 16, 24)
		require.NoError(t, err)
		linear := func(shift int) float64 {
			v := float64(n>>shift&255) / 255
			if v <= 0.04045 {
				return v / 12.92
			}
			return math.Pow((v+0.055)/1.055, 2.4)
		}
		return 0.2126*linear(16) + 0.7152*linear(8) + 0.0722*linear(0)
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// TestPhillyComparison is the comparison that the README quotes.
func TestPhillyComparison(t *testing.T) {
	dir := os.Getenv("LOCKSTEP_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared")
	}
	path := filepath.Join(dir, "traces", "philly_sim3d_20171011.csv.gz")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s; LOCKSTEP_SHARED names the folder that holds traces", path)
	}
	if testing.Short() {
		t.Skip("left out with -short: a replay of some seconds")
	}
	_, w, outcomes := replayOf(t, "-trace", path, "-weights", filepath.Join(dir, "traces", "philly_weights.csv.gz"))
	_, err := verifyAll(w, outcomes)
	require.NoError(t, err, "all jobs complete, and the books add up")
	byFlag := make(map[string]*outcome)
	for i := range outcomes {
		byFlag[outcomes[i].Flag] = &outcomes[i]
	}
	fair := byFlag["ltgf"]
	for _, x := range outcomes {
		if x.Flag != "ltgf" {
			require.Negative(t, fair.MaxLag.Cmp(x.MaxLag), "LTGF owes less than %s", x.Title)
		}
	}
	require.LessOrEqual(t, fair.JCT.Mean.Seconds(), 1.05*byFlag["fifo"].JCT.Mean.Seconds())
	require.Less(t, fair.Resumes, fair.Released.Resumes)
	fmt.Printf("philly_sim3d: paid resumes under LTGF %d, with every lease released %d\n", fair.Resumes, fair.Released.Resumes)
}
