package placement

import (
	"math"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Usage is how full a cluster is.
type Usage struct {
	Nodes   int `json:"nodes"`   // Nodes is how many there are.
	Open    int `json:"open"`    // Open is how many of them are open and healthy.
	Idle    int `json:"idle"`    // Idle is how many of the open ones have no member.
	Devices int `json:"devices"` // Devices is how many there are.
	Free    int `json:"free"`    // Free is how many devices of open nodes no member has any part of.
	Shared  int `json:"shared"`  // Shared is how many devices of open nodes members have parts of: shares or MIG instances.
	Jobs    int `json:"jobs"`    // Jobs is how many hold room.
	Members int `json:"members"` // Members is how many sit on nodes, spares among them.
	Lost    int `json:"lost"`    // Lost is how many members have no node, see Rebase.
}

// Usage returns how full the cluster is. O(nodes + members of jobs that lost some).
func (s *State) Usage() Usage {
	u := Usage{Jobs: len(s.byID)}
	for x := range s.slots {
		c := &s.slots[x]
		if c.flags&vacant != 0 {
			continue
		}
		u.Nodes++
		u.Devices += c.all.Len()
		u.Members += int(c.members)
		if c.flags == 0 {
			u.Open++
			u.Free += c.free.Len()
			parts, _ := s.parts(c)
			u.Shared += parts.Len()
			if c.members == 0 {
				u.Idle++
			}
		}
	}
	for _, rec := range s.byID { // in any order: a sum
		j := &s.jobs[rec]
		for i := 0; i < int(j.ranks) && j.lost > 0; i++ {
			u.Lost += int(boolCount(j.seats[i].slot < 0))
		}
	}
	return u
}

// Room is how much room there is for the members of one role.
type Room struct {
	Free     lockstep.MilliGPU `json:"free"`     // Free is how much of devices is free for such members on nodes that they may use; each MIG instance of theirs that fits counts as a device.
	Stranded lockstep.MilliGPU `json:"stranded"` // Stranded is how much of that no such member can use: fragmentation.
	Levels   []LevelRoom       `json:"levels"`   // Levels are the best domain of each level, the cluster first.
}

// LevelRoom is the roomiest domain of a level.
type LevelRoom struct {
	Level   lockstep.Level `json:"level"`   // Level is the level.
	Domain  string         `json:"domain"`  // Domain is its name; empty where no member fits.
	Members int            `json:"members"` // Members is how many fit there, in whole inner groups where the level has them.
}

// Room returns how much room there is for members like those of one role of a
// request, whatever level it requires; penalties do not matter. It returns errors as
// Fit does, and lockstep.ErrInvalid for a role that the gang lacks. O(levels).
func (s *State) Room(r *lockstep.Request, role int) (Room, error) {
	q := &s.work.query
	if err := s.read("room", r, q); err != nil {
		return Room{}, err
	}
	if role < 0 || role >= len(q.max) {
		return Room{}, fault(lockstep.ErrInvalid, "room", "role", strconv.Itoa(role), "not a role of the gang")
	}
	if err := s.cover("room", r); err != nil {
		return Room{}, err
	}
	v := s.viewFor(q.gang, &q.gang.Roles[role], q.inner[role], s.worst())
	out := Room{Free: lockstep.MilliGPU(v.freeMilli())}
	for l := range s.depth {
		units, d := s.most(v, l, math.MaxInt32-1)
		o := LevelRoom{Level: s.tree.LevelAt(l).Name, Members: int(units * v.unit(l))}
		if units > 0 {
			o.Domain = s.tree.DomainName(l, d)
		}
		out.Levels = append(out.Levels, o)
	}
	if v.kind.gpus > 0 {
		used := int64(s.unitsOf(v, 0, 0)) * int64(v.unit(0)) * v.kind.amounts()[0]
		out.Stranded = out.Free - lockstep.MilliGPU(used)
	}
	s.restore(0)
	return out, nil
}
