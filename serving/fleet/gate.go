package fleet

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Tail is what one of two tenants of a device has of its latency.
type Tail struct {
	Alone     time.Duration `json:"alone"`     // Alone is its 99th percentile of latency without the other, above 0, up to 100 h.
	Slowdown  int64         `json:"slowdown"`  // Slowdown is how many times as long it takes beside the other, in thousandths, 1000 to 1000000: the reciprocal of profile.Store.Beside, or what else predicts it.
	Objective time.Duration `json:"objective"` // Objective is within what 99 % of its requests are to be answered, above 0, up to 100 h; of one that has none it is 100 h.
}

// Phase is how far colocation has come.
type Phase string

// The phases.
const (
	Apart    Phase = ""         // Apart: the tenants have devices of their own.
	Canary   Phase = "canary"   // Canary: they share one on trial.
	Together Phase = "together" // Together: they share.
)

// Gate decides whether two tenants share a device: they begin to where both are predicted to keep their objectives with
// Margin to spare, on trial; they go on if Windows in a row showed that they do; and they are parted at the first window
// of the trial, or Strikes in a row later, in which one does not. Each parting makes the next trial wait twice as long.
// Entering takes a margin and leaving takes a violation, so what is near the edge does not go in and out.
//
// The zero Gate works. Its fields are configuration and state; encode it as JSON to save it.
type Gate struct {
	Margin  int           `json:"margin,omitempty"`  // Margin is what a prediction has to leave free of the objective, in thousandths, at most 999; 0 means 100.
	Windows int           `json:"windows,omitempty"` // Windows is how many windows a trial takes, at most 1000; 0 means 5.
	Strikes int           `json:"strikes,omitempty"` // Strikes is how many windows in a row have to be violated to part who share, at most 1000; 0 means 2.
	Wait    time.Duration `json:"wait,omitempty"`    // Wait is how long after the first parting a trial may begin again, at most 24 h; 0 means 10 min. Later ones wait twice as long each, up to 24 h.

	Now   Phase     `json:"now,omitempty"`   // Now is the present phase.
	Count int       `json:"count,omitempty"` // Count is how many windows in a row were good (Canary) or bad (Together).
	Undos int       `json:"undos,omitempty"` // Undos is how often they were parted.
	Again time.Time `json:"again,omitzero"`  // Again is before when no trial begins; zero for none.
}

// Validate reports every fault of g, joined.
func (g Gate) Validate() error {
	f := faults{op: "gate"}
	f.count("Margin", int64(g.Margin), 0, 999)
	f.count("Windows", int64(g.Windows), 0, 1000)
	f.count("Strikes", int64(g.Strikes), 0, 1000)
	f.span("Wait", g.Wait, 0, 24*time.Hour)
	f.count("Count", int64(g.Count), 0, 1000)
	f.count("Undos", int64(g.Undos), 0, 1<<30)
	if g.Now != Apart && g.Now != Canary && g.Now != Together {
		f.bad("Now", strconv.Quote(string(g.Now)), "is no phase")
	}
	return f.err()
}

// Predicted returns the 99th percentile that t will have beside the other, rounded up.
func (t Tail) Predicted() time.Duration {
	return time.Duration(int128.MulDivUp(int64(t.Alone), t.Slowdown, 1000))
}

// Consider begins a trial if both tenants are predicted to keep their objectives with the margin to spare, and no
// parting is too recent. It changes nothing unless they are Apart. Bad input is ErrInvalid.
func (g *Gate) Consider(now time.Time, a, b Tail) (Phase, error) {
	f := faults{op: "consider"}
	for i, t := range []Tail{a, b} {
		at := string(rune('a'+i)) + "."
		f.span(at+"Alone", t.Alone, 1, maxSpan)
		f.count(at+"Slowdown", t.Slowdown, 1000, million)
		f.span(at+"Objective", t.Objective, 1, maxSpan)
	}
	if err := g.check(&f, now); err != nil {
		return g.Now, err
	}
	if g.Now != Apart || now.Before(g.Again) {
		return g.Now, nil
	}
	margin := int64(g.Margin)
	if margin == 0 {
		margin = 100
	}
	for _, t := range []Tail{a, b} {
		if compareProducts(int64(t.Predicted()), 1000, int64(t.Objective), 1000-margin) > 0 {
			return Apart, nil
		}
	}
	g.Now, g.Count = Canary, 0
	return Canary, nil
}

func (g *Gate) check(f *faults, now time.Time) error {
	if err := g.Validate(); err != nil {
		f.errs = append(f.errs, err)
	}
	if _, err := instant.In("fleet").SinceEpoch(f.op, "now", now); err != nil {
		f.errs = append(f.errs, err)
	}
	return f.err()
}

// Observe takes in a window of those that share: the 99th percentile of each, and its objective. Tails of 0 are windows
// in which nothing was asked, and tell nothing. It changes nothing while they are Apart. Bad input is ErrInvalid.
func (g *Gate) Observe(now time.Time, tails, objectives [2]time.Duration) (Phase, error) {
	f := faults{op: "observe"}
	for i := range tails {
		f.span("tails["+strconv.Itoa(i)+"]", tails[i], 0, lockstep.MaxWalltime)
		f.span("objectives["+strconv.Itoa(i)+"]", objectives[i], 1, maxSpan)
	}
	if err := g.check(&f, now); err != nil {
		return g.Now, err
	}
	bad := tails[0] > objectives[0] || tails[1] > objectives[1]
	if g.Now == Apart || tails == [2]time.Duration{} {
		return g.Now, nil
	}
	switch {
	case g.Now == Canary && bad:
		g.undo(now)
	case g.Now == Canary:
		if g.Count++; g.Count >= orDefault(g.Windows, 5) {
			g.Now, g.Count = Together, 0
		}
	case !bad:
		g.Count = 0
	default:
		if g.Count++; g.Count >= orDefault(g.Strikes, 2) {
			g.undo(now)
		}
	}
	return g.Now, nil
}

// undo parts them.
func (g *Gate) undo(now time.Time) {
	wait := g.Wait
	if wait == 0 {
		wait = 10 * time.Minute
	}
	for range min(g.Undos, 32) {
		wait = min(2*wait, 24*time.Hour)
	}
	g.Now, g.Count, g.Undos = Apart, 0, min(g.Undos+1, 1<<30)
	g.Again = now.Round(0).UTC().Add(wait)
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}
