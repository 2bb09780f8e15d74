package health

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Code names a kind of evidence in parts from the general to the special, such
// as "xid/79", "xid/145/fatal" or "ecc/uncorrected": up to 64 lower-case letters,
// digits and - . _ with / between parts.
type Code string

// CodeSlow is the code of what package detect found slow. Only a probe named
// "speed" clears it.
const CodeSlow Code = "slow"

// The codes that the machine itself raises.
const (
	codeLost  Code = "lost"  // its observer no longer sees a device
	codeProbe Code = "probe" // a probe failed; the probe's name follows
)

// maxCode is the longest code in bytes.
const maxCode = 64

// XID returns the code of an XID of NVIDIA's driver.
func XID(n uint64) Code { return Code("xid/" + strconv.FormatUint(n, 10)) }

// Validate reports whether c is a usable code. The error is of kind ErrInvalid.
func (c Code) Validate() error {
	if c.valid() {
		return nil
	}
	return fault(lockstep.ErrInvalid, "code", "Code", errtext.Quote(c), "want 1 to 64 of a-z 0-9 - . _ with / between parts")
}

func (c Code) valid() bool {
	if c == "" || len(c) > maxCode {
		return false
	}
	part := 0
	for i := range len(c) {
		switch b := c[i]; {
		case b >= 'a' && b <= 'z', b >= '0' && b <= '9', b == '-', b == '.', b == '_':
			part++
		case b == '/' && part > 0:
			part = 0
		default:
			return false
		}
	}
	return part > 0
}

// parent returns c without its last part, "" where it has but one.
func (c Code) parent() Code {
	return c[:max(0, strings.LastIndexByte(string(c), '/'))]
}

// under reports whether c is of or one of its special cases.
func (c Code) under(of Code) bool {
	return c == of || len(c) > len(of) && c[len(of)] == '/' && c[:len(of)] == of
}

// Class says what a code is about. The words of the policies here are
// application, informational, device, bus, link, mechanical, software, thermal,
// network, performance and unknown; the machine decides by none but unknown.
type Class string

// ClassUnknown is the class of a code that a policy does not list.
const ClassUnknown Class = "unknown"

// Action is what a piece of evidence asks for.
type Action string

// The actions, from the mildest to the gravest. Each includes those before it.
const (
	ActionNone    Action = "none"    // ActionNone: keep it on record.
	ActionWatch   Action = "watch"   // ActionWatch: prefer others.
	ActionCordon  Action = "cordon"  // ActionCordon: place no new work.
	ActionDrain   Action = "drain"   // ActionDrain: let the work leave.
	ActionReset   Action = "reset"   // ActionReset: then reset the device.
	ActionReboot  Action = "reboot"  // ActionReboot: or rather reboot its node.
	ActionInspect Action = "inspect" // ActionInspect: or rather have somebody look at it.
)

// rank returns where a stands among the actions, -1 for none of them.
func (a Action) rank() int {
	switch a {
	case ActionNone:
		return 0
	case ActionWatch:
		return 1
	case ActionCordon:
		return 2
	case ActionDrain:
		return 3
	case ActionReset:
		return 4
	case ActionReboot:
		return 5
	case ActionInspect:
		return 6
	}
	return -1
}

// worse returns the graver of two actions.
func worse(a, b Action) Action {
	if a.rank() >= b.rank() {
		return a
	}
	return b
}

// Signal says how the values of a code are judged.
type Signal string

// The signals. They are few and their words are data, so they stay here.
const (
	signalEvent   Signal = ""        // each report counts
	signalCounter Signal = "counter" // a count since the driver was loaded, judged by its growth
	signalTotal   Signal = "total"   // a count over the device's life, judged by its growth
	signalLevel   Signal = "level"   // counts while it is at or beyond the limit
)

// Entry is what a policy says about a code.
type Entry struct {
	Code        Code          `json:"code"`                  // Code is what it is about, with all its special cases that have no entry of their own.
	Name        string        `json:"name,omitempty"`        // Name is what people call it.
	Class       Class         `json:"class"`                 // Class is what it is about.
	Action      Action        `json:"action"`                // Action is what one occurrence asks for.
	Signal      Signal        `json:"signal,omitempty"`      // Signal says how values are judged: "" each report counts; "counter" and "total" by growth (one that fell began anew: a counter at 0, a total at an unknown place); "level" while at or beyond Limit.
	Limit       int64         `json:"limit,omitempty"`       // Limit is the growth within Window that counts, or the level; 0 means 1.
	Window      time.Duration `json:"window,omitempty"`      // Window is in what time Limit of a count leaks away; 0 means never.
	For         time.Duration `json:"for,omitempty"`         // For is how long a level must last to count.
	Below       bool          `json:"below,omitempty"`       // Below says that a level counts while it is at most Limit.
	Repeat      int           `json:"repeat,omitempty"`      // Repeat is how many occurrences within Config.RepeatWindow ask for Escalate, at most 16; 0 means Config.Repeat, -1 that none do.
	Escalate    Action        `json:"escalate,omitempty"`    // Escalate is what repetition asks for; "" means ActionInspect.
	Reboots     int           `json:"reboots,omitempty"`     // Reboots is how many reboots may fail to help, at most 16, until somebody has to look; 0 means Config.Reboots, -1 any number.
	PerJob      bool          `json:"perJob,omitempty"`      // PerJob says that a job counts once for Repeat.
	Teardown    bool          `json:"teardown,omitempty"`    // Teardown says that it is nothing near the end of a job.
	Sympathetic bool          `json:"sympathetic,omitempty"` // Sympathetic says that it is nothing where many devices of a job have it at once.
	Alone       bool          `json:"alone,omitempty"`       // Alone says that it is nothing beside other codes.
	Certain     bool          `json:"certain,omitempty"`     // Certain says that it proves a fault of this device, so that Config.Blast does not hold it back.
	Quorum      int           `json:"quorum,omitempty"`      // Quorum is how many sources must report it within Config.Hold, at most 16; 0 means 1.
	Probe       Code          `json:"probe,omitempty"`       // Probe names the probe that must pass before it is forgiven, where more than time has to; "" means any.
	Cancels     []Code        `json:"cancels,omitempty"`     // Cancels are the codes that are over once this one comes. The policy owns it.
	Source      string        `json:"source"`                // Source is who says so.
	Version     string        `json:"version"`               // Version is of the source.
	Date        string        `json:"date"`                  // Date is of that version, or when it was read where it bears none: "2006-01-02".
}

