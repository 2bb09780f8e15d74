package view

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockstep-gpu/lockstep"
)

// spec is what a pod says that its like say too: pods of one role share one. It is
// not changed once it is shared.
type spec struct {
	role        lockstep.RoleName
	demand      lockstep.Demand
	constraints lockstep.Constraints
	labels      map[string]string
	values      [keys]value // all but those that differ from pod to pod: gang, role, index
	priority    int32       // spec.priority
	never       bool        // spec.preemptionPolicy is Never
	grace       int64       // spec.terminationGracePeriodSeconds in nanoseconds
	walltime    int64       // spec.activeDeadlineSeconds in nanoseconds
}

func (s *spec) equal(o *spec) bool {
	return s.role == o.role && s.priority == o.priority && s.never == o.never && s.grace == o.grace && s.walltime == o.walltime &&
		s.values == o.values && equalDemand(&s.demand, &o.demand) && equalConstraints(&s.constraints, &o.constraints) &&
		maps.Equal(s.labels, o.labels)
}

func equalDemand(a, b *lockstep.Demand) bool {
	return a.GPUs == b.GPUs && a.Share == b.Share && a.GPUMemory == b.GPUMemory && a.Profile == b.Profile &&
		a.CPU == b.CPU && a.Memory == b.Memory && a.RDMA == b.RDMA && slices.Equal(a.Classes, b.Classes)
}

func equalConstraints(a, b *lockstep.Constraints) bool {
	return slices.EqualFunc(a.Selector, b.Selector, func(x, y lockstep.Requirement) bool {
		return x.Key == y.Key && x.Operator == y.Operator && slices.Equal(x.Values, y.Values)
	}) && slices.Equal(a.Tolerations, b.Tolerations) &&
		slices.EqualFunc(a.Affinity, b.Affinity, func(x, y lockstep.Affinity) bool {
			return x.Level == y.Level && x.Anti == y.Anti && maps.Equal(x.Match, y.Match)
		})
}

// roleLabels are where controllers write the role of a pod, indexLabels its number in
// it; the first that is there counts. Nothing writes to them.
var (
	roleLabels  = [...]string{"training.kubeflow.org/replica-type", "jobset.sigs.k8s.io/replicatedjob-name", "leaderworkerset.sigs.k8s.io/role"}
	indexLabels = [...]string{"batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index", "training.kubeflow.org/replica-index", "leaderworkerset.sigs.k8s.io/worker-index"}

	// ownLabels tell the pods of one controller apart, so no affinity is about them.
	ownLabels = [...]string{"statefulset.kubernetes.io/pod-name", "volcano.sh/task-index", "kueue.x-k8s.io/pod-group-pod-index", Prefix + "index"}
)

// spec reads all of p that does not differ between pods of a role; check is still to
// look at it, unless one like it was.
func (c *Config) spec(o object, p *corev1.Pod) (*spec, *Fault) {
	s := &spec{}
	w := words{p.Annotations, p.Labels}
	for k := range keys {
		if k == keyGang || k == keyIndex {
			continue
		}
		v, f := c.say(o, w, k)
		if f != nil {
			return nil, f
		}
		s.values[k] = v
	}
	s.role, s.values[keyRole] = c.role(w, s.values[keyRole]), value{}
	if f := c.devices(o, p, s); f != nil {
		return nil, f
	}
	if f := c.constraints(o, p, s); f != nil {
		return nil, f
	}
	s.labels = shared(p.Labels)
	if q := p.Spec.Priority; q != nil {
		s.priority = *q
	}
	if q := p.Spec.PreemptionPolicy; q != nil {
		s.never = *q == corev1.PreemptNever
	}
	if q := p.Spec.TerminationGracePeriodSeconds; q != nil && *q > 0 {
		s.grace = min(*q, int64(lockstep.MaxWalltime/1e9)) * 1e9
	}
	s.walltime = activeDeadline(p)
	return s, nil
}

