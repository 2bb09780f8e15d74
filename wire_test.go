package lockstep_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// wired returns one value of every wire type with every field set, so that a
// field without a tag, or one that does not return, is seen.
func wired() map[string]any {
	verdict := lockstep.Verdict{
		Feasible: true, Reason: lockstep.ReasonBusy, Fit: 3, Want: 4, Resource: lockstep.ResourceGPU,
		Requested: 32000, Available: -1, Level: "rack", Domain: "r1", Score: -7,
	}
	plan := &lockstep.Plan{
		Job: "j", Gang: valid(), Version: 1<<64 - 1, Level: "rack", Port: 29500,
		Members: []lockstep.Member{{Role: 1, Node: "n1", Devices: 1<<63 | 0xf, Start: 4}, {Node: "n2"}},
		Spares:  []lockstep.Member{{Role: 1, Node: "n3", Devices: 2, Start: 1}},
	}
	instance := lockstep.Demand{GPUs: 1, Profile: "1g.10gb+me"}
	candidate := lockstep.Candidate{
		Job: "v", Cost: lockstep.EvictionCost{Lost: 1, Save: 2, Restore: 3, Devices: 4}, Tier: -1,
		Min: []int{1}, Shrink: lockstep.EvictionCost{Lost: 5, Save: 6, Restore: 7, Devices: 8}, Limits: []int32{1, 0},
	}
	cost := lockstep.EvictionCost{Lost: time.Hour, Save: time.Minute, Restore: time.Second, Devices: 1500}
	eviction := &lockstep.Eviction{Job: "v", For: "j", Ranks: []int{1, 2}, Reason: "reclaim", Grace: time.Second, Cost: cost}
	now := lockstep.FromNanos(1_700_000_000_123_456_789)
	return map[string]any{
		"Instance": instance,
		"Gang":     *valid(), "Role": valid().Roles[0], "Demand": valid().Roles[0].Demand, "Constraints": valid().Constraints, "Capabilities": valid().Capabilities,
		"Taint": lockstep.Taint{Key: "k", Value: "v"}, "Toleration": lockstep.Toleration{Key: "k", Value: "v"},
		"Plan": *plan, "Member": plan.Members[0], "Verdict": verdict, "EvictionCost": cost, "Eviction": *eviction,
		"Preempted":  lockstep.Preempted{Evictions: []lockstep.Eviction{*eviction}, Plan: *plan, Exact: true},
		"Candidates": lockstep.Candidates{Jobs: []lockstep.Candidate{candidate}, Limits: []lockstep.Resources{{"gpu": 8000}}, Max: 3},
		"Explanation": lockstep.Explanation{
			Job: "j", Verdict: verdict,
			Counts:  []lockstep.ReasonCount{{Reason: "busy", Detail: "gpu", Nodes: 4}},
			Changes: []lockstep.Change{{Kind: lockstep.ChangeFree, Level: "rack", Domain: "r1", Resource: "gpu", Amount: 8, Nodes: []lockstep.NodeID{"n1"}, Jobs: []lockstep.JobID{"v"}}},
			Notes:   []lockstep.Note{{Stage: "quota", Reason: "quota", Detail: "d"}},
		},
		"Event":     lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Job: "j", Gang: valid(), Node: "n", Rank: 3, Attempt: 2, Reason: "oom"},
		"Action":    lockstep.Action{Kind: lockstep.ActionEvict, Time: now, Job: "j", Attempt: 2, Plan: plan, Deadline: now, Eviction: eviction, Reason: "reclaim"},
		"Resources": lockstep.Resources{"cpu": 1500, "gpu": 8000, "memory": 1 << 30, "slots": 1},
	}
}

func TestWireTypesReturnAsTheyWent(t *testing.T) {
	for name, in := range wired() { // the order does not matter: each case stands alone
		t.Run(name, func(t *testing.T) {
			if name != "Resources" && name != "Instance" {
				requireFull(t, reflect.ValueOf(in), name, "Inventory", ".Time", ".Deadline", ".Profile")
			}
			data, err := json.Marshal(in)
			require.NoError(t, err)
			out := reflect.New(reflect.TypeOf(in))
			dec := json.NewDecoder(strings.NewReader(string(data)))
			dec.DisallowUnknownFields()
			require.NoError(t, dec.Decode(out.Interface()), "%s", data)
			require.Equal(t, in, out.Elem().Interface())
			again, err := json.Marshal(out.Interface())
			require.NoError(t, err)
			require.Equal(t, string(data), string(again))
		})
	}
}

