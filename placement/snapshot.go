package placement

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
	"github.com/lockstep-gpu/lockstep/sharing"
	"github.com/lockstep-gpu/lockstep/topology"
)

// What saved bytes begin with.
const (
	snapshotFormat  = "lockstep/placement"
	snapshotVersion = 2
)

// image is what a snapshot holds.
type image struct {
	Version lockstep.Version                  `json:"version"`
	Layouts map[string]sharing.GeometryConfig `json:"layouts,omitempty"`
	Mix     []Shape                           `json:"mix,omitempty"`
	Rule    Rule                              `json:"rule,omitempty"`
	RankAll bool                              `json:"rankAll,omitempty"`
	Arrived []Shape                           `json:"arrived,omitempty"` // counted so far, by first arrival
	Learned []Shape                           `json:"learned,omitempty"` // as of the last step
	Left    []leftover                        `json:"left,omitempty"`    // what there was of devices then
	Since   int64                             `json:"since,omitempty"`   // arrivals since
	Gap     int64                             `json:"gap"`               // arrivals that bring the next
	Nodes   []nodeImage                       `json:"nodes"`             // in slot order
	Jobs    []jobImage                        `json:"jobs"`              // by ID
}

type nodeImage struct {
	Node
	Cordoned bool  `json:"cordoned,omitempty"`
	Sick     bool  `json:"unhealthy,omitempty"`
	Penalty  int32 `json:"penalty,omitempty"`
}

type jobImage struct {
	Gang    *lockstep.Gang    `json:"gang"`
	Port    int               `json:"port,omitempty"`
	Members []lockstep.Member `json:"members"`
	Spares  []lockstep.Member `json:"spares,omitempty"`
	Away    []int             `json:"away,omitempty"` // ranks whose node, devices or room are gone; spares follow the ranks
}

// Snapshot writes the state, the tree apart: nodes, their standing, and what
// each job holds. Equal states give equal bytes, which carry their version and
// a checksum. Open marks are not saved. The error is the writer's.
func (s *State) Snapshot(w io.Writer) error {
	switch {
	case s.tree == nil:
		return zeroState("snapshot")
	case w == nil:
		return fault(lockstep.ErrInvalid, "snapshot", "w", "nil", "no writer")
	}
	img := image{Version: s.version, Layouts: s.cfg.Layouts, Mix: s.cfg.Mix, Rule: s.cfg.Rule, RankAll: s.cfg.RankAll, Nodes: []nodeImage{}, Jobs: []jobImage{}}
	l := &s.learner
	if img.Left, img.Since, img.Gap = s.market.left, l.since, l.gap; !l.fixed {
		img.Arrived, img.Learned = l.shapes, s.market.shapes
	}
	for x, id := range s.ids {
		if id == "" {
			continue
		}
		c := &s.slots[x]
		img.Nodes = append(img.Nodes, nodeImage{
			Node: s.specs[x].node, Penalty: s.specs[x].penalty,
			Cordoned: c.flags&cordoned != 0, Sick: c.flags&sick != 0,
		})
	}
	for _, id := range s.Jobs() {
		j := &s.jobs[s.byID[id]]
		o := jobImage{Gang: j.gang, Port: j.port}
		for i := range j.seats {
			if m := s.memberOf(&j.seats[i]); i < int(j.ranks) {
				o.Members = append(o.Members, m)
			} else {
				o.Spares = append(o.Spares, m)
			}
			if j.seats[i].slot < 0 {
				o.Away = append(o.Away, i)
			}
		}
		img.Jobs = append(img.Jobs, o)
	}
	body, err := json.Marshal(img)
	if err != nil {
		return fmt.Errorf("placement: snapshot: %w", err)
	}
	return snapshot.Write(w, snapshotFormat, snapshotVersion, body)
}

// Restore returns the state that Snapshot saved, over the tree that it had: any
// tree with the same nodes will do, but only one with the same slots decides the
// same. The bounds of cfg apply; all else that it could say was saved, and must be
// zero. Versions go on from one that the saved state never gave out.
//
// It returns lockstep.ErrInvalid for bytes that Snapshot did not write,
// ErrConflict for a tree with other nodes, and the reader's errors, wrapped.
func Restore(tree *topology.Tree, cfg Config, r io.Reader) (*State, error) {
	if err := checkTree("restore", tree); err != nil {
		return nil, err
	}
	for _, o := range [...]struct {
		field string
		zero  bool
	}{
		{"Nodes", len(cfg.Nodes) == 0}, {"Layouts", len(cfg.Layouts) == 0}, {"Mix", len(cfg.Mix) == 0}, {"Rule", cfg.Rule == ""}, {"RankAll", !cfg.RankAll},
	} {
		if !o.zero {
			return nil, fault(lockstep.ErrInvalid, "restore", "Config."+o.field, "", "must be zero: it was saved")
		}
	}
	img, err := readImage(r)
	if err != nil {
		return nil, err
	}
	if len(img.Nodes) != tree.Nodes() {
		return nil, fault(lockstep.ErrConflict, "restore", "tree", strconv.Itoa(tree.Nodes())+" nodes", "saved with "+strconv.Itoa(len(img.Nodes)))
	}
	for i := range img.Nodes {
		if _, ok := tree.Slot(img.Nodes[i].ID); !ok {
			return nil, fault(lockstep.ErrConflict, "restore", "tree", "", "lacks node "+quoteID(img.Nodes[i].ID))
		}
		cfg.Nodes = append(cfg.Nodes, img.Nodes[i].Node)
	}
	cfg.Layouts, cfg.Mix, cfg.Rule, cfg.RankAll = img.Layouts, img.Mix, img.Rule, img.RankAll
	s, err := New(tree, cfg)
	if err == nil {
		err = s.load(&img)
	}
	switch {
	case err != nil && errors.Is(err, lockstep.ErrInvalid):
		return nil, err
	case err != nil: // such as a job that is there twice
		return nil, fault(lockstep.ErrInvalid, "restore", "snapshot", "", err.Error())
	}
	s.version = img.Version
	s.issued = foreign(img.Version)
	return s, nil
}

