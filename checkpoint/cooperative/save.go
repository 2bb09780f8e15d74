package cooperative

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// snapshot saves, unless that was done already, and says what it came to.
func (h *Hook) snapshot(serial, epoch uint64, word string) error {
	place, ok := decodePlace(word)
	switch {
	case !ok:
		return fault(ErrProtocol, "next", "snapshot", word, "is no place")
	case !h.held:
		return h.refuse(serial, wordState)
	case h.cfg.Save == nil:
		return h.refuse(serial, wordNone)
	}
	if s := h.stored; s == nil || s.epoch != epoch || s.place != place || s.step != h.step {
		h.stored = nil
		s, err := h.save(serial, place)
		if err != nil {
			word := wordSave
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
				word = wordSpace
			}
			return h.refuse(serial, word)
		}
		s.epoch = epoch
		h.stored = s
	}
	s := h.stored
	return h.say(coop.Message{Verb: "stored", Args: []string{
		strconv.FormatUint(serial, 10), strconv.FormatUint(s.step, 10), strconv.FormatUint(s.bytes, 10), s.sum, strconv.FormatInt(int64(s.took), 10),
	}})
}

// save writes beside the place and renames, so that there is a whole image there or none.
// What was written is read back for its sum, and is on the disk before it has its name.
func (h *Hook) save(serial uint64, place string) (s *saved, err error) {
	begin := time.Now()
	part := place + ".part"
	_ = os.RemoveAll(part) // of a save that was killed
	defer func() {
		if err != nil {
			_ = os.RemoveAll(part)
		}
	}()
	if err := h.cfg.Save(part, func(done, total uint64) {
		_ = h.say(coop.Numbers("progress", serial, done&(1<<63-1), total&(1<<63-1)))
	}); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(part); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("no regular file was written"))
	}
	if err := os.Chmod(part, 0o600); err != nil { // it holds weights and secrets
		return nil, err
	}
	sum, n, err := seal(part)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(part, place); err != nil {
		return nil, err
	}
	if _, _, err := seal(filepath.Dir(place)); err != nil {
		return nil, err
	}
	return &saved{place: place, step: h.step, bytes: uint64(n), sum: sum, took: time.Since(begin)}, nil
}

// seal sees that a file or folder is on the disk, and returns the SHA-256 and length of a
// file.
func seal(path string) (sum string, n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return "", 0, errors.Join(err, f.Sync())
	}
	hash := sha256.New()
	if n, err = io.Copy(hash, f); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(hash.Sum(nil)), n, f.Sync()
}
