package llm

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/serving"
)

func newRouter(t testing.TB, c RouterConfig, ids ...ReplicaID) *Router {
	r, err := NewRouter(c)
	require.NoError(t, err)
	for _, id := range ids {
		require.NoError(t, r.Add(id))
	}
	return r
}

func route(t testing.TB, r *Router, d time.Duration, prompt int, blocks []BlockHash) Route {
	t.Helper()
	got, ok, err := r.Route(at(d), prompt, blocks)
	require.NoError(t, err)
	require.True(t, ok)
	return got
}

func TestRouterWeighsCacheAgainstLoad(t *testing.T) {
	r := newRouter(t, RouterConfig{BlockTokens: 10, ImbalanceFraction: 10}, "a", "b")
	hashes := AppendHashes(nil, 1, make([]int32, 100), 10)
	first := route(t, r, 0, 101, hashes)
	require.Equal(t, Route{Replica: "a", Ticket: first.Ticket}, first, "ties go to the lowest ID")
	ok, err := r.Started(at(0), first.Ticket)
	require.NoError(t, err)
	require.True(t, ok)
	second := route(t, r, 0, 101, hashes)
	require.Equal(t, Route{Replica: "a", Reused: 100, Waits: 64, Ticket: second.Ticket}, second, "64 + 1 tokens beat 101")
	third := route(t, r, 0, 101, hashes)
	require.Equal(t, Route{Replica: "a", Reused: 100, Waits: 65, Ticket: third.Ticket}, third)
	other := route(t, r, 0, 90, nil)
	require.Equal(t, ReplicaID("b"), other.Replica)
	fourth := route(t, r, 0, 101, hashes)
	require.Equal(t, ReplicaID("a"), fourth.Replica)
	require.NoError(t, r.Remove("a"))
	require.Equal(t, ReplicaID("b"), route(t, r, 0, 101, hashes).Replica)
	ok, err = r.Done(at(0), fourth.Ticket)
	require.NoError(t, err)
	require.False(t, ok, "its replica is gone")
}

// TestComplaint7InFlightCountsExpire: a client that vanished without a word does not count for ever. (ray-project/ray#61551)
func TestComplaint7InFlightCountsExpire(t *testing.T) {
	r := newRouter(t, RouterConfig{Expire: time.Minute}, "a")
	lost := route(t, r, 0, 100, nil)
	kept := route(t, r, 0, 100, nil)
	n, ok := r.Requests(at(0), "a")
	require.Equal(t, 2, n)
	require.True(t, ok)
	ok, err := r.Started(at(30*time.Second), kept.Ticket)
	require.NoError(t, err)
	require.True(t, ok)
	n, _ = r.Requests(at(time.Minute-1), "a")
	require.Equal(t, 2, n)
	n, _ = r.Requests(at(time.Minute), "a")
	require.Equal(t, 1, n, "what was heard of counts on")
	ok, err = r.Done(at(time.Minute), lost.Ticket)
	require.NoError(t, err)
	require.False(t, ok, "a late word counts nothing down twice")
	n, _ = r.Requests(at(90*time.Second), "a")
	require.Zero(t, n)
	require.Zero(t, r.targets[0].tokens)
}

// TestRouterDoesWhatAPlainOneDoes compares with lists that are searched from end to end.
func TestRouterDoesWhatAPlainOneDoes(t *testing.T) {
	type entry struct {
		replica int
		tokens  int64
		until   time.Duration
		started bool
	}
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 6))
		c := RouterConfig{BlockTokens: 4, CacheBlocks: 1 << 20, ImbalanceFraction: r.Float64() + 0.01, DecodeTokens: 20, Expire: 50}
		ids := []ReplicaID{"a", "b", "c", "d", "e"}[:1+r.IntN(5)]
		router := newRouter(t, c)
		for _, k := range r.Perm(len(ids)) { // the order in which they come does not matter
			require.NoError(t, router.Add(ids[k]))
		}
		known := make([]map[BlockHash]bool, len(ids))
		for k := range known {
			known[k] = make(map[BlockHash]bool)
		}
		flying := make(map[serving.Ticket]*entry)
		var tickets []serving.Ticket
		for now := time.Duration(0); now < 400; now += time.Duration(r.IntN(3)) {
			for ticket, f := range flying { // order does not matter: each stands alone
				if f.until <= now {
					delete(flying, ticket)
				}
			}
			if len(tickets) > 0 && r.IntN(3) == 0 {
				ticket := tickets[r.IntN(len(tickets))]
				f := flying[ticket]
				if r.IntN(2) == 0 {
					ok, err := router.Done(at(now), ticket)
					require.NoError(t, err)
					require.Equal(t, f != nil, ok)
					delete(flying, ticket)
					continue
				}
				ok, err := router.Started(at(now), ticket)
				require.NoError(t, err)
				require.Equal(t, f != nil, ok)
				if f != nil {
					f.until, f.tokens, f.started = now+50, 20, true
				}
				continue
			}
			prompt := 1 + r.IntN(60)
			blocks := chain(r, r.IntN(prompt/4+1))
			requests, tokens := make([]int, len(ids)), make([]int64, len(ids))
			for _, f := range flying { // order does not matter: sums
				requests[f.replica]++
				tokens[f.replica] += f.tokens
			}
			most := int(math.Ceil(float64(len(flying)+1) * float64(router.slack) / 1e6 / float64(len(ids))))
			best, match, cost := -1, 0, int64(0)
			for k := range ids {
				n := 0
				for n < len(blocks) && (n+1)*4 < prompt && known[k][blocks[n]] {
					n++
				}
				if x := tokens[k] + int64(prompt-4*n); requests[k] < most && (best < 0 || x < cost || x == cost && requests[k] < requests[best]) {
					best, match, cost = k, n, x
				}
			}
			got := route(t, router, now, prompt, blocks)
			require.Equal(t, ids[best], got.Replica)
			require.Equal(t, 4*match, got.Reused)
			require.Equal(t, tokens[best], got.Waits)
			for k, h := range blocks {
				if (k+1)*4 < prompt {
					known[best][h] = true
				}
			}
			require.NotContains(t, flying, got.Ticket)
			flying[got.Ticket] = &entry{best, int64(prompt - 4*match), now + 50, false}
			tickets = append(tickets, got.Ticket)
		}
	}
}

