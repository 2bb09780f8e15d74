package bubble

import (
	"io"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/bubble"
	version = 1
)

// image is the saved form of a Packer. Policies and what is loaded follow from it.
type image struct {
	Config  Config          `json:"config"`
	Ends    []int64         `json:"ends"`
	Steps   []int64         `json:"steps"`
	Armed   bool            `json:"armed"`
	Why     lockstep.Reason `json:"why,omitempty"`
	Fresh   []int64         `json:"fresh,omitempty"`
	Stale   bool            `json:"stale,omitempty"`
	Without set             `json:"without,omitempty"`
	Windows []windowImage   `json:"windows"`
	Stages  []stageImage    `json:"stages"`
	Left    []int64         `json:"left"`
	Stakes  stakes          `json:"stakes"`
	Harm    int64           `json:"harm,omitempty"`
	Calm    int64           `json:"calm,omitempty"`
	Counts  counts          `json:"counts"`
}

type windowImage struct {
	Length int64   `json:"length"`
	Stakes stakes  `json:"stakes"`
	Learns bool    `json:"learns,omitempty"`
	Seen   []int64 `json:"seen,omitempty"`
}

type stageImage struct {
	Held   set   `json:"held,omitempty"`
	Last   int64 `json:"last"`
	Open   int   `json:"open,omitempty"`
	Began  int64 `json:"began,omitempty"`
	Filled bool  `json:"filled,omitempty"`
	Closed bool  `json:"closed,omitempty"`
}

// clone copies what c points to.
func clone(c Config) Config {
	c.Bundles = slices.Clone(c.Bundles)
	for i := range c.Bundles {
		c.Bundles[i].Points = slices.Clone(c.Bundles[i].Points)
	}
	c.Devices, c.Windows = slices.Clone(c.Devices), slices.Clone(c.Windows)
	return c
}

// Snapshot writes the whole packer, windows that are being filled included: one line with format, version and SHA-256,
// then JSON. Equal packers give equal bytes.
func (p *Packer) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "bubble: snapshot", format, version, p.image())
}

// Restore reads what Snapshot wrote, configuration included, and works the policies out again. Bytes that are cut
// short, changed, of another version or of no possible packer are ErrInvalid.
func Restore(r io.Reader) (*Packer, error) {
	const op = "bubble: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	p, err := New(img.Config)
	if err != nil {
		return nil, invalid("restore", "config", "", err.Error())
	}
	if field, reason := img.check(p); reason != "" {
		return nil, invalid("restore", field, "", reason)
	}
	p.take(&img)
	if err := snapshot.CheckJSON(op, body, p.image()); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Packer) image() *image {
	img := &image{
		Config: p.cfg, Ends: p.jitter.ends, Steps: p.jitter.steps, Armed: p.armed, Why: p.why, Fresh: p.fresh,
		Stale: p.stale, Without: p.without, Left: p.left, Stakes: p.stakes, Harm: p.harm, Calm: p.calm, Counts: p.counts,
	}
	for i := range p.windows {
		w := &p.windows[i]
		img.Windows = append(img.Windows, windowImage{w.length, w.stakes, w.learns, w.seen})
	}
	for i := range p.stages {
		s := &p.stages[i]
		img.Stages = append(img.Stages, stageImage{s.may(), s.last, s.open, s.began, s.filled, s.closed})
	}
	return img
}

// take makes p what img, which was checked, is of.
func (p *Packer) take(img *image) {
	p.jitter.setEnds(img.Ends)
	p.jitter.setSteps(img.Steps)
	p.armed, p.why, p.fresh, p.stale, p.without = img.Armed, img.Why, img.Fresh, img.Stale, img.Without
	p.left, p.stakes, p.harm, p.calm, p.counts = img.Left, img.Stakes, img.Harm, img.Calm, img.Counts
	for i, w := range img.Windows {
		p.windows[i] = window{length: w.Length, stakes: w.Stakes, learns: w.Learns, seen: w.Seen}
	}
	taken := make([]int64, len(p.cfg.Bundles))
	for i, s := range img.Stages {
		p.stages[i] = stage{last: s.Last, open: s.Open, began: s.Began, filled: s.Filled, closed: s.Closed}
		p.stages[i].hold(s.Held, p.choices, taken)
	}
	if p.armed {
		p.parts = p.jitter.parts()
		for w := range p.windows {
			p.resolve(w)
		}
	}
}

