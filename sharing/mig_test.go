package sharing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// geometry returns the geometry of a known model.
func geometry(t testing.TB, model string) *Geometry {
	t.Helper()
	cfg, ok := ModelConfig(model)
	require.True(t, ok)
	g, err := NewGeometry(cfg)
	require.NoError(t, err)
	return g
}

// only returns the geometry of a model with some of its profiles.
func only(t testing.TB, model string, names ...lockstep.Profile) *Geometry {
	t.Helper()
	cfg, ok := ModelConfig(model)
	require.True(t, ok)
	cfg.Profiles = slices.DeleteFunc(cfg.Profiles, func(p Profile) bool { return !slices.Contains(names, p.Name) })
	g, err := NewGeometry(cfg)
	require.NoError(t, err)
	require.Len(t, g.Profiles(), len(names))
	return g
}

func lookup(t testing.TB, g *Geometry, name lockstep.Profile) int {
	t.Helper()
	p, ok := g.Lookup(name)
	require.True(t, ok, name)
	return p
}

// text writes instances as the guide names them, such as "1g.5gb@6".
func text(g *Geometry, set []Instance) string {
	words := make([]string, len(set))
	for i, in := range set {
		words[i] = fmt.Sprintf("%s@%d", g.cfg.Profiles[in.Profile].Name, in.Start)
	}
	return strings.Join(words, " ")
}

// mid returns every geometry that tests go through: the known models' two layouts, and one with odd rules.
func mid(t testing.TB) map[string]*Geometry {
	t.Helper()
	odd, err := NewGeometry(GeometryConfig{Slices: 7, Compute: 14, Profiles: []Profile{
		{Name: "three", Compute: 3, Slices: 3, Starts: 0b0001_0010, Memory: 1},
		{Name: "two", Compute: 2, Slices: 2, Starts: 0b0010_1001, Memory: 1, Media: true, Weight: 9},
		{Name: "one", Compute: 2, Slices: 1, Starts: 0b0101_0101, Memory: 1},
		{Name: "media", Compute: 1, Slices: 1, Starts: 0b0000_0011, Memory: 1, Media: true},
	}})
	require.NoError(t, err)
	return map[string]*Geometry{"a100-80gb": geometry(t, "a100-80gb"), "a30": geometry(t, "a30"), "odd": odd}
}

// legal says by counting, slice by slice, whether instances may exist together.
func legal(g *Geometry, o Occupancy, set []Instance) bool {
	var taken [maxSlices]bool
	for i := range maxSlices {
		taken[i] = o>>i&1 != 0
	}
	media := o&mediaTaken != 0
	for _, in := range set {
		p := g.cfg.Profiles[in.Profile]
		if !p.Starts.Has(in.Start) || p.Media && media {
			return false
		}
		media = media || p.Media
		for i := in.Start; i < in.Start+p.Slices; i++ {
			if i >= g.cfg.Slices || taken[i] {
				return false
			}
			taken[i] = true
		}
	}
	return true
}

// every returns all sets that may exist beside o, each sorted and as text, found by adding one instance at a time.
func every(g *Geometry, o Occupancy) map[string][]Instance {
	found := map[string][]Instance{"": {}}
	todo := [][]Instance{{}}
	for len(todo) > 0 {
		set := todo[0]
		todo = todo[1:]
		for p := range g.cfg.Profiles {
			for start := range maxSlices {
				more := append(slices.Clone(set), Instance{p, start})
				slices.SortFunc(more, func(a, b Instance) int { return a.Start - b.Start })
				if !legal(g, o, more) {
					continue
				}
				if key := text(g, more); found[key] == nil {
					found[key] = more
					todo = append(todo, more)
				}
			}
		}
	}
	return found
}

// NVIDIA's guide, section Supported MIG Profiles, column Number of Instances Available.
func TestCountsOnAnEmptyDeviceAreThoseOfTheGuide(t *testing.T) {
	eighths := []int{7, 1, 4, 3, 2, 1, 1}
	want := map[string][]int{"a30": {4, 1, 2, 1, 1}}
	for _, name := range Models() {
		if want[name] == nil {
			want[name] = eighths
		}
		g := geometry(t, name)
		for p := range g.Profiles() {
			require.Equal(t, want[name][p], g.Count(0, p), "%s %s", name, g.cfg.Profiles[p].Name)
		}
	}
	require.Len(t, want, 8)
}

