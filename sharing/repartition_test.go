package sharing

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// price of a way to divide a device anew, as Repartition ranks it.
type way struct {
	cost               int64
	drained, destroyed int
	created            int
	room               int64
}

func (w way) compare(v way) int {
	return cmp.Or(cmp.Compare(w.cost, v.cost), cmp.Compare(w.drained, v.drained), cmp.Compare(w.destroyed, v.destroyed),
		cmp.Compare(w.created, v.created), cmp.Compare(v.room, w.room))
}

// bestByHand tries every set of instances to destroy, and for each profile that needs one every idle instance and every
// start, in all combinations.
func bestByHand(g *Geometry, held []Held, wanted []int) (best way, ok bool) {
	for gone := range 1 << len(held) {
		w, o, idle, needs, allowed := way{}, Occupancy(0), []int{}, slices.Clone(wanted), true
		for i, h := range held {
			if gone>>i&1 == 0 {
				o |= g.mask(h.Profile, h.Start)
				if h.Tenant == "" {
					idle = append(idle, h.Profile)
				}
				continue
			}
			allowed = allowed && !h.Fixed
			if h.Tenant == "" {
				w.destroyed++
				continue
			}
			w.drained++
			w.cost += h.Cost
			if h.Return {
				needs = append(needs, h.Profile)
			}
		}
		if !allowed {
			continue
		}
		serveByHand(g, o, idle, needs, 0, func(room int64, created int) {
			w.created, w.room = created, room
			if !ok || w.compare(best) < 0 {
				best, ok = w, true
			}
		})
	}
	return best, ok
}

// serveByHand calls found for every way of serving what is needed with idle instances and new ones.
func serveByHand(g *Geometry, o Occupancy, idle, needs []int, created int, found func(room int64, created int)) {
	if len(needs) == 0 {
		found(g.Room(o), created)
		return
	}
	for j, p := range idle {
		if p == needs[0] {
			serveByHand(g, o, slices.Delete(slices.Clone(idle), j, j+1), needs[1:], created, found)
		}
	}
	for start := range maxSlices {
		if after, fits := g.Take(o, needs[0], start); fits {
			serveByHand(g, after, idle, needs[1:], created+1, found)
		}
	}
}

// carryOut does what out says, in its order, checks that each step is possible and that everyone ends up somewhere, and
// returns what it came to.
func carryOut(t *testing.T, g *Geometry, held []Held, wanted []int, out *Repartition) way {
	t.Helper()
	var o Occupancy
	have := map[Instance]lockstep.JobID{}
	for _, h := range held {
		o, _ = g.Take(o, h.Profile, h.Start)
		have[h.Instance] = h.Tenant
	}
	w := way{cost: out.Cost, drained: len(out.Drain), created: len(out.Create)}
	for _, d := range out.Drain {
		require.False(t, d.Fixed)
		require.NotEmpty(t, d.Tenant)
		require.Equal(t, d.Tenant, have[d.Instance])
		have[d.Instance] = ""
	}
	for _, in := range out.Destroy {
		tenant, there := have[in]
		require.True(t, there)
		require.Empty(t, tenant, "destroyed under its tenant")
		var ok bool
		o, ok = g.Give(o, in.Profile, in.Start)
		require.True(t, ok)
		delete(have, in)
	}
	w.destroyed = len(out.Destroy) - len(out.Drain)
	for _, in := range out.Create {
		var ok bool
		o, ok = g.Take(o, in.Profile, in.Start)
		require.True(t, ok, "no room for what is created")
		have[in] = ""
	}
	w.room = g.Room(o)
	sit := func(in Instance, p int, who lockstep.JobID) {
		tenant, there := have[in]
		require.True(t, there)
		require.Empty(t, tenant, "two in one instance")
		require.Equal(t, p, in.Profile)
		have[in] = who
	}
	require.Len(t, out.Grants, len(wanted))
	for i, in := range out.Grants {
		sit(in, wanted[i], "new")
	}
	for _, d := range out.Drain {
		require.Equal(t, d.Return, d.To != nil)
		if d.Return {
			sit(*d.To, d.Profile, d.Tenant)
		}
	}
	for _, h := range held { // nobody else was touched
		if h.Tenant != "" && !slices.ContainsFunc(out.Drain, func(d Drained) bool { return d.Tenant == h.Tenant }) {
			require.Equal(t, h.Tenant, have[h.Instance])
		}
	}
	byStart := func(a, b Instance) int { return a.Start - b.Start }
	require.True(t, slices.IsSortedFunc(out.Destroy, byStart))
	require.True(t, slices.IsSortedFunc(out.Create, byStart))
	require.True(t, slices.IsSortedFunc(out.Drain, func(a, b Drained) int { return a.Start - b.Start }))
	return w
}

