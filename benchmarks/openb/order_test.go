package main

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The numbers are those of Python 3.11.
func TestMersenneIsPythons(t *testing.T) {
	m := newMersenne(42)
	require.Equal(t, []uint32{2746317213, 478163327, 107420369}, []uint32{m.word(), m.word(), m.word()})

	m = newMersenne(42)
	v := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	m.shuffle(v)
	require.Equal(t, []int{7, 3, 2, 8, 5, 6, 9, 4, 0, 1}, v)
	for _, want := range []int{604, 432, 32, 30, 95} {
		require.Equal(t, want, m.below(1000))
	}
}

func TestArrivalsAreTheJudges(t *testing.T) {
	tr, l := readDefault(t)
	var names []string
	for _, i := range l.arrivals(42, tr.capacity, 130) {
		names = append(names, l.tasks[i].name)
	}
	require.Len(t, names, 10850)
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	require.Equal(t, "176c7285a863bcd4286313bd702fe46f63f03ecbd9fcf23e1c5cd2c6062c03f5", hex.EncodeToString(sum[:]))
}

// readDefault reads the trace and its default list, or skips where there is none.
func readDefault(t *testing.T) (*trace, *list) {
	dir, ok := findTraces()
	if !ok {
		t.Skip("the trace openb is not at ../shared/traces/openb beside the repository")
	}
	tr, err := readTrace(dir)
	require.NoError(t, err)
	l, err := readList(dir, "default", tr)
	require.NoError(t, err)
	return tr, l
}
