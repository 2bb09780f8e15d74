package moves

import (
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/resize"
)

// Block is a part of the model whose state is addressed as one row of parameters:
// layer n is Block n.
//
// In the row of a layer come first the parameters that every rank holds whole, then
// keys and values by head, then everything that tensor parallelism divides, in the
// order of the finest division, so that the i-th of k ranks has the i-th k-th of it;
// routed experts follow one after the other, each with its whole parameters first.
type Block int

// The blocks that are not layers.
const (
	Embedding Block = -1 // Embedding: learned positions, then the rows of the vocabulary; a tied last stage holds the rows too.
	Head      Block = -2 // Head: the final norm, then the rows of the head where it is not tied.
)

// String returns "embedding", "head" or "layer" with its number.
func (b Block) String() string {
	switch b {
	case Embedding:
		return "embedding"
	case Head:
		return "head"
	}
	return "layer " + text(int(b))
}

// Part is a kind of state.
type Part string

// The kinds of state.
const (
	Parameters Part = "parameters" // Parameters are the weights.
	Optimizer  Part = "optimizer"  // Optimizer is its moments and master weights.
)

// Shard is the state of some parameters that follow each other in a block.
type Shard struct {
	Part  Part  `json:"part"`  // Part is what of them: the weights or the optimizer's state.
	Block Block `json:"block"` // Block is where they are.
	First int64 `json:"first"` // First is the first parameter, from 0.
	Count int64 `json:"count"` // Count is how many there are, at least 1.
}

// End returns the parameter behind the last one of s.
func (s Shard) End() int64 { return s.First + s.Count }

// Holding is what one device holds.
type Holding struct {
	Device lockstep.DeviceID `json:"device"` // Device is the holder.
	Shards []Shard           `json:"shards"` // Shards are by part, block and parameter, and neither overlap nor touch.

	Host []Shard `json:"host,omitempty"` // Host is what it has in host memory besides, after moves that were cut short.
}

// Link is how far a transfer goes.
type Link string

// The links, from the fastest.
const (
	HostLink   Link = "host"   // HostLink: from the device's own host memory.
	NodeLink   Link = "node"   // NodeLink: inside a node.
	LeafLink   Link = "leaf"   // LeafLink: between nodes of a leaf.
	FabricLink Link = "fabric" // FabricLink: between leaves.
	StoreLink  Link = "store"  // StoreLink: from the checkpoint.
)

// links are all links by level. They are immutable.
var links = [...]Link{HostLink, NodeLink, LeafLink, FabricLink, StoreLink}

// Traffic is how many bytes go over the links.
type Traffic struct {
	Host   lockstep.Bytes `json:"host,omitempty"`   // Host is over HostLink.
	Node   lockstep.Bytes `json:"node,omitempty"`   // Node is over NodeLink.
	Leaf   lockstep.Bytes `json:"leaf,omitempty"`   // Leaf is over LeafLink.
	Fabric lockstep.Bytes `json:"fabric,omitempty"` // Fabric is over FabricLink.
	Store  lockstep.Bytes `json:"store,omitempty"`  // Store is over StoreLink.
}

// Total returns the sum of all links.
func (t Traffic) Total() lockstep.Bytes {
	return t.Host.Add(t.Node).Add(t.Leaf).Add(t.Fabric).Add(t.Store)
}

// level returns the field of a level.
func (t *Traffic) level(n int8) *lockstep.Bytes {
	return [...]*lockstep.Bytes{&t.Host, &t.Node, &t.Leaf, &t.Fabric, &t.Store}[n]
}

// Transfer is a shard that goes to a device.
type Transfer struct {
	Shard Shard             `json:"shard"`          // Shard is what goes.
	From  lockstep.DeviceID `json:"from,omitempty"` // From is who sends it; empty is the checkpoint.
	To    lockstep.DeviceID `json:"to"`             // To is who receives it.
	Link  Link              `json:"link"`           // Link is how far it goes.
	Host  bool              `json:"host,omitempty"` // Host says that From has it in host memory.
	Bytes lockstep.Bytes    `json:"bytes"`          // Bytes is its size.
}

// Release is a shard that a device gives up.
type Release struct {
	Device lockstep.DeviceID `json:"device"` // Device is the holder.
	Shard  Shard             `json:"shard"`  // Shard is what it gives up.
}

