package imagestore

import (
	"errors"
	"io"
	"io/fs"
	"strconv"
	"sync"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Range is a part of a stream.
type Range struct {
	Offset lockstep.Bytes // Offset is where it begins.
	Length lockstep.Bytes // Length is how long it is; positive.
}

// bufBytes is how much of a stream is hashed and coded at a time: one region of
// the largest size or many small ones, so that what is carried over to the next
// buffer is little.
const bufBytes = maxRegion

// Stream is one stream of an image being written. For one goroutine.
type Stream struct {
	save   *Save
	name   string
	width  int
	cut    cutter
	buf    []byte // bufBytes long, n of it filled
	n      int
	pieces []piece
	size   uint64
	active []Range // nil: all of it
	sparse bool

	running sync.WaitGroup
	mu      sync.Mutex
	batches []*batch
	closed  bool
}

// batch is a buffer on its way through a worker; its regions stand in order.
type batch struct {
	refs []ref
}

// Create begins a stream; see checkpoint.ImageWriter. It is cut into regions of
// hint.Region where that is given and contents do not shift, by contents
// otherwise. The result is a *Stream.
func (v *Save) Create(name string, hint checkpoint.StreamHint) (io.WriteCloser, error) {
	s, err := v.create(name, hint)
	if err != nil {
		return nil, err // not a nil *Stream in an interface
	}
	return s, nil
}

// CreateActive begins a stream of which only parts matter, as an allocator knows
// them: sorted, apart, and none empty. The whole stream is written, or passed
// over with Skip; what is outside the ranges is not stored and reads as zero. Each
// range is cut by itself, so that one which moves or grows does not change how
// others are cut.
func (v *Save) CreateActive(name string, hint checkpoint.StreamHint, active []Range) (*Stream, error) {
	end := lockstep.Bytes(0)
	for i, r := range active {
		field := "active[" + strconv.Itoa(i) + "]"
		switch {
		case r.Length <= 0:
			return nil, invalid("save", field+".Length", strconv.FormatInt(int64(r.Length), 10), "must be positive")
		case r.Offset < end:
			return nil, invalid("save", field+".Offset", strconv.FormatInt(int64(r.Offset), 10), "must not be negative or before the end of the range before")
		case r.Offset > 1<<63-1-r.Length:
			return nil, invalid("save", field+".Length", strconv.FormatInt(int64(r.Length), 10), "must end within 2^63 bytes")
		}
		end = r.Offset + r.Length
	}
	s, err := v.create(name, hint)
	if err != nil {
		return nil, err
	}
	s.sparse = true
	s.active = append([]Range(nil), active...)
	return s, nil
}

func (v *Save) create(name string, hint checkpoint.StreamHint) (*Stream, error) {
	if reason := streamNameFault(name); reason != "" {
		return nil, invalid("save", "name", errtext.Quote(name), reason)
	}
	if hint.Region < 0 || hint.Region&(hint.Region-1) != 0 {
		return nil, invalid("save", "hint.Region", strconv.FormatInt(int64(hint.Region), 10), "must be a power of two, or 0")
	}
	if hint.Width < 0 || hint.Width > 64 {
		return nil, invalid("save", "hint.Width", strconv.Itoa(hint.Width), "must be from 0 to 64")
	}
	if err := v.failure(); err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.names[name] {
		return nil, fault(lockstep.ErrDuplicate, "save", "name", errtext.Quote(name), "the image has a stream of this name")
	}
	if len(v.names) >= maxStreams {
		return nil, invalid("save", "name", errtext.Quote(name), "the image has as many streams as it can")
	}
	v.names[name] = true
	v.open++
	s := &Stream{save: v, name: name, width: hint.Width}
	if hint.Region > 0 && !hint.Shifts {
		s.cut = fixedCutter(int(min(max(hint.Region, minRegion), maxRegion)))
	} else {
		s.cut = contentCutter(int(v.store.cfg.Average))
	}
	return s, nil
}

// Write appends to the stream. It keeps nothing of p.
func (s *Stream) Write(p []byte) (int, error) {
	if err := s.ready(len(p)); err != nil {
		return 0, err
	}
	if !s.sparse {
		return len(p), s.fill(p)
	}
	done := 0
	for done < len(p) {
		active, n := s.run(uint64(len(p) - done))
		var err error
		if active {
			err = s.fill(p[done : done+int(n)])
		} else {
			err = s.pass(n)
		}
		if err != nil {
			return done, err
		}
		done += int(n)
	}
	return done, nil
}

// Skip appends n zeros that nobody has to write.
func (s *Stream) Skip(n lockstep.Bytes) error {
	if n < 0 {
		return invalid("save", "n", strconv.FormatInt(int64(n), 10), "must not be negative")
	}
	if err := s.ready(0); err != nil {
		return err
	}
	if s.size+uint64(n) > 1<<63-1 {
		return invalid("save", "n", strconv.FormatInt(int64(n), 10), "makes the stream too long")
	}
	return s.pass(uint64(n))
}

// ready says whether the stream can take n bytes.
func (s *Stream) ready(n int) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return wrap("save", fs.ErrClosed)
	}
	if s.size+uint64(n) > 1<<63-1 {
		return invalid("save", "stream", errtext.Quote(s.name), "is too long")
	}
	return s.save.failure()
}

