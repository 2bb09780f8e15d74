package dra

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/placement"
)

// objects are those of testdata/gpus.yaml.
type objects struct {
	classes []*resourcev1.DeviceClass
	slices  []*resourcev1.ResourceSlice
	claim   *resourcev1.ResourceClaim
	pod     *corev1.Pod
}

func load(t testing.TB) (o objects) {
	t.Helper()
	data, err := os.ReadFile("testdata/gpus.yaml")
	require.NoError(t, err)
	for _, doc := range strings.Split(string(data), "\n---\n") {
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(doc), &kind))
		var err error
		switch kind.Kind {
		case "DeviceClass":
			c := &resourcev1.DeviceClass{}
			err = yaml.UnmarshalStrict([]byte(doc), c)
			o.classes = append(o.classes, c)
		case "ResourceSlice":
			s := &resourcev1.ResourceSlice{}
			err = yaml.UnmarshalStrict([]byte(doc), s)
			o.slices = append(o.slices, s)
		case "ResourceClaim":
			o.claim = &resourcev1.ResourceClaim{}
			err = yaml.UnmarshalStrict([]byte(doc), o.claim)
		case "Pod":
			o.pod = &corev1.Pod{}
			err = yaml.UnmarshalStrict([]byte(doc), o.pod)
			o.pod.UID = "uid"
		}
		require.NoError(t, err)
	}
	return o
}

func get(claims ...*resourcev1.ResourceClaim) func(string, string) (*resourcev1.ResourceClaim, bool) {
	return func(namespace, name string) (*resourcev1.ResourceClaim, bool) {
		for _, c := range claims {
			if c.Namespace == namespace && c.Name == name {
				return c, true
			}
		}
		return nil, false
	}
}

func newNode(name string) *corev1.Node {
	q := resource.MustParse("64")
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": q, "memory": resource.MustParse("512Gi"), "pods": resource.MustParse("110")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func requireKind(t testing.TB, err, kind error, field string) {
	t.Helper()
	var e *lockstep.Error
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, kind)
	require.Contains(t, e.Field, field)
	require.NotEmpty(t, e.Reason)
}

// From published devices to an allocation, through the placer.
func TestClaimIsPlacedAndAllocated(t *testing.T) {
	o := load(t)
	v := New(Config{}, o.slices, o.classes)
	require.Empty(t, v.Faults())
	claims, err := Claims(o.pod, get(o.claim))
	require.NoError(t, err)
	cfg := view.Config{Claims: func(p *corev1.Pod) (lockstep.Demand, error) { return v.Demand(p, claims) }}
	cl, err := cfg.Cluster(view.Inputs{Nodes: []*corev1.Node{newNode("node-1"), newNode("node-2"), newNode("node-3")}, Devices: v.Devices()})
	require.NoError(t, err)
	require.Equal(t, lockstep.DeviceClass("NVIDIA-H100-80GB-HBM3"), cl.Nodes[0].Class)
	require.Equal(t, 80*lockstep.GiB, cl.Nodes[0].GPUMemory)
	a, err := view.NewAssembler(cfg)
	require.NoError(t, err)
	require.NoError(t, a.Upsert(o.pod))
	s, ok := a.State("default/pod:train-0")
	require.True(t, ok)
	require.Equal(t, view.Ready, s.Phase, s.Detail)
	p, err := placement.New(cl.Tree, placement.Config{Nodes: cl.Nodes})
	require.NoError(t, err)
	var plan lockstep.Plan
	verdict, err := p.Fit(&lockstep.Request{Gang: s.Gang}, &plan)
	require.NoError(t, err)
	require.True(t, verdict.Feasible)

	out, err := v.Allocate(o.pod, claims, plan.Members[0])
	require.NoError(t, err)
	require.Len(t, out, 1)
	require.Equal(t, resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
				{Request: "gpus", Driver: "gpu.example.com", Pool: "node-1", Device: "gpu-0"},
				{Request: "gpus", Driver: "gpu.example.com", Pool: "node-1", Device: "gpu-1"},
			}},
			NodeSelector: nodeSelector("node-1"),
		},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "train-0", UID: "uid"}},
	}, out[0].Status)
	require.Equal(t, []string{resourcev1.Finalizer}, out[0].Finalizers)
	require.True(t, NeedsUpdate(o.claim, out[0]))
	require.Nil(t, o.claim.Status.Allocation, "the claim given is not changed")

	again, err := v.Allocate(o.pod, out, plan.Members[0])
	require.NoError(t, err)
	require.Same(t, out[0], again[0])
	require.False(t, NeedsUpdate(out[0], again[0]))
	m, ok := v.Member(out)
	require.True(t, ok)
	require.Equal(t, lockstep.Member{Node: "node-1", Devices: 0b11}, m)
	other := plan.Members[0]
	other.Node = "node-2"
	_, err = v.Allocate(o.pod, out, other)
	requireKind(t, err, lockstep.ErrConflict, "status.allocation")
	free, err := Deallocate(o.pod, out[0])
	require.NoError(t, err)
	require.Zero(t, free.Status)
	_, err = v.Allocate(o.pod, []*resourcev1.ResourceClaim{free}, other)
	require.NoError(t, err)

	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "other"}}
	_, err = v.Demand(stranger, out)
	requireKind(t, err, lockstep.ErrConflict, "status.reservedFor")
	_, err = v.Allocate(stranger, out, plan.Members[0])
	requireKind(t, err, lockstep.ErrConflict, "status.reservedFor")
	_, err = Deallocate(stranger, out[0])
	requireKind(t, err, lockstep.ErrConflict, "status.reservedFor")
	_, ok = v.Member([]*resourcev1.ResourceClaim{o.claim})
	require.False(t, ok)
	_, ok = v.Member(nil)
	require.False(t, ok)
}

