package sharing

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// formats and version of the saved forms; others are refused.
const (
	ledgerFormat = "lockstep/sharing-ledger"
	lanesFormat  = "lockstep/sharing-lanes"
	pairsFormat  = "lockstep/sharing-pairs"
	version      = 1
)

// restored decodes a saved form into img, has made build a core of it, and refuses bytes that the core would not write.
func restored[T any](r io.Reader, op, format string, img any, build func() (T, string, error), image func(T) any) (T, error) {
	var none T
	body, err := snapshot.ReadJSON(r, op, format, version, img)
	if err != nil {
		return none, err
	}
	core, reason, err := build()
	if err != nil {
		reason = err.Error()
	}
	if reason != "" {
		return none, fault(lockstep.ErrInvalid, op, "snapshot", "", reason)
	}
	if err := snapshot.CheckJSON(op, body, image(core)); err != nil {
		return none, err
	}
	return core, nil
}

// ledgerImage is the saved form of a Ledger.
type ledgerImage struct {
	Config  LedgerConfig  `json:"config"`
	Now     int64         `json:"now"`
	Above   int64         `json:"above"`
	Tenants []tenantImage `json:"tenants"` // by ID
}

// tenantImage is the saved form of an account.
type tenantImage struct {
	Tenant
	Used  lockstep.Bytes `json:"used,omitempty"`
	Going lockstep.Bytes `json:"going,omitempty"`
	Idle  bool           `json:"idle,omitempty"`
	Until int64          `json:"until,omitempty"`
}

// Snapshot writes the whole ledger: one line with format, version and SHA-256, then
// JSON. Equal ledgers give equal bytes.
func (l *Ledger) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "sharing: snapshot", ledgerFormat, version, l.image())
}

// RestoreLedger reads what a Ledger's Snapshot wrote, configuration included. Bytes
// that are cut short, changed, of another version or of no possible ledger are
// ErrInvalid.
func RestoreLedger(r io.Reader) (*Ledger, error) {
	var img ledgerImage
	return restored(r, "sharing: restore", ledgerFormat, &img, img.ledger, func(l *Ledger) any { return l.image() })
}

func (l *Ledger) image() *ledgerImage {
	img := &ledgerImage{Config: l.given, Now: l.now, Above: l.above, Tenants: make([]tenantImage, 0, len(l.tenants))}
	for _, a := range l.sorted() {
		img.Tenants = append(img.Tenants, tenantImage{Tenant: a.Tenant, Used: a.used, Going: a.going, Idle: a.idle, Until: a.until})
	}
	return img
}

// ledger returns the ledger that img is of, or why there is none.
func (img *ledgerImage) ledger() (*Ledger, string, error) {
	l, err := NewLedger(img.Config)
	if err != nil {
		return nil, "", err
	}
	l.now, l.above = img.Now, img.Above
	for i := range img.Tenants {
		if reason, err := l.readmit(&img.Tenants[i]); err != nil || reason != "" {
			return nil, "tenants[" + strconv.Itoa(i) + "] " + reason, err
		}
	}
	short := l.used <= l.mark(l.cfg.High)
	if l.now < 0 || l.above < 0 || short != (l.above == instant.Never) || !short && l.above > l.now {
		return nil, "its times do not agree", nil
	}
	return l, "", nil
}

// readmit takes a saved tenant in and returns what is wrong with it.
func (l *Ledger) readmit(t *tenantImage) (reason string, err error) {
	v, err := l.Admit(t.Tenant)
	switch {
	case err != nil:
		return "", err
	case !v.Feasible:
		return "does not fit", nil
	case t.Used < 0 || t.Used > maxMemory || t.Going < 0 || t.Going > t.Used:
		return "holds what it cannot", nil
	case t.Until < 0 || t.Until > instant.Add(max(l.now, 0), l.cfg.Cooldown):
		return "is left alone for longer than a cool-down", nil
	}
	a := l.tenants[t.ID]
	a.used, a.going, a.idle, a.until = t.Used, t.Going, t.Idle, t.Until
	l.used += t.Used - t.Going
	return "", nil
}

// lanesImage is the saved form of Lanes.
type lanesImage struct {
	Config   LaneConfig     `json:"config"`
	Now      int64          `json:"now"`
	Sessions []sessionImage `json:"sessions"` // by ID
}

// sessionImage is the saved form of a session.
type sessionImage struct {
	Session
	Lane   int   `json:"lane"`
	Phase  phase `json:"phase"`
	Since  int64 `json:"since,omitempty"`
	Served int64 `json:"served,omitempty"`
}

// Snapshot writes all of l: one line with format, version and SHA-256, then JSON.
// Equal lanes give equal bytes.
func (l *Lanes) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "sharing: snapshot", lanesFormat, version, l.image())
}

