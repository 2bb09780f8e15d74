package topology

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// textVersion is the version of the JSON form of a Tree.
const textVersion = 1

// treeText is the JSON form of a Tree.
type treeText struct {
	Version int        `json:"version"`
	Levels  []Level    `json:"levels"`
	Shapes  []*Shape   `json:"shapes"`
	Cluster domainText `json:"cluster"`
}

// domainText is a domain with what it holds: slots right above the nodes, else
// domains. A vacant slot is null.
type domainText struct {
	Name    string       `json:"name"`
	Domains []domainText `json:"domains"`
	Slots   []*slotText  `json:"slots"`
}

type slotText struct {
	ID      lockstep.NodeID     `json:"id"`
	Shape   *int                `json:"shape"` // index in Shapes
	Address string              `json:"address"`
	Devices []lockstep.DeviceID `json:"devices"`
}

// MarshalJSON writes t with its slots and vacancies, so that a tree read from it
// answers every question as t does. Equal trees give equal bytes:
//
//	{"version":1,
//	 "levels":[{"name":"cluster"},{"name":"rack","bandwidth":"50G/s"},{"name":"node"}],
//	 "shapes":[{"links":[["X","NV18"],["NV18","X"]]}],
//	 "cluster":{"domains":[{"name":"r0","slots":[{"id":"a","shape":0,"address":"10.0.0.1"},null]}]}}
//
// Latencies are in nanoseconds.
func (t *Tree) MarshalJSON() ([]byte, error) {
	w := treeWriter{tree: t, byShape: make(map[*Shape]int), byText: make(map[string]int)}
	w.buf = append(w.buf, `{"version":`+strconv.Itoa(textVersion)+`,"levels":`...)
	levels := t.levels
	if levels == nil {
		levels = completeLevels(&faults{}, "", nil) // the zero Tree reads back as an empty cluster
	}
	w.value(levels)
	cluster := treeWriter{tree: t, byShape: w.byShape, byText: w.byText}
	if t.levels == nil {
		cluster.buf = append(cluster.buf, "{}"...)
	} else {
		cluster.domain(0, 0)
	}
	w.buf = append(w.buf, `,"shapes":[`...)
	w.buf = append(w.buf, bytes.Join(cluster.shapes, []byte{','})...)
	w.buf = append(w.buf, `],"cluster":`...)
	w.buf = append(w.buf, cluster.buf...)
	w.buf = append(w.buf, '}')
	return w.buf, errors.Join(w.err, cluster.err)
}

// treeWriter appends JSON.
type treeWriter struct {
	tree    *Tree
	buf     []byte
	shapes  [][]byte       // in order of first use
	byShape map[*Shape]int // index in shapes
	byText  map[string]int // so that equal shapes are written once
	err     error
}

func (w *treeWriter) value(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		w.err = err
	}
	w.buf = append(w.buf, text...)
}

// text appends a string; plain ones, which all but a few are, without the detour
// over encoding/json.
func (w *treeWriter) text(s string) {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c >= 0x7f, c == '"', c == '\\', c == '<', c == '>', c == '&':
			w.value(s)
			return
		}
	}
	w.buf = append(w.buf, '"')
	w.buf = append(w.buf, s...)
	w.buf = append(w.buf, '"')
}

func (w *treeWriter) domain(level int, d int32) {
	t := w.tree
	w.buf = append(w.buf, '{')
	if level > 0 {
		w.buf = append(w.buf, `"name":`...)
		w.text(t.names[level][d])
	}
	first, end := t.Children(level, d)
	if first == end { // the cluster of an empty tree
		w.buf = append(w.buf, '}')
		return
	}
	if level > 0 {
		w.buf = append(w.buf, ',')
	}
	if level == t.width-2 {
		w.buf = append(w.buf, `"slots":[`...)
	} else {
		w.buf = append(w.buf, `"domains":[`...)
	}
	for c := first; c < end; c++ {
		if c > first {
			w.buf = append(w.buf, ',')
		}
		if level == t.width-2 {
			w.slot(t.records.at(c))
		} else {
			w.domain(level+1, c)
		}
	}
	w.buf = append(w.buf, "]}"...)
}

