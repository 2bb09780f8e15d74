package dra

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/sharing"
)

// Inventory is what drivers publish. It is immutable and safe for concurrent use; it
// shares memory with the slices and classes that it was made of, which must not be
// changed.
type Inventory struct {
	cfg     Config
	classes map[string]*resourcev1.DeviceClass
	nodes   map[lockstep.NodeID]*node
	byName  map[name]place
	faults  []error
	memo    sync.Map // what wants come to, by their key; values are meanings
}

// name is how Kubernetes names a device.
type name struct{ driver, pool, device string }

func (n name) id() lockstep.DeviceID {
	return lockstep.DeviceID(n.driver + "/" + n.pool + "/" + n.device)
}

// place is where a device is in our terms.
type place struct {
	node  lockstep.NodeID
	index int
	start int32
	part  bool // a MIG instance
}

// device is one device of a node.
type device struct {
	name    name
	spec    *resourcev1.Device
	skip    []resourcev1.SkipNodeOperation
	profile lockstep.Profile // "" for a whole one
}

// node is what one node has.
type node struct {
	whole []device           // by index
	parts map[partKey]device // MIG instances by index, profile and start
	offer view.Devices
}

type partKey struct {
	index   int
	profile lockstep.Profile
	start   int32
}

// New returns the inventory of the slices of all drivers, in any order, and of all
// device classes. Devices that cannot be placed are left out, see Faults.
func New(cfg Config, published []*resourcev1.ResourceSlice, classes []*resourcev1.DeviceClass) *Inventory {
	v := &Inventory{
		cfg: cfg, classes: make(map[string]*resourcev1.DeviceClass, len(classes)),
		nodes: make(map[lockstep.NodeID]*node), byName: make(map[name]place),
	}
	for _, c := range classes {
		v.classes[c.Name] = c
	}
	found := make(map[lockstep.NodeID][]device)
	counters := make(map[counterKey]*resourcev1.CounterSet)
	for _, p := range v.pools(published) {
		p.collect(v, found, counters)
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		v.node(id, found[id], counters)
	}
	return v
}

// Faults returns why devices were left out, each a *lockstep.Error whose Field names
// the slice, pool or device; sorted by it. The slice is shared.
func (v *Inventory) Faults() []error { return v.faults }

// Devices returns what each node has, for view.Inputs. The map is the caller's, its
// values are shared.
func (v *Inventory) Devices() map[lockstep.NodeID]view.Devices {
	out := make(map[lockstep.NodeID]view.Devices, len(v.nodes))
	for id, n := range v.nodes { // copied
		out[id] = n.offer
	}
	return out
}

func (v *Inventory) fault(field, value, reason string) {
	v.faults = append(v.faults, fault(lockstep.ErrInvalid, "slices", field, value, reason))
}

// pool is the newest generation of a pool.
type pool struct {
	driver, name string
	slices       []*resourcev1.ResourceSlice // by name
}

type counterKey struct{ driver, pool, set string }

