package imagestore

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// Report says what Verify read, and what is damaged.
type Report struct {
	Epochs  int            // Epochs is how many committed epochs there are.
	Images  int            // Images is how many manifests of ranks there are.
	Packs   int            // Packs is how many packs there are.
	Regions int64          // Regions is how many regions are in them.
	Bytes   lockstep.Bytes // Bytes is how long the packs are.
	Damage  []Damage       // Damage is what is wrong, sorted by File, then What; the caller owns it.
}

// Damage is one thing that is wrong with a store.
type Damage struct {
	File string // File is the path below the store's folder.
	What string // What is wrong with it, for people.
}

// verification is one run of Verify.
type verification struct {
	store *Store
	mu    sync.Mutex
	rep   Report
	good  map[regionID]uint32 // regions that are whole, with their length
}

// Verify reads every file that has a place in the store and checks it: packs byte
// by byte, with every region decoded and hashed, all manifests, and that every
// region of every committed epoch is there. Damage is checkpoint.ErrCorrupt, and
// the report tells all of it; other errors are of reading. Regions that are
// damaged are not counted on from then on, so that the next save which has them
// stores them anew.
func (s *Store) Verify(ctx context.Context) (Report, error) {
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	if err := s.hold("verify"); err != nil {
		return Report{}, err
	}
	defer s.drop()
	unguard, err := s.guard(ctx, fileLock, false)
	if err != nil {
		return Report{}, wrap("verify", err)
	}
	defer unguard()
	v := &verification{store: s, good: map[regionID]uint32{}}
	err = v.run(ctx)
	slices.SortFunc(v.rep.Damage, func(a, b Damage) int {
		return strings.Compare(a.File+"\x00"+a.What, b.File+"\x00"+b.What)
	})
	v.rep.Damage = slices.Compact(v.rep.Damage)
	if err == nil && len(v.rep.Damage) > 0 {
		d := v.rep.Damage[0]
		err = fault(checkpoint.ErrCorrupt, "verify", "file", strconv.Quote(d.File), d.What+" ("+strconv.Itoa(len(v.rep.Damage))+" faults in all)")
	}
	return v.rep, wrap("verify", err)
}

func (v *verification) run(ctx context.Context) error {
	if err := v.note(fileFormat, v.store.readFormat()); err != nil {
		return err
	}
	if err := v.store.refresh(); err != nil {
		return err
	}
	if err := v.packs(ctx); err != nil {
		return err
	}
	if err := v.ranks(ctx); err != nil {
		return err
	}
	return v.jobs(ctx)
}

// note takes down damage and returns every other error.
func (v *verification) note(file string, err error) error {
	if err == nil {
		return nil
	}
	what := ""
	var e *lockstep.Error
	var f formatError
	switch {
	case errors.As(err, &e) && (isCorrupt(err) || errors.Is(err, lockstep.ErrInvalid)):
		what = e.Reason
	case errors.As(err, &f):
		what = string(f)
	case missing(err):
		what = "is not there"
	default:
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rep.Damage = append(v.rep.Damage, Damage{File: file, What: what})
	return nil
}

func (v *verification) packs(ctx context.Context) error {
	names, err := v.store.fs.list(dirPacks)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	var first error
	for _, n := range names {
		name, ok := packName(n)
		if !ok {
			continue
		}
		w, err := v.store.worker()
		if err != nil {
			return err
		}
		running.Go(func() {
			defer v.store.release(w)
			err := ctx.Err()
			if err == nil {
				err = v.note(packPath(name), v.pack(w, name))
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = err
			}
		})
	}
	running.Wait()
	return first
}

// pack checks every byte of a pack.
func (v *verification) pack(w *worker, name string) error {
	f, err := v.store.fs.open(packPath(name))
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	head, entries, err := readPack(f, size)
	if err != nil {
		return err
	}
	v.mu.Lock()
	v.rep.Packs++
	v.rep.Bytes += lockstep.Bytes(size)
	v.mu.Unlock()
	if (head.flags&flagSealed != 0) != (v.store.cfg.Sealer != nil) {
		return malformed("is sealed and the store is not, or the other way round")
	}
	var bad error
	for i := range entries {
		e := &entries[i]
		w.plain = grow(w.plain, int(e.raw))
		l := loc{off: e.off, raw: e.raw, stored: e.stored}
		err := w.fetch(f, &l, e.id, w.plain)
		if err == nil {
			v.mu.Lock()
			v.good[e.id] = e.raw
			v.rep.Regions++
			v.mu.Unlock()
			continue
		}
		var fe formatError
		if !errors.As(err, &fe) {
			return err
		}
		v.spoil(name, e)
		bad = corruptAt(packPath(name), e.off, string(fe))
	}
	return bad
}

func (v *verification) spoil(name string, e *entry) {
	x := v.store.index
	x.mu.Lock()
	p := x.packs[name]
	x.mu.Unlock()
	if p != nil {
		x.spoil(e.id, loc{pack: p, off: e.off})
	}
}

func (v *verification) ranks(ctx context.Context) error {
	names, err := v.store.fs.list(dirRanks)
	if err != nil {
		return err
	}
	for _, n := range names {
		d, ok := digestOf(n)
		if !ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := v.store.readRank(d)
		if err := v.note(dirRanks+"/"+n, err); err != nil {
			return err
		}
		v.rep.Images++
	}
	return nil
}

func (v *verification) jobs(ctx context.Context) error {
	jobs, err := v.store.fs.list(dirJobs)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		dir := dirJobs + "/" + j
		files, err := v.store.fs.list(dir)
		if err != nil {
			return err
		}
		for _, n := range files {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := v.note(dir+"/"+n, v.jobFile(dir, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *verification) jobFile(dir, n string) error {
	if n == fileFence {
		_, err := v.store.readFence(dir)
		return err
	}
	epoch, live := epochNumber(n, suffixEpoch)
	gone := false
	if !live {
		if epoch, gone = epochNumber(n, suffixGone); !gone {
			return nil
		}
	}
	data, err := readAll(v.store.fs, dir+"/"+n, v.store.limit())
	if err != nil {
		return err
	}
	m, err := decodeEpoch(data)
	if err != nil {
		return err
	}
	if jobDir(m.Job) != dir || m.Epoch != epoch {
		return malformed("is the manifest of another epoch")
	}
	if gone {
		return nil
	}
	v.rep.Epochs++
	for i := range m.Ranks {
		if err := v.image(m, i); err != nil {
			return err
		}
	}
	return nil
}

// image checks that all of a rank's regions are whole.
func (v *verification) image(m *checkpoint.Manifest, rank int) error {
	d := m.Ranks[rank].Image
	img, err := v.store.openRank(m.Job, m.Epoch, rank)
	if missing(err) || err != nil && v.store.cfg.ForeignImages {
		return nil
	}
	if err != nil {
		return v.note(dirRanks+"/"+hex.EncodeToString(d[:])+suffixRank, err)
	}
	for i := range img.streams {
		for j := range img.streams[i].refs {
			r := &img.streams[i].refs[j]
			if n, ok := v.good[r.id]; !r.zero && (!ok || uint64(n) != r.n) {
				return malformed("a region of rank " + strconv.Itoa(rank) + " is not in the store, or damaged")
			}
		}
	}
	return nil
}
