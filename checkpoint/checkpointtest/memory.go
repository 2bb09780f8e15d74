package checkpointtest

import (
	"context"
	"errors"
	"sync"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// ErrPlanned is the error of a call that Ledger was told to fail.
var ErrPlanned = errors.New("checkpointtest: a planned failure")

// Ledger is a checkpoint.Ledger in memory, which forgets when the program ends.
// The zero Ledger is empty and ready.
type Ledger struct {
	// FailCommit, if not nil, is called by each Commit with its number, from
	// 0. A commit that it says is lost does nothing and returns ErrPlanned; one
	// that is unheard is kept and returns ErrPlanned all the same, as a store
	// does whose answer was lost. Set it before the first call.
	FailCommit func(n int) (lost, unheard bool)

	mu      sync.Mutex
	commits int
	jobs    map[lockstep.JobID]*book
}

// book is one job of a Ledger.
type book struct {
	fence  checkpoint.Term
	latest checkpoint.Epoch
	epochs map[checkpoint.Epoch]*checkpoint.Manifest
}

// Fence implements checkpoint.Ledger.
func (l *Ledger) Fence(ctx context.Context, job lockstep.JobID, term checkpoint.Term) error {
	if err := errors.Join(ctx.Err(), job.Validate()); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.book(job)
	if term < b.fence {
		return checkpoint.ErrFenced
	}
	b.fence = term
	return nil
}

// Commit implements checkpoint.Ledger.
func (l *Ledger) Commit(ctx context.Context, m *checkpoint.Manifest) error {
	if err := errors.Join(ctx.Err(), m.Validate()); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var lost, unheard bool
	if l.FailCommit != nil {
		lost, unheard = l.FailCommit(l.commits)
	}
	l.commits++
	if lost {
		return ErrPlanned
	}
	if err := l.book(m.Job).keep(m); err != nil {
		return err
	}
	if unheard {
		return ErrPlanned
	}
	return nil
}

func (b *book) keep(m *checkpoint.Manifest) error {
	if m.Term < b.fence {
		return checkpoint.ErrFenced
	}
	if have, ok := b.epochs[m.Epoch]; ok {
		if !have.Equal(m) {
			return lockstep.ErrConflict
		}
		return nil
	}
	b.epochs[m.Epoch] = m.Clone()
	b.latest = max(b.latest, m.Epoch)
	return nil
}

// Committed implements checkpoint.Ledger.
func (l *Ledger) Committed(ctx context.Context, job lockstep.JobID, epoch checkpoint.Epoch) (*checkpoint.Manifest, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if m, ok := l.book(job).epochs[epoch]; ok {
		return m.Clone(), true, nil
	}
	return nil, false, nil
}

// Latest implements checkpoint.Ledger.
func (l *Ledger) Latest(ctx context.Context, job lockstep.JobID) (*checkpoint.Manifest, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.book(job)
	if b.latest == 0 {
		return nil, false, nil
	}
	return b.epochs[b.latest].Clone(), true, nil
}

// book returns a job's, made on first use; l.mu is held.
func (l *Ledger) book(job lockstep.JobID) *book {
	if l.jobs == nil {
		l.jobs = map[lockstep.JobID]*book{}
	}
	if l.jobs[job] == nil {
		l.jobs[job] = &book{epochs: map[checkpoint.Epoch]*checkpoint.Manifest{}}
	}
	return l.jobs[job]
}
