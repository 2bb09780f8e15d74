package lease

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// Revision tells the writes of one key apart: it grows with each. Zero means
// that the key was never written.
type Revision uint64

// Store keeps blobs by key and changes one only if nobody else has meanwhile.
// etcd's mod revision, a Kubernetes resource version or a row's counter can
// stand behind it. leasetest.TestStore checks an implementation.
type Store interface {
	// Load returns what was last swapped in under key, which the caller may
	// change, and its revision; nil and 0 if nothing was.
	Load(ctx context.Context, key string) (data []byte, rev Revision, err error)

	// Swap stores data under key if its revision is old, and returns the new
	// revision. If it is another, the error is ErrConflict and nothing changes.
	// It does not keep data.
	Swap(ctx context.Context, key string, old Revision, data []byte) (Revision, error)
}

// Save stores the whole table under key if what is there still has the revision
// old, the one that Load or the last Save returned. ErrConflict means that
// another scheduler has taken over: its tokens are newer, so stop. With an error
// it returns old, for another try; a store that failed may still have stored the
// table, and then that try is ErrConflict.
func (t *Table) Save(ctx context.Context, s Store, key string, old Revision) (Revision, error) {
	var data bytes.Buffer
	if err := t.Snapshot(&data); err != nil {
		return old, err
	}
	rev, err := s.Swap(ctx, key, old, data.Bytes())
	if err != nil {
		return old, fmt.Errorf("lease: save: %w", err)
	}
	return rev, nil
}

// Load returns the table saved under key and its revision, for the next Save. A
// key that was never saved is ErrUnknown: start with New and revision 0.
func Load(ctx context.Context, s Store, key string) (*Table, Revision, error) {
	data, rev, err := s.Load(ctx, key)
	if err != nil {
		return nil, 0, fmt.Errorf("lease: load: %w", err)
	}
	if rev == 0 {
		return nil, 0, fault(lockstep.ErrUnknown, "load", "key", strconv.Quote(key), "was never saved")
	}
	t, err := Restore(bytes.NewReader(data))
	if err != nil {
		return nil, 0, err
	}
	return t, rev, nil
}

// Memory is a Store in memory, for tests and for hosts that need no restart. The
// zero Memory is empty and ready. It is not safe for concurrent use.
type Memory struct {
	blobs map[string]blob
}

type blob struct {
	data []byte
	rev  Revision
}

// Load implements Store.
func (m *Memory) Load(ctx context.Context, key string) ([]byte, Revision, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	b := m.blobs[key]
	return bytes.Clone(b.data), b.rev, nil
}

// Swap implements Store.
func (m *Memory) Swap(ctx context.Context, key string, old Revision, data []byte) (Revision, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if have := m.blobs[key].rev; have != old {
		return 0, fault(lockstep.ErrConflict, "swap", "old", strconv.FormatUint(uint64(old), 10), "revision is "+strconv.FormatUint(uint64(have), 10))
	}
	if m.blobs == nil {
		m.blobs = make(map[string]blob)
	}
	// The copy is not nil even if data is, so that Load tells empty from absent.
	m.blobs[key] = blob{data: append([]byte{}, data...), rev: old + 1}
	return old + 1, nil
}