// Phase is a step of a Sequence. All devices have made room before one transfers, and have
// finished a phase before one begins the next.
type Phase struct {
	Free      []Release  `json:"free,omitempty"`      // Free is given up, to make room.
	Stage     []Release  `json:"stage,omitempty"`     // Stage is copied to host memory and given up on the device, to make room.
	Transfers []Transfer `json:"transfers,omitempty"` // Transfers happen then, in any order or all at once.
}

// Sequence is the moves from what devices hold to what a plan wants them to hold, in
// order.
type Sequence struct {
	Plan    reconfig.Digest     `json:"plan"`              // Plan is the digest of the plan that they lead to.
	Basis   reconfig.Digest     `json:"basis"`             // Basis is the digest of what devices held before.
	Phases  []Phase             `json:"phases,omitempty"`  // Phases are in order; the last one only gives up what is left over.
	Gone    []lockstep.DeviceID `json:"gone,omitempty"`    // Gone are the holders of which nothing can be read, sorted.
	Lost    []Shard             `json:"lost,omitempty"`    // Lost is what no live device holds.
	Restore bool                `json:"restore,omitempty"` // Restore says that all state is read from the checkpoint, since what is left of a later step does not go with it.
	Kept    lockstep.Bytes      `json:"kept"`              // Kept is what devices hold already.
	Traffic Traffic             `json:"traffic,omitzero"`  // Traffic is what the transfers move, by link.
	Staged  lockstep.Bytes      `json:"staged,omitempty"`  // Staged is what goes through host memory.
	Peak    lockstep.Bytes      `json:"peak"`              // Peak is the most state that one device holds at a time.
	Cursor  resize.Cursor       `json:"cursor,omitzero"`   // Cursor is Options.Cursor.
	Digest  reconfig.Digest     `json:"digest"`            // Digest is Sum of everything above.
}

// Options tune Between. The zero value is safe.
type Options struct {
	Keep              lockstep.Bytes `json:"keep,omitempty"`              // Keep is what of each device's memory no state may take, beside Job.Reserve: buffers that stay while state moves.
	CheckpointCurrent bool           `json:"checkpointCurrent,omitempty"` // CheckpointCurrent says that the checkpoint is of the very step whose state the devices hold, so that only what is lost is read from it.
	NoCheckpoint      bool           `json:"noCheckpoint,omitempty"`      // NoCheckpoint refuses moves that need a checkpoint.
	Cursor            resize.Cursor  `json:"cursor,omitzero"`             // Cursor is where in the data the job goes on; it is part of what members agree on.
}

// Held returns what each device holds of parameters and optimizer state when p has
// run, by device ID. Gradients are nobody's state between two steps. What ZeRO
// divides is divided by block: of each run of parameters that has the same ranks for
// holders, the i-th replica of n holds the i-th n-th. Of the routed experts the i-th
// replica has part i mod EP.
func Held(job reconfig.Job, p *reconfig.Plan) ([]Holding, error) {
	const op = "moves: held"
	a, err := newAccounts(op, job)
	if err != nil {
		return nil, err
	}
	rows, err := a.held(op, p)
	if err != nil {
		return nil, err
	}
	out := make([]Holding, 0, len(rows))
	for _, r := range rows {
		out = append(out, Holding{Device: r.id, Shards: a.shards(r.runs)})
	}
	return out, nil
}

// Between returns how the devices get from what they have to what the plan to wants.
// have is Held of the plan in force, or Sequence.After of moves that were cut short;
// holders that are not among devs, or are down, are lost. It is only read.
//
// Each byte goes to a device that lacks it exactly once. Of all ways to do that it
// takes one with the fewest bytes from the checkpoint, of these one with the fewest
// between leaves, and then between nodes: a byte enters a leaf that lacks it once, and
// so each node, and is handed on from there. Donors and receivers on equal terms share
// the load.
//
// It returns an *Infeasible if what a device is to hold does not fit, if the plan
// uses a device that is not live, or if a checkpoint would be needed and may not be.
func Between(job reconfig.Job, devs []reconfig.Device, have []Holding, to *reconfig.Plan, o Options) (*Sequence, error) {
	const op = "moves: between"
	f := faults{op: op}
	f.wrap(job.Validate())
	w := newFleet(&f, devs)
	if o.Keep < 0 {
		f.bad("o.Keep", o.Keep.String(), "want at least 0")
	}
	f.wrap(o.Cursor.Validate())
	if err := f.err(); err != nil {
		return nil, err
	}
	a, err := newAccounts(op, job)
	if err != nil {
		return nil, err
	}
	m := mover{w: w, a: a, o: o, out: &Sequence{Cursor: o.Cursor}}
	if err := m.admit(op, have, to); err != nil {
		return nil, err
	}
	if err := m.lose(); err != nil {
		return nil, err
	}
	m.route()
	if err := m.arrange(); err != nil {
		return nil, err
	}
	m.out.Digest = m.out.Sum()
	return m.out, nil
}

