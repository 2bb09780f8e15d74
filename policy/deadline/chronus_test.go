package deadline

import (
	"encoding/csv"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// whole is read only.
var whole = flag.Bool("whole", false, "replay the whole Chronus trace, for about 13 s")

// TestChronusTraceKeepsEveryAdmittedJob replays the head of the Chronus authors' mixed trace, on their 120 nodes of 8 devices and
// with their slots of 20 minutes, with exact run times: nobody who was admitted misses.
func TestChronusTraceKeepsEveryAdmittedJob(t *testing.T) {
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "traces", "chronus-socc21", "trace_job_Philly_MIX1.csv"))
	if err != nil {
		t.Skip("the Chronus trace is not there: its replay is left out: ", err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	column := func(row []string, name string) string { return row[slices.Index(rows[0], name)] }
	minutes := func(s string) time.Duration {
		s, _, _ = strings.Cut(strings.Trim(s, "[]"), ",")
		m, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		require.NoError(t, err)
		return time.Duration(m * float64(time.Minute)).Round(time.Second)
	}
	jobs := slices.DeleteFunc(rows[1:], func(row []string) bool { return column(row, "num_gpu") == "0" }) // nothing to give out
	slices.SortStableFunc(jobs, func(a, b []string) int {
		return int(minutes(column(a, "submit_time"))/time.Second - minutes(column(b, "submit_time"))/time.Second)
	})
	if !*whole {
		jobs = jobs[:min(len(jobs), 1500)]
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	table := newTable(t, Config{GPUs: 960})
	var asked, admitted int
	now := start
	left := map[lockstep.JobID]time.Duration{}
	running := []lockstep.JobID{}
	for at := 0; at < len(jobs) || table.Len() > 0; now = now.Add(20 * time.Minute) {
		for _, id := range running {
			if left[id] -= 20 * time.Minute; left[id] <= 0 {
				require.NoError(t, table.Finish(now, id))
			}
		}
		for ; at < len(jobs) && !start.Add(minutes(column(jobs[at], "submit_time"))).After(now); at++ {
			gpus, err := strconv.Atoi(column(jobs[at], "num_gpu"))
			require.NoError(t, err)
			j := Job{ID: lockstep.JobID("j" + strconv.Itoa(at)), GPUs: gpus, Remaining: max(minutes(column(jobs[at], "duration")), time.Second)}
			if column(jobs[at], "best_effort") == "0" {
				asked++
				j.Deadline = start.Add(minutes(column(jobs[at], "submit_time")) + minutes(column(jobs[at], "expect_time_list")))
			}
			d, err := table.Admit(now, j)
			require.NoError(t, err)
			if d.Feasible {
				left[j.ID] = j.Remaining
				if !j.Deadline.IsZero() {
					admitted++
				}
			}
		}
		slot, err := table.Step(now)
		require.NoError(t, err)
		require.Empty(t, slot.Missed)
		require.Empty(t, slot.AtRisk)
		running = slot.Run
	}
	t.Logf("%d jobs with a deadline, %d admitted, %d missed", asked, admitted, table.Missed())
	require.NotZero(t, admitted)
	require.Zero(t, table.Missed())
}
