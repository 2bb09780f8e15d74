package main

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/fairness"
)

// The tenants of the run, and what all sums of their weights divide.
var weights = [...]int64{1, 2, 4}

const (
	common    = 420
	capacity  = 64_000 // MilliGPU
	week      = 7 * 24 * time.Hour
	longHalf  = week
	shortHalf = 10 * time.Minute
)

// truth is what tenants got and should have got, from the definition.
type truth struct {
	now             int64
	demand, held    [len(weights)]int64
	service, entitl [len(weights)]big.Int // entitl in 1/420 MilliGPU-nanoseconds
	product, term   big.Int
}

// advance adds the time up to now.
func (u *truth) advance(now int64) {
	dt := now - u.now
	u.now = now
	if dt == 0 {
		return
	}
	shares := maxMin(u.demand)
	for i := range weights {
		u.add(&u.service[i], u.held[i], dt)
		u.add(&u.entitl[i], shares[i], dt)
	}
}

func (u *truth) add(sum *big.Int, rate, dt int64) {
	u.product.SetInt64(rate)
	u.term.SetInt64(dt)
	sum.Add(sum, u.product.Mul(&u.product, &u.term))
}

// maxMin returns the weighted max-min shares in 1/420, by rounds.
func maxMin(demand [len(weights)]int64) (shares [len(weights)]int64) {
	var full [len(weights)]bool
	for {
		room, pull := int64(capacity), int64(0)
		for i, w := range weights {
			if full[i] {
				room -= demand[i]
			} else {
				pull += w
			}
		}
		again := false
		for i, w := range weights {
			if !full[i] && demand[i]*pull <= w*room {
				full[i], again = true, true
			}
		}
		if again {
			continue
		}
		for i, w := range weights {
			shares[i] = demand[i] * common
			if !full[i] {
				shares[i] = room * w * (common / pull)
			}
		}
		return shares
	}
}

// others are the ways in which usage is kept elsewhere, of the first tenant.
type others struct {
	last, tick, slurm, sample, minute int64 // nanoseconds

	float               float64 // GPU-seconds
	ticks               float64
	slurmLong, slurmNow float64
	exactLong, exactNow float64
	kueue               float64 // an average, in GPUs
	minutes             float64
}

const (
	tickLength   = 10 * int64(time.Second)
	slurmPeriod  = 300 * int64(time.Second)
	kueuePeriod  = 300 * int64(time.Second)
	minutePeriod = 60 * int64(time.Second)
)

// advance lets now come, with a constant rate in GPUs since the last event.
func (o *others) advance(now int64, rate float64) {
	o.float += rate * (float64(now-o.last) / 1e9)
	o.exactLong = decayed(o.exactLong, rate, now-o.last, longHalf)
	o.exactNow = decayed(o.exactNow, rate, now-o.last, shortHalf)
	for o.tick+tickLength <= now {
		o.tick += tickLength
		o.ticks += rate * float64(tickLength) / 1e9
	}
	for o.minute+minutePeriod <= now {
		o.minute += minutePeriod
		o.minutes += rate * float64(minutePeriod) / 1e9
	}
	for o.sample+kueuePeriod <= now {
		o.sample += kueuePeriod
		a := 1 - math.Exp2(-float64(kueuePeriod)/float64(longHalf))
		o.kueue = (1-a)*o.kueue + a*rate
	}
	// Slurm counts a running slice up to each period's end, then decays all of it.
	for at := o.last; at < now; {
		end := min(o.slurm+slurmPeriod, now)
		used := rate * float64(end-at) / 1e9
		o.slurmLong += used
		o.slurmNow += used
		if at = end; end == o.slurm+slurmPeriod {
			o.slurm = end
			o.slurmLong *= math.Pow(1-0.693/longHalf.Seconds(), float64(slurmPeriod)/1e9)
			o.slurmNow *= math.Pow(1-0.693/shortHalf.Seconds(), float64(slurmPeriod)/1e9)
		}
	}
	o.last = now
}

// decayed returns what is left of v after dt, with rate in GPUs meanwhile, in
// GPU-seconds.
func decayed(v, rate float64, dt int64, half time.Duration) float64 {
	x := float64(dt) / float64(half)
	return v*math.Exp2(-x) + rate*half.Seconds()/math.Ln2*-math.Expm1(-x*math.Ln2)
}

