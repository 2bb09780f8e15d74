package fairness

import (
	"math"
	"math/big"
	"math/bits"
	"time"

	"github.com/google/btree"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// This file is the half-life. What was held s ago is to count 2^(-s/h) of itself,
// so an account at t is the integral of rate × 2^(-(t-s)/h). All accounts decay
// alike, so their order is that of the integrals of rate × 2^(s/h), and those are
// plain integrals over warped time, 2^(s/h)·h/ln 2. So a second ledger is kept with
// the same events at warped times, in integers like the first, and it orders.
//
// Warped time begins anew at each epoch, ten half-lives long, at 2^52, and at its
// end comes to 2^62; then all accounts are halved ten times. Epochs begin at fixed
// times, and warped times telescope, so an account does not depend on how many
// events there were between its own.

const (
	epochHalves = 10
	warpStart   = 1 << 52
	phaseBits   = 48 // of a half-life, which is how finely time is told
)

// warp is the clock of a half-life.
type warp struct {
	half  int64
	epoch int64 // epoch is the number of the present one.
}

func newWarp(h time.Duration) warp { return warp{half: int64(h)} }

// epochOf returns the number of the epoch that ns is in.
func (w *warp) epochOf(ns int64) int64 {
	length := w.half * epochHalves // below 2^62
	n := ns / length
	if ns%length < 0 {
		n--
	}
	return n
}

// at returns warped time at ns, which is in the present epoch, in units of that.
func (w *warp) at(ns int64) int64 {
	x := uint64(ns) - uint64(w.epoch*w.half*epochHalves)
	n, rem := x/uint64(w.half), x%uint64(w.half)
	phase, _ := bits.Div64(rem>>(64-phaseBits), rem<<phaseBits, uint64(w.half))
	// exp2 is 2^63 to 2^64, so that this is 2^52 to 2^62.
	return int64(exp2(phase) >> (63 - 52 - n))
}

// look returns the view of ns, which may be in an epoch to come: then accounts as of
// the latest event are halved once for each half-life of the epochs in between, and
// what came since is added in units of that epoch. That is what toEpoch comes to, but
// for what it rounds.
func (w *warp) look(l *Ledger, ns int64) view {
	if !l.started {
		return l.at(l.now)
	}
	there := warp{w.half, w.epochOf(max(ns, l.stamp))}
	tau := there.at(max(ns, l.stamp))
	if there.epoch == w.epoch {
		return l.at(tau)
	}
	v := view{now: tau, from: l.now, aged: w.halvings(there.epoch), levels: l.levels()}
	v.dt = uint64(tau) - uint64(l.now)>>v.aged
	l.raise(&v)
	return v
}

// halvings returns how often accounts are halved from the present epoch to a later
// one, or as often as leaves nothing of them.
func (w *warp) halvings(epoch int64) uint {
	return uint(min(epoch-w.epoch, 127)) * epochHalves
}

// agedInt returns what an account as of Ledger.now that does not grow is at v.
func (v *view) agedInt(a int128.Int) int128.Int {
	if v.aged == 0 {
		return a
	}
	return halved(a, v.aged)
}

// agedFixed is agedInt of an account that is not negative.
func (v *view) agedFixed(a int128.Fixed) int128.Fixed {
	if v.aged == 0 {
		return a
	}
	return halvedFixed(a, v.aged)
}

// exp2 returns 2^(phase/2^48) · 2^63, rounded down with an error below 2^-57 of it,
// for phase below 2^48: the product of 2^(2^-i) over the bits that are set.
func exp2(phase uint64) uint64 {
	v := uint64(1) << 63
	for i := range roots {
		if phase>>(phaseBits-1-i)&1 != 0 {
			hi, lo := bits.Mul64(v, roots[i])
			v = hi<<1 | lo>>63 // below 2^64, since all factors together are below 2
		}
	}
	return v
}

// roots, which is immutable, is 2^(2^-1), 2^(2^-2) and so on, times 2^63, rounded down.
var roots = [phaseBits]uint64{
	0xb504f333f9de6484, 0x9837f0518db8a96f, 0x8b95c1e3ea8bd6e6, 0x85aac367cc487b14,
	0x82cd8698ac2ba1d7, 0x8164d1f3bc030773, 0x80b1ed4fd999ab6c, 0x8058d7d2d5e5f6b0,
	0x802c6436d0e04f50, 0x8016302f17467628, 0x800b179c82028fd0, 0x80058baf7fee3b5d,
	0x8002c5d00fdcfcb6, 0x800162e61bed4a48, 0x8000b17292f702a3, 0x800058b92abbae02,
	0x80002c5c8dade4d7, 0x8000162e44eaf636, 0x80000b1721fa7c18, 0x8000058b90de7e4c,
	0x800002c5c8678f36, 0x80000162e431db9f, 0x800000b1721872d0, 0x80000058b90c1aa8,
	0x8000002c5c8605a4, 0x800000162e4300e6, 0x8000000b17217ff8, 0x800000058b90bfdd,
	0x80000002c5c85fe6, 0x8000000162e42ff1, 0x80000000b17217f8, 0x8000000058b90bfc,
	0x800000002c5c85fd, 0x80000000162e42fe, 0x800000000b17217f, 0x80000000058b90bf,
	0x8000000002c5c85f, 0x800000000162e42f, 0x8000000000b17217, 0x800000000058b90b,
	0x80000000002c5c85, 0x8000000000162e42, 0x80000000000b1721, 0x8000000000058b90,
	0x800000000002c5c8, 0x80000000000162e4, 0x800000000000b172, 0x80000000000058b9,
}

// ln2 is the natural logarithm of 2, times 2^64.
const ln2 = 0xb17217f7d1cf79ab

// slope returns how much warped time goes by per nanosecond at warped time τ, times
// 2^64, rounded down: τ·ln 2/h. It is below 2^64·2^63.
func (w *warp) slope(tau int64) int128.Fixed {
	hi, lo := bits.Mul64(uint64(tau), ln2) // τ·ln 2 in steps of 2^-64
	q, rem := hi/uint64(w.half), hi%uint64(w.half)
	frac, _ := bits.Div64(rem, lo, uint64(w.half))
	return int128.FixedFromWords(0, q, frac)
}

// over returns how much warped time d is, at the speed of warped time τ, at least 1.
// More than two half-lives count as that, since what comes of it is to fit 2^63,
// wherever in its epoch τ is.
func (w *warp) over(d time.Duration, tau int64) uint64 {
	_, lo := w.slope(tau).Mul(uint64(min(int64(d), 2*w.half))).Floor().Words()
	return max(lo, 1)
}

// follow does to recent what an event did to l.
func (l *Ledger) follow(c *change) {
	e := *c.e
	e.Seq = 0
	l.toEpoch(c.now)
	tau := l.warp.at(c.now)
	e.Time = lockstep.FromNanos(tau)
	l.recent.stamp = c.now
	if e.Kind == EventOverhead { // in units of now, not of when it was held
		e.Cost = lockstep.GPUTime(l.warp.recount(int128.Int(e.Cost), tau))
		j := l.recent.jobs[e.Job]
		if service, _ := j.at(tau); int128.Int(e.Cost).Cmp(service.Sub(j.overhead)) > 0 {
			e.Cost = lockstep.GPUTime(service.Sub(j.overhead)) // what is left of it by now
		}
	}
	_ = l.recent.Apply(e) // it has the same tenants and jobs in the same phases, so it takes what l took
}

// real returns the unwarped time of an event at now.
func (l *Ledger) real(now int64) int64 {
	if l.clock != nil {
		return l.stamp
	}
	return now
}

// recount returns an amount of device time in units of warped time at τ.
func (w *warp) recount(v int128.Int, tau int64) int128.Int {
	return scaled(v, big.NewInt(tau), new(big.Int).SetUint64(ln2), big.NewInt(w.half), 64)
}

// account returns an account in units of warped time as device time, at τ.
func (w *warp) account(v int128.Int, tau int64) int128.Int {
	num, den := new(big.Int).Lsh(big.NewInt(w.half), 64), new(big.Int).SetUint64(ln2)
	return scaled(v, num, big.NewInt(1), den.Mul(den, big.NewInt(tau)), 0)
}

// scaled returns v·a·b/(c·2^shift), rounded towards zero and held at 2^127-1.
func scaled(v int128.Int, a, b, c *big.Int, shift uint) int128.Int {
	x := v.Big()
	x.Mul(x, a).Mul(x, b)
	x.Quo(x, new(big.Int).Lsh(c, shift))
	if x.BitLen() > 126 {
		return int128.FromWords(math.MaxInt64, math.MaxUint64)
	}
	negative := x.Sign() < 0
	x.Abs(x)
	lo := new(big.Int).And(x, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	r := int128.FromWords(new(big.Int).Rsh(x, 64).Uint64(), lo)
	if negative {
		return r.Neg()
	}
	return r
}

// decayed fills in what s says of recent.
func (l *Ledger) decayed(s *Statement, now int64) {
	r := l.recent
	t, v := r.tenants[s.Tenant], r.look(now)
	s.RecentService = lockstep.GPUTime(l.warp.account(t.served(&v), v.now))
	s.RecentEntitlement = lockstep.GPUTime(l.warp.account(r.entitled(t, &v).Near(), v.now))
	s.Adjust = lockstep.GPUTime(l.warp.account(v.agedInt(t.adjust), v.now))
}

// queueOf returns the queue of t that passes read.
func (l *Ledger) queueOf(t *tenant) *btree.BTreeG[entry] {
	if l.recent != nil {
		return l.recent.tenants[t.id].queue
	}
	return t.queue
}

// toEpoch brings recent to the epoch that now is in: it accrues to the end of the
// present one, halves, and goes on. With nothing happening for 14 epochs all that
// was before is gone, so earlier ones are left out.
func (l *Ledger) toEpoch(now int64) {
	w, r := &l.warp, l.recent
	last := w.epochOf(now)
	if !r.started {
		w.epoch = last
		return
	}
	if last == w.epoch {
		return
	}
	const enough = 128/epochHalves + 2
	if skip := last - w.epoch - enough; skip > 0 {
		r.accrue(warpStart << epochHalves)
		r.halve(127)
		w.epoch += skip
	}
	for ; w.epoch < last; w.epoch++ {
		r.accrue(warpStart << epochHalves)
		r.halve(epochHalves)
	}
	r.pass.toEpoch(w)
}

// toEpoch brings what a pass noted to the present epoch, unless it began in that or
// looked ahead to it.
func (p *pass) toEpoch(w *warp) {
	if p.epoch >= w.epoch {
		return
	}
	k := (&warp{epoch: p.epoch}).halvings(w.epoch)
	p.epoch, p.horizon, p.quantum = w.epoch, p.horizon>>k, p.quantum>>k
	for i := range p.heap {
		s := &p.heap[i]
		s.lag, s.tenant.turn.service = halved(s.lag, k), halved(s.tenant.turn.service, k)
	}
	for i := len(p.heap)/2 - 1; i >= 0; i-- {
		p.down(i) // what differed may be equal now
	}
}

// halve divides all accounts, which are as of warped time's end, by 2^k, and sets
// the time back to its start.
func (l *Ledger) halve(k uint) {
	for i := range l.tiers {
		pushAll(l.tiers[i].root)
	}
	for _, t := range l.tenants { // each on its own, so order does not matter
		l.settle(t)
	}
	for _, j := range l.jobs { // each on its own, so order does not matter
		l.settleJob(j)
	}
	l.now = warpStart
	l.offered, l.owed, l.served = halved(l.offered, k), halved(l.owed, k), halved(l.served, k)
	l.nominal = halvedFixed(l.nominal, k)
	for _, t := range l.tenants { // each on its own, so order does not matter
		t.since = l.now
		t.entitled = halvedFixed(t.entitled, k)
		t.nominal, t.nominalFrom = halvedFixed(t.nominal, k), l.nominal
		t.idleFrom = t.nominal
		t.share, t.shareRest = halved(t.share, k), halvedFixed(t.shareRest, k)
		t.shareFrom = t.entitled
		for _, v := range []*int128.Int{&t.service, &t.worst, &t.raw, &t.overhead, &t.adjust} {
			*v = halved(*v, k)
		}
		t.index = worstIndex{}
	}
	for _, j := range l.jobs { // each on its own, so order does not matter
		j.since = l.now
		for _, v := range []*int128.Int{&j.service, &j.wanted, &j.share, &j.ran, &j.overhead} {
			*v = halved(*v, k)
		}
		if !j.done { // all of it is no older than its tenant's
			j.share = least(j.share, j.tenant.share)
		}
	}
	l.requeueAll(k)
}

// requeueAll puts the jobs of all queues in order anew, since keys that differed
// may be equal now.
func (l *Ledger) requeueAll(k uint) {
	var jobs []*job
	for _, t := range l.ready {
		jobs = jobs[:0]
		t.queue.Ascend(func(e entry) bool {
			jobs = append(jobs, e.job)
			return true
		})
		t.queue.Clear(true)
		for _, j := range jobs {
			j.key = l.keyOf(j, j.service, j.ran)
			t.queue.ReplaceOrInsert(l.entry(j))
		}
	}
	l.pass.reader = nil
	if l.cfg.JobOrder != MostOwed && l.cfg.JobOrder != LeastRun {
		return // keys are no accounts
	}
	// What a pass reads on from may have left the queue. It is put before all that was
	// behind it, whose two accounts were rounded; nothing is proposed twice for it.
	for _, t := range l.tenants { // each on its own, so order does not matter
		t.turn.after.key = halved(t.turn.after.key, k).Sub(int128.Of(2))
	}
}

// pushAll settles the tags of a subtree with its tenants.
func pushAll(t *tenant) {
	for ; t != nil; t = t.right {
		t.push()
		pushAll(t.left)
	}
}

// halved returns v/2^k, rounded towards zero.
func halved(v int128.Int, k uint) int128.Int {
	if v.Sign() < 0 {
		return halved(v.Neg(), k).Neg()
	}
	hi, lo := v.Words()
	if k >= 64 {
		return int128.FromWords(0, hi>>(k-64))
	}
	return int128.FromWords(hi>>k, lo>>k|hi<<(64-k))
}

// halvedFixed is halved of a value that is not negative; its fraction is kept.
func halvedFixed(v int128.Fixed, k uint) int128.Fixed {
	hi, lo, frac := v.Words()
	for ; k >= 64; k -= 64 {
		hi, lo, frac = 0, hi, lo
	}
	return int128.FixedFromWords(hi>>k, lo>>k|hi<<(64-k), frac>>k|lo<<(64-k))
}
