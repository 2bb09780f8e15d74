package movestest

import (
	"fmt"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
)

// Bench is what an executor is made for.
type Bench struct {
	Job     reconfig.Job      // Job says how large state is.
	Devices []reconfig.Device // Devices are there; Memory less Job.Reserve is what state may take, 0 for no limit.

	// Stored returns what the checkpoint has for a parameter; Tag with the step of
	// the checkpoint, which is never 0.
	Stored func(part moves.Part, block moves.Block, parameter int64) uint64
}

// Tag returns the content of the state of one parameter after a step: every part,
// block, parameter and step has its own, and none is 0. Steps are 0 to 255.
func Tag(step uint8, part moves.Part, block moves.Block, parameter int64) uint64 {
	tag := uint64(step)<<56 | uint64(block+3)<<40 | uint64(parameter)<<1
	if part == moves.Optimizer {
		tag |= 1
	}
	return tag + 1<<55
}

// row is where state is.
type row struct {
	part  moves.Part
	block moves.Block
}

// store is state by place; 0 is none.
type store map[row][]uint64

func (s store) get(k row, i int64) uint64 {
	if list := s[k]; i < int64(len(list)) {
		return list[i]
	}
	return 0
}

func (s store) put(k row, i int64, tag uint64) {
	list := s[k]
	for int64(len(list)) <= i {
		list = append(list, 0)
	}
	list[i] = tag
	s[k] = list
}

// has says whether all of a shard is there.
func (s store) has(shard moves.Shard) bool {
	for i := shard.First; i < shard.End(); i++ {
		if s.get(place(shard), i) == 0 {
			return false
		}
	}
	return true
}

func place(s moves.Shard) row { return row{s.Part, s.Block} }

// Fake is an executor in memory: it keeps one number for each parameter of each
// device, moves the numbers as actions say, and refuses an action that reads what is
// not there or needs more memory than a device has. Its zero value is not usable.
type Fake struct {
	bench   Bench
	size    map[moves.Part]int64
	devices map[lockstep.DeviceID]*device
	moved   lockstep.Bytes
}

// device is one device of a Fake.
type device struct {
	room, used, peak int64
	state, host      store
	lost             bool

	derived                               *moves.Sequence
	prepared, committed, finished, halted reconfig.Digest
	roomy, through                        int // phases for which room is made, and that are over
}

// NewFake returns a Fake whose devices hold nothing.
func NewFake(b Bench) *Fake {
	one, err := b.Job.Layout.Precision.States(1, 0, 1)
	if err != nil {
		panic(err) // a bench is part of a test
	}
	f := &Fake{bench: b, devices: map[lockstep.DeviceID]*device{}}
	f.size = map[moves.Part]int64{moves.Parameters: int64(one.Weights), moves.Optimizer: int64(one.Optimizer + one.Master)}
	for _, d := range b.Devices {
		room := int64(1) << 62
		if d.Memory > 0 {
			room = int64(d.Memory - b.Job.Reserve)
		}
		f.devices[d.ID] = &device{room: room, state: store{}, host: store{}}
	}
	return f
}

// Load puts state onto devices, as Tag has it for a step.
func (f *Fake) Load(have []moves.Holding, step uint8) {
	for _, h := range have {
		d, ok := f.devices[h.Device]
		if !ok {
			continue
		}
		for _, s := range h.Shards {
			for i := s.First; i < s.End(); i++ {
				d.state.put(place(s), i, Tag(step, s.Part, s.Block, i))
			}
			d.used += s.Count * f.size[s.Part]
		}
		d.peak = max(d.peak, d.used)
	}
}

// Derive gives a device the moves that it has derived by itself.
func (f *Fake) Derive(id lockstep.DeviceID, m *moves.Sequence) { f.devices[id].derived = m }

// Lose takes a device away.
func (f *Fake) Lose(id lockstep.DeviceID) { f.devices[id].lost = true }