// TestNoReplicaGetsFarMoreThanTheOthers: even if all prompts begin alike.
func TestNoReplicaGetsFarMoreThanTheOthers(t *testing.T) {
	r := newRouter(t, RouterConfig{Expire: time.Hour}, "a", "b", "c", "d")
	hashes := AppendHashes(nil, 1, make([]int32, 16*100), 16)
	for k := range 1000 {
		route(t, r, time.Duration(k), 1601, hashes)
		for _, x := range r.targets {
			require.LessOrEqual(t, x.requests, (5*(k+1)+15)/16, "1.25 times the mean, rounded up")
		}
	}
}

func TestRouterForgetsWhatReplicasCannotKeep(t *testing.T) {
	r := newRouter(t, RouterConfig{BlockTokens: 1, CacheBlocks: 100}, "a")
	for k := range 50 {
		got := route(t, r, time.Duration(k), 200, chain(rand.New(rand.NewPCG(uint64(k), 1)), 150))
		require.LessOrEqual(t, r.targets[0].prefixes.count, 100)
		require.LessOrEqual(t, got.Reused, 100)
	}
}

func TestRouterBadInput(t *testing.T) {
	_, err := NewRouter(RouterConfig{BlockTokens: -1, CacheBlocks: -1, ImbalanceFraction: math.NaN(), DecodeTokens: -1, Expire: -1})
	for _, field := range []string{"BlockTokens", "CacheBlocks", "ImbalanceFraction = NaN", "DecodeTokens", "Expire"} {
		require.ErrorContains(t, err, field)
	}
	r := newRouter(t, RouterConfig{})
	_, ok, err := r.Route(at(0), 5, nil)
	require.NoError(t, err)
	require.False(t, ok, "there is no replica")
	require.ErrorIs(t, r.Add(""), lockstep.ErrInvalid)
	require.NoError(t, r.Add("a"))
	require.ErrorIs(t, r.Add("a"), lockstep.ErrDuplicate)
	require.ErrorIs(t, r.Remove("b"), lockstep.ErrUnknown)
	for _, prompt := range []int{0, -1, math.MaxInt} {
		_, _, err = r.Route(at(0), prompt, nil)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	route(t, r, 0, 5, []BlockHash{1, 1, 2, 1})
	_, _, err = r.Route(at(-1), 5, nil)
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = r.Done(time.Time{}, 0)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, ticket := range []serving.Ticket{0, math.MaxUint64, 1 << 32} {
		ok, err = r.Done(at(0), ticket)
		require.NoError(t, err)
		require.False(t, ok)
	}
	_, ok = r.Requests(at(0), "b")
	require.False(t, ok)
	_, ok = r.Requests(at(-1), "a")
	require.False(t, ok)
}

func TestRouteAllocatesNothing(t *testing.T) {
	r := newRouter(t, RouterConfig{CacheBlocks: 500}, "a", "b", "c")
	random := rand.New(rand.NewPCG(1, 2))
	var prompts [64][]BlockHash
	for k := range prompts {
		prompts[k] = chain(random, 60)
	}
	k := 0
	cycle := func() {
		k++
		got, _, err := r.Route(at(time.Duration(k)), 1000, prompts[k%64])
		if err != nil {
			panic(err)
		}
		if _, err := r.Done(at(time.Duration(k)), got.Ticket); err != nil {
			panic(err)
		}
	}
	for range 2000 {
		cycle()
	}
	require.Zero(t, testing.AllocsPerRun(200, cycle))
}

func BenchmarkRoute(b *testing.B) {
	for _, n := range []int{4, 64} {
		b.Run("replicas="+strconv.Itoa(n)+"/blocks=100", func(b *testing.B) {
			r := newRouter(b, RouterConfig{})
			for k := range n {
				require.NoError(b, r.Add(ReplicaID("r"+strconv.Itoa(k))))
			}
			random := rand.New(rand.NewPCG(1, 2))
			var prompts [256][]BlockHash
			for k := range prompts {
				prompts[k] = chain(random, 100)
			}
			b.ReportAllocs()
			k := 0
			for b.Loop() {
				k++
				got := route(b, r, time.Duration(k), 1601, prompts[k%256])
				if k%100 != 0 { // the rest expires
					if _, err := r.Done(at(time.Duration(k)), got.Ticket); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
