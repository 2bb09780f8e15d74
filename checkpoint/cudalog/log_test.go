package cudalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// driver is a plain driver: what lives, how each was made, and what whatever it was made from looked like then.
type driver struct {
	next  uint64
	live  map[uint64]*thing
	names map[Handle]uint64
}

type thing struct {
	owner uint64
	made  string
	attrs map[uint64]string
}

func newDriver() *driver { return &driver{live: map[uint64]*thing{}, names: map[Handle]uint64{}} }

// look describes a living thing with its attributes.
func (d *driver) look(h uint64) string {
	x := d.live[h]
	keys := make([]uint64, 0, len(x.attrs))
	for k := range x.attrs {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	s := x.made
	for _, k := range keys {
		s += fmt.Sprintf(" %d=(%s)", k, x.attrs[k])
	}
	return "[" + s + "]"
}

func (d *driver) do(r *Record, real func(Handle) uint64) (uint64, error) {
	uses := ""
	for _, u := range r.Uses {
		if d.live[real(u)] == nil {
			return 0, fmt.Errorf("handle %d is used and not there", u)
		}
		uses += d.look(real(u))
	}
	switch r.Op {
	case Create:
		d.next++
		owner := ""
		if r.Owner != 0 {
			if d.live[real(r.Owner)] == nil {
				return 0, errors.New("the owner is not there")
			}
			owner = d.look(real(r.Owner))
		}
		d.live[d.next] = &thing{real(r.Owner), fmt.Sprintf("%d %d %x %d %q in %s of %s", r.Handle, r.Kind, r.Addr, r.Size, r.Args, owner, uses), map[uint64]string{}}
		d.names[r.Handle] = d.next
		return d.next, nil
	case Set:
		if d.live[real(r.Handle)] == nil {
			return 0, errors.New("what is set is not there")
		}
		d.live[real(r.Handle)].attrs[r.Key] = fmt.Sprintf("%q of %s", r.Args, uses)
	case Destroy:
		if d.live[real(r.Handle)] == nil {
			return 0, errors.New("what is ended is not there")
		}
		d.end(real(r.Handle))
	}
	return 0, nil
}

func (d *driver) end(h uint64) {
	delete(d.live, h)
	for c, x := range d.live { // all that it owned go, so order cannot matter
		if x.owner == h {
			d.end(c)
		}
	}
}

// world describes all that lives by virtual handle.
func (d *driver) world() map[Handle]string {
	out := map[Handle]string{}
	for v, h := range d.names {
		if d.live[h] != nil {
			out[v] = d.look(h)
		}
	}
	return out
}

// history draws a log of n records.
func history(t *testing.T, r *rand.Rand, n int) *Log {
	t.Helper()
	l := new(Log)
	next := Handle(0)
	for i := 0; i < n; i++ {
		var alive []Handle
		for h, o := range l.objects {
			if !o.dead {
				alive = append(alive, h)
			}
		}
		slices.Sort(alive)
		pick := func() Handle { return alive[r.IntN(len(alive))] }
		rec := Record{Op: Create, Args: []byte{byte(i), byte(r.IntN(4))}}
		if len(alive) > 0 {
			switch k := r.IntN(10); {
			case k < 4:
				rec.Op, rec.Handle, rec.Key = Set, pick(), uint64(r.IntN(3))
			case k < 6:
				rec = Record{Op: Destroy, Handle: pick()}
			case r.IntN(2) == 0:
				rec.Owner = pick()
			}
			for rec.Op != Destroy && r.IntN(3) == 0 {
				rec.Uses = append(rec.Uses, pick())
			}
		}
		if rec.Op == Create {
			next += Handle(1 + r.IntN(3))
			rec.Handle, rec.Kind = next, Kind(1+r.IntN(8))
			if rec.Kind == Memory {
				rec.Addr, rec.Size, rec.Device = uint64(1+r.IntN(64))<<12, uint64(1+r.IntN(3))<<12, uint32(r.IntN(2))
				if _, ok := l.overlap(rec.Addr, rec.Size); ok {
					continue
				}
			}
		} else {
			rec.Kind = l.objects[rec.Handle].kind
		}
		require.NoError(t, l.Append(rec))
	}
	return l
}

func TestCompactedLogLeavesTheSameWorld(t *testing.T) {
	runs := 3000
	if testing.Short() {
		runs = 300
	}
	dropped := 0
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := history(t, r, 5+r.IntN(60))
		before := newDriver()
		require.NoError(t, l.Replay(before.do))
		memory := l.Memory()
		dropped += l.Compact()
		require.Zero(t, l.Compact(), "nothing is left to drop")
		after := newDriver()
		require.NoError(t, l.Replay(after.do), "seed %d", seed)
		require.Equal(t, before.world(), after.world(), "seed %d", seed)
		require.Equal(t, memory, l.Memory())

		var b bytes.Buffer
		n, err := l.WriteTo(&b)
		require.NoError(t, err)
		back, whole, err := Read(bytes.NewReader(b.Bytes()))
		require.NoError(t, err)
		require.Equal(t, n, whole)
		again := newDriver()
		require.NoError(t, back.Replay(again.do))
		require.Equal(t, before.world(), again.world())
		require.Equal(t, memory, back.Memory())
	}
	require.Greater(t, dropped, runs*5)
}

