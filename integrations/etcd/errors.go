package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-gpu/lockstep"
)

// The kinds of error that this package adds to those of lockstep.
var (
	// ErrDeposed is the kind of what a leader may not do any more: its lease is over,
	// or another has a higher token. It is lockstep.ErrStale and lockstep.ErrConflict
	// too. Whoever gets it stops at once, drops its state and campaigns again.
	ErrDeposed = fmt.Errorf("deposed (%w, %w)", lockstep.ErrStale, lockstep.ErrConflict)

	// ErrCorrupt is the kind of what is not as it was written, or is missing. It is
	// lockstep.ErrInvalid too. Nothing is skipped: put it back from a backup.
	ErrCorrupt = fmt.Errorf("corrupt (%w)", lockstep.ErrInvalid)
)

func fault(kind error, op, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "etcd: " + op, Field: field, Value: value, Reason: reason}
}

func corrupt(op, key, reason string) error {
	return fault(ErrCorrupt, op, key, "", reason)
}

func failed(op string, err error) error {
	return fmt.Errorf("etcd: %s: %w", op, err)
}

func compacted(err error) bool { return errors.Is(err, rpctypes.ErrCompacted) }

// transient says whether the same request may succeed later. What is not, etcd
// refused, and nothing came of it, but for ErrNoSpace: the request with which etcd
// finds that its space is used up may have been carried out.
func (s *Space) transient(err error) bool {
	if isFault(err) || s.cfg.Client.Ctx().Err() != nil || errors.Is(err, context.Canceled) {
		return false // it is not etcd's word, the client was closed, or the caller has had enough
	}
	if errors.Is(err, rpctypes.ErrTooManyRequests) {
		return true
	}
	var known rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &known) {
		code = known.Code()
	}
	switch code {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.PermissionDenied, codes.Unauthenticated,
		codes.OutOfRange, codes.ResourceExhausted, codes.Unimplemented, codes.DataLoss:
		return false
	}
	return true
}

// silent logs the first of failures in a row after which op is tried again.
func (s *Space) silent(told *bool, op string, err error) {
	if !*told {
		*told = true
		s.cfg.Logger.Warn("etcd does not answer", zap.String("op", op), zap.Error(err))
	}
}

// isFault says whether err is this package's own word and not one of etcd's.
func isFault(err error) bool {
	var own *lockstep.Error
	return errors.As(err, &own)
}
