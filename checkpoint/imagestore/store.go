package imagestore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Config configures a Store. All but Dir may be zero.
type Config struct {
	Dir           string         // Dir is the store's folder, made with mode 0700 if it is not there; not a link.
	Level         Level          // Level is how hard saves try to be small.
	Workers       int            // Workers is how many regions are hashed and coded at a time, over all saves and restores; 0 means GOMAXPROCS.
	Average       lockstep.Bytes // Average is the usual length of content-defined regions, a power of two from 64 KiB to 512 KiB; 0 means 128 KiB.
	PackBytes     lockstep.Bytes // PackBytes is when a pack is finished and the next one begun; at least 1 KiB, 0 means 512 MiB.
	MaxChain      int            // MaxChain is after how many epochs a job's regions are stored anew although they are there; 0 means never.
	MinLive       float64        // MinLive is the fraction of a pack that has to be live for Collect to leave it alone, in (0, 1]; 0 means 0.5.
	Grace         time.Duration  // Grace is for how long Collect spares what nothing names yet, and keeps what it took away; 0 means an hour.
	MaxManifest   lockstep.Bytes // MaxManifest is the largest manifest that is written or read; 0 means 64 MiB.
	ForeignImages bool           // ForeignImages lets Commit take epochs whose images are not in this store, which it then cannot check.

	IDKey  *[32]byte      `json:"-"` // IDKey keys the identities of regions, so that they do not tell what is in them; nil means plain BLAKE3. All users of a store need the same.
	Sealer Sealer         `json:"-"` // Sealer encrypts what is stored; nil stores it in the clear. All users of a store need the same.
	Clock  lockstep.Clock `json:"-"` // Clock is the time of saves and of Grace; nil means the system's.
}

// Sealer encrypts and authenticates pieces of a store, such as AES-GCM with a
// random nonce in front. Calls come from several goroutines.
type Sealer interface {
	// Seal appends the sealed plain text to dst, at most 64 KiB more than it
	// was. ad is authenticated and not stored.
	Seal(dst, plain, ad []byte) ([]byte, error)

	// Open appends what was sealed to dst. It fails if sealed or ad are not
	// those of Seal.
	Open(dst, sealed, ad []byte) ([]byte, error)
}

// Folders of a store, and how names in them end.
const (
	dirPacks   = "packs"
	dirOpen    = "open"  // packs being written, and the lock of each save
	dirRanks   = "ranks" // manifests of ranks, by digest
	dirJobs    = "jobs"  // for each job: fence, epochs
	dirPins    = "pins"  // epochs that somebody reads
	dirTrash   = "trash" // what Collect took away
	fileLock   = "lock"
	fileFormat = "format"

	suffixPack   = ".pack"
	suffixPart   = ".part"
	suffixSave   = ".save"
	suffixRank   = ".rank"
	suffixEpoch  = ".epoch"
	suffixGone   = ".gone"
	suffixPin    = ".pin"
	suffixTmp    = ".tmp"
	formatMagic  = "lsstor"
	formatSealed = 1
	formatKeyed  = 2
)

func packPath(name string) string { return dirPacks + "/" + name + suffixPack }
func partPath(name string) string { return dirOpen + "/" + name + suffixPart }

func packName(file string) (string, bool) { return strings.CutSuffix(file, suffixPack) }

// number writes n so that names sort as numbers do.
func number(n int) string {
	s := strconv.Itoa(n)
	return strings.Repeat("0", max(0, 6-len(s))) + s
}

// jobSum names a job in paths: its own name may hold separators.
func jobSum(job lockstep.JobID) (s [16]byte) {
	sum := newHasher(nil).sum([]byte(job))
	copy(s[:], sum[:])
	return s
}

func jobDir(job lockstep.JobID) string {
	s := jobSum(job)
	return dirJobs + "/" + hex.EncodeToString(s[:])
}

