package dra

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/placement"
)

// h100 are the profiles of an H100 of 80 GB with their starts, by memory slice.
var h100 = []struct {
	name   string
	slices int
	starts []int
}{
	{"1g.10gb", 1, []int{0, 1, 2, 3, 4, 5, 6}}, {"2g.20gb", 2, []int{0, 2, 4}}, {"3g.40gb", 4, []int{0, 4}}, {"7g.80gb", 8, []int{0}},
}

func str(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }

// divisible returns the slices of a node whose devices can be divided: the counters in
// one, the devices in another.
func divisible(node string, gpus int) []*resourcev1.ResourceSlice {
	pool := resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 2}
	counters := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-counters"}, Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &node, Pool: pool}}
	devices := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-devices"}, Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &node, Pool: pool}}
	one := resourcev1.Counter{Value: resource.MustParse("1")}
	for g := range gpus {
		set := resourcev1.CounterSet{Name: fmt.Sprintf("gpu-%d-counters", g), Counters: map[string]resourcev1.Counter{"multiprocessors": {Value: resource.MustParse("132")}}}
		takes := func(first, n int) []resourcev1.DeviceCounterConsumption {
			c := resourcev1.DeviceCounterConsumption{CounterSet: set.Name, Counters: map[string]resourcev1.Counter{"multiprocessors": one}}
			for i := range n {
				c.Counters[fmt.Sprintf("memory-slice-%d", first+i)] = one
			}
			return []resourcev1.DeviceCounterConsumption{c}
		}
		for i := range 8 {
			set.Counters[fmt.Sprintf("memory-slice-%d", i)] = one
		}
		counters.Spec.SharedCounters = append(counters.Spec.SharedCounters, set)
		devices.Spec.Devices = append(devices.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprintf("gpu-%d", g), ConsumesCounters: takes(0, 8),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": str("gpu"), "productName": str("H100")},
			Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
		})
		for _, p := range h100 {
			for _, start := range p.starts {
				devices.Spec.Devices = append(devices.Spec.Devices, resourcev1.Device{
					Name: fmt.Sprintf("gpu-%d-mig-%c-%d", g, p.name[0], start), ConsumesCounters: takes(start, p.slices),
					Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": str("mig"), "profile": str(p.name), "productName": str("H100")},
				})
			}
		}
	}
	return []*resourcev1.ResourceSlice{devices, counters}
}

var migClass = []*resourcev1.DeviceClass{
	{ObjectMeta: metav1.ObjectMeta{Name: "mig"}, Spec: resourcev1.DeviceClassSpec{Selectors: cel("device.attributes['gpu.example.com'].type == 'mig'")}},
	{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{Selectors: cel("device.attributes['gpu.example.com'].type == 'gpu'")}},
}

func instance(profile string) *resourcev1.ResourceClaim {
	e := exactly("mig", 1)
	e.Selectors = cel("device.attributes['gpu.example.com'].profile == '" + profile + "'")
	return claimOf(resourcev1.DeviceRequest{Name: "r", Exactly: e})
}

// cluster places claims one by one and returns the devices that they got.
func places(t *testing.T, v *Inventory, claims ...*resourcev1.ResourceClaim) (got []string) {
	t.Helper()
	cl, err := view.Config{Layouts: true}.Cluster(view.Inputs{Nodes: []*corev1.Node{newNode("n")}, Devices: v.Devices()})
	require.NoError(t, err)
	require.Empty(t, cl.Faults)
	p, err := placement.New(cl.Tree, placement.Config{Nodes: cl.Nodes, Layouts: cl.Layouts})
	require.NoError(t, err)
	for i, c := range claims {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), UID: "u"}}
		d, err := v.Demand(pod, []*resourcev1.ResourceClaim{c})
		require.NoError(t, err)
		g := &lockstep.Gang{ID: lockstep.JobID(pod.Name), Roles: []lockstep.Role{{Min: 1, Demand: d}}}
		var plan lockstep.Plan
		verdict, err := p.Fit(&lockstep.Request{Gang: g}, &plan)
		require.NoError(t, err)
		if !verdict.Feasible {
			got = append(got, "none")
			continue
		}
		require.NoError(t, p.Apply(&plan))
		out, err := v.Allocate(pod, []*resourcev1.ResourceClaim{c}, plan.Members[0])
		require.NoError(t, err)
		m, ok := v.Member(out)
		require.True(t, ok)
		require.Equal(t, plan.Members[0].Devices, m.Devices)
		require.Equal(t, plan.Members[0].Start, m.Start)
		got = append(got, out[0].Status.Allocation.Devices.Results[0].Device)
	}
	return got
}