// pools sorts the slices into pools. One of which slices are missing, or two of which
// have one name, is left out: what it has is not known for sure.
func (v *Inventory) pools(published []*resourcev1.ResourceSlice) []*pool {
	all := make(map[[2]string]*pool)
	for _, s := range published {
		key := [2]string{s.Spec.Driver, s.Spec.Pool.Name}
		p := all[key]
		if p == nil {
			p = &pool{driver: key[0], name: key[1]}
			all[key] = p
		}
		if len(p.slices) > 0 && p.slices[0].Spec.Pool.Generation != s.Spec.Pool.Generation {
			if p.slices[0].Spec.Pool.Generation > s.Spec.Pool.Generation {
				continue
			}
			p.slices = p.slices[:0]
		}
		p.slices = append(p.slices, s)
	}
	var out []*pool
	for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }) {
		p := all[key]
		slices.SortFunc(p.slices, func(a, b *resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
		if want := p.slices[0].Spec.Pool.ResourceSliceCount; int64(len(p.slices)) != want {
			v.fault(p.driver+"/"+p.name, strconv.Itoa(len(p.slices)), "of "+strconv.FormatInt(want, 10)+" slices are there")
			continue
		}
		out = append(out, p)
	}
	return out
}

// collect sorts the devices of p by node.
func (p *pool) collect(v *Inventory, found map[lockstep.NodeID][]device, counters map[counterKey]*resourcev1.CounterSet) {
	seen := make(map[string]bool)
	for _, s := range p.slices {
		for i := range s.Spec.SharedCounters {
			set := &s.Spec.SharedCounters[i]
			counters[counterKey{p.driver, p.name, set.Name}] = set
		}
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			n := name{p.driver, p.name, d.Name}
			id, reason := where(s, d)
			switch {
			case seen[d.Name]:
				reason = "the pool has two devices of that name"
			case reason == "":
				reason = unfit(d)
			}
			if reason == "" && n.id().Validate() != nil {
				reason = "the name is too long"
			}
			if seen[d.Name] = true; reason != "" {
				v.fault(p.driver+"/"+p.name+"/"+d.Name, "", reason)
				continue
			}
			dev := device{name: n, spec: d, skip: s.Spec.SkipNodeOperations}
			for _, a := range v.cfg.profile() {
				if t, ok := text(d, p.driver, a); ok && dev.profile == "" {
					dev.profile = lockstep.Profile(t)
				}
			}
			found[id] = append(found[id], dev)
		}
	}
}

// where returns the node that a device is on.
func where(s *resourcev1.ResourceSlice, d *resourcev1.Device) (lockstep.NodeID, string) {
	switch {
	case s.Spec.NodeName != nil:
		return lockstep.NodeID(*s.Spec.NodeName), ""
	case s.Spec.PerDeviceNodeSelection != nil && *s.Spec.PerDeviceNodeSelection && d.NodeName != nil:
		return lockstep.NodeID(*d.NodeName), ""
	}
	return "", "it is on no one node"
}

// unfit says what of a device is more than is placed here.
func unfit(d *resourcev1.Device) string {
	for i := range d.Taints {
		if e := d.Taints[i].Effect; e == resourcev1.DeviceTaintEffectNoSchedule || e == resourcev1.DeviceTaintEffectNoExecute {
			return "it has the taint " + d.Taints[i].Key
		}
	}
	switch {
	case d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations:
		return "it is given out in shares"
	case len(d.BindingConditions) > 0:
		return "it has binding conditions"
	}
	return ""
}

// byDevice orders devices: shorter names first, so that gpu-2 is before gpu-10.
func byDevice(a, b device) int {
	return cmp.Or(cmp.Compare(a.name.driver, b.name.driver), cmp.Compare(a.name.pool, b.name.pool),
		cmp.Compare(len(a.name.device), len(b.name.device)), cmp.Compare(a.name.device, b.name.device))
}

// node numbers the devices of a node.
func (v *Inventory) node(id lockstep.NodeID, all []device, counters map[counterKey]*resourcev1.CounterSet) {
	slices.SortFunc(all, byDevice)
	n := &node{parts: make(map[partKey]device)}
	var parts []device
	for _, d := range all {
		if d.profile != "" {
			parts = append(parts, d)
			continue
		}
		class, memory := v.kind(&d)
		switch {
		case len(n.whole) == 0:
			n.offer.Class, n.offer.Memory = class, memory
		case class != n.offer.Class || memory != n.offer.Memory:
			v.fault(string(d.name.id()), string(class), "the node has devices of another model before it: "+errtext.Quote(n.offer.Class))
			continue
		case len(n.whole) == lockstep.MaxDevicesPerNode:
			v.fault(string(d.name.id()), "", "a node has at most 64 devices")
			continue
		}
		n.whole = append(n.whole, d)
	}
	for _, d := range n.whole {
		n.offer.IDs = append(n.offer.IDs, d.name.id())
	}
	if len(parts) > 0 {
		v.divide(n, parts, counters)
	}
	for i, d := range n.whole {
		v.byName[d.name] = place{node: id, index: i}
	}
	for k, d := range n.parts { // a set
		v.byName[d.name] = place{node: id, index: k.index, start: k.start, part: true}
	}
	v.nodes[id] = n
}

