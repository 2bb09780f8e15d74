package dra

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Claims returns the resource claims of p in their order, as get finds them by name in
// the pod's namespace. It returns lockstep.ErrUnknown while one is not there, or was
// not made of its template yet: then the pod is to be looked at again when it is.
// lockstep.ErrConflict says that a claim of that name belongs to another pod.
func Claims(p *corev1.Pod, get func(namespace, name string) (*resourcev1.ResourceClaim, bool)) ([]*resourcev1.ResourceClaim, error) {
	out := make([]*resourcev1.ResourceClaim, 0, len(p.Spec.ResourceClaims))
	for i := range p.Spec.ResourceClaims {
		ref := &p.Spec.ResourceClaims[i]
		field := "spec.resourceClaims[" + ref.Name + "]"
		name, made := claimName(p, ref)
		if name == "" && !made {
			return nil, fault(lockstep.ErrUnknown, "claims", field, errtext.Quote(ref.Name), "the claim was not made of its template yet")
		}
		if name == "" {
			continue // made, and none was needed
		}
		c, ok := get(p.Namespace, name)
		if !ok {
			return nil, fault(lockstep.ErrUnknown, "claims", field, errtext.Quote(name), "there is no such claim yet")
		}
		if ref.ResourceClaimName == nil && !metav1.IsControlledBy(c, p) {
			return nil, fault(lockstep.ErrConflict, "claims", field, errtext.Quote(name), "the claim was made for another pod")
		}
		if c.DeletionTimestamp != nil {
			return nil, fault(lockstep.ErrUnknown, "claims", field, errtext.Quote(name), "the claim is being deleted")
		}
		out = append(out, c)
	}
	return out, nil
}

// claimName returns the name of a claim; made says that a template was dealt with.
func claimName(p *corev1.Pod, ref *corev1.PodResourceClaim) (name string, made bool) {
	if ref.ResourceClaimName != nil {
		return *ref.ResourceClaimName, true
	}
	for i := range p.Status.ResourceClaimStatuses {
		if s := &p.Status.ResourceClaimStatuses[i]; s.Name == ref.Name {
			if s.ResourceClaimName == nil {
				return "", true
			}
			return *s.ResourceClaimName, true
		}
	}
	return "", false
}

// ask is one request of a claim, as far as it is read.
type ask struct {
	name        string // of the request, or of the request and its first alternative
	class       string
	n           int
	want        want
	memory      lockstep.Bytes
	tolerations []resourcev1.DeviceToleration
	profile     lockstep.Profile
	model       lockstep.DeviceClass
}

// asks reads the requests of claims in their order.
func (v *Inventory) asks(claims []*resourcev1.ResourceClaim) (out [][]ask, err error) {
	for _, c := range claims {
		op := "claim " + c.Namespace + "/" + c.Name
		var list []ask
		total := 0
		for i := range c.Spec.Devices.Requests {
			a, err := v.ask(op, &c.Spec.Devices.Requests[i])
			if err != nil {
				return nil, err
			}
			list = append(list, a)
			total += a.n
		}
		if n := resourcev1.AllocationResultsMaxSize; total > n {
			return nil, fault(lockstep.ErrInvalid, op, "spec.devices.requests", strconv.Itoa(total), "an allocation has at most "+strconv.Itoa(n)+" devices")
		}
		if len(c.Spec.Devices.Constraints) > 0 && total > 1 {
			return nil, fault(lockstep.ErrInvalid, op, "spec.devices.constraints", "", "constraints between devices are not kept")
		}
		out = append(out, list)
	}
	return out, nil
}

