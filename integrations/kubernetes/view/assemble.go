package view

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// draft is a gang while its pods are read together.
type draft struct {
	cfg    *Config
	team   *team
	state  *State
	roles  []*role // in rank order
	values [keys]value
	from   [keys]string // who said it, for faults
}

// role is a role while its pods are read together.
type role struct {
	name   lockstep.RoleName
	pods   []*pod // by name, then in rank order
	gated  int
	spec   *spec
	values [keys]value
	from   [keys]string
	least  int // 0 while it is not known
}

// assemble says how a gang stands. Pods are read by name, so the answer depends on
// nothing but what they say.
func (c *Config) assemble(t *team) *State {
	d := &draft{cfg: c, team: t, state: &State{ID: t.id, Foreign: t.kind == foreign}}
	if t.kind == foreign {
		d.strangers()
		return d.state
	}
	d.read()
	d.order()
	d.merge()
	if len(d.state.Faults) == 0 {
		d.count()
	}
	if len(d.state.Faults) == 0 {
		d.build()
	}
	d.list()
	d.phase()
	return d.state
}

// strangers lists the pod of others, if it still holds what it had.
func (d *draft) strangers() {
	s := d.state
	s.Phase = Placed
	for _, p := range d.team.pods {
		out := d.member(p, 0)
		if p.stage == leaving {
			s.Leaving = append(s.Leaving, out)
			continue
		}
		s.Pods = append(s.Pods, out)
		s.Bound++
	}
	if s.Want = len(s.Pods); s.Want == 0 {
		s.Phase = Over
	}
}

// read sorts the pods into their roles.
func (d *draft) read() {
	s := d.state
	if g := d.team.group; g != nil {
		if g.fault != nil {
			s.Faults = append(s.Faults, g.fault)
		}
		d.values = g.values
	}
	for _, p := range d.team.pods {
		switch {
		case p.stage == failed:
			s.Failed++
		case p.stage == leaving:
			if p.node != "" {
				s.Leaving = append(s.Leaving, d.member(p, 0))
			}
		case p.fault != nil && p.stage == ended: // it holds nothing, and nobody can put it right
		case p.fault != nil:
			s.Faults = append(s.Faults, p.fault)
			if p.node != "" {
				r := d.role("")
				r.pods = append(r.pods, p)
			}
		case p.stage == gated:
			s.Gated++
			d.role(p.spec.role).gated++
		default:
			r := d.role(p.spec.role)
			r.pods = append(r.pods, p)
		}
	}
}

// role returns the role of that name, a new one if need be.
func (d *draft) role(name lockstep.RoleName) *role {
	for _, r := range d.roles {
		if r.name == name {
			return r
		}
	}
	r := &role{name: name}
	d.roles = append(d.roles, r)
	return r
}

// merge puts together what the pods say of the gang and of their roles. What is said
// twice must be the same; of spec.priority and the like the highest counts.
func (d *draft) merge() {
	for _, r := range d.roles {
		for _, p := range r.pods {
			if p.spec == nil {
				continue
			}
			if r.spec == nil {
				r.spec = p.spec
			} else if r.spec != p.spec {
				d.alike(r, p)
			}
			for k := range keys {
				switch rules[k].scope {
				case ScopeGang:
					d.put(&d.values, &d.from, k, p)
				case ScopeRole:
					d.put(&r.values, &r.from, k, p)
				}
			}
		}
	}
	slices.SortFunc(d.roles, func(a, b *role) int {
		return cmp.Or(cmp.Compare(a.values[keyRoleOrder].n, b.values[keyRoleOrder].n), cmp.Compare(a.name, b.name))
	})
}

// put notes what p says for k.
func (d *draft) put(values *[keys]value, from *[keys]string, k key, p *pod) {
	v := p.spec.values[k]
	switch said := &values[k]; {
	case !v.set:
	case !said.set:
		*said, from[k] = v, p.name
	case *said != v && from[k] != "": // what the group says, nobody contradicts
		d.fault(p, lockstep.ErrConflict, ourKeys[k], text(k, v), "pod "+from[k]+" says "+text(k, *said))
	}
}

// alike finds fault with a pod of a role that needs other things than the first.
func (d *draft) alike(r *role, p *pod) {
	a, b := r.spec, p.spec
	first := r.pods[0].name
	if !equalDemand(&a.demand, &b.demand) {
		d.fault(p, lockstep.ErrConflict, "spec.containers.resources", b.demand.Resources().String(), "pods of one role ask for the same; pod "+first+" asks for "+a.demand.Resources().String())
	} else if !equalConstraints(&a.constraints, &b.constraints) {
		d.fault(p, lockstep.ErrConflict, "spec.affinity", "", "pods of one role may sit on the same nodes; pod "+first+" says otherwise")
	}
}

func (d *draft) fault(p *pod, kind error, key, value, reason string) {
	d.state.Faults = append(d.state.Faults, object{"Pod", d.team.space, p.name, p.uid}.fault(kind, key, value, reason))
}

// about returns whom faults of the gang as a whole name: the group, else the first pod.
func (d *draft) about() object {
	if g := d.team.group; g != nil {
		return g.object
	}
	for _, p := range d.team.pods {
		if p.stage == waiting {
			return object{"Pod", d.team.space, p.name, p.uid}
		}
	}
	p := d.team.pods[0]
	return object{"Pod", d.team.space, p.name, p.uid}
}

