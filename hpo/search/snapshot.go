package search

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/search"
	version = 1
)

// image is the saved form of a Search. Trials are named by their index.
type image struct {
	Config    Config         `json:"config"`
	Rule      []byte         `json:"rule"`
	Trials    []trialImage   `json:"trials"`
	Slots     []slotImage    `json:"slots"`
	Bundles   []bundleImage  `json:"bundles"`
	Groups    []groupImage   `json:"groups"`
	Made      uint64         `json:"made"`
	Picks     uint64         `json:"picks"`
	Pending   []int32        `json:"pending"`
	Finished  bool           `json:"finished,omitempty"`
	Queue     []Action       `json:"queue,omitempty"`
	Decisions []hpo.Decision `json:"decisions,omitempty"`
}

type trialImage struct {
	ID      hpo.TrialID `json:"id"`
	Key     fusion.Key  `json:"key,omitempty"`
	Value   uint64      `json:"value,omitempty"` // bits of the metric, 0 for none
	Zero    bool        `json:"zero,omitempty"`  // the metric is +0
	Attempt uint32      `json:"attempt,omitempty"`
	Ended   bool        `json:"ended,omitempty"`
	Sent    bool        `json:"sent,omitempty"`
}

type slotImage struct {
	ID     SlotID    `json:"id"`
	Class  ClassName `json:"class"`
	Lost   bool      `json:"lost,omitempty"`
	Target int32     `json:"target"`
}

type place struct {
	Key     fusion.Key `json:"key,omitempty"`
	Bracket int32      `json:"bracket,omitempty"`
	From    uint64     `json:"from,omitempty"`
	Until   uint64     `json:"until,omitempty"`
	Members []int32    `json:"members"`
}

type bundleImage struct {
	place
	Seq  uint64 `json:"seq"`
	Slot SlotID `json:"slot"`
	Safe bool   `json:"safe,omitempty"` // it is over and to be fused anew
}

type groupImage struct {
	place
	Since uint64 `json:"since,omitempty"`
}

// Snapshot writes the search to w, with its configuration: one line with format, version and SHA-256, then JSON. The
// same calls give the same bytes.
func (s *Search) Snapshot(w io.Writer) error {
	img, err := s.image()
	if err != nil {
		return err
	}
	return snapshot.WriteJSON(w, "search: snapshot", format, version, img)
}

func (s *Search) image() (*image, error) {
	var rule bytes.Buffer
	if err := s.rule.Snapshot(&rule); err != nil {
		return nil, fmt.Errorf("search: snapshot: %w", err)
	}
	img := &image{
		Config: s.cfg, Rule: rule.Bytes(), Made: s.made, Picks: s.picks, Pending: append([]int32{}, s.pending...), Finished: s.finished,
		Queue: s.queue, Decisions: s.decisions, Trials: []trialImage{}, Slots: []slotImage{}, Bundles: []bundleImage{}, Groups: []groupImage{},
	}
	for i := range s.trials {
		t := &s.trials[i]
		x := trialImage{ID: t.id, Key: s.keys[t.key], Attempt: t.attempt, Ended: t.ended, Sent: t.sent}
		if t.value == t.value {
			x.Value = math.Float64bits(t.value)
			x.Zero = x.Value == 0
		}
		img.Trials = append(img.Trials, x)
	}
	for _, x := range s.slots {
		img.Slots = append(img.Slots, slotImage{x.id, s.cfg.Classes[x.class].Name, x.lost, x.target})
		if b := x.bundle; b != nil {
			img.Bundles = append(img.Bundles, bundleImage{s.place(b.gkey, b.members), b.seq, x.id, s.bundles[b.id()] == nil})
		}
	}
	groups := slices.Clone(s.groups)
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(s.keys[a.key], s.keys[b.key]), cmp.Compare(a.from, b.from), cmp.Compare(a.until, b.until), cmp.Compare(a.bracket, b.bracket))
	})
	for _, g := range groups {
		img.Groups = append(img.Groups, groupImage{s.place(g.gkey, g.queue), g.since})
	}
	return img, nil
}

func (s *Search) place(k gkey, members []int32) place {
	return place{s.keys[k.key], k.bracket, k.from, k.until, members}
}

