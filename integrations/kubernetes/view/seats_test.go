package view

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
)

func adopted(t testing.TB, cl *Cluster, plans ...*lockstep.Plan) *placement.State {
	t.Helper()
	p, err := placement.New(cl.Tree, placement.Config{Nodes: cl.Nodes, Layouts: cl.Layouts})
	require.NoError(t, err)
	for _, plan := range plans {
		require.NoError(t, plan.Gang.Validate())
		require.NoError(t, p.Adopt(plan))
	}
	return p
}

func TestObservedGangsAreAdopted(t *testing.T) {
	cl := cluster(t, racks(), Inputs{Nodes: []*corev1.Node{newNode("n1"), newNode("n2")}})
	a := newAssembler(t, racks(), bound(member("g", 2, 0), "n1"), bound(member("g", 2, 1), "n2"), bound(member("h", 2, 0), "n1"), bound(member("h", 2, 1), "n1"))
	seats := NewSeats(&cl, nil)
	g, err := seats.Observe(state(t, a, "ns/g"))
	require.NoError(t, err)
	require.Same(t, state(t, a, "ns/g").Gang, g.Gang)
	h, err := seats.Observe(state(t, a, "ns/h"))
	require.NoError(t, err)
	require.Equal(t, []lockstep.Member{{Node: "n1", Devices: 1}, {Node: "n2", Devices: 1}}, g.Members)
	require.Equal(t, []lockstep.Member{{Node: "n1", Devices: 2}, {Node: "n1", Devices: 4}}, h.Members)
	adopted(t, &cl, g, h)
	seats.Release("ns/g")
	again, err := seats.Observe(state(t, a, "ns/h"))
	require.NoError(t, err)
	require.Equal(t, lockstep.DeviceSet(1), again.Members[0].Devices, "its own and those given back are free")
}

// Whatever is bound is taken in: gangs at fault, below their least, of others, leaving.
func TestWhateverIsBoundHoldsItsRoom(t *testing.T) {
	cl := cluster(t, racks(), Inputs{Nodes: []*corev1.Node{newNode("n1")}})
	leaving := bound(member("l", 1, 0), "n1")
	leaving.DeletionTimestamp = &metav1.Time{}
	foreign := bound(newPod("f"), "n1")
	foreign.Spec.SchedulerName = "default-scheduler"
	a := newAssembler(t, racks(), bound(member("half", 2, 0), "n1"), leaving, foreign, phase(bound(member("done", 1, 0), "n1"), corev1.PodSucceeded))
	require.Error(t, a.Upsert(bound(member("bad", 1, 0, Prefix+"walltime", "soon"), "n1")))
	require.NoError(t, a.Upsert(bound(member("bad", 1, 1), "n1")))
	seats := NewSeats(&cl, nil)
	var plans []*lockstep.Plan
	for _, id := range a.IDs() {
		p, err := seats.Observe(state(t, a, id))
		require.NoError(t, err)
		if len(p.Members) > 0 {
			plans = append(plans, p)
		}
	}
	require.Len(t, plans, 4)
	p := adopted(t, &cl, plans...)
	status, _ := p.Node("n1")
	require.Equal(t, 3, status.Free.Len(), "of 8, five members hold one each")
}

func TestSeatsKnowSharesAndInstances(t *testing.T) {
	n := newNode("n1")
	n.Status.Allocatable = list("cpu", "64", "memory", "512Gi", "pods", "110", "nvidia.com/gpu", "2", "nvidia.com/mig-1g.10gb", "14", "nvidia.com/mig-2g.20gb", "2")
	cl := cluster(t, withLayouts(), Inputs{Nodes: []*corev1.Node{n}})
	share := func(name string) *corev1.Pod {
		p := bound(newPod(name, Prefix+"gpu-share-milli", "400", Prefix+"gpu-memory", "20Gi"), "n1")
		p.Spec.Containers[0].Resources.Requests = list("cpu", "1")
		return p
	}
	mig := func(name, profile string) *corev1.Pod {
		p := bound(newPod(name), "n1")
		p.Spec.Containers[0].Resources.Requests = list("nvidia.com/mig-"+profile, "1")
		return p
	}
	a := newAssembler(t, racks(), bound(newPod("a-whole"), "n1"), share("b"), share("c"), share("d"))
	for i := range 14 {
		require.NoError(t, a.Upsert(mig("one-"+number(i), "1g.10gb")))
	}
	for i := range 2 {
		require.NoError(t, a.Upsert(mig("two-"+number(i), "2g.20gb")))
	}
	seats, plans, refused := NewSeats(&cl, nil), []*lockstep.Plan(nil), 0
	for _, id := range a.IDs() {
		p, err := seats.Observe(state(t, a, id))
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrConflict)
			require.Equal(t, lockstep.JobID("ns/pod:d"), id, "three shares of 0.4 need two devices, and one is taken")
			refused++
			continue
		}
		plans = append(plans, p)
	}
	require.Equal(t, 1, refused)
	adopted(t, &cl, plans...)
	require.NoError(t, a.Upsert(mig("more", "1g.10gb")))
	_, err := seats.Observe(state(t, a, "ns/pod:more"))
	require.ErrorIs(t, err, lockstep.ErrConflict)
}