// mover is one call of Between.
type mover struct {
	w *fleet
	a *accounts
	o Options

	have, need [][]run     // by unit
	host       [][]run     // by unit: what it has in host memory besides
	missing    [][]run     // by unit: what it needs and does not have
	spent      [][]run     // by unit: what it holds but nobody may use
	leaves     []int32     // by leaf: its first unit; then how many there are
	load       [2][2]loads // by link and way
	hops       []hop
	out        *Sequence
}

// admit reads what is there and what is wanted.
func (m *mover) admit(op string, have []Holding, to *reconfig.Plan) error {
	n := len(m.w.units)
	m.have, m.need, m.host, m.spent = make([][]run, n), make([][]run, n), make([][]run, n), make([][]run, n)
	m.load = [2][2]loads{{make(loads, n), make(loads, n)}, {make(loads, n), make(loads, n)}}
	for i := range m.w.units {
		if int(m.w.units[i].leaf) == len(m.leaves) {
			m.leaves = append(m.leaves, int32(i))
		}
	}
	m.leaves = append(m.leaves, int32(n))
	rows, err := m.a.held(op, to)
	if err != nil {
		return err
	}
	for _, r := range rows {
		u, ok := m.w.index[r.id]
		if !ok || !m.w.units[u].live {
			return infeasible(reconfig.TensorLevel, reconfig.ReasonDead, reconfig.Witness{Devices: []lockstep.DeviceID{r.id}})
		}
		m.need[u] = r.runs
	}
	seen := make(map[lockstep.DeviceID]bool, len(have))
	for i, h := range have {
		field := "have[" + text(i) + "]"
		runs, err := m.a.runs(op, field+".Shards", h.Shards)
		if err != nil {
			return err
		}
		host, err := m.a.runs(op, field+".Host", h.Host)
		if err != nil {
			return err
		}
		if seen[h.Device] {
			return &lockstep.Error{Kind: lockstep.ErrDuplicate, Op: op, Field: field + ".Device", Value: errtext.Quote(h.Device), Reason: "is there before"}
		}
		seen[h.Device] = true
		if u, ok := m.w.index[h.Device]; ok && m.w.units[u].holds {
			m.have[u], m.host[u] = runs, subtract(nil, host, runs)
		} else {
			m.out.Gone = append(m.out.Gone, h.Device)
		}
	}
	slices.Sort(m.out.Gone)
	m.out.Plan, m.out.Basis = to.Digest, basisOf(have)
	return nil
}

// lose finds what no live device holds. If the checkpoint that then has to help is of
// an earlier step, what devices hold is of no use any more.
func (m *mover) lose() error {
	m.miss()
	wanted := union(nil, m.missing)
	slots := make([]bool, 2*(m.a.layers+2))
	for _, r := range wanted {
		slots[r.slot] = true
	}
	lost := subtract(nil, wanted, union(slots, m.have, m.host))
	m.out.Lost = m.a.shards(lost)
	if len(lost) == 0 {
		return nil
	}
	if m.o.NoCheckpoint {
		var witness reconfig.Witness
		if b := m.out.Lost[0].Block; b >= 0 {
			witness.Layers = reconfig.Span{First: int(b), Layers: 1}
		}
		return infeasible(reconfig.StateLevel, reconfig.ReasonCheckpoint, witness)
	}
	if !m.o.CheckpointCurrent {
		m.out.Restore = true
		m.spent, m.have = m.have, m.spent
		clear(m.host)
		m.miss()
	}
	return nil
}

// miss notes what each unit lacks.
func (m *mover) miss() {
	m.missing = make([][]run, len(m.need))
	for u, need := range m.need {
		m.missing[u] = subtract(nil, need, m.have[u])
	}
}
