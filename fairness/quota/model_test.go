package quota

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// model says what a Quota must say, worked out anew each time, top down and bottom up
// from the definitions in doc.go, with rational numbers where it divides.
type model struct {
	capacity lockstep.Resources
	static   bool
	queues   map[lockstep.QueueID]Queue
	jobs     map[lockstep.JobID]*modelJob
}

type modelJob struct {
	queue      lockstep.QueueID
	gang       *lockstep.Gang
	used, want lockstep.Resources // nil where it is not charged, or nothing was told
}

// view is one queue in one resource.
type view struct {
	name                lockstep.QueueID
	spec                Queue
	children            []*view
	nominal, kept, most int64
	used, load          int64
	asked               int64
	share               int64
}

func (v *view) held() int64  { return max(v.load, v.kept) }
func (v *view) wants() int64 { return max(v.kept, min(v.most, v.asked)) }

// idleBeside returns what is kept and not used in and below v, but by those of way.
func (v *view) idleBeside(way []*view) (sum int64) {
	if !slices.Contains(way, v) {
		sum = v.held() - v.load
	}
	for _, c := range v.children {
		sum += c.idleBeside(way)
	}
	return sum
}

func get(r lockstep.Resources, name lockstep.ResourceName, absent int64) int64 {
	if v, ok := r[name]; ok {
		return v
	}
	return absent
}

// root builds the tree of one resource.
func (m *model) root(res lockstep.ResourceName) *view {
	root := m.build("", res)
	root.nominal, root.most = m.capacity[res], noLimit
	m.nominals(root, res)
	m.sums(root, res)
	root.share = root.nominal
	m.shares(root)
	return root
}

func (m *model) build(name lockstep.QueueID, res lockstep.ResourceName) *view {
	v := &view{name: name, spec: m.queues[name]}
	for child, spec := range m.queues { // in any order: sorted below
		if spec.Parent == name {
			v.children = append(v.children, m.build(child, res))
		}
	}
	slices.SortFunc(v.children, func(a, b *view) int { return strings.Compare(string(a.name), string(b.name)) })
	return v
}

func fillOf(total int64, children []*view, claim func(*view) claim) map[*view]int64 {
	list := make([]claimOf, 0, len(children))
	for _, c := range children {
		list = append(list, claimOf{c, claim(c)})
	}
	return divideAmong(total, list)
}

type claimOf struct {
	view  *view
	claim claim
}

func divideAmong(total int64, list []claimOf) map[*view]int64 {
	claims := make([]claim, len(list))
	for i, c := range list {
		claims[i] = c.claim
	}
	out := make(map[*view]int64)
	for i, got := range plainFill(total, claims) {
		out[list[i].view] = got
	}
	return out
}

func (m *model) nominals(v *view, res lockstep.ResourceName) {
	guarantees := fillOf(v.nominal, v.children, func(c *view) claim {
		g := get(c.spec.Guarantee, res, 0)
		return claim{hi: g, weight: g}
	})
	var given, byWeight []claimOf
	left := v.nominal
	for _, c := range v.children {
		if n := get(c.spec.Nominal, res, noLimit); n != noLimit {
			given = append(given, claimOf{c, claim{lo: guarantees[c], hi: n, weight: n}})
		} else {
			byWeight = append(byWeight, claimOf{c, claim{lo: guarantees[c], hi: get(c.spec.Max, res, noLimit), weight: c.spec.Weight}})
			left -= guarantees[c]
		}
	}
	rest := v.nominal
	for c, n := range divideAmong(left, given) { // order does not matter: a sum
		c.nominal = n
		rest -= n
	}
	for c, n := range divideAmong(rest, byWeight) { // order does not matter: each is on its own
		c.nominal = n
	}
	for _, c := range v.children {
		c.kept = guarantees[c]
		if lend := get(c.spec.LendLimit, res, noLimit); lend != noLimit {
			c.kept = max(c.kept, c.nominal-lend)
		}
		c.most = get(c.spec.Max, res, noLimit)
		if m.static {
			c.most = min(c.most, c.nominal)
		} else if b := get(c.spec.BorrowLimit, res, noLimit); b != noLimit {
			c.most = min(c.most, c.nominal+b)
		}
		m.nominals(c, res)
	}
}

