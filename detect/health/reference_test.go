package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plain is the machine of one device once more, as plainly as it can be said: it goes
// from second to second and knows errors without holds, clears, probes, drains and
// repairs.
type plain struct {
	cfg      Config
	state    State
	since    int
	standing map[Code]int // when evidence that stands came last
	owed     map[Code]int // when evidence that is not forgiven came last
	inspect  map[Code]bool
	bad      int
	pass     int
	drained  int
	fixed    int
	need     int
	left     int // -1 before the first recovery
	level    int
	falls    []relapse
	out      []string
}

func newPlain(cfg Config) *plain {
	return &plain{cfg: cfg.withDefaults(), state: Healthy, standing: map[Code]int{}, owed: map[Code]int{}, inspect: map[Code]bool{}, left: -1, bad: -1, drained: -1, fixed: -1}
}

var plainCodes = []Code{XID(48), XID(74), XID(79), XID(92)} // immutable

// asks is the rank of what a code asks for.
func (p *plain) asks(c Code) int {
	if p.inspect[c] {
		return ActionInspect.rank()
	}
	return map[Code]Action{XID(48): ActionReset, XID(74): ActionCordon, XID(79): ActionReboot, XID(92): ActionWatch}[c].rank()
}

// worst is the gravest code that stands, "" for none.
func (p *plain) worst() (out Code) {
	for _, c := range plainCodes {
		if _, ok := p.standing[c]; ok && (out == "" || p.asks(c) > p.asks(out)) {
			out = c
		}
	}
	return out
}

func (p *plain) apply(e Event, s int) {
	switch e.Kind {
	case Fault:
		p.standing[e.Code], p.owed[e.Code], p.bad = s, s, s
	case Clear:
		if at, ok := p.standing[e.Code]; ok && at < s && !p.inspect[e.Code] {
			delete(p.standing, e.Code)
			p.bad = max(p.bad, s)
		}
	case Repaired:
		if (p.state == Draining || p.state == Quarantined) && e.Action.rank() >= p.need {
			for _, c := range plainCodes {
				if at, ok := p.standing[c]; ok && at < s {
					delete(p.standing, c)
					delete(p.inspect, c)
				}
			}
			p.fixed = s
		}
	case Drained:
		p.drained = s
	case Probe:
		p.pass = s
	}
}

func (p *plain) dwell() int {
	d := p.cfg.Dwell
	if p.state == Suspect {
		d = p.cfg.Watch
	}
	for range p.level {
		d = min(2*d, p.cfg.MaxDwell)
	}
	return int(d / time.Second)
}

func (p *plain) passed(since int) bool {
	for _, at := range p.owed { // all, in any order
		if p.pass <= at {
			return false
		}
	}
	return p.pass > p.bad && p.pass >= since
}

func (p *plain) to(s int, to State, reason string, code Code) {
	if to != Draining && to != Quarantined {
		p.need = 0
	}
	p.out = append(p.out, fmt.Sprintf("%d %s>%s %s %s", s, p.state, to, reason, code))
	p.state, p.since = to, s
}

func (p *plain) healthy(s int) {
	clear(p.standing)
	clear(p.owed)
	clear(p.inspect)
	p.left = s
	p.to(s, Healthy, "quiet", "")
}

// fall takes p to what code asks for.
func (p *plain) fall(s int, code Code) {
	window := int(p.cfg.Relapse / time.Second)
	reason, asks := "evidence", p.asks(code)
	if p.inspect[code] {
		reason = "repeated"
	}
	if p.state == Probation || p.state == Healthy && p.left >= 0 && s-p.left < window {
		p.falls = append(p.falls, relapse{int64(s), code, asks >= 2})
		p.falls = p.falls[max(0, len(p.falls)-most):]
		same, any := 0, 0
		for _, f := range p.falls {
			if int(f.at) > s-window && f.grave {
				any++
				if f.code == code {
					same++
				}
			}
		}
		if asks >= 2 && (same >= p.cfg.SameRelapses || any >= p.cfg.AnyRelapses) {
			p.inspect[code] = true
			reason, asks = "relapse", ActionInspect.rank()
		}
	}
	if p.state == Healthy || p.state == Probation {
		p.level = 0
		for _, f := range p.falls {
			if int(f.at) > s-window {
				p.level++
			}
		}
	}
	switch {
	case asks >= 3 && p.state == Probation:
		p.need = max(asks, ActionReset.rank())
		p.to(s, Quarantined, reason, code)
	case asks >= 3:
		p.need = asks
		p.to(s, Draining, reason, code)
	case asks == 2 || p.state == Probation:
		p.to(s, Cordoned, reason, code)
	default:
		p.to(s, Suspect, reason, code)
	}
}

