package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lease"
)

// The formats of a journal's values.
const (
	headFormat  = "lockstep/etcd-head"
	batchFormat = "lockstep/etcd-batch"
)

// Record is one input of a core, as it was logged.
type Record struct {
	Seq  uint64 // Seq is its place in the log, from 1 and without gaps.
	Data []byte // Data is what the host made of it.
}

// Core is what a journal saves: *scheduler.Scheduler and *fairness.Ledger are such.
type Core interface {
	// Seq returns how many inputs were taken.
	Seq() uint64
	// Snapshot writes the whole state.
	Snapshot(w io.Writer) error
}

// head is the value that says what counts. Everything that changes the journal
// changes it in the same transaction, and so it is switched as one.
type head struct {
	Token    lease.Token `json:"token"`              // who wrote it
	Reign    int64       `json:"reign"`              // the revision at which that reign began
	Seq      uint64      `json:"seq"`                // the latest record
	Chain    string      `json:"chain"`              // the sum of the latest batch, which has that of the one before
	Saved    uint64      `json:"saved"`              // the latest record that is in the snapshot
	Base     string      `json:"base"`               // Chain as it was then
	Snapshot *parts      `json:"snapshot,omitempty"` // nil: none was taken
	Config   string      `json:"config,omitempty"`   // the sum of the configuration under which the records behind the snapshot were made; empty where nobody said
}

// batch is the description of records that were written together. Their bytes
// stand behind it one after the other, or in parts.
type batch struct {
	Token lease.Token `json:"token"`
	First uint64      `json:"first"`
	Last  uint64      `json:"last"`
	Prev  string      `json:"prev"`  // the sum of the batch before, empty for the first ever
	Sizes []int       `json:"sizes"` // of each record
	Parts *parts      `json:"parts,omitempty"`
}

// Journal is a snapshot and the log behind it, under one name. Recover reads it
// and then only its leader can write. It is not safe for concurrent use; the caller
// serializes calls.
type Journal struct {
	space  *Space
	leader *Leader
	dir    string

	config string // the sum of that of the core, empty where it is not known

	ready   bool
	fault   error    // of an entry that could not be added
	pending []Record // added and not flushed
	head    head
	rev     int64     // the mod revision of the head, 0 where there is none
	tried   []attempt // to replace it, whose outcome is not known
}

// Journal returns the journal of that name, for writing by l only; with a nil l it
// can only be read. Names are any text but the empty one. A leader of another space
// is ErrInvalid. Nothing is read before Recover.
func (s *Space) Journal(name string, l *Leader) (*Journal, error) {
	if name == "" {
		return nil, fault(lockstep.ErrInvalid, "journal", "name", `""`, "required")
	}
	if err := s.own("journal", l); err != nil {
		return nil, err
	}
	return &Journal{space: s, leader: l, dir: s.cfg.Prefix + "journal/" + escape(name) + "/"}, nil
}

func (j *Journal) headKey() string           { return j.dir + "head" }
func (j *Journal) logDir() string            { return j.dir + "log/" }
func (j *Journal) logKey(last uint64) string { return j.logDir() + seqText(last) }
func (j *Journal) bulkDir() string           { return j.dir + "bulk/" }
func (j *Journal) bulk(last uint64) string   { return j.bulkDir() + seqText(last) + "/" }
func (j *Journal) snapshotDir() string       { return j.dir + "snapshot/" }
func seqText(seq uint64) string              { return fmt.Sprintf("%020d", seq) }
func sumText(value []byte) string            { sum := sha256.Sum256(value); return hex.EncodeToString(sum[:]) }

// Seq returns the latest record that is safe in etcd, as far as this journal knows.
func (j *Journal) Seq() uint64 { return j.head.Seq }

// Saved returns the latest record that is in the snapshot.
func (j *Journal) Saved() uint64 { return j.head.Saved }

// Pending returns how many records were added and are not flushed.
func (j *Journal) Pending() int { return len(j.pending) }

// Add takes a record for the next Flush and keeps its data; it writes nothing.
// Records follow each other: another Seq than the next is ErrConflict, and so is a
// call before Recover.
func (j *Journal) Add(r Record) error {
	next := j.head.Seq + uint64(len(j.pending)) + 1
	switch {
	case !j.ready:
		return fault(lockstep.ErrConflict, "add", "", "", "recover first")
	case r.Seq != next:
		return fault(lockstep.ErrConflict, "add", "Seq", strconv.FormatUint(r.Seq, 10), "want "+strconv.FormatUint(next, 10))
	case len(r.Data) > maxBlob:
		return fault(lockstep.ErrInvalid, "add", "Data", strconv.Itoa(len(r.Data))+" bytes", "at most "+strconv.Itoa(maxBlob))
	}
	j.pending = append(j.pending, r)
	return nil
}

