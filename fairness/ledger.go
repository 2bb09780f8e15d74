package fairness

import (
	"math"
	"time"

	"github.com/google/btree"
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Basis says what a tenant is entitled to while others ask for less.
type Basis string

// The bases. The zero Basis is MaxMin.
const (
	MaxMin Basis = ""       // MaxMin divides the capacity by weight, nobody getting more than it demands, so that what some leave goes to the rest.
	Active Basis = "active" // Active entitles a tenant to its weight's part among those that demand anything now, or its demand if that is less; what some leave goes to nobody, as in Gandiva_fair (Chaudhary et al., EuroSys 2020) and YARN's instantaneous fair share.
	Fixed  Basis = "fixed"  // Fixed entitles a tenant to its weight's part among all that joined, or its demand if that is less; what some leave goes to nobody. It is ASTRAEA's rule where the weights are its quotas, rounded down to whole devices, and the capacity is their sum; its order is by Service over Nominal.
)

const (
	// DefaultHorizon is Config.Horizon where that is 0, ASTRAEA's lease term.
	DefaultHorizon = 30 * time.Minute

	// DefaultQuantum is Config.Quantum where that is 0.
	DefaultQuantum = 4 * time.Minute

	// MaxWeight is the largest weight of a tenant.
	MaxWeight = 1 << 32

	// maxRate bounds the capacity, and the demands of all jobs together.
	maxRate = math.MaxInt64 / 2
)

// Ledger keeps what each tenant and job was entitled to and what it got, exactly,
// and proposes jobs in the order in which they are owed. Make one with New or
// Restore. It is not safe for concurrent use; the caller serializes calls.
type Ledger struct {
	cfg Config

	seq      uint64 // seq is the number of events applied.
	started  bool   // started says that now is set.
	now      int64  // now is the time of the latest event, up to which all is accrued.
	capacity lockstep.MilliGPU

	tenants map[lockstep.TenantID]*tenant
	jobs    map[lockstep.JobID]*job
	tiers   [2]tier // tiers are the tenants with a weight and those without, joined ones only.

	demand, rate, rawRate lockstep.MilliGPU // demand, rate and rawRate are sums over all jobs.
	offered, owed, served int128.Int        // offered, owed and served are integrals of capacity, of min(capacity, demand) and of rate.
	nominal               int128.Fixed      // nominal is the integral of capacity / sum of weights.
	nominalRest           uint64            // nominalRest is what was left to divide of it.
	maxPull               uint64            // maxPull is the largest sum of weights that shared so far, for ErrorBound.

	byID  []*tenant // byID is the tenants by ID; nil until asked for.
	ready []*tenant // ready are the tenants with jobs to propose, in no particular order.
	due   []*job    // due are running jobs that compete, in no particular order.
	pass  pass
	free  *btree.FreeListG[entry]

	bucket int64   // bucket is the latest boundary that marks were made at, with a window.
	warp   warp    // warp is the clock of recent, with a half-life.
	recent *Ledger // recent keeps the same accounts in warped time, and orders; nil without a half-life.
	clock  *warp   // clock is the warp of which this is the recent; nil if it is none.
	stamp  int64   // stamp is the unwarped time of the latest event, if it is one.
}

// tenant is one account.
type tenant struct {
	id           lockstep.TenantID
	weight       int64
	demand, rate lockstep.MilliGPU // demand and rate are sums over its jobs.
	node                           // node is meaningful while joined; node.entitled also when not.

	joined     bool
	live, kept int // live counts its jobs that are not done, kept those that are but not forgotten.

	since       int64      // since is when service was brought up to date.
	service     int128.Int // service is as of since.
	worst       int128.Int // worst is the greatest lag at its own events, at least 0.
	nominal     int128.Fixed
	nominalFrom int128.Fixed // nominalFrom is Ledger.nominal when nominal was brought up to date.

	rawRate  lockstep.MilliGPU // rawRate is what its jobs hold in devices.
	raw      int128.Int        // raw is the integral of rawRate as of since.
	credit   int128.Int        // credit is what it saved while idle, as of idleFrom.
	idleFrom int128.Fixed      // idleFrom is nominal as of when credit was brought up to date.
	overhead int128.Int        // overhead is what its jobs spent on saving and restoring, as far as told.
	adjust   int128.Int        // adjust is what others owe it for that, less what it owes them.
	index    worstIndex        // index is the least index at its own events.
	born     int64             // born is the first bucket boundary that it saw.
	marks    []mark            // marks are its accounts at the latest bucket boundaries, by number modulo their count.

	// Job entitlement: each live job gets an equal part of the tenant's.
	share     int128.Int   // share is what a job got that was there from the beginning.
	shareFrom int128.Fixed // shareFrom is the entitlement that share accounts for, with shareRest.
	shareRest int128.Fixed // shareRest is what did not divide by the jobs; it goes to those there next.

	queue   *btree.BTreeG[entry] // queue is its waiting and due jobs in their order; nil before the first.
	readyAt int                  // readyAt is its place in Ledger.ready.
	turn    turn
}

// pull returns what t weighs within its tier.
func (t *tenant) pull() uint64 {
	if t.weight == 0 {
		return 1
	}
	return uint64(t.weight)
}

// rank returns which tier t belongs to.
func (t *tenant) rank() int {
	if t.weight == 0 {
		return 1
	}
	return 0
}

// job is one job until it is forgotten.
type job struct {
	id            lockstep.JobID
	tenant        *tenant
	demand, grant lockstep.MilliGPU
	raw           lockstep.MilliGPU // raw is its grant in devices.
	running, done bool
	due           bool // due says that it runs and is in the queue all the same.
	dueAt         int  // dueAt is its place in Ledger.due.

	submitted, since int64
	ran              int128.Int // ran is for how long it held its grants, as of since.
	overhead         int128.Int // overhead is how much of its service it was told that saving and restoring took.
	service, wanted  int128.Int // service and wanted are as of since.
	share            int128.Int // share is the tenant's share at submission; once done, what the job got in all.

	key      int128.Int // key is its place in the queue, while there.
	proposed uint64     // proposed is the pass that proposed it last.
	charged  uint64     // charged is the pass that granted it last.
}

// New returns a Ledger without tenants.
func New(cfg Config) (*Ledger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l := &Ledger{
		cfg:      cfg.withDefaults(),
		capacity: cfg.Capacity,
		tenants:  make(map[lockstep.TenantID]*tenant),
		jobs:     make(map[lockstep.JobID]*job),
		free:     btree.NewFreeListG[entry](btree.DefaultFreeListSize),
	}
	l.pass.visit = l.pass.take
	if h := cfg.Memory.HalfLife; h != 0 {
		inner := cfg
		inner.Memory, inner.Log, inner.DefaultWeight = Memory{}, nil, 0
		l.warp = newWarp(h)
		l.recent, _ = New(inner) // its parts are valid as they are here
		l.recent.clock = &l.warp
	}
	return l, nil
}

// Seq returns how many events were applied.
func (l *Ledger) Seq() uint64 { return l.seq }

// tier returns the tier that t belongs to.
func (l *Ledger) tier(t *tenant) *tier { return &l.tiers[t.rank()] }

// view is the state of the clocks at a time of at least Ledger.now. It is how
// reading sees the present without changing anything.
type view struct {
	now    int64
	from   int64           // from is Ledger.now.
	aged   uint            // aged is how often accounts as of from are to be halved first; 0 but for a recent.
	dt     uint64          // dt is nanoseconds since Ledger.now.
	levels [2]level        // levels are the water levels of the tiers.
	rises  [2]int128.Fixed // rises are entitlements per pull in dt.
	rising int128.Fixed    // rising is the nominal entitlement per weight in dt.
}

// levels returns the water level of both tiers. Tenants without weight are
// entitled to what those with weight leave, under Fixed to nothing.
func (l *Ledger) levels() [2]level {
	first, second := &l.tiers[0], &l.tiers[1]
	capacity := uint64(l.capacity)
	switch l.cfg.Basis {
	case Fixed:
		return [2]level{{capacity, first.pull()}, {0, second.pull()}}
	case Active:
		if first.active != 0 {
			return [2]level{{capacity, first.active}, {0, second.active}}
		}
		return [2]level{{capacity, 0}, {capacity, second.active}}
	}
	return [2]level{first.water(capacity), second.water(capacity - min(capacity, first.demand()))}
}

// at returns the view of time now; one before Ledger.now counts as that.
func (l *Ledger) at(now int64) view {
	v := view{now: now, from: l.now, levels: l.levels()}
	if l.started {
		v.now = max(now, l.now)
		v.dt = uint64(v.now) - uint64(l.now)
	}
	l.raise(&v)
	return v
}

// raise fills in what the clocks go on by in v.dt.
func (l *Ledger) raise(v *view) {
	if v.dt == 0 {
		return
	}
	for i := range v.rises {
		v.rises[i], _ = l.tiers[i].rise(v.levels[i], v.dt)
	}
	if w := l.tiers[0].pull(); w != 0 {
		v.rising, _ = int128.Divide(rated(l.capacity, v.dt), l.nominalRest, w)
	}
}

// settled returns the view of l.now.
func (l *Ledger) settled() view { return view{now: l.now, from: l.now} }

// look returns the view of ns, which is not warped even if l is a recent.
func (l *Ledger) look(ns int64) view {
	if l.clock == nil {
		return l.at(ns)
	}
	return l.clock.look(l, ns)
}

// accrue moves the ledger to now, which is not before l.now.
func (l *Ledger) accrue(now int64) {
	if !l.started {
		l.started, l.now, l.bucket = true, now, l.cfg.Memory.bucketOf(now)
	}
	if l.cfg.Memory.Bucket != 0 {
		l.markTo(now)
	}
	l.accrueTo(now)
}

// accrueTo is accrue between two boundaries of buckets.
func (l *Ledger) accrueTo(now int64) {
	dt := uint64(now) - uint64(l.now)
	if dt == 0 {
		return
	}
	levels := l.levels()
	for i := range levels {
		l.maxPull = max(l.maxPull, l.tiers[i].pull())
		l.tiers[i].accrue(levels[i], dt)
	}
	if w := l.tiers[0].pull(); w != 0 {
		var rise int128.Fixed
		rise, l.nominalRest = int128.Divide(rated(l.capacity, dt), l.nominalRest, w)
		l.nominal = l.nominal.Add(rise)
	}
	l.offered = l.offered.Add(rated(l.capacity, dt))
	l.owed = l.owed.Add(rated(min(l.capacity, l.demand), dt))
	l.served = l.served.Add(rated(l.rate, dt))
	l.now = now
}

// entitled returns t's entitlement at v.
func (l *Ledger) entitled(t *tenant, v *view) int128.Fixed {
	if !t.joined {
		return v.agedFixed(t.entitled)
	}
	return l.advanced(t, t.credited(), v)
}

// advanced returns t's entitlement at v, where e is what it was at Ledger.now.
func (l *Ledger) advanced(t *tenant, e int128.Fixed, v *view) int128.Fixed {
	e = v.agedFixed(e)
	if v.dt == 0 {
		return e
	}
	k := t.rank()
	if v.levels[k].satisfied(uint64(t.demand), t.pull()) {
		return e.Add(int128.Whole(rated(t.demand, v.dt)))
	}
	return e.Add(v.rises[k].Mul(t.pull()))
}

// served returns t's service at v.
func (t *tenant) served(v *view) int128.Int {
	if v.aged == 0 { // grown, but faster
		return t.service.Add(rated(t.rate, uint64(v.now)-uint64(t.since)))
	}
	return v.grown(t.service, t.rate, t.since)
}

// grown returns what an account that was a at since comes to at v, at rate.
func (v *view) grown(a int128.Int, rate lockstep.MilliGPU, since int64) int128.Int {
	if v.aged == 0 {
		return a.Add(rated(rate, uint64(v.now)-uint64(since)))
	}
	return halved(a.Add(rated(rate, uint64(v.from)-uint64(since))), v.aged).Add(rated(rate, v.dt))
}

// shared returns what each job of t is entitled to at v that was there from the
// beginning, and what does not divide.
func (l *Ledger) shared(t *tenant, v *view) (share int128.Int, rest, entitled int128.Fixed) {
	entitled = l.entitled(t, v)
	share, rest, from := t.share, t.shareRest, t.shareFrom
	if v.aged != 0 {
		then := l.settled()
		share, rest, from = l.shared(t, &then)
		share, rest, from = v.agedInt(share), v.agedFixed(rest), v.agedFixed(from)
	}
	gain := entitled.Sub(from)
	if gain == (int128.Fixed{}) || t.live == 0 {
		return share, rest, entitled
	}
	each, rest := rest.Add(gain).QuoRem(uint64(t.live))
	return share.Add(each), rest, entitled
}

// settle brings t up to l.now, to which the ledger was accrued: every event that
// concerns t does that first, and notes the lag that it ends.
func (l *Ledger) settle(t *tenant) {
	v := l.settled()
	t.share, t.shareRest, t.shareFrom = l.shared(t, &v)
	if l.cfg.CreditCap != 0 {
		t.credit = l.saved(t, &v)
	}
	t.service, t.raw, t.since = t.served(&v), t.handled(&v), l.now
	if t.joined {
		t.nominal = t.nominal.Add(l.nominal.Sub(t.nominalFrom).Mul(uint64(t.weight)))
		t.nominalFrom = l.nominal
		t.idleFrom = t.nominal
	}
	entitled := t.shareFrom.Near()
	if lag := entitled.Sub(t.service); lag.Cmp(t.worst) > 0 {
		t.worst = lag
	}
	t.index.note(t.service, entitled)
}

// settleJob brings j up to l.now.
func (l *Ledger) settleJob(j *job) {
	if j.done || j.since == l.now {
		return
	}
	dt := uint64(l.now) - uint64(j.since)
	j.since, j.wanted = l.now, j.wanted.Add(rated(j.demand, dt))
	if j.running {
		j.service, j.ran = j.service.Add(rated(j.grant, dt)), j.ran.Add(int128.Mul(dt, 1))
	}
}

// ranAt returns for how long j held its grants up to now.
func (j *job) ranAt(now int64) int128.Int {
	return j.ranBy(&view{now: now})
}

// ranBy is ranAt of a view.
func (j *job) ranBy(v *view) int128.Int {
	if !j.running {
		return v.agedInt(j.ran)
	}
	return v.grown(j.ran, 1, j.since)
}

// at returns what j got and what it wanted up to now.
func (j *job) at(now int64) (service, wanted int128.Int) {
	return j.seen(&view{now: now})
}

// seen is at of a view. What a job holds is 0 while it does not run.
func (j *job) seen(v *view) (service, wanted int128.Int) {
	if j.done {
		return v.agedInt(j.service), v.agedInt(j.wanted)
	}
	return v.grown(j.service, j.grant, j.since), v.grown(j.wanted, j.demand, j.since)
}

// place puts t into its tier, and unplace takes it out with all it is entitled to.
func (l *Ledger) place(t *tenant)   { l.tier(t).insert(t) }
func (l *Ledger) unplace(t *tenant) { l.tier(t).remove(t) }

// addDemand changes what t asks for. Its place in its tier depends on that.
func (l *Ledger) addDemand(t *tenant, more lockstep.MilliGPU) {
	l.unplace(t)
	t.demand += more
	l.demand += more
	l.place(t)
}

// setGrant changes what j holds, in the ledger's unit and in devices.
func (l *Ledger) setGrant(j *job, grant, raw lockstep.MilliGPU) {
	j.tenant.rate += grant - j.grant
	j.tenant.rawRate += raw - j.raw
	l.rate += grant - j.grant
	l.rawRate += raw - j.raw
	j.grant, j.raw = grant, raw
}
