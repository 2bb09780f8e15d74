package view

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-gpu/lockstep"
)

func TestGangIsReadyWhenItsLeastIsThere(t *testing.T) {
	a := newAssembler(t, Config{}, member("g", 3, 10), member("g", 3, 2))
	s := state(t, a, "ns/g")
	require.Equal(t, Incomplete, s.Phase)
	require.Nil(t, s.Gang)
	require.Equal(t, 1, s.Missing)
	require.Equal(t, "2 pods of 3 are there", s.Detail)
	require.NoError(t, a.Upsert(member("g", 3, 0)))
	s = state(t, a, "ns/g")
	require.Equal(t, Ready, s.Phase)
	require.Equal(t, []string{"g-0", "g-2", "g-10"}, podNames(s.Pods), "by the numbers in their names")
	require.Equal(t, &lockstep.Gang{
		ID: "ns/g", Tenant: "ns", Labels: map[string]string{namespaceLabel: "ns"}, Capabilities: lockstep.Capabilities{Preemptible: true},
		Roles: []lockstep.Role{{Min: 3, Max: 3, Demand: lockstep.Demand{GPUs: 1, CPU: 4000, Memory: 16 * lockstep.GiB}}},
	}, s.Gang)
}

func TestPodAloneIsAGang(t *testing.T) {
	a := newAssembler(t, Config{}, newPod("p"), newPod("g-1", Prefix+"gang", "p", Prefix+"min-member", "1"))
	require.Equal(t, []lockstep.JobID{"ns/p", "ns/pod:p"}, a.IDs())
	s := state(t, a, "ns/pod:p")
	require.Equal(t, Ready, s.Phase)
	require.Equal(t, 1, s.Gang.MaxMembers())
}

func TestLongNamesOfPodsStayIDs(t *testing.T) {
	long := strings.Repeat("x", 251)
	a := newAssembler(t, Config{}, newPod(long+"-1"), newPod(long+"-2"))
	require.Len(t, a.IDs(), 2)
	for _, id := range a.IDs() {
		require.NoError(t, id.Validate())
		require.Equal(t, Ready, state(t, a, id).Phase)
	}
}

func TestGangNeedsToSayHowManyItIs(t *testing.T) {
	a := newAssembler(t, Config{}, newPod("p", Prefix+"gang", "g"))
	s := state(t, a, "ns/g")
	require.Equal(t, Faulty, s.Phase)
	requireFault(t, s.Faults[0], lockstep.ErrInvalid, "p", Prefix+"min-member", "")
	require.NoError(t, a.UpsertGroup(Group{Namespace: "ns", Name: "g", Min: 1}))
	require.Equal(t, Ready, state(t, a, "ns/g").Phase)
}

func TestAnnotationsOfAGang(t *testing.T) {
	pairs := []string{
		Prefix + "queue", "vision", Prefix + "tenant", "team", Prefix + "priority", "-5", Prefix + "walltime", "90m", Prefix + "required-level", "example.com/block",
		Prefix + "preferred-level", "rack", Prefix + "preemption", "never", Prefix + "preemptible", "false", Prefix + "resizable", "true", Prefix + "replaceable", "true",
		Prefix + "grace", "30s", Prefix + "save", "1m", Prefix + "restore", "2m", Prefix + "hold", "3m", Prefix + "strategy", "spread", Prefix + "canary", "2",
		Prefix + "inner-level", "node", Prefix + "inner-size", "2", Prefix + "spares", "1", Prefix + "max-member", "4",
		Prefix + "gpu-memory", "40Gi", Prefix + "gpu-classes", "H200, H100",
	}
	a := newAssembler(t, racks())
	for i := range 5 {
		require.NoError(t, a.Upsert(member("g", 2, i, pairs...)))
	}
	require.Equal(t, &lockstep.Gang{
		ID: "ns/g", Tenant: "team", Queue: "vision", Priority: -5, Walltime: 90 * time.Minute, Required: "block", Preferred: "rack",
		Preemption: lockstep.PreemptNever, Strategy: lockstep.Spread, Canary: 2, Hold: 3 * time.Minute,
		Labels: map[string]string{namespaceLabel: "ns"},
		Capabilities: lockstep.Capabilities{
			Resizable: true, Replaceable: true, Grace: 30 * time.Second, Save: time.Minute, Restore: 2 * time.Minute,
		},
		Roles: []lockstep.Role{{
			Min: 2, Max: 4, Spares: 1, Inner: lockstep.Inner{Size: 2, Level: lockstep.LevelNode},
			Demand: lockstep.Demand{GPUs: 1, CPU: 4000, Memory: 16 * lockstep.GiB, GPUMemory: 40 * lockstep.GiB, Classes: []lockstep.DeviceClass{"H100", "H200"}},
		}},
	}, state(t, a, "ns/g").Gang)
}

