package view

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockstep-gpu/lockstep"
)

// aliased returns n pods as the users of another scheduler write them.
func aliased(n int, annotations, labels map[string]string) (out []*corev1.Pod) {
	for i := range n {
		p := newPod("p-" + number(i))
		for k, v := range annotations { // copied
			p.Annotations[k] = strings.ReplaceAll(v, "#", number(i))
		}
		p.Labels = map[string]string{}
		for k, v := range labels { // copied
			p.Labels[k] = strings.ReplaceAll(v, "#", number(i))
		}
		out = append(out, p)
	}
	return out
}

func TestDialectsAreRead(t *testing.T) {
	for _, c := range []struct {
		dialect             Dialect
		annotations, labels map[string]string
		want                lockstep.Gang
		shares              lockstep.MilliGPU
		memory              lockstep.Bytes
	}{
		{
			Volcano,
			map[string]string{
				"scheduling.k8s.io/group-name": "g", "scheduling.volcano.sh/group-min-member": "2", "scheduling.volcano.sh/queue-name": "q",
				"volcano.sh/task-spec": "worker", "volcano.sh/task-index": "#", "volcano.sh/preemptable": "false",
			},
			nil,
			lockstep.Gang{Queue: "q", Roles: []lockstep.Role{{Name: "worker", Min: 2}}},
			0, 0,
		},
		{
			Kueue,
			map[string]string{
				"kueue.x-k8s.io/pod-group-total-count": "2", "kueue.x-k8s.io/podset-required-topology": "example.com/block", "kueue.x-k8s.io/podset-preferred-topology": "example.com/rack",
				"kueue.x-k8s.io/podset-slice-required-topology": "kubernetes.io/hostname", "kueue.x-k8s.io/podset-slice-size": "2",
			},
			map[string]string{"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/pod-group-pod-index": "#"},
			lockstep.Gang{
				Queue: "q", Required: "block", Preferred: "rack", Capabilities: lockstep.Capabilities{Preemptible: true},
				Roles: []lockstep.Role{{Min: 2, Inner: lockstep.Inner{Size: 2, Level: lockstep.LevelNode}}},
			},
			0, 0,
		},
		{
			Coscheduling, nil,
			map[string]string{"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"},
			lockstep.Gang{Roles: []lockstep.Role{{Min: 2}}, Capabilities: lockstep.Capabilities{Preemptible: true}},
			0, 0,
		},
		{
			KAI,
			map[string]string{
				"pod-group-name": "g", Prefix + "min-member": "2", "kai.scheduler/topology-required-placement": "rack", "gpu-fraction": "0.25", "gpu-memory": "2000",
			},
			map[string]string{"kai.scheduler/queue": "q", "kai.scheduler/subgroup-name": "decode"},
			lockstep.Gang{Queue: "q", Required: "rack", Roles: []lockstep.Role{{Name: "decode", Min: 2}}, Capabilities: lockstep.Capabilities{Preemptible: true}},
			250, 2000 * lockstep.MiB,
		},
	} {
		t.Run(string(c.dialect), func(t *testing.T) {
			cfg := racks()
			pods := aliased(2, c.annotations, c.labels)
			_, ok := newAssembler(t, cfg, pods...).State("ns/g")
			require.False(t, ok, "not asked for")
			cfg.Aliases = []Dialect{c.dialect}
			s := state(t, newAssembler(t, cfg, pods...), "ns/g")
			require.Equal(t, Ready, s.Phase, s.Detail)
			got := *s.Gang
			got.ID, got.Tenant, got.Labels = "", "", nil
			require.Equal(t, c.shares, got.Roles[0].Demand.Share)
			require.Equal(t, c.memory, got.Roles[0].Demand.GPUMemory)
			got.Roles[0].Demand, got.Roles[0].Max = lockstep.Demand{}, 0
			require.Equal(t, c.want, got)
		})
	}
}

func TestOurWordsWinAndDialectsComeInOrder(t *testing.T) {
	cfg := Config{Aliases: []Dialect{KAI, Kueue}}
	p := newPod("p", Prefix+"gang", "ours", Prefix+"min-member", "1", "pod-group-name", "theirs")
	p.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "second", "kai.scheduler/queue": "first"}
	s := state(t, newAssembler(t, cfg, p), "ns/ours")
	require.Equal(t, lockstep.QueueID("first"), s.Gang.Queue)
	p.Labels[Prefix+"queue"] = "label"
	require.Equal(t, lockstep.QueueID("label"), state(t, newAssembler(t, cfg, p), "ns/ours").Gang.Queue)
	p.Annotations[Prefix+"queue"] = "annotation"
	require.Equal(t, lockstep.QueueID("annotation"), state(t, newAssembler(t, cfg, p), "ns/ours").Gang.Queue)
}

func TestFaultsNameTheAliasThatIsWrong(t *testing.T) {
	cfg := Config{Aliases: []Dialect{KAI, Volcano}}
	for key, text := range map[string]string{"gpu-fraction": "1.5", "gpu-memory": "2Gi", "volcano.sh/preemptable": "yes", "kai.scheduler/topology-required-placement": "row"} { // each stands alone
		a := newAssembler(t, cfg)
		err := a.Upsert(newPod("p", key, text))
		kind := lockstep.ErrInvalid
		if text == "row" {
			kind = lockstep.ErrUnknown
		}
		requireFault(t, err, kind, "p", key, text)
	}
}

func TestTableOfAnnotations(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range Annotations() {
		require.False(t, seen[a.Key])
		seen[a.Key] = true
		require.NotEmpty(t, a.Form)
		require.NotEmpty(t, a.Meaning)
		require.Contains(t, []Scope{ScopeGang, ScopeRole, ScopePod}, a.Scope)
	}
	require.Len(t, seen, int(keys))
	for _, written := range []string{KeyRank, KeyRoleRank, KeyWorldSize, KeyAttempt} {
		require.False(t, seen[written], "what is written is not read as a wish")
	}
}
