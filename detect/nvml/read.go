package nvml

import (
	"errors"
	"math/bits"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/health"
	"github.com/lockstep-gpu/lockstep/internal/nvml"
)

// fault makes an event of what the library tells. What is of a device that is not
// known is of the node.
func (w *Watcher) fault(e nvml.Event) health.Event {
	out := health.Event{Kind: health.Fault, Code: "ecc/uncorrected"}
	if e.Kind == nvml.EventXID {
		out.Code = health.XID(e.Data)
	}
	if e.Device >= 0 && e.Device < len(w.names) {
		out.Device = w.names[e.Device]
	}
	if e.GPU >= 0 {
		out.Note = "GPU instance " + strconv.Itoa(e.GPU)
	}
	return w.event(out)
}

// throttles are the reasons that hold clocks down, as the library has them in its
// mask. The table is immutable.
var throttles = [...]struct {
	code health.Code
	mask uint64
}{
	{"throttle/idle", 0x1},
	{"throttle/power", 0x4},
	{"throttle/hardware", 0x8},
	{"throttle/thermal", 0x20 | 0x40},
	{"throttle/brake", 0x80},
}

// recoveries are what the driver may ask for, by the library's numbers from 1. The
// table is immutable.
var recoveries = [...]health.Code{
	"recovery/reset", "recovery/reboot", "recovery/drain", "recovery/drain-reset", "recovery/imex", "recovery/bus-reset", "recovery/system-reboot",
}

// otherRecovery is for numbers that are not known yet.
const otherRecovery health.Code = "recovery/other"

// reading is one round of one device.
type reading struct {
	w      *Watcher
	device lockstep.DeviceID
	events []health.Event
	err    error // the first that is not for want of support
}

func (r *reading) add(code health.Code, value uint64) {
	r.events = append(r.events, r.w.event(health.Event{Kind: health.Reading, Device: r.device, Code: code, Value: int64(min(value, 1<<63-1))}))
}

func (r *reading) flag(code health.Code, on bool) {
	value := uint64(0)
	if on {
		value = 1
	}
	r.add(code, value)
}

// ok reports whether a call answered.
func (r *reading) ok(err error) bool {
	if err != nil && !errors.Is(err, nvml.ErrUnsupported) && r.err == nil {
		r.err = err
	}
	return err == nil
}

// read appends the events of one device to events.
func (w *Watcher) read(d *nvml.Device, events []health.Event) []health.Event {
	i := d.Index()
	r := reading{w: w, device: w.names[i], events: events}
	if e, err := d.ECC(); r.ok(err) && e.On {
		r.add("ecc/corrected", e.Corrected)
		r.add("ecc/uncorrected", e.Uncorrected)
		r.add("ecc/lifetime", e.Lifetime)
	}
	if rows, err := d.Rows(); r.ok(err) {
		r.flag("rows/pending", rows.Pending)
		r.flag("rows/failed", rows.Failed)
	}
	if t, err := d.Temperature(); r.ok(err) {
		r.add("temperature", uint64(max(t, 0)))
	}
	if c, err := d.Clocks(); r.ok(err) {
		for _, t := range throttles {
			r.flag(t.code, c.Reasons&t.mask != 0)
		}
	}
	if links, err := d.NVLinks(); r.ok(err) {
		r.add("link/down", w.down(r.device, links))
	}
	if n, err := d.Recovery(); r.ok(err) {
		for k, code := range recoveries {
			r.flag(code, n == k+1)
		}
		r.flag(otherRecovery, n > len(recoveries))
	}
	switch {
	case r.err == nil:
		r.events = append(r.events, w.event(health.Event{Kind: health.Seen, Device: r.device}))
	case errors.Is(r.err, nvml.ErrLost):
		r.events = append(r.events, w.event(health.Event{Kind: health.Lost, Device: r.device}))
	}
	if r.err != nil {
		w.failed(i, r.err)
	}
	return r.events
}

// down returns how many NVLinks were up once and are not now. Of those that never were
// nobody knows whether there is anything at the other end.
func (w *Watcher) down(device lockstep.DeviceID, links []nvml.NVLink) uint64 {
	up := uint64(0)
	for _, l := range links {
		if l.Up && l.Number < 64 {
			up |= 1 << l.Number
		}
	}
	w.links[device] |= up
	return uint64(bits.OnesCount64(w.links[device] &^ up))
}