func (m *model) sums(v *view, res lockstep.ResourceName) {
	for _, c := range v.children {
		m.sums(c, res)
		v.used += c.used
		v.load += c.held()
		v.asked += c.wants()
	}
	if len(v.children) > 0 {
		return
	}
	for _, j := range m.jobs { // order does not matter: sums
		if j.queue == v.name {
			v.used += j.used[res]
			v.load += j.used[res]
			v.asked += max(j.used[res], j.want[res])
		}
	}
}

func (m *model) shares(v *view) {
	left := v.share
	for _, c := range v.children {
		c.share = max(c.kept, min(c.wants(), c.nominal))
		left -= c.share
	}
	for _, weighted := range []bool{true, false} {
		for tier := int32(3); tier >= -3; tier-- {
			var list []claimOf
			for _, c := range v.children {
				if c.spec.Tier == tier && (c.spec.Weight > 0) == weighted {
					list = append(list, claimOf{c, claim{hi: c.wants() - c.share, weight: max(c.spec.Weight, 1)}})
				}
			}
			for c, got := range divideAmong(left, list) { // order does not matter: each is on its own
				c.share += got
				left -= got
			}
		}
	}
	for _, c := range v.children {
		m.shares(c)
	}
}

// way returns the views from the queue called name up to the root.
func (v *view) way(name lockstep.QueueID) []*view {
	if v.name == name && len(v.children) == 0 {
		return []*view{v}
	}
	for _, c := range v.children {
		if w := c.way(name); w != nil {
			return append(w, v)
		}
	}
	return nil
}

// allows says whether x more may be charged to the bottom of way.
func allows(way []*view, x int64) bool {
	// Nobody else keeps room that is idle: what is free is free for all.
	lent := way[len(way)-1].idleBeside(way) == 0
	// grown are the loads with x more.
	grown := make([]int64, len(way))
	for i, d := 0, x; i < len(way); i++ {
		grown[i] = way[i].load + d
		d = max(grown[i], way[i].kept) - way[i].held()
	}
	top := len(way) - 1
	// borrow: from i up, only what is free is used.
	var borrow, right, within func(i int) bool
	borrow = func(i int) bool {
		switch {
		case grown[i] == way[i].load:
			return true
		case i == top:
			return grown[i] <= way[i].nominal
		}
		return grown[i] <= way[i].most && borrow(i+1)
	}
	// right: i may have others make room.
	right = func(i int) bool {
		switch {
		case i == top || grown[i] == way[i].load:
			return true
		case grown[i] > way[i].most:
			return false
		case borrow(i + 1):
			return true
		}
		if grown[i] > way[i].nominal && grown[i] > way[i].share {
			return false
		}
		return right(i+1) || lent && within(i+1)
	}
	// within: others below the same queues make room.
	within = func(i int) bool {
		return i == top || grown[i] == way[i].load || grown[i] <= way[i].most && within(i+1)
	}
	return right(0)
}

func (v *view) find(name lockstep.QueueID) *view {
	if v.name == name {
		return v
	}
	for _, c := range v.children {
		if f := c.find(name); f != nil {
			return f
		}
	}
	return nil
}

// world runs random events on a Quota and on a model.
type world struct {
	t *testing.T
	r *rand.Rand
	q *Quota
	m *model
}

var twoResources = []lockstep.ResourceName{"gpu", "slots"}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 7))
	w := &world{t: t, r: r, m: &model{
		capacity: lockstep.Resources{"gpu": r.Int64N(40), "slots": r.Int64N(40)}, static: r.IntN(5) == 0,
		queues: map[lockstep.QueueID]Queue{}, jobs: map[lockstep.JobID]*modelJob{},
	}}
	w.q = build(t, Config{Capacity: w.m.capacity, DisableBorrowing: w.m.static})
	return w
}

func (w *world) amounts(most int64) lockstep.Resources {
	out := lockstep.Resources{}
	for _, name := range twoResources {
		if w.r.IntN(3) == 0 {
			out[name] = w.r.Int64N(most)
		}
	}
	return out
}

