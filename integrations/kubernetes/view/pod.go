package view

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-gpu/lockstep"
)

// Demand returns what p needs and on which nodes it may sit: requests of all its
// containers as the kubelet adds them up, overhead, devices of its claims (see
// Config.Claims), our annotations about devices, node selector, required node
// affinity, tolerations, and required affinity to pods by equal labels. The error is a
// *Fault, the first by the order of the fields.
func (c Config) Demand(p *corev1.Pod) (lockstep.Demand, lockstep.Constraints, error) {
	s, f := c.spec(podObject(p), p)
	if f == nil {
		f = check(podObject(p), s)
	}
	if f != nil {
		return lockstep.Demand{}, lockstep.Constraints{}, f
	}
	return s.demand, s.constraints, nil
}

func podObject(p *corev1.Pod) object { return object{"Pod", p.Namespace, p.Name, p.UID} }

// request adds up what the containers of a pod ask for: the larger of what runs
// together and of what one init container needs beside the sidecars started before
// it, and the overhead. What is said for the pod as a whole takes the place of that
// sum.
func request(p *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	var sum, sidecars, most resource.Quantity
	for i := range p.Spec.Containers {
		sum.Add(asked(&p.Spec.Containers[i].Resources, name))
	}
	for i := range p.Spec.InitContainers {
		ct := &p.Spec.InitContainers[i]
		q := asked(&ct.Resources, name)
		if ct.RestartPolicy != nil && *ct.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars.Add(q)
			q = sidecars.DeepCopy()
		} else {
			q.Add(sidecars)
		}
		if q.Cmp(most) > 0 {
			most = q
		}
	}
	sum.Add(sidecars)
	if most.Cmp(sum) > 0 {
		sum = most
	}
	if r := p.Spec.Resources; r != nil {
		if q, ok := r.Requests[name]; ok {
			sum = q.DeepCopy()
		}
	}
	if q, ok := p.Spec.Overhead[name]; ok {
		sum.Add(q)
	}
	return sum
}

// asked returns a request; where only a limit is given, the server made that the
// request too, but not so of pods that are made by hand in tests.
func asked(r *corev1.ResourceRequirements, name corev1.ResourceName) resource.Quantity {
	if q, ok := r.Requests[name]; ok {
		return q
	}
	return r.Limits[name]
}

// names returns the resources that containers of p ask for, sorted, each once.
func names(dst []corev1.ResourceName, p *corev1.Pod) []corev1.ResourceName {
	collect := func(lists ...corev1.ResourceList) {
		for _, l := range lists {
			for name := range l { // sorted below
				if !slices.Contains(dst, name) {
					dst = append(dst, name)
				}
			}
		}
	}
	for i := range p.Spec.Containers {
		collect(p.Spec.Containers[i].Resources.Requests, p.Spec.Containers[i].Resources.Limits)
	}
	for i := range p.Spec.InitContainers {
		collect(p.Spec.InitContainers[i].Resources.Requests, p.Spec.InitContainers[i].Resources.Limits)
	}
	collect(p.Spec.Overhead)
	if r := p.Spec.Resources; r != nil {
		collect(r.Requests, r.Limits)
	}
	slices.Sort(dst)
	return dst
}

// take is what the containers of a pod ask for.
type take struct {
	cpu    lockstep.MilliCPU
	memory lockstep.Bytes
	gpus   int64
	rdma   int64
	mig    []instances           // by name
	others []corev1.ResourceName // that nobody here counts, by name
}

type instances struct {
	name    corev1.ResourceName
	profile lockstep.Profile
	n       int64
}

func (c *Config) take(p *corev1.Pod) (t take) {
	var buf [12]corev1.ResourceName
	for _, name := range names(buf[:0], p) {
		q := request(p, name)
		if q.Sign() == 0 {
			continue
		}
		switch {
		case name == corev1.ResourceCPU:
			t.cpu = lockstep.MilliCPU(milli(q))
		case name == corev1.ResourceMemory:
			t.memory = lockstep.Bytes(q.Value())
		case name == corev1.ResourceEphemeralStorage:
		case name == c.gpu():
			t.gpus = q.Value()
		case c.RDMAResource != "" && name == c.RDMAResource:
			t.rdma = q.Value()
		case strings.HasPrefix(string(name), c.mig()):
			t.mig = append(t.mig, instances{name, profileOf(strings.TrimPrefix(string(name), c.mig())), q.Value()})
		case !slices.Contains(c.IgnoreRequests, string(name)):
			t.others = append(t.others, name)
		}
	}
	return t
}

// milli returns q in thousandths, rounded up, held at the ends of int64.
func milli(q resource.Quantity) int64 {
	if v := q.Value(); v > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return q.MilliValue()
}