func (w *treeWriter) slot(r *record) {
	if r.id == "" {
		w.buf = append(w.buf, "null"...)
		return
	}
	w.buf = append(w.buf, `{"id":`...)
	w.text(string(r.id))
	if !r.shape.Equal(nil) {
		w.buf = append(w.buf, `,"shape":`...)
		w.buf = strconv.AppendInt(w.buf, int64(w.shape(r.shape)), 10)
	}
	if r.address != "" {
		w.buf = append(w.buf, `,"address":`...)
		w.text(r.address)
	}
	if r.devices != nil {
		w.buf = append(w.buf, `,"devices":[`...)
		for i, id := range r.devices {
			if i > 0 {
				w.buf = append(w.buf, ',')
			}
			w.text(string(id))
		}
		w.buf = append(w.buf, ']')
	}
	w.buf = append(w.buf, '}')
}

// shape returns the index under which s is written.
func (w *treeWriter) shape(s *Shape) int {
	i, ok := w.byShape[s]
	if !ok {
		text, err := json.Marshal(s)
		if err != nil {
			w.err = err
		}
		if i, ok = w.byText[string(text)]; !ok {
			i = len(w.shapes)
			w.byText[string(text)] = i
			w.shapes = append(w.shapes, text)
		}
		w.byShape[s] = i
	}
	return i
}

// UnmarshalJSON reads what MarshalJSON writes into a zero Tree. It refuses what
// could not have been written: unknown fields and versions, levels too many or
// too few, an empty domain, a name that two siblings have, an unnamed domain with
// more than one thing in it, a node or device named twice, all that New refuses.
// It returns ErrConflict where t is not zero, since a Tree never changes.
func (t *Tree) UnmarshalJSON(data []byte) error {
	const op = "topology: read"
	if t.stamp != nil {
		return &lockstep.Error{Kind: lockstep.ErrConflict, Op: op, Field: "Tree", Reason: "want a zero Tree to read into"}
	}
	if string(data) == "null" { // as encoding/json does for plain values
		return nil
	}
	var text treeText
	if err := decode(op, data, &text); err != nil {
		return err
	}
	f := faults{op: op}
	if text.Version != textVersion {
		f.invalid("version", strconv.Itoa(text.Version), "want "+strconv.Itoa(textVersion))
		return f.err()
	}
	levels := completeLevels(&f, "levels", text.Levels)
	if text.Cluster.Name != "" {
		f.invalid("cluster.name", quote(text.Cluster.Name), "the cluster has the name of its level")
	}
	if err := f.err(); err != nil {
		return err
	}
	r := treeReader{faults: &f, builder: newBuilder(levels, 0), shapes: text.Shapes, path: make([]string, 0, len(levels))}
	if len(text.Cluster.Domains)+len(text.Cluster.Slots) > 0 {
		r.domain(&text.Cluster, 0, "cluster")
	}
	if err := f.err(); err != nil {
		return err
	}
	l, _ := r.builder.finish() // siblings differ, so that seats are in the order of slots
	read, ok := fill(l, func(slot int32) record { return r.records[slot] })
	if !ok {
		r.duplicates()
		return f.err()
	}
	*t = *read
	return nil
}

// treeReader checks a tree's text and seats its nodes.
type treeReader struct {
	*faults
	builder *builder
	shapes  []*Shape
	path    []string // down to the domain being read
	records []record // by slot
}

// siblingKey tells siblings apart, as domainKey does.
type siblingKey struct {
	at   int
	name string
}

func (r *treeReader) domain(d *domainText, level int, at string) {
	lowest := len(r.builder.levels) - 2
	switch {
	case level < lowest && len(d.Slots) > 0:
		r.invalid(at+".slots", strconv.Itoa(len(d.Slots)), "want domains here, slots are in those of level "+string(r.builder.levels[lowest].Name))
		return
	case level == lowest && len(d.Domains) > 0:
		r.invalid(at+".domains", strconv.Itoa(len(d.Domains)), "want slots here, which are below this level")
		return
	case len(d.Domains)+len(d.Slots) == 0:
		r.invalid(at, "{}", "a domain must not be empty")
		return
	case level > 0 && d.Name == "" && len(d.Domains)+len(d.Slots) > 1:
		r.invalid(at+".name", `""`, "only a domain with one thing in it may be unnamed")
		return
	case len(r.records)+len(d.Slots) > maxSlots:
		r.invalid(at+".slots", strconv.Itoa(len(d.Slots)), "at most "+strconv.Itoa(maxSlots)+" in all")
		return
	}
	if level == lowest {
		r.slots(d.Slots, at)
		return
	}
	seen := make(map[siblingKey]bool, len(d.Domains))
	for i := range d.Domains {
		child := &d.Domains[i]
		at := at + ".domains[" + strconv.Itoa(i) + "]"
		if child.Name != "" {
			r.name(at+".name", child.Name)
		}
		if key := child.key(level + 1); key.name != "" {
			if seen[key] {
				r.add(lockstep.ErrDuplicate, at+".name", quote(child.Name), "names two domains below one parent")
			}
			seen[key] = true
		}
		r.path = append(r.path, child.Name)
		r.domain(child, level+1, at)
		r.path = r.path[:level]
	}
}

