package dra

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Allocate returns copies of the claims of p with the devices that m has, in the order
// of claims and requests, the node that they are on, and p as whom they are reserved
// for. A claim that is allocated so already comes back itself: nothing is to be
// written about it.
//
// The host first updates those whose finalizer is new (see NeedsUpdate), then the
// status of each, and then binds the pod. It returns lockstep.ErrStale where the
// inventory no longer has the devices of m, or m not as many as the claims ask for,
// and lockstep.ErrConflict for a claim that is allocated otherwise; nothing is to be
// written then.
func (v *Inventory) Allocate(p *corev1.Pod, claims []*resourcev1.ResourceClaim, m lockstep.Member) ([]*resourcev1.ResourceClaim, error) {
	all, err := v.asks(claims)
	if err != nil {
		return nil, err
	}
	devices, err := v.devices(m, all)
	if err != nil {
		return nil, err
	}
	out := make([]*resourcev1.ResourceClaim, len(claims))
	for i, c := range claims {
		result := &resourcev1.AllocationResult{NodeSelector: nodeSelector(m.Node)}
		for k := range all[i] {
			a := &all[i][k]
			for range a.n {
				d := devices[0]
				devices = devices[1:]
				result.Devices.Results = append(result.Devices.Results, resourcev1.DeviceRequestAllocationResult{
					Request: a.name, Driver: d.name.driver, Pool: d.name.pool, Device: d.name.device,
					Tolerations: slices.Clone(a.tolerations), SkipNodeOperations: slices.Clone(d.skip),
				})
			}
			result.Devices.Config = append(result.Devices.Config, v.ofClass(a)...)
		}
		for k := range c.Spec.Devices.Config {
			conf := &c.Spec.Devices.Config[k]
			result.Devices.Config = append(result.Devices.Config, resourcev1.DeviceAllocationConfiguration{
				Source: resourcev1.AllocationConfigSourceClaim, Requests: slices.Clone(conf.Requests), DeviceConfiguration: *conf.DeviceConfiguration.DeepCopy(),
			})
		}
		if out[i], err = settle(p, c, result); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ofClass returns the configuration that a class adds to a request.
func (v *Inventory) ofClass(a *ask) (out []resourcev1.DeviceAllocationConfiguration) {
	c := v.classes[a.class]
	if c == nil {
		return nil
	}
	for i := range c.Spec.Config {
		out = append(out, resourcev1.DeviceAllocationConfiguration{
			Source: resourcev1.AllocationConfigSourceClass, Requests: []string{a.name}, DeviceConfiguration: *c.Spec.Config[i].DeviceConfiguration.DeepCopy(),
		})
	}
	return out
}

// devices returns the devices of m, in order.
func (v *Inventory) devices(m lockstep.Member, all [][]ask) (out []device, err error) {
	n := v.nodes[m.Node]
	if n == nil {
		return nil, fault(lockstep.ErrStale, "allocate", "Member.Node", errtext.Quote(m.Node), "no driver publishes devices of it")
	}
	count := 0
	var profile lockstep.Profile
	for _, list := range all {
		for k := range list {
			count += list[k].n
			profile = list[k].profile
		}
	}
	for i := range m.Devices.All {
		if profile != "" {
			d, ok := n.parts[partKey{i, profile, m.Start}]
			if !ok {
				return nil, fault(lockstep.ErrStale, "allocate", "Member.Start", strconv.Itoa(int(m.Start)), "the node has no such MIG instance")
			}
			out = append(out, d)
			continue
		}
		if i >= len(n.whole) {
			return nil, fault(lockstep.ErrStale, "allocate", "Member.Devices", m.Devices.String(), "no driver publishes device "+strconv.Itoa(i))
		}
		out = append(out, n.whole[i])
	}
	if len(out) != count {
		return nil, fault(lockstep.ErrStale, "allocate", "Member.Devices", m.Devices.String(), "the claims ask for "+strconv.Itoa(count)+" devices")
	}
	return out, nil
}

// settle returns c with a result, reserved for p.
func settle(p *corev1.Pod, c *resourcev1.ResourceClaim, result *resourcev1.AllocationResult) (*resourcev1.ResourceClaim, error) {
	op := "allocate " + c.Namespace + "/" + c.Name
	if was := c.Status.Allocation; was != nil && !sameDevices(was, result) {
		return nil, fault(lockstep.ErrConflict, op, "status.allocation", "", "it is allocated otherwise; deallocate it first")
	}
	for _, r := range c.Status.ReservedFor {
		if r.UID != p.UID {
			return nil, fault(lockstep.ErrConflict, op, "status.reservedFor", errtext.Quote(r.Name), "it is reserved for another pod")
		}
	}
	if c.Status.Allocation != nil && len(c.Status.ReservedFor) > 0 && slices.Contains(c.Finalizers, resourcev1.Finalizer) {
		return c, nil
	}
	out := c.DeepCopy()
	if !slices.Contains(out.Finalizers, resourcev1.Finalizer) {
		out.Finalizers = append(out.Finalizers, resourcev1.Finalizer)
	}
	if out.Status.Allocation == nil {
		out.Status.Allocation = result
	}
	if len(out.Status.ReservedFor) == 0 {
		out.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}}
	}
	return out, nil
}

func sameDevices(a, b *resourcev1.AllocationResult) bool {
	return slices.EqualFunc(a.Devices.Results, b.Devices.Results, func(x, y resourcev1.DeviceRequestAllocationResult) bool {
		return x.Request == y.Request && x.Driver == y.Driver && x.Pool == y.Pool && x.Device == y.Device
	})
}

// NeedsUpdate reports whether after, which Allocate made of before, has a finalizer
// that the server does not know yet: it is to be updated before its status is, so that
// nobody deletes a claim whose devices are in use.
func NeedsUpdate(before, after *resourcev1.ResourceClaim) bool {
	return len(before.Finalizers) != len(after.Finalizers)
}

// Deallocate returns a copy of c that is allocated to nobody, for a status update: for
// claims whose pod is unbound and is to be placed anew. A claim that is reserved for
// another pod than p is lockstep.ErrConflict.
func Deallocate(p *corev1.Pod, c *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	for _, r := range c.Status.ReservedFor {
		if r.UID != p.UID {
			return nil, fault(lockstep.ErrConflict, "deallocate "+c.Namespace+"/"+c.Name, "status.reservedFor", errtext.Quote(r.Name), "it is reserved for another pod")
		}
	}
	out := c.DeepCopy()
	out.Status.Allocation, out.Status.ReservedFor, out.Status.Devices = nil, nil, nil
	return out, nil
}

// Member returns where claims are that are allocated, for view.NewSeats: the devices
// of all of them on one node, and of a MIG instance where it starts. It is false where
// one is not allocated, has devices that the inventory does not know, or they are on
// several nodes.
func (v *Inventory) Member(claims []*resourcev1.ResourceClaim) (m lockstep.Member, ok bool) {
	for _, c := range claims {
		if c.Status.Allocation == nil {
			return lockstep.Member{}, false
		}
		for i := range c.Status.Allocation.Devices.Results {
			r := &c.Status.Allocation.Devices.Results[i]
			at, known := v.byName[name{r.Driver, r.Pool, r.Device}]
			if !known || m.Node != "" && m.Node != at.node {
				return lockstep.Member{}, false
			}
			m.Node, m.Start = at.node, at.start
			m.Devices |= 1 << at.index
		}
	}
	return m, m.Devices != 0
}
