package cudalog

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// TestFaultsNameTheFieldAndTheCallersPlace: which of several fields it is, and where in the caller's list.
func TestFaultsNameTheFieldAndTheCallersPlace(t *testing.T) {
	l := new(Log)
	require.NoError(t, l.Append(Record{Op: Create, Kind: Context, Handle: 1}))
	for want, r := range map[string]Record{ // each by itself
		"Device = 3":     {Op: Set, Kind: Context, Handle: 1, Device: 3},
		"Size = 0x5":     {Op: Set, Kind: Context, Handle: 1, Size: 5},
		"Addr = 0x4":     {Op: Set, Kind: Context, Handle: 1, Addr: 4},
		"Uses = 1":       {Op: Refuse, Kind: Context, Uses: []Handle{1}},
		"Handle = 7":     {Op: Refuse, Kind: Context, Handle: 7},
		"Uses[63] = 0":   {Op: Set, Kind: Context, Handle: 1, Uses: append(repeat(1, 63), 0)},
		"Handle = 18446": {Op: Destroy, Kind: Context, Handle: math.MaxUint64},
	} {
		err := l.Append(r)
		require.ErrorContains(t, err, want)
		require.Equal(t, 1, l.Len())
	}
	_, err := Reserve([]Allocation{{1, 1 << 30, 1, 0}, {2, 0, 1, 0}, {3, 1 << 31, 1, 0}}, Granule, nil)
	require.ErrorContains(t, err, "memory[1] = 0x0 + 0x1")
	_, err = Reserve([]Allocation{{1, 1 << 30, 9, 0}, {2, 1 << 29, 1, 0}, {3, 1<<30 + 8, 1, 0}}, Granule, nil)
	require.ErrorContains(t, err, "memory[2] = 0x40000008")
	_, err = Reserve([]Allocation{{1, 1<<30 + 8, 9, 0}, {2, 1 << 30, 1, 1}}, Granule, nil)
	require.ErrorContains(t, err, "memory[0] = 0x40000008")
	_, err = Reserve(nil, Granule, []Range{{1, 1}, {2, math.MaxUint64}})
	require.ErrorContains(t, err, "taken[1]")
}

func repeat(h Handle, n int) (out []Handle) {
	for range n {
		out = append(out, h)
	}
	return out
}

// TestNoPlanAtAddressZero: to ask for that is to ask for any address, so that the driver would choose another.
func TestNoPlanAtAddressZero(t *testing.T) {
	_, err := Reserve([]Allocation{{1, Granule - 1, 1, 0}}, Granule, nil)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	_, err = Reserve([]Allocation{{1, Granule, 1, 0}}, Granule, nil)
	require.NoError(t, err)
}

