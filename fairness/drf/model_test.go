package drf

import (
	"bytes"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// model says what a Queue must propose, worked out anew each time from the
// definitions, with numbers of any size.
type model struct {
	capacity  lockstep.Resources
	onBlocked OnBlocked
	tenants   map[lockstep.TenantID]Tenant
	jobs      map[lockstep.JobID]*modelJob
	seq       int

	passed  map[lockstep.JobID]bool // proposed in this pass
	last    map[lockstep.TenantID]*modelJob
	blocked map[lockstep.TenantID]bool
	over    bool
}

type modelJob struct {
	gang             *lockstep.Gang
	seq              int
	running, granted bool
	due, lifted      bool
	used             lockstep.Resources
}

func (m *model) begin() {
	m.passed, m.last, m.blocked, m.over = map[lockstep.JobID]bool{}, map[lockstep.TenantID]*modelJob{}, map[lockstep.TenantID]bool{}, false
	for _, j := range m.jobs { // order does not matter: each is on its own
		j.granted, j.lifted = false, j.due
	}
}

// next returns the first job of a tenant that the pass has still to propose.
func (m *model) next(tenant lockstep.TenantID) (best *modelJob) {
	if m.blocked[tenant] {
		return nil
	}
	for _, j := range m.jobs { // order does not matter: the least is
		if j.gang.Tenant != tenant || j.running && !j.due || m.last[tenant] != nil && !first(m.last[tenant], j) {
			continue
		}
		if best == nil || first(j, best) {
			best = j
		}
	}
	return best
}

func first(a, b *modelJob) bool {
	if a.gang.Priority != b.gang.Priority {
		return a.gang.Priority > b.gang.Priority
	}
	return a.seq < b.seq
}

// standing is a tenant in a pass.
type standing struct {
	spec     Tenant
	children []*standing
	live     bool
	parts    map[lockstep.ResourceName]*big.Int // in units
	share    *big.Rat                           // of a leaf; nil if it is infinite
}

func (m *model) stand(id lockstep.TenantID, root bool) *standing {
	s := &standing{spec: m.tenants[id], parts: map[lockstep.ResourceName]*big.Int{}}
	if root {
		s.spec = Tenant{}
	}
	for child, spec := range m.tenants { // in any order: sorted below
		if spec.Parent == id && (root || id != "") {
			s.children = append(s.children, m.stand(child, false))
		}
	}
	slices.SortFunc(s.children, func(a, b *standing) int { return strings.Compare(string(a.spec.ID), string(b.spec.ID)) })
	if len(s.children) > 0 || root {
		m.combine(s)
		return s
	}
	s.live = m.next(id) != nil
	s.share = new(big.Rat)
	for name, c := range m.capacity { // order does not matter: the greatest is
		var used int64
		for _, j := range m.jobs { // order does not matter: a sum
			switch {
			case j.gang.Tenant != id || j.lifted:
			case j.running:
				used += j.used[name]
			case j.granted:
				used += needs(j.gang)[name]
			}
		}
		s.parts[name] = new(big.Int).Lsh(big.NewInt(used), 62)
		switch {
		case used == 0:
		case c == 0:
			s.parts[name], s.share = big.NewInt(most), nil
		default:
			s.parts[name].Quo(s.parts[name], big.NewInt(c))
			if s.parts[name].Cmp(big.NewInt(most)) > 0 {
				s.parts[name] = big.NewInt(most)
			}
			if x := big.NewRat(used, c); s.share != nil && x.Cmp(s.share) > 0 {
				s.share = x
			}
		}
	}
	if s.share != nil {
		s.share.Quo(s.share, big.NewRat(s.weight(), 1))
	}
	return s
}

func (s *standing) weight() int64 { return max(s.spec.Weight, 1) }

func (s *standing) top() *big.Int {
	top := new(big.Int)
	for _, p := range s.parts { // order does not matter: the greatest is
		if p.Cmp(top) > 0 {
			top = p
		}
	}
	return top
}

// combine adds up the children, scaled to the least of those that count.
func (m *model) combine(s *standing) {
	counts := func(c *standing) bool { return c.live && c.spec.Weight > 0 && c.top().Sign() > 0 }
	var least *standing
	for _, c := range s.children {
		s.live = s.live || c.live
		if counts(c) && (least == nil || big.NewRat(1, 1).Mul(new(big.Rat).SetInt(c.top()), big.NewRat(least.weight(), c.weight())).Cmp(new(big.Rat).SetInt(least.top())) < 0) {
			least = c
		}
	}
	for name := range m.capacity { // order does not matter: each is on its own
		sum := new(big.Int)
		for _, c := range s.children {
			p := new(big.Int).Set(c.parts[name])
			if counts(c) {
				p.Mul(p, least.top()).Quo(p, c.top())
				p.Mul(p, big.NewInt(c.weight())).Quo(p, big.NewInt(least.weight()))
			}
			sum.Add(sum, p)
		}
		if sum.Cmp(big.NewInt(most)) > 0 {
			sum = big.NewInt(most)
		}
		s.parts[name] = sum
	}
}

// propose returns the job whose turn it is.
func (m *model) propose() *modelJob {
	if m.over {
		return nil
	}
	s := m.stand("", true)
	for len(s.children) > 0 {
		flat := true
		for _, c := range s.children {
			flat = flat && len(c.children) == 0
		}
		var best *standing
		for _, c := range s.children {
			if c.live && (best == nil || ahead(c, best, flat)) {
				best = c
			}
		}
		if best == nil {
			return nil
		}
		s = best
	}
	return m.next(s.spec.ID)
}

// ahead says whether a comes before b, which has the lesser ID.
func ahead(a, b *standing, flat bool) bool {
	if (a.spec.Weight > 0) != (b.spec.Weight > 0) {
		return a.spec.Weight > 0
	}
	if flat {
		return a.share != nil && (b.share == nil || a.share.Cmp(b.share) < 0)
	}
	return new(big.Int).Mul(a.top(), big.NewInt(b.weight())).Cmp(new(big.Int).Mul(b.top(), big.NewInt(a.weight()))) < 0
}

func needs(g *lockstep.Gang) lockstep.Resources {
	out := lockstep.Resources{}
	for i := range g.Roles {
		for name, v := range g.Roles[i].Demand.Resources() { // order does not matter: sums
			out[name] += v * int64(g.Roles[i].Min)
		}
	}
	return out
}

// world runs random events and passes on a Queue and a model.
type world struct {
	t *testing.T
	r *rand.Rand
	q *Queue
	m *model
}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 5))
	on := []OnBlocked{BlockJob, BlockTenant, BlockAll}[r.IntN(3)]
	w := &world{t: t, r: r, m: &model{
		capacity: cluster(r.Int64N(8), r.Int64N(8)), onBlocked: on,
		tenants: map[lockstep.TenantID]Tenant{}, jobs: map[lockstep.JobID]*modelJob{}, over: true,
	}}
	w.q = build(t, Config{Capacity: w.m.capacity, OnBlocked: on})
	return w
}