// RestoreLanes reads what the Snapshot of Lanes wrote, configuration included. Bytes
// that are cut short, changed, of another version or of no possible lanes are
// ErrInvalid.
func RestoreLanes(r io.Reader) (*Lanes, error) {
	var img lanesImage
	return restored(r, "sharing: restore", lanesFormat, &img, img.lanes, func(l *Lanes) any { return l.image() })
}

func (l *Lanes) image() *lanesImage {
	img := &lanesImage{Config: l.cfg, Now: l.now, Sessions: make([]sessionImage, 0, len(l.sessions))}
	for _, s := range l.sessions { // in any order: sorted below
		img.Sessions = append(img.Sessions, sessionImage{Session: s.Session, Lane: s.lane, Phase: s.phase, Since: s.since, Served: s.served})
	}
	slices.SortFunc(img.Sessions, func(a, b sessionImage) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return img
}

// lanes returns the lanes that img is of, or why there are none.
func (img *lanesImage) lanes() (*Lanes, string, error) {
	l, err := NewLanes(img.Config)
	if err != nil {
		return nil, "", err
	}
	l.now = img.Now
	if l.now < 0 || len(img.Sessions) > maxTenants {
		return nil, "too early a time or too many sessions", nil
	}
	for i := range img.Sessions {
		if reason, err := l.reenter(&img.Sessions[i]); err != nil || reason != "" {
			return nil, "sessions[" + strconv.Itoa(i) + "] " + reason, err
		}
	}
	open := 0
	for i := range l.lanes {
		if len(l.lanes[i].sessions) > 0 {
			open++
		}
	}
	if l.free() < 0 || l.cfg.Lanes != 0 && open > l.cfg.Lanes {
		return nil, "more memory or lanes than there are", nil
	}
	return l, "", nil
}

// reenter puts a saved session into its lane and returns what is wrong with it.
func (l *Lanes) reenter(t *sessionImage) (reason string, err error) {
	s, err := t.rounded("sharing: restore")
	switch {
	case err != nil:
		return "", err
	case l.sessions[s.ID] != nil:
		return "stands twice", nil
	case t.Lane < 0 || t.Lane >= maxTenants:
		return "is in no lane", nil
	case t.Phase < paused || t.Phase > running || t.Since < 0 || t.Since > l.now || t.Phase != running && t.Since != 0 || t.Served < 0 || t.Served > l.now:
		return "is in no possible phase", nil
	}
	e := &session{Session: s, lane: t.Lane, phase: t.Phase, since: t.Since, served: t.Served}
	l.enter(e)
	if n := &l.lanes[e.lane]; e.phase == running {
		if n.running != nil {
			return "runs beside another of its lane", nil
		}
		n.running = e
	}
	return "", nil
}

// pairsImage is the saved form of Pairs.
type pairsImage struct {
	Config PackConfig   `json:"config"`
	Pairs  []corunImage `json:"pairs"` // by kinds, the lesser of a pair first
}

// corunImage is the saved form of a pair and its rates.
type corunImage struct {
	A     Kind     `json:"a"`
	B     Kind     `json:"b"`
	Rates [2]int64 `json:"rates"`
	Bad   int      `json:"bad,omitempty"`
}

// Snapshot writes the whole table: one line with format, version and SHA-256, then
// JSON. Equal tables give equal bytes.
func (p *Pairs) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "sharing: snapshot", pairsFormat, version, p.image())
}

// RestorePairs reads what the Snapshot of Pairs wrote, configuration included. Bytes
// that are cut short, changed, of another version or of no possible table are
// ErrInvalid.
func RestorePairs(r io.Reader) (*Pairs, error) {
	var img pairsImage
	return restored(r, "sharing: restore", pairsFormat, &img, img.pairs, func(p *Pairs) any { return p.image() })
}

func (p *Pairs) image() *pairsImage {
	img := &pairsImage{Config: p.given, Pairs: make([]corunImage, 0, len(p.rates))}
	for _, k := range p.sorted() {
		c := p.rates[k]
		img.Pairs = append(img.Pairs, corunImage{A: k.a, B: k.b, Rates: c.rates, Bad: c.bad})
	}
	return img
}

// pairs returns the table that img is of, or why there is none.
func (img *pairsImage) pairs() (*Pairs, string, error) {
	p, err := NewPairs(img.Config)
	if err != nil {
		return nil, "", err
	}
	for i := range img.Pairs {
		c := &img.Pairs[i]
		if err := p.Set(c.A, c.B, c.Rates[0], c.Rates[1]); err != nil {
			return nil, "", err
		}
		if cmp.Compare(c.A, c.B) > 0 || c.Bad < 0 || c.Bad >= p.cfg.Patience {
			return nil, "pairs[" + strconv.Itoa(i) + "] is in no possible state", nil
		}
		p.rates[pair{c.A, c.B}] = corun{rates: c.Rates, bad: c.Bad}
	}
	return p, "", nil
}