func TestMalformedAnnotationHoldsItsGangOnly(t *testing.T) {
	for key, bad := range map[string][]string{ // each case stands alone
		"gang": {"", "a b", "a/b", "pod:x"}, "min-member": {"", "0", "-1", "3.0", "1048577", "x"}, "max-member": {"0"}, "queue": {"", "a b"}, "tenant": {"a\nb"},
		"priority": {"high", "2147483648"}, "walltime": {"1", "-1h", "87601h", "x"}, "required-level": {"row", ""}, "preferred-level": {"cluster"},
		"preemption": {"lowest"}, "preemptible": {"yes", "1"}, "resizable": {"True"}, "replaceable": {""}, "grace": {"30"}, "save": {"x"}, "restore": {"x"}, "hold": {"x"},
		"strategy": {"Pack"}, "canary": {"-1"}, "role": {"a b"}, "role-min": {"0"}, "role-max": {"0"}, "role-order": {"x"}, "inner-level": {"x"}, "inner-size": {"0"},
		"spares": {"x"}, "index": {"-1", "x"}, "gpu-share-milli": {"0", "1001", "0.5"}, "gpu-memory": {"40 Gi", "-1"}, "gpu-classes": {"", "a,,b"},
	} {
		for _, text := range bad {
			t.Run(key+"="+text, func(t *testing.T) {
				a := newAssembler(t, racks(), member("g", 2, 0), member("h", 2, 0), member("h", 2, 1))
				p := member("g", 2, 1, Prefix+key, text)
				err := a.Upsert(p)
				shown := text
				if key == "tenant" {
					shown = "a\\nb"
				}
				kind := lockstep.ErrInvalid
				if key == "required-level" || key == "preferred-level" || key == "inner-level" {
					kind = lockstep.ErrUnknown
				}
				requireFault(t, err, kind, "g-1", Prefix+key, shown)
				require.Equal(t, Ready, state(t, a, "ns/h").Phase)
				id, ok := a.Gang(p.UID)
				require.True(t, ok)
				s := state(t, a, id)
				require.Equal(t, Faulty, s.Phase)
				require.Nil(t, s.Gang)
				require.Equal(t, err, s.Faults[0])
				require.Equal(t, err, a.Upsert(p.DeepCopy()), "told again")
				require.NoError(t, a.Upsert(member("g", 2, 1)))
				require.Equal(t, Ready, state(t, a, "ns/g").Phase, "put right")
			})
		}
	}
}

func TestForbiddenAnnotations(t *testing.T) {
	cfg := Config{Forbidden: []string{"tenant", "priority"}, Aliases: []Dialect{KAI}}
	a := newAssembler(t, cfg, member("g", 1, 0))
	requireFault(t, a.Upsert(member("g", 1, 0, Prefix+"priority", "9")), lockstep.ErrInvalid, "g-0", Prefix+"priority", "9")
	requireFault(t, a.UpsertGroup(Group{Namespace: "ns", Name: "h", Annotations: map[string]string{Prefix + "tenant": "other"}}), lockstep.ErrInvalid, "h", Prefix+"tenant", "other")
	require.ErrorIs(t, Config{Forbidden: []string{"tenants"}}.Validate(), lockstep.ErrUnknown)
}