// randomHeld fills a device with some instances.
func randomHeld(rng *rand.Rand, g *Geometry) []Held {
	var held []Held
	var o Occupancy
	for range rng.IntN(9) {
		p := rng.IntN(len(g.cfg.Profiles))
		starts := slices.Collect(g.Starts(o, p).All)
		if len(starts) == 0 {
			continue
		}
		h := Held{Instance: Instance{p, starts[rng.IntN(len(starts))]}, Fixed: rng.IntN(8) == 0}
		if rng.IntN(3) > 0 {
			h.Tenant = lockstep.JobID("job-" + strconv.Itoa(len(held)))
			h.Cost = rng.Int64N(4)
			h.Return = rng.IntN(3) == 0
		}
		o, _ = g.Take(o, p, h.Start)
		held = append(held, h)
	}
	return held
}

func TestRepartitionEqualsTryingEverything(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	for name, g := range mid(t) {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, uint64(len(name))))
			for range rounds {
				held := randomHeld(rng, g)
				wanted := make([]int, rng.IntN(4))
				for i := range wanted {
					wanted[i] = rng.IntN(len(g.cfg.Profiles))
				}
				given := slices.Clone(held)
				var out, again Repartition
				v, err := g.Repartition(held, wanted, &out)
				require.NoError(t, err)
				require.Equal(t, given, held)
				want, ok := bestByHand(g, held, wanted)
				require.Equal(t, ok, v.Feasible, "%v %v", held, wanted)
				require.Equal(t, len(wanted), v.Want)
				if !ok {
					checkRefusal(t, g, held, wanted, v, &out)
					continue
				}
				require.Equal(t, len(wanted), v.Fit)
				require.Equal(t, want, carryOut(t, g, held, wanted, &out), "%v %v", held, wanted)

				rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
				_, err = g.Repartition(held, wanted, &again)
				require.NoError(t, err)
				require.Equal(t, out, again, "the order of held does not matter")
			}
		})
	}
}

func checkRefusal(t *testing.T, g *Geometry, held []Held, wanted []int, v lockstep.Verdict, out *Repartition) {
	t.Helper()
	require.Equal(t, &Repartition{}, out)
	_, empty := packByHand(g, 0, wanted)
	reason := lockstep.ReasonBusy
	if empty < 0 {
		reason = lockstep.ReasonCapacity
	}
	require.Equal(t, reason, v.Reason)
	fit := len(wanted) - 1
	for ; fit > 0; fit-- {
		if _, ok := bestByHand(g, held, wanted[:fit]); ok {
			break
		}
	}
	require.Equal(t, fit, v.Fit)
}

