package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/deadline"
)

// gang is a job of a fixed number of devices, in seconds.
type gang struct {
	id       lockstep.JobID
	gpus     int
	submit   int64
	length   int64
	deadline int64 // 0: best effort
	left     int64
}

// gangs reads a trace of Chronus, by submission, and tells how many rows ask for no device and are left out.
func gangs(path string) (list []gang, left int, err error) {
	t, err := readTable(path)
	if err != nil {
		return nil, 0, err
	}
	for row := range t.rows {
		var v [4]float64
		for i, name := range []string{"num_gpu", "submit_time", "duration", "best_effort"} {
			if v[i], err = t.number(row, name); err != nil {
				return nil, 0, err
			}
		}
		if v[0] == 0 {
			left++
			continue
		}
		g := gang{id: lockstep.JobID(fmt.Sprintf("j%05d", row)), gpus: int(v[0]), submit: int64(v[1] * 60), length: max(int64(v[2]*60), 1)}
		if v[3] == 0 {
			text, err := t.text(row, "expect_time_list")
			if err != nil {
				return nil, 0, err
			}
			first, _, _ := strings.Cut(strings.Trim(text, "[]"), ",")
			within, err := strconv.ParseFloat(strings.TrimSpace(first), 64)
			if err != nil {
				return nil, 0, fmt.Errorf("%s: row %d: %w", path, row+2, err)
			}
			g.deadline = g.submit + int64(within*60)
		}
		list = append(list, g)
	}
	slices.SortStableFunc(list, func(a, b gang) int { return cmp.Compare(a.submit, b.submit) })
	return list, left, nil
}

// slotted is what a replay in slots came to: of the jobs with a deadline and of those without.
type slotted struct {
	outcome
	asked, kept   int64 // device-seconds of all jobs with a deadline, and of those that met theirs
	bestEffort    int
	bestEffortJCT float64 // seconds
	sum, best     float64
}

// came counts a job that asks to be run.
func (s *slotted) came(g *gang) {
	if g.deadline > 0 {
		s.jobs++
		s.asked += g.length * int64(g.gpus)
	}
}

// ended counts a job that ended.
func (s *slotted) ended(g *gang, at int64) {
	switch {
	case g.deadline == 0:
		s.bestEffort++
		s.best += float64(at - g.submit)
		return
	case at <= g.deadline:
		s.met++
		s.kept += g.length * int64(g.gpus)
	default:
		s.missed++
		s.latest = max(s.latest, float64(at-g.deadline))
	}
	s.sum += float64(at - g.submit)
}

// means works out the means in the end.
func (s *slotted) means() {
	s.jct, s.bestEffortJCT = s.sum/float64(max(s.met+s.missed, 1)), s.best/float64(max(s.bestEffort, 1))
}

// slots replays gangs under deadline.Table, which decides about each at the start of a slot of lease seconds. The search for
// plans that its rules of thumb do not find is left out: on these traces it takes twice the time and admits nobody more.
func slots(list []gang, gpus int, lease int64, eager bool) (slotted, error) {
	var out slotted
	t, err := deadline.New(deadline.Config{GPUs: gpus, Lease: time.Duration(lease) * time.Second, Eager: eager, Search: deadline.None})
	if err != nil {
		return out, err
	}
	active := make(map[lockstep.JobID]*gang)
	var run []lockstep.JobID
	now := int64(0)
	for next := 0; next < len(list) || t.Len() > 0; now += lease {
		if t.Len() == 0 && next < len(list) && list[next].submit > now {
			now = (list[next].submit + lease - 1) / lease * lease
			run = nil
		}
		for _, id := range run {
			g := active[id]
			if g.left <= lease {
				out.ended(g, now-lease+g.left)
				delete(active, id)
				if err := t.Finish(at(now*second), id); err != nil {
					return out, err
				}
				continue
			}
			g.left -= lease
		}
		for ; next < len(list) && list[next].submit <= now; next++ {
			g := &list[next]
			j := deadline.Job{ID: g.id, GPUs: g.gpus, Remaining: time.Duration(g.length) * time.Second}
			out.came(g)
			if g.deadline > 0 {
				j.Deadline = at(g.deadline * second)
			}
			d, err := t.Admit(at(now*second), j)
			if err != nil {
				return out, err
			}
			if !d.Feasible {
				continue
			}
			if g.deadline > 0 {
				out.admitted++
			}
			g.left = g.length
			active[g.id] = g
		}
		slot, err := t.Step(at(now * second))
		if err != nil {
			return out, err
		}
		run = slot.Run
	}
	out.means()
	return out, nil
}

// rival is an order by which slots are given out without admission.
type rival struct {
	name string
	key  func(g *gang, now int64) int64 // the lower first; ties go by submission, then ID
}

const later = int64(1) << 60 // behind all with a deadline

var rivals = []rival{
	{"EDF", func(g *gang, _ int64) int64 { return cmp.Or(g.deadline, later) }},
	{"least laxity", func(g *gang, now int64) int64 {
		if g.deadline == 0 {
			return later
		}
		return g.deadline - now - g.left
	}},
	{"EDF, late ones last", func(g *gang, now int64) int64 {
		if g.deadline == 0 || now+g.left > g.deadline {
			return later
		}
		return g.deadline
	}},
	{"SRTF", func(g *gang, _ int64) int64 { return g.left }},
	{"LAS", func(g *gang, _ int64) int64 {
		q, _ := slices.BinarySearch(lasLimits, (g.length-g.left)*int64(g.gpus)*second+1)
		return int64(q)
	}},
	{"FIFO", func(g *gang, _ int64) int64 { return g.submit }},
}

// replay gives the slots out by the order of r.
func (r rival) replay(list []gang, gpus int, lease int64) slotted {
	var out slotted
	var active []*gang
	keys := make(map[*gang]int64)
	now := int64(0)
	for next := 0; next < len(list) || len(active) > 0; now += lease {
		if len(active) == 0 && list[next].submit > now {
			now = (list[next].submit + lease - 1) / lease * lease
		}
		for ; next < len(list) && list[next].submit <= now; next++ {
			g := &list[next]
			out.came(g)
			g.left = g.length
			active = append(active, g)
		}
		for _, g := range active {
			keys[g] = r.key(g, now)
		}
		slices.SortFunc(active, func(a, b *gang) int {
			return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a.submit, b.submit), cmp.Compare(a.id, b.id))
		})
		free := gpus
		kept := active[:0]
		for _, g := range active {
			if g.gpus > free {
				kept = append(kept, g)
				continue
			}
			free -= g.gpus
			if g.left <= lease {
				out.ended(g, now+g.left)
				delete(keys, g)
				continue
			}
			g.left -= lease
			kept = append(kept, g)
		}
		active = kept
	}
	out.admitted = out.jobs
	out.means()
	return out
}

// chronusFile is where a trace of Chronus lies.
func chronusFile(traces, name string) string {
	return filepath.Join(traces, "chronus-socc21", "trace_job_Philly_"+name+".csv")
}
