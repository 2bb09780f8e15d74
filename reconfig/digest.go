package reconfig

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"

	"github.com/lockstep-gpu/lockstep"
)

// String returns d in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes the form of String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the form of String.
func (d *Digest) UnmarshalText(text []byte) error {
	var v Digest
	if n, err := hex.Decode(v[:], text); len(text) != 2*len(v) || err != nil || n != len(v) {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "reconfig: digest", Field: "Digest", Reason: "want 64 hexadecimal digits"}
	}
	*d = v
	return nil
}

// encoder writes a canonical form: each number as a varint, each text and each list
// with its length in front of it.
type encoder struct{ buf []byte }

func (e *encoder) num(v ...int64) {
	for _, n := range v {
		e.buf = binary.AppendVarint(e.buf, n)
	}
}

func (e *encoder) str(s string) {
	e.num(int64(len(s)))
	e.buf = append(e.buf, s...)
}

func (e *encoder) ids(ids []lockstep.DeviceID) {
	e.num(int64(len(ids)))
	for _, id := range ids {
		e.str(string(id))
	}
}

func (e *encoder) span(s Span) { e.num(int64(s.First), int64(s.Layers)) }

// Sum returns the digest of all of p but Estimate and Digest. It is the same for
// equal plans on every platform, so the members of a job can agree on it before
// they act.
func (p *Plan) Sum() Digest {
	var e encoder
	e.str("lockstep reconfig plan 1")
	e.num(int64(p.Version))
	e.buf = append(e.buf, p.Basis[:]...)
	e.num(int64(len(p.Replicas)))
	for _, r := range p.Replicas {
		e.num(int64(r.Number), int64(len(r.Stages)))
		for _, s := range r.Stages {
			e.ids(s.Devices)
			e.num(int64(len(s.Spans)))
			for _, span := range s.Spans {
				e.span(span)
			}
		}
	}
	e.num(int64(len(p.Split)))
	for _, n := range p.Split {
		e.num(int64(n))
	}
	e.num(int64(len(p.Migrations)))
	for _, m := range p.Migrations {
		e.num(int64(m.Stage), int64(m.Owner), int64(m.Host), int64(m.Micro))
	}
	e.ids(p.Standby)
	e.num(int64(len(p.Restore)))
	for _, span := range p.Restore {
		e.span(span)
	}
	e.num(int64(len(p.Groups)))
	for _, g := range p.Groups {
		e.str(string(g.Kind))
		e.span(g.Span)
		e.num(int64(g.Slice), int64(g.Slices))
		e.ids(g.Devices)
	}
	return sha256.Sum256(e.buf)
}

// basis returns the digest of a job and its devices: what a plan is a function of,
// besides the plan before it.
func basis(w *world, devs []Device) Digest {
	var e encoder
	e.str("lockstep reconfig basis 1")
	job := w.job
	job.Costs = Costs{} // those in force, derived or not, follow
	job.Rate.Linear, job.Rate.Quadratic = 0, 0
	pairs := job.Batch.Pairs
	job.Batch.Pairs = 0
	text, err := json.Marshal(job)
	if err != nil { // plain fields cannot fail
		return Digest{}
	}
	e.str(string(text))
	e.num(int64(math.Float64bits(pairs)))
	c := w.job.Costs
	for _, k := range append([]Cost{c.Layer, c.Embed, c.Head}, c.Layers...) {
		e.num(int64(k.Forward), int64(k.Backward), int64(k.Weight))
	}
	e.num(int64(len(c.Layers)), int64(c.Hop.Node), int64(c.Hop.Leaf), int64(c.Hop.Fabric), int64(c.Exchange))
	e.num(w.coll...)
	e.num(w.across...)
	e.num(int64(len(devs)))
	for i := range w.units {
		u, d := &w.units[i], &devs[i]
		e.str(string(d.ID))
		e.str(string(d.Node))
		e.str(d.Leaf)
		e.num(u.speed, int64(d.Memory), int64(d.State))
	}
	return sha256.Sum256(e.buf)
}
