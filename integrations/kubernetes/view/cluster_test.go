package view

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology/labels"
)

func cluster(t testing.TB, cfg Config, in Inputs) Cluster {
	t.Helper()
	cl, err := cfg.Cluster(in)
	require.NoError(t, err)
	return cl
}

func TestClusterIsWhatNodesSay(t *testing.T) {
	n := newNode("n2", "example.com/rack", "r1")
	n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}, {Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}, {Key: "skip", Effect: corev1.TaintEffectNoExecute}}
	n.Status.Allocatable["rdma/hca"] = *n.Status.Allocatable.Pods()
	cfg := racks()
	cfg.IgnoreTaints, cfg.RDMAResource = []string{"skip"}, "rdma/hca"
	cl := cluster(t, cfg, Inputs{
		Nodes:   []*corev1.Node{n, newNode("n1"), newNode("n1")},
		Foreign: map[lockstep.NodeID]Usage{"n2": {CPU: 1500, Memory: 12 * lockstep.GiB, Pods: 9}, "n1": {CPU: 64000, Memory: lockstep.TiB, Pods: 110}},
	})
	require.Empty(t, cl.Faults)
	require.Empty(t, cl.Closed)
	require.Equal(t, []placement.Node{
		{
			ID: "n1", Class: "H100", GPUMemory: 81559 * lockstep.MiB, CPU: placement.None, Memory: placement.None, Slots: placement.None, RDMA: placement.None,
			Labels: map[string]string{"example.com/block": "b0", "example.com/rack": "r0", "nvidia.com/gpu.product": "H100", "nvidia.com/gpu.memory": "81559", nodeNameLabel: "n1"},
		},
		{
			ID: "n2", Class: "H100", GPUMemory: 81559 * lockstep.MiB, CPU: 62500, Memory: 500 * lockstep.GiB, Slots: 101, RDMA: 110,
			Labels: map[string]string{"example.com/block": "b0", "example.com/rack": "r1", "nvidia.com/gpu.product": "H100", "nvidia.com/gpu.memory": "81559", nodeNameLabel: "n2"},
			Taints: []lockstep.Taint{{Key: "dedicated:NoSchedule", Value: "gpu"}},
		},
	}, cl.Nodes)
	slot, ok := cl.Tree.Slot("n2")
	require.True(t, ok)
	require.Equal(t, 8, cl.Tree.Shape(slot).Devices())
	at, ok := cl.Tree.Node(slot)
	require.True(t, ok)
	require.Equal(t, []string{"b0", "r1"}, at.Path)
	address, _ := cl.Tree.Address("n1")
	require.Equal(t, "10.0.0.1", address)
	_, err := placement.New(cl.Tree, placement.Config{Nodes: cl.Nodes})
	require.NoError(t, err)
}

func TestClosedNodes(t *testing.T) {
	cordoned, lost, silent := newNode("cordoned"), newNode("lost"), newNode("silent")
	cordoned.Spec.Unschedulable = true
	lost.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"}}
	silent.Status.Conditions = nil
	cl := cluster(t, racks(), Inputs{Nodes: []*corev1.Node{silent, lost, newNode("open"), cordoned}})
	require.Equal(t, []Closed{
		{Node: "cordoned", Reason: "it is cordoned"},
		{Node: "lost", Lost: true, Reason: "it is not ready: NodeStatusUnknown"},
		{Node: "silent", Lost: true, Reason: "it does not say that it is ready"},
	}, cl.Closed)
	require.Equal(t, 4, cl.Tree.Slots())
}

func TestNodeAtFaultHarmsNobody(t *testing.T) {
	cfg := racks()
	cfg.Keys[1].Unique, cfg.Keys[0].Missing, cfg.Layouts = true, labels.Refuse, true
	many := newNode("many")
	many.Status.Allocatable["nvidia.com/gpu"] = *newNode("x").Status.Allocatable.Pods()
	split := newNode("split")
	split.Status.Allocatable["nvidia.com/mig-1g.10gb"] = list("x", "7")["x"]
	split.Status.Allocatable["nvidia.com/mig-2g.20gb"] = list("x", "3")["x"]
	cl := cluster(t, cfg, Inputs{Nodes: []*corev1.Node{
		newNode("ok"), newNode("elsewhere", "example.com/block", "b1"), newNode("placeless", "example.com/block", ""), newNode("bad", "example.com/rack", "a b"),
		many, split, newNode("memory", "nvidia.com/gpu.memory", "much"), newNode("class", "nvidia.com/gpu.product", "a b"),
	}})
	var ids []lockstep.NodeID
	for _, n := range cl.Nodes {
		ids = append(ids, n.ID)
	}
	require.Equal(t, []lockstep.NodeID{"class", "memory", "ok", "split"}, ids)
	want := []struct {
		name, key, value string
		kind             error
	}{
		{"bad", "Labels[example.com/rack]", "a b", lockstep.ErrInvalid},
		{"class", "nvidia.com/gpu.product", "a b", lockstep.ErrInvalid},
		{"elsewhere", "example.com/rack", "r0", lockstep.ErrDuplicate},
		{"many", "status.allocatable", "110", lockstep.ErrInvalid},
		{"memory", "nvidia.com/gpu.memory", "much", lockstep.ErrInvalid},
		{"placeless", "Labels[example.com/block]", "", lockstep.ErrInvalid},
		{"split", "status.allocatable", "mig-1g.10gb", lockstep.ErrInvalid},
	}
	require.Len(t, cl.Faults, len(want))
	for i, w := range want {
		requireFault(t, cl.Faults[i], w.kind, w.name, w.key, w.value)
	}
}