func TestEveryRecordThatIsKeptIsNeeded(t *testing.T) {
	// Without any one of them the replay fails or leaves another world.
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		l := history(t, r, 30)
		l.Compact()
		whole := newDriver()
		require.NoError(t, l.Replay(whole.do))
		for i := range l.records {
			if l.records[i].Op == Destroy {
				continue // its owner may go later and take it along
			}
			less := Log{records: slices.Delete(slices.Clone(l.records), i, i+1)}
			d := newDriver()
			if err := less.Replay(d.do); err == nil {
				require.NotEqual(t, whole.world(), d.world(), "seed %d record %d %+v", seed, i, l.records[i])
			}
		}
	}
}

func TestMemoryStaysFlat(t *testing.T) {
	l := new(Log)
	require.NoError(t, l.Append(Record{Op: Create, Kind: Context, Handle: 1}))
	for h := Handle(2); h < 50_000; h++ {
		require.NoError(t, l.Append(Record{Op: Create, Kind: Memory, Handle: h, Owner: 1, Addr: 4096, Size: 4096}))
		require.NoError(t, l.Append(Record{Op: Destroy, Kind: Memory, Handle: h}))
		if h%1000 == 0 {
			l.Compact()
		}
	}
	l.Compact()
	require.Equal(t, 1, l.Len())
	require.Len(t, l.objects, 1)
	require.Empty(t, l.objects[1].owned)
}

func TestFind(t *testing.T) {
	l := new(Log)
	_, ok := l.Find(5)
	require.False(t, ok)
	require.NoError(t, l.Append(Record{Op: Create, Kind: Memory, Handle: 1, Addr: 4096, Size: 100}))
	for addr, want := range map[uint64]bool{0: false, 4095: false, 4096: true, 4195: true, 4196: false, 1 << 60: false} { // each by itself
		_, ok := l.Find(addr)
		require.Equal(t, want, ok, addr)
	}
	require.NoError(t, l.Append(Record{Op: Destroy, Kind: Memory, Handle: 1}))
	_, ok = l.Find(4096)
	require.False(t, ok)
}

func TestRefusalsStopAReplay(t *testing.T) {
	l := new(Log)
	require.NoError(t, l.Append(Record{Op: Refuse, Kind: Memory, Args: []byte("managed memory")}))
	require.NoError(t, l.Append(Record{Op: Refuse, Kind: Memory, Args: []byte("managed memory")}))
	require.NoError(t, l.Append(Record{Op: Refuse, Kind: Event, Args: []byte("IPC")}))
	require.Equal(t, []string{"IPC", "managed memory"}, l.Limits())
	require.Zero(t, l.Compact())
	calls := 0
	err := l.Replay(func(*Record, func(Handle) uint64) (uint64, error) { calls++; return 0, nil })
	require.ErrorIs(t, err, lockstep.ErrConflict)
	require.Zero(t, calls)
}

