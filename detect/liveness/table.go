package liveness

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

const in instant.In = "liveness" // whose times are read

const never = instant.Never

// life is how far a member got.
type life uint8

const (
	unseen life = iota // joined, no beat yet
	live               // beats, or did
	dead
	gone
)

// slot is one member of a table, with times in nanoseconds.
type slot[K cmp.Ordered] struct {
	key K
	inc uint64

	life   life
	told   State // what the last event said
	said   lockstep.Reason
	of     uint64          // and of which incarnation
	why    lockstep.Reason // why it is quiet or dead
	joined int64
	last   int64 // last beat; joined before the first
	paused int64 // until when it said to be silent

	quiet   bool   // it was found silent or cut off, and did not settle since
	quietAt int64  // when silence makes it quiet
	deadAt  int64  // when silence makes it dead
	cutAt   int64  // when its connection closed, unless it beat later; never where it did not
	calmAt  int64  // when it has settled; never where it is not on its way to
	hold    int64  // until when it does not die of silence, since a witness saw it
	cohort  int64  // and until when not, since it is part of a partition
	steady  int64  // since when it is not quiet
	relapse uint8  // how often it fell quiet again soon
	win     window // its intervals

	hung     bool
	phase    Phase
	mask     uint16 // phases since the last progress
	progress uint64
	moved    int64 // last progress
	since    int64 // last progress or change of phase
	spoke    int64 // last beat that was not rewound
}

// gap is what is known of the gaps between progress in one phase: the longest of
// this stretch of Config.Memory and of the one before.
type gap struct {
	Longest [2]int64 `json:"longest"`
	Seen    [2]int64 `json:"seen"`
	Block   int64    `json:"block"` // number of the present stretch, since 1970
}

// table judges members by their beats: the ranks of a node, or the nodes of a job.
// Slots have no order; at is apart from them, since a check reads all of it.
// Invariant: while dirty is false, at[i] is due(&slots[i]).
type table[K cmp.Ordered] struct {
	cfg      Config
	rules    [maxPhases]Rule
	z        [2]int64 // millionths of sigma at which a member is quiet, and dead
	progress bool     // whether progress is judged

	now      int64
	pausedTo int64 // silence and lack of progress count from then on at the earliest
	late     int64 // since when the caller was away, not told yet; never where it was not
	blindAt  int64 // when that was found last; never once it counts no more

	gaps  [maxPhases]gap
	allow [maxPhases]int64 // gap that each phase is allowed

	index map[K]int32
	slots []slot[K]
	at    []int64  // when a check has to look at the slot
	ring  []uint32 // cfg.Window intervals for each slot
	dirty bool     // whether allow changed since at was worked out
	mixed bool     // whether slots may be in another order than that of their keys
}

func newTable[K cmp.Ordered](cfg Config, progress bool) (*table[K], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t := &table[K]{progress: progress, late: never, blindAt: never, index: make(map[K]int32)}
	t.use(cfg)
	return t, nil
}

// use makes cfg, which is valid, the configuration.
func (t *table[K]) use(cfg Config) {
	old := t.cfg.Memory
	t.cfg = cfg.withDefaults()
	t.cfg.Rules = slices.Clone(cfg.Rules)
	t.rules = t.cfg.table()
	t.z = [2]int64{sigmasFor(t.cfg.Suspect), sigmasFor(t.cfg.Dead)}
	for p := range t.gaps {
		if t.cfg.Memory != old {
			t.gaps[p].Block = t.now / int64(t.cfg.Memory)
		}
		t.allow[p] = t.allowed(Phase(p))
	}
	t.reset()
}

// reset works the deadlines of all out anew.
func (t *table[K]) reset() {
	for i := range t.slots {
		t.set(int32(i))
	}
	t.dirty = false
}

// tune replaces the configuration while the table is in use.
func (t *table[K]) tune(op string, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.withDefaults().Window != t.cfg.Window {
		return fault(lockstep.ErrInvalid, op, "Window", "", "cannot change while in use")
	}
	rules := cfg.table()
	for i := range t.slots {
		if s := &t.slots[i]; rules[s.phase].Gap == 0 {
			return fault(lockstep.ErrConflict, op, "Rules", s.phase.String(), "a rank is in this phase, which would have no rule")
		}
	}
	t.use(cfg)
	return nil
}

