package devices

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/nvml"
)

// The kinds of error, beside those of package lockstep.
var (
	// ErrUnavailable is the kind where there is no usable library, or no support
	// for it in this build.
	ErrUnavailable = nvml.ErrUnavailable

	// ErrLost is the kind where a GPU does not answer until it is reset, if then.
	ErrLost = nvml.ErrLost
)

// DefaultEvery is Config.Every where that is 0.
const DefaultEvery = 10 * time.Second

// Config configures a Collector. The zero value is valid: it reads the driver's
// library and is registered nowhere.
type Config struct {
	Library string        `json:"library,omitempty"` // Library is a path, or a name that the dynamic linker finds; "" means libnvidia-ml.so.1.
	Prefix  string        `json:"prefix,omitempty"`  // Prefix is what all names begin with, an underscore last; "" means "gpusched_".
	Every   time.Duration `json:"every,omitempty"`   // Every is how long a round takes; 0 means DefaultEvery.
	XIDs    int           `json:"xids,omitempty"`    // XIDs is how many different XIDs of a GPU are told apart, those beyond being "other"; 0 means 64.

	Registerer prometheus.Registerer `json:"-"` // Registerer takes the Collector; nil means that the host does.
	Clock      lockstep.Clock        `json:"-"` // Clock tells the time of a round; nil means a lockstep.Monotone.
	Logger     *zap.Logger           `json:"-"` // Logger is told of what fails, and of each XID; nil means nobody.
}

