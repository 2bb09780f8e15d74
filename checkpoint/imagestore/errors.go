package imagestore

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// NoSpaceError says that the store is full. It is checkpoint.ErrNoSpace.
type NoSpaceError struct {
	Need lockstep.Bytes // Need is how many bytes the write that failed still had to store: at least so much has to become free.
	Err  error          // Err is the error of the file system.
}

// Error returns the text of e on one line.
func (e *NoSpaceError) Error() string {
	return "imagestore: save: no space: needs " + strconv.FormatInt(int64(e.Need), 10) + " bytes more: " + e.Err.Error()
}

// Unwrap returns checkpoint.ErrNoSpace and the cause.
func (e *NoSpaceError) Unwrap() []error { return []error{checkpoint.ErrNoSpace, e.Err} }

// full turns an error of the file system that says it is full into a *NoSpaceError.
func full(err error, need int) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &NoSpaceError{Need: lockstep.Bytes(need), Err: err}
	}
	return err
}

func fault(kind error, call, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "imagestore: " + call, Field: field, Value: value, Reason: reason}
}

func invalid(call, field, value, reason string) error {
	return fault(lockstep.ErrInvalid, call, field, value, reason)
}

// corrupt says what is wrong with a file of the store.
func corrupt(file, what string) error {
	return fault(checkpoint.ErrCorrupt, "read", "file", errtext.Quote(file), what)
}

func corruptAt(file string, off int64, what string) error {
	return corrupt(file, fmt.Sprintf("at byte %d: %s", off, what))
}

// wrap adds the call to an error of the file system, which does not name it.
func wrap(call string, err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "imagestore: ") {
		return err
	}
	return fmt.Errorf("imagestore: %s: %w", call, err)
}

// missing says whether err is that of a file which is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// formatError is what a reader of bytes found wrong, before it is known in which
// file. Other errors are of the file system, and say nothing about the contents.
type formatError string

func (e formatError) Error() string { return string(e) }

func malformed(what string) error { return formatError(what) }

// named turns a formatError into the ErrCorrupt of a file.
func named(file string, err error) error {
	var f formatError
	if errors.As(err, &f) {
		return corrupt(file, string(f))
	}
	return err
}

func isCorrupt(err error) bool { return errors.Is(err, checkpoint.ErrCorrupt) }
