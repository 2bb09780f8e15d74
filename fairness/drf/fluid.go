package drf

import (
	"math/big"

	"github.com/lockstep-gpu/lockstep"
)

// User is somebody with tasks that are all alike, for Fluid.
type User struct {
	Demand lockstep.Vector // Demand is what one task takes, 0 or more of each resource.
	Weight int64           // Weight is its weight; those that are not above 0 share what the others leave, equally.
	Tasks  int64           // Tasks is how many tasks it has; 0 means any number.
}

// Allocation is what Fluid gives to one user.
type Allocation struct {
	Tasks *big.Rat // Tasks is how many run, in fractions.
	Share *big.Rat // Share is its dominant share, by its weight.
}

// Fluid divides capacity among users with tasks that can be cut at will: progressive
// filling raises all dominant shares, by weight, at one speed; who has all tasks running, or
// needs what is used up, stays where it is (Ghodsi et al., NSDI 2011, section 4). It is exact; it takes O(users + resources)
// steps of O(users × resources) each, in numbers that grow with the steps. A user that asks for nothing gets no
// tasks, unless it says how many it has; then it gets all.
func Fluid(capacity lockstep.Vector, users []User) []Allocation {
	f := fluid{users: users, tasks: make([]*big.Rat, len(users)), speed: make([]*big.Rat, len(users))}
	for i := range capacity {
		f.left[i] = new(big.Rat).SetInt64(max(capacity[i], 0))
	}
	for i := range users {
		f.tasks[i] = new(big.Rat)
	}
	for _, weighted := range []bool{true, false} {
		for i := range users {
			f.speed[i] = nil
			if u := &users[i]; (u.Weight > 0) == weighted {
				f.speed[i] = speed(capacity, u)
			}
		}
		for f.step() {
		}
	}
	out := make([]Allocation, len(users))
	for i := range users {
		out[i] = Allocation{Tasks: f.tasks[i], Share: new(big.Rat)}
		if s := speed(capacity, &users[i]); s != nil {
			out[i].Share.Quo(f.tasks[i], s)
		} else if asksNothing(&users[i]) {
			out[i].Tasks.SetInt64(max(users[i].Tasks, 0))
		}
	}
	return out
}

// fluid is one run of progressive filling.
type fluid struct {
	users []User
	left  [lockstep.VectorWidth]*big.Rat
	tasks []*big.Rat
	speed []*big.Rat // tasks per unit of weighted dominant share; nil for who stays where it is
}

// speed returns how many tasks of u make up a weighted dominant share of 1; nil where
// none can run, or where they take nothing.
func speed(capacity lockstep.Vector, u *User) *big.Rat {
	most := new(big.Rat) // the dominant share of a task
	for r, d := range u.Demand {
		switch {
		case d <= 0:
		case capacity[r] <= 0:
			return nil
		default:
			if s := big.NewRat(d, capacity[r]); s.Cmp(most) > 0 {
				most = s
			}
		}
	}
	if most.Sign() == 0 {
		return nil
	}
	return new(big.Rat).Quo(new(big.Rat).SetInt64(max(u.Weight, 1)), most)
}

func asksNothing(u *User) bool {
	for _, d := range u.Demand {
		if d > 0 {
			return false
		}
	}
	return true
}

// step raises shares until somebody has to stop, and reports whether anybody could go on.
func (f *fluid) step() bool {
	var rise *big.Rat // by how much all shares rise
	least := func(x *big.Rat) {
		if rise == nil || x.Cmp(rise) < 0 {
			rise = x
		}
	}
	var flow [lockstep.VectorWidth]*big.Rat
	for i, s := range f.speed {
		if s == nil {
			continue
		}
		u := &f.users[i]
		for r, d := range u.Demand {
			if d > 0 {
				if flow[r] == nil {
					flow[r] = new(big.Rat)
				}
				flow[r].Add(flow[r], new(big.Rat).Mul(s, new(big.Rat).SetInt64(d)))
			}
		}
		if u.Tasks > 0 {
			rest := new(big.Rat).Sub(new(big.Rat).SetInt64(u.Tasks), f.tasks[i])
			least(rest.Quo(rest, s))
		}
	}
	for r := range flow {
		if flow[r] != nil {
			least(new(big.Rat).Quo(f.left[r], flow[r]))
		}
	}
	if rise == nil {
		return false
	}
	for i, s := range f.speed {
		if s != nil {
			f.tasks[i].Add(f.tasks[i], new(big.Rat).Mul(rise, s))
		}
	}
	for r := range flow {
		if flow[r] != nil {
			f.left[r].Sub(f.left[r], new(big.Rat).Mul(rise, flow[r]))
		}
	}
	f.stop()
	return true
}

// stop takes out who is done.
func (f *fluid) stop() {
	for i := range f.speed {
		u := &f.users[i]
		done := u.Tasks > 0 && f.tasks[i].Cmp(new(big.Rat).SetInt64(u.Tasks)) >= 0
		for r, d := range u.Demand {
			done = done || d > 0 && f.left[r].Sign() == 0
		}
		if done {
			f.speed[i] = nil
		}
	}
}
