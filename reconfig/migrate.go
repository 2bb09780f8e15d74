package reconfig

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/pipeline"
)

// maxMigrationRounds is how many times one more micro-batch of a stage migrates.
const maxMigrationRounds = 64

// exchange is how many micro-batches of a stage one replica computes for another.
type exchange struct{ stage, owner, host, count int }

// migrations returns the split and the migrations that make a plan fastest: for some
// micro-batches handed back to the slowest stage's replica, again and again, of the
// slowest replica, the stage of which some micro-batches of a peer help most. gap is by
// how many micro-batches the host must be ahead in that stage.
func (p *planner) migrations(runs []running, split []int, gap int) ([]int, []Migration) {
	w := p.w
	if w.chunks > 1 || w.job.Schedule > pipeline.GPipe || len(runs) < 2 {
		return split, nil
	}
	first, err := w.evaluate(runs, split, nil)
	if err != nil {
		return split, nil
	}
	best, bestSplit, bestMoved := first.Iteration, split, []Migration(nil)
	low, high := slices.Index(split, slices.Min(split)), slices.Index(split, slices.Max(split))
	for shift := 0; low != high || shift == 0; shift = max(1, 2*shift) {
		from := slices.Clone(split)
		from[low], from[high] = from[low]+shift, from[high]-shift
		if from[low] > from[high]+1 && shift > 0 || p.spent() {
			break
		}
		if shift > 0 && !p.fit(runs, from) {
			continue
		}
		for _, begin := range [][]exchange{nil, p.level(runs, from, gap)} {
			took, have := p.climb(runs, from, begin, gap)
			if took < best {
				best, bestSplit, bestMoved = took, from, spell(have, from)
			}
		}
	}
	return bestSplit, bestMoved
}

// level returns exchanges that level the work on every stage: from the replica that
// takes longest for it to the one that takes least, while that is far enough ahead.
func (p *planner) level(runs []running, split []int, gap int) []exchange {
	var have []exchange
	for s := range runs[0].groups {
		for range p.w.job.Micros {
			slow, fast, most, least := -1, -1, int64(-1), int64(forever)
			for r := range runs {
				if !slices.Equal(runs[r].virt, runs[0].virt) {
					continue
				}
				one := p.stageTime(runs, r, s)
				load := stageCount(have, split, r, s) * one
				if load > most && stageOwn(have, split, r, s) > 0 {
					slow, most = r, load
				}
				if load+one < least {
					fast, least = r, load+one
				}
			}
			if slow < 0 || fast < 0 || slow == fast || least > most-p.stageTime(runs, slow, s)*int64(gap-1) || least >= most ||
				!p.hosts(runs, split, have, exchange{s, slow, fast, 1}) {
				break
			}
			have = addExchange(have, exchange{s, slow, fast, 1})
		}
	}
	return have
}

// stageTime returns what stage s of replica r takes for one micro-batch.
func (p *planner) stageTime(runs []running, r, s int) int64 {
	t := p.w.stageTook(&runs[r], s)
	return t[0] + t[1]
}

// stageOwn returns how many of its own micro-batches stage s of r computes, and
// stageCount how many of anybody's.
func stageOwn(have []exchange, split []int, r, s int) int64 {
	n := split[r]
	for _, x := range have {
		if x.stage == s && x.owner == r {
			n -= x.count
		}
	}
	return int64(n)
}

func stageCount(have []exchange, split []int, r, s int) int64 {
	n := stageOwn(have, split, r, s)
	for _, x := range have {
		if x.stage == s && x.host == r {
			n += int64(x.count)
		}
	}
	return n
}

// fit says whether replicas have memory for so many micro-batches.
func (p *planner) fit(runs []running, split []int) bool {
	w := p.w
	for i := range runs {
		l := w.schedule(len(runs[i].groups), max(1, split[i]))
		if l == nil {
			return false
		}
		for s, g := range runs[i].groups {
			if int(runs[i].layers[s]) > w.room(g.slot(), s == 0, s == len(l.peaks)-1, l.peaks[s], w.losses(split[i]), len(runs)) {
				return false
			}
		}
	}
	return true
}

// climb adds migrations to those it has for as long as they help.
func (p *planner) climb(runs []running, split []int, have []exchange, gap int) (time.Duration, []exchange) {
	w := p.w
	best, err := w.evaluate(runs, split, spell(have, split))
	if err != nil {
		return forever, nil
	}
	for range maxMigrationRounds {
		owner := 0
		for i, t := range best.Replicas {
			if t > best.Replicas[owner] {
				owner = i
			}
		}
		from, next, found := best, have, false
		for _, r := range tiedWith(have, owner, len(runs)) {
			for _, x := range p.offers(runs, split, have, r, gap) {
				if p.spent() {
					break
				}
				try := addExchange(have, x)
				e, err := w.evaluate(runs, split, spell(try, split))
				if err == nil && (e.Iteration < best.Iteration || e.Iteration == best.Iteration && sum(e.Replicas) < sum(best.Replicas)) {
					best, next, found = e, try, true
				}
			}
		}
		if !found || from.Iteration < best.Iteration {
			break
		}
		have = next
	}
	return best.Iteration, have
}