func (w *world) queue() Queue {
	name := lockstep.QueueID(fmt.Sprint("q", w.r.IntN(9)))
	spec := Queue{Name: name, Weight: w.r.Int64N(4), Tier: int32(w.r.IntN(5) / 3)}
	if w.r.IntN(3) > 0 {
		spec.Parent = lockstep.QueueID(fmt.Sprint("q", w.r.IntN(9)))
	}
	spec.Nominal, spec.Guarantee = w.amounts(20), w.amounts(6)
	spec.BorrowLimit, spec.LendLimit, spec.Max = w.amounts(12), w.amounts(12), w.amounts(40)
	spec.NotReclaimable = w.r.IntN(8) == 0
	return spec
}

// gangOf is a job that uses members milli-devices and members slots, or shares of
// devices and no more slots than one.
func gangOf(r *rand.Rand, id lockstep.JobID, queue lockstep.QueueID) *lockstep.Gang {
	g := &lockstep.Gang{ID: id, Queue: queue, Priority: lockstep.Priority(r.IntN(3)), Roles: []lockstep.Role{{Min: 1 + r.IntN(4), Demand: lockstep.Demand{GPUs: 1, Share: 1}}}}
	switch r.IntN(4) {
	case 0:
		g.Roles[0].Demand.Share = lockstep.MilliGPU(1 + r.IntN(6))
	case 1:
		g.Roles[0].Demand = lockstep.Demand{CPU: 1000}
	}
	g.Capabilities.Preemptible = r.IntN(6) > 0
	return g
}

func uses(g *lockstep.Gang) lockstep.Resources {
	out := lockstep.Resources{}
	for i := range g.Roles {
		for name, v := range g.Roles[i].Demand.Resources() { // order does not matter: sums
			out[name] += v * int64(g.Roles[i].Min)
		}
	}
	return out
}

func (w *world) leaves() (out []lockstep.QueueID) {
	for _, name := range w.q.AppendQueues(nil) {
		if len(w.q.nodes[name].children) == 0 {
			out = append(out, name)
		}
	}
	return out
}

// step does one random event and checks what it says.
func (w *world) step() {
	id := lockstep.JobID(fmt.Sprint("j", w.r.IntN(14)))
	j := w.m.jobs[id]
	switch w.r.IntN(16) {
	case 0, 1, 2:
		spec := w.queue()
		if err := w.q.SetQueue(spec); err == nil {
			w.m.queues[spec.Name] = spec
		} else {
			w.wantsFault(spec)
		}
	case 3:
		name := lockstep.QueueID(fmt.Sprint("q", w.r.IntN(9)))
		busy := false
		for _, spec := range w.m.queues { // order does not matter: any
			busy = busy || spec.Parent == name
		}
		for _, j := range w.m.jobs { // order does not matter: any
			busy = busy || j.queue == name
		}
		_, known := w.m.queues[name]
		require.Equal(w.t, known && !busy, w.q.RemoveQueue(name) == nil)
		if known && !busy {
			delete(w.m.queues, name)
		}
	case 4:
		w.m.capacity = lockstep.Resources{"gpu": w.r.Int64N(40), "slots": w.r.Int64N(40)}
		require.NoError(w.t, w.q.SetCapacity(w.m.capacity))
	case 5, 6:
		charged := j != nil && j.used != nil
		require.Equal(w.t, charged, w.q.Refund(id) == nil)
		if charged {
			j.used = nil
			w.tidy(id)
		}
	case 7:
		told := j != nil && j.want != nil
		require.Equal(w.t, told, w.q.Withdraw(id) == nil)
		if told {
			j.want = nil
			w.tidy(id)
		}
	case 8, 9, 10:
		if g := w.gang(id); g != nil {
			require.NoError(w.t, w.q.Demand(g, nil))
			w.job(g).want = uses(g)
		}
	default:
		g := w.gang(id)
		if g == nil {
			return
		}
		v := w.check(g)
		switch {
		case j != nil && j.used != nil:
			require.ErrorIs(w.t, w.q.Charge(g, nil), lockstep.ErrDuplicate)
		case v.Feasible || w.r.IntN(6) == 0: // some run above quota
			require.NoError(w.t, w.q.Charge(g, nil))
			w.job(g).used = uses(g)
		}
	}
}

