package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// output runs the command.
func output(t *testing.T, in string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(args, strings.NewReader(in), &out))
	return out.String()
}

func TestMadeUpFaultIsFoundAndItsEnd(t *testing.T) {
	out := output(t, "")
	require.Regexp(t, `(?m)^ +15\d  ALARM hardware, since iteration 1[45]\d`, out)
	require.Regexp(t, `ALARM .*\n +replica 1 stage 2: 1\.[12]\d times`, out)
	require.Regexp(t, `(?m)^ +2[5-9]\d  the slowdown is over`, out)
	require.Contains(t, out, " 1 alarms")
}

func TestOtherPlacesAreNamedAsWell(t *testing.T) {
	out := output(t, "", "-replica", "0", "-stage", "3", "-factor", "1.5", "-last", "1000", "-seed", "7")
	require.Contains(t, out, "replica 0 stage 3: 1.")
	require.Contains(t, out, "at the end slow")
}

func TestHealthyJobRaisesNoAlarm(t *testing.T) {
	for _, seed := range []string{"1", "2", "3"} {
		out := output(t, "", "-factor", "1", "-seed", seed)
		require.Contains(t, out, " 0 alarms")
		require.NotContains(t, out, "usual range")
	}
}

func TestWithTimesOnlyItAsksForMeasurements(t *testing.T) {
	out := output(t, "", "-times-only", "-factor", "3", "-last", "1000")
	require.Contains(t, out, "ALARM")
	require.Contains(t, out, "to find out where: ")
}

func TestDemoLogIsReadBack(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log.jsonl")
	require.Empty(t, output(t, "", "-demo", name))
	direct := output(t, "")
	_, direct, _ = strings.Cut(direct, "\n") // the line about the made up job
	require.Equal(t, direct, output(t, "", "-f", name))
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, direct, output(t, string(data), "-f", "-"))
}

func TestMegatronLinesAreRead(t *testing.T) {
	var b strings.Builder
	b.WriteString("> building train, validation, and test datasets ...\n")
	for i := 1; i <= 200; i++ {
		ms := 4300 + float64(i%7)
		if i >= 120 {
			ms *= 1.5
		}
		fmt.Fprintf(&b, " [2026-01-01 00:00:00] iteration %8d/     500 | consumed samples: %12d | elapsed time per iteration (ms): %.1f"+
			" | learning rate: 1.000E-04 | global batch size:   256 | lm loss: 2.1%dE+00 | loss scale: 1.0 | grad norm: 0.9 |\n", i, 256*i, ms, i%10)
	}
	out := output(t, b.String(), "-f", "-")
	require.Regexp(t, `(?m)^ +12\d  ALARM .*since iteration 1[12]\d`, out)
	require.Contains(t, out, " 1 alarms")

	bigger := strings.ReplaceAll(b.String(), "global batch size:   256", "global batch size:   512")
	grown := b.String()[:strings.Index(b.String(), " [2026-01-01 00:00:00] iteration      100/")] +
		bigger[strings.Index(bigger, " [2026-01-01 00:00:00] iteration      120/"):]
	out = output(t, grown, "-f", "-")
	require.Contains(t, out, "the layout changed")
	require.Contains(t, out, " 0 alarms")
}

func TestPictureShowsTheAlarm(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out.svg")
	output(t, "", "-plot", name)
	svg, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Contains(t, string(svg), "<svg")
	require.Contains(t, string(svg), "alarm")
	var out bytes.Buffer
	require.ErrorContains(t, run([]string{"-iterations", "2", "-plot", name}, nil, &out), "nothing to draw")
}

func TestBadLinesAreNamed(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{"iteration": 1, "seconds": "fast"}`, `^line 1: `},
		{`{"stages": 4, "micros": 8, "replicas": 2, "schedule": "2F2B"}`, `^line 1: .*2F2B`},
		{`{"stages": -1}`, `^line 1: stages -1`},
		{`{"stages": 4, "micro": 8}`, `^line 1: .*"micro"`},
		{`{"stages": 4, "micros": 8, "rates": {"speed": 1}}`, `^line 1: .*"speed"`},
		{`{"stages": 4, "micros": 8`, `^line 1: `},
		{`{"colour": 4}`, `^line 1: neither an iteration nor the description`},
		{`{"iteration": 1}`, `^line 1: `},
		{`{"iteration": 1, "seconds": -1}`, `^line 1: -1 seconds`},
		{`{"iteration": 1, "seconds": 1e300}`, `^line 1: 1e\+300 seconds`},
		{"{\"iteration\": 1, \"seconds\": 1}\n{\"iteration\": 2, \"seconds\": 1, \"phase\": \"lunch\"}", `^line 2: phase "lunch"`},
		{`{"iteration": 1, "seconds": 1, "documents": [[[]]]}`, `^line 1: documents\[0\]\[0\]`},
		{`{"iteration": 1, "chunks": [{"kind": "X", "seconds": 1}]}`, `^line 1: chunks\[0\]: kind "X"`},
		{`{"iteration": 1, "chunks": [{"kind": "F"}]}`, `^line 1: chunks\[0\]: 0 seconds`},
		{"{\"iteration\": 1, \"seconds\": 1}\n{\"stages\": 4, \"micros\": 8}", `^line 2: a second description`},
		{`{"stages": 1000000000, "micros": 1000000000}`, `^line 1: `},
	} {
		var out bytes.Buffer
		err := run([]string{"-f", "-"}, strings.NewReader(tt.in), &out)
		require.Error(t, err, tt.in)
		require.Regexp(t, regexp.MustCompile(tt.want), err.Error())
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-factor", "0.5"}, {"-factor", "NaN"}, {"-replica", "2"}, {"-stage", "-1"}, {"-iterations", "0"}, {"surplus"}, {"-f", "a", "-demo", "b"},
	} {
		var out bytes.Buffer
		require.Error(t, run(args, nil, &out), args)
	}
}
