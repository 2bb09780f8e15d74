package liveness

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// This file is a plain model of a coordinator: the model of a monitor for its nodes, and
// for its ranks lists that are gone through from end to end whenever it is asked.

type plainMember struct {
	rank, node  int
	inc, of     uint64
	own         Member
	told        State
	said, blame lockstep.Reason
	since       time.Time
	until       int64
}

type plainCut struct {
	domain string // "" for all
	until  int64
}

type plainCoordinator struct {
	*plain
	ranks   []*plainMember // by number
	open    []accused      // by whom they are of and by
	cuts    []plainCut     // by domain
	news    bool
	faultAt int64
	epoch   uint64
	faults  []string
	parts   []int
}

func plainKey(id lockstep.NodeID) (n int) { _, _ = fmt.Sscanf(string(id), "n%d", &n); return n }

func (p *plainCoordinator) rank(number int) *plainMember {
	for _, r := range p.ranks {
		if r.rank == number {
			return r
		}
	}
	return nil
}

func (p *plainCoordinator) joined(ns int64, node int, inc uint64, ranks []Member) bool {
	for _, m := range ranks {
		if r := p.rank(m.Rank); r != nil && (m.Incarnation < r.inc || m.Incarnation == r.inc && r.node != node) {
			return false
		}
	}
	if n := p.plain.ranks[node]; n == nil || n.inc != inc || n.dead || n.gone {
		if !p.join(ns, node, inc) {
			return false
		}
	} else {
		p.pass(ns)
	}
	for _, m := range ranks {
		r := p.rank(m.Rank)
		if r == nil {
			r = &plainMember{rank: m.Rank, of: m.Incarnation, said: reasonJoined}
			p.ranks = append(p.ranks, r)
			slices.SortFunc(p.ranks, func(a, b *plainMember) int { return cmp.Compare(a.rank, b.rank) })
		} else if r.inc == m.Incarnation {
			continue
		}
		p.forgive(m.Rank)
		r.node, r.inc, r.blame, r.until = node, m.Incarnation, "", 0
		r.own = Member{State: Unknown, Reason: reasonJoined, Since: lockstep.FromNanos(ns)}
	}
	return true
}

func (p *plainCoordinator) forgive(number int) {
	p.open = slices.DeleteFunc(p.open, func(a accused) bool { return a.By == number || a.Of == number })
}

// end takes the ranks of a node that is over with it.
func (p *plainCoordinator) end(node int) {
	n := p.plain.ranks[node]
	if n == nil || !n.dead && !n.gone {
		return
	}
	for _, r := range p.ranks {
		if r.node == node && r.own.State != Dead && r.own.State != Left {
			r.own = Member{State: p.state(n), Reason: reasonNode, Since: lockstep.FromNanos(n.last)}
		}
	}
}

func (p *plainCoordinator) report(ns int64, r Report) Outcome {
	p.pass(ns)
	n := p.plain.ranks[plainKey(r.Node)]
	if out, no := n.refuse(r.Incarnation); no {
		return out
	}
	if n.seen && r.Sequence <= n.progress {
		return Repeated
	}
	p.beat(ns, plainKey(r.Node), Beat{Incarnation: r.Incarnation, Progress: r.Sequence})
	p.news = p.news || len(p.cuts) > 0
	for _, k := range p.ranks {
		if k.node != plainKey(r.Node) || k.own.State == Dead || k.own.State == Left {
			continue
		}
		said := Member{State: Unknown, Reason: reasonUnreported, Since: k.own.Since}
		for _, m := range r.Members {
			if m.Rank == k.rank && m.Incarnation == k.inc {
				said = Member{State: m.State, Reason: m.Reason, Since: m.Since}
			}
		}
		if said.State != k.own.State || said.Reason != k.own.Reason {
			k.own = said
		}
	}
	return Accepted
}

