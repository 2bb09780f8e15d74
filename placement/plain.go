package placement

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// plain reports whether a gang is surely valid at a glance, without allocating;
// one that is not may be so all the same, and lockstep.Gang.Validate says. Names
// of levels are for the tree to know.
func plain(g *lockstep.Gang) bool {
	if !plainName(string(g.ID)) || !plainOrEmpty(string(g.Tenant)) || !plainOrEmpty(string(g.Queue)) ||
		g.Strategy != lockstep.Pack && g.Strategy != lockstep.Spread ||
		g.Preemption != lockstep.PreemptLower && g.Preemption != lockstep.PreemptNever || !within(int64(g.Canary), lockstep.MaxMembers) ||
		!plainTimes(g) || !plainLabels(g.Labels) || !plainWishes(&g.Constraints) {
		return false
	}
	if len(g.Roles) == 0 || len(g.Roles) > lockstep.MaxRoles {
		return false
	}
	total := 0
	for i := range g.Roles {
		r := &g.Roles[i]
		if len(g.Roles) > 1 && (r.Name == "" || repeated(g.Roles[:i], r.Name)) || !plainOrEmpty(string(r.Name)) {
			return false
		}
		if !plainCounts(r) || !plainDemand(&r.Demand) || !plainWishes(&r.Constraints) {
			return false
		}
		total += r.Limit() + r.Spares
	}
	return total <= lockstep.MaxMembers
}

func plainTimes(g *lockstep.Gang) bool {
	c := &g.Capabilities
	for _, d := range [...]time.Duration{g.Walltime, g.Hold, c.Save, c.Restore, c.Grace} {
		if !within(int64(d), int64(lockstep.MaxWalltime)) {
			return false
		}
	}
	return true
}

func plainCounts(r *lockstep.Role) bool {
	limit, size := r.Limit(), r.Inner.Size
	return r.Min >= 1 && limit >= r.Min && limit <= lockstep.MaxMembers && within(int64(r.Spares), lockstep.MaxMembers) && plainOrEmpty(string(r.Inner.Level)) &&
		(size == 0 || size == 1 || size > 1 && r.Min%size == 0 && limit%size == 0)
}

func plainDemand(d *lockstep.Demand) bool {
	for i, c := range d.Classes {
		if !plainName(string(c)) || slices.Contains(d.Classes[:i], c) {
			return false
		}
	}
	if d.GPUs == 0 && (d.GPUMemory != 0 || d.Share != 0 || len(d.Classes) != 0) ||
		d.Profile != "" && (d.GPUs != 1 || d.Share != 0 || !plainName(string(d.Profile))) {
		return false
	}
	return within(int64(d.GPUs), lockstep.MaxDevicesPerNode) && within(int64(d.Share), int64(lockstep.WholeGPU)) && d.GPUMemory >= 0 &&
		within(int64(d.CPU), 1<<39) && within(int64(d.Memory), 1<<42) && within(int64(d.RDMA), 1<<10)
}

func within(v, most int64) bool { return 0 <= v && v <= most }

func repeated(roles []lockstep.Role, name lockstep.RoleName) bool {
	for i := range roles {
		if roles[i].Name == name {
			return true
		}
	}
	return false
}

func plainWishes(c *lockstep.Constraints) bool {
	for i := range c.Selector {
		r := &c.Selector[i]
		valued := r.Operator == lockstep.In || r.Operator == lockstep.NotIn
		bare := r.Operator == lockstep.Exists || r.Operator == lockstep.DoesNotExist
		if !plainName(r.Key) || !valued && !bare || valued != (len(r.Values) > 0) {
			return false
		}
		for _, v := range r.Values {
			if !plainText(v) {
				return false
			}
		}
	}
	for _, t := range c.Tolerations {
		if t.Key == "" && t.Value != "" || !plainOrEmpty(t.Key) || !plainText(t.Value) {
			return false
		}
	}
	for i := range c.Affinity {
		if len(c.Affinity[i].Match) == 0 || !plainLabels(c.Affinity[i].Match) {
			return false
		}
	}
	return true
}

func plainLabels(labels map[string]string) bool {
	for k, v := range labels { // all must hold, in any order
		if !plainName(k) || !plainText(v) {
			return false
		}
	}
	return true
}

func plainOrEmpty(s string) bool { return s == "" || plainName(s) }

// plainName reports whether s is a name in ASCII.
func plainName(s string) bool {
	if s == "" || len(s) > lockstep.MaxIDLength || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '+' <= c && c <= ':' && c != ',', c == '_', c == '@', c == '%':
		default:
			return false
		}
	}
	return true
}

// plainText reports whether s is the value of a label, in ASCII.
func plainText(s string) bool {
	if len(s) > lockstep.MaxIDLength {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
