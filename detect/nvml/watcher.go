package nvml

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/health"
	"github.com/lockstep-gpu/lockstep/internal/nvml"
)

// The kinds of error, beside those of package lockstep.
var (
	// ErrUnavailable is the kind where there is no usable library, or no driver
	// behind it, or no support for it in this build.
	ErrUnavailable = nvml.ErrUnavailable

	// ErrLost is the kind where a GPU does not answer until it is reset, if then.
	ErrLost = nvml.ErrLost

	// ErrFailed is the kind where a call failed.
	ErrFailed = nvml.ErrFailed
)

// Config says what to watch and whom to tell. Node and Report are required.
type Config struct {
	Library string          // Library is a path, or a name that the dynamic linker finds; "" means libnvidia-ml.so.1.
	Node    lockstep.NodeID // Node is what this host is called.
	Every   time.Duration   // Every is how long a round takes; 0 means 10 seconds.
	Boot    string          // Boot names the boot of this host; "" means what Linux calls it, if it does.

	Report func(Report)   `json:"-"` // Report is told of all that is seen, one report after the other; it owns what it is given.
	Clock  lockstep.Clock `json:"-"` // Clock tells the time of events; nil means a lockstep.Monotone.
	Logger *zap.Logger    `json:"-"` // Logger is told of what fails and of each XID; nil means nobody.
}

// Report is what was seen at once.
type Report struct {
	Devices []lockstep.DeviceID // Devices are those that were found ever, in the order in which they were.
	Events  []health.Event      // Events are what was seen.
	Err     error               // Err is why the node is not watched, nil while it is.
}

// Watcher watches the GPUs of this host. Make one with New.
type Watcher struct {
	cfg     Config
	source  string
	running atomic.Bool
	known   []lockstep.DeviceID          // all that were found ever, in the order in which they were
	names   []lockstep.DeviceID          // of the devices that the library has now, by number; "" where it is not known
	links   map[lockstep.DeviceID]uint64 // the NVLinks of each that were up ever
}

// quantum is the longest wait in the library.
const quantum = 250 * time.Millisecond

// maxBatch is how many events of the library are in one report at the most.
const maxBatch = 256