func (p *plainCoordinator) accuse(ns int64, a Accusation) Outcome {
	p.pass(ns)
	p.news = true
	by, of := p.rank(a.By), p.rank(a.Of)
	switch {
	case by == nil || of == nil:
		return Stranger
	case by.told == Dead:
		return Fenced
	case by.told == Left:
		return Retired
	case of.told == Dead || of.told == Left:
		return Repeated
	}
	mine := 0
	for i := range p.open {
		o := &p.open[i]
		if o.By == a.By && o.Of == a.Of {
			if o.Last == ns && a.Group <= o.Group {
				return Repeated
			}
			o.Last, o.Group = ns, max(o.Group, a.Group)
			return Accepted
		}
		if o.By == a.By {
			mine++
		}
	}
	if mine == 8 {
		return Dropped
	}
	p.open = append(p.open, accused{Of: a.Of, By: a.By, Group: a.Group, First: ns, Last: ns})
	return Accepted
}

// effective is what r is.
func (p *plainCoordinator) effective(r *plainMember) (State, lockstep.Reason, time.Time) {
	n := p.plain.ranks[r.node]
	last := lockstep.FromNanos(n.last)
	switch {
	case r.own.State == Dead || r.own.State == Left:
	case n.told == Suspect:
		return Suspect, reasonNode, last
	case r.own.State == Suspect:
	case r.blame != "":
		return Suspect, r.blame, last
	case n.told == Unknown && r.own.State != Unknown:
		return Unknown, reasonUnreported, r.own.Since
	}
	return r.own.State, r.own.Reason, r.own.Since
}

func (p *plainCoordinator) review(ns int64) (out []Event) {
	for _, r := range p.ranks {
		to, why, since := p.effective(r)
		if to == r.told && r.inc == r.of {
			continue
		}
		if to == Dead || excuses(to, why) {
			p.faultAt = ns
		}
		out = append(out, Event{Kind: RankChanged, At: lockstep.FromNanos(ns), Rank: r.rank, Node: nodeID(r.node), Incarnation: r.inc, From: r.told, To: to, Reason: why, Since: since})
		r.told, r.said, r.since, r.of = to, why, since, r.inc
	}
	return out
}

func (p *plainCoordinator) weigh(ns int64) {
	standing := slices.ContainsFunc(p.ranks, func(r *plainMember) bool { return excuses(r.told, r.said) })
	wait := int64(p.cfg.Accuse)
	var kept []accused
	for _, of := range p.ranks {
		if of.told == Dead || of.told == Left {
			continue
		}
		votes, group, last := 0, 0, int64(0)
		for _, a := range p.open {
			by := p.rank(a.By)
			if a.Of == of.rank && takesPart(by.told) && !(by.told == Suspect && by.said == reasonAccuser) && ns < a.Last+wait {
				votes, group, last = votes+1, max(group, a.Group), max(last, a.Last)
			}
		}
		upheld := votes > 0 && 2*votes >= group
		if upheld {
			of.blame, of.until = reasonAccused, max(of.until, last+wait)
		}
		for _, a := range p.open {
			by := p.rank(a.By)
			if a.Of != of.rank || !takesPart(by.told) {
				continue
			}
			if ns < a.First+wait || upheld && ns < a.Last+wait {
				kept = append(kept, a)
				continue
			}
			excused := standing || p.faultAt >= 0 && p.faultAt >= a.First-wait
			if !upheld && of.blame != reasonAccused && !excuses(of.told, of.said) && !excused {
				if by.blame == "" {
					by.blame = reasonAccuser
				}
				by.until = max(by.until, ns+wait)
			}
		}
	}
	p.open = kept
	for _, r := range p.ranks {
		if r.blame != "" && r.until <= ns {
			r.blame, r.until = "", 0
		}
	}
}

