package imagestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

const (
	epochMagic = "lsepoc"
	fenceMagic = "lsfenc"
	sealMagic  = "lsseal"
	fileFence  = "fence"
)

// sealRank returns a manifest as it is stored, and its digest.
func (s *Store) sealRank(m *rankManifest) ([]byte, checkpoint.Digest, error) {
	data := m.encode()
	if int64(len(data)) > int64(s.cfg.MaxManifest) {
		return nil, checkpoint.Digest{}, invalid("save", "MaxManifest", strconv.FormatInt(int64(s.cfg.MaxManifest), 10),
			fmt.Sprintf("must be at least %d for the manifest of this image", len(data)))
	}
	if s.cfg.Sealer != nil {
		b := append([]byte(sealMagic), version)
		b, err := s.cfg.Sealer.Seal(b, data, []byte(rankMagic))
		if err != nil {
			return nil, checkpoint.Digest{}, err
		}
		data = seal(b)
	}
	return data, checkpoint.Digest(newHasher(nil).sum(data)), nil
}

// readRank reads the manifest of a digest.
func (s *Store) readRank(d checkpoint.Digest) (*rankManifest, error) {
	path := dirRanks + "/" + hex.EncodeToString(d[:]) + suffixRank
	data, err := readAll(s.fs, path, s.limit())
	if err != nil {
		return nil, err
	}
	if checkpoint.Digest(newHasher(nil).sum(data)) != d {
		return nil, corrupt(path, "does not have the digest of its name")
	}
	if s.cfg.Sealer != nil {
		body, err := unseal(data, sealMagic)
		if err == nil {
			if data, err = s.cfg.Sealer.Open(nil, body, []byte(rankMagic)); err != nil {
				err = malformed("does not open: " + err.Error())
			}
		}
		if err != nil {
			return nil, named(path, err)
		}
	}
	m, err := decodeRank(data)
	if err != nil {
		return nil, named(path, err)
	}
	if m.keyed != (s.cfg.IDKey != nil) {
		return nil, corrupt(path, "has identities of another kind than the store")
	}
	return m, nil
}

func encodeEpoch(m *checkpoint.Manifest) []byte {
	b := append([]byte(epochMagic), version)
	b = putText(b, string(m.Job))
	for _, v := range [...]uint64{uint64(m.Epoch), uint64(m.Term), m.Step, uint64(len(m.Ranks))} {
		b = binary.AppendUvarint(b, v)
	}
	for i := range m.Ranks {
		r := &m.Ranks[i]
		b = binary.AppendUvarint(b, uint64(r.Rank))
		b = append(b, r.Image[:]...)
		for _, v := range [...]uint64{uint64(r.Bytes), r.Step, uint64(r.Took)} {
			b = binary.AppendUvarint(b, v)
		}
	}
	return seal(b)
}

func decodeEpoch(b []byte) (*checkpoint.Manifest, error) {
	body, err := unseal(b, epochMagic)
	if err != nil {
		return nil, err
	}
	d := &decoder{b: body}
	m := &checkpoint.Manifest{Job: lockstep.JobID(d.text(lockstep.MaxIDLength))}
	m.Epoch, m.Term, m.Step = checkpoint.Epoch(d.uvarint()), checkpoint.Term(d.uvarint()), d.uvarint()
	n := d.count(1 + 32 + 3)
	for i := 0; i < n && d.err == nil; i++ {
		r := checkpoint.RankImage{Rank: int(uint32(d.uvarint())), Image: checkpoint.Digest(d.sum())}
		r.Bytes, r.Step, r.Took = lockstep.Bytes(d.size()), d.uvarint(), time.Duration(d.size())
		m.Ranks = append(m.Ranks, r)
	}
	if d.err != nil || len(d.b) != 0 {
		return nil, errWire
	}
	if err := m.Validate(); err != nil {
		return nil, malformed("is no manifest: " + err.Error())
	}
	if !bytes.Equal(encodeEpoch(m), b) {
		return nil, malformed("is not in its canonical form")
	}
	return m, nil
}

// epochFile names an epoch so that names sort as numbers do.
func epochFile(e checkpoint.Epoch) string {
	s := strconv.FormatUint(uint64(e), 10)
	return strings.Repeat("0", 20-len(s)) + s
}

// epochNumber is the inverse of epochFile.
func epochNumber(file, suffix string) (checkpoint.Epoch, bool) {
	s, ok := strings.CutSuffix(file, suffix)
	n, err := strconv.ParseUint(s, 10, 64)
	return checkpoint.Epoch(n), ok && err == nil && n > 0 && epochFile(checkpoint.Epoch(n)) == s
}

// readEpoch reads what was committed, or dropped, under a number.
func (s *Store) readEpoch(job lockstep.JobID, epoch checkpoint.Epoch, suffix string) (*checkpoint.Manifest, error) {
	path := jobDir(job) + "/" + epochFile(epoch) + suffix
	data, err := readAll(s.fs, path, s.limit())
	if err != nil {
		return nil, err
	}
	m, err := decodeEpoch(data)
	if err != nil {
		return nil, named(path, err)
	}
	if m.Job != job || m.Epoch != epoch {
		return nil, corrupt(path, "is the manifest of another epoch")
	}
	return m, nil
}

