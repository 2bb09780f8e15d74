package etcd

import (
	"context"
	"errors"
	"math"
	"strconv"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lease"
)

// valueFormat is what a stored value's first line says.
const valueFormat = "lockstep/etcd-value"

// value is the description of a stored value. Nonce tells whose it is.
type value struct {
	Nonce string `json:"nonce"`
	Parts *parts `json:"parts,omitempty"` // nil: the data stands behind the description
}

// Store is a lease.Store: blobs by key, each changed only by who knows its latest
// revision and, where it was made for a leader, only while that one leads. Blobs
// longer than Config.Chunk are cut into parts. It is safe for concurrent use.
type Store struct {
	space  *Space
	leader *Leader
}

var _ lease.Store = (*Store)(nil)

// Store returns the stores' keys under the prefix, for writing by l only: every
// Swap is guarded by its token as well as by the revision. A nil l leaves it at the
// revision, which is enough to read, and for tools. With a leader of another space,
// each Swap is ErrInvalid.
func (s *Space) Store(l *Leader) *Store { return &Store{space: s, leader: l} }

func (t *Store) key(key string) string { return t.space.cfg.Prefix + "store/" + escape(key) }
func (t *Store) parts(key string) string {
	return t.space.cfg.Prefix + "store-parts/" + escape(key) + "/"
}

// Load implements lease.Store. The revision is etcd's mod revision of the key. A
// value that is not as it was written, or of which a part is missing, is
// ErrCorrupt.
func (t *Store) Load(ctx context.Context, key string) ([]byte, lease.Revision, error) {
	data, rev, _, err := t.load(ctx, key)
	return data, rev, err
}

// load is Load that also returns the revision of etcd at which it read.
func (t *Store) load(ctx context.Context, key string) (data []byte, rev lease.Revision, at int64, err error) {
	const op = "load"
	for {
		resp, err := t.space.get(ctx, t.key(key), 0)
		if err != nil {
			return nil, 0, 0, failed(op, err)
		}
		if len(resp.Kvs) == 0 {
			return nil, 0, resp.Header.Revision, nil
		}
		data, err := t.decode(ctx, op, key, resp.Kvs[0].Value, resp.Header.Revision)
		if compacted(err) {
			continue // newer parts have replaced these meanwhile
		}
		if err != nil {
			return nil, 0, 0, err
		}
		return data, lease.Revision(resp.Kvs[0].ModRevision), resp.Header.Revision, nil
	}
}

// decode returns the data of a value as it was at revision rev.
func (t *Store) decode(ctx context.Context, op, key string, raw []byte, rev int64) ([]byte, error) {
	var v value
	data, reason := unframe(valueFormat, raw, &v)
	if reason != "" {
		return nil, corrupt(op, t.key(key), reason)
	}
	if v.Parts == nil {
		return append([]byte{}, data...), nil
	}
	if len(data) != 0 {
		return nil, corrupt(op, t.key(key), "has data beside its parts")
	}
	return t.space.read(ctx, op, t.parts(key), v.Parts, rev)
}

// Swap implements lease.Store. Beside ErrConflict for another revision it is
// ErrDeposed where the store's leader leads no longer. Where etcd's answer was lost
// Swap looks whether the data is there; if that is not to be found out either, the
// error is that of etcd or of ctx, and the data may have been stored, or yet be.
func (t *Store) Swap(ctx context.Context, key string, old lease.Revision, data []byte) (lease.Revision, error) {
	const op = "swap"
	if err := ctx.Err(); err != nil {
		return 0, failed(op, err)
	}
	if err := t.space.own(op, t.leader); err != nil {
		return 0, err
	}
	if old > math.MaxInt64 {
		return 0, t.conflict(old)
	}
	v := value{Nonce: generation()}
	small := data
	if len(data) > t.space.cfg.Chunk {
		w := newWriter(ctx, t.parts(key), t.space.cfg.Chunk, func(ctx context.Context, part string, b []byte) error {
			_, err := t.commit(ctx, op, nil, []clientv3.Op{clientv3.OpPut(part, string(b))})
			return err
		})
		_, _ = w.Write(data) // close returns its error
		p, err := w.close()
		if err != nil {
			return 0, err
		}
		v.Parts, small = p, nil
	}
	raw, err := frame(valueFormat, &v, small)
	if err != nil {
		return 0, failed(op, err)
	}
	rev, err := t.swap(ctx, op, key, old, v, string(raw))
	if errors.Is(err, lockstep.ErrConflict) && v.Parts != nil {
		// Only where it is certain that nothing names the parts, now or later; others
		// go with the next Swap.
		_, _ = t.commit(ctx, op, nil, []clientv3.Op{clientv3.OpDelete(t.parts(key)+v.Parts.Gen+"/", clientv3.WithPrefix())})
	}
	return rev, err
}