func (w *world) step() {
	id := lockstep.JobID(fmt.Sprint("j", w.r.IntN(12)))
	j := w.m.jobs[id]
	switch w.r.IntN(12) {
	case 0, 1:
		w.setTenant()
	case 2:
		w.m.capacity = cluster(w.r.Int64N(8), w.r.Int64N(8))
		require.NoError(w.t, w.q.SetCapacity(w.m.capacity))
		w.m.over = true
	case 3:
		require.Equal(w.t, j != nil, w.q.Finish(id) == nil)
		delete(w.m.jobs, id)
	case 4, 5:
		require.Equal(w.t, j != nil && !j.running, w.start(id, j) == nil)
	case 6:
		require.Equal(w.t, j != nil && j.running, w.q.Stop(id) == nil)
		if j != nil {
			j.running, j.due, j.lifted = false, false, false
		}
	case 7:
		require.Equal(w.t, j != nil && j.running, w.q.Due(id) == nil)
		if j != nil && j.running {
			j.due = true
		}
	default:
		w.submit(id, j)
	}
}

func (w *world) start(id lockstep.JobID, j *modelJob) error {
	used := lockstep.Resources(nil)
	if w.r.IntN(3) == 0 {
		used = cluster(w.r.Int64N(3), w.r.Int64N(3))
	}
	err := w.q.Start(id, used)
	if err == nil {
		j.running, j.granted, j.used = true, false, used
		if used == nil {
			j.used = needs(j.gang)
		}
	}
	return err
}

func (w *world) setTenant() {
	spec := Tenant{ID: lockstep.TenantID(fmt.Sprint("t", w.r.IntN(7))), Weight: w.r.Int64N(4)}
	if w.r.IntN(2) == 0 {
		spec.Parent = lockstep.TenantID(fmt.Sprint("t", w.r.IntN(7)))
	}
	if w.q.SetTenant(spec) == nil {
		w.m.tenants[spec.ID] = spec
		w.m.over = true
		return
	}
	_, known := w.m.tenants[spec.Parent]
	fault := !known
	for at := spec.Parent; at != ""; at = w.m.tenants[at].Parent {
		fault = fault || at == spec.ID
	}
	for _, j := range w.m.jobs { // order does not matter: any
		fault = fault || j.gang.Tenant == spec.Parent
	}
	require.True(w.t, fault, "%+v was refused", spec)
}

