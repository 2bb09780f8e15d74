package profile

import (
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// MetricErrorRatio observes what was expected of a job's duration over what it took.
const MetricErrorRatio lockstep.Metric = "profile_duration_error_ratio"

// Defaults and bounds of Durations.
const (
	defaultRecent = 100
	defaultWindow = 32
	defaultGroups = 1 << 14
	defaultMisses = 256
	maxWindow     = 1 << 10
	maxGroups     = 1 << 20
	maxMisses     = 1 << 12
	million       = 1_000_000
	farthest      = million * million // of a miss: a million times what was expected
	lowMille      = 50
)

// DurationsConfig configures Durations. The zero value is valid.
type DurationsConfig struct {
	Recent  int64 `json:"recent,omitempty"`  // Recent is how much the mean of like jobs counts beside the caller's model, in thousandths, 1 to 1000; 0 means 100.
	Window  int   `json:"window,omitempty"`  // Window is how many durations of a group of like jobs are kept, the last ones; 0 means 32, at most 1024.
	Groups  int   `json:"groups,omitempty"`  // Groups is how many groups are remembered, those last observed; 0 means 16384, at most 2²⁰.
	Misses  int   `json:"misses,omitempty"`  // Misses is how many of the last predictions tell how far off they are; 0 means 256, at most 4096.
	Samples int   `json:"samples,omitempty"` // Samples is how many durations a group must have to speak; 0 means 1, at most Window.

	Recorder lockstep.Recorder `json:"-"` // Recorder takes MetricErrorRatio; nil means none.
}

// Job is what is known of a job before it runs.
type Job struct {
	Tenant lockstep.TenantID `json:"tenant,omitempty"` // Tenant is whose; "" means unknown.
	Name   string            `json:"name,omitempty"`   // Name is as the tenant calls it, at most 253 bytes; "" means unknown. Names that differ only in case and in digits are alike.
	GPUs   lockstep.MilliGPU `json:"gpus,omitempty"`   // GPUs is how much it asks for, at least 0.
}

// Expected is what a job is expected to take.
type Expected struct {
	Duration time.Duration `json:"duration"`          // Duration is the best guess; 0 means that nothing is known.
	Low      time.Duration `json:"low,omitempty"`     // Low is what one in twenty of the jobs like it did not take longer than; 0 without such jobs.
	High     time.Duration `json:"high,omitempty"`    // High is what nineteen in twenty of them did not take longer than; 0 without such jobs.
	Samples  int           `json:"samples,omitempty"` // Samples is how many jobs like it it rests on.
	Like     Likeness      `json:"like,omitempty"`    // Like says in what they are like it.
}

// Likeness says in what jobs are like another.
type Likeness string

// The groups, the widest first.
const (
	LikeNone   Likeness = ""        // LikeNone: there are none.
	LikeAny    Likeness = "cluster" // LikeAny: they ran on the same cluster.
	LikeTenant Likeness = "tenant"  // LikeTenant: of the same tenant.
	LikeName   Likeness = "name"    // LikeName: of the same tenant, with a like name.
	LikeJob    Likeness = "job"     // LikeJob: of the same tenant, with a like name and as many GPUs.
)

// Durations learns how long jobs take from those that ended. It is made by NewDurations
// or RestoreDurations.
type Durations struct {
	cfg    DurationsConfig // with defaults filled in
	given  DurationsConfig // as given, for Snapshot
	groups *lru[group, []int64]
	misses []int64 // what jobs took over what was expected, in millionths, the oldest first
}

// group names like jobs.
type group struct {
	like   Likeness
	tenant lockstep.TenantID
	name   string
	gpus   lockstep.MilliGPU
}

// NewDurations returns an empty table.
func NewDurations(cfg DurationsConfig) (*Durations, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := &Durations{cfg: cfg, given: cfg, groups: newLRU[group, []int64]()}
	if cfg.Recent == 0 {
		d.cfg.Recent = defaultRecent
	}
	if cfg.Window == 0 {
		d.cfg.Window = defaultWindow
	}
	if cfg.Groups == 0 {
		d.cfg.Groups = defaultGroups
	}
	if cfg.Misses == 0 {
		d.cfg.Misses = defaultMisses
	}
	d.cfg.Samples = max(cfg.Samples, 1)
	return d, nil
}

// Validate reports every fault of c, joined, each an *lockstep.Error of kind ErrInvalid.
func (c DurationsConfig) Validate() error {
	f := faults{op: "profile: durations"}
	f.count("Recent", c.Recent, 0, 1000)
	f.count("Window", int64(c.Window), 0, maxWindow)
	f.count("Groups", int64(c.Groups), 0, maxGroups)
	f.count("Misses", int64(c.Misses), 0, maxMisses)
	window := int64(defaultWindow)
	if c.Window > 0 {
		window = int64(min(c.Window, maxWindow))
	}
	f.count("Samples", int64(c.Samples), 0, window)
	return f.err()
}

func (j Job) check(f *faults) {
	if j.Tenant != "" {
		f.wrap("j.Tenant", j.Tenant.Validate())
	}
	if len(j.Name) > lockstep.MaxIDLength {
		f.bad("j.Name", errtext.Quote(j.Name), "want at most 253 bytes")
	}
	f.count("j.GPUs", int64(j.GPUs), 0, math.MaxInt64)
}

// groups returns the groups that j is in, the narrowest first, and how many they are.
func (j Job) groups() (out [4]group, n int) {
	add := func(g group) { out[n] = g; n++ }
	if j.Tenant != "" {
		if j.Name != "" {
			name := similar(j.Name)
			add(group{like: LikeJob, tenant: j.Tenant, name: name, gpus: j.GPUs})
			add(group{like: LikeName, tenant: j.Tenant, name: name})
		}
		add(group{like: LikeTenant, tenant: j.Tenant})
	}
	add(group{like: LikeAny})
	return out, n
}

// similar returns what like names have in common: their small letters, with a '#' for
// every number, cut to the length of a name.
func similar(name string) string {
	var b strings.Builder
	number := false
	for _, r := range strings.ToLower(strings.ToValidUTF8(name, "?")) {
		if b.Len()+utf8.RuneLen(r) > lockstep.MaxIDLength {
			break // small letters may be longer than great ones
		}
		digit := r >= '0' && r <= '9'
		if digit && !number {
			b.WriteByte('#')
		} else if !digit {
			b.WriteRune(r)
		}
		number = digit
	}
	return b.String()
}

// Observe takes how long a job took that ended, and what had been expected of it, 0 if
// nothing. An invalid job or duration is ErrInvalid.
func (d *Durations) Observe(j Job, expected, took time.Duration) error {
	f := faults{op: "profile: observe"}
	j.check(&f)
	f.duration("expected", expected, 0)
	f.duration("took", took, 1)
	if err := f.err(); err != nil {
		return err
	}
	groups, n := j.groups()
	for _, g := range groups[:n] { // the widest last: it is the last to be forgotten
		kept := d.groups.touch(g)
		*kept = push(*kept, int64(took), d.cfg.Window)
	}
	for d.groups.len() > d.cfg.Groups {
		d.groups.remove(d.groups.oldest())
	}
	if expected > 0 {
		d.misses = push(d.misses, min(int128.MulDivUp(int64(took), million, int64(expected)), farthest), d.cfg.Misses)
		if d.cfg.Recorder != nil {
			d.cfg.Recorder.Observe(MetricErrorRatio, lockstep.MetricLabels{Tenant: j.Tenant}, float64(expected)/float64(took))
		}
	}
	return nil
}

func (f *faults) duration(field string, d, least time.Duration) {
	if d < least || d > lockstep.MaxWalltime {
		f.bad(field, d.String(), "want "+least.String()+" to ten years")
	}
}

// Expect returns what job j is expected to take, by the mean of the jobs most like it
// that ended, and the caller's own model of it: model is what that says, 0 if it says
// nothing. An invalid job or duration is ErrInvalid.
func (d *Durations) Expect(j Job, model time.Duration) (Expected, error) {
	f := faults{op: "profile: expect"}
	j.check(&f)
	f.duration("model", model, 0)
	if err := f.err(); err != nil {
		return Expected{}, err
	}
	like, kept := d.like(j)
	e := Expected{Duration: model, Samples: len(kept), Like: like}
	if like == LikeNone {
		return e, nil
	}
	sorted := Distribution{sizes: slices.Sorted(slices.Values(kept))}
	e.Low, e.High = sorted.Quantile(lowMille), sorted.Quantile(1000-lowMille)
	e.Duration = mean(kept)
	if model > 0 {
		e.Duration = mix(e.Duration, model, d.cfg.Recent)
	}
	return e, nil
}

// like returns the durations of the narrowest group of j with enough of them.
func (d *Durations) like(j Job) (Likeness, []int64) {
	groups, n := j.groups()
	for _, g := range groups[:n] {
		if kept := d.groups.get(g); kept != nil && len(*kept) >= d.cfg.Samples {
			return g.like, *kept
		}
	}
	return LikeNone, nil
}

// Distribution returns how long the jobs most like j took, for quantiles and a Gittins
// index. Ok is false where there are none.
func (d *Durations) Distribution(j Job) (dist *Distribution, like Likeness, ok bool) {
	like, kept := d.like(j)
	if like == LikeNone {
		return nil, LikeNone, false
	}
	return distributionOf(slices.Clone(kept)), like, true
}

// Bound returns what a job of which expected was expected takes at most, but for a
// probability of miss in thousandths: as far off as the last predictions were, whatever
// their distribution, as long as it stays the same (split conformal prediction). Ok is
// false where there are too few to tell, fewer than 1000/miss - 1, and for arguments
// that are not positive.
func (d *Durations) Bound(expected time.Duration, miss int64) (most time.Duration, ok bool) {
	n := int64(len(d.misses))
	if n == 0 || expected <= 0 || miss <= 0 || miss > 1000 {
		return 0, false
	}
	k := ((n+1)*(1000-miss) + 999) / 1000
	if k > n {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(d.misses))
	return time.Duration(int128.MulDivUp(int64(expected), sorted[max(k, 1)-1], million)), true
}

// Len returns how many groups of like jobs are remembered.
func (d *Durations) Len() int { return d.groups.len() }

// mean returns the mean of positive numbers, rounded, 0 of none.
func mean(xs []int64) time.Duration {
	if len(xs) == 0 {
		return 0
	}
	var hi, lo uint64
	for _, x := range xs {
		var carry uint64
		lo, carry = bits.Add64(lo, uint64(x), 0)
		hi += carry
	}
	lo, carry := bits.Add64(lo, uint64(len(xs)/2), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(len(xs)))
	return time.Duration(q)
}

// mix returns part thousandths of a and the rest of b, rounded.
func mix(a, b time.Duration, part int64) time.Duration {
	hiA, loA := bits.Mul64(uint64(a), uint64(part))
	hiB, loB := bits.Mul64(uint64(b), uint64(1000-part))
	lo, carry := bits.Add64(loA, loB, 0)
	hi := hiA + hiB + carry
	lo, carry = bits.Add64(lo, 500, 0)
	q, _ := bits.Div64(hi+carry, lo, 1000)
	return time.Duration(q)
}
