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

// maxNumber bounds the number of rounds of a saved form, so that it can go on to rise.
const maxNumber = 1 << 62

// image is the saved form of a Machine.
type image struct {
	Config  Config   `json:"config"`
	Now     int64    `json:"now"`
	State   State    `json:"state"`
	Nodes   []record `json:"nodes"`          // by ID
	Gone    []ghost  `json:"gone,omitempty"` // by ID
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

// ghost is the saved form of a former.
type ghost struct {
	ID   lockstep.NodeID `json:"id"`
	Rank int             `json:"rank"`
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
	for _, g := range img.Gone {
		m.gone = append(m.gone, former{id: g.ID, rank: g.Rank})
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
	for _, f := range m.gone {
		img.Gone = append(img.Gone, ghost{ID: f.id, Rank: f.rank})
	}
	return img
}

// bad returns the error of a saved form that cannot be.
func bad(field, value, reason string) error {
	return fault(lockstep.ErrInvalid, "restore", field, value, reason)
}

// sound says whether Step could have made m.
func (m *Machine) sound() error {
	for _, check := range [...]func() error{m.soundState, m.soundTime, m.soundNodes, m.soundRanks} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// soundState says whether the state of m could be, with as many rounds and nodes.
func (m *Machine) soundState() error {
	switch m.state {
	case Gathering, Running, Stopped, Closed:
	default:
		return bad("state", errtext.Quote(string(m.state)), "is no state")
	}
	if m.number == 0 && (m.state == Running || m.state == Stopped) {
		return bad("number", "0", "no round has formed in this state")
	}
	if m.number > maxNumber {
		return bad("number", strconv.FormatUint(m.number, 10), "are more rounds than can have been")
	}
	if (m.state == Closed && len(m.nodes) != 0) || len(m.nodes) > 2*maxNodes {
		return bad("nodes", strconv.Itoa(len(m.nodes)), "are too many in this state")
	}
	return nil
}

// soundTime says whether the times of m could be.
func (m *Machine) soundTime() error {
	if m.now < 0 || m.since < 0 || m.since > m.now || (!m.started && (m.now != 0 || len(m.nodes) != 0)) {
		return bad("now", strconv.FormatInt(m.now, 10), "is not after what happened")
	}
	if due := m.due(); due <= m.now && due != instant.Never {
		return bad("now", strconv.FormatInt(m.now, 10), "something was due before")
	}
	if !m.soundCall() {
		return bad("call", strconv.FormatInt(m.call, 10), "does not fit the state")
	}
	return nil
}

// soundCall says whether the end of the last call could be: it was set between the begin of the state and now, and
// is the last instant if it would lie beyond.
func (m *Machine) soundCall() bool {
	if m.state != Gathering || m.cfg.size(len(m.nodes)) == 0 {
		return m.call == instant.Never
	}
	return m.call >= instant.Add(m.since, m.cfg.LastCall) && m.call <= instant.Add(m.now, m.cfg.LastCall)
}

// soundNodes says whether the nodes of m could be, but for their ranks.
func (m *Machine) soundNodes() error {
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
		case e.member && e.joined > m.since:
			return bad(field+".joined", strconv.FormatInt(e.joined, 10), "is after its round formed")
		}
	}
	members := m.members()
	if (members > 0) != (m.state == Running) || members > 0 && m.cfg.size(members) != members {
		return bad("nodes", strconv.Itoa(members), "are not as many members as the state has")
	}
	return nil
}

// soundRanks says whether the ranks of the nodes of m, and of those that are gone, could be: those of members are
// below their number, and no two are the same.
func (m *Machine) soundRanks() error {
	below := m.cfg.Max
	switch {
	case m.state == Running:
		below = m.members()
	case m.number == 0 || m.state == Closed:
		below = 0
	}
	ranks := map[int]bool{}
	fits := func(rank int) bool {
		ok := rank >= 0 && rank < below && !ranks[rank]
		ranks[rank] = true
		return ok
	}
	for i := range m.nodes {
		e := &m.nodes[i]
		if e.rank == none && !e.member {
			continue
		}
		if !fits(e.rank) || (m.state == Running && !e.member) {
			return bad("nodes["+strconv.Itoa(i)+"].rank", strconv.Itoa(e.rank), "cannot be")
		}
	}
	return m.soundGone(fits)
}

// soundGone says whether those that are gone could be.
func (m *Machine) soundGone(fits func(rank int) bool) error {
	for i, f := range m.gone {
		field := "gone[" + strconv.Itoa(i) + "]"
		if _, back := m.find(f.id); back || f.id == "" || (i > 0 && m.gone[i-1].id >= f.id) {
			return bad(field+".id", errtext.Quote(string(f.id)), "is not after the one before, or has joined")
		}
		if !fits(f.rank) {
			return bad(field+".rank", strconv.Itoa(f.rank), "cannot be")
		}
	}
	return nil
}
