package imagestore

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// SaveOptions say what a save is of.
type SaveOptions struct {
	Job    lockstep.JobID    // Job is whose image it is.
	Epoch  checkpoint.Epoch  // Epoch is its number, from 1.
	Rank   int               // Rank is the rank in the job, from 0.
	Step   uint64            // Step is the training step of the image.
	Parent checkpoint.Epoch  // Parent is the epoch before, for reports; 0 if there is none.
	Meta   map[string]string // Meta is kept with the image: host, driver version, device UUIDs. At most 64 of at most 4 KiB; it is copied.
}

// Stats says what a save did so far. All but Regions are bytes.
type Stats struct {
	Raw     lockstep.Bytes // Raw is the length of the streams.
	Zero    lockstep.Bytes // Zero is what of Raw was zero, or not active, and is not stored.
	Reused  lockstep.Bytes // Reused is what of Raw was in the store already, or twice in this save.
	Stored  lockstep.Bytes // Stored is what was written, with heads of frames and after coding.
	Adopted lockstep.Bytes // Adopted is what an interrupted save of this rank had stored and this one took over.
	Regions int64          // Regions is how many regions were written.
}

// counts are the numbers of Stats of one batch.
type counts struct{ raw, zero, reused, stored, regions int64 }

// Save is one rank's image being written. It is a checkpoint.ImageWriter. Create
// may be called, and different streams written, from several goroutines.
type Save struct {
	store  *Store
	opt    SaveOptions
	key    string // names the files of this rank's epoch
	begun  time.Time
	ctx    context.Context //nolint:containedctx // a stream is an io.Writer and has no other way to be stopped
	unlock func()
	pack   *packer

	uses  map[*packState]bool // packs counted on; the index guards it
	waits []regionID          // regions that other saves were writing; the index guards it

	running sync.WaitGroup // batches under way; added to with mu held and err nil

	mu      sync.Mutex
	names   map[string]bool // streams begun
	streams []stream        // streams that ended
	open    int
	total   counts
	adopted int64
	err     error
	over    bool
}

// Begin begins to save a rank. Until Commit or Abort nobody else, in this process
// or another, can save the same rank of the same epoch: that is
// lockstep.ErrConflict. What an interrupted save of it had stored is taken over.
// The context ends the save: a write after it fails with its error.
func (s *Store) Begin(ctx context.Context, o SaveOptions) (*Save, error) {
	if err := errors.Join(ctx.Err(), o.validate()); err != nil {
		return nil, err
	}
	if err := s.hold("save"); err != nil {
		return nil, err
	}
	v := &Save{store: s, opt: o, key: saveKey(o.Job, o.Epoch, o.Rank), begun: s.cfg.Clock.Now(), ctx: ctx, uses: map[*packState]bool{}, names: map[string]bool{}}
	v.opt.Meta = maps.Clone(o.Meta)
	v.pack = &packer{store: s, save: v, key: v.key, whose: packHead{epoch: uint64(o.Epoch), rank: uint32(o.Rank), job: jobSum(o.Job)}}
	if err := v.begin(); err != nil {
		if v.unlock != nil {
			v.unlock()
		}
		s.drop()
		return nil, wrap("save", full(err, 1))
	}
	return v, nil
}

// begin takes the rank, then looks at what is stored: what it sees from then on
// Collect does not remove for good.
func (v *Save) begin() error {
	// While Collect runs, what it sees of saves is not to change under it.
	unguard, err := v.store.guard(v.ctx, fileLock, false)
	if err != nil {
		return err
	}
	defer unguard()
	unlock, ok, err := v.store.fs.lock(v.lockPath(), true)
	if err != nil {
		return err
	}
	if !ok {
		return fault(lockstep.ErrConflict, "save", "Rank", strconv.Itoa(v.opt.Rank), "somebody is saving this rank of this epoch")
	}
	v.unlock = unlock
	if v.adopted, err = v.pack.adopt(); err != nil {
		return err
	}
	return v.store.refresh()
}

func (v *Save) lockPath() string { return dirOpen + "/" + v.key + suffixSave }

// saveKey names the files of one rank's epoch.
func saveKey(job lockstep.JobID, epoch checkpoint.Epoch, rank int) string {
	s := jobSum(job)
	return hex.EncodeToString(s[:]) + "-" + strconv.FormatUint(uint64(epoch), 10) + "-" + strconv.Itoa(rank)
}