func TestProfileNamesAreThoseOfTheGuide(t *testing.T) {
	want := map[string]string{
		"a100-40gb":  "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
		"a100-80gb":  "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
		"a30":        "1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb",
		"b200-180gb": "1g.23gb 1g.23gb+me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
		"h100-80gb":  "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
		"h100-94gb":  "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
		"h100-96gb":  "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
		"h200-141gb": "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
	}
	require.Equal(t, slices.Sorted(maps.Keys(want)), Models())
	for name, profiles := range want {
		g := geometry(t, name)
		var names []string
		for i, p := range g.Profiles() {
			names = append(names, string(p.Name))
			canonical, err := ParseProfile(string(p.Name))
			require.NoError(t, err)
			require.Equal(t, p.Name, canonical)
			require.LessOrEqual(t, p.Memory, lockstep.Bytes(200)*lockstep.GiB)
			if i > 0 {
				require.GreaterOrEqual(t, p.Memory, g.cfg.Profiles[i-1].Memory, p.Name)
			}
		}
		require.Equal(t, profiles, strings.Join(names, " "))
	}
	_, ok := ModelConfig("v100")
	require.False(t, ok)
}

// An A100 can be divided in these ways: either half is divided by itself, or 7g takes both.
func TestAnA100HasNineteenLayouts(t *testing.T) {
	g := only(t, "a100-40gb", "1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
	var got []string
	for set := range g.Layouts(0) {
		got = append(got, text(g, set))
	}
	want := []string{"7g.40gb@0"}
	for _, low := range []string{
		"4g.20gb@0", "3g.20gb@0", "2g.10gb@0 2g.10gb@2", "2g.10gb@0 1g.5gb@2 1g.5gb@3",
		"1g.5gb@0 1g.5gb@1 2g.10gb@2", "1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3",
	} {
		for _, high := range []string{"3g.20gb@4", "2g.10gb@4 1g.5gb@6", "1g.5gb@4 1g.5gb@5 1g.5gb@6"} {
			want = append(want, low+" "+high)
		}
	}
	require.Len(t, want, 19)
	require.ElementsMatch(t, want, got)
	before510 := slices.DeleteFunc(got, func(s string) bool { return s == "4g.20gb@0 3g.20gb@4" })
	require.Len(t, before510, 18)
}

func TestLayoutsAreExactlyTheSetsToWhichNothingCanBeAdded(t *testing.T) {
	for name, g := range mid(t) {
		t.Run(name, func(t *testing.T) {
			for _, o := range []Occupancy{0, 0b1, 0b0110, mediaTaken, mediaTaken | 0b1_0000} {
				if !g.knows(o) {
					continue
				}
				sets := every(g, o)
				var want []string
				for key, set := range sets { // in any order: compared without
					full := true
					for p := range g.cfg.Profiles {
						for start := range maxSlices {
							full = full && !legal(g, o, append(slices.Clone(set), Instance{p, start}))
						}
					}
					if full {
						want = append(want, key)
					}
				}
				var got []string
				for set := range g.Layouts(o) {
					require.True(t, slices.IsSortedFunc(set, func(a, b Instance) int { return a.Start - b.Start }))
					got = append(got, text(g, set))
				}
				require.ElementsMatch(t, want, got, "%s", o)
			}
		})
	}
}

func TestLayoutsOfAllProfilesAreAsManyAsEver(t *testing.T) {
	want := map[string]int{"a100-80gb": 239, "a30": 17}
	for name, n := range want {
		got := 0
		for range geometry(t, name).Layouts(0) {
			got++
		}
		require.Equal(t, n, got, name)
	}
	for range geometry(t, "a30").Layouts(0) {
		break // ends the walk
	}
}

func TestTablesEqualCountingByHand(t *testing.T) {
	for name, g := range mid(t) {
		t.Run(name, func(t *testing.T) {
			for o := range Occupancy(states) {
				if !g.knows(o) {
					require.Zero(t, g.Room(o))
					continue
				}
				require.Equal(t, roomByHand(g, o), g.Room(o), "%s", o)
				for p := range g.cfg.Profiles {
					checkStarts(t, g, o, p)
				}
			}
		})
	}
}

func roomByHand(g *Geometry, o Occupancy) (room int64) {
	for p := range g.cfg.Profiles {
		for start := range maxSlices {
			if legal(g, o, []Instance{{p, start}}) {
				room += g.cfg.Profiles[p].Weight
			}
		}
	}
	return room
}

func checkStarts(t *testing.T, g *Geometry, o Occupancy, p int) {
	t.Helper()
	best, most := -1, int64(-1)
	for start := range maxSlices {
		fits := legal(g, o, []Instance{{p, start}})
		require.Equal(t, fits, g.Starts(o, p).Has(start))
		after, ok := g.Take(o, p, start)
		require.Equal(t, fits, ok)
		if !fits {
			require.Equal(t, o, after)
			continue
		}
		back, ok := g.Give(after, p, start)
		require.True(t, ok)
		require.Equal(t, o, back)
		if room := roomByHand(g, after); room > most {
			best, most = start, room
		}
	}
	start, ok := g.BestStart(o, p)
	require.Equal(t, best >= 0, ok)
	if ok {
		require.Equal(t, best, start, "%s of %s", o, g.cfg.Profiles[p].Name)
	}
	require.Equal(t, countByHand(g, o, p, 0), g.Count(o, p))
}

func countByHand(g *Geometry, o Occupancy, p, from int) int {
	most := 0
	for start := from; start < maxSlices; start++ {
		if after, ok := g.Take(o, p, start); ok {
			most = max(most, 1+countByHand(g, after, p, start+1))
		}
	}
	return most
}

// The worked example O21 of the field: free slices do not make room where they lie apart.
func TestThreeSlicesApartLeaveNoRoomForAHalf(t *testing.T) {
	g := geometry(t, "a100-40gb")
	one, three := lookup(t, g, "1g.5gb"), lookup(t, g, "3g.20gb")
	var o Occupancy
	for _, start := range []int{0, 1, 5} {
		var ok bool
		o, ok = g.Take(o, one, start)
		require.True(t, ok)
	}
	require.Equal(t, "11000100", o.String())
	require.Equal(t, 3, o.Slices())
	require.Zero(t, g.Starts(o, three))
	_, ok := g.BestStart(o, three)
	require.False(t, ok)
	require.Equal(t, []int{2}, slices.Collect(g.Starts(o, lookup(t, g, "2g.10gb")).All))
	require.Equal(t, 4, g.Count(o, one))
}

// kubernetes-sigs/dra-driver-nvidia-gpu issue 933: instances given back in any order leave room for a larger one only if
// those that stay lie well, so the choice of starts has to see to it.
func TestBestStartsKeepRoomForLargerProfiles(t *testing.T) {
	g := geometry(t, "h100-80gb")
	one := lookup(t, g, "1g.10gb")
	var o Occupancy
	var starts []int
	for range 7 {
		start, ok := g.BestStart(o, one)
		require.True(t, ok)
		o, _ = g.Take(o, one, start)
		starts = append(starts, start)
	}
	require.Equal(t, []int{6, 4, 5, 0, 1, 2, 3}, starts)
	require.Zero(t, g.Count(o, one))
	require.Equal(t, int64(0), g.Room(o))
	half, _ := g.Take(0, one, 6)
	start, _ := g.BestStart(half, lookup(t, g, "4g.40gb"))
	require.Equal(t, 0, start)
}

func TestOneMediaInstanceAtATime(t *testing.T) {
	g := geometry(t, "a30")
	small, large := lookup(t, g, "1g.6gb+me"), lookup(t, g, "2g.12gb+me")
	o, ok := g.Take(0, small, 3)
	require.True(t, ok)
	require.Equal(t, "00010000+me", o.String())
	require.Equal(t, 1, o.Slices())
	require.Zero(t, g.Count(o, large))
	_, ok = g.Take(o, large, 0)
	require.False(t, ok)
	require.Equal(t, 3, g.Count(o, lookup(t, g, "1g.6gb")))
	o, ok = g.Give(o, small, 3)
	require.True(t, ok)
	require.Zero(t, o)
}

// packByHand tries every start for every profile.
func packByHand(g *Geometry, o Occupancy, profiles []int) (best []Instance, most int64) {
	most = -1
	set := make([]Instance, len(profiles))
	var try func(i int)
	try = func(i int) {
		if i == len(profiles) {
			after := o
			for _, in := range set {
				after |= g.mask(in.Profile, in.Start)
			}
			if room := roomByHand(g, after); room > most {
				best, most = slices.Clone(set), room
			}
			return
		}
		for start := range maxSlices {
			set[i] = Instance{profiles[i], start}
			if legal(g, o, set[:i+1]) {
				try(i + 1)
			}
		}
	}
	try(0)
	return best, most
}

func TestPackEqualsTryingEverything(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	for name, g := range mid(t) {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				o := Occupancy(rng.IntN(states))
				if rng.IntN(2) == 0 {
					o &= Occupancy(rng.IntN(states)) // emptier
				}
				if !g.knows(o) {
					continue
				}
				profiles := make([]int, rng.IntN(6))
				for i := range profiles {
					profiles[i] = rng.IntN(len(g.cfg.Profiles))
				}
				want, most := packByHand(g, o, profiles)
				got, ok := g.Pack(nil, o, profiles)
				require.Equal(t, most >= 0, ok, "%s %v", o, profiles)
				if ok && len(profiles) > 0 {
					require.Equal(t, want, got, "%s %v", o, profiles)
				}
			}
		})
	}
}