// key returns what tells d from its siblings; its name is empty for an unnamed
// domain that holds one slot.
func (d *domainText) key(level int) siblingKey {
	for d.Name == "" && len(d.Domains) > 0 {
		d, level = &d.Domains[0], level+1
	}
	return siblingKey{level, d.Name}
}

func (r *treeReader) slots(slots []*slotText, at string) {
	path := append([]string(nil), r.path...) // the builder compares with the last
	for i, s := range slots {
		// No ID begins with a blank, so this is none and its own.
		key, rec := " "+strconv.Itoa(len(r.records)), record{}
		if s != nil {
			key, rec = string(s.ID), r.slot(s, at, i)
		}
		r.records = append(r.records, rec)
		r.builder.seat(path, key)
	}
}

// slot checks one node's text.
func (r *treeReader) slot(s *slotText, at string, i int) record {
	n := Node{ID: s.ID, Address: s.Address, Devices: s.Devices}
	if s.Shape != nil {
		if *s.Shape < 0 || *s.Shape >= len(r.shapes) || r.shapes[*s.Shape] == nil {
			r.invalid(at+".slots["+strconv.Itoa(i)+"].shape", strconv.Itoa(*s.Shape), "want an index in shapes, which has "+strconv.Itoa(len(r.shapes)))
			return record{}
		}
		n.Shape = r.shapes[*s.Shape]
	}
	if !n.plain(0) {
		n.validate(r.faults, at+".slots["+strconv.Itoa(i)+"]", 0)
	}
	return n.record()
}

// duplicates reports the IDs that several slots hold.
func (r *treeReader) duplicates() {
	seen := make(map[lockstep.NodeID]int, len(r.records))
	for slot := range r.records {
		id := r.records[slot].id
		if id == "" {
			continue
		}
		if other, ok := seen[id]; ok {
			r.add(lockstep.ErrDuplicate, "slot "+strconv.Itoa(slot)+".id", quote(string(id)), "already in slot "+strconv.Itoa(other))
			continue
		}
		seen[id] = slot
	}
}

// decode reads one JSON value and nothing else.
func decode(op string, data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var typed *lockstep.Error
	switch {
	case errors.As(err, &typed):
		return fmt.Errorf("%s: %w", op, err)
	case err != nil:
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: "JSON", Value: quote(string(data)), Reason: err.Error()}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: "JSON", Value: quote(string(data)), Reason: "more than one value"}
	}
	return nil
}

// MarshalJSON writes the ShapeConfig of s.
func (s *Shape) MarshalJSON() ([]byte, error) {
	cfg := s.Config()
	if cfg.Links == nil {
		cfg.Links = [][]Link{}
	}
	return json.Marshal(cfg)
}

// UnmarshalJSON reads what MarshalJSON writes into a zero Shape. It refuses what
// NewShape refuses, unknown fields, and with ErrConflict a Shape that is not zero,
// since a Shape never changes.
func (s *Shape) UnmarshalJSON(data []byte) error {
	const op = "topology: read shape"
	if s.links != nil {
		return &lockstep.Error{Kind: lockstep.ErrConflict, Op: op, Field: "Shape", Reason: "want a zero Shape to read into"}
	}
	if string(data) == "null" {
		return nil
	}
	var cfg ShapeConfig
	if err := decode(op, data, &cfg); err != nil {
		return err
	}
	read, err := NewShape(cfg)
	if err != nil {
		return err
	}
	*s = *read
	return nil
}