// drift runs n events through everything.
type drift struct {
	rng    *rand.Rand
	now    int64
	truth  truth
	others others
	plain  *fairness.Ledger
	memory map[time.Duration]*fairness.Ledger
	jobs   [len(weights)]lockstep.JobID
	serial int
	worst  map[time.Duration]float64 // of the ledger's half-life against the closed form
}

func newDrift(seed uint64) (*drift, error) {
	d := &drift{rng: rand.New(rand.NewPCG(seed, 420)), memory: map[time.Duration]*fairness.Ledger{}, worst: map[time.Duration]float64{}}
	for _, half := range []time.Duration{0, longHalf, shortHalf} {
		l, err := fairness.New(fairness.Config{Capacity: capacity, Memory: fairness.Memory{HalfLife: half}})
		if err != nil {
			return nil, err
		}
		if half == 0 {
			d.plain = l
		} else {
			d.memory[half] = l
		}
	}
	err := d.each(func(l *fairness.Ledger, now time.Time) error {
		for i, w := range weights {
			if err := l.Join(now, tenant(i), w); err != nil {
				return err
			}
		}
		return nil
	})
	return d, err
}

func tenant(i int) lockstep.TenantID { return lockstep.TenantID(fmt.Sprint("t", i)) }

// each applies something to every ledger.
func (d *drift) each(do func(l *fairness.Ledger, now time.Time) error) error {
	now := lockstep.FromNanos(d.now)
	if err := do(d.plain, now); err != nil {
		return err
	}
	for _, half := range []time.Duration{longHalf, shortHalf} {
		if err := do(d.memory[half], now); err != nil {
			return err
		}
	}
	return nil
}

// step lets one event happen: a tenant without a job submits one, which starts at
// once if it can; one with a job changes what it holds, or ends it. It returns how
// many events the ledgers took.
func (d *drift) step() (events int, err error) {
	d.now += d.gap()
	d.truth.advance(d.now)
	d.others.advance(d.now, float64(d.truth.held[0])/1000)
	i := d.rng.IntN(len(weights))
	switch {
	case d.jobs[i] == "":
		d.serial++
		d.jobs[i] = lockstep.JobID(fmt.Sprint("j", d.serial))
		demand := 1 + d.rng.Int64N(capacity)
		d.truth.demand[i] = demand
		return 1, d.each(func(l *fairness.Ledger, now time.Time) error {
			return l.Submit(now, d.jobs[i], tenant(i), lockstep.MilliGPU(demand))
		})
	case d.truth.held[i] == 0:
		held := min(1+d.rng.Int64N(d.truth.demand[i]), capacity-d.truth.held[0]-d.truth.held[1]-d.truth.held[2])
		if held <= 0 {
			return 0, nil
		}
		d.truth.held[i] = held
		return 1, d.each(func(l *fairness.Ledger, now time.Time) error {
			return l.Start(now, d.jobs[i], lockstep.MilliGPU(held))
		})
	case d.rng.IntN(2) == 0:
		d.truth.held[i] = 1 + d.rng.Int64N(d.truth.held[i])
		return 1, d.each(func(l *fairness.Ledger, now time.Time) error {
			return l.Resize(now, d.jobs[i], lockstep.MilliGPU(d.truth.held[i]))
		})
	}
	job := d.jobs[i]
	d.jobs[i], d.truth.demand[i], d.truth.held[i] = "", 0, 0
	return 2, d.each(func(l *fairness.Ledger, now time.Time) error {
		if err := l.Finish(now, job); err != nil {
			return err
		}
		return l.Forget(job)
	})
}

// gap is the time to the next event: mostly seconds, now and then minutes.
func (d *drift) gap() int64 {
	if d.rng.IntN(10) == 0 {
		return d.rng.Int64N(int64(20 * time.Minute))
	}
	return d.rng.Int64N(int64(20 * time.Second))
}