// Read returns what a device holds for the parameters of a shard, 0 where it holds
// nothing.
func (f *Fake) Read(id lockstep.DeviceID, s moves.Shard) []uint64 {
	out := make([]uint64, s.Count)
	for i := range out {
		out[i] = f.devices[id].state.get(place(s), s.First+int64(i))
	}
	return out
}

// Used returns how many bytes of state a device holds.
func (f *Fake) Used(id lockstep.DeviceID) lockstep.Bytes { return lockstep.Bytes(f.devices[id].used) }

// Peak returns the most that a device has held.
func (f *Fake) Peak(id lockstep.DeviceID) lockstep.Bytes { return lockstep.Bytes(f.devices[id].peak) }

// Moved returns how many bytes all transfers have moved.
func (f *Fake) Moved() lockstep.Bytes { return f.moved }

func refuse(kind error, a moves.Action, why string) error {
	return &lockstep.Error{Kind: kind, Op: "movestest: " + string(a.Kind), Field: "Device", Value: string(a.Device), Reason: why}
}

// Do carries out an action, or refuses it and changes nothing.
func (f *Fake) Do(a moves.Action) error {
	d, ok := f.devices[a.Device]
	if !ok || d.lost {
		return fmt.Errorf("%w: %s", moves.ErrGone, a.Device)
	}
	if a.Digest == (reconfig.Digest{}) {
		return refuse(lockstep.ErrInvalid, a, "names no moves")
	}
	switch a.Kind {
	case moves.DoPrepare:
		return f.prepare(d, a)
	case moves.DoCommit:
		return f.commit(d, a)
	case moves.DoAbort:
		if d.committed == a.Digest || d.finished == a.Digest {
			return refuse(lockstep.ErrConflict, a, "is committed")
		}
		if d.prepared == a.Digest {
			d.prepared = reconfig.Digest{}
		}
		return nil
	case moves.DoHalt:
		return f.halt(d, a)
	case moves.DoFinish:
		if d.finished == a.Digest && d.committed != a.Digest {
			return nil
		}
		if d.committed != a.Digest {
			return refuse(lockstep.ErrConflict, a, "is not committed")
		}
		d.committed, d.finished, d.host = reconfig.Digest{}, a.Digest, store{}
		return nil
	}
	return f.phase(d, a)
}

func (f *Fake) prepare(d *device, a moves.Action) error {
	switch {
	case d.committed == a.Digest:
		return nil
	case d.committed != (reconfig.Digest{}):
		return refuse(lockstep.ErrConflict, a, "is committed to other moves")
	case d.derived == nil || d.derived.Digest != a.Digest:
		return refuse(lockstep.ErrStale, a, "has derived other moves")
	}
	d.prepared, d.finished, d.halted = a.Digest, reconfig.Digest{}, reconfig.Digest{} // moves may come again
	return nil
}

func (f *Fake) commit(d *device, a moves.Action) error {
	if d.committed == a.Digest {
		return nil
	}
	if d.prepared != a.Digest {
		return refuse(lockstep.ErrConflict, a, "has not prepared")
	}
	d.prepared, d.committed, d.roomy, d.through = reconfig.Digest{}, a.Digest, 0, 0
	return nil
}

// phase makes room or receives.
func (f *Fake) phase(d *device, a moves.Action) error {
	if d.committed != a.Digest || a.Phase < 0 || a.Phase >= len(d.derived.Phases) {
		return refuse(lockstep.ErrConflict, a, "is not committed")
	}
	p := &d.derived.Phases[a.Phase]
	switch a.Kind {
	case moves.DoMakeRoom:
		if a.Phase < d.roomy {
			return nil
		}
		if err := f.makeRoom(d, a, p); err != nil {
			return err
		}
		d.roomy = a.Phase + 1
		return nil
	case moves.DoTransfer:
		if a.Phase < d.through {
			return nil
		}
		if err := f.receive(d, a, p); err != nil {
			return err
		}
		d.through = a.Phase + 1
		return nil
	}
	return refuse(lockstep.ErrInvalid, a, "is no action")
}

