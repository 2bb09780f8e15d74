package imagestore

import "sync"

// packState is a pack as this process knows it; the index guards it.
type packState struct {
	name   string // without folder and suffix
	head   packHead
	owner  *Save // who writes it; nil if it was found finished
	sealed bool  // its name is in packs/ and durable
	shared bool  // a save other than the owner's counts on it
	gone   bool  // it is not in the store any more
	damage error // why it cannot be read or was not finished
}

// loc is where a region is. A region that is still being written has no pack.
type loc struct {
	pack   *packState
	writer *packer // who writes it, while there is no pack
	off    int64
	raw    uint32
	stored uint32
	bad    bool // reading it failed
}

func (l *loc) usable() bool { return l.pack != nil && !l.pack.gone && !l.bad && l.pack.damage == nil }

// index knows where regions are. It is a cache: what is true is in the packs.
type index struct {
	mu    sync.Mutex
	cond  *sync.Cond
	at    map[regionID]loc
	more  map[regionID][]loc // further copies, where there are several
	packs map[string]*packState
}

func newIndex() *index {
	x := &index{at: map[regionID]loc{}, more: map[regionID][]loc{}, packs: map[string]*packState{}}
	x.cond = sync.NewCond(&x.mu)
	return x
}

// claim looks a region up for a save: found says that it need not be written. If
// it is not found, the caller has to write it and to say publish or drop.
func (x *index) claim(id regionID, raw int, w *packer) (found bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l, ok := x.at[id]
	if ok && l.pack == nil {
		if l.writer != w {
			w.save.waits = append(w.save.waits, id)
		}
		return true
	}
	if ok && !l.usable() {
		l, ok = x.other(id)
	}
	if ok && l.raw == uint32(raw) && !w.save.tooOld(l.pack) {
		w.save.uses[l.pack] = true
		if l.pack.owner != nil && l.pack.owner != w.save {
			l.pack.shared = true
		}
		return true
	}
	if l, ok := x.at[id]; ok {
		x.more[id] = append(x.more[id], l)
	}
	x.at[id] = loc{writer: w, raw: uint32(raw)}
	return false
}

// other makes a usable copy the first one; x.mu is held.
func (x *index) other(id regionID) (loc, bool) {
	list := x.more[id]
	for i := range list {
		if list[i].usable() {
			l := x.at[id]
			x.at[id], list[i] = list[i], l
			return x.at[id], true
		}
	}
	return loc{}, false
}

// publish says where a claimed region was written.
func (x *index) publish(p *packState, e *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.at[e.id] = loc{pack: p, off: e.off, raw: e.raw, stored: e.stored}
	x.cond.Broadcast()
}

// drop says that a claimed region was not written.
func (x *index) drop(id regionID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.at, id)
	if list := x.more[id]; len(list) > 0 {
		x.at[id] = list[len(list)-1]
		x.more[id] = list[:len(list)-1]
	}
	x.cond.Broadcast()
}

// wait returns the pack of a region that another save was writing, nil if that
// failed.
func (x *index) wait(id regionID, s *Save) *packState {
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		l, ok := x.at[id]
		if !ok || (l.pack != nil && !l.usable()) {
			return nil
		}
		if l.pack != nil {
			s.uses[l.pack] = true
			if l.pack.owner != nil && l.pack.owner != s {
				l.pack.shared = true
			}
			return l.pack
		}
		x.cond.Wait()
	}
}

// add takes the entries of a finished pack in.
func (x *index) add(p *packState, entries []entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.packs[p.name] = p
	for i := range entries {
		e := &entries[i]
		l := loc{pack: p, off: e.off, raw: e.raw, stored: e.stored}
		have, ok := x.at[e.id]
		if ok && (have.pack == nil || have.usable()) {
			x.more[e.id] = append(x.more[e.id], l)
			continue
		}
		x.at[e.id] = l
	}
}

// find returns the copies of a region that can be read.
func (x *index) find(dst []loc, id regionID) []loc {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l, ok := x.at[id]; ok && l.usable() && l.pack.sealed {
		dst = append(dst, l)
	}
	for _, l := range x.more[id] {
		if l.usable() && l.pack.sealed {
			dst = append(dst, l)
		}
	}
	return dst
}

// spoil marks a copy that could not be read, so that nobody counts on it and the
// next save that has the region stores it anew.
func (x *index) spoil(id regionID, bad loc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l, ok := x.at[id]; ok && l.pack == bad.pack && l.off == bad.off {
		l.bad = true
		x.at[id] = l
	}
	for i := range x.more[id] {
		if l := &x.more[id][i]; l.pack == bad.pack && l.off == bad.off {
			l.bad = true
		}
	}
}

// refresh brings the index up to the packs that are there. A pack that cannot be
// read is left out: Verify tells of it, and a reader that needs it.
func (s *Store) refresh() error {
	names, err := s.fs.list(dirPacks)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, n := range names {
		name, ok := packName(n)
		if !ok {
			continue
		}
		there[name] = true
		if err := s.learn(name); err != nil && !missing(err) {
			return err
		}
	}
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, p := range x.packs { // each alone: order cannot matter
		if p.sealed && !there[name] {
			p.gone = true
			delete(x.packs, name)
		}
	}
	return nil
}

// learn reads the index of a pack unless it is known.
func (s *Store) learn(name string) error {
	s.index.mu.Lock()
	_, known := s.index.packs[name]
	s.index.mu.Unlock()
	if known {
		return nil
	}
	h, entries, err := s.readPack(name)
	switch {
	case missing(err):
		return err
	case isCorrupt(err):
		s.index.add(&packState{name: name, sealed: true, damage: err}, nil)
		return nil
	case err != nil:
		return err
	}
	s.index.add(&packState{name: name, head: h, sealed: true}, entries)
	return nil
}

// readPack reads the index of a finished pack.
func (s *Store) readPack(name string) (packHead, []entry, error) {
	path := packPath(name)
	f, err := s.fs.open(path)
	if err != nil {
		return packHead{}, nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return packHead{}, nil, err
	}
	h, entries, err := readPack(f, size)
	return h, entries, named(path, err)
}