func TestConfigIsLookedAtWhole(t *testing.T) {
	cfg := racks()
	cfg.Keys = append(cfg.Keys, labels.Key{Label: "x"}, labels.Key{Label: "x"}, labels.Key{Label: "n", Level: cfg.Keys[0].Level}, labels.Key{Label: "node"})
	cfg.Aliases = []Dialect{"slurm", KAI, KAI}
	err := cfg.Validate()
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	for _, text := range []string{"Keys[3].Label", "Keys[4].Level", "Keys[5].Level", "Aliases[0]", "Aliases[2]"} {
		require.ErrorContains(t, err, text)
	}
	_, err2 := NewAssembler(cfg)
	require.Equal(t, err, err2)
	_, err2 = cfg.Cluster(Inputs{})
	require.Equal(t, err, err2)
}

func TestClusterOfNoNodes(t *testing.T) {
	cl := cluster(t, Config{}, Inputs{})
	require.NotNil(t, cl.Tree)
	require.Zero(t, cl.Tree.Slots())
}

func TestNamedDevicesStandFirst(t *testing.T) {
	n := newNode("n")
	n.Status.Allocatable["nvidia.com/gpu"] = list("x", "1")["x"]
	delete(n.Labels, "nvidia.com/gpu.product")
	cl := cluster(t, Config{}, Inputs{Nodes: []*corev1.Node{n}, Devices: map[lockstep.NodeID]Devices{"n": {IDs: []lockstep.DeviceID{"d/p/0", "d/p/1"}, Class: "L4", Memory: lockstep.GiB}}})
	require.Equal(t, lockstep.DeviceClass("L4"), cl.Nodes[0].Class)
	require.Equal(t, lockstep.GiB, cl.Nodes[0].GPUMemory)
	slot, _ := cl.Tree.Slot("n")
	require.Equal(t, 3, cl.Tree.Shape(slot).Devices())
	id, ok := cl.Tree.Device("n", 1)
	require.True(t, ok)
	require.Equal(t, lockstep.DeviceID("d/p/1"), id)
}

func withLayouts() Config {
	cfg := racks()
	cfg.Layouts = true
	return cfg
}

// A placer that is given no layouts must not be given their names either.
func TestMIGIsLeftOutWithoutLayouts(t *testing.T) {
	n := newNode("n")
	n.Status.Allocatable["nvidia.com/mig-1g.10gb"] = list("x", "7")["x"]
	cl := cluster(t, racks(), Inputs{Nodes: []*corev1.Node{n}, Devices: map[lockstep.NodeID]Devices{"n": {MIG: "x"}}})
	require.Len(t, cl.Faults, 2)
	requireFault(t, cl.Faults[0], lockstep.ErrInvalid, "n", "ResourceSlices", "x")
	requireFault(t, cl.Faults[1], lockstep.ErrInvalid, "n", "status.allocatable", "mig-1g.10gb")
	_, err := placement.New(cl.Tree, placement.Config{Nodes: cl.Nodes})
	require.NoError(t, err)
	cl = cluster(t, withLayouts(), Inputs{Nodes: []*corev1.Node{n}, Devices: map[lockstep.NodeID]Devices{"n": {MIG: "x"}}})
	requireFault(t, cl.Faults[0], lockstep.ErrInvalid, "n", "status.allocatable", "mig-1g.10gb")
}

func TestOrderOfNodesDoesNotMatter(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 20 {
		nodes = append(nodes, newNode("n"+number(i), "example.com/rack", "r"+number(i%5), "example.com/block", []string{"b", "a b"}[i%7/6]))
	}
	want := cluster(t, racks(), Inputs{Nodes: nodes})
	require.Len(t, want.Faults, 2)
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		got := cluster(t, racks(), Inputs{Nodes: nodes})
		require.Equal(t, want.Nodes, got.Nodes)
		require.Equal(t, want.Faults, got.Faults)
		for i := range want.Tree.Slots() {
			a, _ := want.Tree.Node(int32(i))
			b, _ := got.Tree.Node(int32(i))
			require.Equal(t, a, b)
		}
	}
}

