package fairness

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused. Its body is all of
// fixed width and little endian but for IDs, which have their length in front:
// the ledger, its tenants by ID and its jobs by ID. Accruals are as of the latest
// event, so that the bytes do not depend on when the ledger was read, nor on the
// trees' shapes.
const (
	format  = "lockstep/fairness"
	version = 2
)

// What a saved job does.
const (
	savedWaiting = iota
	savedRunning
	savedDone
)

// Snapshot writes the ledger to w, as one line with format, version and SHA-256,
// then binary: the same bytes for the same events. The configuration is not in
// it, nor are passes and Due.
func (l *Ledger) Snapshot(w io.Writer) error {
	if err := snapshot.Write(w, format, version, l.encode()); err != nil {
		return fmt.Errorf("fairness: snapshot: %w", err)
	}
	return nil
}

func (l *Ledger) encode() []byte {
	var s saver
	s.id(string(l.cfg.Basis))
	s.u64(uint64(l.cfg.Memory.Bucket))
	s.u64(uint64(l.cfg.Memory.Buckets))
	s.u64(uint64(l.cfg.Memory.HalfLife))
	l.save(&s)
	if l.recent != nil {
		s.u64(uint64(l.warp.epoch))
		l.recent.save(&s)
	}
	return s.b
}

func (l *Ledger) save(s *saver) {
	s.u64(uint64(l.bucket))
	s.u64(l.seq)
	s.flag(l.started)
	s.u64(uint64(l.now))
	s.u64(uint64(l.capacity))
	s.wide(l.offered)
	s.wide(l.owed)
	s.wide(l.served)
	s.u64(l.nominalRest)
	s.u64(l.maxPull)
	s.u64(l.tiers[0].rest)
	s.u64(l.tiers[1].rest)

	v := l.at(l.now)
	s.u32(uint32(len(l.tenants)))
	for _, t := range l.sorted() {
		l.saveTenant(s, t, &v)
	}
	jobs := make([]*job, 0, len(l.jobs))
	for _, j := range l.jobs { // in any order: sorted below
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int { return strings.Compare(string(a.id), string(b.id)) })
	s.u32(uint32(len(jobs)))
	for _, j := range jobs {
		l.saveJob(s, j)
	}
}

func (l *Ledger) saveTenant(s *saver, t *tenant, v *view) {
	share, rest, entitled := l.shared(t, v)
	s.id(string(t.id))
	s.flag(t.joined)
	s.u64(uint64(t.weight))
	s.fixed(entitled)
	s.wide(t.served(v))
	s.wide(t.worst)
	s.fixed(l.nominally(t, v))
	s.wide(share)
	s.fixed(rest)
	s.wide(t.handled(v))
	s.wide(t.credit)
	s.fixed(t.idleFrom)
	s.wide(t.overhead)
	s.wide(t.adjust)
	s.wide(t.index.service)
	s.wide(t.index.entitled)
	s.u64(uint64(t.born))
	if l.cfg.Memory.Bucket == 0 {
		return
	}
	for b := l.bucket - int64(l.cfg.Memory.Buckets); b <= l.bucket; b++ {
		m := mark{}
		if b >= t.born && t.marks != nil {
			m = *l.markOf(t, b)
		}
		s.wide(m.entitled)
		s.wide(m.service)
		s.wide(m.adjust)
	}
}

func (l *Ledger) saveJob(s *saver, j *job) {
	state := uint32(savedWaiting)
	switch {
	case j.done:
		state = savedDone
	case j.running:
		state = savedRunning
	}
	service, wanted := j.at(l.now)
	s.id(string(j.id))
	s.id(string(j.tenant.id))
	s.u32(state)
	s.u64(uint64(j.demand))
	s.u64(uint64(j.grant))
	s.u64(uint64(j.submitted))
	s.wide(service)
	s.wide(wanted)
	s.wide(j.share)
	s.u64(uint64(j.raw))
	s.wide(j.ranAt(l.now))
	s.wide(j.overhead)
}