// New returns a Watcher that does not watch yet, or the faults of cfg.
func New(cfg Config) (*Watcher, error) {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "nvml: config", Field: field, Value: value, Reason: reason})
	}
	if err := cfg.Node.Validate(); err != nil {
		bad("Node", string(cfg.Node), "is no ID")
	}
	if cfg.Report == nil {
		bad("Report", "nil", "required")
	}
	if cfg.Every < 0 || cfg.Every > lockstep.MaxWalltime {
		bad("Every", cfg.Every.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	if cfg.Every == 0 {
		cfg.Every = 10 * time.Second
	}
	if cfg.Clock == nil {
		cfg.Clock = &lockstep.Monotone{}
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if cfg.Boot == "" {
		cfg.Boot = boot()
	}
	return &Watcher{cfg: cfg, source: "nvml/" + string(cfg.Node), links: make(map[lockstep.DeviceID]uint64)}, nil
}

// boot returns what Linux calls the present boot, "" elsewhere.
func boot() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Run watches until ctx ends. Where it cannot, it says so and tries again, unless no
// trial will help.
func (w *Watcher) Run(ctx context.Context) error {
	if w.running.Swap(true) {
		return &lockstep.Error{Kind: lockstep.ErrConflict, Op: "nvml: run", Reason: "it runs already"}
	}
	defer w.running.Store(false)
	for ctx.Err() == nil {
		err := w.watch(ctx)
		if err == nil {
			continue // ctx ended
		}
		if ctx.Err() != nil {
			w.cfg.Logger.Warn("end", zap.Error(err))
			break
		}
		w.cfg.Logger.Warn("not watched", zap.String("node", string(w.cfg.Node)), zap.Error(err))
		w.report([]health.Event{w.event(health.Event{Kind: health.Lost})}, err)
		if !supported || errors.Is(err, lockstep.ErrConflict) {
			return err
		}
		pause(ctx, w.cfg.Every)
	}
	return nil
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// event fills in what all events have in common.
func (w *Watcher) event(e health.Event) health.Event {
	e.Time, e.Node, e.Source = w.cfg.Clock.Now(), w.cfg.Node, w.source
	if e.Kind != health.Seen && e.Kind != health.Lost {
		e.Boot = w.cfg.Boot
	}
	return e
}

func (w *Watcher) report(events []health.Event, err error) {
	w.cfg.Report(Report{Devices: slices.Clone(w.known), Events: events, Err: err})
}

// watch opens the library and watches until ctx ends, which is no error, or the
// library fails.
func (w *Watcher) watch(ctx context.Context) (err error) {
	lib, err := nvml.Open(nvml.Config{Library: w.cfg.Library})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	devices, gone, err := w.find(lib)
	if err != nil {
		return err
	}
	set, err := lib.Events(devices, nvml.EventXID|nvml.EventDoubleBit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	var events []health.Event
	if w.cfg.Boot != "" {
		events = append(events, w.event(health.Event{Kind: health.Boot}))
	}
	for {
		for _, id := range gone {
			events = append(events, w.event(health.Event{Kind: health.Lost, Device: id}))
		}
		for _, d := range devices {
			events = w.read(d, events)
		}
		w.report(events, nil)
		events = nil
		if err := w.wait(ctx, set); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// find returns the devices that answer, and the names of those that were there once
// and are gone.
func (w *Watcher) find(lib *nvml.Library) (devices []*nvml.Device, gone []lockstep.DeviceID, err error) {
	n, err := lib.Count()
	if err != nil {
		return nil, nil, err
	}
	w.names = make([]lockstep.DeviceID, min(max(n, 0), lockstep.MaxDevicesPerNode))
	certain := true // whoever has no name does not answer
	for i := range w.names {
		d, err := lib.Device(i)
		name := ""
		if err == nil {
			name, err = d.UUID()
		}
		id := lockstep.DeviceID(name)
		if err == nil && (id.Validate() != nil || slices.Contains(w.names, id)) {
			err = &lockstep.Error{Kind: ErrFailed, Op: "nvml: run", Field: "nvmlDeviceGetUUID", Value: strconv.Quote(name), Reason: "is no ID of its own"}
		}
		if err != nil {
			w.failed(i, err)
			certain = certain && errors.Is(err, nvml.ErrLost)
			continue
		}
		w.names[i] = id
		devices = append(devices, d)
		if !slices.Contains(w.known, id) {
			w.known = append(w.known, id)
		}
	}
	for _, id := range w.known {
		if certain && !slices.Contains(w.names, id) {
			gone = append(gone, id)
		}
	}
	return devices, gone, nil
}

// failed logs what failed about a device.
func (w *Watcher) failed(i int, err error) {
	w.cfg.Logger.Warn("device", zap.Int("number", i), zap.String("device", string(w.names[i])), zap.Error(err))
}

// wait reports what the library tells until the next round.
func (w *Watcher) wait(ctx context.Context, set *nvml.Events) error {
	for end := time.Now().Add(w.cfg.Every); ctx.Err() == nil; {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		if err := w.batch(ctx, set, min(left, quantum)); err != nil {
			return err
		}
	}
	return nil
}

// batch waits for events of the library as long as the limit says, and reports those
// that are there then.
func (w *Watcher) batch(ctx context.Context, set *nvml.Events, limit time.Duration) error {
	began := time.Now()
	e, ok, err := set.Wait(limit)
	if err != nil {
		return err
	}
	if !ok {
		if left := limit - time.Since(began); left > 0 { // the library did not wait
			pause(ctx, left)
		}
		return nil
	}
	var events []health.Event
	seen := make(map[health.Event]bool)
	for n := 1; ok; n++ {
		f := w.fault(e)
		key := health.Event{Device: f.Device, Code: f.Code}
		if !seen[key] {
			seen[key] = true
			events = append(events, f)
			w.cfg.Logger.Warn("fault", zap.String("device", string(f.Device)), zap.String("code", string(f.Code)), zap.String("note", f.Note))
		}
		if n == maxBatch {
			break
		}
		if e, ok, err = set.Wait(0); err != nil {
			break
		}
	}
	w.report(events, nil)
	return err
}