// text writes a value as one would say it.
func text(k key, v value) string {
	switch rules[k].form {
	case formCount, formNumber, formPriority, formShare, formMiB:
		return strconv.FormatInt(v.n, 10)
	case formDuration:
		return time.Duration(v.n).String()
	case formBytes:
		return lockstep.Bytes(v.n).String()
	}
	return v.text
}

// count finds the least members of each role.
func (d *draft) count() {
	total, unknown, sum, there := int(d.values[keyMinMember].n), 0, 0, 0
	if d.team.kind == alone {
		total = 1
	}
	for _, r := range d.roles {
		r.least = d.said(r)
		if r.least == 0 {
			unknown++
			there += len(r.pods) + r.gated
		}
		sum += r.least
	}
	d.state.Want = total
	if len(d.roles) == 0 {
		return // nobody is there but those that leave
	}
	need := total - sum
	switch {
	case total == 0 && d.awaited():
	case total == 0:
		d.blame(lockstep.ErrInvalid, keyMinMember, "", "a gang needs it, or a PodGroup that says it")
	case need < 0 || need == 0 && unknown > 0:
		d.blame(lockstep.ErrConflict, keyMinMember, number(total), "the least of its roles come to "+number(sum+unknown)+" or more")
	case d.values[keyMaxMember].set && len(d.roles) > 1:
		d.blame(lockstep.ErrInvalid, keyMaxMember, text(keyMaxMember, d.values[keyMaxMember]), "of a gang with several roles, role-max says it")
	case unknown > 1 && there > need:
		d.blame(lockstep.ErrInvalid, keyRoleMin, "", "there are more pods than min-member, so the roles must say how many of each start together")
	case unknown == 1 || unknown > 1 && there == need:
		d.guess(unknown, need)
	}
}

// awaited reports whether the gang is a PodGroup that is not there yet.
func (d *draft) awaited() bool {
	return d.team.group == nil && slices.ContainsFunc(d.team.pods, func(p *pod) bool { return p.grouped })
}

// said returns what is said of the least of a role, 0 where nothing is.
func (d *draft) said(r *role) int {
	if v := r.values[keyRoleMin]; v.set || d.team.group == nil {
		return int(v.n)
	}
	return d.team.group.roles[string(r.name)]
}

// guess fills in what was not said: what is left for one role, or the pods of each of
// several that are just as many as are needed.
func (d *draft) guess(unknown, need int) {
	for _, r := range d.roles {
		switch {
		case r.least != 0:
		case unknown == 1:
			r.least = need
		default:
			r.least = len(r.pods) + r.gated
		}
	}
}

// blame finds fault with the gang as a whole.
func (d *draft) blame(kind error, k key, value, reason string) {
	d.state.Faults = append(d.state.Faults, d.about().fault(kind, ourKeys[k], value, reason))
}

// build makes the gang, if the least of it is there.
func (d *draft) build() {
	s := d.state
	known, gated := 0, 0
	for _, r := range d.roles {
		least := cmp.Or(r.least, len(r.pods)+r.gated)
		short := max(0, least-len(r.pods))
		known += least
		s.Missing += short
		gated += min(short, r.gated)
	}
	s.Missing += max(0, s.Want-known) // of roles that are not there, or not known
	switch {
	case len(d.roles) == 0:
		s.Detail = "no pod is left"
		return
	case s.Want == 0:
		s.Missing, s.Detail = max(s.Missing, 1), "its PodGroup is not there"
		return
	case s.Missing > 0 && s.Missing == gated:
		s.Detail = number(gated) + " pods of " + number(s.Want) + " have scheduling gates"
		return
	case s.Missing > 0:
		s.Detail = number(s.Want-s.Missing) + " pods of " + number(s.Want) + " are there"
		return
	}
	g := d.gang()
	if f := refused(d.about(), g.Validate()); f != nil {
		s.Faults = append(s.Faults, f)
		return
	}
	if was := d.team.last; was != nil && reflect.DeepEqual(was, g) {
		g = was
	}
	d.team.last, s.Gang = g, g
}

// list writes the pods of all roles in rank order.
func (d *draft) list() {
	s := d.state
	for i, r := range d.roles {
		for _, p := range r.pods {
			s.Pods = append(s.Pods, d.member(p, int32(i)))
			if p.node != "" {
				s.Bound++
			}
			if p.stage == ended {
				s.Ended++
			}
		}
	}
}

func (d *draft) member(p *pod, role int32) Pod {
	return Pod{
		Namespace: d.team.space, Name: p.name, UID: p.uid, Role: role, Node: p.node,
		Ended: p.stage == ended, spec: p.spec, relic: p.relic,
	}
}

// phase says how far the gang has come.
func (d *draft) phase() {
	s := d.state
	switch live := len(s.Pods) - s.Ended; {
	case len(s.Faults) > 0:
		s.Phase, s.Detail, s.Gang = Faulty, s.Faults[0].Error(), nil
	case live == 0 && s.Gated == 0:
		s.Phase = Over
	case s.Missing == 0 && d.placed():
		s.Phase = Placed
	case s.Bound > 0:
		s.Phase = Partial
	case s.Missing > s.Gated:
		s.Phase = Incomplete
	case s.Missing > 0:
		s.Phase = Gated
	default:
		s.Phase = Ready
	}
}

// placed reports whether the least of each role are bound, or ended well.
func (d *draft) placed() bool {
	for _, r := range d.roles {
		n := 0
		for _, p := range r.pods {
			if p.node != "" || p.stage == ended {
				n++
			}
		}
		if n < r.least {
			return false
		}
	}
	return true
}