// Validate reports all faults of c, joined.
func (c Config) Validate() error {
	var faults []error
	bad := func(ok bool, field, value, reason string) {
		if !ok {
			faults = append(faults, invalid("open", field, value, reason))
		}
	}
	size := func(b lockstep.Bytes) string { return strconv.FormatInt(int64(b), 10) }
	bad(c.Dir != "", "Dir", `""`, "must name a folder")
	bad(c.Level <= LevelSmall, "Level", c.Level.String(), "must be one of the levels")
	bad(c.Workers >= 0 && c.Workers <= 4096, "Workers", strconv.Itoa(c.Workers), "must be 0 to 4096")
	bad(c.Average == 0 || (c.Average&(c.Average-1) == 0 && c.Average >= minRegion && c.Average <= maxRegion/4),
		"Average", size(c.Average), "must be a power of two from 64 KiB to 512 KiB")
	bad(c.PackBytes == 0 || c.PackBytes >= 1<<10 && c.PackBytes <= 1<<40, "PackBytes", size(c.PackBytes), "must be 1 KiB to 1 TiB")
	bad(c.MaxChain >= 0, "MaxChain", strconv.Itoa(c.MaxChain), "must not be negative")
	bad(c.MinLive >= 0 && c.MinLive <= 1, "MinLive", strconv.FormatFloat(c.MinLive, 'g', -1, 64), "must be from 0 to 1")
	bad(c.Grace >= 0, "Grace", c.Grace.String(), "must not be negative")
	bad(c.MaxManifest == 0 || c.MaxManifest >= 4<<10 && c.MaxManifest <= 1<<30, "MaxManifest", size(c.MaxManifest), "must be 4 KiB to 1 GiB")
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	def := func(b *lockstep.Bytes, v lockstep.Bytes) {
		if *b == 0 {
			*b = v
		}
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	def(&c.Average, 128*lockstep.KiB)
	def(&c.PackBytes, 512*lockstep.MiB)
	def(&c.MaxManifest, 64*lockstep.MiB)
	if c.MinLive == 0 {
		c.MinLive = 0.5
	}
	if c.Grace == 0 {
		c.Grace = time.Hour
	}
	if c.Clock == nil {
		c.Clock = &lockstep.Monotone{}
	}
	return c
}

// Store keeps the images of jobs in a folder. It is safe for concurrent use, and
// several processes may use one folder.
type Store struct {
	cfg   Config
	fs    fsys
	hash  hasher
	index *index
	slots chan *worker // as many as Config.Workers; nil in it is one not yet made
	bufs  sync.Pool    // *[]byte of bufBytes

	mu     sync.Mutex
	closed bool
	inUse  int // saves and images that are open
}

// Open opens the store in a folder, and makes it if the folder is new or empty.
// Many processes may have it open.
func Open(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	fs, err := openFS(cfg.Dir)
	if err != nil {
		return nil, wrap("open", err)
	}
	s, err := open(cfg, fs)
	if err != nil {
		return nil, errors.Join(wrap("open", err), fs.close())
	}
	return s, nil
}

// open is Open on a given file system.
func open(cfg Config, fs fsys) (*Store, error) {
	cfg = cfg.withDefaults()
	s := &Store{cfg: cfg, fs: fs, hash: newHasher(cfg.IDKey), index: newIndex(), slots: make(chan *worker, cfg.Workers)}
	for range cfg.Workers {
		s.slots <- nil
	}
	if err := s.format(); err != nil {
		return nil, err
	}
	return s, nil
}

// format checks that the folder is a store of this version and of this key, or
// makes it one.
func (s *Store) format() error {
	if err := s.readFormat(); !missing(err) {
		return err
	}
	for _, dir := range [...]string{dirPacks, dirOpen, dirRanks, dirJobs, dirPins, dirTrash} {
		if err := s.fs.mkdir(dir); err != nil {
			return full(err, 1)
		}
	}
	if err := s.fs.syncDir("."); err != nil {
		return err
	}
	return replace(s.fs, ".", fileFormat, fileFormat+"-"+s.nonce()+suffixTmp, s.formatRecord())
}

// formatRecord says what all users of a store have to have in common. The check
// value of the key does not tell the key.
func (s *Store) formatRecord() []byte {
	b := append([]byte{}, formatMagic...)
	b = append(b, version, hashBLAKE3)
	var flags byte
	if s.cfg.Sealer != nil {
		flags |= formatSealed
	}
	if s.cfg.IDKey != nil {
		flags |= formatKeyed
	}
	b = append(b, flags)
	check := s.hash.sum([]byte("lockstep imagestore: which key"))
	return seal(append(b, check[:]...))
}

// readFormat checks the format of a store that is there.
func (s *Store) readFormat() error {
	have, err := readAll(s.fs, fileFormat, 1<<10)
	if err != nil || string(have) == string(s.formatRecord()) {
		return err
	}
	body, err := unseal(have, formatMagic)
	if err != nil {
		return named(fileFormat, err)
	}
	if len(body) > 0 && body[0] != hashBLAKE3 {
		return corrupt(fileFormat, "hash algorithm "+strconv.Itoa(int(body[0]))+" is unknown")
	}
	return invalid("open", "Config", "", "the store was made with another IDKey, or differs in having a Sealer")
}

// Close closes the store. Saves and images have to be closed before.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil
	case s.inUse > 0:
		return fault(lockstep.ErrConflict, "close", "", "", strconv.Itoa(s.inUse)+" saves or images are open")
	}
	s.closed = true
	return s.fs.close()
}

// hold counts a save or an image as open.
func (s *Store) hold(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fault(lockstep.ErrConflict, call, "", "", "the store is closed")
	}
	s.inUse++
	return nil
}

func (s *Store) drop() {
	s.mu.Lock()
	s.inUse--
	s.mu.Unlock()
}

// now is the time in nanoseconds; a clock that int64 cannot hold reads as 0.
func (s *Store) now() int64 {
	n, err := lockstep.Nanos(s.cfg.Clock.Now())
	if err != nil {
		return 0
	}
	return n
}

// nonce makes a file name that no other process and no earlier life has used.
func (s *Store) nonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// guard takes the store's lock: shared while something becomes part of the
// store, exclusive while Collect decides what is not.
func (s *Store) guard(ctx context.Context, name string, exclusive bool) (unlock func(), err error) {
	wait := time.Millisecond
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		unlock, ok, err := s.fs.lock(name, exclusive)
		if err != nil {
			return nil, err
		}
		if ok {
			return unlock, nil
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		wait = min(2*wait, 50*time.Millisecond)
	}
}

// limit is the largest manifest.
func (s *Store) limit() int64 { return int64(s.cfg.MaxManifest) + maxSealed }
