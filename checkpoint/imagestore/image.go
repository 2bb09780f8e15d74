package imagestore

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

const pinMagic = "lspinn"

// Image is one rank's image of a committed epoch, open for reading. It is a
// checkpoint.ImageReader, and safe for concurrent use. Until Close, nothing of
// its epoch is collected.
type Image struct {
	store *Store
	m     *rankManifest
	unpin func()

	mu     sync.Mutex
	files  map[string]*packFile
	open   int
	closed bool
}

// packFile is an open pack.
type packFile struct {
	f    file
	uses int
}

// maxFiles is how many packs an image keeps open when nobody reads them.
const maxFiles = 64

// Image opens the image of a rank. An epoch that is not committed, or was
// dropped, or has no such rank, is lockstep.ErrUnknown; what is damaged is
// checkpoint.ErrCorrupt.
func (s *Store) Image(ctx context.Context, job lockstep.JobID, epoch checkpoint.Epoch, rank int) (*Image, error) {
	if err := errors.Join(ctx.Err(), job.Validate()); err != nil {
		return nil, err
	}
	if err := s.hold("image"); err != nil {
		return nil, err
	}
	unpin, err := s.pin(ctx, job, epoch)
	if err != nil {
		s.drop()
		return nil, wrap("image", err)
	}
	m, err := s.openRank(job, epoch, rank)
	if err == nil {
		err = s.refresh()
	}
	if err != nil {
		unpin()
		s.drop()
		return nil, wrap("image", err)
	}
	return &Image{store: s, m: m, unpin: unpin, files: map[string]*packFile{}}, nil
}

// openRank follows the epoch's manifest to the rank's.
func (s *Store) openRank(job lockstep.JobID, epoch checkpoint.Epoch, rank int) (*rankManifest, error) {
	e, err := s.readEpoch(job, epoch, suffixEpoch)
	if missing(err) {
		return nil, fault(lockstep.ErrUnknown, "image", "epoch", strconv.FormatUint(uint64(epoch), 10), "is not committed")
	}
	if err != nil {
		return nil, err
	}
	if rank < 0 || rank >= len(e.Ranks) {
		return nil, fault(lockstep.ErrUnknown, "image", "rank", strconv.Itoa(rank), "the epoch has "+strconv.Itoa(len(e.Ranks))+" ranks")
	}
	r := &e.Ranks[rank]
	m, err := s.readRank(r.Image)
	if missing(err) {
		return nil, corrupt(dirRanks+"/"+hex.EncodeToString(r.Image[:])+suffixRank, "is not there, and a committed epoch names it")
	}
	if err != nil {
		return nil, err
	}
	if m.job != job || m.epoch != epoch || m.rank != rank {
		return nil, corrupt(dirRanks+"/"+hex.EncodeToString(r.Image[:])+suffixRank, "is the image of another rank than the epoch says")
	}
	return m, nil
}

// pin tells Collect, in whatever process, that an epoch is read. Where nothing
// can be written, Collect is kept out altogether.
func (s *Store) pin(ctx context.Context, job lockstep.JobID, epoch checkpoint.Epoch) (func(), error) {
	unguard, err := s.guard(ctx, fileLock, false)
	if err != nil {
		return nil, err
	}
	name := dirPins + "/" + s.nonce() + suffixPin
	b := append([]byte(pinMagic), version)
	b = putText(b, string(job))
	b = seal(binary.AppendUvarint(b, uint64(epoch)))
	f, err := s.fs.create(name)
	if err == nil {
		_, err = f.Write(b)
		err = errors.Join(err, f.Close())
	}
	var unlock func()
	ok := false
	if err == nil {
		unlock, ok, err = s.fs.lock(name, true)
	}
	if err == nil && ok {
		unguard()
		return func() { _ = s.fs.remove(name); unlock() }, nil
	}
	if err == nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || readOnly(err) || errors.Is(err, fs.ErrPermission) {
		return unguard, nil
	}
	unguard()
	return nil, err
}

// Streams implements checkpoint.ImageReader.
func (m *Image) Streams() []string {
	names := make([]string, len(m.m.streams))
	for i := range m.m.streams {
		names[i] = m.m.streams[i].name
	}
	return names
}

// Size returns the length of a stream; ok is false if there is none of the name.
func (m *Image) Size(name string) (n lockstep.Bytes, ok bool) {
	s := m.stream(name)
	if s == nil {
		return 0, false
	}
	return lockstep.Bytes(s.size), true
}

// Options returns what the image was saved with.
func (m *Image) Options() SaveOptions {
	return SaveOptions{Job: m.m.job, Epoch: m.m.epoch, Rank: m.m.rank, Step: m.m.step, Parent: m.m.parent, Meta: maps.Clone(m.m.meta)}
}

