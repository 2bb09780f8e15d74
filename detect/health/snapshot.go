package health

import (
	"cmp"
	"io"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/health"
	version = 1
)

// The saved form of a Machine: what cannot be worked out. Times are in nanoseconds
// since 1970, -1 where there is none.
type (
	image struct {
		Now   int64       `json:"now"`
		Nodes []nodeImage `json:"nodes"` // by name
		Queue []Event     `json:"queue,omitempty"`
		Hits  []hitImage  `json:"hits,omitempty"`
		Freed []string    `json:"freed,omitempty"` // domains, by name
	}
	nodeImage struct {
		ID      lockstep.NodeID `json:"id"`
		Domain  string          `json:"domain,omitempty"`
		Boot    string          `json:"boot,omitempty"`
		Self    targetImage     `json:"self"`
		Devices []targetImage   `json:"devices,omitempty"` // by name
	}
	targetImage struct {
		Device    lockstep.DeviceID `json:"device,omitempty"`
		State     State             `json:"state"`
		Since     int64             `json:"since"`
		Prior     State             `json:"prior,omitempty"`
		Need      Action            `json:"need"`
		Level     int               `json:"level,omitempty"`
		Pin       *pinImage         `json:"pin,omitempty"`
		Bad       int64             `json:"bad"`
		Seen      int64             `json:"seen"`
		Source    string            `json:"source,omitempty"`
		Blind     int64             `json:"blind"`
		Drained   int64             `json:"drained"`
		Asked     int64             `json:"asked"`
		Fixed     int64             `json:"fixed"`
		Left      int64             `json:"left"`
		Booted    int64             `json:"booted"`
		Ends      []int64           `json:"ends,omitempty"`
		Relapses  []relapseImage    `json:"relapses,omitempty"`
		Passes    []passImage       `json:"passes,omitempty"`    // by name
		Incidents []incidentImage   `json:"incidents,omitempty"` // by code
		Capped    bool              `json:"capped,omitempty"`
	}
	pinImage struct {
		State State  `json:"state,omitempty"`
		By    string `json:"by,omitempty"`
		Note  string `json:"note,omitempty"`
		At    int64  `json:"at"`
	}
	relapseImage struct {
		At    int64 `json:"at"`
		Code  Code  `json:"code"`
		Grave bool  `json:"grave,omitempty"`
	}
	passImage struct {
		Probe Code  `json:"probe"`
		At    int64 `json:"at"`
	}
	incidentImage struct {
		Code      Code            `json:"code"`
		Bursts    []burstImage    `json:"bursts,omitempty"`
		Reboots   []int64         `json:"reboots,omitempty"`
		At        int64           `json:"at"`
		Active    bool            `json:"active,omitempty"`
		Action    Action          `json:"action,omitempty"`
		Sticky    bool            `json:"sticky,omitempty"`
		Owed      bool            `json:"owed,omitempty"`
		Held      int64           `json:"held"`
		Source    string          `json:"source,omitempty"`
		Reporters []reporterImage `json:"reporters,omitempty"`
		Valued    bool            `json:"valued,omitempty"`
		Value     int64           `json:"value,omitempty"`
		Read      int64           `json:"read,omitempty"`
		Boot      string          `json:"boot,omitempty"`
		Level     int64           `json:"level,omitempty"`
		Filled    int64           `json:"filled,omitempty"`
		Above     int64           `json:"above"`
		Lasts     bool            `json:"lasts,omitempty"`
	}
	burstImage struct {
		First   int64          `json:"first"`
		Last    int64          `json:"last"`
		At      int64          `json:"at"`
		Boot    string         `json:"boot,omitempty"`
		Job     lockstep.JobID `json:"job,omitempty"`
		Nothing bool           `json:"nothing,omitempty"`
	}
	reporterImage struct {
		Source string `json:"source,omitempty"`
		At     int64  `json:"at"`
	}
	hitImage struct {
		At   int64  `json:"at"`
		Code Code   `json:"code"`
		By   string `json:"by,omitempty"`
	}
)

// Snapshot writes all that the machine holds, what waits for Step included, but not
// its configuration: one line with format, version and SHA-256, then JSON. Equal
// machines give equal bytes.
func (m *Machine) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "health: snapshot", format, version, m.image())
}

// Restore makes a machine of cfg that holds what Snapshot wrote. Bytes that are cut
// short, changed, of another version or of no possible machine are ErrInvalid.
// Nodes keep the domains that they had.
func Restore(cfg Config, r io.Reader) (*Machine, error) {
	const op = "health: restore"
	m, err := New(cfg)
	if err != nil {
		return nil, err
	}
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	if err := m.load(&img); err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, m.image()); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Machine) image() *image {
	m.sort()
	img := &image{Now: m.now, Nodes: make([]nodeImage, 0, len(m.nodes))}
	for _, n := range m.sortedNodes() {
		ni := nodeImage{ID: n.id, Domain: n.domain.name, Boot: n.boot, Self: n.self.image()}
		for _, t := range n.devices {
			ni.Devices = append(ni.Devices, t.image())
		}
		img.Nodes = append(img.Nodes, ni)
	}
	for i := range m.queue {
		img.Queue = append(img.Queue, m.queue[i].event)
	}
	for _, h := range m.hits[m.past:] {
		img.Hits = append(img.Hits, hitImage{h.at, h.key.code, h.key.by})
	}
	for name, d := range m.domains { // in any order: they are sorted
		if d.freed {
			img.Freed = append(img.Freed, name)
		}
	}
	slices.Sort(img.Freed)
	return img
}