func TestBadRecordsChangeNothing(t *testing.T) {
	l := new(Log)
	require.NoError(t, l.Append(Record{Op: Create, Kind: Context, Handle: 1}))
	require.NoError(t, l.Append(Record{Op: Create, Kind: Stream, Handle: 2, Owner: 1}))
	require.NoError(t, l.Append(Record{Op: Create, Kind: Memory, Handle: 3, Owner: 1, Addr: 4096, Size: 4096}))
	require.NoError(t, l.Append(Record{Op: Destroy, Kind: Stream, Handle: 2}))
	var before bytes.Buffer
	_, err := l.WriteTo(&before)
	require.NoError(t, err)
	for name, c := range map[string]struct { // each by itself
		r    Record
		kind error
		want string
	}{
		"op":            {Record{Op: 9, Kind: Stream, Handle: 4}, lockstep.ErrInvalid, "Op = 9"},
		"kind":          {Record{Op: Create, Handle: 4}, lockstep.ErrInvalid, "Kind = 0"},
		"kind between":  {Record{Op: Create, Kind: 20, Handle: 4}, lockstep.ErrInvalid, "Kind = 20"},
		"handle 0":      {Record{Op: Create, Kind: Stream}, lockstep.ErrInvalid, "Handle = 0"},
		"again":         {Record{Op: Create, Kind: Stream, Handle: 2}, lockstep.ErrDuplicate, "Handle = 2"},
		"dead":          {Record{Op: Set, Kind: Stream, Handle: 2}, lockstep.ErrUnknown, "Handle = 2: is gone"},
		"never":         {Record{Op: Destroy, Kind: Stream, Handle: 9}, lockstep.ErrUnknown, "Handle = 9: was never made"},
		"other kind":    {Record{Op: Destroy, Kind: Stream, Handle: 1}, lockstep.ErrInvalid, "the object is of kind 1"},
		"owner":         {Record{Op: Create, Kind: Stream, Handle: 4, Owner: 2}, lockstep.ErrUnknown, "Owner = 2"},
		"owner of set":  {Record{Op: Set, Kind: Context, Handle: 1, Owner: 1}, lockstep.ErrInvalid, "Owner = 1"},
		"key":           {Record{Op: Destroy, Kind: Context, Handle: 1, Key: 3}, lockstep.ErrInvalid, "Key = 3"},
		"uses":          {Record{Op: Create, Kind: Stream, Handle: 4, Uses: []Handle{1, 2}}, lockstep.ErrUnknown, "Uses[1] = 2"},
		"uses itself":   {Record{Op: Create, Kind: Stream, Handle: 4, Uses: []Handle{4}}, lockstep.ErrUnknown, "Uses[0] = 4"},
		"destroy uses":  {Record{Op: Destroy, Kind: Context, Handle: 1, Uses: []Handle{1}}, lockstep.ErrInvalid, "Uses"},
		"many uses":     {Record{Op: Create, Kind: Stream, Handle: 4, Uses: make([]Handle, 65)}, lockstep.ErrInvalid, "Uses = 65"},
		"long":          {Record{Op: Create, Kind: Stream, Handle: 4, Args: make([]byte, MaxArgs+1)}, lockstep.ErrInvalid, "Args"},
		"overlap":       {Record{Op: Create, Kind: Memory, Handle: 4, Addr: 4000, Size: 100}, lockstep.ErrConflict, "overlaps object 3"},
		"around":        {Record{Op: Create, Kind: Memory, Handle: 4, Addr: 1, Size: 1 << 20}, lockstep.ErrConflict, "overlaps object 3"},
		"no size":       {Record{Op: Create, Kind: Memory, Handle: 4, Addr: 1}, lockstep.ErrInvalid, "Addr = 0x1 + 0x0"},
		"past the end":  {Record{Op: Create, Kind: Memory, Handle: 4, Addr: MaxAddr, Size: 1}, lockstep.ErrInvalid, "Addr"},
		"overflow":      {Record{Op: Create, Kind: Memory, Handle: 4, Addr: 1, Size: 1<<64 - 1}, lockstep.ErrInvalid, "Addr"},
		"address":       {Record{Op: Create, Kind: Stream, Handle: 4, Addr: 5}, lockstep.ErrInvalid, "Addr"},
		"refuse handle": {Record{Op: Refuse, Kind: Stream, Handle: 1}, lockstep.ErrInvalid, "about no object"},
	} {
		err := l.Append(c.r)
		require.ErrorIs(t, err, c.kind, name)
		require.ErrorContains(t, err, c.want, name)
		var after bytes.Buffer
		_, err = l.WriteTo(&after)
		require.NoError(t, err)
		require.Equal(t, before.Bytes(), after.Bytes(), name)
	}
}

