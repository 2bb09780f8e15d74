package imagestore

import (
	"errors"
	"strings"
	"sync"
)

// packer writes the packs of one save, one at a time.
type packer struct {
	store *Store
	save  *Save    // whose packs they are; nil for Collect, which only copies
	key   string   // begins the names of the packs
	whose packHead // what the heads say

	mu      sync.Mutex
	seq     int
	f       file
	state   *packState
	entries []entry
	at      int64
	done    []*packState // finished ones
	err     error        // after it nothing is written
	head    [frameLen]byte
}

// begin makes the next pack; p.mu is held.
func (p *packer) begin() error {
	h := p.whose
	h.created = p.store.now()
	if p.store.cfg.Sealer != nil {
		h.flags = flagSealed
	}
	name := p.key + "-" + number(p.seq) + "-" + p.store.nonce()
	p.seq++
	f, err := p.store.fs.create(partPath(name))
	if err != nil {
		return full(err, headLen)
	}
	if _, err := f.Write(h.encode()); err != nil {
		return errors.Join(full(err, headLen), f.Close(), p.store.fs.remove(partPath(name)))
	}
	p.f, p.at, p.entries = f, headLen, nil
	p.state = &packState{name: name, head: h, owner: p.save}
	return nil
}

// append writes a frame. head is the room before the payload if both lie side by
// side, nil otherwise.
func (p *packer) append(fr *frame, head, payload []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if p.f == nil {
		if err := p.begin(); err != nil {
			p.err = err
			return err
		}
	}
	fr.off = p.at
	var err error
	if head != nil {
		fr.put(head)
		_, err = p.f.Write(head[:frameLen+len(payload)])
	} else {
		fr.put(p.head[:])
		if _, err = p.f.Write(p.head[:]); err == nil {
			_, err = p.f.Write(payload)
		}
	}
	if err != nil {
		p.err = full(err, frameLen+len(payload))
		return p.err
	}
	p.at = fr.end()
	p.entries = append(p.entries, fr.entry)
	if p.save != nil {
		p.store.index.publish(p.state, &fr.entry)
	}
	if p.at >= int64(p.store.cfg.PackBytes) {
		return p.finish()
	}
	return nil
}

// seal finishes the pack that is being written.
func (p *packer) seal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.finish()
}

// finish makes the pack durable under its name; p.mu is held. After a failed
// write, the frames before it are still good and are finished as well.
func (p *packer) finish() error {
	if p.f == nil {
		return nil
	}
	f, state := p.f, p.state
	p.f = nil
	err := p.store.finishPack(f, state.name, &state.head, p.entries, p.at)
	if err == nil && p.save == nil {
		state.sealed = true
		p.store.index.add(state, p.entries)
		return nil
	}
	p.store.index.mu.Lock()
	defer p.store.index.mu.Unlock()
	if err != nil {
		state.damage = err
		if p.err == nil {
			p.err = err
		}
		return err
	}
	state.sealed = true
	p.store.index.packs[state.name] = state
	p.done = append(p.done, state)
	return nil
}

// finishPack writes index and tail behind the frames, syncs, and gives the pack
// its place. Only then may a manifest count on it.
func (s *Store) finishPack(f file, name string, h *packHead, entries []entry, at int64) error {
	err := f.Truncate(at) // what a failed write left
	if err == nil {
		foot := footer(h, entries, at, newHasher(nil).sum)
		_, err = f.Write(foot)
		err = full(err, len(foot))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := s.fs.rename(partPath(name), packPath(name)); err != nil {
		return err
	}
	// The new name first: between the two the pack may have both, never none.
	return errors.Join(s.fs.syncDir(dirPacks), s.fs.syncDir(dirOpen))
}

// discard gives up what was not finished. A pack that another save counts on is
// finished all the same.
func (p *packer) discard() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = errAborted
	}
	if p.f == nil {
		return nil
	}
	x := p.store.index
	x.mu.Lock()
	shared := p.state.shared
	if !shared {
		p.state.gone = true
	}
	x.mu.Unlock()
	if shared {
		return p.finish()
	}
	f := p.f
	p.f = nil
	return errors.Join(f.Close(), p.store.fs.remove(partPath(p.state.name)))
}

// adopt finishes the packs that an interrupted save of the same rank left, as far
// as their frames are whole, and returns how many bytes of them are kept.
func (p *packer) adopt() (kept int64, err error) {
	names, err := p.store.fs.list(dirOpen)
	if err != nil {
		return 0, err
	}
	for _, n := range names {
		name, ok := strings.CutSuffix(n, suffixPart)
		if !ok || !strings.HasPrefix(name, p.key+"-") {
			continue
		}
		k, err := p.adoptOne(name)
		if err != nil {
			return kept, err
		}
		kept += k
	}
	return kept, nil
}

func (p *packer) adoptOne(name string) (int64, error) {
	// A crash may keep both names of a pack. It is finished then, and others may
	// count on it: it must not be written again.
	if there, err := exists(p.store.fs, packPath(name)); err != nil || there {
		if err != nil {
			return 0, err
		}
		return 0, p.store.fs.remove(partPath(name))
	}
	f, err := p.store.fs.reopen(partPath(name))
	if err != nil {
		return 0, err
	}
	size, err := f.Size()
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	w, err := p.store.worker()
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	defer p.store.release(w)
	h, entries, end, err := scanPack(f, size, w.verify)
	var bad formatError
	if len(entries) == 0 && (err == nil || errors.As(err, &bad)) || h.job != p.whose.job {
		return 0, errors.Join(f.Close(), p.store.fs.remove(partPath(name)))
	}
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	if err := p.store.finishPack(f, name, &h, entries, end); err != nil {
		return 0, err
	}
	p.store.index.add(&packState{name: name, head: h, sealed: true}, entries)
	return end, nil
}
