package etcd

import (
	"bytes"
	"context"
	"io"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-gpu/lockstep"
)

// Recover reads the journal as it is at one moment: it calls restore with the
// snapshot, nil if there is none, and then replay with each record behind it, in
// order. Both may begin again from the start, with another restore, where etcd
// compacted what was being read, or did not answer: it goes on trying until ctx ends
// or the leader is deposed. What is missing, changed or out of order is
// ErrCorrupt, and what the functions return is returned. A journal that was written
// under its leader's token, or a later one, in another reign is ErrConflict: tokens
// were lost. After an error the journal is not ready. It may be called again; records
// that were not flushed are dropped.
func (j *Journal) Recover(ctx context.Context, restore func(r io.Reader) error, replay func(r Record) error) error {
	j.config = ""
	return j.recoverAs(ctx, restore, replay)
}

// recoverAs is Recover for a core of which j.config is known.
func (j *Journal) recoverAs(ctx context.Context, restore func(r io.Reader) error, replay func(r Record) error) error {
	const op = "recover"
	j.ready, j.fault, j.pending, j.tried = false, nil, nil, nil
	var theirs error // what the functions returned, which is not etcd's
	first := func(r io.Reader) error { theirs = restore(r); return theirs }
	next := func(r Record) error { theirs = replay(r); return theirs }
	for told := false; ; {
		err := j.recover(ctx, op, first, next)
		switch {
		case err == nil || theirs != nil || ctx.Err() != nil:
			return err
		case compacted(err):
			continue
		case !j.space.transient(err):
			return err
		}
		if j.leader != nil {
			if err := j.leader.Check(); err != nil {
				return err
			}
		}
		j.space.silent(&told, op, err)
		if err := wait(ctx, j.space.pause()); err != nil {
			return failed(op, err)
		}
	}
}

func (j *Journal) recover(ctx context.Context, op string, restore func(r io.Reader) error, replay func(r Record) error) error {
	resp, err := j.space.get(ctx, j.headKey(), 0)
	if err != nil {
		return failed(op, err)
	}
	at := resp.Header.Revision
	j.head, j.rev = head{}, 0
	if len(resp.Kvs) == 1 {
		if _, reason := unframe(headFormat, resp.Kvs[0].Value, &j.head); reason != "" {
			return corrupt(op, j.headKey(), reason)
		}
		j.rev = resp.Kvs[0].ModRevision
	} else if err := j.nothing(ctx, op, at); err != nil {
		return err
	}
	if j.head.Saved > j.head.Seq || (j.head.Saved > 0 && j.head.Snapshot == nil) {
		return corrupt(op, j.headKey(), "does not suit itself")
	}
	if l := j.leader; l != nil && (j.head.Token > l.token || j.head.Token == l.token && j.head.Reign != l.rev) {
		return fault(lockstep.ErrConflict, op, "token", j.leader.token.String(), "the journal was written under "+j.head.Token.String()+": set Config.Floor to what has been seen")
	}
	// Inputs are decided upon anew, which comes out otherwise under another configuration.
	if j.config != "" && j.head.Config != "" && j.config != j.head.Config && j.head.Seq > j.head.Saved {
		return fault(lockstep.ErrConflict, op, "cfg", "", "the records behind the snapshot were made under another configuration: recover under that, take a Snapshot, and then change it")
	}
	if j.head.Snapshot == nil {
		err = restore(nil)
	} else {
		var data []byte
		if data, err = j.space.read(ctx, op, j.snapshotDir(), j.head.Snapshot, at); err == nil {
			err = restore(bytes.NewReader(data))
		}
	}
	if err != nil {
		return err
	}
	if err := j.readLog(ctx, op, at, replay); err != nil {
		return err
	}
	j.ready = true
	return nil
}

// nothing makes sure that a journal without a head is a new one: all that is ever
// written in one is written with its head or behind it.
func (j *Journal) nothing(ctx context.Context, op string, at int64) error {
	resp, err := j.space.get(ctx, j.dir, at, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil {
		return failed(op, err)
	}
	if len(resp.Kvs) > 0 {
		return corrupt(op, j.headKey(), "is missing, while "+string(resp.Kvs[0].Key)+" is there")
	}
	return nil
}

// reading is how far the log was read.
type reading struct {
	at    int64
	seq   uint64 // the latest record read, or the snapshot's
	chain string // the sum of the batch before
}

// readLog reads all batches and holds them to what the head says.
func (j *Journal) readLog(ctx context.Context, op string, at int64, replay func(r Record) error) error {
	r := &reading{at: at, seq: j.head.Saved, chain: j.head.Base}
	end := clientv3.GetPrefixRangeEnd(j.logDir())
	for from := j.logDir(); ; {
		resp, err := j.space.get(ctx, from, at, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return failed(op, err)
		}
		for _, kv := range resp.Kvs {
			if err := j.readBatch(ctx, op, r, string(kv.Key), kv.Value, replay); err != nil {
				return err
			}
			from = string(kv.Key) + "\x00"
		}
		if !resp.More {
			break
		}
	}
	switch {
	case r.seq != j.head.Seq:
		return corrupt(op, j.logDir(), "ends at "+strconv.FormatUint(r.seq, 10)+", want "+strconv.FormatUint(j.head.Seq, 10))
	case r.chain != j.head.Chain:
		return corrupt(op, j.logKey(r.seq), "is another than was written")
	}
	return nil
}

func (j *Journal) readBatch(ctx context.Context, op string, r *reading, key string, raw []byte, replay func(r Record) error) error {
	var b batch
	data, reason := unframe(batchFormat, raw, &b)
	switch {
	case reason != "":
		return corrupt(op, key, reason)
	case key != j.logKey(b.Last):
		return corrupt(op, key, "is the batch of another key")
	case b.First != r.seq+1:
		return corrupt(op, key, "begins at "+strconv.FormatUint(b.First, 10)+", want "+strconv.FormatUint(r.seq+1, 10))
	case b.Prev != r.chain:
		return corrupt(op, key, "follows another batch than the one before it")
	case len(b.Sizes) == 0 || b.Last-b.First != uint64(len(b.Sizes)-1):
		return corrupt(op, key, "has "+strconv.Itoa(len(b.Sizes))+" records")
	case b.Parts != nil && len(data) != 0:
		return corrupt(op, key, "has data beside its parts")
	}
	if b.Parts != nil {
		var err error
		if data, err = j.space.read(ctx, op, j.bulk(b.Last), b.Parts, r.at); err != nil {
			return err
		}
	}
	for i, size := range b.Sizes {
		if size < 0 || size > len(data) {
			return corrupt(op, key, "is shorter than its records")
		}
		if err := replay(Record{Seq: b.First + uint64(i), Data: data[:size:size]}); err != nil {
			return err
		}
		data = data[size:]
	}
	if len(data) != 0 {
		return corrupt(op, key, "is longer than its records")
	}
	r.seq, r.chain = b.Last, sumText(raw)
	return nil
}

// broken is what a record is that its core does not take.
func (j *Journal) broken(seq uint64, err error) error {
	return fault(ErrCorrupt, "recover", j.logDir(), strconv.FormatUint(seq, 10), "the record is not taken: "+err.Error())
}
