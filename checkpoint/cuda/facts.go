package cuda

import (
	"context"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Facts is what a host that has NVIDIA's management library may tell a Driver about
// devices, so that what must fail is refused before it does harm.
type Facts interface {
	// Devices returns all devices of the host, with what a process holds on each. It
	// returns when ctx ends. An error means that nothing is known, and no more.
	Devices(ctx context.Context, pid int) ([]Device, error)
}

// Device is a GPU.
type Device struct {
	ID         lockstep.DeviceID // ID is its UUID, "GPU-" and 36 characters.
	Chip       string            // Chip is its product name; memory moves between equal ones only; "" if unknown.
	MIG        bool              // MIG says that it is cut into instances.
	Persistent bool              // Persistent says that persistence mode is on.
	Free       lockstep.Bytes    // Free is how much of its memory is free; 0 or more.
	Held       lockstep.Bytes    // Held is how much of it the process has; 0 or more.
}

// total returns what is held on all devices.
func total(list []Device) (n lockstep.Bytes) {
	for _, d := range list {
		n = n.Add(max(d.Held, 0))
	}
	return n
}

// ask returns what the host knows of the devices, with what a process holds on them;
// nothing if it knows nothing.
func (d *Driver) ask(ctx context.Context, pid int) []Device {
	if d.facts == nil {
		return nil
	}
	list, err := d.facts.Devices(ctx, pid)
	if err != nil {
		return nil
	}
	return list
}

// foreseen refuses what must fail, by what the host knew when the call began. The
// target is in the state from which r leads.
func (d *Driver) foreseen(j *job, r request, s checkpoint.State) (e *checkpoint.DriverError) {
	switch r.do {
	case suspend:
		e = suspendable(j.target, j.now)
	case resume:
		d.mu.Lock()
		held := j.slot.held
		d.mu.Unlock()
		e = resumable(j.target, r.pairs, held, j.now)
	}
	if e != nil {
		e.State = s
	}
	return e
}

// suspendable refuses MIG, where the driver would say that memory is out, and what
// the host's memory cannot take.
func suspendable(t checkpoint.Target, now []Device) *checkpoint.DriverError {
	for _, d := range now {
		if d.MIG && d.Held > 0 {
			return refuse(checkpoint.ErrUnsupported, suspend.String(), t, "", "Device", errtext.Quote(d.ID), "is in MIG mode")
		}
	}
	if left, ok := available(); ok && total(now) > lockstep.Bytes(left) {
		return refuse(checkpoint.ErrMemory, suspend.String(), t, "", "MemAvailable", strconv.FormatInt(left, 10), "the host has to hold "+strconv.FormatInt(int64(total(now)), 10)+" bytes of devices")
	}
	return nil
}

// resumable refuses maps that leave a device out, name one that is not there or is of
// another chip, and devices without room: a Restore that runs out of memory would
// wedge the target, while one that was not tried can be tried later.
func resumable(t checkpoint.Target, pairs []pair, held, now []Device) *checkpoint.DriverError {
	for _, h := range held {
		if h.Held <= 0 {
			continue
		}
		old, why := parseUUID(h.ID)
		if why != "" {
			continue
		}
		onto, ok := destination(old, pairs)
		if !ok {
			return wrong(resume.String(), t, invalid("resume", "Map", "", "leaves out "+old.String()))
		}
		d, ok := deviceOf(now, onto)
		switch {
		case len(now) == 0:
		case !ok:
			return wrong(resume.String(), t, invalid("resume", "Map", errtext.Quote(onto.String()), "is no device of this host"))
		case d.Chip != "" && h.Chip != "" && d.Chip != h.Chip:
			return wrong(resume.String(), t, invalid("resume", "Map", errtext.Quote(d.ID), "is a "+d.Chip+", want a "+h.Chip))
		case d.MIG:
			return refuse(checkpoint.ErrUnsupported, resume.String(), t, "", "Device", errtext.Quote(d.ID), "is in MIG mode")
		case d.Free < h.Held:
			return refuse(checkpoint.ErrMemory, resume.String(), t, "", "Device", errtext.Quote(d.ID), "has "+strconv.FormatInt(int64(d.Free), 10)+" bytes free, want "+strconv.FormatInt(int64(h.Held), 10))
		}
	}
	return nil
}

// destination returns where a device's memory goes: without pairs, where it was.
func destination(old uuid, pairs []pair) (uuid, bool) {
	for _, p := range pairs {
		if p.From == old {
			return p.To, true
		}
	}
	return old, len(pairs) == 0
}

// deviceOf returns the device of a name.
func deviceOf(list []Device, u uuid) (Device, bool) {
	for _, d := range list {
		if v, why := parseUUID(d.ID); why == "" && u == v {
			return d, true
		}
	}
	return Device{}, false
}