// Policy is what is known about codes, as data. Its JSON form can be kept, changed
// and read again.
type Policy struct {
	Name    string  `json:"name"`    // Name is what people call it.
	Version string  `json:"version"` // Version tells editions of it apart.
	Unknown Entry   `json:"unknown"` // Unknown is for codes without an entry: its class is ClassUnknown, its action at least ActionWatch, its code "".
	Entries []Entry `json:"entries"` // Entries are by code, each once. The policy owns it.
}

// Lookup returns the entry of c or of the most special case of which it is one,
// and Unknown and false where there is none. O(log entries).
func (p Policy) Lookup(c Code) (Entry, bool) {
	for ; c != ""; c = c.parent() {
		if i, ok := slices.BinarySearchFunc(p.Entries, c, byCode); ok {
			return p.Entries[i], true
		}
	}
	return p.Unknown, false
}

// With returns p with the given entries in place of those of the same code, or
// added. It changes neither p nor what it is given.
func (p Policy) With(entries ...Entry) Policy {
	p.Entries = slices.Clone(p.Entries)
	for _, e := range entries {
		i, ok := slices.BinarySearchFunc(p.Entries, e.Code, byCode)
		if ok {
			p.Entries[i] = e
		} else {
			p.Entries = slices.Insert(p.Entries, i, e)
		}
	}
	return p
}

func byCode(e Entry, c Code) int { return cmp.Compare(e.Code, c) }

// zero reports whether nothing of p is set.
func (p *Policy) zero() bool {
	return p.Name == "" && p.Version == "" && p.Entries == nil && p.Unknown.Action == ""
}

// Validate reports every fault of p, joined.
func (p Policy) Validate() error {
	var f faults
	if p.Unknown.Class != ClassUnknown || p.Unknown.Action.rank() < ActionWatch.rank() || p.Unknown.Code != "" {
		f.add("Policy.Unknown", string(p.Unknown.Class)+" "+string(p.Unknown.Action), `want no code, class "unknown" and an action of at least "watch"`)
	}
	p.Unknown.validate(&f, "Policy.Unknown")
	for i := range p.Entries {
		e, at := &p.Entries[i], "Policy.Entries["+strconv.Itoa(i)+"]"
		if !e.Code.valid() {
			f.add(at+".Code", errtext.Quote(e.Code), "is no code")
		}
		if i > 0 && e.Code <= p.Entries[i-1].Code {
			f.add(at+".Code", errtext.Quote(e.Code), "want entries in the order of their codes, each once")
		}
		if e.Source == "" || e.Version == "" || e.Date == "" {
			f.add(at, errtext.Quote(e.Code), "want source, version and date")
		}
		e.validate(&f, at)
	}
	return errors.Join(f...)
}

func (e *Entry) validate(f *faults, at string) {
	if e.Action.rank() < 0 {
		f.add(at+".Action", errtext.Quote(e.Action), "is no action")
	}
	if e.Escalate != "" && e.Escalate.rank() < 0 {
		f.add(at+".Escalate", errtext.Quote(e.Escalate), "is no action")
	}
	if e.Class == "" {
		f.add(at+".Class", `""`, "want a word")
	}
	switch e.Signal {
	case signalEvent, signalCounter, signalTotal, signalLevel:
	default:
		f.add(at+".Signal", errtext.Quote(e.Signal), `want "", counter, total or level`)
	}
	if e.Limit < 0 {
		f.add(at+".Limit", strconv.FormatInt(e.Limit, 10), "must not be negative")
	}
	f.duration(at+".Window", e.Window)
	f.duration(at+".For", e.For)
	f.between(at+".Repeat", e.Repeat, -1, most)
	f.between(at+".Reboots", e.Reboots, -1, most)
	f.between(at+".Quorum", e.Quorum, 0, most)
	if e.Probe != "" && !e.Probe.valid() {
		f.add(at+".Probe", errtext.Quote(e.Probe), "is no name of a probe")
	}
	for i, c := range e.Cancels {
		if !c.valid() || c == e.Code {
			f.add(at+".Cancels["+strconv.Itoa(i)+"]", errtext.Quote(c), "want another code")
		}
	}
}

func (e *Entry) limit() int64 { return max(e.Limit, 1) }

// waits reports whether occurrences are looked at only after Config.Hold.
func (e *Entry) waits() bool { return e.Teardown || e.Sympathetic || e.Alone }