// check says what is impossible about img, of which p is the configuration.
func (img *image) check(p *Packer) (field, reason string) {
	if len(img.Windows) != len(p.windows) || len(img.Stages) != len(p.stages) || len(img.Left) != len(p.left) {
		return "windows", "are not as many as configured"
	}
	if field, reason := img.checkSamples(p.miss); reason != "" {
		return field, reason
	}
	for i, left := range img.Left {
		if left < 0 || left > p.left[i] {
			return at("left", i), "out of range"
		}
	}
	if !img.Counts.fit() {
		return "counts", "out of range"
	}
	if !img.Stakes.fit() || !stakeFits(img.Harm) || !stakeFits(img.Calm) {
		return "stakes", "out of range"
	}
	for i := range img.Windows {
		if reason := img.Windows[i].check(p); reason != "" {
			return at("windows", i), reason
		}
	}
	return img.checkStages(p)
}

// checkSamples says what is impossible about the samples, and about filling with them.
func (img *image) checkSamples(miss int64) (field, reason string) {
	if !ratiosFit(img.Ends, -million) || !ratiosFit(img.Steps, 1) || !slices.IsSorted(img.Ends) || !slices.IsSorted(img.Steps) {
		return "samples", "out of range or out of order"
	}
	if !ratiosFit(img.Fresh, -million) || img.Armed && len(img.Fresh) > 0 {
		return "fresh", "out of range"
	}
	enough := jitter{ends: img.Ends, steps: img.Steps}
	switch img.Why {
	case "", ReasonScale, ReasonHarm: // it has been armed
		if img.Armed != (img.Why == "") || !enough.enough(miss) {
			return "why", "does not go with the samples"
		}
	case ReasonSamples:
		if img.Armed {
			return "why", "does not go with armed"
		}
	default:
		return "why", "is no reason"
	}
	return "", ""
}

// fit says whether c can be what was counted. Only Harm can reach the largest number: by many overruns of many hours.
func (c *counts) fit() bool {
	const most = 1 << 60
	return min(c.Windows, c.Filled, c.Overruns, c.Harm, c.Quanta, c.Work) >= 0 &&
		max(c.Windows, c.Filled, c.Overruns, c.Quanta, c.Work) < most
}

func (s *stakes) fit() bool { return stakeFits(s.Longer) && stakeFits(s.Shorter) && stakeFits(s.Wider) }

// stakeFits leaves room above every limit and below every loss, and none for a sum that runs over.
func stakeFits(stake int64) bool { return stake > -1<<60 && stake < 1<<30 }

func ratiosFit(ratios []int64, least int64) bool {
	return len(ratios) <= maxSamples && !slices.ContainsFunc(ratios, func(r int64) bool { return r < least || r > mostOff })
}

func (w *windowImage) check(p *Packer) string {
	switch {
	case !w.Stakes.fit():
		return "stakes out of range"
	case w.Length < 1 || w.Length > int64(maxSpan):
		return "length out of range"
	case len(w.Seen) > p.cfg.Steady || !w.Learns && len(w.Seen) > 0:
		return "has seen too much"
	case slices.ContainsFunc(w.Seen, func(l int64) bool { return l < 1 || l > int64(maxSpan) }):
		return "seen out of range"
	}
	return ""
}

// checkStages says what is impossible about the stages: what is loaded has to fit.
func (img *image) checkStages(p *Packer) (field, reason string) {
	members := make([]int64, len(p.cfg.Bundles))
	for b := range members {
		members[b] = -1
		if n := p.cfg.Bundles[b].Members; n > 0 {
			members[b] = n
		}
	}
	for i := range img.Stages {
		reason := img.Stages[i].check(p, i)
		if reason == "" && !p.loads(i, img.Stages[i].Held, members) {
			reason = "holds more than fits"
		}
		if reason != "" {
			return at("stages", i), reason
		}
	}
	return "", ""
}

// check says what is impossible about s, which is the i-th stage.
func (s *stageImage) check(p *Packer, i int) string {
	switch {
	case s.Last < 0 || s.Began < 0 || s.Began > s.Last:
		return "times out of order"
	case s.Open < 0 || s.Open > len(p.windows) || s.Open > 0 && p.cfg.Windows[s.Open-1].Stage != i:
		return "is in none of its windows"
	case s.Open == 0 && (s.Filled || s.Closed):
		return "is in no window"
	case s.Held>>len(p.choices) != 0:
		return "holds what is not there"
	}
	return ""
}

// loads says whether a set fits the device of a stage, and takes its members.
func (p *Packer) loads(stage int, held set, members []int64) bool {
	r := rule{all: p.choices, residency: p.cfg.Residency}
	spare := p.cfg.Devices[stage].spare()
	for c := range p.choices {
		if !held.has(c) {
			continue
		}
		x := &p.choices[c]
		if !r.fits(x, spare, members) {
			return false
		}
		spare = r.load(x, spare, members)
	}
	return true
}
