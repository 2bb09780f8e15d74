package imagestore

import "errors"

// worker hashes, codes and decodes regions. There are Config.Workers of them.
type worker struct {
	store  *Store
	coder  *coder
	out    []byte // a frame: head and coded region
	plain  []byte // a region that is only checked
	opened []byte // a frame's payload, no longer sealed
	framed []byte // a frame as it was read
}

// worker waits for a free worker.
func (s *Store) worker() (*worker, error) {
	w := <-s.slots
	if w != nil {
		return w, nil
	}
	c, err := newCoder(s.cfg.Level)
	if err != nil {
		s.slots <- nil
		return nil, err
	}
	return &worker{store: s, coder: c, out: make([]byte, frameLen, 1<<18)}, nil
}

func (s *Store) release(w *worker) { s.slots <- w }

// keep writes a region, unless it is there, and returns its identity.
func (w *worker) keep(p *packer, b []byte, width int, st *counts) (regionID, error) {
	id := w.store.hash.sum(b)
	if w.store.index.claim(id, len(b), p) {
		st.reused += int64(len(b))
		return id, nil
	}
	fr := frame{entry: entry{id: id, raw: uint32(len(b))}}
	var head, payload []byte
	payload = b
	kind, out := w.coder.encode(w.out[:frameLen], b, width)
	if kind != codecRaw {
		w.out, head, payload = out, out, out[frameLen:]
	}
	fr.codec = kind
	if w.store.cfg.Sealer != nil {
		fr.sealed = true
		sealed, err := w.store.cfg.Sealer.Seal(w.opened[:0], payload, fr.ad())
		if err == nil && (len(sealed) > len(b)+maxSealed || len(sealed) == 0) {
			err = invalid("save", "Sealer", "", "made a frame longer than it may be")
		}
		if err != nil {
			w.store.index.drop(id)
			return id, err
		}
		w.opened, head, payload = sealed, nil, sealed
	}
	fr.stored, fr.sum = uint32(len(payload)), crc(payload)
	err := p.append(&fr, head, payload)
	if err != nil {
		w.store.index.drop(id)
	}
	st.regions++
	st.stored += int64(frameLen + len(payload))
	return id, err
}

// fetch reads a region into dst, which has its length, and checks it against its
// identity.
func (w *worker) fetch(f file, l *loc, id regionID, dst []byte) error {
	n := frameLen + int(l.stored)
	w.framed = grow(w.framed, n)
	if err := readFull(f, w.framed, l.off); err != nil {
		return err
	}
	fr, err := getFrame(w.framed, l.off)
	if err != nil {
		return err
	}
	if fr.id != id || fr.raw != l.raw || fr.stored != l.stored || int(fr.raw) != len(dst) {
		return malformed("a frame is not the one that the index names")
	}
	payload := w.framed[frameLen:]
	if crc(payload) != fr.sum {
		return malformed("a region does not match its checksum")
	}
	return w.unpack(&fr, payload, dst)
}

// unpack turns a payload into the region.
func (w *worker) unpack(fr *frame, payload, dst []byte) error {
	if fr.sealed != (w.store.cfg.Sealer != nil) {
		return malformed("a region is sealed and the store is not, or the other way round")
	}
	if fr.sealed {
		plain, err := w.store.cfg.Sealer.Open(w.opened[:0], payload, fr.ad())
		if err != nil {
			return malformed("a region does not open: " + err.Error())
		}
		w.opened, payload = plain, plain
	}
	if err := w.coder.decode(dst, fr.codec, payload); err != nil {
		return malformed("a region does not decode")
	}
	if w.store.hash.sum(dst) != fr.id {
		return malformed("a region does not have its identity")
	}
	return nil
}

// verify checks a frame that a scan found.
func (w *worker) verify(fr *frame, payload []byte) error {
	w.plain = grow(w.plain, int(fr.raw))
	return w.unpack(fr, payload, w.plain)
}

// errAborted is the error of a save that was ended.
var errAborted = errors.New("imagestore: save: is over")