// Whatever a node says, the placer takes what is made of it.
func FuzzNode(f *testing.F) {
	f.Add("k", "v", "taint", "gpu", "81559", "8", int64(8), int64(1)<<40, int64(7), int64(2))
	f.Add(strings.Repeat("x", 300), "a b", strings.Repeat("y", 250), "任", "99999999999999", "-1", int64(-1), int64(1)<<62, int64(1000), int64(64))
	f.Fuzz(func(t *testing.T, key, value, taint, class, memory, rack string, gpus, bytes, mig, mig2 int64) {
		n := newNode("n", key, value, "nvidia.com/gpu.product", class, "nvidia.com/gpu.memory", memory, "example.com/rack", rack)
		n.Spec.Taints = []corev1.Taint{{Key: taint, Value: value, Effect: corev1.TaintEffectNoSchedule}}
		n.Status.Allocatable["nvidia.com/gpu"] = *resource.NewQuantity(gpus, resource.DecimalSI)
		n.Status.Allocatable["memory"] = *resource.NewQuantity(bytes, resource.BinarySI)
		n.Status.Allocatable["cpu"] = *resource.NewQuantity(bytes, resource.DecimalSI)
		n.Status.Allocatable["nvidia.com/mig-1g.10gb"] = *resource.NewQuantity(mig, resource.DecimalSI)
		n.Status.Allocatable["nvidia.com/mig-2g.20gb"] = *resource.NewQuantity(mig2, resource.DecimalSI)
		cl, err := withLayouts().Cluster(Inputs{Nodes: []*corev1.Node{n, newNode("other")}})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := cl.Tree.Slot("other"); !ok {
			t.Fatal("the other node is left out")
		}
		if _, err := placement.New(cl.Tree, placement.Config{Nodes: cl.Nodes, Layouts: cl.Layouts}); err != nil {
			t.Fatalf("%v: %+v", err, cl.Nodes)
		}
	})
}

// The placer must hand out exactly the MIG instances that the node counts.
func TestMIGIsCountedExactly(t *testing.T) {
	for name, c := range map[string]struct { // each case stands alone
		counts  []string
		devices int
	}{
		"all alike": {[]string{"nvidia.com/mig-1g.10gb", "56"}, 7},
		"balanced":  {[]string{"nvidia.com/mig-1g.10gb", "16", "nvidia.com/mig-2g.20gb", "8", "nvidia.com/mig-3g.40gb", "8"}, 4},
		"one":       {[]string{"nvidia.com/mig-1g.10gb", "7", "nvidia.com/mig-7g.80gb", "1"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode("n")
			n.Status.Allocatable["nvidia.com/gpu"] = list("x", "2")["x"]
			for k, v := range list(c.counts...) { // a set
				n.Status.Allocatable[k] = v
			}
			cl := cluster(t, withLayouts(), Inputs{Nodes: []*corev1.Node{n}})
			require.Empty(t, cl.Faults)
			require.Equal(t, c.devices, cl.Nodes[0].Partitioned.Len())
			require.False(t, cl.Nodes[0].Partitioned.Has(0))
			p, err := placement.New(cl.Tree, placement.Config{Nodes: cl.Nodes, Layouts: cl.Layouts})
			require.NoError(t, err)
			place := func(id string, d lockstep.Demand) bool {
				g := &lockstep.Gang{ID: lockstep.JobID(id), Roles: []lockstep.Role{{Min: 1, Demand: d}}}
				var plan lockstep.Plan
				v, err := p.Fit(&lockstep.Request{Gang: g}, &plan)
				require.NoError(t, err)
				if v.Feasible {
					require.NoError(t, p.Apply(&plan))
				}
				return v.Feasible
			}
			for i := 0; i < len(c.counts); i += 2 {
				q := n.Status.Allocatable[corev1.ResourceName(c.counts[i])]
				profile := profileOf(c.counts[i][len("nvidia.com/mig-"):])
				for k := range int(q.Value()) {
					require.True(t, place(c.counts[i][11:]+number(k), lockstep.Demand{GPUs: 1, Profile: profile}), "%s %d", profile, k)
				}
				require.False(t, place("more"+number(i), lockstep.Demand{GPUs: 1, Profile: profile}))
			}
			require.True(t, place("whole", lockstep.Demand{GPUs: 2}))
			require.False(t, place("whole3", lockstep.Demand{GPUs: 1}))
		})
	}
}