// second decides about one second.
func (p *plain) second(s int) {
	for {
		n := len(p.out)
		code := p.worst()
		asks := 0
		if code != "" {
			asks = p.asks(code)
		}
		quiet := s >= max(p.bad, p.since)+p.dwell()
		switch p.state {
		case Healthy:
			if asks >= 1 {
				p.fall(s, code)
			}
		case Suspect:
			if asks >= 2 {
				p.fall(s, code)
			} else if quiet {
				p.healthy(s)
			}
		case Cordoned:
			if asks >= 3 {
				p.fall(s, code)
			} else if quiet && p.passed(-1) {
				p.healthy(s)
			}
		case Probation:
			if asks >= 1 {
				p.fall(s, code)
			} else if quiet && p.passed(p.since) {
				p.healthy(s)
			}
		case Draining, Quarantined:
			reason := "evidence"
			if p.inspect[code] {
				reason = "repeated"
			}
			switch {
			case code == "" && p.fixed >= p.since:
				p.to(s, Probation, "repaired", "")
			case code == "" && p.state == Quarantined:
				p.to(s, Probation, "cleared", "")
			case code == "":
				p.to(s, Cordoned, "cleared", "")
			case asks > p.need:
				p.need = asks
				p.out = append(p.out, fmt.Sprintf("%d %s>%s %s %s", s, p.state, p.state, reason, code))
			case p.state == Draining && p.drained >= p.since:
				p.to(s, Quarantined, "drained", code)
			}
		}
		if len(p.out) == n {
			return
		}
	}
}

// TestTheMachineDoesWhatThePlainOneDoes on random events of one device.
func TestTheMachineDoesWhatThePlainOneDoes(t *testing.T) {
	for seed := range seeds() {
		r := newStream(seed)
		cfg := Config{
			Watch: 40 * time.Second, Dwell: time.Minute, MaxDwell: 10 * time.Minute, Relapse: time.Hour, Blast: 1000, Coalesce: time.Second,
			SameRelapses: draw(r, 0, 1, 16), AnyRelapses: draw(r, 0, 2, 16), Stale: quietly().Stale, Policy: Catalog(),
		}
		for _, c := range plainCodes {
			e, _ := cfg.Policy.Lookup(c)
			e.Repeat, e.Reboots = -1, -1
			cfg.Policy = cfg.Policy.With(e)
		}
		b, p := newBed(t, cfg, 1, 1), newPlain(cfg)
		last := 0
		for s := 1; s < 4000; s++ {
			for range r.IntN(20) / 18 * (1 + r.IntN(3)) {
				e := Event{Kind: draw(r, Fault, Clear, Repaired, Drained, Probe, Probe, Probe)}
				switch e.Kind {
				case Fault, Clear:
					e.Code = draw(r, plainCodes...)
				case Repaired:
					e.Action = draw(r, ActionReset, ActionReboot, ActionInspect)
				case Probe:
					e.Code, e.Passed = "diag", true
				}
				b.at(time.Duration(s)*time.Second, e)
			}
			for _, k := range []Kind{Fault, Clear, Repaired, Drained, Probe} {
				for _, q := range b.queue {
					if q.event.Kind == k && q.at == t0.Add(time.Duration(s)*time.Second).UnixNano() {
						p.apply(q.event, s)
					}
				}
			}
			p.second(s)
			if r.IntN(5) == 0 || s == 3999 {
				b.step(time.Duration(s)*time.Second + 1)
				var got []string
				for _, tr := range b.seen {
					got = append(got, fmt.Sprintf("%d %s>%s %s %s", tr.Time.Sub(t0)/time.Second, tr.From, tr.To, tr.Reason, tr.Code))
				}
				require.Equal(t, p.out[last:], got[last:], "seed %d", seed)
				last = len(got)
				require.Equal(t, p.state, b.state(0, 0))
			}
		}
		require.NotEmpty(t, p.out)
	}
}