func TestPodsMustNotContradictEachOther(t *testing.T) {
	a := newAssembler(t, Config{}, member("g", 2, 0, Prefix+"queue", "a"), member("g", 2, 1, Prefix+"queue", "b"))
	s := state(t, a, "ns/g")
	require.Equal(t, Faulty, s.Phase)
	requireFault(t, s.Faults[0], lockstep.ErrConflict, "g-1", Prefix+"queue", "b")
	require.Contains(t, s.Detail, "pod g-0 says a")
	require.NoError(t, a.UpsertGroup(Group{Namespace: "ns", Name: "g", Annotations: map[string]string{Prefix + "queue": "c"}}))
	s = state(t, a, "ns/g")
	require.Equal(t, Ready, s.Phase, "the group wins")
	require.Equal(t, lockstep.QueueID("c"), s.Gang.Queue)

	other := member("g", 2, 1)
	other.Spec.Containers[0].Resources.Requests = list("nvidia.com/gpu", "2")
	require.NoError(t, a.Upsert(other))
	requireFault(t, state(t, a, "ns/g").Faults[0], lockstep.ErrConflict, "g-1", "spec.containers.resources", "gpu=2")
	other = member("g", 2, 1)
	other.Spec.NodeSelector = map[string]string{"a": "b"}
	require.NoError(t, a.Upsert(other))
	requireFault(t, state(t, a, "ns/g").Faults[0], lockstep.ErrConflict, "g-1", "spec.affinity", "")
}

func TestTextsThatMeanTheSameDoNotContradict(t *testing.T) {
	a := newAssembler(t, racks(), member("g", 2, 0, Prefix+"walltime", "90m", Prefix+"required-level", "rack"), member("g", 2, 1, Prefix+"walltime", "1h30m", Prefix+"required-level", "example.com/rack"))
	require.Equal(t, Ready, state(t, a, "ns/g").Phase)
}

