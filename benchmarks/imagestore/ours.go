package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/imagestore"
)

// levels are ours by name.
var levels = []struct {
	name   string
	level  imagestore.Level
	sealed bool
}{
	{"fastest", imagestore.LevelFastest, false},
	{"fast", imagestore.LevelFast, false},
	{"default", imagestore.LevelDefault, false},
	{"small", imagestore.LevelSmall, false},
	{"default-sealed", imagestore.LevelDefault, true},
}

// aesGCM is the Sealer of the levels that encrypt.
type aesGCM struct{ cipher.AEAD }

func (g aesGCM) Seal(dst, plain, ad []byte) ([]byte, error) {
	var nonce [12]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, err
	}
	return g.AEAD.Seal(append(dst, nonce[:]...), nonce[:], plain, ad), nil
}

func (g aesGCM) Open(dst, sealed, ad []byte) ([]byte, error) {
	if len(sealed) < 12 {
		return nil, errors.New("too short")
	}
	return g.AEAD.Open(dst, sealed[:12], sealed[12:], ad)
}

// child is one run of ours, as a process of its own: save or restore, level,
// store, epoch, folder. With synth, folder, bytes and seed it makes the input, so
// that this process stays small: what the system tells of a child's memory is at
// least what its parent had.
func child(args []string) error {
	if len(args) == 4 && args[0] == "synth" {
		total, err1 := strconv.Atoi(args[2])
		seed, err2 := strconv.ParseUint(args[3], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		return synthesize(args[1], total, seed)
	}
	if len(args) != 5 {
		return fmt.Errorf("child: %d arguments", len(args))
	}
	cfg := imagestore.Config{Dir: args[2]}
	for _, l := range levels {
		if l.name != args[1] {
			continue
		}
		cfg.Level = l.level
		if l.sealed {
			block, err := aes.NewCipher(make([]byte, 32))
			if err != nil {
				return err
			}
			aead, err := cipher.NewGCM(block)
			if err != nil {
				return err
			}
			cfg.Sealer, cfg.IDKey = aesGCM{aead}, &[32]byte{1}
		}
	}
	e, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	s, err := imagestore.Open(cfg)
	if err != nil {
		return err
	}
	if args[0] == "save" {
		err = saveAll(s, checkpoint.Epoch(e), args[4])
	} else {
		err = restoreAll(s, checkpoint.Epoch(e), args[4])
	}
	return errors.Join(err, s.Close())
}

func saveAll(s *imagestore.Store, e checkpoint.Epoch, dir string) error {
	ctx := context.Background()
	m := &checkpoint.Manifest{Job: "bench", Epoch: e, Term: 1}
	buf := make([]byte, 1<<20)
	for r := range ranks {
		v, err := s.Begin(ctx, imagestore.SaveOptions{Job: "bench", Epoch: e, Rank: r})
		if err != nil {
			return err
		}
		for _, name := range []string{"params", "optimizer", "workspace"} {
			err := saveFile(v, filepath.Join(dir, fmt.Sprintf("rank%d", r), name), checkpoint.StreamHint{Shifts: true, Width: widths[name]}, buf)
			if err != nil {
				return errors.Join(err, v.Abort())
			}
		}
		image, err := v.Commit(ctx)
		if err != nil {
			return errors.Join(err, v.Abort())
		}
		m.Ranks = append(m.Ranks, image)
	}
	return s.Commit(ctx, m)
}

func saveFile(v *imagestore.Save, path string, hint checkpoint.StreamHint, buf []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := v.Create(filepath.Base(path), hint)
	if err != nil {
		return err
	}
	// A plain reader, so that the copy goes through buf.
	_, err = io.CopyBuffer(w, struct{ io.Reader }{f}, buf)
	return errors.Join(err, w.Close())
}

func restoreAll(s *imagestore.Store, e checkpoint.Epoch, dir string) error {
	ctx := context.Background()
	for r := range ranks {
		m, err := s.Image(ctx, "bench", e, r)
		if err != nil {
			return err
		}
		at := filepath.Join(dir, fmt.Sprintf("rank%d", r))
		if err := os.MkdirAll(at, 0o700); err != nil {
			return err
		}
		for _, name := range m.Streams() {
			if err := restoreFile(ctx, m, name, filepath.Join(at, name)); err != nil {
				return errors.Join(err, m.Close())
			}
		}
		if err := m.Close(); err != nil {
			return err
		}
	}
	return nil
}

func restoreFile(ctx context.Context, m *imagestore.Image, name, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(m.CopyTo(ctx, name, f), f.Close())
}