// Flush writes what was added: as many records as Config.Chunk allows in one
// transaction, in order, so that etcd always holds a prefix of the log. Nil means
// that all of it is safe. While etcd cannot be reached it goes on trying until ctx
// ends or the leader is deposed, and finds out about answers that were lost. After
// an error some records, or all, may be safe; Flush may be called again, unless it
// is ErrDeposed, or ErrConflict for somebody else writing with the same token.
func (j *Journal) Flush(ctx context.Context) error {
	const op = "flush"
	if err := j.writable(op); err != nil {
		return err
	}
	for len(j.pending) > 0 {
		n, size := 1, len(j.pending[0].Data)
		for n < len(j.pending) && size+len(j.pending[n].Data)+perRecord*(n+1) <= j.space.cfg.Chunk {
			size += len(j.pending[n].Data)
			n++
		}
		if err := j.append(ctx, op, j.pending[:n]); err != nil && !errors.Is(err, errOvertaken) {
			return err
		}
		for len(j.pending) > 0 && j.pending[0].Seq <= j.head.Seq {
			j.pending = j.pending[1:]
		}
	}
	j.pending = nil
	return nil
}

// perRecord is more than a record adds to the description of its batch.
const perRecord = 12

// Commit is Flush, and after every Config.Every records a snapshot of c. It is what
// a host calls before it does anything that c decided.
func (j *Journal) Commit(ctx context.Context, c Core) error {
	if err := j.Flush(ctx); err != nil {
		return err
	}
	if j.space.cfg.Every < 0 || j.head.Seq-j.head.Saved < uint64(j.space.cfg.Every) {
		return nil
	}
	return j.Snapshot(ctx, c)
}

func (j *Journal) writable(op string) error {
	switch {
	case !j.ready:
		return fault(lockstep.ErrConflict, op, "", "", "recover first")
	case j.leader == nil:
		return fault(lockstep.ErrConflict, op, "", "", "is for reading only")
	}
	return j.fault
}

// append writes one batch and the head that counts it in.
func (j *Journal) append(ctx context.Context, op string, records []Record) error {
	last := records[len(records)-1].Seq
	b := batch{Token: j.leader.token, First: records[0].Seq, Last: last, Prev: j.head.Chain}
	var data []byte
	for _, r := range records {
		b.Sizes = append(b.Sizes, len(r.Data))
		data = append(data, r.Data...)
	}
	if len(data) > j.space.cfg.Chunk { // one record that is too long by itself
		w := newWriter(ctx, j.bulk(last), j.space.cfg.Chunk, j.put)
		_, _ = w.Write(data) // close returns its error
		p, err := w.close()
		if err != nil {
			return err
		}
		b.Parts, data = p, nil
	}
	raw, err := frame(batchFormat, &b, data)
	if err != nil {
		return failed(op, err)
	}
	h := j.head
	h.Token, h.Reign, h.Seq, h.Chain = j.leader.token, j.leader.rev, last, sumText(raw)
	return j.swing(ctx, op, h, clientv3.OpPut(j.logKey(last), string(raw)))
}

// Snapshot flushes, writes the state of c, and then switches to it in one
// transaction that also removes the log up to it and the snapshot before. C must
// have taken exactly what was added, else it is ErrConflict. Until the switch the
// journal is as before; what a call that failed left goes with the next one.
func (j *Journal) Snapshot(ctx context.Context, c Core) error {
	if err := j.Flush(ctx); err != nil {
		return err
	}
	for {
		// A switch that took place after all has removed the parts that were written since.
		if err := j.snapshot(ctx, "snapshot", c); !errors.Is(err, errOvertaken) {
			return err
		}
	}
}

