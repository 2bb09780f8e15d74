package autoscale

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
	"github.com/lockstep-gpu/lockstep/policy"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/autoscale"
	version = 1
)

// image is the saved form of a Scaler.
type image struct {
	Config   Config        `json:"config"` // with defaults filled in
	Kind     string        `json:"kind"`   // of the rule
	Rule     Rule          `json:"rule"`
	Steady   policy.Steady `json:"steady"`
	Now      int64         `json:"now"`
	Term     uint64        `json:"term"`
	Seq      uint64        `json:"seq"`
	Want     int           `json:"want"`
	Told     int64         `json:"told"`
	Active   int64         `json:"active"`
	Gauges   []gauge       `json:"gauges"`
	Level    mean          `json:"level"`
	Arrivals mean          `json:"arrivals"`
	Memory   memory        `json:"memory"`
	Usual    usual         `json:"usual"`
	Slot     int64         `json:"slot"`
	Busy     int64         `json:"busy"`
	Partial  bool          `json:"partial,omitempty"`
	Series   *series       `json:"series,omitempty"`
	Tracks   []track       `json:"tracks,omitempty"`
	Water    *water        `json:"water,omitempty"`
}

func (s *Scaler) image() *image {
	img := &image{
		Config: s.cfg, Kind: fmt.Sprintf("%T", s.cfg.Rule), Rule: s.cfg.Rule, Steady: s.steady, Now: s.now, Term: s.term, Seq: s.seq, Want: s.want,
		Told: s.told, Active: s.active, Gauges: s.gauges, Level: s.level, Arrivals: s.arrivals, Memory: s.memory,
		Usual: s.usual, Slot: s.slot, Busy: s.busy, Partial: s.partial, Water: s.water,
	}
	if s.forecast != nil {
		img.Series, img.Tracks = &s.forecast.s, s.forecast.tracks
	}
	return img
}

// Snapshot writes all that s knows: one line with format, version and SHA-256, then JSON. Equal Scalers give equal
// bytes. Errors are those of w.
func (s *Scaler) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "autoscale: snapshot", format, version, s.image())
}

// Restore reads what Snapshot wrote of a Scaler with the same configuration; the Capacity is not compared, and Term is
// the later of both. Bytes that are cut short, changed, of another version, of another configuration or of no possible
// Scaler are ErrInvalid.
func Restore(cfg Config, r io.Reader) (*Scaler, error) {
	const op = "autoscale: restore"
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	img := *s.image()
	img.Config, img.Rule = Config{}, nil
	var raw struct {
		*image
		Config json.RawMessage `json:"config"` // as it stands, since Rule is no type to read into
		Rule   json.RawMessage `json:"rule"`
	}
	raw.image = &img
	img.Series, img.Tracks, img.Water = nil, nil, nil
	body, err := snapshot.ReadJSON(r, op, format, version, &raw)
	if err != nil {
		return nil, err
	}
	term := s.cfg.Term
	s.cfg.Term = savedTerm(raw.Config)
	if !same(raw.Config, s.cfg) || !same(raw.Rule, s.cfg.Rule) || img.Kind != fmt.Sprintf("%T", s.cfg.Rule) {
		return nil, fault(lockstep.ErrInvalid, "restore", "cfg", "", "is not the configuration that was saved")
	}
	if reason := s.load(&img); reason != "" {
		return nil, fault(lockstep.ErrInvalid, "restore", "snapshot", "", reason)
	}
	if err := snapshot.CheckJSON(op, body, s.image()); err != nil {
		return nil, err
	}
	s.cfg.Term = term
	if term > s.term {
		s.term, s.seq = term, 0
	}
	return s, nil
}

// savedTerm is the Term of a saved configuration, which may differ.
func savedTerm(config []byte) uint64 {
	var c struct {
		Term uint64 `json:"term"`
	}
	_ = json.Unmarshal(config, &c) // where it cannot be read it is not the same either
	return c.Term
}

func same(saved []byte, v any) bool {
	now, err := json.Marshal(v)
	return err == nil && bytes.Equal(saved, now)
}

