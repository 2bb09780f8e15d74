package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// newProgram is a program that prints to a buffer.
func newProgram(t *testing.T, args ...string) (*program, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	b, err := harness.New("sim", args, &out, nil)
	require.NoError(t, err)
	return &program{Bench: b, meter: newMeter(), jobs: leastJobs, parts: allParts(), waits: make(map[string]time.Duration)}, &out
}

func TestPartsRunInTheirOwnOrder(t *testing.T) {
	parts, err := choose("")
	require.NoError(t, err)
	require.Equal(t, allParts(), parts)
	parts, err = choose("ledger,life")
	require.NoError(t, err)
	require.Equal(t, []string{partLife, partLedger}, parts)
	for _, list := range []string{"lives", "life,", "life,,speed", " life"} {
		_, err := choose(list)
		require.ErrorContains(t, err, "is none of", list)
	}
}

func TestHowManyJobs(t *testing.T) {
	for _, tc := range []struct {
		jobs  int
		quick bool
		want  int // 0 is refused
	}{
		{0, false, defaultJobs},
		{0, true, quickJobs},
		{leastJobs, true, leastJobs},
		{10_000_000, false, 10_000_000},
		{leastJobs - 1, false, 0},
		{-1, true, 0},
	} {
		got, err := howMany(tc.jobs, tc.quick)
		require.Equal(t, tc.want, got)
		require.Equal(t, tc.want == 0, err != nil)
	}
}

func TestProgramRunsWithoutFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for some seconds")
	}
	t.Setenv(sharedEnv, t.TempDir())
	p, out := newProgram(t, "-quick")
	require.NoError(t, p.run())
	text := out.String()
	for _, want := range []string{
		"note: the Philly trace is passed over: no ",
		"set LOCKSTEP_SHARED",
		"result synthetic/gpus=704/ltgf/job-events-ref ",
		"result life/heap-10 ",
		"target life/growth ",
		"result restart/snapshot-ref ",
		"result restart/restore-ref ",
		"result restart/replay-ref ",
		"result ledger/tenants=100000/event-ref ",
		"target ledger/allocs ",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "NaN")
	require.Equal(t, 1, strings.Count(text, "target life/growth ok"), text)
}