func (j *Journal) snapshot(ctx context.Context, op string, c Core) error {
	if seq := c.Seq(); seq != j.head.Seq {
		return fault(lockstep.ErrConflict, op, "Seq", strconv.FormatUint(seq, 10), "want "+strconv.FormatUint(j.head.Seq, 10)+": not all of its inputs are in the journal")
	}
	w := newWriter(ctx, j.snapshotDir(), j.space.cfg.Chunk, j.put)
	err := c.Snapshot(w)
	p, e := w.close()
	if e != nil {
		return e
	}
	if err != nil {
		return failed(op, err)
	}
	h := j.head
	h.Token, h.Reign = j.leader.token, j.leader.rev
	h.Saved, h.Base, h.Snapshot = j.head.Seq, j.head.Chain, p
	// Everything in the log is in the snapshot: the ranges say so by the sequence, since
	// that is what makes it right.
	behind := seqText(h.Saved + 1)
	ops := append(except(j.snapshotDir(), p.Gen),
		clientv3.OpDelete(j.logDir(), clientv3.WithRange(j.logDir()+behind)),
		clientv3.OpDelete(j.bulkDir(), clientv3.WithRange(j.bulkDir()+behind)))
	if err := j.swing(ctx, op, h, ops...); err != nil {
		return err
	}
	j.space.cfg.Logger.Info("snapshot", zap.Uint64("seq", h.Saved), zap.Int64("bytes", p.Size), zap.Int("parts", p.Count))
	return nil
}

// put writes a part, which counts only once a head or a batch names it, so that it
// may be written twice. Before the first ever there has to be a head, so that parts
// without one mean that it was lost.
func (j *Journal) put(ctx context.Context, key string, data []byte) error {
	const op = "write"
	if j.rev == 0 {
		if err := j.swing(ctx, op, head{Token: j.leader.token, Reign: j.leader.rev}); err != nil {
			return err
		}
	}
	for told := false; ; {
		_, err := j.leader.commit(ctx, op, nil, []clientv3.Op{clientv3.OpPut(key, string(data))})
		if err == nil || ctx.Err() != nil || !j.space.transient(err) {
			return err
		}
		j.space.silent(&told, op, err)
		if err := wait(ctx, j.space.pause()); err != nil {
			return failed(op, err)
		}
	}
}

// attempt is a head that may have been written, or may yet be.
type attempt struct {
	head head
	raw  []byte
}

// errOvertaken says that an attempt of an earlier call turns out to have been taken
// instead: what was to be written has to be made anew behind it.
var errOvertaken = errors.New("overtaken by an earlier attempt")

// swing writes the new head together with ops, if the head is still the one that
// the journal knows. Of all attempts to replace one head at most one is taken, since
// that changes the revision; so each may be repeated.
func (j *Journal) swing(ctx context.Context, op string, h head, ops ...clientv3.Op) error {
	h.Config = j.config
	raw, err := frame(headFormat, &h, nil)
	if err != nil {
		return failed(op, err)
	}
	j.tried = append(j.tried, attempt{h, raw})
	same := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(j.headKey()), "=", j.rev)}
	ops = append(ops, clientv3.OpPut(j.headKey(), string(raw)))
	for told := false; ; {
		resp, err := j.leader.commit(ctx, op, same, ops)
		if err == nil && resp.Succeeded {
			j.head, j.rev, j.tried = h, resp.Header.Revision, nil
			return nil
		}
		if err != nil {
			if ctx.Err() != nil || !j.space.transient(err) {
				return err
			}
			j.space.silent(&told, op, err)
			if err := wait(ctx, j.space.pause()); err != nil {
				return failed(op, err)
			}
		}
		taken, err := j.settled(ctx, op)
		if err != nil {
			return err
		}
		if taken != nil {
			if bytes.Equal(taken, raw) {
				return nil
			}
			return errOvertaken
		}
	}
}

// settled looks which attempt was taken, where an answer was lost, and returns it;
// nil where the head is still the one before, or cannot be read now. Only this leader
// can write, so that any other head means that something is very wrong.
func (j *Journal) settled(ctx context.Context, op string) ([]byte, error) {
	resp, err := j.space.get(ctx, j.headKey(), 0)
	if err != nil {
		if ctx.Err() != nil || !j.space.transient(err) {
			return nil, failed(op, err)
		}
		return nil, nil
	}
	var have int64
	if len(resp.Kvs) == 1 {
		have = resp.Kvs[0].ModRevision
	}
	if have == j.rev {
		return nil, nil
	}
	for _, a := range j.tried {
		if have != 0 && bytes.Equal(resp.Kvs[0].Value, a.raw) {
			j.head, j.rev, j.tried = a.head, have, nil
			return a.raw, nil
		}
	}
	return nil, fault(lockstep.ErrConflict, op, j.headKey(), "", "was written by somebody else")
}