// TestLastHandleAndLastByte: the ends of what fits.
func TestLastHandleAndLastByte(t *testing.T) {
	l := new(Log)
	require.NoError(t, l.Append(Record{Op: Create, Kind: Memory, Handle: 1, Addr: MaxAddr - 1, Size: 1}))
	require.NoError(t, l.Append(Record{Op: Create, Kind: Memory, Handle: 2, Addr: 1, Size: MaxAddr - 2}))
	require.NoError(t, l.Append(Record{Op: Create, Kind: Kind(255), Handle: math.MaxUint64, Args: make([]byte, MaxArgs), Uses: repeat(1, MaxUses)}))
	require.ErrorIs(t, l.Append(Record{Op: Create, Kind: Stream, Handle: math.MaxUint64}), lockstep.ErrDuplicate)
	a, ok := l.Find(MaxAddr - 1)
	require.True(t, ok)
	require.EqualValues(t, 1, a.Handle)
	_, ok = l.Find(MaxAddr)
	require.False(t, ok)
	_, ok = l.Find(math.MaxUint64)
	require.False(t, ok)
	require.Len(t, l.Memory(), 2)
	_, err := Reserve(l.Memory(), 1, nil)
	require.NoError(t, err)
	var b bytes.Buffer
	_, err = l.WriteTo(&b)
	require.NoError(t, err)
	back, whole, err := Read(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	require.EqualValues(t, b.Len(), whole)
	require.Equal(t, l.records, back.records)
}

// TestReadingStopsWhereAWriterDied at any length that a header can claim.
func TestReadingStopsWhereAWriterDied(t *testing.T) {
	whole := AppendRecord(AppendHeader(nil), &Record{Op: Create, Kind: Context, Handle: 1})
	for _, tail := range [][]byte{{1}, {0xff, 0xff, 0x0f, 0}, {0xff, 0xff, 0x0f, 0, 1, 2, 3, 4}, {0xff, 0xff, 0x0f, 0, 1, 2, 3, 4, 5}} {
		l, n, err := Read(bytes.NewReader(append(bytes.Clone(whole), tail...)))
		require.NoError(t, err)
		require.EqualValues(t, len(whole), n)
		require.Equal(t, 1, l.Len())
	}
	for _, tail := range [][]byte{{0, 0, 0, 0, 0, 0, 0, 0}, {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}} {
		l, _, err := Read(bytes.NewReader(append(bytes.Clone(whole), tail...)))
		require.ErrorIs(t, err, checkpoint.ErrCorrupt)
		require.Nil(t, l)
	}
}

// TestCompactingOnTheWay: a log that is compacted after each few records ends as one that is compacted once, and takes
// the same records.
func TestCompactingOnTheWay(t *testing.T) {
	runs := uint64(400)
	if testing.Short() {
		runs = 40
	}
	for seed := range runs {
		r := rand.New(rand.NewPCG(seed, 7))
		whole := history(t, r, 40)
		often := new(Log)
		for _, rec := range whole.records {
			require.NoError(t, often.Append(rec), "seed %d", seed)
			if r.IntN(4) == 0 {
				often.Compact()
			}
		}
		often.Compact()
		before, after := newDriver(), newDriver()
		require.NoError(t, whole.Replay(before.do))
		require.NoError(t, often.Replay(after.do), "seed %d", seed)
		require.Equal(t, before.world(), after.world(), "seed %d", seed)
		require.Equal(t, whole.Memory(), often.Memory())
		whole.Compact()
		require.Equal(t, whole.records, often.records, "seed %d", seed)
	}
}

// TestAReplayThatFailsTellsWhere and may be made again.
func TestAReplayThatFailsTellsWhere(t *testing.T) {
	l := history(t, rand.New(rand.NewPCG(1, 8)), 20)
	boom := &lockstep.Error{Kind: lockstep.ErrConflict, Op: "driver", Reason: "out of memory"}
	n := 0
	err := l.Replay(func(*Record, func(Handle) uint64) (uint64, error) {
		if n++; n == 5 {
			return 0, boom
		}
		return 1, nil
	})
	require.ErrorIs(t, err, lockstep.ErrConflict)
	require.ErrorContains(t, err, "record 4:")
	require.Equal(t, 5, n)
	require.NoError(t, l.Replay(newDriver().do))
}

// TestHandlesThatAreForgotten: a log remembers the greatest handle over a Compact, but not when it is written and read.
func TestHandlesThatAreForgotten(t *testing.T) {
	l := new(Log)
	require.NoError(t, l.Append(Record{Op: Create, Kind: Context, Handle: 1}))
	require.NoError(t, l.Append(Record{Op: Create, Kind: Stream, Handle: 5, Owner: 1}))
	require.NoError(t, l.Append(Record{Op: Destroy, Kind: Stream, Handle: 5}))
	require.Equal(t, 2, l.Compact())
	require.ErrorIs(t, l.Append(Record{Op: Create, Kind: Stream, Handle: 4}), lockstep.ErrDuplicate)
	require.ErrorContains(t, l.Append(Record{Op: Set, Kind: Stream, Handle: 5}), "is gone")
	var b bytes.Buffer
	_, err := l.WriteTo(&b)
	require.NoError(t, err)
	back, _, err := Read(&b)
	require.NoError(t, err)
	require.ErrorContains(t, back.Append(Record{Op: Set, Kind: Stream, Handle: 5}), "was never made")
	require.NoError(t, back.Append(Record{Op: Create, Kind: Stream, Handle: 6}))
}