func TestPackAppendsOrLeavesAlone(t *testing.T) {
	g := geometry(t, "a30")
	before := []Instance{{1, 2}}
	got, ok := g.Pack(before, 0, []int{2, 2})
	require.True(t, ok)
	require.Equal(t, []Instance{{1, 2}, {2, 0}, {2, 2}}, got)
	for _, profiles := range [][]int{{2, 2, 2}, {-1}, {5}, {4, 0}, make([]int, 9)} {
		got, ok = g.Pack(before, 0, profiles)
		require.False(t, ok, profiles)
		require.Equal(t, before, got)
	}
	_, ok = g.Pack(nil, 1<<7, nil)
	require.False(t, ok, "a slice that the device lacks")
}

func TestNoAccessorPanics(t *testing.T) {
	g := geometry(t, "a30")
	for _, p := range []int{-1, 0, 4, 5, 16, 1 << 30} {
		for _, o := range []Occupancy{0, 0b1111, 1 << 4, 1 << 9, 0xffff} {
			for _, start := range []int{-1, 0, 3, 7, 8, 1 << 30} {
				g.Take(o, p, start)
				g.Give(o, p, start)
				require.False(t, g.Starts(o, p).Has(-1-start*start))
			}
			g.BestStart(o, p)
			g.Count(o, p)
			g.Room(o)
			for range g.Layouts(o) {
				break
			}
		}
		_, ok := g.Profile(p)
		require.Equal(t, p >= 0 && p < 5, ok)
	}
	_, ok := g.Lookup("9g.9gb")
	require.False(t, ok)
}