func TestTornTailIsCutAndDamageIsFound(t *testing.T) {
	l := history(t, rand.New(rand.NewPCG(1, 3)), 12)
	var b bytes.Buffer
	_, err := l.WriteTo(&b)
	require.NoError(t, err)
	data := b.Bytes()
	ends := map[int64]bool{int64(len(header)): true}
	whole := AppendHeader(nil)
	for i := range l.records {
		whole = AppendRecord(whole, &l.records[i])
		ends[int64(len(whole))] = true
	}
	for cut := range data {
		back, at, err := Read(bytes.NewReader(data[:cut]))
		if cut < len(header) {
			require.ErrorIs(t, err, checkpoint.ErrCorrupt)
			continue
		}
		require.NoError(t, err)
		require.True(t, ends[at] && at <= int64(cut))
		again, _, err := Read(bytes.NewReader(data[:at]))
		require.NoError(t, err)
		require.Equal(t, back.records, again.records)
	}
	for i := range data {
		for bit := range 8 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			_, at, err := Read(bytes.NewReader(bad))
			// A length that grew beyond the end looks like a torn tail, and then all behind it is missing.
			require.True(t, errors.Is(err, checkpoint.ErrCorrupt) || err == nil && at < int64(len(data)), "byte %d bit %d: %v", i, bit, err)
		}
	}
	_, _, err = Read(iotest.ErrReader(io.ErrClosedPipe))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	_, _, err = Read(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(io.ErrClosedPipe)))
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestReserveAgainstEveryGranule(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 4))
		const granule = 8
		var memory []Allocation
		for i := range 1 + r.IntN(6) {
			memory = append(memory, Allocation{Handle(i + 1), uint64(1 + r.IntN(80)), uint64(1 + r.IntN(20)), uint32(r.IntN(2))})
		}
		taken := []Range{{uint64(r.IntN(100)), uint64(r.IntN(3))}}
		plan, err := Reserve(memory, granule, taken)

		// By the byte.
		owner := map[uint64]Allocation{}
		granules := map[uint64]uint32{}
		bad := false
		for _, a := range memory {
			for b := a.Addr; b < a.Addr+a.Size; b++ {
				if _, ok := owner[b]; ok {
					bad = true
				}
				owner[b] = a
				if d, ok := granules[b/granule]; ok && d != a.Device {
					bad = true
				}
				granules[b/granule] = a.Device
				bad = bad || b < granule
			}
		}
		for b := taken[0].Addr; b < taken[0].end(); b++ {
			if _, ok := granules[b/granule]; ok {
				bad = true
			}
		}
		if bad {
			require.ErrorIs(t, err, lockstep.ErrConflict, "seed %d", seed)
			continue
		}
		require.NoError(t, err, "seed %d", seed)
		held := map[Handle]bool{}
		mapped := map[uint64]uint32{}
		for i, res := range plan {
			at := res.Addr
			for _, m := range res.Maps {
				require.Equal(t, at, m.Addr, "maps fill the range")
				at = m.end()
				for g := m.Addr / granule; g < m.end()/granule; g++ {
					mapped[g] = m.Device
				}
				for _, h := range m.Holds {
					held[h] = true
				}
			}
			require.Equal(t, res.end(), at)
			require.True(t, i == 0 || plan[i-1].end() < res.Addr, "no two touch")
		}
		require.Equal(t, granules, mapped)
		require.Len(t, held, len(memory))
	}
}

func TestReserveBadInput(t *testing.T) {
	for _, g := range []uint64{0, 3, 1 << 60} {
		_, err := Reserve(nil, g, nil)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err := Reserve([]Allocation{{1, 0, 1, 0}}, 1, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Reserve([]Allocation{{1, MaxAddr, 1, 0}}, 1, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Reserve(nil, 1, []Range{{1<<64 - 1, 5}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, al := range []uint64{0, 3} {
		_, err = Active(Allocation{1, 1, 1, 0}, nil, al)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err = Active(Allocation{}, nil, 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Active(Allocation{1, 1, 1, 0}, []Range{{5, 1<<64 - 1}}, 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestActiveAgainstEveryByte(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 5))
		a := Allocation{1, uint64(10 + r.IntN(50)), uint64(1 + r.IntN(60)), 0}
		align := uint64(1) << r.IntN(4)
		var used []Range
		want := map[uint64]bool{}
		for range r.IntN(5) {
			u := Range{uint64(r.IntN(130)), uint64(r.IntN(20))}
			used = append(used, u)
			for b := u.Addr; b < u.end(); b++ {
				if b >= a.Addr && b < a.Addr+a.Size {
					g := (b - a.Addr) / align * align
					for o := g; o < min(g+align, a.Size); o++ {
						want[o] = true
					}
				}
			}
		}
		parts, err := Active(a, used, align)
		require.NoError(t, err)
		got := map[uint64]bool{}
		for i, p := range parts {
			require.Positive(t, p.Size)
			require.True(t, i == 0 || parts[i-1].end() < p.Addr)
			for o := p.Addr; o < p.end(); o++ {
				got[o] = true
			}
		}
		require.Equal(t, want, got)
	}
}

func FuzzRead(f *testing.F) {
	for seed := range uint64(5) {
		var b bytes.Buffer
		l := new(Log)
		r := rand.New(rand.NewPCG(seed, 6))
		require.NoError(f, l.Append(Record{Op: Create, Kind: Context, Handle: 1, Args: []byte{byte(r.IntN(9))}}))
		require.NoError(f, l.Append(Record{Op: Create, Kind: Memory, Handle: 5, Owner: 1, Addr: 4096 << seed, Size: 77}))
		require.NoError(f, l.Append(Record{Op: Set, Kind: Context, Handle: 1, Key: seed, Uses: []Handle{5}}))
		_, err := l.WriteTo(&b)
		require.NoError(f, err)
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, whole, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		_, err = l.WriteTo(&b)
		require.NoError(t, err)
		require.Equal(t, data[:whole], b.Bytes(), "one form only")
		l.Compact()
	})
}
