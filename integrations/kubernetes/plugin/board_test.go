package plugin

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
	list := make([]*corev1.Binding, n)
	for i := range list {
		list[i] = &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(gang, i), UID: uidOf(gang, i)},
			Target:     corev1.ObjectReference{Name: node},
		}
	}
	return newBatch(gang, list, time.Hour, o.done), o
}

func uidOf(gang string, i int) types.UID { return types.UID(fmt.Sprint(gang, "/", i)) }

func quiet(pin) {}

func TestABatchPassesWithItsLastPod(t *testing.T) {
	board := newBoard(quiet)
	b, o := batchOf("g", 3, "n")
	board.put(b)
	for i := range 2 {
		_, last, ok := board.arrive(pin{b, i}, i == 0)
		require.True(t, ok)
		require.False(t, last)
	}
	_, last, ok := board.arrive(pin{b, 1}, false)
	require.True(t, ok)
	require.False(t, last, "one that comes again does not count twice")
	others, last, ok := board.arrive(pin{b, 2}, true)
	require.True(t, ok && last)
	require.Equal(t, []types.UID{uidOf("g", 0)}, others, "who waits in Permit is let go")
	<-b.settled

	board.finish(pin{b, 0}, nil)
	refused := errors.New("refused")
	board.finish(pin{b, 1}, refused)
	board.fail(pin{b, 1}, refused) // it is over
	board.finish(pin{b, 2}, nil)
	board.finish(pin{b, 2}, nil)
	require.Equal(t, map[int][]error{0: {nil}, 1: {refused}, 2: {nil}}, o.ends)
	require.Empty(t, board.pins)
}

func TestOneThatFailsEndsItsBatch(t *testing.T) {
	var rejected []pin
	board := newBoard(func(p pin) { rejected = append(rejected, p) })
	b, o := batchOf("g", 4, "n")
	other, untouched := batchOf("h", 1, "n")
	board.put(b)
	board.put(other)
	board.arrive(pin{b, 0}, true)
	board.arrive(pin{b, 3}, false)
	cause := errors.New("cause")
	board.fail(pin{b, 1}, cause)
	require.Equal(t, []pin{{b, 0}}, rejected)
	<-b.settled
	require.False(t, board.passes(pin{b, 3}))
	require.Equal(t, map[int][]error{0: {cause}, 1: {cause}, 2: {cause}, 3: {cause}}, o.ends)
	require.Empty(t, untouched.ends)
	_, _, ok := board.arrive(pin{b, 2}, false)
	require.False(t, ok, "its pods pass no more")
	require.True(t, board.holds(pin{other, 0}))
}

func TestAPodThatIsPinnedAnewEndsTheOldBatch(t *testing.T) {
	board := newBoard(quiet)
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
	board := newBoard(quiet)
	n := 0
	for i := range 100 {
		if board.enters(uidOf("g", i), false) {
			n++
		}
	}
	require.Equal(t, maxProbes, n)
	require.True(t, board.begin())
	require.False(t, board.begin())
	require.False(t, board.enters("x", false))
	b, _ := batchOf("h", 1, "n")
	board.put(b)
	require.True(t, board.enters(uidOf("h", 0), false))
}

// TestEachPodEndsOnce lets pods arrive, fail, bind and time out at random, at the same
// time, and holds that each is told of once, and that none passes before all arrived.
func TestEachPodEndsOnce(t *testing.T) {
	for seed := range uint64(200) {
		board := newBoard(quiet)
		rng := rand.New(rand.NewPCG(seed, 3))
		n := 1 + rng.IntN(6)
		b, o := batchOf("g", n, "n")
		board.put(b)
		fails := rng.IntN(3) == 0
		who := rng.IntN(n)
		var all sync.WaitGroup
		var arrived atomic.Int32
		for i := range n {
			all.Go(func() {
				if fails && i == who {
					board.fail(pin{b, i}, errLate)
					return
				}
				arrived.Add(1)
				board.arrive(pin{b, i}, i%2 == 0)
				<-b.settled
				if board.passes(pin{b, i}) {
					assert.Equal(t, int32(n), arrived.Load())
					board.finish(pin{b, i}, nil)
				}
			})
		}
		all.Wait()
		require.Len(t, o.ends, n, "seed %d", seed)
		for i, ends := range o.ends { // each on its own, so order cannot matter
			require.Len(t, ends, 1, "pod %d of seed %d", i, seed)
		}
		require.Empty(t, board.pins)
	}
}

// TestOnlyOneOfTwoBatchesHasAPod pins the same pods twice at the same time, and has both
// batches run out: whatever happens, each pod of each batch ends once.
func TestOnlyOneOfTwoBatchesHasAPod(t *testing.T) {
	for range 300 {
		board := newBoard(quiet)
		var all sync.WaitGroup
		var outcomes []*outcome
		for range 3 {
			b, o := batchOf("g", 4, "n")
			b.limit = 200 * time.Microsecond
			outcomes = append(outcomes, o)
			all.Go(func() { board.put(b) })
		}
		all.Wait()
		for _, o := range outcomes {
			require.Eventually(t, func() bool {
				o.mu.Lock()
				defer o.mu.Unlock()
				return len(o.ends) == 4
			}, 10*time.Second, time.Millisecond)
			for _, ends := range o.ends { // each on its own, so order cannot matter
				require.Len(t, ends, 1)
			}
		}
		require.Empty(t, board.pins)
	}
}

func TestAPodThatIsTwiceInABatchFailsIt(t *testing.T) {
	board := newBoard(quiet)
	b, o := batchOf("g", 3, "n")
	b.items[2].binding = b.items[0].binding
	board.put(b)
	require.Len(t, o.ends, 3)
	require.Empty(t, board.pins)
	<-b.settled
}

func TestNothingIsPinnedAfterTheEnd(t *testing.T) {
	board := newBoard(quiet)
	b, before := batchOf("g", 2, "n")
	c, passing := batchOf("h", 1, "n")
	board.put(b)
	board.put(c)
	board.arrive(pin{c, 0}, false)
	board.shut(errClosed)
	require.Len(t, before.ends, 2)
	require.Empty(t, passing.ends, "what was begun goes on")
	board.finish(pin{c, 0}, nil)
	require.Equal(t, map[int][]error{0: {nil}}, passing.ends)
	d, after := batchOf("g", 2, "n")
	board.put(d)
	require.Equal(t, map[int][]error{0: {errClosed}, 1: {errClosed}}, after.ends)
	require.Empty(t, board.pins)
}
