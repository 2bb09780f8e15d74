package imagestore

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// Collected says what Collect did.
type Collected struct {
	Packs     int            // Packs is how many packs were taken away.
	Rewritten int            // Rewritten is how many of them held live regions, which were copied first.
	Images    int            // Images is how many manifests of ranks were taken away.
	Moved     lockstep.Bytes // Moved is how much was copied.
	Freed     lockstep.Bytes // Freed is how much was removed for good, of what was taken away a Grace ago.
}

const (
	collector   = "collect" // its lock, and how the names of its packs begin
	suffixSaves = ".saves"
	savesMagic  = "lssave"
)

// Collect removes what no committed epoch, no open image and no running save
// needs, in two steps: it takes packs and manifests away, and a Grace later
// removes them for good. Packs of which little is live are copied together first.
// It runs beside saves and restores, in any process; a second Collect at the same
// time is lockstep.ErrConflict. If a manifest that it has to follow cannot be
// read, it changes nothing and returns why.
func (s *Store) Collect(ctx context.Context) (Collected, error) {
	if err := ctx.Err(); err != nil {
		return Collected{}, err
	}
	if err := s.hold("collect"); err != nil {
		return Collected{}, err
	}
	defer s.drop()
	unlock, ok, err := s.fs.lock(dirOpen+"/"+collector+suffixSave, true)
	if err != nil {
		return Collected{}, wrap("collect", err)
	}
	if !ok {
		return Collected{}, fault(lockstep.ErrConflict, "collect", "", "", "somebody is collecting")
	}
	defer unlock()
	c := &collection{store: s, ctx: ctx}
	if err := c.compact(); err != nil {
		return c.done, wrap("collect", full(err, 1))
	}
	return c.done, wrap("collect", c.sweep())
}

// collection is one run of Collect.
type collection struct {
	store *Store
	ctx   context.Context //nolint:containedctx // it lives as long as the call
	done  Collected

	now     int64
	alive   map[string]bool            // saves that are running, by key
	images  map[checkpoint.Digest]bool // manifests that are needed
	live    map[regionID]bool          // regions that are needed; true once a pack was chosen for it
	packs   []*packUse                 // in the order in which they are chosen
	victims map[string]bool            // packs whose live regions were copied
}

// packUse is a pack and what of it is needed.
type packUse struct {
	*packState
	spared  bool
	entries []entry
	keep    []entry // those for which this pack was chosen
	size    int64
	live    int64
}

// look finds out what is needed; the store is locked. Afterwards the answer may be
// too old to remove by, but not to copy by.
func (c *collection) look() error {
	c.now = c.store.now()
	c.images, c.live, c.packs = map[checkpoint.Digest]bool{}, map[regionID]bool{}, nil
	// Packs first: one that comes later belongs to a save that is seen running
	// or to a manifest that is seen.
	if err := c.store.refresh(); err != nil {
		return err
	}
	if err := c.listPacks(); err != nil {
		return err
	}
	if err := c.saves(); err != nil {
		return err
	}
	if err := c.roots(); err != nil {
		return err
	}
	c.choose()
	return c.ctx.Err()
}

func (c *collection) listPacks() error {
	x := c.store.index
	x.mu.Lock()
	var states []*packState
	for _, p := range x.packs { // sorted below
		if p.sealed && !p.gone && p.damage == nil {
			states = append(states, p)
		}
	}
	x.mu.Unlock()
	slices.SortFunc(states, func(a, b *packState) int { return strings.Compare(a.name, b.name) })
	for _, p := range states {
		_, entries, err := c.store.readPack(p.name)
		if isCorrupt(err) {
			continue // Verify tells; nothing is removed that cannot be read
		}
		if err != nil {
			return err
		}
		u := &packUse{packState: p, entries: entries}
		for i := range entries {
			u.size += frameLen + int64(entries[i].stored)
		}
		c.packs = append(c.packs, u)
	}
	return nil
}

// saves finds the running saves and clears away what dead ones locked.
func (c *collection) saves() error {
	c.alive = map[string]bool{}
	return c.eachLock(dirOpen, suffixSave, func(key string) error {
		c.alive[key] = true
		return nil
	})
}

