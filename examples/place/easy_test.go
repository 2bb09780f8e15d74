package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// easyWaits is first come first served with EASY backfill in its plainest form,
// for one pool of like devices: only numbers, no places. It is the textbook's
// (Lifka 1995): the first blocked job gets the earliest time at which enough
// devices are free by the running jobs' ends; a later job may start now if it
// fits and either ends by then or takes only devices that the first will not
// need.
func easyWaits(jobs []job, devices int) map[lockstep.JobID]float64 {
	type running struct {
		end  time.Duration
		gpus int
	}
	var run []running
	var queue []job
	waits := make(map[lockstep.JobID]float64)
	free, next := devices, 0
	start := func(now time.Duration, j job) {
		waits[j.ID] = (now - j.Submit).Seconds()
		run = append(run, running{now + j.Duration, j.GPUs})
		free -= j.GPUs
	}
	for next < len(jobs) || len(run) > 0 {
		now := time.Duration(1 << 62)
		if next < len(jobs) {
			now = jobs[next].Submit
		}
		for _, r := range run {
			now = min(now, r.end)
		}
		run = slices.DeleteFunc(run, func(r running) bool {
			if r.end == now {
				free += r.gpus
			}
			return r.end == now
		})
		for ; next < len(jobs) && jobs[next].Submit == now; next++ {
			queue = append(queue, jobs[next])
		}
		for len(queue) > 0 && queue[0].GPUs <= free {
			start(now, queue[0])
			queue = queue[1:]
		}
		if len(queue) == 0 {
			continue
		}
		slices.SortFunc(run, func(a, b running) int { return cmp.Compare(a.end, b.end) })
		shadow, spare := time.Duration(0), free
		for i, r := range run {
			spare += r.gpus
			if spare >= queue[0].GPUs && (i+1 == len(run) || run[i+1].end != r.end) {
				shadow = r.end
				break
			}
		}
		spare -= queue[0].GPUs
		kept := queue[:1]
		for _, j := range queue[1:] {
			switch {
			case j.GPUs <= free && now+j.Duration <= shadow:
				start(now, j)
			case j.GPUs <= min(free, spare):
				start(now, j)
				spare -= j.GPUs
			default:
				kept = append(kept, j)
			}
		}
		queue = kept
	}
	return waits
}

func TestEasyAgreesWithTheTextbookOnOnePool(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		var rows strings.Builder
		at := 0
		for i := range 60 {
			at += rng.IntN(4)
			fmt.Fprintf(&rows, "j%02d,t,%d,%d,%d,\n", i, at, 1+rng.IntN(20), 1+rng.IntN(16))
		}
		jobs, err := readJobs(strings.NewReader(header+rows.String()), 0)
		require.NoError(t, err)
		r, _ := play(t, replayConfig{Cluster: clusterSpec{Nodes: 1, GPUs: 16}}, rows.String())
		require.Equal(t, easyWaits(jobs, 16), r.waits(), "seed %d:\n%s", seed, rows.String())
	}
}
