package imagestore

import (
	"io"
	"io/fs"
	"sync"
)

// reader reads one stream in order, and some regions ahead.
type reader struct {
	image *Image
	refs  []ref
	slots []slot // ring of regions under way, by place in refs
	ahead int    // how many of refs were started
	next  int    // which of refs comes next
	cur   []byte // what is left of the region before next
	zero  uint64 // zeros left before next
	err   error

	closed  bool
	running sync.WaitGroup
}

// slot holds a region that is being read.
type slot struct {
	buf  []byte
	err  error
	done chan struct{}
}

func newReader(m *Image, s *stream) *reader {
	r := &reader{image: m, refs: s.refs, slots: make([]slot, m.store.cfg.Workers+1)}
	for i := range r.slots {
		r.slots[i].done = make(chan struct{}, 1)
	}
	return r
}

// start starts as many regions as there are slots. The one before next has been
// read, so its slot is free.
func (r *reader) start() {
	for r.ahead < len(r.refs) && r.ahead < r.next+len(r.slots) {
		ref, s := &r.refs[r.ahead], &r.slots[r.ahead%len(r.slots)]
		r.ahead++
		if ref.zero {
			continue
		}
		r.running.Go(func() {
			w, err := r.image.store.worker()
			if err == nil {
				s.buf = grow(s.buf, int(ref.n))
				err = r.image.fetch(w, ref, s.buf)
				r.image.store.release(w)
			}
			s.err = err
			s.done <- struct{}{}
		})
	}
}

// advance makes the next region the current one; at the end it is io.EOF.
func (r *reader) advance() error {
	if r.err != nil {
		return r.err
	}
	if r.closed {
		return wrap("image", fs.ErrClosed)
	}
	r.start()
	if r.next == len(r.refs) {
		return io.EOF
	}
	ref := &r.refs[r.next]
	i := r.next % len(r.slots)
	r.next++
	if ref.zero {
		r.zero = ref.n
		return nil
	}
	<-r.slots[i].done
	if err := r.slots[i].err; err != nil {
		r.err = wrap("image", err)
		return r.err
	}
	r.cur = r.slots[i].buf
	return nil
}

// Read implements io.Reader. What it returns is verified.
func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.cur) == 0 && r.zero == 0 {
		if err := r.advance(); err != nil {
			return 0, err
		}
	}
	if r.zero > 0 {
		n := int(min(uint64(len(p)), r.zero))
		clear(p[:n])
		r.zero -= uint64(n)
		return n, nil
	}
	n := copy(p, r.cur)
	r.cur = r.cur[n:]
	return n, nil
}

// WriteTo implements io.WriterTo.
func (r *reader) WriteTo(w io.Writer) (total int64, err error) {
	for {
		if r.zero > 0 {
			n := r.zero
			if err := writeZeros(w, n); err != nil {
				return total, err
			}
			r.zero = 0
			total += int64(n)
		}
		if len(r.cur) > 0 {
			n, err := w.Write(r.cur)
			total += int64(n)
			r.cur = r.cur[n:]
			if err != nil {
				return total, err
			}
		}
		if err := r.advance(); err != nil {
			if err == io.EOF { //nolint:errorlint // advance returns it as it is
				err = nil
			}
			return total, err
		}
	}
}

// Close ends reading and waits for what was read ahead.
func (r *reader) Close() error {
	if r.closed {
		return wrap("image", fs.ErrClosed)
	}
	r.closed = true
	r.cur, r.zero = nil, 0
	r.running.Wait()
	r.image.stop()
	return nil
}