func TestRepartitionDestroysIdleInstancesBeforeItDrains(t *testing.T) {
	g := geometry(t, "a100-40gb")
	one, two, three := lookup(t, g, "1g.5gb"), lookup(t, g, "2g.10gb"), lookup(t, g, "3g.20gb")
	held := []Held{
		{Instance: Instance{one, 0}, Tenant: "a", Cost: 1},
		{Instance: Instance{one, 1}},
		{Instance: Instance{two, 2}},
		{Instance: Instance{one, 4}},
		{Instance: Instance{two, 4 + 1 - 1}, Tenant: "b"}, // overlaps the one before it
	}
	var out Repartition
	_, err := g.Repartition(held, []int{three}, &out)
	requireFields(t, err, "held[4]")

	held = held[:4]
	v, err := g.Repartition(held, []int{three, one}, &out)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.Empty(t, out.Drain)
	require.Equal(t, []Instance{{one, 4}}, out.Destroy)
	require.Equal(t, []Instance{{three, 4}}, out.Create)
	require.Equal(t, []Instance{{three, 4}, {one, 1}}, out.Grants, "the other idle one is used as it is")
}

func TestRepartitionMovesATenantThatReturns(t *testing.T) {
	g := geometry(t, "a100-40gb")
	one, four := lookup(t, g, "1g.5gb"), lookup(t, g, "4g.20gb")
	held := []Held{{Instance: Instance{one, 1}, Tenant: "a", Cost: 7, Return: true}}
	var out Repartition
	v, err := g.Repartition(held, []int{four}, &out)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.Equal(t, Repartition{
		Drain:   []Drained{{Held: held[0], To: &Instance{one, 6}}},
		Destroy: []Instance{{one, 1}},
		Create:  []Instance{{four, 0}, {one, 6}},
		Grants:  []Instance{{four, 0}},
		Cost:    7,
	}, out)
	held[0].Fixed = true
	v, err = g.Repartition(held, []int{four}, &out)
	require.NoError(t, err)
	require.Equal(t, lockstep.Verdict{Reason: lockstep.ReasonBusy, Want: 1}, v)
}

func TestRepartitionOfEqualsDestroysTheLowest(t *testing.T) {
	g := geometry(t, "a30")
	one, two := lookup(t, g, "1g.6gb"), lookup(t, g, "2g.12gb")
	held := []Held{{Instance: Instance{one, 2}}, {Instance: Instance{one, 0}}}
	var out Repartition
	v, err := g.Repartition(held, []int{two}, &out)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.Equal(t, []Instance{{one, 0}}, out.Destroy)
	require.Equal(t, []Instance{{two, 0}}, out.Create)
}

func TestRepartitionHoldsCostsAtTheEndOfInt64(t *testing.T) {
	g := geometry(t, "a30")
	held := []Held{
		{Instance: Instance{2, 0}, Tenant: "a", Cost: math.MaxInt64},
		{Instance: Instance{2, 2}, Tenant: "b", Cost: math.MaxInt64},
	}
	var out Repartition
	v, err := g.Repartition(held, []int{4}, &out)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.Equal(t, int64(math.MaxInt64), out.Cost)
}

func TestRepartitionRefusesBadInput(t *testing.T) {
	g := geometry(t, "a30")
	out := Repartition{Cost: 42}
	for name, tt := range map[string]struct {
		held   []Held
		wanted []int
		fields []string
	}{
		"no such profile":     {nil, []int{0, 5, -1}, []string{"wanted[1]", "wanted[2]"}},
		"no such instance":    {[]Held{{Instance: Instance{4, 1}}}, nil, []string{"held[0]"}},
		"negative cost":       {[]Held{{Tenant: "a", Cost: -1}}, nil, []string{"held[0].Cost"}},
		"idle with a cost":    {[]Held{{Cost: 1}}, nil, []string{"held[0].Tenant"}},
		"nobody returns":      {[]Held{{Return: true}}, nil, []string{"held[0].Tenant"}},
		"a tenant's bad name": {[]Held{{Tenant: "a b"}}, nil, []string{"held[0].Tenant"}},
	} {
		_, err := g.Repartition(tt.held, tt.wanted, &out)
		requireFields(t, err, tt.fields...)
		require.Equal(t, Repartition{Cost: 42}, out, name)
	}
}