// keys returns the nodes in order.
func (p *plainCoordinator) keys() (out []int) {
	for n := range p.plain.ranks { // in any order: sorted
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func within(node int, domain string) bool { return domain == "" || racks(nodeID(node)) == domain }

func (p *plainCoordinator) tally(ns int64, domain string) (count, silent, quiet int) {
	for _, k := range p.keys() {
		n := p.plain.ranks[k]
		if !within(k, domain) || !n.seen || n.dead || n.gone || p.spent(n, ns) {
			continue
		}
		count++
		mean, sigma := p.spread(n)
		if n.cut != nil || ns-max(n.last, p.pausedTo) > mean+sigma {
			silent++
		}
		if n.quiet {
			quiet++
		}
	}
	return count, silent, quiet
}

// spent says whether n was held for as long as may be.
func (p *plainCoordinator) spent(n *plainRank, ns int64) bool {
	_, deadAt := p.silence(n)
	return max(n.hold, n.cohort) > 0 && ns >= max(deadAt, n.hold, n.cohort)
}

func (p *plainCoordinator) hold(c plainCut, ns int64) {
	for k, n := range p.plain.ranks { // in any order: each by itself
		if within(k, c.domain) && n.seen && !n.dead && !n.gone && n.quiet && !p.spent(n, ns) {
			n.cohort = max(n.cohort, c.until)
		}
	}
}

func (p *plainCoordinator) partitions(ns int64, due bool) (out []Event) {
	share := int64(p.cfg.Partition)
	var kept []plainCut
	sizes := map[string][2]int{} // as they are before any of them ends
	for _, c := range p.cuts {
		count, silent, _ := p.tally(ns, c.domain)
		sizes[c.domain] = [2]int{count, silent}
	}
	for _, c := range p.cuts {
		count, silent := sizes[c.domain][0], sizes[c.domain][1]
		if ns < c.until && silent > 0 && 2*int64(silent)*million > share*int64(count) {
			kept = append(kept, c)
			continue
		}
		why := reasonBeating
		for k, n := range p.plain.ranks { // in any order: each by itself
			if n.cohort != 0 && within(k, c.domain) {
				if n.dead {
					why = reasonConfirmed
				}
				_, grace := p.timeouts(n)
				n.cohort = min(n.cohort, ns+grace)
			}
		}
		if ns >= c.until {
			why = reasonExpired
		}
		out = append(out, Event{Kind: PartitionResolved, At: lockstep.FromNanos(ns), Domain: c.domain, Silent: silent, Count: count, Reason: why})
	}
	p.cuts = kept
	for _, c := range kept {
		p.hold(c, ns)
	}
	covered := func(domain string) bool {
		return slices.ContainsFunc(p.cuts, func(c plainCut) bool { return c.domain == domain })
	}
	if covered("") || !due && !p.news {
		return out
	}
	for _, domain := range []string{"", "rack-0", "rack-1"} {
		count, silent, quiet := p.tally(ns, domain)
		if covered(domain) || quiet == 0 || silent < p.cfg.PartitionNodes || int64(silent)*million <= share*int64(count) {
			continue
		}
		c := plainCut{domain, ns + int64(p.cfg.Hold)}
		p.hold(c, ns)
		p.cuts = append(p.cuts, c)
		slices.SortFunc(p.cuts, func(a, b plainCut) int { return cmp.Compare(a.domain, b.domain) })
		out = append(out, Event{Kind: PartitionSuspected, At: lockstep.FromNanos(ns), Domain: domain, Silent: silent, Count: count, Reason: reasonCohort})
		if domain == "" {
			break
		}
	}
	return out
}

func (p *plainCoordinator) check(ns int64) (out []Event) {
	p.pass(ns)
	if p.late != nil {
		out = append(out, Event{Kind: ObserverLate, At: lockstep.FromNanos(ns), Reason: reasonLate, Since: lockstep.FromNanos(*p.late)})
		p.late = nil
	}
	var due []int
	for _, k := range p.keys() {
		if at, ok := p.due(p.plain.ranks[k]); ok && at <= ns {
			due = append(due, k)
			p.hush(p.plain.ranks[k], ns)
		}
	}
	if len(due) > 0 || len(p.cuts) > 0 {
		out = append(out, p.partitions(ns, len(due) > 0)...)
	}
	changed := false
	for _, k := range due {
		n := p.plain.ranks[k]
		p.decide(n, ns)
		if p.state(n) != n.told || n.inc != n.of {
			e := p.tell(n, ns)
			e.Kind, e.Node = NodeChanged, nodeID(k)
			out = append(out, e)
			p.end(k)
			changed = true
		}
	}
	ranks := p.review(ns)
	p.weigh(ns)
	p.news = false
	ranks = append(ranks, p.review(ns)...)
	slices.SortStableFunc(ranks, func(a, b Event) int { return cmp.Compare(a.Rank, b.Rank) })
	p.news = changed && len(p.cuts) > 0
	p.relist()
	if p.blind != nil && ns > *p.blind {
		p.blind = nil
	}
	return append(out, ranks...)
}

// relist makes a new list if it is another one.
func (p *plainCoordinator) relist() {
	var faults []string
	var parts []int
	for _, r := range p.ranks {
		if listed(r.told) {
			faults = append(faults, fmt.Sprint(r.rank, r.node, r.of, r.told, r.said, r.since))
		}
		if takesPart(r.told) {
			parts = append(parts, r.rank)
		}
	}
	if !slices.Equal(faults, p.faults) || !slices.Equal(parts, p.parts) {
		p.epoch++
	}
	p.faults, p.parts = faults, parts
}

// TestCoordinatorEqualsThePlainModel plays jobs of two racks that fall silent, come back,
// are accused, break and rejoin, and compares all that is told.
func TestCoordinatorEqualsThePlainModel(t *testing.T) {
	rounds := 80
	if testing.Short() {
		rounds = 15
	}
	kinds := map[string]int{}
	for seed := range rounds {
		coordinate(t, uint64(seed), kinds)
	}
	for _, k := range []string{"node/dead", "node/suspect", "node/alive", "node/left", "node/unknown", "rank/hung", "rank/dead", "partition suspected/unknown", "partition resolved/unknown", "observer late/unknown", "accused", "accuser", "confirmed", "expired", "epoch"} {
		require.Greater(t, kinds[k], rounds/10, "%s: %v", k, kinds)
	}
}

func coordinate(t *testing.T, seed uint64, kinds map[string]int) {
	rng := rand.New(rand.NewPCG(seed, 5))
	pick := func(from ...time.Duration) time.Duration { return from[rng.IntN(len(from))] }
	cfg := Config{
		Method: Method(rng.IntN(2)), Window: 4, SuspectAfter: 2 * sec, DeadAfter: pick(4*sec, 9*sec), Settle: sec, Hold: 15 * sec, Accuse: 5 * sec, History: 3,
		Startup: 10 * sec, Reconnect: pick(0, 2*sec), PartitionNodes: 1 + rng.IntN(3), Partition: int(pick(0, 250_000, 750_000)), Domain: racks,
	}
	c, err := NewCoordinator(cfg)
	require.NoError(t, err)
	p := &plainCoordinator{plain: &plain{cfg: c.t.cfg, ranks: map[int]*plainRank{}, nodes: true, z: map[int]int64{8000: sigmasFor(8000), 12000: sigmasFor(12000)}}, faultAt: -1}
	ids := []int{0, 1, 2, 3, 10, 11, 12, 13}
	incs, rankIncs, mute, seq := map[int]uint64{}, map[int]uint64{}, map[int]bool{}, uint64(0)
	last := map[int]Report{}
	now := time.Duration(0)
	join := func(node int, inc uint64, ranks ...Member) {
		err := c.Join(at(now), nodeID(node), inc, ranks)
		require.Equal(t, p.joined(at(now).UnixNano(), node, inc, ranks), err == nil, "seed %d: %v", seed, err)
		if err == nil {
			incs[node] = inc
			for _, m := range ranks {
				rankIncs[m.Rank] = m.Incarnation
			}
		}
	}
	for i, n := range ids {
		join(n, 1, Member{Rank: 2 * i, Incarnation: 1}, Member{Rank: 2*i + 1, Incarnation: 1})
	}
	for range 150 {
		now += pick(0, 500*time.Millisecond, sec, sec, sec, 3*sec)
		if rng.IntN(60) == 0 {
			now += 20 * sec
		}
		ns := at(now).UnixNano()
		n := ids[rng.IntN(len(ids))]
		same := func(want, got Outcome, err error) {
			require.NoError(t, err)
			require.Equal(t, want, got, "seed %d at %s", seed, now)
		}
		switch rng.IntN(24) {
		case 0, 1, 2:
			mute[n] = !mute[n]
		case 3: // a rack falls silent
			for _, k := range ids {
				mute[k] = mute[k] || within(k, racks(nodeID(n)))
			}
		case 4: // all are back
			clear(mute)
		case 5, 6:
			e := Evidence(rng.IntN(4))
			want := p.evidence(ns, n, incs[n], e)
			p.end(n)
			got, err := c.Evidence(at(now), nodeID(n), incs[n], e)
			same(want, got, err)
		case 7:
			if rng.IntN(4) == 0 {
				want := p.leave(ns, n, incs[n])
				p.end(n)
				got, err := c.Leave(at(now), nodeID(n), incs[n])
				same(want, got, err)
			}
		case 8, 9:
			r := rng.IntN(16)
			join(n, incs[n]+uint64(rng.IntN(2)), Member{Rank: r, Incarnation: rankIncs[r] + uint64(rng.IntN(2))})
		case 10:
			node := p.plain.ranks[n]
			may := node != nil && (node.told == Dead || node.told == Left) && (node.dead || node.gone)
			require.Equal(t, may, c.Forget(nodeID(n)) == nil)
			if may {
				for _, r := range p.ranks {
					if r.node == n {
						p.forgive(r.rank)
					}
				}
				p.ranks = slices.DeleteFunc(p.ranks, func(r *plainMember) bool { return r.node == n })
				delete(p.plain.ranks, n)
				p.relist()
			}
		case 11, 12, 13, 14:
			of := rng.IntN(16)
			for range 1 + rng.IntN(3) {
				if a := (Accusation{By: rng.IntN(16), Of: of, Group: 2 + rng.IntN(4)}); a.By != of {
					want := p.accuse(ns, a)
					got, err := c.Accuse(at(now), a)
					same(want, got, err)
				}
			}
		case 15:
			until := now + pick(0, sec, 10*sec)
			require.NoError(t, c.Pause(at(now), at(until)))
			p.pass(ns)
			p.pausedTo = at(until).UnixNano()
			p.news = p.news || len(p.cuts) > 0
		}
		for _, k := range ids {
			if mute[k] {
				continue
			}
			seq++
			r := Report{Node: nodeID(k), Incarnation: incs[k], Sequence: seq}
			for rank := range 16 {
				if state := []State{Alive, Alive, Alive, Alive, Alive, Alive, Hung, Suspect, Dead}[max(rng.IntN(200)-191, 0)]; rng.IntN(100) > 0 {
					r.Members = append(r.Members, Member{Rank: rank, Incarnation: rankIncs[rank], State: state, Reason: "x", Since: at(now)})
				}
			}
			if old, ok := last[k]; ok && rng.IntN(5) == 0 {
				r = old // a network repeats, or this one is lost
			}
			last[k] = r
			want := p.report(ns, r)
			got, err := c.Report(at(now), r)
			same(want, got, err)
		}
		if rng.IntN(8) == 0 {
			continue
		}
		if rng.IntN(10) == 0 {
			c, err = RestoreCoordinator(strings.NewReader(save(t, c)), racks)
			require.NoError(t, err, "seed %d at %s", seed, now)
		}
		before := p.epoch
		want := p.check(ns)
		got, err := c.Check(nil, at(now))
		require.NoError(t, err)
		require.Equal(t, want, got, "seed %d at %s", seed, now)
		p.compare(t, c, seed)
		if p.epoch > before {
			kinds["epoch"]++
		}
		for _, e := range got {
			kinds[e.Kind.String()+"/"+e.To.String()]++
			kinds[string(e.Reason)]++
		}
	}
}

// compare holds what c keeps against the model.
func (p *plainCoordinator) compare(t *testing.T, c *Coordinator, seed uint64) {
	list := c.Faults()
	require.Equal(t, p.epoch, list.Epoch, "seed %d", seed)
	require.Equal(t, len(p.parts), list.Participants)
	require.Equal(t, p.parts, c.AppendParticipants(nil))
	var faults []string
	for _, m := range list.Faults {
		faults = append(faults, fmt.Sprint(m.Rank, plainKey(m.Node), m.Incarnation, m.State, m.Reason, m.Since))
	}
	require.Equal(t, p.faults, faults)
	for _, r := range p.ranks {
		m, ok := c.Rank(r.rank)
		require.True(t, ok)
		require.Equal(t, Member{r.rank, nodeID(r.node), r.of, r.told, r.said, r.since}, m)
	}
}