func TestSeatsAroundPlansOfThePlacer(t *testing.T) {
	cl := cluster(t, racks(), Inputs{Nodes: []*corev1.Node{newNode("n1")}})
	seats := NewSeats(&cl, nil)
	gang := &lockstep.Gang{ID: "ns/x", Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 2}}}}
	seats.Hold(&lockstep.Plan{Job: "ns/x", Gang: gang, Members: []lockstep.Member{{Node: "n1", Devices: 0b101}}, Spares: []lockstep.Member{{Node: "n1", Devices: 0b11000}}})
	a := newAssembler(t, racks(), bound(member("g", 2, 0), "n1"), bound(member("g", 2, 1), "n1"))
	p, err := seats.Observe(state(t, a, "ns/g"))
	require.NoError(t, err)
	require.Equal(t, []lockstep.DeviceSet{0b10, 0b100000}, []lockstep.DeviceSet{p.Members[0].Devices, p.Members[1].Devices})
	cl = cluster(t, racks(), Inputs{})
	seats.Rebase(&cl)
	_, err = seats.Observe(state(t, a, "ns/g"))
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	require.NotEmpty(t, seats.nodes, "what is held stays")
	seats.Release("ns/x")
	seats.Release("ns/x")
	require.Empty(t, seats.nodes)
}

// Seats know the layouts of device models as well as those of a cluster.
func TestSeatsOnModels(t *testing.T) {
	n := newNode("n1")
	cl := cluster(t, racks(), Inputs{Nodes: []*corev1.Node{n}})
	cl.Nodes[0].MIG = "h100-80gb"
	pod := bound(newPod("p"), "n1")
	pod.Spec.Containers[0].Resources.Requests = list("nvidia.com/mig-3g.40gb", "1")
	cpu := bound(newPod("cpu"), "n1")
	cpu.Spec.Containers[0].Resources.Requests = list("cpu", "1")
	a := newAssembler(t, racks(), pod, cpu)
	seats := NewSeats(&cl, nil)
	p, err := seats.Observe(state(t, a, "ns/pod:p"))
	require.NoError(t, err)
	c, err := seats.Observe(state(t, a, "ns/pod:cpu"))
	require.NoError(t, err)
	adopted(t, &cl, p, c)
	seats.Hold(c)
	cl.Nodes[0].MIG = "no such model"
	seats.Rebase(&cl)
	_, err = seats.Observe(state(t, a, "ns/pod:p"))
	require.ErrorIs(t, err, lockstep.ErrConflict)
}

func TestSeatsAreTold(t *testing.T) {
	cl := cluster(t, racks(), Inputs{Nodes: []*corev1.Node{newNode("n1")}})
	seats := NewSeats(&cl, func(p *Pod) (lockstep.DeviceSet, int32, bool) { return 1 << 6, 0, p.Name == "g-0" })
	a := newAssembler(t, racks(), bound(member("g", 2, 0), "n1"), bound(member("g", 2, 1), "n1"))
	p, err := seats.Observe(state(t, a, "ns/g"))
	require.NoError(t, err)
	require.Equal(t, lockstep.DeviceSet(1<<6), p.Members[0].Devices)
	require.Equal(t, lockstep.DeviceSet(1), p.Members[1].Devices)
}