func (m *Image) stream(name string) *stream {
	i, ok := slices.BinarySearchFunc(m.m.streams, name, func(s stream, n string) int { return strings.Compare(s.name, n) })
	if !ok {
		return nil
	}
	return &m.m.streams[i]
}

// start counts a stream as open.
func (m *Image) start(name string) (*stream, error) {
	s := m.stream(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, wrap("image", fs.ErrClosed)
	case s == nil:
		return nil, fault(lockstep.ErrUnknown, "image", "name", errtext.Quote(name), "the image has no such stream")
	}
	m.open++
	return s, nil
}

func (m *Image) stop() {
	m.mu.Lock()
	m.open--
	m.mu.Unlock()
}

// Open implements checkpoint.ImageReader. Regions are read ahead, as many as
// there are workers. The reader is also an io.WriterTo, which copies once less. It
// is for one goroutine.
func (m *Image) Open(name string) (io.ReadCloser, error) {
	s, err := m.start(name)
	if err != nil {
		return nil, err
	}
	return newReader(m, s), nil
}

// CopyTo writes a stream to w, in no order and from as many goroutines as there
// are workers; zeros are written as well. After an error, what was written is
// not to be used.
func (m *Image) CopyTo(ctx context.Context, name string, w io.WriterAt) error {
	s, err := m.start(name)
	if err != nil {
		return err
	}
	defer m.stop()
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		first   error
	)
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = err
		}
	}
	failed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return first != nil
	}
	off := int64(0)
	for i := range s.refs {
		r := &s.refs[i]
		at := off
		off += int64(r.n)
		if err := ctx.Err(); err != nil {
			fail(err)
		}
		if failed() {
			break
		}
		if r.zero {
			if err := writeZeros(io.NewOffsetWriter(w, at), r.n); err != nil {
				fail(err)
			}
			continue
		}
		worker, err := m.store.worker()
		if err != nil {
			fail(err)
			break
		}
		running.Go(func() {
			defer m.store.release(worker)
			worker.plain = grow(worker.plain, int(r.n))
			err := m.fetch(worker, r, worker.plain)
			if err == nil {
				_, err = w.WriteAt(worker.plain, at)
			}
			if err != nil {
				fail(err)
			}
		})
	}
	running.Wait()
	return wrap("image", first)
}

// noughts are what writeZeros writes. Immutable.
var noughts = make([]byte, 64<<10)

func writeZeros(w io.Writer, n uint64) error {
	for n > 0 {
		k := min(n, uint64(len(noughts)))
		if _, err := w.Write(noughts[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// fetch reads a region from the first copy that is whole.
func (m *Image) fetch(w *worker, r *ref, dst []byte) error {
	err := m.tryCopies(w, r, dst)
	if err == nil || !errors.Is(err, errMoved) {
		return err
	}
	// Collect has moved it since the index was read.
	if err := m.store.refresh(); err != nil {
		return err
	}
	err = m.tryCopies(w, r, dst)
	if errors.Is(err, errMoved) {
		return corrupt(dirPacks, "no pack has region "+hex.EncodeToString(r.id[:8]))
	}
	return err
}

// errMoved says that a region is not where the index has it.
var errMoved = errors.New("not where it was")

func (m *Image) tryCopies(w *worker, r *ref, dst []byte) error {
	var room [4]loc
	result := errMoved
	for _, l := range m.store.index.find(room[:0], r.id) {
		f, err := m.pack(l.pack.name)
		if missing(err) {
			continue
		}
		if err == nil {
			err = w.fetch(f.f, &l, r.id, dst)
			m.unpack(f)
		}
		if err == nil {
			return nil
		}
		err = named(packPath(l.pack.name), err)
		if isCorrupt(err) {
			m.store.index.spoil(r.id, l)
		}
		result = err
	}
	return result
}

// pack opens a pack, or returns it open.
func (m *Image) pack(name string) (*packFile, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.files[name]; p != nil {
		p.uses++
		return p, nil
	}
	if len(m.files) >= maxFiles {
		for n, p := range m.files { // idle ones are all as good: order does not matter
			if p.uses == 0 {
				_ = p.f.Close()
				delete(m.files, n)
				break
			}
		}
	}
	f, err := m.store.fs.open(packPath(name))
	if err != nil {
		return nil, err
	}
	p := &packFile{f: f, uses: 1}
	m.files[name] = p
	return p, nil
}

func (m *Image) unpack(p *packFile) {
	m.mu.Lock()
	p.uses--
	m.mu.Unlock()
}

// Close closes the image. Streams of it that are open are lockstep.ErrConflict.
func (m *Image) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil
	case m.open > 0:
		return fault(lockstep.ErrConflict, "image", "", "", strconv.Itoa(m.open)+" streams are open")
	}
	m.closed = true
	var err error
	for _, p := range m.files { // all are closed: order does not matter
		err = errors.Join(err, p.f.Close())
	}
	m.unpin()
	m.store.drop()
	return err
}
