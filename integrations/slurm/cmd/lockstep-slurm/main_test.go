package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const testdata = "../../testdata/"

func do(args ...string) (status int, stdout, stderr string) {
	var out, said bytes.Buffer
	status = run(context.Background(), args, &out, &said)
	return status, out.String(), said.String()
}

func files(more ...string) []string {
	return append([]string{"-squeue", testdata + "squeue-22.05.json", "-nodes", testdata + "sinfo-22.05.json", "-now", "2026-11-30T12:06:30Z"}, more...)
}

func TestFilesArePlanned(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "topology.conf")
	require.NoError(t, os.WriteFile(conf, []byte("SwitchName=a Nodes=n[01-04]\n"), 0o600))
	status, out, said := do(files("-topology", conf)...)
	require.Zero(t, status, said)
	require.Empty(t, said)
	require.Contains(t, out, "rule ltgf  nodes 4 (3 open)")
	require.Contains(t, out, "afterany:6(unfulfilled)")
	status, out, said = do(files("-json", "-rule", "srtf", "-explain", "7", "-weights", "ann=2,bob=1", "-tenant", "account", "-backfill", "3", "-horizon", "24h", "-dry-run")...)
	require.Zero(t, status, said)
	var doc struct {
		Rule string
		Jobs []struct {
			Job         string
			Explanation *json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &doc))
	require.Equal(t, "srtf", doc.Rule)
	require.Len(t, doc.Jobs, 13)
	for _, j := range doc.Jobs {
		require.Equal(t, j.Job == "7", j.Explanation != nil)
	}
}

func TestTheConfigurationFileComesBehindTheFlags(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(conf, []byte(`{"rule":"fifo","horizon":3600000000000,"ignoreMemory":true}`), 0o600))
	status, out, said := do(files("-config", conf, "-json")...)
	require.Zero(t, status, said)
	require.Contains(t, out, `"rule": "fifo"`)
	require.Contains(t, out, `"horizon": "1h0m0s"`)
	require.NoError(t, os.WriteFile(conf, []byte(`{"rule":"ltgf","tenant":"account","users":["ann"],"horizon":3600000000000}`), 0o600))
	status, out, said = do(files("-config", conf, "-json")...)
	require.Zero(t, status, "the names in the table of the README are those of the file too: %s", said)
	require.Contains(t, out, `"rule": "ltgf"`)
	_, out, _ = do(files("-config", conf, "-json", "-rule", "slurm")...)
	require.Contains(t, out, `"rule": "slurm"`)
	require.Contains(t, out, `"horizon": "1h0m0s"`)
}

func TestWrongUsage(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	require.NoError(t, os.WriteFile(bad, []byte("{"), 0o600))
	typo, two := filepath.Join(t.TempDir(), "typo"), filepath.Join(t.TempDir(), "two")
	require.NoError(t, os.WriteFile(typo, []byte(`{"horizn":3600000000000}`), 0o600))
	require.NoError(t, os.WriteFile(two, []byte(`{"rule":"fifo"}{"rule":"srtf"}`), 0o600))
	for _, args := range [][]string{
		{"-nonsense"},
		{"word"},
		files("-apply"),
		{"-apply", "-dry-run"},
		{"-squeue", "x"},
		{"-nodes", "x"},
		files("-rule", "best"),
		files("-tenant", "me"),
		files("-weights", "ann"),
		files("-explain", "all"),
		files("-config", "nowhere"),
		files("-config", bad),
		files("-horizon", "-1h"),
		files("-every", "1m"),
		files("-rule", "ltgffifo"),
		files("-tenant", "accountuser"),
		files("-weights", "ann=1,ann=2"),
		files("-config", typo),
		files("-config", two),
		{"-now", "2026-11-30T12:06:30Z"},
	} {
		status, out, said := do(args...)
		require.Equal(t, 2, status, args)
		require.Empty(t, out)
		require.NotEmpty(t, said)
	}
	for _, args := range [][]string{
		{"-squeue", "nowhere", "-nodes", "nowhere"},
		{"-squeue", bad, "-nodes", testdata + "sinfo-22.05.json"},
		{"-squeue", testdata + "squeue-22.05.json", "-nodes", bad},
		{"-squeue", testdata + "squeue-22.05.json", "-nodes", "nowhere"},
		files("-topology", "nowhere"),
		files("-topology", bad),
		files("-now", "noon"),
		{"-bin", "/nowhere"},
	} {
		status, out, said := do(args...)
		require.Equal(t, 1, status, args)
		require.Empty(t, out)
		require.True(t, strings.HasPrefix(said, "lockstep-slurm: "), said)
	}
	status, _, said := do("-h")
	require.Zero(t, status)
	require.Contains(t, said, "-dry-run")
}

