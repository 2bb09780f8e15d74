package fusion

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// BundleID names a bundle that runs.
type BundleID string

// Live is a bundle that runs, as it is after some of its members have stopped.
type Live struct {
	ID      BundleID  // unique
	Key     Key       // of all members
	Members []TrialID // that are still wanted
	Safe    bool      // it is at a point at which members may leave and join, such as the end of a rung
}

// Move takes a trial to a bundle.
type Move struct {
	Trial TrialID  // which
	From  BundleID // "" for a trial that waited
	To    BundleID // a bundle at a safe point
}

// Refused is what fusing anew comes to.
type Refused struct {
	Moves   []Move     // in the order in which to make them
	Emptied []BundleID // bundles that are left without members, whose devices are free
}

// Refuse merges what is left of bundles and fills their free places with trials that wait. Only bundles at a safe
// point take part. For each key it keeps as few of them as the limit allows, the fullest, moves the members of the
// others into their free places, and then takes waiting trials, in order, into places that are left. A bundle with
// more members than its limit allows, since the limit was lowered, loses none: it takes no others.
func Refuse(live []Live, waiting []Trial, limit func(Key) int) (Refused, error) {
	groups, err := safeByKey(live, waiting)
	if err != nil {
		return Refused{}, err
	}
	var out Refused
	queue := map[Key][]TrialID{}
	for _, t := range waiting {
		queue[t.Key] = append(queue[t.Key], t.ID)
	}
	for _, group := range groups {
		most := math.MaxInt
		if limit != nil {
			if most, err = limitOf("refuse", limit, group[0].Key); err != nil {
				return Refused{}, err
			}
		}
		out.merge(group, most, queue[group[0].Key])
	}
	return out, nil
}

// merge fuses the bundles of one key anew.
func (r *Refused) merge(group []*Live, most int, waiting []TrialID) {
	slices.SortStableFunc(group, func(a, b *Live) int { return cmp.Compare(len(b.Members), len(a.Members)) })
	room := make([]int, len(group))
	last := len(group) - 1
	for i, b := range group {
		room[i] = max(0, most-len(b.Members))
		if len(b.Members) == 0 {
			last = min(last, i-1)
		}
	}
	// The smallest bundle goes as long as the larger ones have places for all of it.
	to, kept := 0, last
	for kept > 0 {
		free := 0
		for _, n := range room[:kept] {
			free = min(free, math.MaxInt-n) + n
		}
		if free < len(group[kept].Members) {
			break
		}
		for _, trial := range group[kept].Members {
			for room[to] == 0 {
				to++
			}
			room[to]--
			r.Moves = append(r.Moves, Move{Trial: trial, From: group[kept].ID, To: group[to].ID})
		}
		kept--
	}
	for _, b := range group[kept+1:] {
		r.Emptied = append(r.Emptied, b.ID)
	}
	for i := 0; i <= kept && len(waiting) > 0; i++ {
		for ; room[i] > 0 && len(waiting) > 0; room[i]-- {
			r.Moves = append(r.Moves, Move{Trial: waiting[0], To: group[i].ID})
			waiting = waiting[1:]
		}
	}
}

// safeByKey checks the input and returns the bundles at a safe point, by key in the order of keys.
func safeByKey(live []Live, waiting []Trial) ([][]*Live, error) {
	if err := checkUnique(live, waiting); err != nil {
		return nil, err
	}
	var safe []*Live
	for i := range live {
		if live[i].Safe {
			safe = append(safe, &live[i])
		}
	}
	slices.SortStableFunc(safe, func(a, b *Live) int { return cmp.Compare(a.Key, b.Key) })
	var out [][]*Live
	for len(safe) > 0 {
		n := 1
		for n < len(safe) && safe[n].Key == safe[0].Key {
			n++
		}
		out = append(out, safe[:n:n])
		safe = safe[n:]
	}
	return out, nil
}

// checkUnique says whether each bundle and each trial has a name of its own.
func checkUnique(live []Live, waiting []Trial) error {
	bundles, trials := map[BundleID]bool{}, map[TrialID]bool{}
	for i := range live {
		b := &live[i]
		field := fmt.Sprintf("live[%d]", i)
		if err := once(bundles, field+".ID", b.ID); err != nil {
			return err
		}
		for j, id := range b.Members {
			if err := once(trials, fmt.Sprintf("%s.Members[%d]", field, j), id); err != nil {
				return err
			}
		}
	}
	for i, t := range waiting {
		if err := once(trials, fmt.Sprintf("waiting[%d].ID", i), t.ID); err != nil {
			return err
		}
	}
	return nil
}

// once notes id in seen and refuses one that is not given or was seen.
func once[ID ~string](seen map[ID]bool, field string, id ID) error {
	if id == "" {
		return fault(lockstep.ErrInvalid, "refuse", field, "", "must be given")
	}
	if seen[id] {
		return fault(lockstep.ErrDuplicate, "refuse", field, errtext.Quote(string(id)), "stands twice")
	}
	seen[id] = true
	return nil
}