func TestRoles(t *testing.T) {
	launcher := func(pairs ...string) *corev1.Pod {
		p := member("g", 3, 0, append([]string{Prefix + "role", "launcher"}, pairs...)...)
		p.Name, p.UID = "launch", "uid-launch"
		p.Spec.Containers[0].Resources.Requests = list("cpu", "1")
		return p
	}
	worker := func(i int, pairs ...string) *corev1.Pod {
		return member("g", 3, i, append([]string{Prefix + "role", "worker"}, pairs...)...)
	}
	t.Run("counts come of the pods", func(t *testing.T) {
		a := newAssembler(t, Config{}, worker(0), worker(1))
		require.Equal(t, Incomplete, state(t, a, "ns/g").Phase, "the launcher is not there")
		require.NoError(t, a.Upsert(launcher()))
		g := state(t, a, "ns/g").Gang
		require.Equal(t, []lockstep.Role{
			{Name: "launcher", Min: 1, Max: 1, Demand: lockstep.Demand{CPU: 1000}},
			{Name: "worker", Min: 2, Max: 2, Demand: lockstep.Demand{GPUs: 1, CPU: 4000, Memory: 16 * lockstep.GiB}},
		}, g.Roles)
		require.NoError(t, a.Upsert(worker(2)))
		requireFault(t, state(t, a, "ns/g").Faults[0], lockstep.ErrInvalid, "g-0", Prefix+"role-min", "")
	})
	t.Run("order", func(t *testing.T) {
		a := newAssembler(t, Config{}, worker(0), worker(1), launcher(Prefix+"role-order", "1"))
		s := state(t, a, "ns/g")
		require.Equal(t, lockstep.RoleName("worker"), s.Gang.Roles[0].Name)
		require.Equal(t, []string{"g-0", "g-1", "launch"}, podNames(s.Pods))
	})
	t.Run("bounds", func(t *testing.T) {
		a := newAssembler(t, Config{}, worker(0, Prefix+"role-min", "2", Prefix+"role-max", "3"), worker(1), worker(2), worker(3), launcher())
		g := state(t, a, "ns/g").Gang
		require.Equal(t, 1, g.Roles[0].Min, "what is left of min-member")
		require.Equal(t, [2]int{2, 3}, [2]int{g.Roles[1].Min, g.Roles[1].Max})
		require.NoError(t, a.Upsert(launcher(Prefix+"role-min", "2")))
		requireFault(t, state(t, a, "ns/g").Faults[0], lockstep.ErrConflict, "g-0", Prefix+"min-member", "3")
		require.NoError(t, a.Upsert(launcher(Prefix+"max-member", "9")))
		requireFault(t, state(t, a, "ns/g").Faults[0], lockstep.ErrInvalid, "g-0", Prefix+"max-member", "9")
	})
	t.Run("labels of controllers", func(t *testing.T) {
		p, q := member("g", 2, 0), member("g", 2, 1)
		p.Labels = map[string]string{"training.kubeflow.org/replica-type": "master", "training.kubeflow.org/replica-index": "0"}
		q.Labels = map[string]string{"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
		g := state(t, newAssembler(t, Config{}, p, q), "ns/g").Gang
		require.Equal(t, lockstep.RoleName("master"), g.Roles[0].Name)
	})
	t.Run("of the group", func(t *testing.T) {
		a := newAssembler(t, Config{}, newPod("w", Prefix+"gang", "g", Prefix+"role", "worker"))
		require.NoError(t, a.UpsertGroup(Group{Namespace: "ns", Name: "g", Min: 3, Roles: map[string]int{"worker": 2, "launcher": 1}}))
		s := state(t, a, "ns/g")
		require.Equal(t, Incomplete, s.Phase)
		require.Equal(t, 2, s.Missing)
	})
}

func TestRanks(t *testing.T) {
	index := func(name, n string) *corev1.Pod {
		return newPod(name, Prefix+"gang", "g", Prefix+"min-member", "2", Prefix+"index", n)
	}
	t.Run("said", func(t *testing.T) {
		s := state(t, newAssembler(t, Config{}, index("a", "2"), index("b", "0"), index("c", "1")), "ns/g")
		require.Equal(t, []string{"b", "c", "a"}, podNames(s.Pods))
	})
	t.Run("of a job", func(t *testing.T) {
		p, q := member("g", 2, 0), member("g", 2, 1)
		p.Labels = map[string]string{"batch.kubernetes.io/job-completion-index": "1"}
		q.Annotations["batch.kubernetes.io/job-completion-index"] = "0"
		require.Equal(t, []string{"g-1", "g-0"}, podNames(state(t, newAssembler(t, Config{}, p, q), "ns/g").Pods))
		p.Labels["batch.kubernetes.io/job-completion-index"] = "one"
		a := newAssembler(t, Config{})
		requireFault(t, a.Upsert(p), lockstep.ErrInvalid, "g-0", "batch.kubernetes.io/job-completion-index", "one")
	})
	t.Run("twice", func(t *testing.T) {
		s := state(t, newAssembler(t, Config{}, index("a", "1"), index("b", "1")), "ns/g")
		requireFault(t, s.Faults[0], lockstep.ErrDuplicate, "b", Prefix+"index", "1")
	})
	t.Run("bound pods keep theirs", func(t *testing.T) {
		kept := func(name, rank string) *corev1.Pod {
			return bound(newPod(name, Prefix+"gang", "g", Prefix+"min-member", "4", KeyRoleRank, rank), "n")
		}
		a := newAssembler(t, Config{}, kept("z", "0"), kept("a", "2"), kept("m", "3"), newPod("new", Prefix+"gang", "g", Prefix+"min-member", "4"))
		s := state(t, a, "ns/g")
		require.Equal(t, []string{"z", "new", "a", "m"}, podNames(s.Pods), "the new one fills the gap")
		require.Equal(t, Partial, s.Phase)
		require.NotNil(t, s.Gang, "it can be completed")
	})
	t.Run("a successor takes the number of one that ended", func(t *testing.T) {
		old := phase(bound(index("a", "0"), "n"), corev1.PodSucceeded)
		s := state(t, newAssembler(t, Config{}, old, index("b", "0"), index("c", "1")), "ns/g")
		require.Equal(t, []string{"b", "c"}, podNames(s.Pods))
		require.Equal(t, Ready, s.Phase)
	})
}

func TestPhases(t *testing.T) {
	gate := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}}
		return p
	}
	gone := func(p *corev1.Pod) *corev1.Pod {
		p.DeletionTimestamp = &metav1.Time{}
		return p
	}
	for name, c := range map[string]struct { // each case stands alone
		pods                                 []*corev1.Pod
		phase                                Phase
		missing, bound, ended, failed, gated int
		leaving                              int
	}{
		"gated":           {pods: []*corev1.Pod{member("g", 2, 0), gate(member("g", 2, 1))}, phase: Gated, missing: 1, gated: 1},
		"partial":         {pods: []*corev1.Pod{bound(member("g", 2, 0), "n"), member("g", 2, 1)}, phase: Partial, bound: 1},
		"partial, short":  {pods: []*corev1.Pod{bound(member("g", 2, 0), "n")}, phase: Partial, bound: 1, missing: 1},
		"placed":          {pods: []*corev1.Pod{bound(member("g", 2, 0), "n"), bound(member("g", 2, 1), "n")}, phase: Placed, bound: 2},
		"more than least": {pods: []*corev1.Pod{bound(member("g", 2, 0), "n"), bound(member("g", 2, 1), "n"), member("g", 2, 2)}, phase: Placed, bound: 2},
		"one ended":       {pods: []*corev1.Pod{bound(member("g", 2, 0), "n"), phase(bound(member("g", 2, 1), "n"), corev1.PodSucceeded)}, phase: Placed, bound: 2, ended: 1},
		"one failed":      {pods: []*corev1.Pod{bound(member("g", 2, 0), "n"), phase(bound(member("g", 2, 1), "n"), corev1.PodFailed)}, phase: Partial, bound: 1, failed: 1, missing: 1},
		"one leaves":      {pods: []*corev1.Pod{bound(member("g", 2, 0), "n"), gone(bound(member("g", 2, 1), "n"))}, phase: Partial, bound: 1, leaving: 1, missing: 1},
		"over":            {pods: []*corev1.Pod{phase(bound(member("g", 2, 0), "n"), corev1.PodSucceeded), phase(bound(member("g", 2, 1), "n"), corev1.PodFailed)}, phase: Over, bound: 1, ended: 1, failed: 1, missing: 1},
		"all leave":       {pods: []*corev1.Pod{gone(bound(member("g", 1, 0), "n")), gone(member("g", 1, 1))}, phase: Over, leaving: 1},
		"tried again":     {pods: []*corev1.Pod{phase(bound(member("g", 1, 0), "n"), corev1.PodFailed), member("g", 1, 1)}, phase: Ready, failed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := state(t, newAssembler(t, Config{}, c.pods...), "ns/g")
			require.Equal(t, c.phase, s.Phase, "%+v", s)
			require.Equal(t, [...]int{c.missing, c.bound, c.ended, c.failed, c.gated, c.leaving}, [...]int{s.Missing, s.Bound, s.Ended, s.Failed, s.Gated, len(s.Leaving)})
		})
	}
}