var prefixes = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*_$`)

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "devices: config", Field: field, Value: value, Reason: reason})
	}
	if c.Prefix != "" && !prefixes.MatchString(c.Prefix) {
		bad("Prefix", errtext.Quote(c.Prefix), "want small letters, digits and single underscores, one at the end")
	}
	if c.Every < 0 || c.Every > lockstep.MaxWalltime {
		bad("Every", c.Every.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	if c.XIDs < 0 || c.XIDs > 1024 {
		bad("XIDs", strconv.Itoa(c.XIDs), "want 0 to 1024")
	}
	return errors.Join(errs...)
}

// Collector is a prometheus.Collector of the GPUs of this host. Make one with New.
type Collector struct {
	cfg     Config
	descs   map[string]desc
	order   []string // the names, in the order of Metrics
	running atomic.Bool
	closed  sync.Once

	mu      sync.Mutex
	up      bool
	sampled time.Time // zero before the first round
	gpus    []gpu     // by number; those that were found ever
}

var _ prometheus.Collector = (*Collector)(nil)

// gpu is what is known of one.
type gpu struct {
	index int
	uuid  string
	up    bool
	last  reading
	xids  map[string]uint64
}

// New returns a Collector that has read nothing, registered with cfg.Registerer
// if there is one.
func New(cfg Config) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Prefix == "" {
		cfg.Prefix = "gpusched_"
	}
	if cfg.Every == 0 {
		cfg.Every = DefaultEvery
	}
	if cfg.XIDs == 0 {
		cfg.XIDs = 64
	}
	if cfg.Clock == nil {
		cfg.Clock = &lockstep.Monotone{}
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	c := &Collector{cfg: cfg, descs: describe(cfg.Prefix)}
	for _, m := range Metrics() {
		c.order = append(c.order, m.Name)
	}
	if cfg.Registerer == nil {
		return c, nil
	}
	if err := cfg.Registerer.Register(c); err != nil {
		kind := lockstep.ErrConflict
		if errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			kind = lockstep.ErrDuplicate
		}
		return nil, &lockstep.Error{Kind: kind, Op: "devices: register", Field: "Registerer", Reason: err.Error()}
	}
	return c, nil
}

// Close takes c out of the registry that New put it into, if any. Further calls do
// nothing: the registry goes by names, which may be another Collector's by then.
func (c *Collector) Close() error {
	if c.cfg.Registerer != nil {
		c.closed.Do(func() { c.cfg.Registerer.Unregister(c) })
	}
	return nil
}

// Describe is for the registry.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, name := range c.order {
		ch <- c.descs[name].Desc
	}
}

// Collect is for the registry. It shows the latest round.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	send := func(name string, v float64, labels ...string) {
		d := c.descs[name]
		ch <- prometheus.MustNewConstMetric(d.Desc, d.kind, v, labels...)
	}
	send(nameHostUp, truth(c.up))
	if !c.sampled.IsZero() {
		send(nameSampled, float64(c.sampled.UnixMilli())/1000)
	}
	for i := range c.gpus {
		g := &c.gpus[i]
		who := []string{strconv.Itoa(g.index), g.uuid}
		send(nameUp, truth(g.up && c.up), who...)
		for xid, n := range g.xids { // the registry sorts, so that the order cannot matter
			send(nameXID, float64(n), append(who[:2:2], xid)...)
		}
		if !g.up || !c.up {
			continue
		}
		for _, v := range g.last.values {
			labels := who[:2:2]
			switch v.name {
			case nameInfo:
				labels = append(labels, v.label, v.more)
			default:
				if v.label != "" {
					labels = append(labels, v.label)
				}
			}
			send(v.name, v.v, labels...)
		}
		for name, lacks := range g.last.unsupported { // the registry sorts, so that the order cannot matter
			send(nameSupport, truth(!lacks), append(who[:2:2], name)...)
		}
	}
}

// Run reads the GPUs every round until ctx ends. Where it cannot, it says so and
// tries again, unless no trial will help.
func (c *Collector) Run(ctx context.Context) error {
	if c.running.Swap(true) {
		return &lockstep.Error{Kind: lockstep.ErrConflict, Op: "devices: run", Reason: "it runs already"}
	}
	defer c.running.Store(false)
	for ctx.Err() == nil {
		err := c.watch(ctx)
		c.down()
		if err == nil {
			continue // ctx ended
		}
		c.cfg.Logger.Warn("devices are not read", zap.Error(err))
		if !supported || errors.Is(err, lockstep.ErrConflict) {
			return err
		}
		pause(ctx, c.cfg.Every)
	}
	return nil
}

// down notes that nothing is known any more.
func (c *Collector) down() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up = false
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

// quantum is the longest wait in the library, so that Run ends soon after its context.
const quantum = 250 * time.Millisecond

// watch opens the library and reads until ctx ends, which is no error, or the
// library fails.
func (c *Collector) watch(ctx context.Context) (err error) {
	lib, err := nvml.Open(nvml.Config{Library: c.cfg.Library})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	driver := ""
	if v, err := lib.Version(); err == nil {
		driver = v.Driver
	}
	devices, err := c.find(lib)
	if err != nil {
		return err
	}
	u := openUsage(c.cfg.Library)
	defer u.close()
	set, err := lib.Events(devices, nvml.EventXID)
	if errors.Is(err, nvml.ErrUnavailable) {
		return err
	}
	if err != nil { // without XIDs, then
		c.cfg.Logger.Warn("XIDs are not counted", zap.Error(err))
		set = nil
	} else {
		defer func() { err = errors.Join(err, set.Close()) }()
	}
	for ctx.Err() == nil {
		for _, d := range devices {
			r := read(d, u, driver)
			r.unsupported[nameXID] = set == nil
			c.keep(d, &r)
			if errors.Is(r.failed, nvml.ErrUnavailable) {
				return r.failed // the driver went away: all begins anew
			}
		}
		c.mu.Lock()
		c.up, c.sampled = true, c.cfg.Clock.Now()
		c.mu.Unlock()
		if err := c.wait(ctx, set); err != nil {
			return err
		}
	}
	return nil
}

// find returns the GPUs that answer, and notes those that do not.
func (c *Collector) find(lib *nvml.Library) ([]*nvml.Device, error) {
	n, err := lib.Count()
	if err != nil {
		return nil, err
	}
	c.lack(n)
	var devices []*nvml.Device
	var names []string
	for i := range min(max(n, 0), lockstep.MaxDevicesPerNode) {
		d, err := lib.Device(i)
		name := ""
		if err == nil {
			name, err = d.UUID()
		}
		if err == nil && (lockstep.DeviceID(name).Validate() != nil || slices.Contains(names, name)) {
			err = &lockstep.Error{Kind: nvml.ErrFailed, Op: "devices: run", Field: "nvmlDeviceGetUUID", Value: errtext.Quote(name), Reason: "is no name of its own"}
		}
		if err != nil {
			c.cfg.Logger.Warn("device", zap.Int("gpu", i), zap.Error(err))
			c.lose(i)
			continue
		}
		names = append(names, name)
		c.meet(i, name)
		devices = append(devices, d)
	}
	return devices, nil
}

// at returns the GPU of a number; c.mu is held.
func (c *Collector) at(index int) *gpu {
	at, found := slices.BinarySearchFunc(c.gpus, index, func(g gpu, i int) int { return g.index - i })
	if !found {
		c.gpus = slices.Insert(c.gpus, at, gpu{index: index, xids: make(map[string]uint64)})
	}
	return &c.gpus[at]
}

// lose notes that a GPU does not answer.
func (c *Collector) lose(index int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at(index).up = false
}

// lack notes that there are only n GPUs: those with higher numbers, of which there
// may have been some before the driver was loaded anew, do not answer.
func (c *Collector) lack(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.gpus {
		if c.gpus[i].index >= n {
			c.gpus[i].up = false
		}
	}
}

// meet notes what a GPU is called. Another in the place of one that was there
// begins anew.
func (c *Collector) meet(index int, uuid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.at(index); g.uuid != uuid {
		*g = gpu{index: index, uuid: uuid, xids: make(map[string]uint64)}
	}
}

// keep notes what a GPU said.
func (c *Collector) keep(d *nvml.Device, r *reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.at(d.Index())
	was := g.up
	g.up = !errors.Is(r.failed, nvml.ErrLost)
	g.last = *r
	if r.failed != nil && was {
		c.cfg.Logger.Warn("device", zap.Int("gpu", d.Index()), zap.String("uuid", g.uuid), zap.Error(r.failed))
	}
}

// wait counts XIDs until the next round; set is nil where there are none.
func (c *Collector) wait(ctx context.Context, set *nvml.Events) error {
	for end := time.Now().Add(c.cfg.Every); ctx.Err() == nil; {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		if set == nil {
			pause(ctx, left)
			continue
		}
		began := time.Now()
		e, ok, err := set.Wait(min(left, quantum))
		if err != nil {
			return err
		}
		if ok {
			c.xid(&e)
		} else if time.Since(began) < min(left, quantum) { // the library did not wait
			pause(ctx, min(left, quantum)-time.Since(began))
		}
	}
	return nil
}

// xid counts an XID.
func (c *Collector) xid(e *nvml.Event) {
	if e.Kind != nvml.EventXID || e.Device < 0 {
		return
	}
	code := strconv.FormatUint(e.Data, 10)
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.at(e.Device)
	if _, known := g.xids[code]; !known && len(g.xids) >= c.cfg.XIDs {
		code = "other"
	}
	g.xids[code]++
	c.cfg.Logger.Warn("XID", zap.Int("gpu", e.Device), zap.String("uuid", g.uuid), zap.Uint64("xid", e.Data))
}

// text makes a driver's word fit for a label.
func text(s string) string { return strings.ToValidUTF8(s, "?") }