// TestPrioritiesGoToScontrol runs the command against commands that print a recording.
func TestPrioritiesGoToScontrol(t *testing.T) {
	dir := t.TempDir()
	here, err := filepath.Abs(testdata)
	require.NoError(t, err)
	for name, body := range map[string]string{ // each is a file of its own, so order cannot matter
		"squeue":   "exec cat '" + here + "/squeue-22.05.json'",
		"sinfo":    "exec cat '" + here + "/sinfo-22.05.json'",
		"scontrol": `if [ "$1" = show ]; then exit 1; fi; echo "$@" >> '` + dir + `/log'; [ "$2" != job=6 ]`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	}
	status, _, said := do("-bin", dir, "-rule", "fifo", "-everybody")
	require.Zero(t, status, said)
	require.NoFileExists(t, filepath.Join(dir, "log"), "a dry run is the default")
	status, _, said = do("-bin", dir, "-rule", "fifo", "-apply", "-everybody", "-rate", "1000")
	require.Equal(t, 1, status, "one was refused")
	require.Contains(t, said, "of ")
	require.Contains(t, said, "priorities set")
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "update job=7 priority=")
	require.NotContains(t, string(log), "job=10 ", "it is held")
	require.NotContains(t, string(log), "job=11 ", "it waits for another")
	require.NoError(t, os.Remove(filepath.Join(dir, "log")))
	status, _, said = do("-bin", dir, "-rule", "fifo", "-apply", "-users", "nobody", "-rate", "1000")
	require.Zero(t, status, said)
	require.NoFileExists(t, filepath.Join(dir, "log"), "nobody has no jobs")
}

// TestApplyingTwiceSetsNothingTheSecondTime: Slurm keeps what it was told.
func TestApplyingTwiceSetsNothingTheSecondTime(t *testing.T) {
	dir := t.TempDir()
	const job = `{"job_id":%d,"job_state":"PENDING","priority":PRIORITY%d,"user_name":"ann","partition":"main","time_limit":60,"node_count":1,"tres_per_node":"gres:gpu:8","eligible_time":1796040000}`
	doc := fmt.Sprintf(`{"jobs":[`+job+","+job+","+job+"]}", 1, 1, 2, 2, 3, 3)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "jobs"), []byte(doc), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nodes"), []byte(`{"nodes":[{"name":"n1","state":["IDLE"],"cpus":64,"gres":"gpu:8","partitions":["main"]}]}`), 0o600))
	for name, body := range map[string]string{ // each is a file of its own, so order cannot matter
		"squeue": `sed -f "$dir/set" -e 's/PRIORITY[0-9]*/17/g' "$dir/jobs"`,
		"scontrol": `if [ "$1" = show ]; then exec cat "$dir/nodes"; fi
echo "$@" >> "$dir/log"; echo "s/PRIORITY${2#job=}/${3#priority=}/" >> "$dir/set"`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\ndir='"+dir+"'\n"+body+"\n"), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "set"), nil, 0o600))
	status, _, said := do("-bin", dir, "-rule", "fifo", "-apply", "-users", "bob, ann", "-rate", "1000")
	require.Zero(t, status, said)
	require.Contains(t, said, "3 of 3 priorities set")
	first, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	status, _, said = do("-bin", dir, "-rule", "fifo", "-apply", "-users", "bob, ann", "-rate", "1000")
	require.Zero(t, status, said)
	require.Contains(t, said, "0 of 0 priorities set")
	second, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	require.Equal(t, string(first), string(second))
}

// TestEveryEndsWithItsContext plans again and again until it is told to stop.
func TestEveryEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	here, err := filepath.Abs(testdata)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, name := range []string{"squeue", "sinfo"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexec cat '"+here+"/"+name+"-22.05.json'\n"), 0o755))
	}
	out := &stopper{after: 2, stop: cancel}
	require.Zero(t, run(ctx, []string{"-bin", dir, "-every", "1ms", "-everybody", "-json"}, out, &bytes.Buffer{}))
	require.GreaterOrEqual(t, out.after, -1)
	require.LessOrEqual(t, out.after, 0)
}

// stopper stops after so many reports.
type stopper struct {
	after int
	stop  func()
}

func (s *stopper) Write(p []byte) (int, error) {
	if s.after--; s.after == 0 {
		s.stop()
	}
	return len(p), nil
}
