package view

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-gpu/lockstep"
)

func TestDemandAddsUpAsTheKubeletDoes(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	with := func(pairs ...string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: list(pairs...)}}
	}
	sidecar := func(pairs ...string) corev1.Container {
		c := with(pairs...)
		c.RestartPolicy = &always
		return c
	}
	for name, c := range map[string]struct { // each case stands alone
		spec corev1.PodSpec
		want lockstep.Demand
	}{
		"containers":  {corev1.PodSpec{Containers: []corev1.Container{with("cpu", "1", "nvidia.com/gpu", "2"), with("cpu", "500m", "memory", "1Gi", "nvidia.com/gpu", "1")}}, lockstep.Demand{GPUs: 3, CPU: 1500, Memory: lockstep.GiB}},
		"init larger": {corev1.PodSpec{InitContainers: []corev1.Container{with("cpu", "8"), with("memory", "2Gi")}, Containers: []corev1.Container{with("cpu", "1")}}, lockstep.Demand{CPU: 8000, Memory: 2 * lockstep.GiB}},
		"sidecars":    {corev1.PodSpec{InitContainers: []corev1.Container{sidecar("cpu", "1"), with("cpu", "3"), sidecar("cpu", "2")}, Containers: []corev1.Container{with("cpu", "500m")}}, lockstep.Demand{CPU: 4000}},
		"sidecars beside containers": {
			corev1.PodSpec{InitContainers: []corev1.Container{sidecar("cpu", "1"), with("cpu", "2")}, Containers: []corev1.Container{with("cpu", "5")}},
			lockstep.Demand{CPU: 6000},
		},
		"overhead":     {corev1.PodSpec{Overhead: list("cpu", "100m", "memory", "64Mi"), Containers: []corev1.Container{with("cpu", "1")}}, lockstep.Demand{CPU: 1100, Memory: 64 * lockstep.MiB}},
		"of the pod":   {corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("cpu", "2")}, Overhead: list("cpu", "1"), Containers: []corev1.Container{with("cpu", "1", "memory", "1Mi")}}, lockstep.Demand{CPU: 3000, Memory: lockstep.MiB}},
		"only limits":  {corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: list("nvidia.com/gpu", "8")}}}}, lockstep.Demand{GPUs: 8}},
		"rounded up":   {corev1.PodSpec{Containers: []corev1.Container{with("cpu", "1u", "memory", "1500m")}}, lockstep.Demand{CPU: 1, Memory: 2}},
		"mig":          {corev1.PodSpec{Containers: []corev1.Container{with("nvidia.com/mig-1g.10gb.me", "1")}}, lockstep.Demand{GPUs: 1, Profile: "1g.10gb+me"}},
		"scratch disk": {corev1.PodSpec{Containers: []corev1.Container{with("ephemeral-storage", "10Gi")}}, lockstep.Demand{}},
		"none of it":   {corev1.PodSpec{Containers: []corev1.Container{with("example.com/fpga", "0")}}, lockstep.Demand{}},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, err := Config{}.Demand(&corev1.Pod{Spec: c.spec})
			require.NoError(t, err)
			require.Equal(t, c.want, d)
		})
	}
}

func TestDemandThatIsNotPlaced(t *testing.T) {
	for value, requests := range map[string]corev1.ResourceList{ // each case stands alone
		"example.com/fpga":       list("example.com/fpga", "1"),
		"hugepages-2Mi":          list("hugepages-2Mi", "2Mi"),
		"nvidia.com/mig-1g.10gb": list("nvidia.com/mig-1g.10gb", "1", "nvidia.com/mig-2g.20gb", "1"),
		"nvidia.com/mig-2g.20gb": list("nvidia.com/mig-2g.20gb", "2"),
		"nvidia.com/mig-3g.40gb": list("nvidia.com/mig-3g.40gb", "1", "nvidia.com/gpu", "1"),
	} {
		t.Run(value, func(t *testing.T) {
			p := newPod("p")
			p.Spec.Containers[0].Resources.Requests = requests
			_, _, err := Config{}.Demand(p)
			requireFault(t, err, lockstep.ErrInvalid, "p", "spec.containers.resources", value)
		})
	}
	t.Run("ignored", func(t *testing.T) {
		p := newPod("p")
		p.Spec.Containers[0].Resources.Requests = list("example.com/fpga", "1")
		_, _, err := Config{IgnoreRequests: []string{"example.com/fpga"}}.Demand(p)
		require.NoError(t, err)
	})
	t.Run("more than a node has", func(t *testing.T) {
		p := newPod("p")
		p.Spec.Containers[0].Resources.Requests = list("nvidia.com/gpu", "9223372036854775807")
		_, _, err := Config{}.Demand(p)
		requireFault(t, err, lockstep.ErrInvalid, "p", "Demand.GPUs", "2147483647")
	})
}

