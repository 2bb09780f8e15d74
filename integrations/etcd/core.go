package etcd

import (
	"context"
	"encoding/json"
	"io"

	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// Scheduler recovers the journal as that of a scheduler, bit for bit as it was when
// the latest record was flushed, and adds to the journal whatever it takes from now
// on: call Commit before carrying out what it decides. A leader's journal that is
// new gets a snapshot at once, by which the cluster is known. The Config's Log is
// called too, for new entries only.
//
// The Config is the one that the journal was written under: its inputs are decided
// upon anew. Another Tree or Rule than the snapshot's is lockstep.ErrConflict, and so
// is anything else that is not as it was (but for Nodes, and for what has no JSON,
// such as Policy and Quota, which nobody can compare) as long as there are records
// behind the snapshot: take a Snapshot under the old one, and behind Rebase. A
// snapshot or an entry that the scheduler does not take is ErrCorrupt. A scheduler
// of an earlier call must not be used any more.
func (j *Journal) Scheduler(ctx context.Context, cfg scheduler.Config) (*scheduler.Scheduler, error) {
	log, live := cfg.Log, false
	cfg.Log = func(e scheduler.Entry) {
		if !live { // it is being replayed
			return
		}
		j.add(e.Seq, e)
		if log != nil {
			log(e)
		}
	}
	var s *scheduler.Scheduler
	restore := func(r io.Reader) (err error) {
		if r == nil {
			s, err = scheduler.New(cfg)
			return err
		}
		s, err = scheduler.Restore(cfg, r)
		return err
	}
	replay := func(r Record) error {
		var e scheduler.Entry
		if err := strict(r.Data, &e); err != nil {
			return j.broken(r.Seq, err)
		}
		// What went wrong then goes wrong again; it is the same as long as it was taken.
		if _, err := s.Replay(e); err != nil && s.Seq() != r.Seq {
			return j.broken(r.Seq, err)
		}
		return j.taken(r.Seq, s)
	}
	as := cfg
	as.Nodes = nil // they are in the snapshot, and change with the cluster
	if err := j.under(as); err != nil {
		return nil, err
	}
	if err := j.recoverAs(ctx, restore, replay); err != nil {
		return nil, err
	}
	if err := j.begin(ctx, s); err != nil {
		return nil, err
	}
	live = true
	return s, nil
}

// under notes the configuration of a core.
func (j *Journal) under(cfg any) error {
	data, err := json.Marshal(cfg)
	if err != nil {
		return failed("recover", err)
	}
	j.config = sumText(data)
	return nil
}

// begin takes the snapshot of a core whose journal is new, or was begun by somebody
// who died before that.
func (j *Journal) begin(ctx context.Context, c Core) error {
	if j.leader == nil || j.head.Seq != 0 || j.head.Snapshot != nil {
		return nil
	}
	return j.Snapshot(ctx, c)
}

// Ledger is Scheduler for a fairness ledger that is used by itself.
func (j *Journal) Ledger(ctx context.Context, cfg fairness.Config) (*fairness.Ledger, error) {
	log, live := cfg.Log, false
	cfg.Log = func(e fairness.Event) {
		if !live {
			return
		}
		j.add(e.Seq, e)
		if log != nil {
			log(e)
		}
	}
	var l *fairness.Ledger
	restore := func(r io.Reader) (err error) {
		if r == nil {
			l, err = fairness.New(cfg)
			return err
		}
		l, err = fairness.Restore(cfg, r)
		return err
	}
	replay := func(r Record) error {
		var e fairness.Event
		if err := strict(r.Data, &e); err != nil {
			return j.broken(r.Seq, err)
		}
		if err := l.Apply(e); err != nil {
			return j.broken(r.Seq, err)
		}
		return j.taken(r.Seq, l)
	}
	if err := j.under(cfg); err != nil {
		return nil, err
	}
	if err := j.recoverAs(ctx, restore, replay); err != nil {
		return nil, err
	}
	if err := j.begin(ctx, l); err != nil {
		return nil, err
	}
	live = true
	return l, nil
}

// add takes an entry from a core's log, which has nowhere to put an error: the next
// Flush returns it.
func (j *Journal) add(seq uint64, entry any) {
	data, err := json.Marshal(entry)
	if err == nil {
		err = j.Add(Record{Seq: seq, Data: data})
	}
	if err != nil && j.fault == nil {
		j.fault = failed("log", err)
	}
}

// taken says whether c has taken the record as its own of that place.
func (j *Journal) taken(seq uint64, c Core) error {
	if c.Seq() != seq {
		return fault(ErrCorrupt, "recover", j.logDir(), seqText(seq), "the record is of another place in the log")
	}
	return nil
}