func TestGeometryRefusesBadLayouts(t *testing.T) {
	good := func() GeometryConfig {
		return GeometryConfig{Slices: 4, Compute: 4, Profiles: []Profile{
			{Name: "one", Compute: 1, Slices: 1, Starts: 0b1111, Memory: 1},
			{Name: "two", Compute: 2, Slices: 2, Starts: 0b0101, Memory: 2},
		}}
	}
	require.NoError(t, good().Validate())
	tests := map[string]struct {
		change func(*GeometryConfig)
		fields []string
	}{
		"nothing":         {func(c *GeometryConfig) { *c = GeometryConfig{} }, []string{"Slices", "Compute", "Profiles"}},
		"nine slices":     {func(c *GeometryConfig) { c.Slices = 9 }, []string{"Slices"}},
		"too many":        {func(c *GeometryConfig) { c.Profiles = make([]Profile, 17) }, []string{"Profiles"}},
		"no name":         {func(c *GeometryConfig) { c.Profiles[0].Name = "" }, []string{"Profiles[0].Name"}},
		"two of a name":   {func(c *GeometryConfig) { c.Profiles[1].Name = "one" }, []string{"Profiles[1].Name"}},
		"no compute":      {func(c *GeometryConfig) { c.Profiles[0].Compute = 0 }, []string{"Profiles[0].Compute"}},
		"much compute":    {func(c *GeometryConfig) { c.Profiles[0].Compute = 5 }, []string{"Profiles[0].Compute"}},
		"no slices":       {func(c *GeometryConfig) { c.Profiles[0].Slices = 0 }, []string{"Profiles[0].Slices"}},
		"five slices":     {func(c *GeometryConfig) { c.Profiles[0].Slices = 5 }, []string{"Profiles[0].Slices"}},
		"no start":        {func(c *GeometryConfig) { c.Profiles[0].Starts = 0 }, []string{"Profiles[0].Starts"}},
		"over the end":    {func(c *GeometryConfig) { c.Profiles[1].Starts = 0b1000 }, []string{"Profiles[1].Starts"}},
		"no memory":       {func(c *GeometryConfig) { c.Profiles[1].Memory = 0 }, []string{"Profiles[1].Memory"}},
		"negative weight": {func(c *GeometryConfig) { c.Profiles[1].Weight = -1 }, []string{"Profiles[1].Weight"}},
		"huge weight":     {func(c *GeometryConfig) { c.Profiles[1].Weight = 1<<20 + 1 }, []string{"Profiles[1].Weight"}},
		"compute runs out": {func(c *GeometryConfig) {
			c.Compute = 3
		}, []string{"Compute"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := good()
			tt.change(&cfg)
			_, err := NewGeometry(cfg)
			requireFields(t, err, tt.fields...)
		})
	}
}