func TestGroupOfKubernetes(t *testing.T) {
	name, priority, never := "g", int32(7), schedulingv1beta1.PreemptNever
	p := newPod("p")
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
	p.Spec.Priority = new(int32)
	a := newAssembler(t, racks(), p)
	s := state(t, a, "ns/g")
	require.Equal(t, Incomplete, s.Phase, "the group will come")
	require.Equal(t, "its PodGroup is not there", s.Detail)
	require.Equal(t, 1, s.Missing)
	g := &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", Annotations: map[string]string{Prefix + "queue": "q"}},
		Spec: schedulingv1beta1.PodGroupSpec{
			SchedulingPolicy:      schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}},
			SchedulingConstraints: &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: "example.com/rack"}}},
			Priority:              &priority, PreemptionPolicy: &never,
		},
	}
	require.NoError(t, a.UpsertGroup(PodGroup(g)))
	require.Equal(t, Incomplete, state(t, a, "ns/g").Phase)
	q := newPod("q")
	q.Spec.SchedulingGroup = p.Spec.SchedulingGroup
	require.NoError(t, a.Upsert(q))
	got := state(t, a, "ns/g").Gang
	require.Equal(t, lockstep.Level("rack"), got.Required)
	require.Equal(t, lockstep.Priority(7), got.Priority)
	require.Equal(t, lockstep.PreemptNever, got.Preemption)
	require.Equal(t, lockstep.QueueID("q"), got.Queue)
	g.Spec.SchedulingConstraints.Topology[0].Key = "example.com/row"
	requireFault(t, a.UpsertGroup(PodGroup(g)), lockstep.ErrUnknown, "g", "spec.required-level", "example.com/row")
	require.Equal(t, Faulty, state(t, a, "ns/g").Phase)
	g.Spec = schedulingv1beta1.PodGroupSpec{SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}}
	require.NoError(t, a.UpsertGroup(PodGroup(g)))
	require.Equal(t, 1, state(t, a, "ns/g").Want)
	a.DeleteGroup("ns", "g")
	require.Equal(t, Incomplete, state(t, a, "ns/g").Phase)
	require.NoError(t, a.Upsert(bound(p.DeepCopy(), "n")))
	require.Equal(t, Partial, state(t, a, "ns/g").Phase)
	a.DeleteGroup("ns", "g")
	a.DeleteGroup("ns", "other")
}

