package main

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

const header = "job_id,tenant,submit_s,duration_s,gpus,state\n"

func TestReadJobs(t *testing.T) {
	want := []job{
		{ID: "a", Tenant: "t1", Submit: 5 * time.Second, Duration: 1500 * time.Millisecond, GPUs: 8, State: "X"},
		{ID: "b", Tenant: "t2", Submit: 7 * time.Second, Duration: 3 * time.Second, GPUs: 2, State: "X"},
	}
	text := header + "b,t2,7,3,2,X\na,t1,5,1.5,8,X\n"
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for name, in := range map[string]string{"plain": text, "gzip": packed.String()} { // order: each case stands alone
		got, err := readJobs(strings.NewReader(in), 0)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	got, err := readJobs(strings.NewReader(text), 1)
	require.NoError(t, err)
	require.Equal(t, want[:1], got, "a limit keeps those that come first")
}

func TestReadJobsRefuses(t *testing.T) {
	_, err := readJobs(strings.NewReader(header+"a,t,1,2,3,X\nb,t,1,2,none,X\n"), 0)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorContains(t, err, "line 3: gpus")
	_, err = readJobs(strings.NewReader(header), 0)
	require.ErrorContains(t, err, "no jobs")
	_, err = readJobs(strings.NewReader("\x1f\x8b\x08"), 0)
	require.ErrorContains(t, err, "EOF")
}