// Restore returns the ledger that Snapshot wrote to r, under cfg, whose Basis and
// Memory must be those of the ledger saved; its Capacity does not count, and the rest
// may have changed. Bytes that are cut off, altered, of another version or
// inconsistent are ErrInvalid, and another basis or memory is ErrConflict.
func Restore(cfg Config, r io.Reader) (*Ledger, error) {
	l, err := New(cfg)
	if err != nil {
		return nil, err
	}
	body, err := snapshot.Read(r, "fairness: restore", format, version)
	if err != nil {
		return nil, err
	}
	d := loader{b: body}
	if basis := Basis(d.id()); d.bad == "" && basis != cfg.Basis {
		return nil, fault(lockstep.ErrConflict, "restore", "Basis", errtext.Quote(cfg.Basis), "the snapshot has "+errtext.Quote(basis))
	}
	memory := Memory{time.Duration(d.u64()), int(min(d.u64(), maxBuckets+1)), time.Duration(d.u64())}
	if d.bad == "" && memory != cfg.Memory {
		return nil, fault(lockstep.ErrConflict, "restore", "Memory", fmt.Sprintf("%+v", cfg.Memory), fmt.Sprintf("the snapshot has %+v", memory))
	}
	l.load(&d)
	if l.recent != nil {
		l.loadRecent(&d)
	}
	if d.bad == "" && len(d.b) != 0 {
		d.bad = "bytes are left over"
	}
	if d.bad != "" {
		return nil, fault(lockstep.ErrInvalid, "restore", "snapshot", "", d.bad)
	}
	return l, nil
}

// loadRecent fills l.recent, and holds it against l.
func (l *Ledger) loadRecent(d *loader) {
	r := l.recent
	l.warp.epoch, r.stamp = int64(d.u64()), l.now
	r.load(d)
	d.check(d.bad != "" || r.seq == l.seq && r.started == l.started && len(r.tenants) == len(l.tenants) && len(r.jobs) == len(l.jobs), "the decayed accounts are others")
	d.check(d.bad != "" || r.capacity == l.capacity && l.warp.reads(l), "the decayed accounts are of another time")
	for id, t := range l.tenants { // the order does not matter: all faults of them read alike
		u := r.tenants[id]
		d.check(d.bad != "" || u != nil && u.weight == t.weight && u.joined == t.joined, "the decayed accounts have other tenants")
	}
	for id, j := range l.jobs { // the order does not matter: all faults of them read alike
		k := r.jobs[id]
		d.check(d.bad != "" || k != nil && k.demand == j.demand && k.grant == j.grant && k.raw == j.raw && k.running == j.running && k.done == j.done && k.submitted == j.submitted && k.tenant.id == j.tenant.id,
			"the decayed accounts have other jobs")
	}
}

// reads says whether the recent of l is as of the time that l is.
func (w *warp) reads(l *Ledger) bool {
	if !l.started {
		return w.epoch == 0
	}
	return w.epoch == w.epochOf(l.now) && l.recent.now == w.at(l.now)
}

// load fills l, which is new, and leaves in d what is wrong.
func (l *Ledger) load(d *loader) {
	l.bucket = int64(d.u64())
	l.seq, l.started, l.now = d.u64(), d.flag(), int64(d.u64())
	l.capacity = d.amount()
	l.offered, l.owed, l.served = d.natural(), d.natural(), d.natural()
	l.nominalRest, l.maxPull = d.u64(), d.u64()
	l.tiers[0].rest, l.tiers[1].rest = d.u64(), d.u64()
	d.check(l.bucket == l.cfg.Memory.bucketOf(l.now), "marks of another time")

	last := ""
	for i := range d.u32() {
		t := l.loadTenant(d)
		d.check(i == 0 || last < string(t.id), "tenants out of order")
		if last = string(t.id); d.bad != "" {
			return
		}
		l.tenants[t.id] = t
	}
	last = ""
	for range d.u32() {
		j, grant, raw := l.loadJob(d)
		d.check(last < string(j.id), "jobs out of order")
		if last = string(j.id); d.bad != "" {
			return
		}
		l.adopt(j, grant, raw)
	}
	d.check(l.started || l.now == 0 && l.seq == 0 && len(l.tenants) == 0, "accounts before the first event")
	for _, t := range l.sorted() {
		if t.joined {
			l.place(t)
		}
		d.check(t.joined || t.live == 0, "a tenant left with jobs")
	}
}

// adopt makes j, which was loaded, one of its tenant's.
func (l *Ledger) adopt(j *job, grant, raw lockstep.MilliGPU) {
	l.jobs[j.id] = j
	t := j.tenant
	if j.done {
		t.kept++
		return
	}
	t.live++
	t.demand += j.demand
	l.demand += j.demand
	if j.running {
		l.setGrant(j, grant, raw)
	} else {
		l.enqueue(j)
	}
}

