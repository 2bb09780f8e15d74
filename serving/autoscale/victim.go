package autoscale

import (
	"cmp"
	"slices"
)

// CompareVictims orders replicas of one kind, starting or ready, by who goes first: the least loaded, then the newest,
// then the greatest ID, so that names that count up go from the end.
func CompareVictims(a, b Replica) int {
	return cmp.Or(cmp.Compare(a.Ongoing, b.Ongoing), b.Started.Compare(a.Started), cmp.Compare(b.ID, a.ID))
}

// victims returns n replicas of f in the order in which they go: those that serve nobody yet before those that do.
func victims(f Fleet, n int) []ReplicaID {
	out := make([]ReplicaID, 0, n)
	for _, part := range [][]Replica{f.Starting, f.Ready} {
		part = slices.Clone(part)
		slices.SortFunc(part, CompareVictims)
		for _, r := range part[:min(n-len(out), len(part))] {
			out = append(out, r.ID)
		}
	}
	return out
}