// withJob runs f while nobody else changes the job's ledger.
func (s *Store) withJob(ctx context.Context, job lockstep.JobID, f func(dir string) error) error {
	if err := errors.Join(ctx.Err(), job.Validate()); err != nil {
		return err
	}
	if err := s.hold("ledger"); err != nil {
		return err
	}
	defer s.drop()
	dir := jobDir(job)
	if err := s.fs.mkdir(dir); err != nil {
		return full(err, 1)
	}
	// The folder's name has to last before anything in it is said to.
	if err := s.fs.syncDir(dirJobs); err != nil {
		return err
	}
	unlock, err := s.guard(ctx, dir+"/"+fileLock, true)
	if err != nil {
		return full(err, 1)
	}
	defer unlock()
	return f(dir)
}

// fence reads the term below which leaders are shut out; the job is locked.
func (s *Store) fence(job lockstep.JobID, dir string) (checkpoint.Term, error) {
	f, err := s.readFence(dir)
	if missing(err) {
		return 0, nil
	}
	if err == nil && f.job != job {
		err = corrupt(dir+"/"+fileFence, "is another job's")
	}
	return f.term, err
}

// fenceFile is what the file of a fence says.
type fenceFile struct {
	job  lockstep.JobID
	term checkpoint.Term
}

func (f fenceFile) encode() []byte {
	b := append([]byte(fenceMagic), version)
	b = putText(b, string(f.job))
	return seal(binary.AppendUvarint(b, uint64(f.term)))
}

func (s *Store) readFence(dir string) (f fenceFile, err error) {
	path := dir + "/" + fileFence
	data, err := readAll(s.fs, path, 4<<10)
	if err != nil {
		return f, err
	}
	body, err := unseal(data, fenceMagic)
	if err != nil {
		return f, named(path, err)
	}
	d := &decoder{b: body}
	f.job, f.term = lockstep.JobID(d.text(lockstep.MaxIDLength)), checkpoint.Term(d.uvarint())
	if d.err != nil || !bytes.Equal(f.encode(), data) {
		return f, named(path, errWire)
	}
	return f, nil
}

// Fence implements checkpoint.Ledger.
func (s *Store) Fence(ctx context.Context, job lockstep.JobID, term checkpoint.Term) error {
	return wrap("fence", s.withJob(ctx, job, func(dir string) error {
		have, err := s.fence(job, dir)
		if err != nil {
			return err
		}
		if term < have {
			return fault(checkpoint.ErrFenced, "fence", "term", strconv.FormatUint(uint64(term), 10), "term "+strconv.FormatUint(uint64(have), 10)+" has taken over")
		}
		if term == have {
			return s.fs.syncDir(dir) // what is seen after this has to last
		}
		return replace(s.fs, dir, fileFence, fileFence+suffixTmp, fenceFile{job, term}.encode())
	}))
}

// Commit implements checkpoint.Ledger. Every rank's image has to be in the store,
// of this job, epoch, step and length, with all its regions, unless
// Config.ForeignImages says that images are elsewhere: else it is
// lockstep.ErrUnknown, lockstep.ErrStale if Collect has removed something, or
// lockstep.ErrInvalid.
func (s *Store) Commit(ctx context.Context, m *checkpoint.Manifest) error {
	if err := errors.Join(ctx.Err(), m.Validate()); err != nil {
		return err
	}
	m = m.Clone()
	return wrap("commit", s.withJob(ctx, m.Job, func(dir string) error {
		have, err := s.fence(m.Job, dir)
		if err != nil {
			return err
		}
		if m.Term < have {
			return fault(checkpoint.ErrFenced, "commit", "Term", strconv.FormatUint(uint64(m.Term), 10), "term "+strconv.FormatUint(uint64(have), 10)+" has taken over")
		}
		data := encodeEpoch(m)
		if int64(len(data)) > int64(s.cfg.MaxManifest) {
			return invalid("commit", "Ranks", strconv.Itoa(len(m.Ranks)), "make the manifest longer than MaxManifest")
		}
		there, err := s.committed(m, dir, data)
		if there || err != nil {
			return err
		}
		unguard, err := s.guard(ctx, fileLock, false)
		if err != nil {
			return err
		}
		defer unguard()
		if !s.cfg.ForeignImages {
			if err := s.checkImages(m); err != nil {
				return err
			}
		}
		name := epochFile(m.Epoch)
		return replace(s.fs, dir, name+suffixEpoch, name+suffixTmp, data)
	}))
}

// committed says whether this very manifest is committed already.
func (s *Store) committed(m *checkpoint.Manifest, dir string, data []byte) (bool, error) {
	name := dir + "/" + epochFile(m.Epoch)
	old, err := readAll(s.fs, name+suffixEpoch, s.limit())
	switch {
	case err == nil && bytes.Equal(old, data):
		return true, s.fs.syncDir(dir) // whoever renamed it may not have lived to sync
	case err == nil:
		return false, fault(lockstep.ErrConflict, "commit", "Epoch", strconv.FormatUint(uint64(m.Epoch), 10), "another manifest has this number")
	case !missing(err):
		return false, err
	}
	gone, err := exists(s.fs, name+suffixGone)
	if gone {
		err = fault(lockstep.ErrConflict, "commit", "Epoch", strconv.FormatUint(uint64(m.Epoch), 10), "the number was used and dropped")
	}
	return false, err
}

