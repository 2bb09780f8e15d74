package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/reconfig"
)

// output runs the command.
func output(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(args, &out))
	return out.String()
}

func TestPlanIsAtLeastAsGoodAsTheAlternatives(t *testing.T) {
	for _, args := range [][]string{nil, {"-dead", "n0g1"}, {"-slow", "n3g2=0.6"}, {"-dead", "n1"}, {"-dead", "n0g0", "-dead", "n3g7"}} {
		o, err := parse(args, io.Discard)
		require.NoError(t, err)
		s := builtin()
		if args != nil {
			s.Dead, s.Slow = o.dead, o.slow
		}
		r, err := replan(s)
		require.NoError(t, err)
		for _, c := range r.choices {
			if c.why == "" {
				require.LessOrEqual(t, r.new.Estimate.Iteration, c.estimate.Iteration, "%v: %s", args, c.name)
			}
		}
		require.GreaterOrEqual(t, r.new.Estimate.Iteration, r.new.Estimate.Fluid)
	}
}

func TestOutputTellsWhatChanged(t *testing.T) {
	out := output(t)
	for _, want := range []string{"down: n1g2", "slow: n2g5, 0.5", "was layers", "healthy", "go on as before: the job stands still", "this plan", "GB stays where it is", "digest"} {
		require.Contains(t, out, want)
	}
	require.NotRegexp(t, regexp.MustCompile(`on [^\n]*n1g2[^\n]*was`), out, "the dead device has no role")
	require.Equal(t, out, output(t), "the same every time")
}

func TestHealthyJobStaysAsItIs(t *testing.T) {
	s := builtin()
	s.Dead, s.Slow = nil, nil
	r, err := replan(s)
	require.NoError(t, err)
	require.Same(t, r.old, r.new)
	require.Zero(t, r.moves.Traffic)
}

func TestScenarioIsReadBack(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s.json")
	require.NoError(t, os.WriteFile(name, []byte(output(t, "-json")), 0o644))
	require.Equal(t, output(t), output(t, "-f", name))
	require.Equal(t, output(t, "-dead", "n0"), output(t, "-f", name, "-dead", "n0"))
}

func TestPictureIsAnImageOfBothPlans(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out.svg")
	output(t, "-svg", name)
	svg, err := os.ReadFile(name)
	require.NoError(t, err)
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
	require.Contains(t, string(svg), "before: a step")
	require.Contains(t, string(svg), "after: a step")
	require.Greater(t, strings.Count(string(svg), "<rect"), 4*32*2*2)
}

func TestWithoutDevicesThereIsNoPlan(t *testing.T) {
	var out bytes.Buffer
	err := run([]string{"-dead", "n0", "-dead", "n1", "-dead", "n2", "-dead", "n3"}, &out)
	require.ErrorIs(t, err, reconfig.ErrInfeasible)
}

func TestBadInputIsNamed(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	require.NoError(t, os.WriteFile(bad, []byte(`{"colour": 1}`), 0o644))
	empty := filepath.Join(t.TempDir(), "empty.json")
	require.NoError(t, os.WriteFile(empty, []byte(`{}`), 0o644))
	more := filepath.Join(t.TempDir(), "more.json")
	require.NoError(t, os.WriteFile(more, []byte(output(t, "-json")+"}"), 0o644))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-f", more}, "after the object"},
		{[]string{"-dead", "n9"}, `"n9"`},
		{[]string{"-slow", "n0g0"}, "DEVICE=SPEED"},
		{[]string{"-slow", "n0g0=2"}, "Speed"},
		{[]string{"-slow", "n0g0=NaN"}, "Speed"},
		{[]string{"surplus"}, "surplus"},
		{[]string{"-f", bad}, "colour"},
		{[]string{"-f", empty}, "no devices"},
		{[]string{"-f", bad + "x"}, "no such file"},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(tt.args, &out), tt.want)
	}
}