func readImage(r io.Reader) (img image, err error) {
	bad := func(reason string) error { return fault(lockstep.ErrInvalid, "restore", "snapshot", "", reason) }
	if r == nil {
		return img, bad("no reader")
	}
	body, err := snapshot.Read(r, "placement: restore", snapshotFormat, snapshotVersion)
	if err != nil {
		return img, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&img); err != nil {
		return img, bad(err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return img, bad("something follows")
	}
	if img.Version == 0 || img.Version > 1<<62 {
		return img, bad("version out of range")
	}
	return img, nil
}

// load fills a new state.
func (s *State) load(img *image) error {
	if err := s.loadLearner(img); err != nil {
		return err
	}
	for i := range img.Nodes {
		n := &img.Nodes[i]
		x, _ := s.tree.Slot(n.ID)
		if n.Cordoned {
			s.slots[x].flags |= cordoned
		}
		if n.Sick {
			s.slots[x].flags |= sick
		}
		if n.Penalty < 0 {
			return fault(lockstep.ErrInvalid, "restore", at("nodes", i)+".penalty", strconv.Itoa(int(n.Penalty)), "must not be negative")
		}
		s.penalize(x, n.Penalty)
	}
	for i := range img.Jobs {
		if err := s.loadJob(&img.Jobs[i]); err != nil {
			return err
		}
	}
	return nil
}

// loadLearner takes what had arrived, and learns again what was known.
func (s *State) loadLearner(img *image) error {
	bad := func(field, value string) error {
		return fault(lockstep.ErrInvalid, "restore", field, value, "out of range")
	}
	l := &s.learner
	if img.Gap < firstStep || img.Gap > maxSlots*maxAtOnce {
		return bad("gap", strconv.FormatInt(img.Gap, 10))
	}
	if img.Since < 0 || img.Since >= img.Gap {
		return bad("since", strconv.FormatInt(img.Since, 10))
	}
	for i, o := range img.Left {
		if o.Worth < 1 || o.Worth > maxSlots*lockstep.MaxDevicesPerNode*lockstep.WholeGPU || i > 0 && img.Left[i-1].Class >= o.Class {
			return bad(at("left", i), string(o.Class))
		}
	}
	l.since, l.gap = img.Since, img.Gap
	shapes := img.Mix
	if l.fixed {
		if len(img.Arrived)+len(img.Learned) > 0 {
			return bad("arrived", "beside a mix")
		}
	} else {
		if err := errors.Join(checkCounts(img.Arrived), checkCounts(img.Learned)); err != nil {
			return err
		}
		shapes, l.shapes = img.Learned, img.Arrived
		for i := range l.shapes {
			l.seen += l.shapes[i].Count
		}
	}
	s.trade(newMarket(shapes, pricesOf(shapes), img.Left))
	return nil
}

// loadJob seats a job; members whose node or devices the tree lacks are away, and
// so are those that were.
func (s *State) loadJob(o *jobImage) error {
	if o.Gang == nil {
		return fault(lockstep.ErrInvalid, "restore", "jobs", "", "want a gang")
	}
	p := &lockstep.Plan{Job: o.Gang.ID, Gang: o.Gang, Members: o.Members, Spares: o.Spares, Port: o.Port}
	if err := s.checkPlan("restore", p); err != nil {
		return err
	}
	all := slices.Concat(o.Members, o.Spares)
	rec := s.newJob(len(all))
	j := &s.jobs[rec]
	j.id, j.gang, j.port, j.ranks = p.Job, p.Gang, p.Port, int32(len(p.Members))
	s.byID[j.id] = rec
	away := o.Away
	for i := range all {
		m := &all[i]
		if m.Node == "" {
			return fault(lockstep.ErrInvalid, "restore", at("members", i)+".node", "", "must not be empty")
		}
		d := &o.Gang.Roles[m.Role].Demand
		x, ok := s.tree.Slot(m.Node)
		t := seatOf(m, x, d)
		gone := len(away) > 0 && away[0] == i
		if gone {
			away = away[1:]
		}
		switch {
		case gone, !ok, m.Devices&^s.slots[x].all != 0:
			t.slot = ^s.departed(m.Node)
		case !s.bears(&s.slots[x], &t, d):
			return fault(lockstep.ErrInvalid, "restore", at("members", i), quoteID(m.Node), "devices held twice")
		}
		j.seats[i] = t
		s.occupy(rec, int32(i))
	}
	if len(away) > 0 {
		return fault(lockstep.ErrInvalid, "restore", "away", fmt.Sprint(o.Away), "want ranks in increasing order")
	}
	return nil
}