// ask reads one request; of alternatives the first.
func (v *Inventory) ask(op string, r *resourcev1.DeviceRequest) (ask, error) {
	field := "spec.devices.requests[" + r.Name + "]"
	e := r.Exactly
	a := ask{name: r.Name}
	switch {
	case e == nil && len(r.FirstAvailable) > 0:
		f := &r.FirstAvailable[0]
		a.name += "/" + f.Name
		e = &resourcev1.ExactDeviceRequest{
			DeviceClassName: f.DeviceClassName, Selectors: f.Selectors, AllocationMode: f.AllocationMode, Count: f.Count,
			Tolerations: f.Tolerations, Capacity: f.Capacity, DerivedAttributes: f.DerivedAttributes,
		}
	case e == nil:
		return a, fault(lockstep.ErrInvalid, op, field, "", "it asks in a way that is not known")
	case e.AdminAccess != nil && *e.AdminAccess:
		return a, fault(lockstep.ErrInvalid, op, field+".adminAccess", "true", "administrative access is not given")
	case len(e.DerivedAttributes) > 0:
		return a, fault(lockstep.ErrInvalid, op, field+".derivedAttributes", "", "derived attributes are not evaluated")
	}
	a.class, a.tolerations = e.DeviceClassName, e.Tolerations
	if err := v.wants(op, field, e, &a); err != nil {
		return a, err
	}
	switch e.AllocationMode {
	case resourcev1.DeviceAllocationModeExactCount, "":
		a.n = int(min(max(e.Count, 1), lockstep.MaxDevicesPerNode+1))
	case resourcev1.DeviceAllocationModeAll:
		n, ok := v.all(&a)
		if !ok {
			return a, fault(lockstep.ErrInvalid, op, field+".allocationMode", "All", "nodes have different numbers of such devices, so it is not known how many are all")
		}
		a.n = n
	default:
		return a, fault(lockstep.ErrInvalid, op, field+".allocationMode", errtext.Quote(e.AllocationMode), "want ExactCount or All")
	}
	return a, nil
}

// wants reads what a request asks of each device.
func (v *Inventory) wants(op, field string, e *resourcev1.ExactDeviceRequest, a *ask) error {
	if known, ok := v.cfg.Classes[a.class]; ok {
		a.want.add(known.Driver, known.Equal)
	} else if c := v.classes[a.class]; c == nil {
		return fault(lockstep.ErrUnknown, op, field+".deviceClassName", errtext.Quote(a.class), "there is no such class")
	} else if value, reason := a.want.selectors(c.Spec.Selectors); reason != "" {
		return fault(lockstep.ErrInvalid, op, "DeviceClass "+a.class+": spec.selectors", errtext.Quote(value), reason)
	}
	if value, reason := a.want.selectors(e.Selectors); reason != "" {
		return fault(lockstep.ErrInvalid, op, field+".selectors", errtext.Quote(value), reason)
	}
	if e.Capacity != nil {
		for name, q := range e.Capacity.Requests { // an error does not depend on the order: there is one capacity that is no error
			if string(name) != v.cfg.memory() {
				return fault(lockstep.ErrInvalid, op, field+".capacity", "", "only "+v.cfg.memory()+" can be asked for")
			}
			a.memory = lockstep.Bytes(max(q.Value(), 0))
		}
	}
	return v.sort(op, field, a)
}

// meaning is what an ask comes to.
type meaning struct {
	profile lockstep.Profile
	model   lockstep.DeviceClass
	kind    error // why it cannot be placed; nil where it can
	reason  string
}

// sort finds which of the devices there are an ask means: those of one model, or
// instances of one profile, so that a placer can be told. Claims made of one template
// ask alike, so the answer is kept.
func (v *Inventory) sort(op, field string, a *ask) error {
	key := a.want.key()
	m, ok := v.memo.Load(key)
	if !ok {
		m, _ = v.memo.LoadOrStore(key, v.mean(a))
	}
	means := m.(meaning)
	if means.kind != nil {
		return fault(means.kind, op, field, errtext.Quote(a.class), means.reason)
	}
	a.profile, a.model = means.profile, means.model
	return nil
}

