package autoscale

import (
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Bounds and defaults of a Forecaster.
const (
	maxHorizons   = 8
	maxSlots      = 4096    // of a horizon
	maxSeason     = 1 << 15 // slots: a week of 20 s slots and less
	maxErrors     = 4096
	defaultErrors = 1024
	maxLoad       = int64(1) << 40
	prior         = 1_000 // the error assumed while there are too few, in thousandths of the square root of the load
	step          = 5_000 // millionths by which a quantile moves with each miss (Gibbs and Candès use .005 to .05)
	fewest        = 8     // errors from which a quantile is read at all
	beyond        = 8     // by how many hundredths of the worst error a bound rises for each hundredth that a level is beyond it
)

// Horizon is how far ahead, and how surely, a Forecaster is asked.
type Horizon struct {
	Slots    int `json:"slots"`    // Slots is over how many of the next slots, 1 to 4096.
	Quantile int `json:"quantile"` // Quantile is how often the load is to stay within the bound, in thousandths, 1 to 999.
}

// ForecastConfig configures a Forecaster. At least one horizon is needed.
type ForecastConfig struct {
	Horizons []Horizon `json:"horizons"`         // Horizons are those that can be asked for, by index, 1 to 8.
	Season   int       `json:"season,omitempty"` // Season is after how many slots the load repeats, such as a day, up to 32768; 0 means that it does not.
	Errors   int       `json:"errors,omitempty"` // Errors is how many past errors of each horizon are kept, 16 to 4096; 0 means 1024.
}

// Validate reports every fault of c, joined.
func (c ForecastConfig) Validate() error {
	f := faults{op: "forecast"}
	f.count("len(Horizons)", int64(len(c.Horizons)), 1, maxHorizons)
	for i, h := range c.Horizons {
		field := "Horizons[" + strconv.Itoa(i) + "]."
		f.count(field+"Slots", int64(h.Slots), 1, maxSlots)
		f.count(field+"Quantile", int64(h.Quantile), 1, thousand-1)
	}
	if c.Season != 0 {
		f.count("Season", int64(c.Season), 2, maxSeason)
	}
	if c.Errors != 0 {
		f.count("Errors", int64(c.Errors), 16, maxErrors)
	}
	return f.err()
}

// Forecaster says how high a load, told in slots of equal length, will rise within horizons, and bounds that from its
// own errors. Several simple forecasts run side by side, and for each horizon the one counts that was off least of
// late; so none has to be chosen beforehand.
//
// The bound is conformal: the forecast plus that error, in units of the square root of the load, as counts scatter,
// which so many of the last ones stayed within (Papadopoulos et al., 2002); and the share asked for is moved against
// each miss, so that misses come to what was asked for over time whatever the load does (Gibbs and Candès, "Adaptive
// conformal inference under distribution shift", NeurIPS 2021).
//
// All is integers, so equal loads give equal bounds everywhere.
type Forecaster struct {
	cfg    ForecastConfig
	s      series
	tracks []track
}

// series is what the forecasts go by.
type series struct {
	N       int64    `json:"n"`                // how many slots there were
	Recent  []int64  `json:"recent"`           // the last loads, as many as the longest horizon has slots; unknown is -1
	Experts []expert `json:"experts"`          //
	Known   bool     `json:"known"`            // any load was told
	Season  []int64  `json:"season,omitempty"` // by phase, what is usual above the mean, scaled
	Last    []int64  `json:"last,omitempty"`   // by phase, the load last time
	Sum     int64    `json:"sum,omitempty"`    // of Last
}

// track is what is kept for a horizon.
type track struct {
	Pending []guess `json:"pending"` // made in each of the last slots, the oldest first; at most as many as the horizon has
	Loss    []int64 `json:"loss"`    // of each expert, how much it was off, faded
	Scores  []int64 `json:"scores"`  // the last errors, as they came
	Level   int64   `json:"level"`   // the share to stay within, in millionths, as moved
	Choice  int     `json:"choice"`  // the expert that counts
	Point   int64   `json:"point"`   // its forecast
	Bound   int64   `json:"bound"`   // Point and the error
	Met     int64   `json:"met"`     // how many bounds held
	Missed  int64   `json:"missed"`  // how many did not
	sorted  []int64 // Scores
}

// guess is what was forecast in a slot.
type guess struct {
	Points []int64 `json:"points"` // by expert
	Choice int     `json:"choice"`
	Bound  int64   `json:"bound"`
}

// NewForecaster returns a Forecaster that has seen nothing.
func NewForecaster(cfg ForecastConfig) (*Forecaster, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Horizons = slices.Clone(cfg.Horizons)
	cfg.Errors = or(cfg.Errors, defaultErrors)
	f := &Forecaster{cfg: cfg, s: series{Experts: experts(cfg.Season > 0)}, tracks: make([]track, len(cfg.Horizons))}
	if cfg.Season > 0 {
		f.s.Season, f.s.Last = make([]int64, cfg.Season), make([]int64, cfg.Season)
	}
	for i := range f.tracks {
		f.tracks[i] = track{Loss: make([]int64, len(f.s.Experts)), Level: int64(cfg.Horizons[i].Quantile) * thousand}
	}
	return f, nil
}

// Observe tells the load of the next slot, in any unit, 0 to 2^40: small units, such as thousandths, since the bound is
// made of whole ones. A load out of range is ErrInvalid.
func (f *Forecaster) Observe(load int64) error {
	if load < 0 || load > maxLoad {
		return fault(lockstep.ErrInvalid, "forecast: observe", "load", strconv.FormatInt(load, 10), "want 0 to "+strconv.FormatInt(maxLoad, 10))
	}
	f.advance(load)
	return nil
}

// Skip passes over a slot of which nothing is known. Forecasts that reach over it teach nothing.
func (f *Forecaster) Skip() { f.advance(unknown) }

// unknown is the load of a slot that was skipped.
const unknown = int64(-1)

func (f *Forecaster) advance(load int64) {
	f.s.next(load, f.cfg.Season)
	f.s.Recent = push(f.s.Recent, load, f.longest())
	if !f.s.Known {
		return // nothing to go by yet, so nothing is forecast
	}
	for i := range f.tracks {
		t, h := &f.tracks[i], f.cfg.Horizons[i]
		if len(t.Pending) == h.Slots { // the oldest guess was for the slots up to this one
			t.settle(f.s.highest(h.Slots), f.cfg.Errors, h.Quantile)
			t.Pending = t.Pending[1:]
		}
		t.guess(&f.s, h.Slots, f.cfg.Season)
	}
}

func (f *Forecaster) longest() int {
	n := 0
	for _, h := range f.cfg.Horizons {
		n = max(n, h.Slots)
	}
	return n
}

// Point returns how high the load is expected to rise within horizon i, an index into Horizons, without any allowance;
// false before the first load, and for an index that is none.
func (f *Forecaster) Point(i int) (load int64, ok bool) {
	if i < 0 || i >= len(f.tracks) || !f.s.Known {
		return 0, false
	}
	return f.tracks[i].Point, true
}

// Bound returns what the load stays within over horizon i as often as its Quantile says; false as for Point. It is not
// below Point of a quantile of 500 and more.
func (f *Forecaster) Bound(i int) (load int64, ok bool) {
	if i < 0 || i >= len(f.tracks) || !f.s.Known {
		return 0, false
	}
	return f.tracks[i].Bound, true
}

// Kept returns how many bounds of horizon i were settled, and how many of these held; 0 of an index that is none.
func (f *Forecaster) Kept(i int) (held, of int64) {
	if i < 0 || i >= len(f.tracks) {
		return 0, 0
	}
	return f.tracks[i].Met, f.tracks[i].Met + f.tracks[i].Missed
}

// Warm says whether horizon i has as many errors as its quantile takes to be read from them, rather than assumed.
func (f *Forecaster) Warm(i int) bool {
	if i < 0 || i >= len(f.tracks) {
		return false
	}
	n := len(f.tracks[i].Scores)
	return rank(n, int64(f.cfg.Horizons[i].Quantile)*thousand) <= n && n >= 8
}

// learnt says whether horizon i has any errors to go by.
func (f *Forecaster) learnt(i int) bool { return len(f.tracks[i].Scores) >= fewest }

// settle compares what was guessed for a horizon that is over with the highest load there.
func (t *track) settle(highest int64, keep, quantile int) {
	if highest == unknown {
		return
	}
	g := t.Pending[0]
	for e, p := range g.Points {
		off := highest - p
		if off < 0 {
			off = -off
		}
		t.Loss[e] += off - t.Loss[e]/fade
	}
	miss := int64(0)
	if highest > g.Bound {
		miss = million
		t.Missed++
	} else {
		t.Met++
	}
	aim := million - int64(quantile)*thousand // the share of misses asked for
	t.Level = min(max(t.Level+int128.MulDiv(step, miss, million)-int128.MulDiv(step, aim, million), -million), 2*million)
	p := g.Points[g.Choice]
	t.note(score(highest-p, p), keep)
}

// note keeps an error, and lets the oldest go where there are too many.
func (t *track) note(score int64, keep int) {
	if len(t.Scores) == keep {
		i, _ := slices.BinarySearch(t.sorted, t.Scores[0])
		t.sorted = slices.Delete(t.sorted, i, i+1)
	}
	t.Scores = push(t.Scores, score, keep)
	i, _ := slices.BinarySearch(t.sorted, score)
	t.sorted = slices.Insert(t.sorted, i, score)
}

// million is the unit of levels.
const million = 1_000_000

// fade is over how many slots what an expert was off fades.
const fade = 64

// spread is the unit of errors: the square root of the load in thousandths, at least that of one.
func spread(point int64) int64 { return root(max(point, thousand) * thousand) }

// score returns an error in thousandths of the spread of its forecast, rounded up.
func score(off, point int64) int64 {
	s := spread(point)
	if off < 0 {
		return -int128.MulDiv(-off, thousand, s)
	}
	return int128.MulDivUp(off, thousand, s)
}

// rank returns the place, from 1, of that of n errors which a new one stays within with a probability of level
// millionths, counting the new one as one of them; more than n where n are too few to say.
func rank(n int, level int64) int { return int(int128.MulDivUp(int64(n)+1, level, million)) }

// guess forecasts the horizon that begins now.
func (t *track) guess(s *series, slots, season int) {
	points := make([]int64, len(s.Experts))
	for e := range s.Experts {
		points[e] = s.peak(&s.Experts[e], slots, season)
		if t.Loss[e] < t.Loss[t.Choice] {
			t.Choice = e
		}
	}
	t.Point = points[t.Choice]
	t.Bound = t.Point + t.allowance(t.Point)
	t.Bound = min(max(t.Bound, 0), maxLoad)
	t.Pending = append(t.Pending, guess{points, t.Choice, t.Bound})
}

// allowance is what the bound lies above a forecast of this load.
func (t *track) allowance(point int64) int64 {
	n := len(t.Scores)
	at := int64(prior)
	switch k := rank(n, t.Level); {
	case n == 0:
	case n < fewest: // too few to say
		at = max(at, t.sorted[n-1])
	case k <= n:
		at = t.sorted[max(k, 1)-1]
	default: // more than was ever seen: so much more as the level is beyond
		most := max(t.sorted[n-1], 1)
		at = add(most, int128.MulDivUp(most, beyond*(t.Level-int128.MulDiv(int64(n), million, int64(n)+1)), million))
	}
	if at < 0 {
		return -int128.MulDiv(-at, spread(point), thousand)
	}
	return int128.MulDivUp(at, spread(point), thousand)
}

// push appends x, and drops what is more than keep from the front.
func push(xs []int64, x int64, keep int) []int64 {
	if len(xs) >= keep {
		copy(xs, xs[len(xs)-keep+1:])
		xs = xs[:keep-1]
	}
	return append(xs, x)
}

// latest returns the last load that was told, 0 if the last slot was skipped or none was told.
func (f *Forecaster) latest() int64 {
	if len(f.s.Recent) == 0 {
		return 0
	}
	return max(f.s.Recent[len(f.s.Recent)-1], 0)
}