// kind returns model and memory of a device.
func (v *Inventory) kind(d *device) (class lockstep.DeviceClass, memory lockstep.Bytes) {
	for _, a := range v.cfg.model() {
		if t, ok := text(d.spec, d.name.driver, a); ok && class == "" {
			class = lockstep.DeviceClass(strings.Join(strings.Fields(t), "-"))
		}
	}
	if class.Validate() != nil {
		class = ""
	}
	return class, memoryOf(v.cfg.memory(), d)
}

// memoryOf returns the memory of a device; 0 where it does not say.
func memoryOf(capacity string, d *device) lockstep.Bytes {
	for _, key := range []string{capacity, d.name.driver + "/" + capacity} {
		if c, ok := d.spec.Capacity[resourcev1.QualifiedName(key)]; ok {
			return lockstep.Bytes(max(c.Value.Value(), 0))
		}
	}
	return 0
}

// sliceCounter is how a memory slice of a device is counted: memory-slice-3.
var sliceCounter = regexp.MustCompile(`^memory-?[sS]lice-?([0-9])$`)

// slicesOf returns which memory slices a device takes, and of which set; false where
// it does not count any.
func slicesOf(d *device) (key counterKey, first, n int, ok bool) {
	for i := range d.spec.ConsumesCounters {
		c := &d.spec.ConsumesCounters[i]
		mask := 0
		for name, v := range c.Counters { // a set
			if m := sliceCounter.FindStringSubmatch(name); m != nil && v.Value.Sign() > 0 {
				mask |= 1 << (m[1][0] - '0')
			}
		}
		if mask == 0 {
			continue
		}
		for mask&1 == 0 {
			mask >>= 1
			first++
		}
		for mask&1 != 0 {
			mask >>= 1
			n++
		}
		return counterKey{d.name.driver, d.name.pool, c.CounterSet}, first, n, mask == 0 && first+n <= 8
	}
	return counterKey{}, 0, 0, false
}

// divide finds how the devices of a node are divided into MIG instances: by the
// memory slices that whole devices and instances take of one set of counters where
// they may be divided as needed, else one by one.
func (v *Inventory) divide(n *node, parts []device, counters map[counterKey]*resourcev1.CounterSet) {
	hosts := make(map[counterKey]int)
	for i := range n.whole {
		if key, _, _, ok := slicesOf(&n.whole[i]); ok && counters[key] != nil {
			hosts[key] = i
		}
	}
	if len(hosts) == 0 {
		v.fixed(n, parts)
		return
	}
	byHost := make(map[int][]device)
	for _, d := range parts {
		key, _, _, ok := slicesOf(&d)
		host, there := hosts[key]
		if !ok || !there {
			v.fault(string(d.name.id()), string(d.profile), "it takes no memory slices in a row of a whole device of its node")
			continue
		}
		byHost[host] = append(byHost[host], d)
	}
	if len(byHost) < len(n.whole) {
		v.fault(string(n.whole[0].name.id()), "", "some devices of its node are divided and some are not")
		return
	}
	var layout *sharing.GeometryConfig
	for _, host := range slices.Sorted(maps.Keys(byHost)) {
		cfg, keys, err := layoutOf(host, byHost[host], v.cfg.memory())
		if err == nil && layout != nil && !sameLayout(*layout, cfg) {
			err = fault(lockstep.ErrInvalid, "slices", string(n.whole[host].name.id()), "", "it is divided otherwise than the first of its node")
		}
		if err != nil {
			v.faults = append(v.faults, err)
			continue
		}
		layout = &cfg
		maps.Copy(n.parts, keys)
	}
	if layout != nil {
		n.offer.MIG, n.offer.Layout = layoutName(*layout), *layout
	}
}