func TestAllocationOfDevicesThatAreGone(t *testing.T) {
	o := load(t)
	v := New(Config{}, o.slices, o.classes)
	claims := []*resourcev1.ResourceClaim{o.claim}
	for field, m := range map[string]lockstep.Member{ // each case stands alone
		"Member.Node":    {Node: "node-9", Devices: 3},
		"Member.Devices": {Node: "node-1", Devices: 0b101},
	} {
		_, err := v.Allocate(o.pod, claims, m)
		requireKind(t, err, lockstep.ErrStale, field)
	}
	_, err := v.Allocate(o.pod, claims, lockstep.Member{Node: "node-1", Devices: 1})
	requireKind(t, err, lockstep.ErrStale, "Member.Devices")
}

func TestClaimsOfAPod(t *testing.T) {
	o := load(t)
	template := o.pod.DeepCopy()
	name := "tpl"
	template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: &name}}
	_, err := Claims(template, get(o.claim))
	requireKind(t, err, lockstep.ErrUnknown, "gpus")
	made := "train-0-gpus"
	template.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "other"}, {Name: "gpus", ResourceClaimName: &made}}
	_, err = Claims(template, get(o.claim))
	requireKind(t, err, lockstep.ErrConflict, "gpus")
	yes := true
	o.claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "train-0", UID: "uid", Controller: &yes}}
	got, err := Claims(template, get(o.claim))
	require.NoError(t, err)
	require.Equal(t, []*resourcev1.ResourceClaim{o.claim}, got)
	_, err = Claims(template, get())
	requireKind(t, err, lockstep.ErrUnknown, "gpus")
	o.claim.DeletionTimestamp = &metav1.Time{}
	_, err = Claims(template, get(o.claim))
	requireKind(t, err, lockstep.ErrUnknown, "gpus")
	template.Status.ResourceClaimStatuses[1].ResourceClaimName = nil
	got, err = Claims(template, get())
	require.NoError(t, err)
	require.Empty(t, got)
}

func exactly(class string, n int64) *resourcev1.ExactDeviceRequest {
	return &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: n}
}

func claimOf(requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}}
}

func cel(expression string) []resourcev1.DeviceSelector {
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
}