func TestLikePodsWithConstraintsAgree(t *testing.T) {
	pod := func(i int) *corev1.Pod {
		p := member("g", 3, i)
		p.Labels = map[string]string{"app": "train"}
		p.Spec.NodeSelector = map[string]string{"a": "1", "b": "2"}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cache"}},
		}}}}
		return p
	}
	a := newAssembler(t, Config{}, pod(0), pod(1), pod(2))
	s := state(t, a, "ns/g")
	require.Equal(t, Ready, s.Phase, s.Detail)
	require.Equal(t, "train", s.Gang.Labels["app"])
	require.Same(t, a.pods["uid-g-0"].spec, a.pods["uid-g-2"].spec)
	other := pod(2)
	other.Labels["app"] = "eval"
	require.NoError(t, a.Upsert(other))
	s = state(t, a, "ns/g")
	require.Equal(t, Ready, s.Phase, "labels may differ")
	require.NotContains(t, s.Gang.Labels, "app", "and are the gang's where they do not")
	other.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels["app"] = "x"
	require.NoError(t, a.Upsert(other))
	require.Equal(t, Faulty, state(t, a, "ns/g").Phase)
}

func TestDefaultsOfPods(t *testing.T) {
	p, q := member("g", 2, 0), member("g", 2, 1)
	three, nine, grace, deadline, never := int32(3), int32(9), int64(45), int64(600), corev1.PreemptNever
	p.Spec.Priority, q.Spec.Priority = &three, &nine
	p.Spec.TerminationGracePeriodSeconds, q.Spec.ActiveDeadlineSeconds = &grace, &deadline
	p.Spec.PreemptionPolicy = &never
	g := state(t, newAssembler(t, Config{}, p, q), "ns/g").Gang
	require.Equal(t, lockstep.Priority(9), g.Priority)
	require.Equal(t, 45*time.Second, g.Capabilities.Grace)
	require.Equal(t, 10*time.Minute, g.Walltime)
	require.Equal(t, lockstep.PreemptLower, g.Preemption, "not all say never")
	q.Spec.PreemptionPolicy = &never
	require.Equal(t, lockstep.PreemptNever, state(t, newAssembler(t, Config{}, p, q), "ns/g").Gang.Preemption)
	q.Annotations[Prefix+"preemption"] = "lower"
	require.Equal(t, lockstep.PreemptLower, state(t, newAssembler(t, Config{}, p, q), "ns/g").Gang.Preemption)
}