func sum(times []time.Duration) time.Duration {
	s := time.Duration(0)
	for _, t := range times {
		s += t
	}
	return s
}

// tiedWith returns the replica and those that exchanges tie it to: they share one time.
func tiedWith(have []exchange, r, n int) []int {
	for _, set := range tied(n, spellTies(have)) {
		if slices.Contains(set, r) {
			return set
		}
	}
	return []int{r}
}

// spellTies returns one migration for each exchange.
func spellTies(have []exchange) []Migration {
	var out []Migration
	for _, x := range have {
		out = append(out, Migration{Stage: x.stage, Owner: x.owner, Host: x.host})
	}
	return out
}

// maxHosts is how many offers are tried for one stage.
const maxHosts = 6

// offers lists the stages of a replica that a peer could take one micro-batch of.
func (p *planner) offers(runs []running, split []int, have []exchange, owner, gap int) []exchange {
	var out []exchange
	for s := range runs[owner].groups {
		slow, own := p.stageTime(runs, owner, s), stageOwn(have, split, owner, s)
		var hosts []exchange
		load := map[int]int64{}
		for h := range runs {
			if h == owner || !slices.Equal(runs[h].virt, runs[owner].virt) || !p.hosts(runs, split, have, exchange{s, owner, h, 1}) {
				continue
			}
			load[h] = stageCount(have, split, h, s) * p.stageTime(runs, h, s)
			if own > 0 && load[h]+int64(gap)*slow <= stageCount(have, split, owner, s)*slow {
				for n := 1; n <= 4 && n <= int(own); n *= 2 {
					if n == 1 || p.hosts(runs, split, have, exchange{s, owner, h, n}) {
						hosts = append(hosts, exchange{s, owner, h, n})
					}
				}
			}
		}
		slices.SortFunc(hosts, func(a, b exchange) int {
			return cmp.Or(cmp.Compare(load[a.host], load[b.host]), cmp.Compare(a.host, b.host), cmp.Compare(a.count, b.count))
		})
		out = append(out, hosts[:min(len(hosts), maxHosts)]...)
	}
	return out
}

// hosts says whether the host of x has memory for one more of the owner's
// micro-batches.
func (p *planner) hosts(runs []running, split []int, have []exchange, x exchange) bool {
	w := p.w
	g := runs[x.host].groups[x.stage]
	if g.mem == math.MaxInt64 {
		return true
	}
	n := len(runs[x.host].groups)
	l := w.schedule(n, max(1, split[x.host]))
	if l == nil {
		return false
	}
	held := l.peaks[x.stage]
	for _, o := range addExchange(have, x) {
		if o.host == x.host && o.stage == x.stage {
			guests := o.count
			if w.job.Schedule == pipeline.OneFOneB {
				guests = min(guests, n-x.stage)
			}
			held += guests
		}
	}
	need := w.memory(int32(len(g.devs)), int(runs[x.host].layers[x.stage]), x.stage == 0, x.stage == n-1, held, w.losses(split[x.host]), len(runs))
	return need <= g.mem
}

// addExchange returns have with x added.
func addExchange(have []exchange, x exchange) []exchange {
	out := slices.Clone(have)
	for i := range out {
		if out[i].stage == x.stage && out[i].owner == x.owner && out[i].host == x.host {
			out[i].count += x.count
			return out
		}
	}
	return append(out, x)
}

// spell names the micro-batches: those of an owner's stage that migrate are spread
// evenly over all, in turn to the hosts.
func spell(have []exchange, split []int) []Migration {
	var out []Migration
	total := map[[2]int]int{}
	for _, x := range have {
		total[[2]int{x.owner, x.stage}] += x.count
	}
	next := map[[2]int]int{}
	for _, x := range have {
		key := [2]int{x.owner, x.stage}
		if total[key] > split[x.owner] {
			continue
		}
		for range x.count {
			i := next[key]
			next[key]++
			micro := (2*i + 1) * split[x.owner] / (2 * total[key])
			out = append(out, Migration{Stage: x.stage, Owner: x.owner, Host: x.host, Micro: micro})
		}
	}
	slices.SortFunc(out, func(a, b Migration) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Micro, b.Micro))
	})
	return out
}