// profileOf returns the profile of a MIG resource: Kubernetes allows no plus sign in
// the name, so the device plugin writes a dot.
func profileOf(suffix string) lockstep.Profile {
	if at := strings.LastIndex(suffix, ".me"); at > 0 {
		suffix = suffix[:at] + "+" + suffix[at+1:]
	}
	return lockstep.Profile(suffix)
}

// devices turns what p asks for into a demand.
func (c *Config) devices(o object, p *corev1.Pod, s *spec) *Fault {
	t := c.take(p)
	if len(t.others) > 0 {
		return o.fault(lockstep.ErrInvalid, "spec.containers.resources", string(t.others[0]), "nobody here counts this resource; see Config.IgnoreRequests")
	}
	d := &s.demand
	d.CPU, d.Memory, d.GPUs = t.cpu, t.memory, bounded(t.gpus)
	d.RDMA = bounded(t.rdma)
	if len(t.mig) > 0 {
		if m := t.mig[0]; len(t.mig) > 1 || m.n > 1 || t.gpus > 0 {
			return o.fault(lockstep.ErrInvalid, "spec.containers.resources", string(m.name), "a pod gets one MIG instance, and no whole devices beside it")
		}
		d.Profile, d.GPUs = t.mig[0].profile, 1
	}
	if len(p.Spec.ResourceClaims) > 0 {
		if f := c.claims(o, p, d); f != nil {
			return f
		}
	}
	if v := s.values[keyShare]; v.set {
		if d.Share = lockstep.MilliGPU(v.n) % lockstep.WholeGPU; d.GPUs == 0 {
			d.GPUs = 1
		}
	}
	if v := s.values[keyGPUMemory]; v.set {
		d.GPUMemory = lockstep.Bytes(v.n)
	}
	if v := s.values[keyClasses]; v.set {
		for name := range strings.SplitSeq(v.text, ",") {
			d.Classes = append(d.Classes, lockstep.DeviceClass(name))
		}
	}
	return nil
}

func (c *Config) claims(o object, p *corev1.Pod, d *lockstep.Demand) *Fault {
	if c.Claims == nil {
		return o.fault(lockstep.ErrInvalid, "spec.resourceClaims", p.Spec.ResourceClaims[0].Name, "resource claims are not read here")
	}
	claimed, err := c.Claims(p)
	switch {
	case err != nil:
		return o.fault(cmp.Or(kindOf(err), lockstep.ErrInvalid), "spec.resourceClaims", p.Spec.ResourceClaims[0].Name, err.Error())
	case claimed.GPUs > 0 && d.GPUs > 0:
		return o.fault(lockstep.ErrInvalid, "spec.resourceClaims", p.Spec.ResourceClaims[0].Name, "devices are asked for by claims and by resources, and one member has one kind")
	case claimed.GPUs > 0:
		d.GPUs, d.Share, d.GPUMemory, d.Profile, d.Classes = claimed.GPUs, claimed.Share, claimed.GPUMemory, claimed.Profile, claimed.Classes
	}
	d.RDMA += claimed.RDMA
	return nil
}

// bounded returns n as an int that a gang refuses where it is out of range.
func bounded(n int64) int { return int(min(n, math.MaxInt32)) }

// relic returns the demand of each of the members that stand for a pod which is there,
// whatever else is wrong with it: its whole devices with all else it takes, and each
// of its MIG instances.
func (c *Config) relic(p *corev1.Pod) []lockstep.Demand {
	t := c.take(p)
	out := []lockstep.Demand{{GPUs: bounded(t.gpus), CPU: t.cpu, Memory: t.memory, RDMA: bounded(t.rdma)}}
	if c.Claims != nil && len(p.Spec.ResourceClaims) > 0 {
		if d, err := c.Claims(p); err == nil && t.gpus == 0 {
			out[0].GPUs, out[0].Profile = d.GPUs, d.Profile
		}
	}
	for _, m := range t.mig {
		for range min(m.n, lockstep.MaxDevicesPerNode*8) {
			out = append(out, lockstep.Demand{GPUs: 1, Profile: m.profile})
		}
	}
	if len(out) > 1 && t.gpus == 0 { // the first instance takes the rest
		out[1].CPU, out[1].Memory, out[1].RDMA = t.cpu, t.memory, bounded(t.rdma)
		out = out[1:]
	}
	return out
}

// hasDevices reports whether p asks for devices.
func (c *Config) hasDevices(p *corev1.Pod) bool {
	for _, d := range c.relic(p) {
		if d.GPUs > 0 {
			return true
		}
	}
	return false
}

// activeDeadline returns spec.activeDeadlineSeconds in nanoseconds, 0 where there is none.
func activeDeadline(p *corev1.Pod) int64 {
	if s := p.Spec.ActiveDeadlineSeconds; s != nil && *s > 0 {
		return min(*s, int64(lockstep.MaxWalltime/1e9)) * 1e9
	}
	return 0
}

// number formats n for a fault.
func number(n int) string { return strconv.Itoa(n) }