func TestChangesAreTold(t *testing.T) {
	a := newAssembler(t, Config{}, member("g", 1, 0), member("h", 1, 0))
	require.Equal(t, Changes{Gangs: []lockstep.JobID{"ns/g", "ns/h"}}, a.Take())
	require.Empty(t, a.Take())
	p := member("g", 1, 0)
	p.ResourceVersion, p.Status.Phase = "2", corev1.PodPending
	require.NoError(t, a.Upsert(p))
	require.Empty(t, a.Take(), "nothing changed that counts")
	was := state(t, a, "ns/g").Gang
	require.NoError(t, a.Upsert(bound(p.DeepCopy(), "n")))
	require.Equal(t, []lockstep.JobID{"ns/g"}, a.Take().Gangs)
	require.Same(t, was, state(t, a, "ns/g").Gang, "it says the same")
	a.Delete(p.UID)
	a.Delete(p.UID)
	require.Equal(t, []lockstep.JobID{"ns/g"}, a.Take().Gangs)
	_, ok := a.State("ns/g")
	require.False(t, ok)
	_, ok = a.Gang(p.UID)
	require.False(t, ok)
}

func TestPodThatChangesItsGang(t *testing.T) {
	p := member("g", 1, 0)
	a := newAssembler(t, Config{}, p)
	p = p.DeepCopy()
	p.Annotations[Prefix+"gang"] = "h"
	require.NoError(t, a.Upsert(p))
	require.Equal(t, []lockstep.JobID{"ns/h"}, a.IDs())
}

func TestPodsOfOthers(t *testing.T) {
	daemon := bound(newPod("daemon"), "n")
	daemon.Spec.SchedulerName = "default-scheduler"
	daemon.Spec.Containers[0].Resources.Requests = list("cpu", "250m", "memory", "1Gi")
	a := newAssembler(t, Config{}, daemon, daemon.DeepCopy())
	require.Empty(t, a.IDs())
	require.Equal(t, map[lockstep.NodeID]Usage{"n": {CPU: 250, Memory: lockstep.GiB, Pods: 1}}, a.Foreign())
	require.Equal(t, []lockstep.NodeID{"n"}, a.Take().Nodes)
	require.NoError(t, a.Upsert(daemon))
	require.Empty(t, a.Take())

	waits := daemon.DeepCopy()
	waits.UID, waits.Spec.NodeName = "waits", ""
	require.NoError(t, a.Upsert(waits))
	require.Empty(t, a.Take(), "it takes nothing yet")
	require.NoError(t, a.Upsert(phase(daemon.DeepCopy(), corev1.PodSucceeded)))
	require.Equal(t, Changes{Nodes: []lockstep.NodeID{"n"}}, a.Take())
	require.Empty(t, a.Foreign())

	gpu := bound(newPod("gpu"), "n")
	gpu.Spec.SchedulerName = "default-scheduler"
	gpu.Spec.Containers[0].Resources.Requests = list("cpu", "1", "nvidia.com/gpu", "2", "nvidia.com/mig-1g.10gb", "2")
	require.NoError(t, a.Upsert(gpu))
	s := state(t, a, "ns/foreign:gpu")
	require.True(t, s.Foreign)
	require.Equal(t, Placed, s.Phase)
	require.Equal(t, []lockstep.Demand{{GPUs: 2, CPU: 1000}, {GPUs: 1, Profile: "1g.10gb"}, {GPUs: 1, Profile: "1g.10gb"}}, s.Pods[0].Takes())
	require.NoError(t, a.Upsert(phase(gpu.DeepCopy(), corev1.PodFailed)))
	require.Empty(t, a.IDs(), "it holds nothing any more")
	a.Delete("never seen")
}

func TestNamesOfNodesAreForgotten(t *testing.T) {
	a := newAssembler(t, Config{})
	for i := range 5000 {
		p := bound(member("g", 1, 0), "node-"+number(i))
		require.NoError(t, a.Upsert(p))
	}
	require.LessOrEqual(t, len(a.nodes), 1025)
}
