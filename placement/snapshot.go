package placement

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
	"github.com/lockstep-gpu/lockstep/topology"
)

// What saved bytes begin with.
const (
	snapshotFormat  = "lockstep/placement"
	snapshotVersion = 1
)

// image is what a snapshot holds.
type image struct {
	Version lockstep.Version `json:"version"`
	Nodes   []nodeImage      `json:"nodes"` // in slot order
	Jobs    []jobImage       `json:"jobs"`  // by ID
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
	img := image{Version: s.version, Nodes: []nodeImage{}, Jobs: []jobImage{}}
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
		o := jobImage{Gang: j.gang, Port: j.port, Members: make([]lockstep.Member, len(j.seats))}
		for i := range j.seats {
			o.Members[i] = s.memberOf(&j.seats[i])
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
// same. The bounds of cfg apply; its Nodes must be empty. Versions go on from
// one that the saved state never gave out.
//
// It returns lockstep.ErrInvalid for bytes that Snapshot did not write,
// ErrConflict for a tree with other nodes, and the reader's errors, wrapped.
func Restore(tree *topology.Tree, cfg Config, r io.Reader) (*State, error) {
	if err := checkTree("restore", tree); err != nil {
		return nil, err
	}
	if len(cfg.Nodes) != 0 {
		return nil, fault(lockstep.ErrInvalid, "restore", "Config.Nodes", strconv.Itoa(len(cfg.Nodes)), "must be empty")
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

// loadJob seats a job; members whose node or devices the tree lacks are away.
func (s *State) loadJob(o *jobImage) error {
	if o.Gang == nil {
		return fault(lockstep.ErrInvalid, "restore", "jobs", "", "want a gang")
	}
	p := &lockstep.Plan{Job: o.Gang.ID, Gang: o.Gang, Members: o.Members, Port: o.Port}
	if err := s.checkPlan("restore", p); err != nil {
		return err
	}
	rec := s.newJob(len(o.Members))
	j := &s.jobs[rec]
	j.id, j.gang, j.port = p.Job, p.Gang, p.Port
	s.byID[j.id] = rec
	for i := range o.Members {
		m := &o.Members[i]
		x, ok := s.tree.Slot(m.Node)
		switch {
		case m.Node == "":
			return fault(lockstep.ErrInvalid, "restore", at("members", i)+".node", "", "must not be empty")
		case !ok || m.Devices&^s.slots[x].all != 0:
			x = ^s.departed(m.Node)
		case m.Devices&^s.slots[x].free != 0:
			return fault(lockstep.ErrInvalid, "restore", at("members", i), quoteID(m.Node), "devices held twice")
		}
		j.seats[i] = seat{slot: x, role: m.Role, devices: m.Devices}
		s.occupy(rec, int32(i))
	}
	return nil
}