func TestDemandOfClaims(t *testing.T) {
	o := load(t)
	a100 := o.slices[1].DeepCopy()
	a100.Name, a100.Spec.Pool.Name, a100.Spec.NodeName = "node-3-gpus", "node-3", new(string)
	*a100.Spec.NodeName = "node-3"
	product := "NVIDIA A100"
	for i := range a100.Spec.Devices {
		a100.Spec.Devices[i].Attributes["productName"] = resourcev1.DeviceAttribute{StringValue: &product}
	}
	v := New(Config{Classes: map[string]Class{"known": {Driver: "gpu.example.com", Equal: map[string]string{"productName": product}}}}, append(o.slices, a100), append(o.classes, &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "clever"}, Spec: resourcev1.DeviceClassSpec{Selectors: cel("device.attributes['x'].index > 3")},
	}, &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "nobody"}, Spec: resourcev1.DeviceClassSpec{Selectors: cel("device.driver == 'other'")},
	}))
	require.Empty(t, v.Faults())
	request := func(e *resourcev1.ExactDeviceRequest) resourcev1.DeviceRequest {
		return resourcev1.DeviceRequest{Name: "r", Exactly: e}
	}
	with := func(change func(e *resourcev1.ExactDeviceRequest)) resourcev1.DeviceRequest {
		e := exactly("gpu.example.com", 1)
		change(e)
		return request(e)
	}
	yes := true
	for name, c := range map[string]struct { // each case stands alone
		claims []*resourcev1.ResourceClaim
		want   lockstep.Demand
		kind   error
		field  string
	}{
		"none": {},
		"two":  {claims: []*resourcev1.ResourceClaim{claimOf(request(exactly("gpu.example.com", 1))), claimOf(request(exactly("gpu.example.com", 0)))}, want: lockstep.Demand{GPUs: 2}},
		"model": {claims: []*resourcev1.ResourceClaim{claimOf(with(func(e *resourcev1.ExactDeviceRequest) {
			e.Selectors = cel(`device.attributes["gpu.example.com"].productName == "NVIDIA A100"`)
		}))}, want: lockstep.Demand{GPUs: 1, Classes: []lockstep.DeviceClass{"NVIDIA-A100"}}},
		"known": {claims: []*resourcev1.ResourceClaim{claimOf(request(exactly("known", 2)))}, want: lockstep.Demand{GPUs: 2, Classes: []lockstep.DeviceClass{"NVIDIA-A100"}}},
		"all": {claims: []*resourcev1.ResourceClaim{claimOf(with(func(e *resourcev1.ExactDeviceRequest) {
			e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeAll, 0
		}))}, want: lockstep.Demand{GPUs: 2}},
		"memory": {claims: []*resourcev1.ResourceClaim{claimOf(with(func(e *resourcev1.ExactDeviceRequest) {
			e.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("40Gi")}}
		}))}, want: lockstep.Demand{GPUs: 1, GPUMemory: 40 * lockstep.GiB}},
		"first alternative": {claims: []*resourcev1.ResourceClaim{claimOf(resourcev1.DeviceRequest{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "a", DeviceClassName: "known", Count: 2}, {Name: "b", DeviceClassName: "gpu.example.com", Count: 8}}})}, want: lockstep.Demand{GPUs: 2, Classes: []lockstep.DeviceClass{"NVIDIA-A100"}}},
		"two models":        {claims: []*resourcev1.ResourceClaim{claimOf(request(exactly("known", 1)), request(exactly("gpu.example.com", 1)))}, kind: lockstep.ErrInvalid, field: "requests[r]"},
		"no class":          {claims: []*resourcev1.ResourceClaim{claimOf(request(exactly("x", 1)))}, kind: lockstep.ErrUnknown, field: "deviceClassName"},
		"clever class":      {claims: []*resourcev1.ResourceClaim{claimOf(request(exactly("clever", 1)))}, kind: lockstep.ErrInvalid, field: "DeviceClass clever"},
		"no device":         {claims: []*resourcev1.ResourceClaim{claimOf(request(exactly("nobody", 1)))}, kind: lockstep.ErrUnknown, field: "requests[r]"},
		"clever":            {claims: []*resourcev1.ResourceClaim{claimOf(with(func(e *resourcev1.ExactDeviceRequest) { e.Selectors = cel("device.driver.startsWith('gpu')") }))}, kind: lockstep.ErrInvalid, field: "selectors"},
		"contradiction":     {claims: []*resourcev1.ResourceClaim{claimOf(with(func(e *resourcev1.ExactDeviceRequest) { e.Selectors = cel("device.driver == 'other'") }))}, kind: lockstep.ErrInvalid, field: "selectors"},
		"no cel":            {claims: []*resourcev1.ResourceClaim{claimOf(with(func(e *resourcev1.ExactDeviceRequest) { e.Selectors = []resourcev1.DeviceSelector{{}} }))}, kind: lockstep.ErrInvalid, field: "selectors"},
		"admin":             {claims: []*resourcev1.ResourceClaim{claimOf(with(func(e *resourcev1.ExactDeviceRequest) { e.AdminAccess = &yes }))}, kind: lockstep.ErrInvalid, field: "adminAccess"},
		"derived": {claims: []*resourcev1.ResourceClaim{claimOf(with(func(e *resourcev1.ExactDeviceRequest) {
			e.DerivedAttributes = make([]resourcev1.DeviceDerivedAttribute, 1)
		}))}, kind: lockstep.ErrInvalid, field: "derivedAttributes"},
		"mode": {claims: []*resourcev1.ResourceClaim{claimOf(with(func(e *resourcev1.ExactDeviceRequest) { e.AllocationMode = "Some" }))}, kind: lockstep.ErrInvalid, field: "allocationMode"},
		"capacity": {claims: []*resourcev1.ResourceClaim{claimOf(with(func(e *resourcev1.ExactDeviceRequest) {
			e.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"cores": resource.MustParse("4")}}
		}))}, kind: lockstep.ErrInvalid, field: "capacity"},
		"nothing":  {claims: []*resourcev1.ResourceClaim{claimOf(resourcev1.DeviceRequest{Name: "r"})}, kind: lockstep.ErrInvalid, field: "requests[r]"},
		"too many": {claims: []*resourcev1.ResourceClaim{claimOf(request(exactly("gpu.example.com", 1<<40)))}, kind: lockstep.ErrInvalid, field: "requests"},
		"constraint": {claims: []*resourcev1.ResourceClaim{func() *resourcev1.ResourceClaim {
			c := claimOf(request(exactly("gpu.example.com", 2)))
			c.Spec.Devices.Constraints = make([]resourcev1.DeviceConstraint, 1)
			return c
		}()}, kind: lockstep.ErrInvalid, field: "constraints"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second answer is remembered
				d, err := v.Demand(o.pod, c.claims)
				if c.kind != nil {
					requireKind(t, err, c.kind, c.field)
					require.Zero(t, d)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, c.want, d)
			}
		})
	}
	o.slices[0].Spec.Devices = o.slices[0].Spec.Devices[:1]
	v = New(Config{}, o.slices, o.classes)
	_, err := v.Demand(o.pod, []*resourcev1.ResourceClaim{claimOf(with(func(e *resourcev1.ExactDeviceRequest) { e.AllocationMode = resourcev1.DeviceAllocationModeAll }))})
	requireKind(t, err, lockstep.ErrInvalid, "allocationMode")
}

