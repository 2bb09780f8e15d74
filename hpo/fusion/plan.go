package fusion

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// TrialID names a trial of a search.
type TrialID string

// Key names what may be fused together.
type Key string

// Trial is a trial that wants to run.
type Trial struct {
	ID  TrialID `json:"id"`  // unique
	Key Key     `json:"key"` // with whom it may be fused
}

// Bundle is trials that run as one.
type Bundle struct {
	Key     Key       `json:"key"`     // of all members
	Members []TrialID `json:"members"` // in the order of the fused axis
}

// Rule says how devices and trials are divided.
type Rule string

// The rules.
const (
	RuleEven  Rule = ""      // a device more to the key with the most trials for each of its devices; bundles of even size
	RuleHydro Rule = "hydro" // devices divided evenly by the number of keys; bundles cut one after another
)

// group is the trials of one key.
type group struct {
	key     Key
	members []TrialID
	limit   int
	devices int // that its bundles are spread over; 0 if there are more keys than devices
}

// Plan cuts trials into bundles for devices of one kind. limit tells how many trials of a key fit one device, at least
// 1; nil means any number. With more keys than devices a key's trials are in as few bundles as the limit allows, and
// the bundles queue; otherwise each key has devices of its own, and the largest of its bundles is as small as if its
// trials were spread over all of them, in as few bundles as that takes: 6 trials on 4 devices are 3 bundles of 2. If
// that is more than the limit, there are again as few bundles as it allows. Bundles come by key in the order of
// decision. The members of bundles are copies.
func Plan(trials []Trial, limit func(Key) int, devices int, rule Rule) ([]Bundle, error) {
	if devices < 1 {
		return nil, fault(lockstep.ErrInvalid, "plan", "devices", fmt.Sprint(devices), "must be at least 1")
	}
	if rule != RuleEven && rule != RuleHydro {
		return nil, fault(lockstep.ErrInvalid, "plan", "rule", errtext.Quote(string(rule)), "is not known")
	}
	groups, err := grouped(trials, limit)
	if err != nil {
		return nil, err
	}
	if len(groups) <= devices {
		deal(groups, devices, rule)
	}
	var out []Bundle
	for i := range groups {
		out = groups[i].cut(out, rule)
	}
	return out, nil
}

// grouped returns trials by key, largest group first.
func grouped(trials []Trial, limit func(Key) int) ([]group, error) {
	seen := make(map[TrialID]bool, len(trials))
	index := map[Key]int{}
	var groups []group
	for i, t := range trials {
		field := fmt.Sprintf("trials[%d].ID", i)
		if t.ID == "" {
			return nil, fault(lockstep.ErrInvalid, "plan", field, "", "must be given")
		}
		if seen[t.ID] {
			return nil, fault(lockstep.ErrDuplicate, "plan", field, errtext.Quote(string(t.ID)), "stands twice")
		}
		seen[t.ID] = true
		g, ok := index[t.Key]
		if !ok {
			g = len(groups)
			index[t.Key] = g
			groups = append(groups, group{key: t.Key, limit: len(trials)})
		}
		groups[g].members = append(groups[g].members, t.ID)
	}
	for i := range groups {
		if limit == nil {
			continue
		}
		n, err := limitOf("plan", limit, groups[i].key)
		if err != nil {
			return nil, err
		}
		groups[i].limit = n
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(len(b.members), len(a.members)), cmp.Compare(a.key, b.key))
	})
	return groups, nil
}

// limitOf asks limit about key.
func limitOf(op string, limit func(Key) int, key Key) (int, error) {
	n := limit(key)
	if n < 1 {
		return 0, fault(lockstep.ErrInvalid, op, "limit("+errtext.Quote(string(key))+")", fmt.Sprint(n), "must be at least 1")
	}
	return n, nil
}

// deal divides devices among groups, of which there are not more.
func deal(groups []group, devices int, rule Rule) {
	if len(groups) == 0 {
		return
	}
	each, rest := devices/len(groups), devices%len(groups)
	for i := range groups {
		groups[i].devices = 1
		if rule == RuleHydro {
			groups[i].devices = each
			if i < rest {
				groups[i].devices++
			}
		}
	}
	if rule == RuleHydro {
		return
	}
	trials := 0
	for i := range groups {
		trials += len(groups[i].members)
	}
	h := crowd{groups: groups, order: make([]int, len(groups))}
	for i := range h.order {
		h.order[i] = i // largest first, each with one device: a heap
	}
	for range min(devices, trials) - len(groups) {
		groups[h.order[0]].devices++
		heap.Fix(&h, 0)
	}
}

// crowd is a heap of groups, with the most trials for each device first, of equals the first group.
type crowd struct {
	groups []group
	order  []int
}

func (h *crowd) Len() int { return len(h.order) }

func (h *crowd) Less(i, j int) bool {
	a, b := &h.groups[h.order[i]], &h.groups[h.order[j]]
	x, y := int64(len(a.members))*int64(b.devices), int64(len(b.members))*int64(a.devices)
	return x > y || (x == y && h.order[i] < h.order[j])
}

func (h *crowd) Swap(i, j int) { h.order[i], h.order[j] = h.order[j], h.order[i] }

// Push and Pop complete heap.Interface; the heap keeps its size.
func (h *crowd) Push(any) {}

func (h *crowd) Pop() any { return nil }

// cut appends the bundles of g.
func (g *group) cut(dst []Bundle, rule Rule) []Bundle {
	n := len(g.members)
	fewest := ceil(n, g.limit)
	size := ceil(n, fewest)
	if g.devices > 0 {
		if spread := ceil(n, g.devices); spread <= g.limit {
			size = spread
		}
	}
	count := ceil(n, size)
	for i, from := 0, 0; from < n; i++ {
		to := min(from+size, n)
		if rule == RuleEven {
			to = from + n/count
			if i < n%count {
				to++
			}
		}
		dst = append(dst, Bundle{Key: g.key, Members: g.members[from:to:to]})
		from = to
	}
	return dst
}

// ceil returns a/b rounded up, for a of at least 0.
func ceil(a, b int) int { return a/b + min(a%b, 1) }