func TestSharesAndEndpoints(t *testing.T) {
	p := newPod("p", Prefix+"gpu-share-milli", "250", Prefix+"gpu-memory", "10Gi")
	p.Spec.Containers[0].Resources.Requests = list("rdma/hca", "2")
	d, _, err := Config{RDMAResource: "rdma/hca"}.Demand(p)
	require.NoError(t, err)
	require.Equal(t, lockstep.Demand{GPUs: 1, Share: 250, GPUMemory: 10 * lockstep.GiB, RDMA: 2}, d)
	p.Annotations[Prefix+"gpu-share-milli"] = "1000"
	d, _, err = Config{RDMAResource: "rdma/hca"}.Demand(p)
	require.NoError(t, err)
	require.Zero(t, d.Share, "all of it")
}

func TestClaims(t *testing.T) {
	p := newPod("p")
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
	_, _, err := Config{}.Demand(p)
	requireFault(t, err, lockstep.ErrInvalid, "p", "spec.resourceClaims", "gpu")
	told, fail := lockstep.Demand{GPUs: 2, Classes: []lockstep.DeviceClass{"h100"}}, error(nil)
	cfg := Config{Claims: func(*corev1.Pod) (lockstep.Demand, error) { return told, fail }}
	_, _, err = cfg.Demand(p)
	requireFault(t, err, lockstep.ErrInvalid, "p", "spec.resourceClaims", "gpu")
	p.Spec.Containers[0].Resources.Requests = list("cpu", "1")
	d, _, err := cfg.Demand(p)
	require.NoError(t, err)
	require.Equal(t, lockstep.Demand{GPUs: 2, CPU: 1000, Classes: []lockstep.DeviceClass{"h100"}}, d)
	fail = &lockstep.Error{Kind: lockstep.ErrUnknown, Op: "dra: claim", Reason: "it is not there"}
	_, _, err = cfg.Demand(p)
	requireFault(t, err, lockstep.ErrUnknown, "p", "spec.resourceClaims", "gpu")
	fail = errors.New("some other")
	_, _, err = cfg.Demand(p)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestConstraints(t *testing.T) {
	p := newPod("p")
	p.Labels = map[string]string{"app": "train"}
	p.Spec.NodeSelector = map[string]string{"zone": "z", "pool": "a"}
	p.Spec.Tolerations = []corev1.Toleration{
		{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
		{Key: "lost", Operator: corev1.TolerationOpExists},
		{Key: "empty", Effect: corev1.TaintEffectNoExecute},
		{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule},
		{Key: "n", Operator: "Gt", Value: "3"},
		{Operator: corev1.TolerationOpExists},
	}
	p.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "gen", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"old"}}, {Key: "ib", Operator: corev1.NodeSelectorOpExists}},
			MatchFields:      []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}},
		}}}},
		PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: "example.com/rack", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cache"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"1"}}}},
		}}},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, Namespaces: []string{"other"}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "noisy"}},
		}}},
	}
	_, c, err := racks().Demand(p)
	require.NoError(t, err)
	require.Equal(t, lockstep.Constraints{
		Selector: []lockstep.Requirement{
			{Key: "pool", Operator: lockstep.In, Values: []string{"a"}},
			{Key: "zone", Operator: lockstep.In, Values: []string{"z"}},
			{Key: "gen", Operator: lockstep.NotIn, Values: []string{"old"}},
			{Key: "ib", Operator: lockstep.Exists},
			{Key: nodeNameLabel, Operator: lockstep.In, Values: []string{"n1"}},
		},
		Tolerations: []lockstep.Toleration{
			{Key: "dedicated:NoSchedule", Value: "gpu"}, {Key: "lost:NoExecute"}, {Key: "lost:NoSchedule"}, {Key: "empty:NoExecute", Value: "-"}, {},
		},
		Affinity: []lockstep.Affinity{
			{Match: map[string]string{"app": "cache", "tier": "1", namespaceLabel: "ns"}, Level: "rack"},
			{Match: map[string]string{"app": "noisy", namespaceLabel: "other"}, Level: lockstep.LevelNode, Anti: true},
		},
	}, c)
}