func (c *Config) role(w words, said value) lockstep.RoleName {
	if said.set {
		return lockstep.RoleName(said.text)
	}
	for _, l := range roleLabels {
		if text, ok := w.labels[l]; ok && lockstep.RoleName(text).Validate() == nil {
			return lockstep.RoleName(text)
		}
	}
	return ""
}

// shared returns the labels that pods of one controller have alike; nil for none.
func shared(labels map[string]string) (out map[string]string) {
	for k, v := range labels { // copied
		if slices.Contains(indexLabels[:], k) || slices.Contains(ownLabels[:], k) {
			continue
		}
		if out == nil {
			out = make(map[string]string, len(labels))
		}
		out[k] = v
	}
	return out
}

// check has the library look at what was read, as a gang of one member, so that what it
// would refuse later is found at the pod that says it.
func check(o object, s *spec) *Fault {
	g := lockstep.Gang{ID: "check", Labels: s.labels, Roles: []lockstep.Role{{Name: s.role, Min: 1, Demand: s.demand, Constraints: s.constraints}}}
	return refused(o, g.Validate())
}

// refused returns the first fault that the library found, at the object it came of.
func refused(o object, err error) *Fault {
	if err == nil {
		return nil
	}
	var e *lockstep.Error
	if !errors.As(err, &e) {
		return o.fault(lockstep.ErrInvalid, "spec", "", err.Error())
	}
	f := o.fault(e.Kind, strings.TrimPrefix(e.Field, "Roles[0]."), "", e.Reason)
	f.Err.Value = e.Value
	return f
}

// kindOf returns the kind of an error of the library, nil where it has none.
func kindOf(err error) error {
	for _, kind := range []error{lockstep.ErrUnknown, lockstep.ErrDuplicate, lockstep.ErrConflict, lockstep.ErrInvalid} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return nil
}

// index returns the number of p in its role, -1 where nobody says.
func (c *Config) index(o object, p *corev1.Pod) (int32, *Fault) {
	w := words{p.Annotations, p.Labels}
	v, f := c.say(o, w, keyIndex)
	if f != nil {
		return -1, f
	}
	if v.set {
		return int32(v.n), nil
	}
	for _, l := range indexLabels {
		if text, ok := w.get(l); ok {
			n, err := strconv.ParseUint(text, 10, 32)
			if err != nil || n > lockstep.MaxMembers {
				return -1, o.fault(lockstep.ErrInvalid, l, text, "want a whole number from 0 to "+strconv.Itoa(lockstep.MaxMembers))
			}
			return int32(n), nil
		}
	}
	return -1, nil
}

// seat returns the number in its role that p was bound with, -1 where it was not, or
// not by us.
func seat(p *corev1.Pod) int32 {
	n, err := strconv.ParseUint(p.Annotations[KeyRoleRank], 10, 32)
	if err != nil || n > lockstep.MaxMembers || p.Spec.NodeName == "" {
		return -1
	}
	return int32(n)
}

// gang returns the name of the gang of p, "" where it is alone; grouped says that it
// is that of a PodGroup, which will come if it is not there.
func (c *Config) gang(o object, p *corev1.Pod) (name string, grouped bool, f *Fault) {
	v, f := c.say(o, words{p.Annotations, p.Labels}, keyGang)
	switch {
	case f != nil:
		return "", false, f
	case !v.set && p.Spec.SchedulingGroup != nil && p.Spec.SchedulingGroup.PodGroupName != nil:
		v.text, grouped = *p.Spec.SchedulingGroup.PodGroupName, true
	}
	if strings.ContainsAny(v.text, ":/") || len(p.Namespace)+1+len(v.text) > lockstep.MaxIDLength {
		return "", false, o.fault(lockstep.ErrInvalid, ourKeys[keyGang], v.text, "must hold no : or / and be, with the namespace, at most "+strconv.Itoa(lockstep.MaxIDLength)+" bytes")
	}
	return v.text, grouped, nil
}

// compareText compares byte by byte.
func compareText(a, b string) int { return strings.Compare(a, b) }
