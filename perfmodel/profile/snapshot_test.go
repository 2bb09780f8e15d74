package profile

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// state returns what save writes.
func state(t testing.TB, save func(io.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, save(&b))
	return b.Bytes()
}

// random fills a store with random measurements, fewer kinds than it was told of.
func random(t testing.TB, rng *rand.Rand, s *Store, events int) {
	kind := func() Kind { return Kind(fmt.Sprint("k", rng.IntN(12))) }
	for range events {
		switch rng.IntN(6) {
		case 0, 1:
			require.NoError(t, s.ObserveLevel(kind(), tree()[rng.IntN(4)], time.Duration(1+rng.IntN(1000))*time.Millisecond))
		case 2:
			require.NoError(t, s.ObserveRate(kind(), lockstep.DeviceClass(fmt.Sprint("c", rng.IntN(5))), 1+rng.Float64()))
		case 3:
			require.NoError(t, s.ObservePair(kind(), kind(), rng.Int64N(1200), rng.Int64N(1200)))
		case 4:
			require.NoError(t, s.Describe(kind(), Usage{rng.Float64(), rng.Float64()}))
		case 5:
			if rng.IntN(4) == 0 {
				s.Forget(kind())
			}
		}
	}
}

func TestStoreGoesOnFromItsSnapshot(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := store(t, Config{Levels: tree(), Kinds: 2 + rng.IntN(12), Partners: 1 + rng.IntN(6), Keep: 1 + rng.IntN(6)})
		random(t, rng, s, 200)
		saved := state(t, s.Snapshot)
		r, err := Restore(bytes.NewReader(saved))
		require.NoError(t, err)
		require.Equal(t, saved, state(t, r.Snapshot))
		random(t, rand.New(rand.NewPCG(seed, 1)), s, 100)
		random(t, rand.New(rand.NewPCG(seed, 1)), r, 100)
		require.Equal(t, state(t, s.Snapshot), state(t, r.Snapshot))
		for i := range 12 {
			a := Kind(fmt.Sprint("k", i))
			for _, l := range tree() {
				require.Equal(t, s.Slowdown(a, l), r.Slowdown(a, l))
			}
			require.Equal(t, s.Rate(a, "c1"), r.Rate(a, "c1"))
			require.Equal(t, s.Packing(a, "k3"), r.Packing(a, "k3"))
		}
		require.Empty(t, s.lopsided())
		require.LessOrEqual(t, s.Len(), s.cfg.Kinds)
	}
}

func TestDurationsGoOnFromTheirSnapshot(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2))
		d := durations(t, DurationsConfig{Groups: 4 + rng.IntN(20), Window: 1 + rng.IntN(5), Misses: 1 + rng.IntN(20)})
		feed := func(d *Durations, rng *rand.Rand) {
			for range 80 {
				j := Job{lockstep.TenantID([]string{"", "a", "b"}[rng.IntN(3)]), []string{"", "Run-7", "x", "Ⱥ\xff<&>\u2028"}[rng.IntN(4)], lockstep.MilliGPU(rng.IntN(3))}
				require.NoError(t, d.Observe(j, time.Duration(rng.IntN(100)), time.Duration(1+rng.IntN(100))))
			}
		}
		feed(d, rng)
		saved := state(t, d.Snapshot)
		r, err := RestoreDurations(bytes.NewReader(saved), nil)
		require.NoError(t, err)
		require.Equal(t, saved, state(t, r.Snapshot))
		feed(d, rand.New(rand.NewPCG(seed, 3)))
		feed(r, rand.New(rand.NewPCG(seed, 3)))
		require.Equal(t, state(t, d.Snapshot), state(t, r.Snapshot))
	}
}

// forged returns the snapshot of body.
func forged(t testing.TB, format, body string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, snapshot.Write(&b, format, version, []byte(body)))
	return &b
}

