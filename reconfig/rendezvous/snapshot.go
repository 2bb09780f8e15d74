package rendezvous

import (
	"io"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/rendezvous"
	version = 1
)

// image is the saved form of a Machine.
type image struct {
	Config  Config   `json:"config"`
	Now     int64    `json:"now"`
	State   State    `json:"state"`
	Nodes   []record `json:"nodes"` // by ID
	Number  uint64   `json:"number"`
	Since   int64    `json:"since"`
	Call    int64    `json:"call"`
	Started bool     `json:"started"`
}

// record is the saved form of an entry.
type record struct {
	ID     lockstep.NodeID `json:"id"`
	Slots  int             `json:"slots"`
	Joined int64           `json:"joined"`
	Heard  int64           `json:"heard"`
	Rank   int             `json:"rank"`
	Member bool            `json:"member,omitempty"`
}

// Snapshot writes the whole machine: one line with format, version and SHA-256, then JSON. Equal machines give equal
// bytes.
func (m *Machine) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "rendezvous: snapshot", format, version, m.image())
}

// Restore reads what Snapshot wrote, configuration included. Bytes that are cut short, changed, of another version or
// of no possible machine are ErrInvalid.
func Restore(r io.Reader) (*Machine, error) {
	const op = "rendezvous: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	m, err := New(img.Config)
	if err != nil {
		return nil, err
	}
	m.now, m.state, m.number, m.since, m.call, m.started = img.Now, img.State, img.Number, img.Since, img.Call, img.Started
	for _, rec := range img.Nodes {
		m.nodes = append(m.nodes, entry{id: rec.ID, slots: rec.Slots, joined: rec.Joined, heard: rec.Heard, rank: rec.Rank, member: rec.Member})
	}
	if err := m.sound(); err != nil {
		return nil, err
	}
	return m, snapshot.CheckJSON(op, body, m.image())
}

// image returns the saved form of m.
func (m *Machine) image() image {
	img := image{
		Config: m.cfg, Now: m.now, State: m.state, Number: m.number, Since: m.since, Call: m.call, Started: m.started,
		Nodes: make([]record, len(m.nodes)),
	}
	for i := range m.nodes {
		e := &m.nodes[i]
		img.Nodes[i] = record{ID: e.id, Slots: e.slots, Joined: e.joined, Heard: e.heard, Rank: e.rank, Member: e.member}
	}
	return img
}

// sound says whether Step could have made m.
func (m *Machine) sound() error {
	bad := func(field, value, reason string) error {
		return fault(lockstep.ErrInvalid, "restore", field, value, reason)
	}
	switch m.state {
	case Gathering, Running, Stopped, Closed:
	default:
		return bad("state", errtext.Quote(string(m.state)), "is no state")
	}
	if m.now < 0 || m.since < 0 || m.since > m.now || (!m.started && (m.now != 0 || len(m.nodes) != 0)) {
		return bad("now", strconv.FormatInt(m.now, 10), "is not after what happened")
	}
	if m.number == 0 && (m.state == Running || m.state == Stopped) {
		return bad("number", "0", "no round has formed in this state")
	}
	if (m.state == Closed && len(m.nodes) != 0) || len(m.nodes) > 2*maxNodes {
		return bad("nodes", strconv.Itoa(len(m.nodes)), "are too many in this state")
	}
	if m.due() <= m.now && m.state != Closed && m.started {
		return bad("now", strconv.FormatInt(m.now, 10), "something was due before")
	}
	if (m.call != instant.Never) != (m.state == Gathering && m.cfg.LastCall != Never && m.cfg.size(len(m.nodes)) > 0) {
		return bad("call", strconv.FormatInt(m.call, 10), "does not fit the state")
	}
	return m.soundNodes(bad)
}

// soundNodes says whether the nodes of m could be.
func (m *Machine) soundNodes(bad func(field, value, reason string) error) error {
	ranks := map[int]bool{}
	members := 0
	for i := range m.nodes {
		e := &m.nodes[i]
		field := "nodes[" + strconv.Itoa(i) + "]"
		switch {
		case e.id == "" || (i > 0 && m.nodes[i-1].id >= e.id):
			return bad(field+".id", errtext.Quote(string(e.id)), "is not after the one before")
		case e.slots < 1 || e.slots > maxSlots:
			return bad(field+".slots", strconv.Itoa(e.slots), "is out of range")
		case e.joined < 0 || e.joined > e.heard || e.heard > m.now:
			return bad(field+".heard", strconv.FormatInt(e.heard, 10), "is not between joined and now")
		case e.rank < none || e.rank >= m.cfg.Max || (e.rank == none && e.member) || (e.rank != none && ranks[e.rank]):
			return bad(field+".rank", strconv.Itoa(e.rank), "cannot be")
		case e.rank != none && m.number == 0:
			return bad(field+".rank", strconv.Itoa(e.rank), "no round has formed")
		}
		if e.rank != none {
			ranks[e.rank] = true
		}
		if e.member {
			members++
		}
	}
	want := 0
	if m.state == Running {
		want = m.cfg.size(members)
		if want == 0 {
			return bad("nodes", strconv.Itoa(members), "are too few members for a round")
		}
	}
	if members != want {
		return bad("nodes", strconv.Itoa(members), "are not as many members as the state has")
	}
	for i := range m.nodes {
		if e := &m.nodes[i]; e.member && e.rank >= members {
			return bad("nodes["+strconv.Itoa(i)+"].rank", strconv.Itoa(e.rank), "is not below the size of the round")
		}
	}
	return nil
}