// load takes img in, or says what is impossible about it.
func (s *Scaler) load(img *image) string {
	for _, reason := range []string{
		s.steadied(img), s.ranges(img), gaugesOf(img, int64(s.cfg.Expiry)), img.Level.bad(img.Now / 1000), img.Arrivals.bad(img.Now / 1000),
	} {
		if reason != "" {
			return reason
		}
	}
	s.steady = img.Steady
	s.now, s.term, s.seq, s.want, s.told, s.active = img.Now, img.Term, img.Seq, img.Want, img.Told, img.Active
	s.gauges, s.level, s.arrivals, s.memory, s.usual = img.Gauges, img.Level, img.Arrivals, img.Memory, img.Usual
	s.slot, s.busy, s.partial = img.Slot, img.Busy, img.Partial
	if reason := s.water.take(img.Water, img.Told); reason != "" {
		return reason
	}
	if s.forecast == nil {
		if img.Series != nil || img.Tracks != nil {
			return "forecasts that are not configured"
		}
		return ""
	}
	return s.forecast.load(img.Series, img.Tracks)
}

// steadied says what is impossible about the decorators of img.
func (s *Scaler) steadied(img *image) string {
	bare, was := img.Steady, s.steady
	now := max(bare.Delayed.State.Now, bare.RateLimited.State.Now, bare.Cooldown.State.Now)
	bare.Delayed.State, bare.RateLimited.State, bare.Cooldown.State = was.Delayed.State, was.RateLimited.State, was.Cooldown.State
	switch {
	case img.Steady.Validate() != nil || now > img.Now:
		return "steady is no saved state"
	case !same(mustJSON(bare), was):
		return "steady is of another configuration"
	}
	return ""
}

// ranges says what is impossible about the plain numbers of img.
func (s *Scaler) ranges(img *image) string {
	switch {
	case img.Now < 0 || img.Told < 0 || img.Told > img.Now || img.Active < 0 || img.Active > img.Told:
		return "times out of order"
	case img.Want < 0 || img.Want > MaxReplicas || img.Memory.Until < 0 || img.Memory.Peak < 0 || img.Memory.Peak > MaxReplicas:
		return "numbers of replicas out of range"
	case img.Usual.bad():
		return "usual out of range"
	case img.Slot < -1 || img.Slot > img.Now/int64(s.cfg.Demand.Slot) || img.Busy < 0:
		return "slot out of range"
	case s.forecast == nil && img.Slot != -1, img.Slot == -1 && (img.Busy != 0 || img.Partial):
		return "a slot that has not begun"
	}
	return ""
}

func mustJSON(v any) []byte {
	b, _ := json.Marshal(v) // of plain structs
	return b
}

func (u *usual) bad() bool {
	return min(u.Requests, u.Prompt, u.Finished, u.Output) < 0 || max(u.Requests, u.Finished) > fadeAt || max(u.Prompt, u.Output) > mostTokens
}

// gaugesOf says what is impossible about the gauges.
func gaugesOf(img *image, expiry int64) string {
	switch {
	case len(img.Gauges) > maxSources:
		return "too many sources"
	case len(img.Gauges) > 0 && (img.Level.Width == 0 || img.Arrivals.Width == 0):
		return "a mean that has not begun"
	}
	for i, g := range img.Gauges {
		switch {
		case i > 0 && img.Gauges[i-1].Source >= g.Source, len(g.Source) > lockstep.MaxIDLength:
			return "sources out of order"
		case g.At < 0 || g.At > img.Told || img.Now-g.At > expiry:
			return "a source at another time"
		case g.Ongoing < 0 || g.Ongoing > maxCount || g.Queued < 0 || g.Queued > maxCount:
			return "a count out of range"
		}
	}
	if img.Level.Value != ongoing(img.Gauges) {
		return "counts do not add up"
	}
	return ""
}