func TestBrokenSnapshotsAreRefused(t *testing.T) {
	kinds := func(s string) string { return `{"config":{},"kinds":[` + s + `]}` + "\n" }
	for _, body := range []string{
		"", "{}", kinds(`{"kind":""}`), kinds(`{"kind":"a"},{"kind":"a"}`), `{"config":{"kinds":1},"kinds":[{"kind":"a"},{"kind":"b"}]}`, `{"config":{"keep":-1},"kinds":[]}`,
		kinds(`{"kind":"a","levels":[[1]]}`), kinds(`{"kind":"a","levels":[null,null]}`), kinds(`{"kind":"a","levels":[[1e9],null]}`), kinds(`{"kind":"a","levels":[[` + strings.Repeat("1,", 16) + `1],null]}`),
		kinds(`{"kind":"a","classes":[{"class":"c","rates":[]}]}`), kinds(`{"kind":"a","classes":[{"class":"","rates":[1]}]}`), kinds(`{"kind":"a","classes":[{"class":"c","rates":[1]},{"class":"b","rates":[1]}]}`),
		kinds(`{"kind":"a","beside":[{"kind":"b","rates":[1]}]}`), kinds(`{"kind":"a","beside":[{"kind":"a","rates":[]}]}`), kinds(`{"kind":"a","beside":[{"kind":"a","rates":[-1]}]}`),
		kinds(`{"kind":"a","usage":{"cache":2,"memory":0}}`),
	} {
		_, err := Restore(forged(t, storeFormat, body))
		require.ErrorIs(t, err, lockstep.ErrInvalid, body)
	}
	queue := func(s string) string { return `{"config":{},"now":5,"queue":[` + s + `],"held":[]}` + "\n" }
	for _, body := range []string{
		"", `{"config":{"gpus":-1},"now":0,"queue":[],"held":[]}`, `{"config":{},"now":-1,"queue":[],"held":[]}`, queue(`{"job":"a","gpus":9,"since":0}`), queue(`{"job":"a","gpus":0,"since":0}`),
		queue(`{"job":"a","gpus":1,"since":6}`), queue(`{"job":"","gpus":1,"since":0}`), queue(`{"job":"a","gpus":1,"since":0,"stopping":true}`), queue(`{"job":"a","gpus":1,"since":0},{"job":"a","gpus":1,"since":0}`),
		queue(`{"job":"b","gpus":1,"since":0},{"job":"a","gpus":1,"since":0}`),
		`{"config":{},"now":5,"queue":[],"held":[{"job":"a","gpus":8,"since":0},{"job":"b","gpus":1,"since":0}]}`,
	} {
		_, err := RestorePool(forged(t, poolFormat, body))
		require.ErrorIs(t, err, lockstep.ErrInvalid, body)
	}
	groups := func(s string) string { return `{"config":{},"groups":[` + s + `],"misses":[]}` + "\n" }
	for _, body := range []string{
		"", `{"config":{"window":-1},"groups":[],"misses":[]}`, groups(`{"like":"x","took":[1]}`), groups(`{"like":"cluster","took":[]}`), groups(`{"like":"cluster","took":[0]}`), groups(`{"like":"cluster","gpus":5,"took":[1]}`),
		groups(`{"like":"tenant","took":[1]}`), groups(`{"like":"name","tenant":"a","name":"X1","took":[1]}`), groups(`{"like":"cluster","took":[1]},{"like":"cluster","took":[1]}`),
		`{"config":{},"groups":[],"misses":[0]}`, `{"config":{"groups":1},"groups":[{"like":"cluster","took":[1]},{"like":"tenant","tenant":"a","took":[1]}],"misses":[]}`,
	} {
		_, err := RestoreDurations(forged(t, durationsFormat, body), nil)
		require.ErrorIs(t, err, lockstep.ErrInvalid, body)
	}
	_, err := Restore(bytes.NewReader(state(t, pool(t, PoolConfig{}).Snapshot)))
	require.ErrorIs(t, err, lockstep.ErrInvalid, "of a pool")
}

