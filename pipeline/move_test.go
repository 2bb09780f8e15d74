package pipeline

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestReplicasRunTheirShares(t *testing.T) {
	l, r := equal(t, Config{Stages: 3, Replicas: 3, Split: []int{4, 0, 6}}, 1, 2, 0, 0)
	require.Equal(t, 9, l.Stages())
	require.Equal(t, time.Duration(6+3-1)*3, r.Makespan)
	require.Empty(t, l.Order(4))
	require.Equal(t, []Op{{Micro: 4}, {Kind: Backward, Micro: 4}}, l.Order(8)[:2])
	require.Equal(t, []Window{{End: 24}}, r.AppendWindows(nil, 4))

	l, _ = equal(t, Config{Stages: 2, Micros: 7, Replicas: 3}, 1, 2, 0, 0)
	require.Len(t, l.Order(0), 6, "the first replica has the one that is left over")
	require.Len(t, l.Order(2), 4)
	require.Equal(t, Op{Micro: 5}, l.Order(4)[0])
}

func TestNoMovesKeepTheOrders(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 10))
	var r Result
	for range 300 {
		l, err := New(shuffled(rng, 0))
		require.NoError(t, err)
		c := drawn(l, rng, int64(rng.IntN(20)))
		require.NoError(t, l.Run(&c, &r))
		cfg, err := r.Moved()
		require.NoError(t, err)
		for s := range l.Stages() {
			require.True(t, slices.Equal(l.Order(s), cfg.Orders[s]))
		}
	}
}

func TestMovesNeverEndInADeadlock(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 11))
	var r Result
	for range 1000 {
		cfg := shuffled(rng, 0)
		if rng.IntN(2) == 0 {
			p := 1 + rng.IntN(4)
			cfg = Config{Schedule: []Schedule{OneFOneB, GPipe, ZBH1, ZBH2}[rng.IntN(4)], Stages: p, Micros: 1 + rng.IntN(12), Replicas: 1 + rng.IntN(4)}
		}
		l, err := New(cfg)
		require.NoError(t, err)
		c := drawn(l, rng, int64(rng.IntN(20)))
		require.NoError(t, l.Run(&c, &r))
		to := map[[2]int]int{}
		moves := make([]Move, rng.IntN(8))
		for i := range moves {
			moves[i] = Move{Stage: rng.IntN(l.cfg.Stages), Micro: rng.IntN(l.cfg.Micros), Replica: rng.IntN(l.cfg.Replicas)}
			to[[2]int{moves[i].Stage, moves[i].Micro}] = moves[i].Replica
		}
		next, err := r.Moved(moves...)
		require.NoError(t, err)
		for row, order := range next.Orders {
			last := time.Duration(0)
			for _, op := range order {
				for was := row % l.cfg.Stages; was < l.Stages(); was += l.cfg.Stages {
					if i, ok := l.Index(was, op); ok {
						require.LessOrEqual(t, last, r.Start(was, i), "by start, wherever it ran")
						last = r.Start(was, i)
					}
				}
			}
		}
		moved, err := New(next)
		require.NoError(t, err)
		require.NoError(t, moved.Run(&c, &r))
		requireSame(t, moved, &c, &r)
		for s := range l.Stages() {
			for _, op := range moved.Order(s) {
				if replica, ok := to[[2]int{s % l.cfg.Stages, int(op.Micro)}]; ok {
					require.Equal(t, replica, s/l.cfg.Stages)
				} else {
					_, ok := l.Index(s, op)
					require.True(t, ok, "what is not moved stays")
				}
			}
		}
	}
}

func TestMovesThatCanNotBe(t *testing.T) {
	_, r := equal(t, Config{Stages: 2, Micros: 4, Replicas: 2}, 1, 2, 0, 0)
	for _, m := range []Move{{Stage: -1}, {Stage: 2}, {Micro: -1}, {Micro: 4}, {Replica: -1}, {Replica: 2}} {
		_, err := r.Moved(Move{}, m)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.ErrorContains(t, err, "moves[1]")
	}
}

func TestPeakBytesIsTheReplay(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 12))
	for range 300 {
		l, err := New(shuffled(rng, 0))
		require.NoError(t, err)
		n := len(l.next)
		draw := func() []lockstep.Bytes {
			of := make([]lockstep.Bytes, []int{n, n * l.cfg.Micros}[rng.IntN(2)])
			for i := range of {
				of[i] = lockstep.Bytes(rng.Int64N(100))
			}
			return of
		}
		activations, weights := draw(), draw()
		size := func(of []lockstep.Bytes, v, j int) lockstep.Bytes {
			if len(of) == n {
				return of[v]
			}
			return of[v*l.cfg.Micros+j]
		}
		for s := range l.Stages() {
			peak := lockstep.Bytes(0)
			for i := range l.Order(s) { // what is held after each op: begun and not yet given back
				held := lockstep.Bytes(0)
				for v := range n {
					for j := range l.cfg.Micros {
						at := func(k Kind) bool {
							p, ok := l.Index(s, Op{Kind: k, Chunk: int32(v / l.cfg.Stages), Micro: int32(j)})
							return v%l.cfg.Stages == s%l.cfg.Stages && ok && p <= i
						}
						_, split := l.Index(s, Op{Kind: Weight, Chunk: int32(v / l.cfg.Stages), Micro: int32(j)})
						if at(Forward) && !at(Backward) {
							held += size(activations, v, j)
						}
						if at(Forward) && !at(Weight) && (split || !at(Backward)) {
							held += size(weights, v, j)
						}
					}
				}
				peak = max(peak, held)
			}
			got, err := l.PeakBytes(s, activations, weights)
			require.NoError(t, err)
			require.Equal(t, peak, got)
			ones := make([]lockstep.Bytes, n)
			for i := range ones {
				ones[i] = 1
			}
			got, err = l.PeakBytes(s, ones, nil)
			require.NoError(t, err)
			require.Equal(t, lockstep.Bytes(l.Peak(s)), got)
		}
	}
}

func TestPeakBytesRefusesWhatItCanNotAdd(t *testing.T) {
	l, err := New(Config{Stages: 1, Micros: 1})
	require.NoError(t, err)
	for _, of := range [][2][]lockstep.Bytes{
		{{-1}, nil},
		{nil, {-1}},
		{{1, 2}, nil},
		{{math.MaxInt64}, {1}},
	} {
		_, err := l.PeakBytes(0, of[0], of[1])
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	got, err := l.PeakBytes(0, []lockstep.Bytes{math.MaxInt64}, nil)
	require.NoError(t, err)
	require.Equal(t, lockstep.Bytes(math.MaxInt64), got)
}