// eachLock calls f for every file of a folder that somebody has locked, and
// removes those that nobody has. Their holders died.
func (c *collection) eachLock(dir, suffix string, f func(name string) error) error {
	names, err := c.store.fs.list(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		name, ok := strings.CutSuffix(n, suffix)
		if !ok || name == collector {
			continue
		}
		unlock, free, err := c.store.fs.lock(dir+"/"+n, true)
		if err != nil {
			return err
		}
		if free {
			err = c.store.fs.remove(dir + "/" + n)
			unlock()
		} else {
			err = f(name)
		}
		if err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// roots marks what committed epochs, open images and young manifests need.
func (c *collection) roots() error {
	jobs, err := c.store.fs.list(dirJobs)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if err := c.markJob(dirJobs + "/" + j); err != nil {
			return err
		}
	}
	if err := c.eachLock(dirPins, suffixPin, c.markPin); err != nil {
		return err
	}
	return c.markYoung()
}

func (c *collection) markJob(dir string) error {
	files, err := c.store.fs.list(dir)
	if err != nil {
		return err
	}
	for _, n := range files {
		if _, ok := epochNumber(n, suffixEpoch); ok {
			if err := c.markEpoch(dir + "/" + n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *collection) markEpoch(path string) error {
	data, err := readAll(c.store.fs, path, c.store.limit())
	if missing(err) {
		return nil // dropped since it was listed
	}
	if err != nil {
		return err
	}
	m, err := decodeEpoch(data)
	if err != nil {
		return named(path, err)
	}
	for i := range m.Ranks {
		if err := c.markImage(m.Ranks[i].Image); err != nil {
			return err
		}
	}
	return nil
}

// markImage marks the regions of a rank's image.
func (c *collection) markImage(d checkpoint.Digest) error {
	if c.images[d] {
		return nil
	}
	m, err := c.store.readRank(d)
	if missing(err) && c.store.cfg.ForeignImages {
		return nil
	}
	if missing(err) {
		return corrupt(dirRanks+"/"+hex.EncodeToString(d[:])+suffixRank, "is not there, and a committed epoch names it")
	}
	if err != nil {
		return err
	}
	c.images[d] = true
	for i := range m.streams {
		for j := range m.streams[i].refs {
			if r := &m.streams[i].refs[j]; !r.zero {
				c.live[r.id] = false
			}
		}
	}
	return c.ctx.Err()
}

// markPin marks an epoch that somebody reads, dropped or not.
func (c *collection) markPin(name string) error {
	path := dirPins + "/" + name + suffixPin
	data, err := readAll(c.store.fs, path, 4<<10)
	if missing(err) {
		return nil // closed since it was listed
	}
	if err != nil {
		return err
	}
	body, err := unseal(data, pinMagic)
	if err != nil {
		return named(path, err)
	}
	d := &decoder{b: body}
	job, epoch := lockstep.JobID(d.text(lockstep.MaxIDLength)), checkpoint.Epoch(d.uvarint())
	if d.err != nil {
		return named(path, d.err)
	}
	file := jobDir(job) + "/" + epochFile(epoch)
	if there, err := exists(c.store.fs, file+suffixEpoch); err != nil || there {
		return err // marked with its job
	}
	return c.markEpoch(file + suffixGone)
}

// markYoung marks manifests whose epoch may still be committed.
func (c *collection) markYoung() error {
	files, err := c.store.fs.list(dirRanks)
	if err != nil {
		return err
	}
	for _, n := range files {
		d, ok := digestOf(n)
		if !ok || c.images[d] {
			continue
		}
		m, err := c.store.readRank(d)
		if missing(err) || isCorrupt(err) {
			continue // nobody can commit it
		}
		if err != nil {
			return err
		}
		if c.young(m.created) {
			if err := c.markImage(d); err != nil {
				return err
			}
		}
	}
	return nil
}

func digestOf(file string) (d checkpoint.Digest, ok bool) {
	s, ok := strings.CutSuffix(file, suffixRank)
	if !ok || len(s) != 2*len(d) {
		return d, false
	}
	_, err := hex.Decode(d[:], []byte(s))
	return d, err == nil
}

// young says whether something is within its grace. What is from the future is.
func (c *collection) young(created int64) bool {
	return c.now-created < int64(c.store.cfg.Grace) || created > c.now
}

// choose gives every live region to one pack: to one that stays anyway, else to
// the first by name that it is in.
func (c *collection) choose() {
	for _, p := range c.packs {
		p.spared = c.young(p.head.created) || c.alive[ownerKey(p.name)]
	}
	slices.SortStableFunc(c.packs, func(a, b *packUse) int {
		return cmp.Or(-cmp.Compare(bit(a.spared), bit(b.spared)), cmp.Compare(bit(c.victims[a.name]), bit(c.victims[b.name])))
	})
	for _, p := range c.packs {
		for i := range p.entries {
			e := &p.entries[i]
			if taken, needed := c.live[e.id]; needed && !taken {
				c.live[e.id] = true
				p.keep = append(p.keep, *e)
				p.live += frameLen + int64(e.stored)
			}
		}
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ownerKey returns the key of the save that wrote a pack.
func ownerKey(pack string) string {
	for range 2 {
		if i := strings.LastIndexByte(pack, '-'); i >= 0 {
			pack = pack[:i]
		}
	}
	return pack
}

// compact copies what is live in packs of little else into new ones. Copying only
// adds, so the store need not be locked for it.
func (c *collection) compact() error {
	// Whether a lock is held is seen by trying it, which a save that begins at that
	// moment must not see.
	unguard, err := c.store.guard(c.ctx, fileLock, true)
	if err != nil {
		return err
	}
	err = c.look()
	unguard()
	if err != nil {
		return err
	}
	c.victims = map[string]bool{}
	p := &packer{store: c.store, key: collector}
	for _, u := range c.packs {
		if u.spared || u.live == 0 || float64(u.live) >= float64(u.size)*c.store.cfg.MinLive {
			continue
		}
		err := c.copyLive(p, u)
		if isCorrupt(err) {
			continue // it stays, and Verify tells
		}
		if err != nil {
			return errors.Join(err, p.discard())
		}
		c.victims[u.name] = true
		c.done.Moved += lockstep.Bytes(u.live)
	}
	return p.seal()
}

func (c *collection) copyLive(p *packer, u *packUse) error {
	f, err := c.store.fs.open(packPath(u.name))
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := c.store.worker()
	if err != nil {
		return err
	}
	defer c.store.release(w)
	for i := range u.keep {
		e := &u.keep[i]
		if err := c.ctx.Err(); err != nil {
			return err
		}
		w.plain = grow(w.plain, int(e.raw))
		l := loc{off: e.off, raw: e.raw, stored: e.stored}
		if err := w.fetch(f, &l, e.id, w.plain); err != nil {
			return named(packPath(u.name), err)
		}
		fr, err := getFrame(w.framed, e.off)
		if err != nil {
			return err
		}
		if err := p.append(&fr, nil, w.framed[frameLen:]); err != nil {
			return err
		}
	}
	return nil
}

// sweep takes away what is not needed, and removes what was taken away a Grace
// ago. Nothing becomes part of the store meanwhile.
func (c *collection) sweep() error {
	unguard, err := c.store.guard(c.ctx, fileLock, true)
	if err != nil {
		return err
	}
	defer unguard()
	if err := c.look(); err != nil {
		return err
	}
	if err := c.purge(); err != nil {
		return err
	}
	if err := c.discard(); err != nil {
		return err
	}
	return c.tidy()
}

// discard moves packs and manifests into the trash.
func (c *collection) discard() error {
	var moves [][2]string // folder and file
	for _, p := range c.packs {
		if p.spared || p.live > 0 {
			continue
		}
		moves = append(moves, [2]string{dirPacks, p.name + suffixPack})
		c.done.Packs++
		if c.victims[p.name] {
			c.done.Rewritten++
		}
	}
	ranks, err := c.store.fs.list(dirRanks)
	if err != nil {
		return err
	}
	for _, n := range ranks {
		if d, ok := digestOf(n); ok && !c.images[d] {
			moves = append(moves, [2]string{dirRanks, n})
			c.done.Images++
		}
	}
	if len(moves) == 0 {
		return nil
	}
	// Saves that run now may count on what is taken away: they take it back, and
	// until they have ended it stays.
	stamp := "." + strconv.FormatInt(c.now, 10) + "-" + c.store.nonce()
	if err := writeNew(c.store.fs, dirTrash+"/"+collector+stamp+suffixSaves, c.savesRecord()); err != nil {
		return err
	}
	for _, m := range moves {
		if err := c.store.fs.rename(m[0]+"/"+m[1], dirTrash+"/"+m[1]+stamp); err != nil {
			return err
		}
	}
	return errors.Join(c.store.fs.syncDir(dirTrash), c.store.fs.syncDir(dirPacks), c.store.fs.syncDir(dirRanks), c.store.refresh())
}

func (c *collection) savesRecord() []byte {
	keys := make([]string, 0, len(c.alive))
	for k := range c.alive { // sorted below
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return seal(append(append([]byte(savesMagic), version), strings.Join(keys, "\n")...))
}

// purge removes for good what was taken away a Grace ago, unless a save that ran
// then still runs.
func (c *collection) purge() error {
	names, err := c.store.fs.list(dirTrash)
	if err != nil {
		return err
	}
	held := map[string]bool{} // by stamp
	for _, n := range names {
		stamp, at, ok := trashTime(n)
		if !ok || c.young(at) {
			continue
		}
		wait, known := held[stamp]
		if !known {
			wait = c.awaited(stamp)
			held[stamp] = wait
		}
		if wait {
			continue
		}
		size, err := c.size(dirTrash + "/" + n)
		if err == nil {
			err = c.store.fs.remove(dirTrash + "/" + n)
		}
		if err != nil {
			return err
		}
		c.done.Freed += lockstep.Bytes(size)
	}
	return nil
}

// trashTime returns when something was taken away.
func trashTime(file string) (stamp string, at int64, ok bool) {
	s := strings.TrimSuffix(file, suffixSaves)
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return "", 0, false
	}
	digits, _, _ := strings.Cut(s[i+1:], "-")
	at, err := strconv.ParseInt(digits, 10, 64)
	return s[i:], at, err == nil
}

// awaited says whether a save that ran at a time still does. If it cannot be
// known which did, any will count.
func (c *collection) awaited(stamp string) bool {
	data, err := readAll(c.store.fs, dirTrash+"/"+collector+stamp+suffixSaves, c.store.limit())
	if err == nil {
		data, err = unseal(data, savesMagic)
	}
	if err != nil {
		return len(c.alive) > 0
	}
	for key := range strings.SplitSeq(string(data), "\n") {
		if c.alive[key] {
			return true
		}
	}
	return false
}

func (c *collection) size(path string) (int64, error) {
	f, err := c.store.fs.open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.Size()
}

// tidy removes what crashes left: packs that nobody will adopt any more and files
// that were never renamed.
func (c *collection) tidy() error {
	names, err := c.store.fs.list(dirOpen)
	if err != nil {
		return err
	}
	for _, n := range names {
		name, ok := strings.CutSuffix(n, suffixPart)
		if !ok || c.alive[ownerKey(name)] {
			continue
		}
		if ownerKey(name) != collector && c.youngPart(n) {
			continue
		}
		if err := c.store.fs.remove(dirOpen + "/" + n); err != nil {
			return err
		}
	}
	ranks, err := c.store.fs.list(dirRanks)
	if err != nil {
		return err
	}
	for _, n := range ranks {
		if strings.HasSuffix(n, suffixTmp) { // a save that renames holds the store's lock
			if err := c.store.fs.remove(dirRanks + "/" + n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *collection) youngPart(file string) bool {
	f, err := c.store.fs.open(dirOpen + "/" + file)
	if err != nil {
		return true
	}
	defer f.Close()
	var b [headLen]byte
	if readFull(f, b[:], 0) != nil {
		return false
	}
	h, err := decodeHead(b[:])
	return err == nil && c.young(h.created)
}
