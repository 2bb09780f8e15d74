package etcd

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/topology"
)

func isKind(err, kind error) bool { return errors.Is(err, kind) }

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// workConfig is that of the schedulers of these tests, on two nodes of eight.
func workConfig() scheduler.Config {
	shape, err := topology.UniformShape(8, topology.NVLink(18))
	if err != nil {
		panic(err)
	}
	tree, err := topology.Uniform(topology.UniformConfig{Fanout: []int{2}, Shape: shape})
	if err != nil {
		panic(err)
	}
	return scheduler.Config{Tree: tree, Rule: scheduler.FIFO, StartAtOnce: true, Retain: 8}
}

// longInput is an input whose entry is longer than a request of these tests.
const longInput = 15

// input gives s the n-th input of the work, from 1, each of which is one entry of
// its log, and returns what it led to: jobs come, are started and finish.
func input(s *scheduler.Scheduler, n uint64) ([]lockstep.Action, error) {
	now := epoch.Add(time.Duration(n) * time.Second)
	i := n / 3
	switch n % 3 {
	case 1:
		return nil, s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: &lockstep.Gang{
			ID: job(i), Tenant: lockstep.TenantID("team-" + strconv.Itoa(int(i%3))), Walltime: time.Hour,
			Roles: []lockstep.Role{{Min: 1 + int(i%2), Demand: lockstep.Demand{GPUs: 1 + int(i%4)}}},
		}})
	case 2:
		return s.Step(now)
	}
	if s.Seq() < 12 {
		return s.Step(now)
	}
	var why lockstep.Reason
	if n == longInput {
		why = lockstep.Reason(strings.Repeat("a long story ", 800))
	}
	return nil, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: now, Job: job(i - 4), Reason: why})
}

func job(i uint64) lockstep.JobID { return lockstep.JobID("job-" + strconv.FormatUint(i, 10)) }

// reference is the work done without any journal.
type reference struct {
	states  []string // after each input, from none
	actions []string // that each led to
}

// version is what the room of a scheduler counts its changes by, and plans say. It
// leaps at each restore, so that plans made before are refused, and is no part of
// the state.
var version = regexp.MustCompile(`"version":\d+`)

// state is s as it is saved, but for those versions and the checksums over them.
func state(t testing.TB, s *scheduler.Scheduler) string {
	var b bytes.Buffer
	require.NoError(t, s.Snapshot(&b))
	_, body, _ := strings.Cut(b.String(), "\n")
	image := make(map[string]any)
	require.NoError(t, json.Unmarshal([]byte(body), &image))
	for part, v := range image { // the order does not matter: each is changed by itself
		text, _ := v.(string)
		if data, err := base64.StdEncoding.DecodeString(text); err == nil && bytes.HasPrefix(data, []byte("lockstep/")) {
			_, inner, _ := strings.Cut(string(data), "\n")
			image[part] = version.ReplaceAllString(inner, "")
		}
	}
	data, err := json.Marshal(image)
	require.NoError(t, err)
	return string(data)
}

func doWork(t testing.TB, inputs uint64) *reference {
	s, err := scheduler.New(workConfig())
	require.NoError(t, err)
	r := &reference{states: []string{state(t, s)}, actions: []string{""}}
	started := 0
	for n := uint64(1); n <= inputs; n++ {
		a, err := input(s, n)
		require.NoError(t, err, "input %d", n)
		require.Equal(t, n, s.Seq())
		started += len(a)
		r.states = append(r.states, state(t, s))
		r.actions = append(r.actions, text(t, a))
	}
	require.Greater(t, started, int(inputs/6), "the work is some")
	return r
}

func text(t testing.TB, a []lockstep.Action) string {
	data, err := json.Marshal(a)
	require.NoError(t, err)
	return version.ReplaceAllString(string(data), "")
}