// requireFields requires that err joins faults of exactly these fields.
func requireFields(t *testing.T, err error, fields ...string) {
	t.Helper()
	require.Error(t, err)
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "%v", err)
	var got []string
	for _, e := range joined.Unwrap() {
		var f *lockstep.Error
		require.ErrorAs(t, e, &f)
		require.Contains(t, f.Op, "sharing: ")
		if f.Kind != lockstep.ErrDuplicate {
			require.ErrorIs(t, e, lockstep.ErrInvalid)
		}
		got = append(got, f.Field)
	}
	require.Equal(t, fields, got)
}

func TestGeometryKeepsNoMemoryOfItsCaller(t *testing.T) {
	cfg, _ := ModelConfig("a30")
	g, err := NewGeometry(cfg)
	require.NoError(t, err)
	cfg.Profiles[0].Name = "changed"
	g.Profiles()[1].Name = "changed"
	again, _ := ModelConfig("a30")
	require.Equal(t, lockstep.Profile("1g.6gb"), again.Profiles[0].Name)
	require.Equal(t, lockstep.Profile("1g.6gb"), g.cfg.Profiles[0].Name)
	require.Equal(t, lockstep.Profile("1g.6gb+me"), g.cfg.Profiles[1].Name)
}

func TestLookUpsAllocateNothing(t *testing.T) {
	g := geometry(t, "h200-141gb")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		p, _ := g.Lookup("2g.35gb")
		start, _ := g.BestStart(1, p)
		o, _ := g.Take(1, p, start)
		_, _ = g.Give(o, p, start)
		_ = g.Room(o) + int64(g.Count(o, p)) + int64(g.Starts(o, p))
	}))
}

func TestParseProfileKnowsItsForms(t *testing.T) {
	tests := map[string]lockstep.Profile{
		"1g.10gb":                      "1g.10gb",
		"1g.10gb+me":                   "1g.10gb+me",
		"MIG 1g.10gb+me":               "1g.10gb+me",
		"mig-1g.10gb.me":               "1g.10gb+me",
		"nvidia.com/mig-1g.10gb.me":    "1g.10gb+me",
		"nvidia.com/mig-7g.141gb":      "7g.141gb",
		"1g.24gb+me.all":               "1g.24gb+me.all",
		"mig-1g.24gb.me.all":           "1g.24gb+me.all",
		"1g.24gb-me":                   "1g.24gb-me",
		"2g.48gb+gfx":                  "2g.48gb+gfx",
		"nvidia.com/mig-2g.48gb.gfx":   "2g.48gb+gfx",
		"":                             "",
		"1g":                           "",
		"g.gb":                         "",
		"01g.10gb":                     "",
		"1g.010gb":                     "",
		"0g.10gb":                      "",
		"1g.10GB":                      "",
		"1c.3g.20gb":                   "",
		"1g.10gb ":                     "",
		" 1g.10gb":                     "",
		"MIG  1g.10gb":                 "",
		"1g.10gb+me+gfx":               "",
		"1g.10gb.":                     "",
		"-1g.10gb":                     "",
		"99999g.10gb":                  "",
		"1g.10gbgb":                    "",
		"mig-MIG 1g.10gb":              "",
		"nvidia.com/nvidia.com/1g.5gb": "",
	}
	for in, want := range tests {
		got, err := ParseProfile(in)
		require.Equal(t, want, got, in)
		if want == "" {
			require.ErrorIs(t, err, lockstep.ErrInvalid, in)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, got.Validate())
	}
}

func FuzzParseProfile(f *testing.F) {
	for _, s := range []string{"1g.10gb", "MIG 1g.10gb+me", "nvidia.com/mig-1g.24gb.me.all", "1g.24gb-me", "1c.3g.20gb", "9999g.9999gb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseProfile(s)
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			require.Empty(t, p)
			return
		}
		require.NoError(t, p.Validate())
		again, err := ParseProfile(string(p))
		require.NoError(t, err)
		require.Equal(t, p, again, "its own form")
		require.True(t, strings.Contains(s, "gb"))
	})
}