func TestBadInputChangesNothing(t *testing.T) {
	s := store(t, Config{Kinds: 1})
	nan := 0.
	nan /= nan
	before := state(t, s.Snapshot)
	for _, tt := range []struct {
		kind error
		err  error
	}{
		{lockstep.ErrInvalid, s.ObserveLevel("", lockstep.LevelNode, 1)},
		{lockstep.ErrInvalid, s.ObserveLevel("k", lockstep.LevelNode, 0)},
		{lockstep.ErrInvalid, s.ObserveLevel("k", lockstep.LevelNode, lockstep.MaxWalltime+1)},
		{lockstep.ErrUnknown, s.ObserveLevel("k", "row", 1)},
		{lockstep.ErrInvalid, s.ObserveRate("k", "", 1)},
		{lockstep.ErrInvalid, s.ObserveRate("k", "c", 0)},
		{lockstep.ErrInvalid, s.ObserveRate("k", "c", nan)},
		{lockstep.ErrInvalid, s.ObserveRate("", "c", 1)},
		{lockstep.ErrInvalid, s.ObservePair("", "b", 1, 1)},
		{lockstep.ErrInvalid, s.ObservePair("a", "", 1, 1)},
		{lockstep.ErrInvalid, s.ObservePair("a", "a", -1, 1)},
		{lockstep.ErrInvalid, s.ObservePair("a", "a", 1, 10_001)},
		{lockstep.ErrConflict, s.ObservePair("a", "b", 1, 1)},
		{lockstep.ErrInvalid, s.Describe("", Usage{})},
		{lockstep.ErrInvalid, s.Describe("a", Usage{2, nan})},
	} {
		require.ErrorIs(t, tt.err, tt.kind)
	}
	require.Equal(t, before, state(t, s.Snapshot))
	for i := range maxClasses {
		require.NoError(t, s.ObserveRate("k", lockstep.DeviceClass(fmt.Sprint("c", i)), 1))
	}
	require.ErrorIs(t, s.ObserveRate("k", "more", 1), lockstep.ErrConflict)
	require.NoError(t, s.ObserveRate("k", "c7", 1))

	err := Config{Levels: []lockstep.Level{"a", "a", ""}, Kinds: -1, Partners: maxPartners + 1, Keep: 65, Explore: -1}.Validate()
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 6)
	require.Error(t, Config{Levels: make([]lockstep.Level, 19)}.Validate())
	_, err = New(Config{Keep: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)

	err = DurationsConfig{Recent: 1001, Window: -1, Groups: -1, Misses: -1, Samples: 33}.Validate()
	require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 5)
	_, err = NewDurations(DurationsConfig{Recent: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	d := durations(t, DurationsConfig{})
	before = state(t, d.Snapshot)
	require.ErrorIs(t, d.Observe(Job{Tenant: " "}, 0, 1), lockstep.ErrInvalid)
	require.ErrorIs(t, d.Observe(Job{Name: strings.Repeat("x", 254)}, 0, 1), lockstep.ErrInvalid)
	require.ErrorIs(t, d.Observe(Job{GPUs: -1}, 0, 1), lockstep.ErrInvalid)
	require.ErrorIs(t, d.Observe(Job{}, -1, 1), lockstep.ErrInvalid)
	require.ErrorIs(t, d.Observe(Job{}, 0, 0), lockstep.ErrInvalid)
	require.Equal(t, before, state(t, d.Snapshot))
	_, err = d.Expect(Job{GPUs: -1}, -1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)

	_, err = NewDistribution(nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = NewDistribution([]time.Duration{1, 0})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func FuzzRestore(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 3))
	s, err := New(Config{Levels: tree(), Kinds: 4})
	require.NoError(f, err)
	random(f, rng, s, 60)
	body := func(save func(io.Writer) error) string {
		_, body, _ := strings.Cut(string(state(f, save)), "\n")
		return body
	}
	f.Add(body(s.Snapshot))
	p, err := NewPool(PoolConfig{})
	require.NoError(f, err)
	for i := range 12 {
		_, err = p.Submit(at(float64(i)), lockstep.JobID(fmt.Sprint("j", i)), 1+i%3)
		require.NoError(f, err)
	}
	_, err = p.Step(at(12), nil)
	require.NoError(f, err)
	f.Add(body(p.Snapshot))
	d, err := NewDurations(DurationsConfig{})
	require.NoError(f, err)
	require.NoError(f, d.Observe(Job{"a", "b", 1}, 1, 2))
	f.Add(body(d.Snapshot))
	f.Fuzz(func(t *testing.T, body string) {
		if s, err := Restore(forged(t, storeFormat, body)); err == nil {
			again, err := Restore(bytes.NewReader(state(t, s.Snapshot)))
			require.NoError(t, err)
			require.Equal(t, state(t, s.Snapshot), state(t, again.Snapshot))
			s.all(t)
		}
		if p, err := RestorePool(forged(t, poolFormat, body)); err == nil {
			p.NextWake(lockstep.FromNanos(p.now))
			_, err = p.Step(lockstep.FromNanos(p.now), nil)
			require.NoError(t, err)
			require.GreaterOrEqual(t, p.Free(), 0)
		}
		if d, err := RestoreDurations(forged(t, durationsFormat, body), nil); err == nil {
			d.Bound(1, 50)
			_, err = d.Expect(Job{"a", "b", 1}, 1)
			require.NoError(t, err)
			require.NoError(t, d.Observe(Job{"a", "b", 1}, 1, 2))
		}
	})
}

// all asks everything of every kind.
func (s *Store) all(t *testing.T) {
	var kinds []Kind
	s.kinds.all(func(k Kind, _ *known) { kinds = append(kinds, k) })
	for _, k := range kinds {
		for _, l := range s.cfg.Levels {
			e := s.Slowdown(k, l)
			require.GreaterOrEqual(t, e.Value, 0.)
			s.Need(k, l, s.cfg.Levels[0])
		}
		s.Rate(k, "c")
		s.Packing(k, kinds[0])
	}
	for _, k := range kinds {
		s.Forget(k)
	}
	require.Zero(t, s.Len())
}
