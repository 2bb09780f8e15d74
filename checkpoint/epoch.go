package checkpoint

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Epoch numbers the checkpoints of one job, from 1; a number is used once.
type Epoch uint64

// Term is the fencing token of a job's leader (a lease.Token): it grows with
// each leader.
type Term uint64

// Digest is the SHA-256 or BLAKE3 sum that names a rank's image in its store.
type Digest [32]byte

// RankImage says where one rank's part of an epoch is.
type RankImage struct {
	Rank  int            `json:"rank"`  // Rank is the rank in the job, from 0.
	Image Digest         `json:"image"` // Image is the sum of the rank's manifest.
	Bytes lockstep.Bytes `json:"bytes"` // Bytes is the length of the streams, before deduplication.
	Step  uint64         `json:"step"`  // Step is the training step at which the rank stopped.
	Took  time.Duration  `json:"took"`  // Took is how long the save took, for grace contracts.
}

// Manifest is a whole epoch: that it can be read is what "committed" means.
type Manifest struct {
	Job   lockstep.JobID `json:"job"`   // Job is whose checkpoint it is.
	Epoch Epoch          `json:"epoch"` // Epoch is its number.
	Term  Term           `json:"term"`  // Term is the leader's that committed it.
	Step  uint64         `json:"step"`  // Step is the training step of all ranks.
	Ranks []RankImage    `json:"ranks"` // Ranks has every rank of the job once, sorted by rank.
}

// Validate says all that is wrong with m, or nil; nil is no manifest.
func (m *Manifest) Validate() error {
	if m == nil {
		return fault(lockstep.ErrInvalid, "manifest", "m", "nil", "there is none")
	}
	var list []error
	bad := func(field, value, reason string) {
		list = append(list, fault(lockstep.ErrInvalid, "manifest", field, value, reason))
	}
	if err := m.Job.Validate(); err != nil {
		list = append(list, err)
	}
	if m.Epoch == 0 {
		bad("Epoch", "0", "epochs count from 1")
	}
	if len(m.Ranks) == 0 {
		bad("Ranks", "[]", "want every rank of the job")
	}
	for i := range m.Ranks {
		r, at := &m.Ranks[i], "Ranks["+strconv.Itoa(i)+"]"
		if r.Rank != i {
			bad(at+".Rank", strconv.Itoa(r.Rank), "want every rank once, sorted, from 0")
		}
		if r.Bytes < 0 {
			bad(at+".Bytes", strconv.FormatInt(int64(r.Bytes), 10), "want 0 or more")
		}
		if r.Took < 0 {
			bad(at+".Took", r.Took.String(), "want 0 or more")
		}
		if r.Step != m.Step {
			bad(at+".Step", strconv.FormatUint(r.Step, 10), "want "+strconv.FormatUint(m.Step, 10)+", the step of all ranks")
		}
	}
	return errors.Join(list...)
}

// Clone returns a copy that shares nothing with m.
func (m *Manifest) Clone() *Manifest {
	c := *m
	c.Ranks = slices.Clone(m.Ranks)
	return &c
}

// Equal reports whether m and other say the same.
func (m *Manifest) Equal(other *Manifest) bool {
	return m.Job == other.Job && m.Epoch == other.Epoch && m.Term == other.Term && m.Step == other.Step &&
		slices.Equal(m.Ranks, other.Ranks)
}

// Ledger is where epochs are committed. checkpoint/imagestore has one on files;
// checkpointtest.TestLedger checks an implementation.
type Ledger interface {
	// Fence shuts leaders below term out: after it no Commit with a lower term
	// succeeds. A term below one already fenced is ErrFenced.
	Fence(ctx context.Context, job lockstep.JobID, term Term) error

	// Commit makes the epoch durable, all or nothing. The same manifest again
	// is success; another one under the same number is lockstep.ErrConflict; a
	// term below the job's fence is ErrFenced.
	Commit(ctx context.Context, m *Manifest) error

	// Committed returns an epoch, or ok false if it was not committed. Whoever
	// calls it after Fence sees what holds for ever.
	Committed(ctx context.Context, job lockstep.JobID, epoch Epoch) (m *Manifest, ok bool, err error)

	// Latest returns the committed epoch with the greatest number; ok is false
	// if there is none.
	Latest(ctx context.Context, job lockstep.JobID) (m *Manifest, ok bool, err error)
}