// What is given out never takes more of a counter than there is.
func TestDevicesAreDividedAsCountersSay(t *testing.T) {
	s := divisible("n", 2)
	v := New(Config{}, s, migClass)
	require.Empty(t, v.Faults())
	claims := []*resourcev1.ResourceClaim{
		instance("3g.40gb"), instance("1g.10gb"), claimOf(resourcev1.DeviceRequest{Name: "r", Exactly: exactly("gpu", 1)}),
		instance("3g.40gb"), instance("2g.20gb"), instance("1g.10gb"), instance("1g.10gb"), instance("7g.80gb"),
	}
	got := places(t, v, claims...)
	used, given := map[string]bool{}, 0
	for _, name := range got {
		for i := range s[0].Spec.Devices {
			if d := &s[0].Spec.Devices[i]; d.Name == name {
				given++
				for counter := range d.ConsumesCounters[0].Counters { // a set
					key := d.ConsumesCounters[0].CounterSet + "/" + counter
					require.False(t, counter != "multiprocessors" && used[key], "%s is taken twice: %v", key, got)
					used[key] = true
				}
			}
		}
	}
	require.GreaterOrEqual(t, given, 5, "%v", got)
	require.Contains(t, got, "none")
	require.True(t, used["gpu-1-counters/memory-slice-7"], "a whole device was given out: %v", got)
}

func TestInstancesThatAreThereAreToldApart(t *testing.T) {
	node := "n"
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 1}}}
	add := func(name, profile string) {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": str("mig"), "profile": str(profile), "productName": str("H100")}})
	}
	for i := range 6 {
		add(fmt.Sprint("one-", i), "1g.10gb")
	}
	for i := range 4 {
		add(fmt.Sprint("two-", i), "2g.20gb")
	}
	v := New(Config{}, []*resourcev1.ResourceSlice{s}, migClass)
	require.Empty(t, v.Faults())
	var claims []*resourcev1.ResourceClaim
	for range 7 {
		claims = append(claims, instance("1g.10gb"))
	}
	for range 5 {
		claims = append(claims, instance("2g.20gb"))
	}
	got := places(t, v, claims...)
	require.ElementsMatch(t, []string{"one-0", "one-1", "one-2", "one-3", "one-4", "one-5", "none", "two-0", "two-1", "two-2", "two-3", "none"}, got)
	add("three", "3g.40gb")
	v = New(Config{}, []*resourcev1.ResourceSlice{s}, migClass)
	require.Len(t, v.Faults(), 1)
	requireKind(t, v.Faults()[0], lockstep.ErrInvalid, "gpu.example.com/n/")
	_, err := v.Demand(&corev1.Pod{}, []*resourcev1.ResourceClaim{claimOf(resourcev1.DeviceRequest{Name: "r", Exactly: exactly("mig", 1)})})
	requireKind(t, err, lockstep.ErrUnknown, "requests[r]")
}

func TestDivisionsThatAreNotUnderstood(t *testing.T) {
	for name, change := range map[string]func(d []resourcev1.Device) []resourcev1.Device{ // each case stands alone
		"no counters": func(d []resourcev1.Device) []resourcev1.Device { d[1].ConsumesCounters = nil; return d },
		"other set":   func(d []resourcev1.Device) []resourcev1.Device { d[1].ConsumesCounters[0].CounterSet = "x"; return d },
		"twice": func(d []resourcev1.Device) []resourcev1.Device {
			d[2].ConsumesCounters = d[1].ConsumesCounters
			return d
		},
		"other lengths": func(d []resourcev1.Device) []resourcev1.Device { d[1].Attributes["profile"] = str("2g.20gb"); return d },
		"one undivided": func(d []resourcev1.Device) []resourcev1.Device {
			return append(d, resourcev1.Device{Name: "plain", Attributes: d[0].Attributes, Capacity: d[0].Capacity})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := divisible("n", 1)
			s[0].Spec.Devices = change(s[0].Spec.Devices)
			v := New(Config{}, s, migClass)
			require.NotEmpty(t, v.Faults())
			require.NotEmpty(t, v.Devices()["n"].IDs, "whole devices are there all the same")
		})
	}
	_, err := New(Config{}, divisible("n", 1), migClass).Demand(&corev1.Pod{}, []*resourcev1.ResourceClaim{claimOf(resourcev1.DeviceRequest{Name: "r", Exactly: exactly("mig", 1)})})
	requireKind(t, err, lockstep.ErrInvalid, "requests[r]")
	_, err = New(Config{}, divisible("n", 1), migClass).Demand(&corev1.Pod{}, []*resourcev1.ResourceClaim{instance("1g.10gb"), instance("1g.10gb")})
	requireKind(t, err, lockstep.ErrInvalid, "requests[r]")
}