func (l *Ledger) loadTenant(d *loader) *tenant {
	t := &tenant{id: lockstep.TenantID(d.id()), joined: d.flag(), since: l.now, readyAt: -1}
	weight := d.u64()
	d.check(weight <= MaxWeight, "a weight out of range")
	d.check(t.id == "" || t.id.Validate() == nil, "a malformed ID")
	t.weight = int64(weight)
	t.entitled = d.fixed()
	t.service, t.worst = d.natural(), d.natural()
	t.nominal = d.fixed()
	t.share, t.shareRest, t.shareFrom = d.natural(), d.fixed(), t.entitled
	t.raw, t.credit, t.idleFrom, t.overhead, t.adjust = d.natural(), d.natural(), d.fixed(), d.natural(), d.wide()
	d.check(t.idleFrom.Cmp(t.nominal) <= 0, "credit from after now")
	t.index = worstIndex{d.natural(), d.natural()}
	d.check(t.index.entitled.Sign() != 0 || t.index.service.Sign() == 0, "an index of nothing")
	t.nominalFrom = l.nominal
	t.born = int64(d.u64())
	d.check(t.born <= l.bucket+1, "an account from after now")
	if l.cfg.Memory.Bucket == 0 {
		return t
	}
	for b := l.bucket - int64(l.cfg.Memory.Buckets); b <= l.bucket && d.bad == ""; b++ {
		m := mark{d.natural(), d.natural(), d.wide()}
		if b >= t.born {
			*l.markOf(t, b) = m
		} else {
			d.check(m == mark{}, "a mark from before the account")
		}
	}
	return t
}

func (l *Ledger) loadJob(d *loader) (j *job, grant, raw lockstep.MilliGPU) {
	j = &job{id: lockstep.JobID(d.id()), since: l.now}
	j.tenant = l.tenants[lockstep.TenantID(d.id())]
	state := d.u32()
	j.demand, grant = d.amount(), d.amount()
	j.submitted = int64(d.u64())
	j.service, j.wanted, j.share = d.natural(), d.natural(), d.natural()
	raw, j.ran, j.overhead = d.amount(), d.natural(), d.natural()
	j.running, j.done = state == savedRunning, state == savedDone
	d.check(raw <= maxRate-l.rawRate && (j.running || raw == 0), "devices out of range")
	d.check(j.overhead.Cmp(j.service) <= 0, "more overhead than service")
	d.check(j.id.Validate() == nil, "a malformed ID")
	d.check(j.tenant != nil, "a job without its tenant")
	d.check(state <= savedDone && (l.clock != nil || j.submitted <= l.now), "a job in no known state")
	d.check(d.bad != "" || j.done || j.share.Cmp(j.tenant.share) <= 0, "a job that is older than its tenant's account")
	d.check(grant <= j.demand && (j.running || grant == 0), "a job that holds more than it may")
	d.check(j.done || j.demand <= maxRate-l.demand, "demands out of range")
	return j, grant, raw
}

// saver appends values to b.
type saver struct{ b []byte }

func (s *saver) u32(v uint32) { s.b = binary.LittleEndian.AppendUint32(s.b, v) }
func (s *saver) u64(v uint64) { s.b = binary.LittleEndian.AppendUint64(s.b, v) }

func (s *saver) flag(v bool) {
	if v {
		s.b = append(s.b, 1)
	} else {
		s.b = append(s.b, 0)
	}
}

func (s *saver) id(v string) {
	s.u32(uint32(len(v)))
	s.b = append(s.b, v...)
}

func (s *saver) wide(v int128.Int) {
	hi, lo := v.Words()
	s.u64(hi)
	s.u64(lo)
}

func (s *saver) fixed(v int128.Fixed) {
	hi, lo, frac := v.Words()
	s.u64(hi)
	s.u64(lo)
	s.u64(frac)
}

// loader takes values off b. Once something is wrong, bad says what, and every
// value is zero.
type loader struct {
	b   []byte
	bad string
}

func (d *loader) check(ok bool, bad string) {
	if !ok && d.bad == "" {
		d.bad = bad
	}
}

func (d *loader) take(n uint64) []byte {
	d.check(n <= uint64(len(d.b)), "cut off")
	if d.bad != "" {
		return make([]byte, min(n, 8))
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *loader) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *loader) u64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

func (d *loader) flag() bool {
	v := d.take(1)[0]
	d.check(v <= 1, "a flag that is neither set nor clear")
	return v == 1
}

func (d *loader) id() string { return string(d.take(uint64(d.u32()))) }

func (d *loader) amount() lockstep.MilliGPU {
	v := d.u64()
	d.check(v <= maxRate, "an amount out of range")
	return lockstep.MilliGPU(v)
}

func (d *loader) natural() int128.Int {
	hi, lo := d.u64(), d.u64()
	v := int128.FromWords(hi, lo)
	d.check(v.Sign() >= 0, "an amount out of range")
	return v
}

func (d *loader) wide() int128.Int {
	hi, lo := d.u64(), d.u64()
	return int128.FromWords(hi, lo)
}

func (d *loader) fixed() int128.Fixed {
	hi, lo, frac := d.u64(), d.u64(), d.u64()
	v := int128.FixedFromWords(hi, lo, frac)
	d.check(v.Floor().Sign() >= 0, "an amount out of range")
	return v
}