func TestConfigurationIsCopied(t *testing.T) {
	o := load(t)
	opaque := func(driver string) resourcev1.DeviceConfiguration {
		return resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: driver}}
	}
	o.classes[0].Spec.Config = []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: opaque("class")}}
	o.claim.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{Requests: []string{"gpus"}, DeviceConfiguration: opaque("claim")}}
	o.claim.Spec.Devices.Requests[0].Exactly.Tolerations = []resourcev1.DeviceToleration{{Key: "k", Operator: resourcev1.DeviceTolerationOpExists}}
	v := New(Config{}, o.slices, o.classes)
	out, err := v.Allocate(o.pod, []*resourcev1.ResourceClaim{o.claim}, lockstep.Member{Node: "node-2", Devices: 3})
	require.NoError(t, err)
	devices := out[0].Status.Allocation.Devices
	require.Equal(t, []resourcev1.DeviceAllocationConfiguration{
		{Source: resourcev1.AllocationConfigSourceClass, Requests: []string{"gpus"}, DeviceConfiguration: opaque("class")},
		{Source: resourcev1.AllocationConfigSourceClaim, Requests: []string{"gpus"}, DeviceConfiguration: opaque("claim")},
	}, devices.Config)
	require.Equal(t, o.claim.Spec.Devices.Requests[0].Exactly.Tolerations, devices.Results[1].Tolerations)
}