// Restore reads what Snapshot wrote, configuration included. Bytes that are cut short, changed, of another version or of
// no possible search are ErrInvalid.
func Restore(r io.Reader) (*Search, error) {
	const op = "search: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	if err := img.Config.Validate(); err != nil {
		return nil, err
	}
	rule, err := hpo.Restore(img.Config.Rule, bytes.NewReader(img.Rule))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	s := build(img.Config, rule)
	if bad := s.load(&img); bad != "" {
		return nil, fault(lockstep.ErrInvalid, "restore", "snapshot", "", bad)
	}
	again, err := s.image()
	if err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, again); err != nil {
		return nil, err
	}
	return s, nil
}

// load fills s, which is new, and returns what is wrong.
func (s *Search) load(img *image) string {
	s.made, s.picks, s.finished, s.queue, s.decisions = img.Made, img.Picks, img.Finished, img.Queue, img.Decisions
	for _, x := range img.Trials {
		if _, ok := s.index[x.ID]; ok || x.ID == "" {
			return "trials without a name of their own"
		}
		t := trial{id: x.ID, key: s.intern(x.Key), attempt: x.Attempt, ended: x.Ended, sent: x.Sent, value: math.NaN()}
		if x.Value != 0 || x.Zero {
			t.value = math.Float64frombits(x.Value)
		}
		if math.IsInf(t.value, 0) {
			return "a metric that is not finite"
		}
		n := int32(len(s.trials))
		s.index[x.ID] = n
		s.trials = append(s.trials, t)
		if t.ended {
			s.ended++
		}
		if t.value == t.value {
			s.best.push(s.entry(n))
		}
	}
	if bad := s.loadSlots(img); bad != "" {
		return bad
	}
	for _, n := range img.Pending {
		if n < 0 || int(n) >= len(s.trials) {
			return "a transfer of no trial"
		}
		s.pending = append(s.pending, n)
	}
	if bad := s.loadBundles(img); bad != "" {
		return bad
	}
	for _, g := range img.Groups {
		k, ok := s.found(g.place, ready)
		if !ok || s.group[k] != nil || g.Since > s.picks {
			return "a group that cannot be"
		}
		for _, n := range g.Members {
			s.put(n, k)
		}
		s.group[k].since = g.Since
	}
	return s.agrees()
}

func (s *Search) loadSlots(img *image) string {
	targets := map[int32]bool{}
	for _, x := range img.Slots {
		if err := s.AddSlot(x.ID, x.Class); err != nil {
			return err.Error()
		}
		if x.Target < -1 || x.Target >= 0 && (int(x.Target) >= len(s.trials) || targets[x.Target] || x.Lost) {
			return "a target of no trial"
		}
		targets[x.Target] = true
		s.at[x.ID].lost, s.at[x.ID].target = x.Lost, x.Target
	}
	return ""
}

func (s *Search) loadBundles(img *image) string {
	for _, x := range img.Bundles {
		k, ok := s.found(x.place, running)
		at := s.at[x.Slot]
		if !ok || at == nil || !at.free() || x.Seq == 0 || x.Seq > s.made {
			return "a bundle that cannot be"
		}
		b := &bundle{seq: x.Seq, gkey: k, slot: at, members: x.Members}
		at.bundle = b
		if s.bundles[b.id()] != nil {
			return "two bundles of one name"
		}
		if x.Safe {
			s.safe = append(s.safe, b)
		} else {
			s.bundles[b.id()] = b
		}
	}
	return ""
}

// found returns where members are, and puts them there; false if they can not be.
func (s *Search) found(p place, as state) (gkey, bool) {
	key, ok := s.keyed[p.Key]
	if !ok || p.Bracket < 0 || len(p.Members) == 0 {
		return gkey{}, false
	}
	for _, n := range p.Members {
		if n < 0 || int(n) >= len(s.trials) || s.trials[n].state != away || s.trials[n].key != key {
			return gkey{}, false
		}
		s.trials[n].state = as
	}
	return gkey{key, p.Bracket, p.From, p.Until}, true
}

// agrees says in what the rule knows something else than s.
func (s *Search) agrees() string {
	starts := s.rule.Running()
	here := 0
	for i := range s.trials {
		if s.trials[i].state != away {
			here++
		}
	}
	if here != len(starts) {
		return "other trials run than the rule has started"
	}
	for _, x := range starts {
		n, ok := s.index[x.Trial]
		if !ok || s.trials[n].state == away || s.trials[n].attempt != x.Attempt {
			return "other trials run than the rule has started"
		}
	}
	return ""
}