// run says whether the next bytes are active, and how many of at most n alike
// follow.
func (s *Stream) run(n uint64) (active bool, _ uint64) {
	for len(s.active) > 0 && s.size >= uint64(s.active[0].Offset+s.active[0].Length) {
		s.active = s.active[1:]
	}
	if len(s.active) == 0 {
		return false, n
	}
	r := s.active[0]
	if s.size < uint64(r.Offset) {
		return false, min(n, uint64(r.Offset)-s.size)
	}
	return true, min(n, uint64(r.Offset+r.Length)-s.size)
}

// fill takes bytes in and sends every full buffer on.
func (s *Stream) fill(p []byte) error {
	s.size += uint64(len(p))
	for len(p) > 0 {
		if s.buf == nil {
			s.buf = s.save.store.buffer()
		}
		k := copy(s.buf[s.n:], p)
		s.n += k
		p = p[k:]
		if s.n == len(s.buf) {
			if err := s.send(false); err != nil {
				return err
			}
		}
	}
	return nil
}

// pass adds n zeros, cut off from what is before.
func (s *Stream) pass(n uint64) error {
	if n == 0 {
		return nil
	}
	if err := s.send(true); err != nil {
		return err
	}
	s.size += n
	s.batches = append(s.batches, &batch{refs: []ref{{n: n, zero: true}}})
	s.save.mu.Lock()
	s.save.total.raw += int64(n)
	s.save.total.zero += int64(n)
	s.save.mu.Unlock()
	return nil
}

// send cuts what is in the buffer and hands it to a worker; last says that a
// region ends where the buffer does.
func (s *Stream) send(last bool) error {
	if s.n == 0 {
		return nil
	}
	pieces, covered := s.cut.cut(s.pieces[:0], s.buf[:s.n], last)
	s.pieces = pieces
	full := s.buf
	s.buf = nil
	if rest := s.n - covered; rest > 0 {
		s.buf = s.save.store.buffer()
		copy(s.buf, full[covered:s.n])
	}
	s.n -= covered
	b := &batch{refs: make([]ref, len(pieces))}
	for i, p := range pieces {
		b.refs[i] = ref{n: uint64(p.to - p.from), zero: p.zero}
	}
	s.batches = append(s.batches, b)
	w, err := s.save.store.worker()
	if err != nil {
		return err
	}
	if err := s.save.starts(); err != nil {
		s.save.store.release(w)
		return err
	}
	s.running.Add(1)
	go func() {
		defer s.save.running.Done()
		defer s.running.Done()
		s.process(w, b, full)
		s.save.store.release(w)
		s.save.store.recycle(full)
	}()
	return s.save.failure()
}

// starts counts a batch as under way, unless the save has failed or is over: Abort
// waits for those that were counted.
func (v *Save) starts() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err == nil && v.over {
		return errAborted
	}
	if v.err == nil {
		v.running.Add(1)
	}
	return v.err
}

// process stores the regions of a batch.
func (s *Stream) process(w *worker, b *batch, buf []byte) {
	var st counts
	at := 0
	for i := range b.refs {
		r := &b.refs[i]
		p := buf[at : at+int(r.n)]
		at += int(r.n)
		st.raw += int64(r.n)
		if r.zero {
			st.zero += int64(r.n)
			continue
		}
		id, err := w.keep(s.save.pack, p, s.width, &st)
		if err == nil {
			err = s.save.ctx.Err()
		}
		if err != nil {
			s.save.fail(err)
			break
		}
		r.id = id
	}
	s.save.mu.Lock()
	defer s.save.mu.Unlock()
	t := &s.save.total
	t.raw += st.raw
	t.zero += st.zero
	t.reused += st.reused
	t.stored += st.stored
	t.regions += st.regions
}

// Close ends the stream, which is then part of the image.
func (s *Stream) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return wrap("save", fs.ErrClosed)
	}
	err := s.send(true)
	s.running.Wait()
	if s.buf != nil {
		s.save.store.recycle(s.buf)
		s.buf = nil
	}
	v := s.save
	err = errors.Join(err, v.failure())
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open--
	if err != nil {
		return wrap("save", err)
	}
	v.streams = append(v.streams, s.finish())
	return nil
}

// finish joins the batches. Runs of zeros that touch become one.
func (s *Stream) finish() stream {
	n := 0
	for _, b := range s.batches {
		n += len(b.refs)
	}
	refs := make([]ref, 0, n)
	for _, b := range s.batches {
		for _, r := range b.refs {
			if k := len(refs); r.zero && k > 0 && refs[k-1].zero {
				refs[k-1].n += r.n
				continue
			}
			refs = append(refs, r)
		}
	}
	s.batches = nil
	return stream{name: s.name, size: s.size, width: s.width, sum: listSum(refs), refs: refs}
}

// buffer returns a buffer whose contents do not matter.
func (s *Store) buffer() []byte {
	if b, ok := s.bufs.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, bufBytes)
}

func (s *Store) recycle(b []byte) {
	b = b[:bufBytes]
	s.bufs.Put(&b)
}