// each returns what f makes of each element, nil of none.
func each[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

func (t *target) image() targetImage {
	ti := targetImage{
		Device: t.device, State: t.state, Since: t.since, Prior: t.prior, Need: t.need, Level: t.level,
		Bad: t.bad, Seen: t.seen, Source: t.source, Blind: t.blind, Drained: t.drained, Asked: t.asked, Fixed: t.fixed,
		Left: t.left, Booted: t.booted, Ends: t.ends, Capped: t.capped,
		Relapses:  each(t.relapses, func(r relapse) relapseImage { return relapseImage{r.at, r.code, r.grave} }),
		Passes:    each(t.passes, func(p pass) passImage { return passImage{p.probe, p.at} }),
		Incidents: each(t.incidents, incident.image),
	}
	if t.pin != nil {
		ti.Pin = &pinImage{t.pin.state, t.pin.by, t.pin.note, t.pin.at}
	}
	return ti
}

func (i incident) image() incidentImage {
	return incidentImage{
		Code: i.code, Reboots: i.reboots, At: i.at, Active: i.active, Action: i.action, Sticky: i.sticky, Owed: i.owed,
		Held: i.held, Source: i.source, Valued: i.valued, Value: i.value, Read: i.read, Boot: i.boot,
		Level: i.level, Filled: i.filled, Above: i.above, Lasts: i.lasts,
		Bursts: each(i.bursts, func(b burst) burstImage {
			return burstImage{b.first, b.last, b.at, b.boot, b.job, b.nothing}
		}),
		Reporters: each(i.reporters, func(r reporter) reporterImage { return reporterImage{r.source, r.at} }),
	}
}

// load takes in what img holds.
func (m *Machine) load(img *image) error {
	broken := func(field string, i int, reason string) error {
		return fault(lockstep.ErrInvalid, "restore", field+"["+strconv.Itoa(i)+"]", "", reason)
	}
	if !moment(img.Now) {
		return fault(lockstep.ErrInvalid, "restore", "now", strconv.FormatInt(img.Now, 10), "is no time")
	}
	m.now = img.Now
	for i := range img.Nodes {
		ni := &img.Nodes[i]
		switch {
		case ni.ID.Validate() != nil, i > 0 && ni.ID <= img.Nodes[i-1].ID:
			return broken("nodes", i, "is no ID or out of order")
		case ni.Self.Device != "":
			return broken("nodes", i, "is a device")
		}
		self, reason := m.target(&ni.Self)
		if reason != "" {
			return broken("nodes", i, reason)
		}
		n := m.add(ni.ID, ni.Domain, self)
		n.boot = ni.Boot
		for k := range ni.Devices {
			d := &ni.Devices[k]
			if d.Device.Validate() != nil || k > 0 && d.Device <= ni.Devices[k-1].Device {
				return broken("nodes", i, "a device is no ID or out of order")
			}
			t, reason := m.target(d)
			if reason != "" {
				return broken("nodes", i, reason)
			}
			n.put(t)
		}
		for k, t := range n.all() {
			m.link(t, k > 0 && ni.Devices[k-1].Capped || k == 0 && ni.Self.Capped)
		}
	}
	return m.rest(img)
}

// link enters t where others look for it.
func (m *Machine) link(t *target, capped bool) {
	if source := t.source; source != "" {
		t.source = ""
		m.saw(t, source)
	}
	m.recount(t)
	m.hold(t, capped)
	m.schedule(t, m.now-1)
}

// rest takes in what is of no node.
func (m *Machine) rest(img *image) error {
	broken := func(field string, i int, reason string) error {
		return fault(lockstep.ErrInvalid, "restore", field+"["+strconv.Itoa(i)+"]", "", reason)
	}
	if len(img.Queue) > maxQueue {
		return broken("queue", maxQueue, "is one too many")
	}
	for _, e := range img.Queue {
		at, err := in.SinceEpoch("restore", "queue", e.Time)
		if err == nil {
			err = e.check()
		}
		if err != nil {
			return err
		}
		e.Time = lockstep.FromNanos(at)
		m.queue = append(m.queue, queued{e, at, max(at, m.now)})
	}
	m.sorted = false // CheckJSON finds out whether they were in order
	for i, h := range img.Hits {
		if !moment(h.At) || h.At >= m.now || i > 0 && h.At < img.Hits[i-1].At || !h.Code.valid() {
			return broken("hits", i, "is no hit or out of order")
		}
		key := crowd{h.Code, h.By}
		m.hits = append(m.hits, hit{h.At, key})
		m.crowd[key]++
	}
	for _, d := range m.domains { // the order does not matter: each is set by itself
		m.free(d, slices.Contains(img.Freed, d.name))
	}
	return nil
}

// moment reports whether at is a time or never.
func moment(at ...int64) bool {
	return !slices.ContainsFunc(at, func(at int64) bool { return at < never || at >= forever })
}

// wrong says what is impossible about ti, apart from its incidents.
func (ti *targetImage) wrong() string {
	switch {
	case ti.State.rank() < 0 || ti.Prior != "" && (!ti.Prior.Open() || ti.State != Unknown) || ti.Need.rank() < 0:
		return "state, prior or need is none"
	case !moment(ti.Since, ti.Bad, ti.Seen, ti.Blind, ti.Drained, ti.Asked, ti.Fixed, ti.Left, ti.Booted) || ti.Pin != nil && !moment(ti.Pin.At):
		return "a time is none"
	case len(ti.Ends) > most || len(ti.Relapses) > most || len(ti.Passes) > most || len(ti.Incidents) > maxIncidents:
		return "there is more than can be"
	case ti.Pin != nil && ti.Pin.State != "" && ti.Pin.State != ti.State:
		return "is not where it is held"
	case ti.Capped && ti.State != Suspect && ti.State != Unknown:
		return "is capped but not open"
	case ti.Need != ActionNone && ti.State != Draining && ti.State != Quarantined:
		return "needs something but is not closed"
	}
	return ti.disordered()
}

// disordered says what of ti's lists is impossible.
func (ti *targetImage) disordered() string {
	for k, p := range ti.Passes {
		if !p.Probe.valid() || !moment(p.At) || k > 0 && p.Probe <= ti.Passes[k-1].Probe {
			return "a probe is none or out of order"
		}
	}
	switch {
	case ti.Level < 0 || ti.Level > most:
		return "level is none"
	case !moment(ti.Ends...) || !slices.IsSorted(ti.Ends):
		return "ends are none or out of order"
	case slices.ContainsFunc(ti.Relapses, func(r relapseImage) bool { return !moment(r.At) || !r.Code.valid() }):
		return "a relapse is none"
	}
	return ""
}

// target returns the target that ti is of, or what is impossible about it.
func (m *Machine) target(ti *targetImage) (*target, string) {
	if reason := ti.wrong(); reason != "" {
		return nil, reason
	}
	t := &target{
		device: ti.Device, state: ti.State, since: ti.Since, prior: ti.Prior, need: ti.Need, level: ti.Level,
		bad: ti.Bad, seen: ti.Seen, source: ti.Source, blind: ti.Blind, drained: ti.Drained, asked: ti.Asked, fixed: ti.Fixed,
		left: ti.Left, booted: ti.Booted, ends: ti.Ends, deadline: forever,
		relapses: each(ti.Relapses, func(r relapseImage) relapse { return relapse{r.At, r.Code, r.Grave} }),
		passes:   each(ti.Passes, func(p passImage) pass { return pass{p.Probe, p.At} }),
	}
	if ti.Pin != nil {
		t.pin = &pin{ti.Pin.State, ti.Pin.By, ti.Pin.Note, ti.Pin.At}
	}
	for k := range ti.Incidents {
		i, reason := m.restored(&ti.Incidents[k])
		if reason != "" || k > 0 && i.code <= t.incidents[k-1].code {
			return nil, cmp.Or(reason, "incidents out of order")
		}
		t.incidents = append(t.incidents, i)
	}
	return t, ""
}

// restored returns the incident that ii is of, or what is impossible about it.
func (m *Machine) restored(ii *incidentImage) (incident, string) {
	i := incident{
		code: ii.Code, entry: m.entry(ii.Code), reboots: ii.Reboots, at: ii.At, active: ii.Active, action: ii.Action,
		sticky: ii.Sticky, owed: ii.Owed, held: ii.Held, source: ii.Source, valued: ii.Valued, value: ii.Value,
		read: ii.Read, boot: ii.Boot, level: ii.Level, filled: ii.Filled, above: ii.Above, lasts: ii.Lasts,
		bursts: each(ii.Bursts, func(b burstImage) burst {
			return burst{b.First, b.Last, b.At, b.Boot, b.Job, b.Nothing}
		}),
		reporters: each(ii.Reporters, func(r reporterImage) reporter { return reporter{r.Source, r.At} }),
	}
	switch {
	case !i.code.valid():
		return i, "a code is none"
	case i.active && i.action.rank() < ActionWatch.rank(), i.action != "" && i.action.rank() < 0:
		return i, "an incident asks for nothing"
	case !moment(i.at, i.held, i.read, i.filled, i.above) || !moment(i.reboots...) || !slices.IsSorted(i.reboots):
		return i, "an incident is of no time"
	case len(i.bursts) > most || len(i.reboots) > most || len(i.reporters) > most:
		return i, "an incident has more than can be"
	case i.value < 0 || i.level < 0:
		return i, "a value is negative"
	case slices.ContainsFunc(i.bursts, func(b burst) bool { return !moment(b.first, b.last, b.at) || b.first > b.last }):
		return i, "an occurrence is of no time"
	case slices.ContainsFunc(i.reporters, func(r reporter) bool { return !moment(r.at) }):
		return i, "a report is of no time"
	}
	return i, ""
}
