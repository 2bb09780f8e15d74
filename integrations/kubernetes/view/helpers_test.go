package view

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/labels"
)

// racks is a configuration with blocks of racks.
func racks() Config {
	return Config{Keys: []labels.Key{
		{Label: "example.com/block", Level: topology.Level{Name: "block"}},
		{Label: "example.com/rack", Level: topology.Level{Name: "rack"}},
	}}
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// newPod returns a pod of ours in namespace ns with annotations given as pairs, that
// asks for a device, 4 cores and 16Gi.
func newPod(name string, pairs ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			SchedulerName: DefaultSchedulerName,
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
				Requests: list("cpu", "4", "memory", "16Gi", "nvidia.com/gpu", "1"),
			}}},
		},
	}
	for i := 0; i < len(pairs); i += 2 {
		p.Annotations[pairs[i]] = pairs[i+1]
	}
	return p
}

// member is newPod for a gang with a least.
func member(gang string, least, i int, pairs ...string) *corev1.Pod {
	return newPod(gang+"-"+strconv.Itoa(i), append([]string{Prefix + "gang", gang, Prefix + "min-member", strconv.Itoa(least)}, pairs...)...)
}

func bound(p *corev1.Pod, node string) *corev1.Pod {
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	return p
}

func phase(p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	p.Status.Phase = phase
	return p
}

func newNode(name string, pairs ...string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"example.com/block": "b0", "example.com/rack": "r0", "nvidia.com/gpu.product": "H100", "nvidia.com/gpu.memory": "81559",
		}},
		Status: corev1.NodeStatus{
			Allocatable: list("cpu", "64", "memory", "512Gi", "pods", "110", "nvidia.com/gpu", "8"),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
		},
	}
	for i := 0; i < len(pairs); i += 2 {
		n.Labels[pairs[i]] = pairs[i+1]
	}
	return n
}

func newAssembler(t testing.TB, cfg Config, pods ...*corev1.Pod) *Assembler {
	t.Helper()
	a, err := NewAssembler(cfg)
	require.NoError(t, err)
	for _, p := range pods {
		require.NoError(t, a.Upsert(p))
	}
	return a
}

func state(t testing.TB, a *Assembler, id lockstep.JobID) *State {
	t.Helper()
	s, ok := a.State(id)
	require.True(t, ok, "no gang %s", id)
	return s
}

func podNames(pods []Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

// requireFault requires an error that names object, key and value.
func requireFault(t testing.TB, err error, kind error, name, key, value string) {
	t.Helper()
	var f *Fault
	require.ErrorAs(t, err, &f)
	require.ErrorIs(t, err, kind)
	require.Equal(t, name, f.Name)
	require.Equal(t, key, f.Err.Field)
	require.Contains(t, f.Err.Value, value)
	require.Contains(t, err.Error(), name)
	require.NotEmpty(t, f.Err.Reason)
}