// gang gives the gang of a job, or a new one in any leaf.
func (w *world) gang(id lockstep.JobID) *lockstep.Gang {
	if j := w.m.jobs[id]; j != nil {
		return j.gang
	}
	leaves := w.leaves()
	if len(leaves) == 0 {
		return nil
	}
	return gangOf(w.r, id, leaves[w.r.IntN(len(leaves))])
}

func (w *world) job(g *lockstep.Gang) *modelJob {
	if w.m.jobs[g.ID] == nil {
		w.m.jobs[g.ID] = &modelJob{queue: g.Queue, gang: g}
	}
	return w.m.jobs[g.ID]
}

func (w *world) tidy(id lockstep.JobID) {
	if j := w.m.jobs[id]; j.used == nil && j.want == nil {
		delete(w.m.jobs, id)
	}
}

// wantsFault requires that spec is one that must be refused.
func (w *world) wantsFault(spec Queue) {
	fault := false
	for _, name := range twoResources {
		n, most := get(spec.Nominal, name, noLimit), get(spec.Max, name, noLimit)
		g := get(spec.Guarantee, name, 0)
		fault = fault || g > n || g > most || n != noLimit && n > most
	}
	if spec.Parent != "" {
		_, known := w.m.queues[spec.Parent]
		fault = fault || !known
		for _, j := range w.m.jobs { // order does not matter: any
			fault = fault || j.queue == spec.Parent
		}
		for at := spec.Parent; at != ""; at = w.m.queues[at].Parent {
			fault = fault || at == spec.Name
		}
	}
	require.True(w.t, fault, "%+v was refused", spec)
}

// check compares the verdict on g with the model's.
func (w *world) check(g *lockstep.Gang) lockstep.Verdict {
	v := w.q.Check(g, nil)
	feasible := true
	for _, name := range twoResources {
		x := uses(g)[name]
		ok := allows(w.m.root(name).way(g.Queue), x)
		feasible = feasible && (x == 0 || ok)
		if v.Resource == name && !v.Feasible {
			require.False(w.t, ok, "%v", v)
			way := w.m.root(name).way(g.Queue)
			require.True(w.t, v.Available == 0 || allows(way, v.Available), "%v", v)
			require.False(w.t, allows(way, v.Available+1), "%v", v)
		}
	}
	require.Equal(w.t, feasible, v.Feasible, "%v", v)
	return v
}

// compare compares every statement with the model's.
func (w *world) compare() {
	for _, name := range twoResources {
		root := w.m.root(name)
		for _, queue := range w.q.AppendQueues(nil) {
			v := root.find(queue)
			s, ok := w.q.Statement(queue)
			require.True(w.t, ok)
			require.Equal(w.t, v.nominal, s.Nominal[name], "nominal of %s", queue)
			require.Equal(w.t, v.kept, s.Kept[name], "kept of %s", queue)
			require.Equal(w.t, v.used, s.Used[name], "used by %s", queue)
			require.Equal(w.t, max(v.load-v.nominal, 0), s.Borrowed[name], "borrowed by %s", queue)
			require.Equal(w.t, deserved(v), s.Deserved[name], "deserved by %s", queue)
			n := w.q.nodes[queue]
			r, _ := w.q.schema.Index(name)
			require.Equal(w.t, v.share, n.got(r), "share of %s", queue)
		}
	}
}

func deserved(v *view) (sum int64) {
	if len(v.children) == 0 {
		return min(v.share, v.most, v.asked)
	}
	for _, c := range v.children {
		sum += deserved(c)
	}
	return sum
}

func TestAgainstDefinitions(t *testing.T) {
	for seed := range rounds(400) {
		w := newWorld(t, uint64(seed))
		for i := range 120 {
			w.step()
			if i%10 == 0 {
				w.compare()
			}
		}
	}
}
