package topology

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// TestDecisionsAreTheSameEverywhere pins slots, layouts, closest sets and orders
// over random changes, so that a platform which decides otherwise shows.
func TestDecisionsAreTheSameEverywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	sum := sha256.New()
	c := churn{levels: []Level{{Name: "zone"}, {Name: "rack"}}}
	tree, err := New(c.levels, nil)
	require.NoError(t, err)
	for range 300 {
		tree, err = tree.With(c.change(r), c.change(r))
		require.NoError(t, err)
		fmt.Fprintln(sum, text(t, tree))
	}
	for n := range 20 {
		s := randomShape(r, n+1)
		for k := range s.Devices() {
			set := s.Closest(lockstep.DeviceSet(r.Uint64()), k)
			fmt.Fprintln(sum, set, s.AppendOrder(nil, set))
		}
	}
	require.Equal(t, "f2217d841faf3dc6", fmt.Sprintf("%x", sum.Sum(nil)[:8]))
}