// enter reads now. It changes nothing.
func (t *table[K]) enter(op string, now time.Time) (int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err != nil {
		return 0, err
	}
	return ns, in.NotBefore(op, "now", now, ns, t.now)
}

// pass makes ns the present. A caller that was to come back long ago could not
// have heard a beat either, so that silence counts from now on; but not twice in
// a row, for a caller that is always late.
func (t *table[K]) pass(ns int64) {
	if late := int64(t.cfg.Late); ns-t.now > late && t.blindAt == never {
		if from := max(t.now, t.wake()); from < never && ns-from > late {
			t.late, t.blindAt = min(t.late, t.now), ns
			t.pause(max(t.pausedTo, ns))
		}
	}
	t.now = ns
}

// seeing notes that a check decides at ns.
func (t *table[K]) seeing(ns int64) {
	if ns > t.blindAt {
		t.blindAt = never
	}
}

// wake returns when a check has to look next.
func (t *table[K]) wake() int64 {
	t.refresh()
	at := int64(never)
	for _, a := range t.at {
		at = min(at, a)
	}
	return at
}

// refresh works out anew when to look at whom, if the gaps allowed changed.
func (t *table[K]) refresh() {
	if !t.dirty {
		return
	}
	t.dirty = false
	for i := range t.slots {
		t.at[i] = t.due(&t.slots[i])
	}
}

// join adds key, or brings it back as a later incarnation.
func (t *table[K]) join(op, field, name string, key K, inc uint64) error {
	i, ok := t.index[key]
	if ok {
		switch s := &t.slots[i]; {
		case inc < s.inc:
			return fault(lockstep.ErrStale, op, field, name, "a later incarnation has joined")
		case inc == s.inc:
			return fault(lockstep.ErrDuplicate, op, field, name, "this incarnation has joined")
		}
	}
	return nil
}

// add carries out a join that join let pass.
func (t *table[K]) add(ns int64, key K, inc uint64) int32 {
	i, ok := t.index[key]
	told, of := Unknown, inc
	if ok {
		told, of = t.slots[i].told, t.slots[i].of
	} else {
		i = int32(len(t.slots))
		t.index[key] = i
		t.mixed = t.mixed || i > 0 && key < t.slots[i-1].key
		t.slots = append(t.slots, slot[K]{})
		t.at = append(t.at, never)
		t.ring = append(t.ring, make([]uint32, t.cfg.Window)...)
	}
	t.slots[i] = slot[K]{
		key: key, inc: inc, told: told, said: reasonJoined, of: of, joined: ns, last: ns,
		cutAt: never, calmAt: never, steady: ns, moved: ns, since: ns, spoke: ns,
	}
	t.seed(i)
	t.set(i)
	return i
}

// seed gives a member the estimate of its intervals: two, one sigma of a quarter
// apart from Config.Interval (as Akka's accrual detector does, version 2.6).
func (t *table[K]) seed(i int32) {
	mean := int64(t.cfg.Interval) / thousand
	for _, x := range [...]int64{mean - mean/4, mean + mean/4} {
		t.slots[i].win.push(t.intervals(i), uint32(min(x, maxSample)))
	}
}

func (t *table[K]) intervals(i int32) []uint32 {
	w := t.cfg.Window
	return t.ring[int(i)*w : (int(i)+1)*w]
}

// drop takes out slot i, and puts the last one in its place.
func (t *table[K]) drop(i int32) {
	end := int32(len(t.slots) - 1)
	delete(t.index, t.slots[i].key)
	if i != end {
		t.mixed = true
		t.slots[i], t.at[i] = t.slots[end], t.at[end]
		copy(t.intervals(i), t.intervals(end))
		t.index[t.slots[i].key] = i
	}
	t.slots[end] = slot[K]{}
	t.slots, t.at, t.ring = t.slots[:end], t.at[:end], t.ring[:int(end)*t.cfg.Window]
}

// pause lets silence and lack of progress count from until on.
func (t *table[K]) pause(until int64) {
	t.pausedTo = until
	t.reset()
}