// bad says what is impossible about a mean that was summed up to last, in microseconds.
func (m *mean) bad(last int64) string {
	if m.Width == 0 {
		if len(m.Marks) != 0 || m.Value|m.Last|m.Start != 0 || m.Sum != 0 {
			return "a mean that has not begun"
		}
		return ""
	}
	switch {
	case m.Width < 0 || m.Width > math.MaxInt64/(4*pieces) || m.Value < 0:
		return "a mean out of range"
	case len(m.Marks) == 0 || len(m.Marks) > 2*pieces+8 || m.Last != last || m.Start < 0 || m.Start > m.Marks[0].At:
		return "a mean of another time"
	}
	left := uint64(math.MaxInt64) // sums over windows fit
	for i, k := range m.Marks[1:] {
		step := k.Sum - m.Marks[i].Sum // they wrap around
		if k.At <= m.Marks[i].At || step > left {
			return "marks of a mean out of order"
		}
		left -= step
	}
	if last := m.Marks[len(m.Marks)-1]; last.At != m.Last || last.Sum != m.Sum {
		return "a mean that does not end where it does"
	}
	return ""
}

// load takes saved forecasts in, or says what is impossible about them.
func (f *Forecaster) load(s *series, tracks []track) string {
	if s == nil || len(tracks) != len(f.tracks) || len(s.Experts) != len(f.s.Experts) || len(s.Season) != f.cfg.Season || len(s.Last) != f.cfg.Season {
		return "forecasts of another configuration"
	}
	if reason := s.bad(&f.s, f.longest()); reason != "" {
		return reason
	}
	for i := range tracks {
		t := &tracks[i]
		if reason := t.bad(f.cfg.Horizons[i].Slots, f.cfg.Errors, len(s.Experts)); reason != "" {
			return reason
		}
		if int64(len(t.Pending)) > s.N || s.Known == (len(t.Pending) == 0) {
			return "guesses about nothing"
		}
		t.sorted = slices.Sorted(slices.Values(t.Scores))
	}
	f.s, f.tracks = *s, tracks
	return ""
}

// mostFine is more than what is smoothed comes to.
const mostFine = maxLoad * fine * 16

// bad says what is impossible about what forecasts go by; was is that of a new Forecaster.
func (s *series) bad(was *series, longest int) string {
	if s.N < 0 || int64(len(s.Recent)) != min(s.N, int64(longest)) || slices.ContainsFunc(s.Recent, func(v int64) bool { return v < unknown || v > maxLoad }) {
		return "loads out of range"
	}
	for i, e := range s.Experts {
		w := was.Experts[i]
		w.Level, w.Trend = e.Level, e.Trend
		if e != w || outside(e.Level, mostFine) || outside(e.Trend, mostFine) {
			return "a forecast out of range"
		}
	}
	sum := int64(0)
	for i, v := range s.Last {
		if sum += v; v < 0 || v > maxLoad || outside(s.Season[i], mostFine) {
			return "a season out of range"
		}
	}
	if sum != s.Sum {
		return "a season that does not add up"
	}
	return ""
}

func outside(v, most int64) bool { return v < -most || v > most }

// bad says what is impossible about a track.
func (t *track) bad(slots, errors, experts int) string {
	switch {
	case len(t.Pending) > slots, len(t.Scores) > errors, len(t.Loss) != experts:
		return "a horizon of another configuration"
	case t.Level < -million || t.Level > 2*million, t.Choice < 0 || t.Choice >= experts, t.Met < 0 || t.Missed < 0:
		return "a horizon out of range"
	case beyondLoad(t.Point) || beyondLoad(t.Bound):
		return "a bound out of range"
	case slices.ContainsFunc(t.Loss, func(v int64) bool { return v < 0 || v > maxLoad*fade*2 }):
		return "a loss out of range"
	case slices.ContainsFunc(t.Scores, func(v int64) bool { return outside(v, maxLoad*thousand) }):
		return "an error out of range"
	case slices.ContainsFunc(t.Pending, func(g guess) bool { return g.bad(experts) }):
		return "a guess out of range"
	}
	return ""
}

func beyondLoad(v int64) bool { return v < 0 || v > maxLoad }

func (g guess) bad(experts int) bool {
	return len(g.Points) != experts || g.Choice < 0 || g.Choice >= experts || beyondLoad(g.Bound) || slices.ContainsFunc(g.Points, beyondLoad)
}
