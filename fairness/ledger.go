package fairness

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/google/btree"
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Basis says what a tenant is entitled to while others ask for less.
type Basis string

// The bases. The zero Basis is MaxMin.
const (
	MaxMin Basis = ""      // MaxMin divides the capacity by weight, nobody getting more than it demands, so that what some leave goes to the rest.
	Fixed  Basis = "fixed" // Fixed entitles a tenant to its weight's part among all that joined, or its demand if that is less; what some leave goes to nobody. It is ASTRAEA's rule where the weights are its quotas, rounded down to whole devices, and the capacity is their sum; its order is by Service over Nominal.
)

// JobOrder says which of a tenant's jobs comes first.
type JobOrder string

// The orders of jobs. The zero JobOrder is MostOwed.
const (
	MostOwed JobOrder = ""     // MostOwed puts the job with the greatest Lag first.
	FIFO     JobOrder = "fifo" // FIFO puts the job that was submitted first first.
)

const (
	// DefaultHorizon is Config.Horizon where that is 0, ASTRAEA's lease term.
	DefaultHorizon = 30 * time.Minute

	// MaxWeight is the largest weight of a tenant.
	MaxWeight = 1 << 32

	// maxRate bounds the capacity, and the demands of all jobs together.
	maxRate = math.MaxInt64 / 2
)

// Config configures a Ledger. The zero Config is valid.
type Config struct {
	Basis         Basis             `json:"basis,omitempty"`         // Basis is what tenants are entitled to; zero is MaxMin.
	JobOrder      JobOrder          `json:"jobOrder,omitempty"`      // JobOrder is the order of one tenant's jobs; zero is MostOwed.
	Capacity      lockstep.MilliGPU `json:"capacity,omitempty"`      // Capacity is what there is to share until SetCapacity says otherwise; 0 is none.
	Horizon       time.Duration     `json:"horizon,omitempty"`       // Horizon is how long a grant is taken to last when tenants are compared in a pass, such as the term of a lease; 0 means DefaultHorizon.
	DefaultWeight int64             `json:"defaultWeight,omitempty"` // DefaultWeight is the weight with which Submit lets a tenant join that has not joined, or has left; 0 means that it refuses.
	Log           func(Event)       `json:"-"`                       // Log is called with each event once it is applied, to be stored; nil means not. It must not block or call back.
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if c.Basis != MaxMin && c.Basis != Fixed {
		bad("Basis", errtext.Quote(c.Basis), `want "" or "fixed"`)
	}
	if c.JobOrder != MostOwed && c.JobOrder != FIFO {
		bad("JobOrder", errtext.Quote(c.JobOrder), `want "" or "fifo"`)
	}
	if c.Capacity < 0 || c.Capacity > maxRate {
		bad("Capacity", c.Capacity.String(), "want 0 to "+lockstep.MilliGPU(maxRate).String())
	}
	if c.Horizon < 0 || c.Horizon > lockstep.MaxWalltime {
		bad("Horizon", c.Horizon.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	if c.DefaultWeight < 0 || c.DefaultWeight > MaxWeight {
		bad("DefaultWeight", strconv.FormatInt(c.DefaultWeight, 10), "want 0 to 2^32")
	}
	return errors.Join(errs...)
}

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

	demand, rate          lockstep.MilliGPU // demand and rate are sums over all jobs.
	offered, owed, served int128.Int        // offered, owed and served are integrals of capacity, of min(capacity, demand) and of rate.
	nominal               int128.Fixed      // nominal is the integral of capacity / sum of weights.
	nominalRest           uint64            // nominalRest is what was left to divide of it.
	maxPull               uint64            // maxPull is the largest sum of weights that shared so far, for ErrorBound.

	byID  []*tenant // byID is the tenants by ID; nil until asked for.
	ready []*tenant // ready are the tenants with jobs to propose, in no particular order.
	due   []*job    // due are running jobs that compete, in no particular order.
	pass  pass
	free  *btree.FreeListG[entry]
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
	running, done bool
	due           bool // due says that it runs and is in the queue all the same.
	dueAt         int  // dueAt is its place in Ledger.due.

	submitted, since int64
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
	if cfg.Horizon == 0 {
		cfg.Horizon = DefaultHorizon
	}
	l := &Ledger{
		cfg:      cfg,
		capacity: cfg.Capacity,
		tenants:  make(map[lockstep.TenantID]*tenant),
		jobs:     make(map[lockstep.JobID]*job),
		free:     btree.NewFreeListG[entry](btree.DefaultFreeListSize),
	}
	l.pass.visit = l.pass.take
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
	if l.cfg.Basis == Fixed {
		return [2]level{{capacity, first.pull()}, {0, second.pull()}}
	}
	return [2]level{first.water(capacity), second.water(capacity - min(capacity, first.demand()))}
}

// at returns the view of time now; one before Ledger.now counts as that.
func (l *Ledger) at(now int64) view {
	v := view{now: now, levels: l.levels()}
	if l.started {
		v.now = max(now, l.now)
		v.dt = uint64(v.now) - uint64(l.now)
	}
	if v.dt != 0 {
		for i := range v.rises {
			v.rises[i], _ = l.tiers[i].rise(v.levels[i], v.dt)
		}
		if w := l.tiers[0].pull(); w != 0 {
			v.rising, _ = int128.Divide(rated(l.capacity, v.dt), l.nominalRest, w)
		}
	}
	return v
}

// accrue moves the ledger to now, which is not before l.now.
func (l *Ledger) accrue(now int64) {
	if !l.started {
		l.started, l.now = true, now
	}
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
		return t.entitled
	}
	return l.advanced(t, t.credited(), v)
}