func TestDevicesThatCannotBePlacedAreLeftOut(t *testing.T) {
	yes, node := true, "n"
	slice := func(name string, generation, count int64, devices ...resourcev1.Device) *resourcev1.ResourceSlice {
		return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "d", NodeName: &node, Pool: resourcev1.ResourcePool{Name: name, Generation: generation, ResourceSliceCount: count}, Devices: devices,
		}}
	}
	old, young := slice("p", 1, 1, resourcev1.Device{Name: "old"}), slice("p", 2, 1, resourcev1.Device{Name: "young"})
	perDevice := slice("each", 1, 1, resourcev1.Device{Name: "there", NodeName: &node}, resourcev1.Device{Name: "nowhere", AllNodes: &yes})
	perDevice.Spec.NodeName, perDevice.Spec.PerDeviceNodeSelection = nil, &yes
	product := "other"
	v := New(Config{}, []*resourcev1.ResourceSlice{
		young, old, perDevice, slice("part", 1, 2, resourcev1.Device{Name: "x"}),
		slice("sorts", 1, 1,
			resourcev1.Device{Name: "tainted", Taints: []resourcev1.DeviceTaint{{Key: "bad", Effect: resourcev1.DeviceTaintEffectNoSchedule}}},
			resourcev1.Device{Name: "noted", Taints: []resourcev1.DeviceTaint{{Key: "bad", Effect: resourcev1.DeviceTaintEffectNone}}},
			resourcev1.Device{Name: "shared", AllowMultipleAllocations: &yes},
			resourcev1.Device{Name: "binds", BindingConditions: []string{"x"}},
			resourcev1.Device{Name: "twice"}, resourcev1.Device{Name: "twice"},
			resourcev1.Device{Name: "model", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"productName": {StringValue: &product}}},
			resourcev1.Device{Name: strings.Repeat("x", 253)},
		),
	}, nil)
	require.Equal(t, []lockstep.DeviceID{"d/each/there", "d/p/young", "d/sorts/noted", "d/sorts/twice"}, v.Devices()["n"].IDs)
	var fields []string
	for _, err := range v.Faults() {
		var e *lockstep.Error
		require.True(t, errors.As(err, &e))
		fields = append(fields, e.Field)
	}
	require.Equal(t, []string{"d/part", "d/each/nowhere", "d/sorts/tainted", "d/sorts/shared", "d/sorts/binds", "d/sorts/twice", "d/sorts/" + strings.Repeat("x", 253), "d/sorts/model"}, fields)
}

func TestOrderOfSlicesDoesNotMatter(t *testing.T) {
	o := load(t)
	a := New(Config{}, o.slices, o.classes)
	b := New(Config{}, []*resourcev1.ResourceSlice{o.slices[1], o.slices[0]}, o.classes)
	require.Equal(t, a.Devices(), b.Devices())
}

func TestNamesOfOtherDrivers(t *testing.T) {
	node := "n"
	q := resource.MustParse("16Gi")
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d", NodeName: &node, Pool: resourcev1.ResourcePool{Name: "p", Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{
			{Name: "whole", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"d/chip": str("X 1")}, Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"d/hbm": {Value: q}}},
			{Name: "part", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"shape": str("half")}},
		},
	}}
	cfg := Config{
		ModelAttributes: []string{"chip"}, ProfileAttributes: []string{"shape"}, MemoryCapacity: "hbm",
		Classes: map[string]Class{"half": {Driver: "d", Equal: map[string]string{"shape": "half"}}},
	}
	v := New(cfg, []*resourcev1.ResourceSlice{s}, nil)
	require.Empty(t, v.Faults())
	d := v.Devices()["n"]
	require.Equal(t, lockstep.DeviceClass("X-1"), d.Class)
	require.Equal(t, 16*lockstep.GiB, d.Memory)
	require.Equal(t, []lockstep.DeviceID{"d/p/whole", ""}, d.IDs)
	claims := []*resourcev1.ResourceClaim{claimOf(resourcev1.DeviceRequest{Name: "r", Exactly: exactly("half", 1)})}
	demand, err := v.Demand(&corev1.Pod{}, claims)
	require.NoError(t, err)
	require.Equal(t, lockstep.Demand{GPUs: 1, Profile: "half"}, demand)
	out, err := v.Allocate(&corev1.Pod{}, claims, lockstep.Member{Node: "n", Devices: 0b10})
	require.NoError(t, err)
	require.Equal(t, "part", out[0].Status.Allocation.Devices.Results[0].Device)
	require.Empty(t, out[0].Status.Allocation.Devices.Config)
	_, err = v.Allocate(&corev1.Pod{}, claims, lockstep.Member{Node: "n", Devices: 0b10, Start: 1})
	requireKind(t, err, lockstep.ErrStale, "Member.Start")
}
