package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// show runs the command and returns what it prints.
func show(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(args, &out))
	return out.String()
}

func TestDemoShowsEveryKindOfAnswer(t *testing.T) {
	text := show(t, "-env", "pretrain", "-rank", "9")
	for _, want := range []string{
		"5 gangs placed, 4 waiting",
		"oversize: does not fit: capacity",
		"one-rack: does not fit: fragmented",
		"would fit: require level block",
		"open r3n3",
		"RANK=9",
		"WORLD_SIZE=24",
		"NNODES=3",
		"slots=8",
	} {
		require.Contains(t, text, want)
	}
	require.Equal(t, text, show(t, "-env", "pretrain", "-rank", "9"), "the same input gives the same text")
}

func TestMapAgreesWithThePlans(t *testing.T) {
	var got outcome
	require.NoError(t, json.Unmarshal([]byte(show(t, "-json")), &got))
	cells := 0
	for _, p := range got.Placed {
		want := 0
		for _, m := range p.Plan.Members {
			want += m.Devices.Len()
		}
		seen := 0
		for _, rack := range got.Racks {
			for _, node := range rack.Nodes {
				seen += strings.Count(node.Cells, p.Letter)
			}
		}
		require.Equal(t, want, seen, p.Plan.Job)
		cells += seen
	}
	require.Positive(t, cells)
	require.Len(t, got.Pending, 4)
}

func TestFlagsMakeAClusterAndGangs(t *testing.T) {
	text := show(t, "-nodes", "4", "-racks", "2", "-gpus-per-node", "2", "-gang", "a=2x2@rack", "-gang", "b=3x2")
	require.Contains(t, text, "4 of 8 devices held, 1 gang placed, 1 waiting")
	require.Contains(t, text, "b: does not fit")
}

func TestFileIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"cluster":{"nodes":2,"gpus":4,"down":["r0n0"]},"gangs":[{"id":"a","roles":[{"min":1,"demand":{"gpus":4}}]}]}`), 0o600))
	require.Contains(t, show(t, "-f", path), "----  AAAA")
}

func TestWrongUseIsRefused(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"x"}, "unexpected argument"},
		{[]string{"-nodes", "-1"}, "negative"},
		{[]string{"-f", "nowhere.json"}, "nowhere.json"},
		{[]string{"-trace", "nowhere.csv"}, "nowhere.csv"},
		{[]string{"-trace", "a", "-env", "b"}, "does not go with"},
		{[]string{"-env", "oversize"}, "no such gang is placed"},
		{[]string{"-env", "pretrain", "-rank", "24"}, "rank"},
		{[]string{"-gang", "a=1x1@shelf"}, "shelf"},
		{[]string{"-gang", "a"}, "want NAME="},
	} {
		require.ErrorContains(t, run(tc.args, &bytes.Buffer{}), tc.want, "%v", tc.args)
	}
	require.ErrorIs(t, run([]string{"-h"}, &bytes.Buffer{}), flag.ErrHelp)

	path := filepath.Join(t.TempDir(), "in.csv")
	require.NoError(t, os.WriteFile(path, []byte(header+"a,t,0,1,1,\n"), 0o600))
	require.ErrorContains(t, run([]string{"-trace", path, "-backfill", "hope"}, &bytes.Buffer{}), "-backfill")
	require.ErrorContains(t, run([]string{"-trace", path, "-walltime", "hope"}, &bytes.Buffer{}), "-walltime")
	require.Contains(t, show(t, "-trace", path), "ok: no device held twice")
}