// advanced returns t's entitlement at v, where e is what it was at Ledger.now.
func (l *Ledger) advanced(t *tenant, e int128.Fixed, v *view) int128.Fixed {
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
	return t.service.Add(rated(t.rate, uint64(v.now)-uint64(t.since)))
}

// shared returns what each job of t is entitled to at v that was there from the
// beginning, and what does not divide.
func (l *Ledger) shared(t *tenant, v *view) (share int128.Int, rest, entitled int128.Fixed) {
	entitled = l.entitled(t, v)
	gain := entitled.Sub(t.shareFrom)
	if gain == (int128.Fixed{}) || t.live == 0 {
		return t.share, t.shareRest, entitled
	}
	each, rest := t.shareRest.Add(gain).QuoRem(uint64(t.live))
	return t.share.Add(each), rest, entitled
}

// settle brings t up to l.now, to which the ledger was accrued: every event that
// concerns t does that first, and notes the lag that it ends.
func (l *Ledger) settle(t *tenant) {
	v := view{now: l.now}
	t.share, t.shareRest, t.shareFrom = l.shared(t, &v)
	t.service, t.since = t.served(&v), l.now
	if t.joined {
		t.nominal = t.nominal.Add(l.nominal.Sub(t.nominalFrom).Mul(uint64(t.weight)))
		t.nominalFrom = l.nominal
	}
	if lag := t.shareFrom.Near().Sub(t.service); lag.Cmp(t.worst) > 0 {
		t.worst = lag
	}
}

// settleJob brings j up to l.now.
func (l *Ledger) settleJob(j *job) {
	j.service, j.wanted = j.at(l.now)
	j.since = l.now
}

// at returns what j got and what it wanted up to now.
func (j *job) at(now int64) (service, wanted int128.Int) {
	if j.done {
		return j.service, j.wanted
	}
	dt := uint64(now) - uint64(j.since)
	service, wanted = j.service, j.wanted.Add(rated(j.demand, dt))
	if j.running {
		service = service.Add(rated(j.grant, dt))
	}
	return service, wanted
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

// setGrant changes what j holds.
func (l *Ledger) setGrant(j *job, grant lockstep.MilliGPU) {
	j.tenant.rate += grant - j.grant
	l.rate += grant - j.grant
	j.grant = grant
}