// checkImages makes sure that all that a manifest names is there; the store's
// lock is held, so it stays.
func (s *Store) checkImages(m *checkpoint.Manifest) error {
	if err := s.refresh(); err != nil {
		return err
	}
	var locs []loc
	for i := range m.Ranks {
		r := &m.Ranks[i]
		field := "Ranks[" + strconv.Itoa(i) + "]"
		img, err := s.findRank(r.Image, field)
		if err != nil {
			return err
		}
		if img.job != m.Job || img.epoch != m.Epoch || img.rank != r.Rank || img.step != r.Step || img.size() != uint64(r.Bytes) {
			return invalid("commit", field+".Image", errtext.Quote(hex.EncodeToString(r.Image[:])), "is the image of another job, epoch, rank, step or length")
		}
		for j := range img.streams {
			for k := range img.streams[j].refs {
				if ref := &img.streams[j].refs[k]; !ref.zero {
					if locs = s.index.find(locs[:0], ref.id); len(locs) == 0 {
						return fault(lockstep.ErrStale, "commit", field+".Image", errtext.Quote(hex.EncodeToString(r.Image[:])), "a region of the image is not in the store; save again")
					}
				}
			}
		}
	}
	return nil
}

// findRank reads a rank's manifest, from the trash if it has to.
func (s *Store) findRank(d checkpoint.Digest, field string) (*rankManifest, error) {
	m, err := s.readRank(d)
	if !missing(err) {
		return m, err
	}
	trash, err := s.fs.list(dirTrash)
	if err != nil {
		return nil, err
	}
	name := hex.EncodeToString(d[:])
	if err := s.rescue(trash, name+suffixRank, dirRanks); err != nil {
		if errors.Is(err, lockstep.ErrStale) {
			return nil, fault(lockstep.ErrUnknown, "commit", field+".Image", errtext.Quote(name), "the store has no such image")
		}
		return nil, err
	}
	return s.readRank(d)
}

// Committed implements checkpoint.Ledger. An epoch that was dropped counts as not
// committed.
func (s *Store) Committed(ctx context.Context, job lockstep.JobID, epoch checkpoint.Epoch) (*checkpoint.Manifest, bool, error) {
	if err := errors.Join(ctx.Err(), job.Validate()); err != nil {
		return nil, false, err
	}
	if err := s.hold("ledger"); err != nil {
		return nil, false, err
	}
	defer s.drop()
	m, err := s.readEpoch(job, epoch, suffixEpoch)
	if missing(err) {
		return nil, false, nil
	}
	return m, err == nil, wrap("committed", err)
}

// Latest implements checkpoint.Ledger. A manifest that is damaged is passed over,
// as one that is not there; Verify tells of it.
func (s *Store) Latest(ctx context.Context, job lockstep.JobID) (*checkpoint.Manifest, bool, error) {
	epochs, err := s.Epochs(ctx, job)
	if err != nil {
		return nil, false, err
	}
	for i := len(epochs) - 1; i >= 0; i-- {
		m, ok, err := s.Committed(ctx, job, epochs[i])
		if ok || err != nil && !isCorrupt(err) {
			return m, ok, err
		}
	}
	return nil, false, nil
}

// Epochs returns the numbers of a job's committed epochs, in order.
func (s *Store) Epochs(ctx context.Context, job lockstep.JobID) ([]checkpoint.Epoch, error) {
	if err := errors.Join(ctx.Err(), job.Validate()); err != nil {
		return nil, err
	}
	if err := s.hold("ledger"); err != nil {
		return nil, err
	}
	defer s.drop()
	names, err := s.fs.list(jobDir(job))
	if err != nil && !missing(err) {
		return nil, wrap("epochs", err)
	}
	var list []checkpoint.Epoch
	for _, n := range names { // sorted as numbers are
		if e, ok := epochNumber(n, suffixEpoch); ok {
			list = append(list, e)
		}
	}
	return list, nil
}

// Drop takes back that an epoch is committed: it can no longer be opened, and
// Collect frees what no other epoch shares. Images of it that are open stay
// readable. Its number stays used. An epoch that is not there is
// lockstep.ErrUnknown.
func (s *Store) Drop(ctx context.Context, job lockstep.JobID, epoch checkpoint.Epoch) error {
	return wrap("drop", s.withJob(ctx, job, func(dir string) error {
		name := dir + "/" + epochFile(epoch)
		err := s.fs.rename(name+suffixEpoch, name+suffixGone)
		if missing(err) {
			return fault(lockstep.ErrUnknown, "drop", "epoch", strconv.FormatUint(uint64(epoch), 10), "is not committed")
		}
		return errors.Join(err, s.fs.syncDir(dir))
	}))
}
