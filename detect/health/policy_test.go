package health

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// want is what the sources say about each XID that they say anything about.
var want = []struct { // immutable
	class  Class
	action Action
	codes  []uint64
}{
	{"application", ActionNone, []uint64{8, 11, 13, 25, 31, 32, 39, 40, 41, 68, 69, 80, 94, 100}},
	{"informational", ActionNone, []uint64{14, 37, 38, 43, 44, 63, 93, 121, 137, 141, 154, 160, 161, 162, 171, 172}},
	{"informational", ActionWatch, []uint64{45, 92, 157}},
	{"device", ActionReset, []uint64{46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}},
	{"bus", ActionReboot, []uint64{79}},
	{"software", ActionReboot, []uint64{151}},
	{"link", ActionCordon, []uint64{74}},
	{"link", ActionWatch, []uint64{144, 145, 146, 147, 148, 149, 150}},
	{"mechanical", ActionInspect, []uint64{54}},
	{"software", ActionCordon, []uint64{78}},
	{"device", ActionWatch, []uint64{163}},
}

// became is what the first transition after one occurrence, alone, leads to.
var became = map[Action]State{ActionNone: Healthy, ActionWatch: Suspect, ActionCordon: Cordoned, ActionReset: Draining, ActionReboot: Draining, ActionInspect: Draining} // immutable

func TestEveryXIDIsClassed(t *testing.T) {
	p := Catalog()
	for _, w := range want {
		for _, n := range w.codes {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				e, ok := p.Lookup(XID(n))
				require.True(t, ok)
				require.Equal(t, w.class, e.Class)
				require.Equal(t, w.action, e.Action)
				require.NotEmpty(t, e.Name)
				b := newBed(t, quietly(), 1, 1)
				b.at(time.Minute, Event{Kind: Fault, Code: XID(n), Job: "j"})
				b.step(5 * time.Minute)
				require.Equal(t, became[w.action], b.state(0, 0))
			})
		}
	}
}

func TestAnUnknownXIDIsNeverHealthy(t *testing.T) {
	for _, n := range []uint64{0, 1, 17, 164, 169, 999, 1<<64 - 1} {
		e, ok := Catalog().Lookup(XID(n))
		require.False(t, ok)
		require.Equal(t, ClassUnknown, e.Class)
		b := newBed(t, quietly(), 1, 1)
		b.at(time.Minute, Event{Kind: Fault, Code: XID(n)})
		b.step(time.Minute + 1)
		require.Equal(t, Cordoned, b.state(0, 0))
	}
	cfg := quietly()
	cfg.Policy = Catalog()
	cfg.Policy.Unknown.Action = ActionWatch
	b := newBed(t, cfg, 1, 1)
	b.at(time.Minute, Event{Kind: Fault, Code: XID(999)})
	b.step(time.Minute + 1)
	require.Equal(t, Suspect, b.state(0, 0), "what becomes of it can be chosen")
	for _, a := range []Action{ActionNone, "", "what"} {
		cfg.Policy.Unknown.Action = a
		require.ErrorIs(t, cfg.Validate(), lockstep.ErrInvalid)
	}
}

func TestEveryEntrySaysWhereItIsFrom(t *testing.T) {
	for _, p := range []Policy{Catalog(), DevicePlugin(), GPUd()} {
		require.NoError(t, p.Validate())
		require.NotEmpty(t, p.Name)
		require.NotEmpty(t, p.Version)
		for _, e := range p.Entries {
			_, err := time.Parse(time.DateOnly, e.Date)
			require.NoError(t, err, e.Code)
			require.NotEmpty(t, e.Source)
			require.NotEmpty(t, e.Version)
		}
	}
}

func TestPoliciesAreData(t *testing.T) {
	for _, p := range []Policy{Catalog(), DevicePlugin(), GPUd()} {
		text, err := json.Marshal(p)
		require.NoError(t, err)
		var q Policy
		require.NoError(t, json.Unmarshal(text, &q))
		require.Equal(t, p, q)
	}
}

func TestEntriesAreOverriddenOneByOne(t *testing.T) {
	p := Catalog()
	before := slices.Clone(p.Entries)
	ours := Entry{Code: XID(109), Class: "application", Action: ActionNone, Source: "us", Version: "1", Date: "2026-01-01"}
	more := Entry{Code: "fan", Class: "mechanical", Action: ActionWatch, Source: "us", Version: "1", Date: "2026-01-01"}
	q := p.With(ours, more)
	require.NoError(t, q.Validate())
	require.Equal(t, before, p.Entries)
	require.Len(t, q.Entries, len(p.Entries)+1)
	e, _ := q.Lookup(XID(109))
	require.Equal(t, ours, e)
	e, ok := q.Lookup("fan/2")
	require.True(t, ok)
	require.Equal(t, more, e)
}

func TestLookupGoesFromTheSpecialToTheGeneral(t *testing.T) {
	p := Catalog()
	for code, action := range map[Code]Action{ // each by itself, in any order
		"xid/145":            ActionWatch,
		"xid/145/fatal":      ActionReset,
		"xid/145/nonfatal":   ActionNone,
		"xid/145/fatal/rlw":  ActionReset,
		"xid/145/unheard-of": ActionWatch,
		"xid/1450":           ActionCordon,
		"xid":                ActionCordon,
	} {
		e, _ := p.Lookup(code)
		require.Equal(t, action, e.Action, code)
	}
}