func (v *Inventory) mean(a *ask) (out meaning) {
	models, profiles, others := map[lockstep.DeviceClass]bool{}, map[lockstep.Profile]bool{}, false
	for _, n := range v.nodes { // sets
		for i := range n.whole {
			d := &n.whole[i]
			if a.want.matches(d.spec, d.name.driver) {
				models[n.offer.Class] = true
				profiles[""] = true
			} else {
				others = true
			}
		}
		for _, d := range n.parts { // a set
			if a.want.matches(d.spec, d.name.driver) {
				profiles[d.profile] = true
			}
		}
	}
	switch {
	case len(profiles) == 0:
		out.kind, out.reason = lockstep.ErrUnknown, "there is no such device"
	case len(profiles) > 1:
		out.kind, out.reason = lockstep.ErrInvalid, "devices and MIG instances, or instances of several profiles, would do: a selector is to say which"
	case !profiles[""]:
		for p := range profiles { // one
			out.profile = p
		}
	case !others: // any will do
	case len(models) == 1 && !models[""] && v.tells(a):
		for m := range models { // one
			out.model = m
		}
	default:
		out.kind, out.reason = lockstep.ErrInvalid, "the selectors tell devices apart by more than their model"
	}
	return out
}

// tells reports whether the model that ask wants is all that it is about: every device
// of that model would do.
func (v *Inventory) tells(a *ask) bool {
	var model lockstep.DeviceClass
	for _, n := range v.nodes { // all must agree
		for i := range n.whole {
			if a.want.matches(n.whole[i].spec, n.whole[i].name.driver) {
				model = n.offer.Class
			}
		}
	}
	for _, n := range v.nodes { // all must agree
		for i := range n.whole {
			if n.offer.Class == model && !a.want.matches(n.whole[i].spec, n.whole[i].name.driver) {
				return false
			}
		}
	}
	return true
}

// all returns how many devices that would do each node has that has any.
func (v *Inventory) all(a *ask) (int, bool) {
	number := 0
	for _, n := range v.nodes { // all must agree
		here := 0
		for i := range n.whole {
			if a.want.matches(n.whole[i].spec, n.whole[i].name.driver) {
				here++
			}
		}
		if here != 0 && number != 0 && here != number {
			return 0, false
		}
		number = max(number, here)
	}
	return number, number != 0 && a.profile == ""
}

// Demand returns what the claims of a pod come to: so many whole devices of one model
// with so much memory, or one MIG instance. Claims that are allocated already must be
// reserved for p alone, or for nobody; lockstep.ErrConflict says that they are not. It
// is what view.Config.Claims is made of.
func (v *Inventory) Demand(p *corev1.Pod, claims []*resourcev1.ResourceClaim) (lockstep.Demand, error) {
	var d lockstep.Demand
	for _, c := range claims {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.ReservedFor {
			if r.UID != p.UID {
				return d, fault(lockstep.ErrConflict, "claim "+c.Namespace+"/"+c.Name, "status.reservedFor", errtext.Quote(r.Name), "claims that pods share are not placed")
			}
		}
	}
	all, err := v.asks(claims)
	if err != nil {
		return d, err
	}
	first := true
	for i, list := range all {
		op := "claim " + claims[i].Namespace + "/" + claims[i].Name
		for k := range list {
			a := &list[k]
			d.GPUs += a.n
			d.GPUMemory = max(d.GPUMemory, a.memory)
			switch {
			case first:
				if d.Profile = a.profile; a.model != "" {
					d.Classes = []lockstep.DeviceClass{a.model}
				}
			case a.profile != "" || d.Profile != "":
				return lockstep.Demand{}, fault(lockstep.ErrInvalid, op, "spec.devices.requests["+a.name+"]", string(a.profile), "a pod gets one MIG instance, and no devices beside it")
			case (a.model != "") != (len(d.Classes) > 0) || a.model != "" && d.Classes[0] != a.model:
				return lockstep.Demand{}, fault(lockstep.ErrInvalid, op, "spec.devices.requests["+a.name+"]", string(a.model), "devices of one pod are of one model")
			}
			first = false
		}
	}
	if d.Profile != "" && d.GPUs > 1 {
		return lockstep.Demand{}, fault(lockstep.ErrInvalid, "demand", "spec.devices.requests", strconv.Itoa(d.GPUs), "a pod gets one MIG instance")
	}
	return d, nil
}