func (w *world) submit(id lockstep.JobID, j *modelJob) {
	g := &lockstep.Gang{
		ID: id, Tenant: lockstep.TenantID(fmt.Sprint("t", w.r.IntN(7))), Priority: lockstep.Priority(w.r.IntN(2)),
		Roles: []lockstep.Role{{Min: 1 + w.r.IntN(2), Demand: lockstep.Demand{GPUs: w.r.IntN(3), CPU: lockstep.MilliCPU(1000 * w.r.IntN(3))}}},
	}
	_, known := w.m.tenants[g.Tenant]
	for _, spec := range w.m.tenants { // order does not matter: any
		known = known && spec.Parent != g.Tenant
	}
	require.Equal(w.t, known && j == nil, w.q.Submit(g, nil, nil) == nil)
	if known && j == nil {
		w.m.seq++
		w.m.jobs[id] = &modelJob{gang: g, seq: w.m.seq}
	}
}

// pass compares all that a pass proposes, with events in between, where a tenant that had
// nothing to propose joins no pass that is under way.
func (w *world) pass(events bool) {
	w.q.Begin(time.Time{})
	w.m.begin()
	for n := 0; ; n++ {
		want := w.m.propose()
		id, ok := w.q.Next()
		require.Equal(w.t, want != nil, ok, "%d: %s", n, id)
		if !ok {
			return
		}
		require.Equal(w.t, want.gang.ID, id)
		w.m.last[want.gang.Tenant] = want
		if events && w.r.IntN(3) == 0 {
			require.Equal(w.t, !want.running, w.start(id, want) == nil)
		}
		o := []lockstep.Outcome{lockstep.Granted, lockstep.Granted, lockstep.Blocked, lockstep.Kept, lockstep.Dropped}[w.r.IntN(5)]
		w.q.Outcome(id, o)
		switch o {
		case lockstep.Granted, lockstep.Kept:
			want.granted = !want.running
			want.due, want.lifted = false, false
		case lockstep.Blocked:
			w.m.over = w.m.over || w.m.onBlocked == BlockAll
			w.m.blocked[want.gang.Tenant] = w.m.onBlocked == BlockTenant
		}
	}
}

// compare compares the statements between passes with plain sums.
func (w *world) compare() {
	for id := range w.m.tenants { // order does not matter: each is on its own
		s, ok := w.q.Statement(id)
		require.True(w.t, ok)
		used := lockstep.Resources{}
		for _, j := range w.m.jobs { // order does not matter: sums
			under := j.gang.Tenant
			for under != id && under != "" {
				under = w.m.tenants[under].Parent
			}
			if under == id && j.running {
				used[lockstep.ResourceGPU] += j.used[lockstep.ResourceGPU]
				used[lockstep.ResourceCPU] += j.used[lockstep.ResourceCPU]
			}
		}
		v, err := w.q.schema.Vector(used)
		require.NoError(w.t, err)
		require.Equal(w.t, w.q.schema.Resources(v), s.Used)
		_, share := Dominant(v, w.q.raw, w.m.tenants[id].Weight)
		require.Zero(w.t, share.Cmp(s.Share), "%v, not %v", s.Share, share)
	}
}

func TestAgainstDefinitions(t *testing.T) {
	for seed := range rounds(1500) {
		w := newWorld(t, uint64(seed))
		for range 12 {
			for range 10 {
				w.step()
			}
			w.pass(seed%2 == 0)
			w.compare()
		}
	}
}

func restored(r *bytes.Reader) error { _, err := Restore(r); return err }

// TestRestoreIsTheSame: what comes back saves alike, and goes on alike.
func TestRestoreIsTheSame(t *testing.T) {
	for seed := range rounds(300) {
		w := newWorld(t, uint64(seed)+1<<20)
		for range 60 {
			w.step()
		}
		w.pass(true)
		image := snapshottest.Save(t, w.q.Snapshot)
		again, err := Restore(bytes.NewReader(image))
		require.NoError(t, err)
		require.Equal(t, image, snapshottest.Save(t, again.Snapshot))
		w.q = again
		for _, j := range w.m.jobs { // order does not matter: each is on its own
			j.due = false // nobody told the new one
		}
		w.compare()
		w.pass(true)
		for range 30 {
			w.step()
		}
		w.pass(true)
	}
}

// FuzzEvents reads bytes as events, and compares all that comes of them with the
// definitions.
func FuzzEvents(f *testing.F) {
	for seed := range 8 {
		f.Add(uint64(seed), []byte(fmt.Sprint("events ", seed)))
	}
	f.Fuzz(func(t *testing.T, seed uint64, events []byte) {
		w := newWorld(t, seed)
		for i, b := range events[:min(len(events), 100)] {
			for range b % 4 {
				w.r.Uint64() // another event than the seed's
			}
			if w.step(); i%8 == 7 {
				w.pass(b%2 == 0)
			}
		}
		w.compare()
		image := snapshottest.Save(t, w.q.Snapshot)
		require.NoError(t, restored(bytes.NewReader(image)))
	})
}