func (o *SaveOptions) validate() error {
	var faults []error
	bad := func(ok bool, field, value, reason string) {
		if !ok {
			faults = append(faults, invalid("save", field, value, reason))
		}
	}
	if err := o.Job.Validate(); err != nil {
		faults = append(faults, err)
	}
	bad(o.Epoch > 0, "Epoch", "0", "epochs count from 1")
	bad(o.Parent < o.Epoch || o.Epoch == 0, "Parent", strconv.FormatUint(uint64(o.Parent), 10), "must be an earlier epoch")
	bad(o.Rank >= 0 && o.Rank < 1<<31-1, "Rank", strconv.Itoa(o.Rank), "must be from 0 to 2^31-2")
	bad(len(o.Meta) <= maxMeta, "Meta", strconv.Itoa(len(o.Meta)), "must be at most 64 notes")
	for _, k := range slices.Sorted(maps.Keys(o.Meta)) {
		bad(len(k) <= maxMetaText && len(o.Meta[k]) <= maxMetaText, "Meta", errtext.Quote(k), "must be at most 4 KiB")
	}
	return errors.Join(faults...)
}

// tooOld says whether a region is to be stored anew although it is in a pack;
// the index is locked.
func (v *Save) tooOld(p *packState) bool {
	n := v.store.cfg.MaxChain
	return n > 0 && p.head.job == jobSum(v.opt.Job) && uint64(v.opt.Epoch) > p.head.epoch && uint64(v.opt.Epoch)-p.head.epoch >= uint64(n)
}

// Stats returns what the save did so far. What is still being hashed does not
// count yet.
func (v *Save) Stats() Stats {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Stats{
		Raw: lockstep.Bytes(v.total.raw), Zero: lockstep.Bytes(v.total.zero), Reused: lockstep.Bytes(v.total.reused),
		Stored: lockstep.Bytes(v.total.stored), Adopted: lockstep.Bytes(v.adopted), Regions: v.total.regions,
	}
}

// fail keeps the first error of the save.
func (v *Save) fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err == nil {
		v.err = err
	}
}

// failure returns the first error, or that of the context.
func (v *Save) failure() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err == nil && v.over {
		return errAborted
	}
	return errors.Join(v.err, v.ctx.Err())
}

// Commit makes the image durable and returns what an epoch's manifest says of
// it. The image can be read once such an epoch is committed. Streams that are not
// closed are lockstep.ErrConflict. After an error the save is still open: Abort
// ends it.
func (v *Save) Commit(ctx context.Context) (checkpoint.RankImage, error) {
	image, err := v.commit(ctx)
	if err != nil {
		return checkpoint.RankImage{}, wrap("save", full(err, 1))
	}
	return image, nil
}

func (v *Save) commit(ctx context.Context) (image checkpoint.RankImage, err error) {
	if err := errors.Join(ctx.Err(), v.failure()); err != nil {
		return image, err
	}
	v.mu.Lock()
	open := v.open
	v.mu.Unlock()
	if open > 0 {
		return image, fault(lockstep.ErrConflict, "save", "", "", strconv.Itoa(open)+" streams are not closed")
	}
	if err := v.settle(); err != nil {
		return image, err
	}
	m := v.manifest()
	data, digest, err := v.store.sealRank(m)
	if err != nil {
		return image, err
	}
	unguard, err := v.store.guard(ctx, fileLock, false)
	if err != nil {
		return image, err
	}
	defer unguard()
	if err := v.store.need(v.packNames()); err != nil {
		return image, err
	}
	name := hex.EncodeToString(digest[:])
	if err := replace(v.store.fs, dirRanks, name+suffixRank, v.key+suffixTmp, data); err != nil {
		return image, err
	}
	took := v.store.cfg.Clock.Now().Sub(v.begun)
	v.end()
	return checkpoint.RankImage{
		Rank: v.opt.Rank, Image: digest, Bytes: lockstep.Bytes(m.size()), Step: v.opt.Step, Took: max(0, took),
	}, nil
}