// layoutOf makes the layout of a device of its instances.
func layoutOf(host int, parts []device, mem string) (sharing.GeometryConfig, map[partKey]device, error) {
	cfg := sharing.GeometryConfig{}
	keys := make(map[partKey]device)
	for _, d := range parts {
		_, first, n, _ := slicesOf(&d)
		at := slices.IndexFunc(cfg.Profiles, func(p sharing.Profile) bool { return p.Name == d.profile })
		if at < 0 {
			at = len(cfg.Profiles)
			cfg.Profiles = append(cfg.Profiles, sharing.Profile{Name: d.profile, Compute: computeOf(d.profile), Slices: n, Memory: max(memoryOf(mem, &d), 1)})
		}
		p := &cfg.Profiles[at]
		if p.Slices != n || p.Starts.Has(first) {
			return cfg, nil, fault(lockstep.ErrInvalid, "slices", string(d.name.id()), string(d.profile), "instances of one profile take as many memory slices, each from another one on")
		}
		p.Starts |= 1 << first
		cfg.Slices = max(cfg.Slices, first+n)
		keys[partKey{host, d.profile, int32(first)}] = d
	}
	slices.SortFunc(cfg.Profiles, func(a, b sharing.Profile) int { return cmp.Compare(a.Name, b.Name) })
	cfg.Compute = 8 // what shares no memory slice shares no compute slice either
	if err := cfg.Validate(); err != nil {
		return cfg, nil, fault(lockstep.ErrInvalid, "slices", string(parts[0].name.id()), "", err.Error())
	}
	return cfg, keys, nil
}

// computeOf reads the compute slices in the name of a profile, 1 where it has none.
func computeOf(p lockstep.Profile) int {
	if len(p) > 1 && p[1] == 'g' && p[0] >= '1' && p[0] <= '8' {
		return int(p[0] - '0')
	}
	return 1
}

func sameLayout(a, b sharing.GeometryConfig) bool { return layoutName(a) == layoutName(b) }

// layoutName names a layout by what is in it.
func layoutName(cfg sharing.GeometryConfig) string {
	var b strings.Builder
	b.WriteString("dra")
	for _, p := range cfg.Profiles {
		b.WriteString("_" + string(p.Name) + "x" + strconv.Itoa(p.Slices) + "@" + strconv.Itoa(int(p.Starts)))
	}
	return b.String()
}

// fixed puts instances that are there as they are onto devices made up for them, all
// alike, with a memory slice for each.
func (v *Inventory) fixed(n *node, parts []device) {
	kinds := make(map[lockstep.Profile][]device)
	for _, d := range parts {
		kinds[d.profile] = append(kinds[d.profile], d)
	}
	profiles := slices.Sorted(maps.Keys(kinds))
	common := 0
	for _, p := range profiles {
		common = gcd(common, len(kinds[p]))
	}
	hosts := 0
	for h := 1; h <= common && hosts == 0; h++ {
		if common%h == 0 && len(parts)/h <= 8 {
			hosts = h
		}
	}
	if first := len(n.whole); hosts == 0 || first+hosts > lockstep.MaxDevicesPerNode {
		v.fault(string(parts[0].name.id()), string(parts[0].profile), "the node's instances cannot be told apart by device: want at most 8 on each of up to 64 that are alike")
		return
	}
	cfg := sharing.GeometryConfig{}
	for _, p := range profiles {
		pr := sharing.Profile{Name: p, Compute: 1, Slices: 1, Memory: max(memoryOf(v.cfg.memory(), &kinds[p][0]), 1)}
		each := len(kinds[p]) / hosts
		for k := range each {
			for h := range hosts {
				n.parts[partKey{len(n.whole) + h, p, int32(cfg.Slices + k)}] = kinds[p][h*each+k]
			}
			pr.Starts |= 1 << (cfg.Slices + k)
		}
		cfg.Slices += each
		cfg.Profiles = append(cfg.Profiles, pr)
	}
	cfg.Compute = cfg.Slices
	for h := range hosts {
		n.offer.Parts |= 1 << (len(n.whole) + h)
		n.offer.IDs = append(n.offer.IDs, "")
	}
	if n.offer.Class == "" {
		n.offer.Class, _ = v.kind(&parts[0])
	}
	n.offer.MIG, n.offer.Layout = layoutName(cfg), cfg
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// nodeSelector selects one node, as an allocation that is bound to it says.
func nodeSelector(id lockstep.NodeID) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{string(id)}}},
	}}}
}