func TestZeroWireTypesReturnAsTheyWent(t *testing.T) {
	for name, v := range wired() { // the order does not matter: each case stands alone
		zero := reflect.New(reflect.TypeOf(v))
		data, err := json.Marshal(zero.Interface())
		require.NoError(t, err)
		out := reflect.New(reflect.TypeOf(v))
		require.NoError(t, json.Unmarshal(data, out.Interface()), name)
		if name != "Resources" { // {} for nil: nothing and none are one thing there
			require.Equal(t, zero.Interface(), out.Interface(), "%s: %s", name, data)
		}
	}
}

// TestWireFormIsPinned holds the names and forms that others store: they are
// the contract, and this test is read in review like prose.
func TestWireFormIsPinned(t *testing.T) {
	g := valid()
	g.Roles[0].Constraints, g.Constraints = lockstep.Constraints{}, lockstep.Constraints{}
	data, err := json.Marshal(g)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"id": "ns/job-1", "tenant": "团队:a", "queue": "research.high", "priority": -5,
		"roles": [
			{"name": "worker", "min": 4, "max": 8, "spares": 2, "inner": {"size": 2, "level": "node"},
			 "demand": {"gpus": 8, "share": "500m", "gpuMemory": "80Gi", "classes": ["h100", "1g.5gb+me"], "cpu": "16", "memory": "256Gi", "rdma": 8}},
			{"name": "launcher", "min": 1, "demand": {"cpu": "500m"}}
		],
		"required": "block", "preferred": "rack", "preemption": "never", "canary": 2, "strategy": "spread", "walltime": 14400000000000, "hold": 60000000000,
		"labels": {"app": "train", "empty": "", "team.example/name": "x y"},
		"capabilities": {"preemptible": true, "resizable": true, "shareable": true, "batchMutable": true, "replaceable": true, "save": 30000000000, "restore": 60000000000, "grace": 1000000000}
	}`, string(data))

	p := lockstep.Plan{Job: "j", Version: 7, Members: []lockstep.Member{{Node: "n", Devices: 0b1111}, {Role: 1, Node: "m"}}}
	data, err = json.Marshal(p)
	require.NoError(t, err)
	require.Equal(t, `{"job":"j","version":7,"members":[{"role":0,"node":"n","devices":"0-3"},{"role":1,"node":"m","devices":""}]}`, string(data))
	p.Reset()
	reset, err := json.Marshal(p)
	require.NoError(t, err)
	zero, err := json.Marshal(lockstep.Plan{})
	require.NoError(t, err)
	require.Equal(t, string(zero), string(reset), "no members is one thing on the wire")

	data, err = json.Marshal(lockstep.Action{Kind: lockstep.ActionExtend, Time: lockstep.FromNanos(0), Job: "j"})
	require.NoError(t, err)
	require.Equal(t, `{"kind":"extend","time":"1970-01-01T00:00:00Z","job":"j"}`, string(data))
}

func TestGangWritesTheSameBytesWhateverTheInsertionOrder(t *testing.T) {
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	var first string
	for shift := range keys {
		m := make(map[string]string)
		for i := range keys {
			key := keys[(i*3+shift)%len(keys)]
			m[key] = "v" + key
		}
		g := valid()
		g.Labels, g.Constraints.Affinity[0].Match = m, m
		data, err := json.Marshal(g)
		require.NoError(t, err)
		if first == "" {
			first = string(data)
		}
		require.Equal(t, first, string(data))
		for _, key := range keys {
			m[key] = "\n" // a fault each
		}
		require.Equal(t, g.Validate().Error(), g.Clone().Validate().Error(), "faults have one order as well")
	}
}

func TestStrategyReadsPackByName(t *testing.T) {
	for in, want := range map[string]lockstep.Strategy{`"pack"`: lockstep.Pack, `""`: lockstep.Pack, `"spread"`: lockstep.Spread, `"tight"`: "tight"} { // the order does not matter: each case stands alone
		got := lockstep.Spread
		require.NoError(t, json.Unmarshal([]byte(in), &got))
		require.Equal(t, want, got)
	}
}