func (f *Fake) makeRoom(d *device, a moves.Action, p *moves.Phase) error {
	for _, list := range [][]moves.Release{p.Free, p.Stage} {
		for _, r := range list {
			if r.Device == a.Device && !d.state.has(r.Shard) {
				return refuse(lockstep.ErrConflict, a, fmt.Sprintf("does not hold %v", r.Shard))
			}
		}
	}
	for _, r := range p.Stage {
		if r.Device == a.Device {
			for i := r.Shard.First; i < r.Shard.End(); i++ {
				d.host.put(place(r.Shard), i, d.state.get(place(r.Shard), i))
			}
		}
	}
	f.giveUp(d, a.Device, p)
	return nil
}

// giveUp drops what a phase frees and stages.
func (f *Fake) giveUp(d *device, id lockstep.DeviceID, p *moves.Phase) {
	for _, list := range [][]moves.Release{p.Free, p.Stage} {
		for _, r := range list {
			if r.Device == id {
				f.drop(d, r.Shard)
			}
		}
	}
}

func (f *Fake) drop(d *device, s moves.Shard) {
	for i := s.First; i < s.End(); i++ {
		if d.state.get(place(s), i) != 0 {
			d.state.put(place(s), i, 0)
			d.used -= f.size[s.Part]
		}
	}
}

// receive takes in what the phase brings to a device.
func (f *Fake) receive(d *device, a moves.Action, p *moves.Phase) error {
	size := int64(0)
	for _, t := range p.Transfers {
		if t.To != a.Device {
			continue
		}
		size += t.Shard.Count * f.size[t.Shard.Part]
		if int64(t.Bytes) != t.Shard.Count*f.size[t.Shard.Part] {
			return refuse(lockstep.ErrInvalid, a, "counts other bytes")
		}
		if t.From == "" {
			continue
		}
		from, ok := f.devices[t.From]
		if !ok || from.lost || !from.source(t).has(t.Shard) {
			return refuse(lockstep.ErrConflict, a, fmt.Sprintf("%s does not have %v", t.From, t.Shard))
		}
	}
	if d.used+size > d.room {
		return refuse(lockstep.ErrConflict, a, fmt.Sprintf("has %d bytes, and no room for %d more", d.used, size))
	}
	for _, t := range p.Transfers {
		if t.To != a.Device {
			continue
		}
		for i := t.Shard.First; i < t.Shard.End(); i++ {
			tag := uint64(0)
			if t.From == "" {
				tag = f.bench.Stored(t.Shard.Part, t.Shard.Block, i)
			} else {
				tag = f.devices[t.From].source(t).get(place(t.Shard), i)
			}
			d.state.put(place(t.Shard), i, tag)
		}
	}
	d.used += size
	d.peak = max(d.peak, d.used)
	f.moved += lockstep.Bytes(size)
	return nil
}

// source returns where a device has what it sends.
func (d *device) source(t moves.Transfer) store {
	if t.Host {
		return d.host
	}
	return d.state
}

func (f *Fake) halt(d *device, a moves.Action) error {
	if d.halted == a.Digest {
		return nil
	}
	if d.derived == nil || d.derived.Digest != a.Digest || d.prepared != a.Digest && d.committed != a.Digest && d.finished != a.Digest {
		return refuse(lockstep.ErrConflict, a, "has not prepared")
	}
	if a.Begun {
		p := &d.derived.Phases[a.Phase]
		if a.Phase >= d.roomy {
			if err := f.makeRoom(d, a, p); err != nil {
				return err
			}
		}
		for _, t := range p.Transfers {
			if t.To == a.Device {
				f.drop(d, t.Shard)
			}
		}
	}
	d.prepared, d.committed, d.halted = reconfig.Digest{}, reconfig.Digest{}, a.Digest
	return nil
}