// settle makes every region of the image durable: those of this save, and those
// that other saves of this process wrote and this one counts on.
func (v *Save) settle() error {
	if err := v.pack.seal(); err != nil {
		return err
	}
	x := v.store.index
	x.mu.Lock()
	waits := v.waits
	v.waits = nil
	x.mu.Unlock()
	for _, id := range waits {
		if x.wait(id, v) == nil {
			return fault(lockstep.ErrStale, "save", "", "", "another save failed that was writing a region of this one; save again")
		}
	}
	x.mu.Lock()
	var others []*Save
	for p := range v.uses { // sealing is idempotent: order cannot matter
		if !p.sealed && p.owner != nil && p.owner != v {
			others = append(others, p.owner)
		}
	}
	x.mu.Unlock()
	for _, o := range others {
		if err := o.pack.seal(); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for p := range v.uses { // any will do: order cannot matter
		if !p.sealed || p.damage != nil {
			return fault(lockstep.ErrStale, "save", "", "", "a pack that another save was writing was lost; save again")
		}
	}
	return nil
}

// packNames are the packs that the image counts on, sorted.
func (v *Save) packNames() []string {
	v.store.index.mu.Lock()
	defer v.store.index.mu.Unlock()
	var names []string
	for p := range v.uses { // sorted below
		names = append(names, p.name)
	}
	for _, p := range v.pack.done {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// need makes sure that packs are there, and takes back those that Collect has
// taken away. The store's lock is held, so they stay.
func (s *Store) need(names []string) error {
	list, err := s.fs.list(dirPacks)
	if err != nil {
		return err
	}
	var trash []string
	for _, name := range names {
		if _, ok := slices.BinarySearch(list, name+suffixPack); ok {
			continue
		}
		if trash == nil {
			if trash, err = s.fs.list(dirTrash); err != nil {
				return err
			}
		}
		if err := s.rescue(trash, name+suffixPack, dirPacks); err != nil {
			return err
		}
	}
	return nil
}

// rescue takes a file back out of the trash.
func (s *Store) rescue(trash []string, file, dir string) error {
	for _, t := range trash {
		if !strings.HasPrefix(t, file+".") {
			continue
		}
		err := s.fs.rename(dirTrash+"/"+t, dir+"/"+file)
		if missing(err) { // another save was first
			if there, err := exists(s.fs, dir+"/"+file); err != nil || there {
				return err
			}
			continue
		}
		return errors.Join(err, s.fs.syncDir(dir), s.fs.syncDir(dirTrash))
	}
	return fault(lockstep.ErrStale, "save", "file", errtext.Quote(file), "was collected meanwhile; save again")
}

func (v *Save) manifest() *rankManifest {
	v.mu.Lock()
	defer v.mu.Unlock()
	slices.SortFunc(v.streams, func(a, b stream) int { return strings.Compare(a.name, b.name) })
	return &rankManifest{
		job: v.opt.Job, epoch: v.opt.Epoch, rank: v.opt.Rank, step: v.opt.Step, parent: v.opt.Parent,
		created: v.store.now(), keyed: v.store.cfg.IDKey != nil, meta: v.opt.Meta, streams: v.streams,
	}
}

// Abort gives the save up and removes what it wrote, but for regions that other
// saves count on. After Commit it does nothing.
func (v *Save) Abort() error {
	// Finished packs stay if others count on them; Collect knows the rest.
	return v.giveUp("abort", v.pack.discard)
}

// Leave ends the save as a crash would: what is stored stays, and the next Begin
// of the same rank and epoch takes it over. After Commit it does nothing.
func (v *Save) Leave() error { return v.giveUp("leave", v.pack.seal) }

// giveUp ends a save that is not to be committed, and has its pack ended.
func (v *Save) giveUp(call string, pack func() error) error {
	v.mu.Lock()
	over := v.over
	if v.err == nil {
		v.err = errAborted
	}
	v.mu.Unlock()
	if over {
		return nil
	}
	v.running.Wait()
	err := pack()
	v.end()
	return wrap(call, err)
}

func (v *Save) end() {
	v.mu.Lock()
	over := v.over
	v.over = true
	v.mu.Unlock()
	if over {
		return
	}
	_ = v.store.fs.remove(v.lockPath()) // it says nothing; Collect removes it otherwise
	v.unlock()
	v.store.drop()
}