// TestPoliciesDisagree shows what the other two do otherwise.
func TestPoliciesDisagree(t *testing.T) {
	first := func(p Policy, n uint64) State {
		cfg := quietly()
		cfg.Policy = p
		b := newBed(t, cfg, 1, 1)
		b.at(time.Minute, Event{Kind: Fault, Code: XID(n), Job: "j"})
		b.step(2 * time.Minute)
		return b.state(0, 0)
	}
	for _, c := range []struct {
		code                  uint64
		catalog, plugin, gpud State
	}{
		{13, Healthy, Healthy, Healthy},
		{109, Draining, Healthy, Draining},
		{94, Healthy, Cordoned, Healthy},
		{63, Healthy, Cordoned, Healthy},
		{79, Draining, Cordoned, Draining},
		{45, Suspect, Healthy, Suspect},
	} {
		require.Equal(t, c.catalog, first(Catalog(), c.code), c.code)
		require.Equal(t, c.plugin, first(DevicePlugin(), c.code), c.code)
		require.Equal(t, c.gpud, first(GPUd(), c.code), c.code)
	}
	ignored := []Code{}
	for _, e := range DevicePlugin().Entries {
		require.Equal(t, ActionNone, e.Action)
		ignored = append(ignored, e.Code)
	}
	require.ElementsMatch(t, []Code{"xid/13", "xid/31", "xid/43", "xid/45", "xid/68", "xid/109"}, ignored)
	e, _ := GPUd().Lookup(XID(119))
	require.Equal(t, ActionReboot, e.Action)
	require.Equal(t, 2, e.Reboots)
	e, _ = GPUd().Lookup(XID(94))
	require.Equal(t, -1, e.Reboots)
}

func TestBadPoliciesAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(p *Policy){ // each by itself, in any order
		"order":    func(p *Policy) { p.Entries[0], p.Entries[1] = p.Entries[1], p.Entries[0] },
		"twice":    func(p *Policy) { p.Entries[1] = p.Entries[0] },
		"code":     func(p *Policy) { p.Entries[0].Code = "A" },
		"action":   func(p *Policy) { p.Entries[3].Action = "explode" },
		"escalate": func(p *Policy) { p.Entries[3].Escalate = "explode" },
		"class":    func(p *Policy) { p.Entries[3].Class = "" },
		"signal":   func(p *Policy) { p.Entries[3].Signal = "smoke" },
		"limit":    func(p *Policy) { p.Entries[3].Limit = -1 },
		"window":   func(p *Policy) { p.Entries[3].Window = -1 },
		"for":      func(p *Policy) { p.Entries[3].For = 1<<63 - 1 },
		"repeat":   func(p *Policy) { p.Entries[3].Repeat = 17 },
		"reboots":  func(p *Policy) { p.Entries[3].Reboots = -2 },
		"quorum":   func(p *Policy) { p.Entries[3].Quorum = -1 },
		"probe":    func(p *Policy) { p.Entries[3].Probe = "/" },
		"cancels":  func(p *Policy) { p.Entries[3].Cancels = []Code{p.Entries[3].Code} },
		"source":   func(p *Policy) { p.Entries[3].Source = "" },
		"unknown":  func(p *Policy) { p.Unknown.Class = "fine" },
	} {
		p := Catalog()
		spoil(&p)
		require.ErrorIs(t, p.Validate(), lockstep.ErrInvalid, name)
		_, err := New(Config{Policy: p})
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
	}
}

func TestCodes(t *testing.T) {
	for _, c := range []Code{"a", "xid/79", "xid/145/fatal", "a-b_c.d/0", Code(strings.Repeat("x", 64))} {
		require.NoError(t, c.Validate())
	}
	for _, c := range []Code{"", "/", "a/", "/a", "a//b", "A", "a b", "ä", Code(strings.Repeat("x", 65))} {
		require.ErrorIs(t, c.Validate(), lockstep.ErrInvalid, "%q", c)
	}
}

func TestBadConfigsReportAllFaults(t *testing.T) {
	require.NoError(t, Config{}.Validate())
	c := Config{Watch: -1, Dwell: 2 * time.Hour, MaxDwell: time.Hour, Relapse: -1, SameRelapses: 17, AnyRelapses: -1, Repeat: 17, Reboots: -1, Crowd: -1, Blast: 1001, Floor: -1, Stale: -1, Skew: -1, Decay: -1, Hold: -1, Teardown: -1, Coalesce: -1, RepeatWindow: -1}
	err := c.Validate()
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{"Watch", "MaxDwell", "Relapse", "SameRelapses", "AnyRelapses", "Repeat ", "Reboots", "Crowd", "Blast", "Floor", "Stale", "Skew", "Decay", "Hold", "Teardown", "Coalesce", "RepeatWindow"} {
		require.Contains(t, err.Error(), field)
	}
}