// swap writes the value, and removes the parts of all others: whoever else is
// about to write some is too late, since the revision is new.
func (t *Store) swap(ctx context.Context, op, key string, old lease.Revision, v value, raw string) (lease.Revision, error) {
	ops := []clientv3.Op{clientv3.OpPut(t.key(key), raw)}
	dir := t.parts(key)
	if v.Parts == nil {
		ops = append(ops, clientv3.OpDelete(dir, clientv3.WithPrefix()))
	} else {
		ops = append(ops, except(dir, v.Parts.Gen)...)
	}
	resp, err := t.commit(ctx, op, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(t.key(key)), "=", int64(old))}, ops)
	switch {
	case err == nil && resp.Succeeded:
		return lease.Revision(resp.Header.Revision), nil
	case err == nil:
		return 0, t.conflict(old)
	case ctx.Err() != nil || !t.space.transient(err) && !errors.Is(err, rpctypes.ErrNoSpace):
		return 0, err
	}
	// The answer is lost, or it is of the request that used up the space, which etcd
	// may carry out and answer with an error. What stands there tells by its nonce whether it is ours.
	now, e := t.space.get(ctx, t.key(key), 0)
	if e == nil && len(now.Kvs) == 1 && string(now.Kvs[0].Value) == raw {
		return lease.Revision(now.Kvs[0].ModRevision), nil
	}
	return 0, err
}

// except returns the operations that delete all generations under dir but gen.
func except(dir, gen string) []clientv3.Op {
	mine := dir + gen + "/"
	return []clientv3.Op{
		clientv3.OpDelete(dir, clientv3.WithRange(mine)),
		clientv3.OpDelete(clientv3.GetPrefixRangeEnd(mine), clientv3.WithRange(clientv3.GetPrefixRangeEnd(dir))),
	}
}

func (t *Store) commit(ctx context.Context, op string, cmps []clientv3.Cmp, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	if t.leader != nil {
		return t.leader.commit(ctx, op, cmps, ops)
	}
	resp, err := t.space.txn(ctx, cmps, ops, nil)
	if err != nil {
		return nil, failed(op, err)
	}
	return resp, nil
}

func (t *Store) conflict(old lease.Revision) error {
	return fault(lockstep.ErrConflict, "swap", "old", strconv.FormatUint(uint64(old), 10), "is not the present revision")
}

// Watch is a driver: it calls see with what is stored under key, nil and 0 for
// nothing, and again whenever that has changed, until ctx ends, which is nil, or
// see returns an error, which is returned. Of changes that follow each other fast
// it may see the last only. Where etcd has compacted what it had to read it reads
// anew, and where etcd cannot be reached it goes on trying; other errors end it.
func (t *Store) Watch(ctx context.Context, key string, see func(data []byte, rev lease.Revision) error) error {
	last, first, told := lease.Revision(0), true, false
	for ctx.Err() == nil {
		data, rev, at, err := t.load(ctx, key)
		if err == nil && (first || rev != last) {
			if err := see(data, rev); err != nil {
				return err
			}
			last, first = rev, false
		}
		if err == nil {
			told = false
			err = t.change(ctx, key, at)
		}
		switch {
		case ctx.Err() != nil:
		case err == nil || compacted(err):
		case !t.space.transient(err):
			return err
		default:
			t.space.silent(&told, "watch", err)
			_ = wait(ctx, t.space.pause()) // the loop asks ctx
		}
	}
	return nil
}

// change returns once key may be another than it was at revision at. That is when it
// was read, not when it was written, of which etcd may have compacted all.
func (t *Store) change(ctx context.Context, key string, at int64) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), t.space.doze())
	defer cancel()
	for event := range t.space.cfg.Client.Watch(ctx, t.key(key), clientv3.WithRev(at+1)) {
		if err := event.Err(); err != nil {
			return err
		}
		if len(event.Events) > 0 {
			return nil
		}
	}
	return nil
}
