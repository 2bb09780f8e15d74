package main

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestReadWeights(t *testing.T) {
	weights, err := readWeights(strings.NewReader("tenant,weight\nt1,3\nt2,0\n"))
	require.NoError(t, err)
	require.Equal(t, map[lockstep.TenantID]int64{"t1": 3, "t2": 0}, weights)
	for text, want := range map[string]string{ // order: each case stands alone
		"":                            "EOF",
		"weight,tenant\n":             "line 1",
		"tenant,weight\nt1\n":         "line 2",
		"tenant,weight\nt1,1\nt2,x\n": "line 3",
		"tenant,weight\nt1,1\nt1,1\n": "line 3",
	} {
		_, err := readWeights(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

// write makes a file of the shared traces.
func write(t *testing.T, dir, name, text string, cut int) {
	t.Helper()
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "traces"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "traces", name), []byte(b.String()[:b.Len()-cut]), 0o644))
}

func TestPhillyIsPassedOverOnlyWhereAbsent(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(sharedEnv, dir)
	w, absent, err := philly()
	require.NoError(t, err)
	require.Nil(t, w)
	require.Contains(t, absent, phillyTrace)

	write(t, dir, phillyTrace, "job_id,tenant,submit_s,duration_s,gpus,state\na,t1,0,60,8,x\nb,t2,1,60,9,x\n", 0)
	w, absent, err = philly()
	require.NoError(t, err)
	require.Nil(t, w)
	require.Contains(t, absent, phillyWeights)

	write(t, dir, phillyWeights, "tenant,weight\nt1,1\nt2,2\n", 0)
	w, _, err = philly()
	require.NoError(t, err)
	require.Len(t, w.trace.Jobs, 2)
	require.Contains(t, w.about, "2 jobs of 2 tenants")

	write(t, dir, phillyWeights, "tenant,weight\nt1,1\nt2,2\n", 9)
	_, _, err = philly()
	require.ErrorContains(t, err, phillyWeights, "cut off is a fault, not absence")
}

func TestJobsMayBeStopped(t *testing.T) {
	w, err := synthetic(1, 64, 24*time.Hour)
	require.NoError(t, err)
	jobs := w.jobs()
	require.Len(t, jobs, len(w.trace.Jobs))
	for i := range jobs {
		require.True(t, jobs[i].Gang.Capabilities.Preemptible)
		require.Equal(t, jobs[i].Duration, jobs[i].Gang.Walltime)
	}
	require.NotSame(t, jobs[0].Gang, w.jobs()[0].Gang, "a scheduler owns its gangs")
}