// A toleration must cancel a taint exactly when Kubernetes says so.
func TestTolerationsAreThoseOfKubernetes(t *testing.T) {
	keys, values := []string{"", "a", "b"}, []string{"", "x", "y"}
	effects := []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule}
	n := 0
	for _, key := range keys {
		for _, value := range values {
			for _, effect := range effects {
				for _, op := range []corev1.TolerationOperator{"", corev1.TolerationOpEqual, corev1.TolerationOpExists} {
					if key == "" && op != corev1.TolerationOpExists || op == corev1.TolerationOpExists && value != "" {
						continue // the server refuses these
					}
					if key == "" && effect != "" {
						continue // documented: tolerates nothing here
					}
					p := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: key, Operator: op, Value: value, Effect: effect}}}}
					for _, k := range keys[1:] {
						for _, v := range values {
							for _, e := range effects[1:] {
								theirs := corev1.Taint{Key: k, Value: v, Effect: e}
								ours, counts := taint(&theirs)
								require.Equal(t, e != corev1.TaintEffectPreferNoSchedule, counts)
								if !counts {
									continue
								}
								got := false
								for _, tol := range tolerations(p) {
									got = got || tol.Tolerates(ours)
								}
								want := (key == "" || key == k) && (effect == "" || effect == e) && (op == corev1.TolerationOpExists || value == v)
								require.Equal(t, want, got, "%+v %+v", p.Spec.Tolerations, theirs)
								n++
							}
						}
					}
				}
			}
		}
	}
	require.Greater(t, n, 200)
}

func TestAlternativesOfOneLabel(t *testing.T) {
	term := func(key, value string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}
	}
	p := newPod("p")
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term("a", "1"), term("a", "2")}}}}
	_, c, err := Config{}.Demand(p)
	require.NoError(t, err)
	require.Equal(t, []lockstep.Requirement{{Key: "a", Operator: lockstep.In, Values: []string{"1", "2"}}}, c.Selector)
	require.Equal(t, []string{"1"}, p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values, "the pod is not changed")
}

func TestConstraintsThatCannotBeKept(t *testing.T) {
	affinity := func(f func(*corev1.Affinity)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}, PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
			p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
			f(p.Spec.Affinity)
		}
	}
	node := func(terms ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
		return affinity(func(a *corev1.Affinity) {
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
		})
	}
	same := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "train"}}
	in := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpIn, Values: []string{"1"}}}}
	exists := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "b", Operator: corev1.NodeSelectorOpExists}}}
	for name, c := range map[string]struct { // each case stands alone
		change     func(*corev1.Pod)
		key, value string
		kind       error
	}{
		"spread": {func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}}
		}, "spec.topologySpreadConstraints", "zone", lockstep.ErrInvalid},
		"alternatives": {node(in, exists), "spec.affinity.nodeAffinity", "nodeSelectorTerms", lockstep.ErrInvalid},
		"numbers": {
			node(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpGt, Values: []string{"1"}}}}),
			"spec.affinity.nodeAffinity", "a", lockstep.ErrInvalid,
		},
		"fields": {
			node(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.uid", Operator: corev1.NodeSelectorOpIn, Values: []string{"1"}}}}),
			"spec.affinity.nodeAffinity", "metadata.uid", lockstep.ErrInvalid,
		},
		"empty": {node(corev1.NodeSelectorTerm{}), "spec.affinity.nodeAffinity", "nodeSelectorTerms", lockstep.ErrInvalid},
		"level": {affinity(func(a *corev1.Affinity) {
			a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{{TopologyKey: "row", LabelSelector: same}}
		}), "spec.affinity.podAffinity", "row", lockstep.ErrUnknown},
		"selector": {affinity(func(a *corev1.Affinity) {
			a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname}}
		}), "spec.affinity.podAffinity", corev1.LabelHostname, lockstep.ErrInvalid},
		"expression": {affinity(func(a *corev1.Affinity) {
			a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists}}}}}
		}), "spec.affinity.podAffinity", corev1.LabelHostname, lockstep.ErrInvalid},
		"apart": {affinity(func(a *corev1.Affinity) {
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: same}}
		}), "spec.affinity.podAntiAffinity", corev1.LabelHostname, lockstep.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod("p")
			p.Labels = map[string]string{"app": "train"}
			c.change(p)
			_, _, err := racks().Demand(p)
			requireFault(t, err, c.kind, "p", c.key, c.value)
		})
	}
}

func TestDemandDoesNotChangeThePod(t *testing.T) {
	p := newPod("p")
	p.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("cpu", "9")}}}
	was := p.DeepCopy()
	_, _, err := Config{}.Demand(p)
	require.NoError(t, err)
	require.True(t, was.Spec.Containers[0].Resources.Requests["cpu"].Equal(p.Spec.Containers[0].Resources.Requests["cpu"]))
	require.Equal(t, resource.MustParse("9"), p.Spec.InitContainers[0].Resources.Requests["cpu"])
}
