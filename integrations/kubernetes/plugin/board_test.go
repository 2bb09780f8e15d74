package plugin

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// outcome is what a batch was told of its pods.
type outcome struct {
	mu   sync.Mutex
	ends map[int][]error
}

func (o *outcome) done(i int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ends[i] = append(o.ends[i], err)
}

func batchOf(gang string, n int, node string) (*batch, *outcome) {
	o := &outcome{ends: make(map[int][]error)}
	b := &batch{gang: gang, done: o.done, timer: time.NewTimer(time.Hour)}
	for i := range n {
		b.items = append(b.items, item{binding: &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(gang, i), UID: uidOf(gang, i)},
			Target:     corev1.ObjectReference{Name: node},
		}})
	}
	return b, o
}

func uidOf(gang string, i int) types.UID { return types.UID(fmt.Sprint(gang, "/", i)) }

func newBoard() *board { return &board{pins: make(map[types.UID]pin)} }

func TestABatchPassesWithItsLastPod(t *testing.T) {
	board := newBoard()
	b, o := batchOf("g", 3, "n")
	board.put(b)
	for i := range 2 {
		_, last, ok := board.arrive(uidOf("g", i), "n")
		require.True(t, ok)
		require.False(t, last)
	}
	_, last, ok := board.arrive(uidOf("g", 1), "n")
	require.True(t, ok)
	require.False(t, last, "one that comes again does not count twice")
	others, last, ok := board.arrive(uidOf("g", 2), "n")
	require.True(t, ok && last)
	require.ElementsMatch(t, []types.UID{uidOf("g", 0), uidOf("g", 1)}, others)

	board.finish(uidOf("g", 0), nil)
	refused := errors.New("refused")
	board.finish(uidOf("g", 1), refused)
	board.fail(uidOf("g", 1), refused, nil) // it is over
	board.finish(uidOf("g", 2), nil)
	require.Equal(t, map[int][]error{0: {nil}, 1: {refused}, 2: {nil}}, o.ends)
	require.Empty(t, board.pins)
}

func TestOneThatFailsEndsItsBatch(t *testing.T) {
	board := newBoard()
	b, o := batchOf("g", 3, "n")
	other, untouched := batchOf("h", 1, "n")
	board.put(b)
	board.put(other)
	board.arrive(uidOf("g", 0), "n")
	var rejected []types.UID
	cause := errors.New("cause")
	board.fail(uidOf("g", 1), cause, func(uid types.UID) { rejected = append(rejected, uid) })
	require.Equal(t, []types.UID{uidOf("g", 0)}, rejected)
	require.Equal(t, map[int][]error{0: {cause}, 1: {cause}, 2: {cause}}, o.ends)
	require.Empty(t, untouched.ends)
	_, _, ok := board.arrive(uidOf("g", 2), "n")
	require.False(t, ok, "its pods pass no more")
	_, _, ok = board.arrive(uidOf("h", 0), "m")
	require.False(t, ok, "nor does one on another node")
}

func TestAPodThatIsPinnedAnewEndsTheOldBatch(t *testing.T) {
	board := newBoard()
	b, old := batchOf("g", 2, "n")
	board.put(b)
	c, _ := batchOf("g", 2, "m")
	board.put(c)
	require.Len(t, old.ends, 2)
	at, ok := board.get(uidOf("g", 1))
	require.True(t, ok)
	require.Equal(t, "m", at.node())
}

func TestFewPodsEnterUnpinned(t *testing.T) {
	board := newBoard()
	n := 0
	for i := range 100 {
		if board.enters(uidOf("g", i)) {
			n++
		}
	}
	require.Equal(t, maxProbes, n)
	require.True(t, board.begin())
	require.False(t, board.begin())
	require.False(t, board.enters("x"))
	b, _ := batchOf("h", 1, "n")
	board.put(b)
	require.True(t, board.enters(uidOf("h", 0)))
}

// TestEachPodEndsOnce lets pods arrive, fail, bind and time out at random, at the same
// time, and holds that each is told of once, and that none passes before all arrived.
func TestEachPodEndsOnce(t *testing.T) {
	for seed := range uint64(200) {
		board := newBoard()
		rng := rand.New(rand.NewPCG(seed, 3))
		n := 1 + rng.IntN(6)
		b, o := batchOf("g", n, "n")
		board.put(b)
		fails := rng.IntN(3) == 0
		who := rng.IntN(n)
		var all sync.WaitGroup
		var mu sync.Mutex
		arrived, passed := 0, make(chan types.UID, n)
		for i := range n {
			all.Go(func() {
				if fails && i == who {
					board.fail(uidOf("g", i), errLate, func(types.UID) {})
					return
				}
				mu.Lock()
				arrived++
				others, last, _ := board.arrive(uidOf("g", i), "n")
				seen := arrived
				mu.Unlock()
				if last {
					require.Equal(t, n, seen)
					for _, uid := range append(others, uidOf("g", i)) {
						passed <- uid
					}
				}
			})
		}
		all.Wait()
		close(passed)
		for uid := range passed {
			board.finish(uid, nil)
		}
		require.Len(t, o.ends, n, "seed %d", seed)
		for i, ends := range o.ends { // each on its own, so order cannot matter
			require.Len(t, ends, 1, "pod %d of seed %d", i, seed)
		}
		require.Empty(t, board.pins)
	}
}