// check compares the half-lives with the closed form.
func (d *drift) check() error {
	for half, exact := range map[time.Duration]float64{longHalf: d.others.exactLong, shortHalf: d.others.exactNow} { // each on its own
		s, err := d.memory[half].Statement(lockstep.FromNanos(d.now), tenant(0))
		if err != nil {
			return err
		}
		if exact > 1 {
			d.worst[half] = max(d.worst[half], math.Abs(s.RecentService.GPUSeconds()-exact)/exact)
		}
	}
	return nil
}

// drift measures drift over many events.
func (p *program) drift() error {
	d, err := newDrift(p.Seed)
	if err != nil {
		return err
	}
	total := p.events
	p.Input("drift", fmt.Sprintf("3 tenants of weights 1, 2, 4 on %d devices; %d events, at most 20 s apart, one in ten at most 20 min", capacity/1000, total))
	for n, checked := 0, 0; n < total; {
		events, err := d.step()
		if err != nil {
			return err
		}
		n += events
		if n-checked >= 1000 {
			checked = n
			if err := d.check(); err != nil {
				return err
			}
		}
	}
	service, entitlement, err := d.off()
	if err != nil {
		return err
	}
	bound := d.plain.ErrorBound()
	u, o := &d.truth, &d.others
	exact := seconds(&u.service[0])
	table := &harness.Table{Head: []string{"what is kept", "of", "off by", "of itself"}}
	row := func(what, of string, got, want float64) {
		off := math.Abs(got-want) / want
		p.Result("drift/"+what, off*1e9, "1e-9")
		table.Add(what, of, harness.Number(math.Abs(got-want))+" GPU-s", fmt.Sprintf("%.2g", off))
	}
	table.Add("ledger-service", "sum", fmt.Sprint(service, " mGPU-ns"), "0")
	table.Add("ledger-entitlement", "sum", harness.Number(entitlement)+" mGPU-ns", "0")
	table.Add("ledger-half-life-7d", "decayed", "", fmt.Sprintf("%.2g at worst", d.worst[longHalf]))
	table.Add("ledger-half-life-10m", "decayed", "", fmt.Sprintf("%.2g at worst", d.worst[shortHalf]))
	row("float64", "sum", o.float, exact)
	row("tick-10s", "sum", o.ticks, exact)
	row("kai-1min-samples", "sum", o.minutes, exact)
	row("slurm-7d", "decayed", o.slurmLong, o.exactLong)
	row("slurm-10m", "decayed", o.slurmNow, o.exactNow)
	row("kueue-7d", "decayed", o.kueue*longHalf.Seconds()/math.Ln2, o.exactLong)
	p.Table(table)
	p.Result("drift/ledger-half-life-7d", d.worst[longHalf]*1e9, "1e-9")
	p.Result("drift/ledger-half-life-10m", d.worst[shortHalf]*1e9, "1e-9")
	p.Target(harness.Target{Name: "drift/service", Value: float64(service), Unit: "mGPU-ns", Limit: 0})
	p.Target(harness.Target{Name: "drift/entitlement", Value: entitlement, Unit: "mGPU-ns", Limit: bound.GPUSeconds() * 1e12})
	p.Target(harness.Target{Name: "drift/half-life", Value: max(d.worst[longHalf], d.worst[shortHalf]) * 1e9, Unit: "1e-9", Limit: 1})
	return nil
}

// off returns by how much the ledger differs from the truth at the most: service,
// and entitlement, in MilliGPU-nanoseconds.
func (d *drift) off() (service int64, entitlement float64, err error) {
	for i := range weights {
		s, err := d.plain.Statement(lockstep.FromNanos(d.now), tenant(i))
		if err != nil {
			return 0, 0, err
		}
		diff := new(big.Int).Sub(s.Service.Big(), &d.truth.service[i])
		service = max(service, diff.Abs(diff).Int64())
		scaled := new(big.Int).Mul(s.Entitlement.Big(), big.NewInt(common))
		scaled.Sub(scaled, &d.truth.entitl[i])
		v, _ := new(big.Rat).SetFrac(scaled.Abs(scaled), big.NewInt(common)).Float64()
		entitlement = max(entitlement, v)
	}
	return service, entitlement, nil
}

// seconds returns MilliGPU-nanoseconds as GPU-seconds.
func seconds(v *big.Int) float64 {
	f, _ := new(big.Rat).SetFrac(v, big.NewInt(1e12)).Float64()
	return f
}
