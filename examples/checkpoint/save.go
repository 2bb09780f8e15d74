package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/imagestore"
)

// parts are the streams of an image, as they follow each other in the file that a rank writes.
func parts() []struct {
	name string
	size int64
	hint checkpoint.StreamHint
} {
	return []struct {
		name string
		size int64
		hint checkpoint.StreamHint
	}{
		{"state", 16, checkpoint.StreamHint{}},
		{"parameters", 8 * shared, checkpoint.StreamHint{Region: 64 << 10, Width: 8}},
		{"shard", 8 * private, checkpoint.StreamHint{Region: 64 << 10, Width: 8}},
	}
}

// saver has a rank write its file and puts that into the store. It is a checkpoint.Saver.
type saver struct {
	ranks  checkpoint.Saver // has the rank write
	place  func(r checkpoint.SaveRequest) string
	store  *imagestore.Store
	before func(r checkpoint.SaveRequest) // the fault of -fault; nil for none

	mu    sync.Mutex
	stats map[checkpoint.Epoch]imagestore.Stats
}

// Save implements checkpoint.Saver.
func (s *saver) Save(ctx context.Context, r checkpoint.SaveRequest) (checkpoint.RankImage, error) {
	start := time.Now()
	if s.before != nil {
		s.before(r)
	}
	written, err := s.ranks.Save(ctx, r)
	if err != nil {
		return checkpoint.RankImage{}, err
	}
	file := s.place(r)
	defer func() { _ = os.Remove(file) }()
	save, err := s.store.Begin(ctx, imagestore.SaveOptions{Job: r.Job, Epoch: r.Epoch, Rank: r.Rank, Step: written.Step})
	if err != nil {
		return checkpoint.RankImage{}, err
	}
	if err := put(save, file); err != nil {
		return checkpoint.RankImage{}, errors.Join(err, save.Abort())
	}
	image, err := save.Commit(ctx)
	if err != nil {
		return checkpoint.RankImage{}, err
	}
	image.Took = time.Since(start)
	s.count(r.Epoch, save.Stats())
	return image, nil
}

// put writes a rank's file into the streams of an image.
func put(save *imagestore.Save, file string) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for _, p := range parts() {
		w, err := save.Create(p.name, p.hint)
		if err != nil {
			return err
		}
		if _, err := io.CopyN(w, f, p.size); err != nil {
			return errors.Join(err, w.Close())
		}
		if err := w.Close(); err != nil {
			return err
		}
	}
	return nil
}

// count adds up what the saves of an epoch stored.
func (s *saver) count(e checkpoint.Epoch, st imagestore.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.stats[e]
	sum.Raw, sum.Reused, sum.Stored = sum.Raw+st.Raw, sum.Reused+st.Reused, sum.Stored+st.Stored
	s.stats[e] = sum
}

// of returns what an epoch stored.
func (s *saver) of(e checkpoint.Epoch) imagestore.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats[e]
}

// fetch writes the images of an epoch to files from which a job starts, verified on the way, and returns their common
// path.
func fetch(ctx context.Context, store *imagestore.Store, m *checkpoint.Manifest, dir string) (string, error) {
	base := filepath.Join(dir, "resume")
	for _, r := range m.Ranks {
		if err := fetchRank(ctx, store, m.Job, m.Epoch, r.Rank, fmt.Sprintf("%s.%d", base, r.Rank)); err != nil {
			return "", err
		}
	}
	return base, nil
}

func fetchRank(ctx context.Context, store *imagestore.Store, job lockstep.JobID, epoch checkpoint.Epoch, rank int, path string) (err error) {
	image, err := store.Image(ctx, job, epoch, rank)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, p := range parts() {
		r, err := image.Open(p.name)
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, r); err != nil {
			return errors.Join(err, r.Close())
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}
