package liveness

import (
	"cmp"
	"io"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// formats and version of the saved forms; others are refused.
const (
	monitorFormat     = "lockstep/liveness-monitor"
	coordinatorFormat = "lockstep/liveness-coordinator"
	version           = 1
)

// tableImage is the saved form of a table.
type tableImage[K cmp.Ordered] struct {
	Config   Config         `json:"config"`
	Now      int64          `json:"now"`
	PausedTo int64          `json:"pausedTo"`
	Late     int64          `json:"late"`
	BlindAt  int64          `json:"blindAt"`
	Gaps     [maxPhases]gap `json:"gaps"`
	Members  []record[K]    `json:"members"` // by key
}

// record is the saved form of a slot: what set cannot work out.
type record[K cmp.Ordered] struct {
	Key      K               `json:"key"`
	Inc      uint64          `json:"inc"`
	Life     life            `json:"life"`
	Told     State           `json:"told"`
	Said     lockstep.Reason `json:"said"`
	Of       uint64          `json:"of"`
	Why      lockstep.Reason `json:"why,omitempty"`
	Joined   int64           `json:"joined"`
	Last     int64           `json:"last"`
	Paused   int64           `json:"paused"`
	Quiet    bool            `json:"quiet,omitempty"`
	CutAt    int64           `json:"cutAt"`
	CalmAt   int64           `json:"calmAt"`
	Hold     int64           `json:"hold,omitempty"`
	Steady   int64           `json:"steady"`
	Relapse  uint8           `json:"relapse,omitempty"`
	Cohort   int64           `json:"cohort,omitempty"`
	Samples  []uint32        `json:"samples"` // oldest first
	Hung     bool            `json:"hung,omitempty"`
	Phase    Phase           `json:"phase"`
	Mask     uint16          `json:"mask"`
	Progress uint64          `json:"progress"`
	Moved    int64           `json:"moved"`
	Since    int64           `json:"since"`
	Spoke    int64           `json:"spoke"`
}

// monitorImage is the saved form of a Monitor.
type monitorImage struct {
	Node        lockstep.NodeID `json:"node"`
	Incarnation uint64          `json:"incarnation"`
	Sequence    uint64          `json:"sequence"`
	Table       tableImage[int] `json:"table"`
}

// Snapshot writes the whole monitor: one line with format, version and SHA-256,
// then JSON. Equal monitors give equal bytes.
func (m *Monitor) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "liveness: snapshot", monitorFormat, version, m.image())
}

func (m *Monitor) image() *monitorImage {
	return &monitorImage{m.node, m.inc, m.seq, m.t.image()}
}

// RestoreMonitor reads what Snapshot wrote, configuration included. Bytes that are
// cut short, changed, of another version or of no possible monitor are ErrInvalid.
// The time away is not laid to the ranks: see ObserverLate.
func RestoreMonitor(r io.Reader) (*Monitor, error) {
	const op = "liveness: restore"
	var img monitorImage
	body, err := snapshot.ReadJSON(r, op, monitorFormat, version, &img)
	if err != nil {
		return nil, err
	}
	if err := img.Node.Validate(); err != nil {
		return nil, err
	}
	if img.Sequence > 3*maxCount { // it follows the time, which is below 2 of them
		return nil, fault(lockstep.ErrInvalid, "restore", "sequence", strconv.FormatUint(img.Sequence, 10), "out of range")
	}
	t, err := tableOf(&img.Table, true, func(rank int) bool { return checkRank("restore", rank) == nil })
	if err != nil {
		return nil, err
	}
	m := &Monitor{node: img.Node, inc: img.Incarnation, seq: img.Sequence, t: t}
	if err := snapshot.CheckJSON(op, body, m.image()); err != nil {
		return nil, err
	}
	return m, nil
}

func (t *table[K]) image() tableImage[K] {
	img := tableImage[K]{
		Config: t.cfg, Now: t.now, PausedTo: t.pausedTo, Late: t.late, BlindAt: t.blindAt, Gaps: t.gaps,
		Members: make([]record[K], 0, len(t.slots)),
	}
	for i := range t.slots {
		s := &t.slots[i]
		img.Members = append(img.Members, record[K]{
			Key: s.key, Inc: s.inc, Life: s.life, Told: s.told, Said: s.said, Of: s.of, Why: s.why,
			Joined: s.joined, Last: s.last, Paused: s.paused, Quiet: s.quiet, CutAt: s.cutAt, CalmAt: s.calmAt,
			Hold: s.hold, Steady: s.steady, Relapse: s.relapse, Cohort: s.cohort, Samples: t.samples(int32(i)),
			Hung: s.hung, Phase: s.phase, Mask: s.mask, Progress: s.progress, Moved: s.moved, Since: s.since, Spoke: s.spoke,
		})
	}
	slices.SortFunc(img.Members, func(a, b record[K]) int { return cmp.Compare(a.Key, b.Key) })
	return img
}

// samples returns the intervals of slot i, the oldest first.
func (t *table[K]) samples(i int32) []uint32 {
	w, ring := &t.slots[i].win, t.intervals(i)
	if int(w.n) < len(ring) {
		return slices.Clone(ring[:w.n])
	}
	return slices.Concat(ring[w.head:], ring[:w.head])
}

// tableOf returns the table that img is of; valid says whether a key can be one.
func tableOf[K cmp.Ordered](img *tableImage[K], progress bool, valid func(K) bool) (*table[K], error) {
	t, err := newTable[K](img.Config, progress)
	if err != nil {
		return nil, err
	}
	t.now, t.pausedTo, t.late, t.blindAt, t.gaps = img.Now, img.PausedTo, img.Late, img.BlindAt, img.Gaps
	if reason := t.check(); reason != "" {
		return nil, fault(lockstep.ErrInvalid, "restore", "table", "", reason)
	}
	for p := range t.allow {
		t.allow[p] = t.allowed(Phase(p))
	}
	for k := range img.Members {
		r := &img.Members[k]
		reason := "key is none, or stands twice"
		if _, twice := t.index[r.Key]; valid(r.Key) && !twice {
			reason = checkRecord(t, r)
		}
		if reason != "" {
			return nil, fault(lockstep.ErrInvalid, "restore", "members["+strconv.Itoa(k)+"]", "", reason)
		}
		t.load(r)
	}
	return t, nil
}

// load adds the slot of r, which was checked.
func (t *table[K]) load(r *record[K]) {
	i := t.add(r.Joined, r.Key, r.Inc)
	t.slots[i] = slot[K]{
		key: r.Key, inc: r.Inc, life: r.Life, told: r.Told, said: r.Said, of: r.Of, why: r.Why,
		joined: r.Joined, last: r.Last, paused: r.Paused, quiet: r.Quiet, cutAt: r.CutAt, calmAt: r.CalmAt,
		hold: r.Hold, steady: r.Steady, relapse: r.Relapse, cohort: r.Cohort,
		hung: r.Hung, phase: r.Phase, mask: r.Mask, progress: r.Progress, moved: r.Moved, since: r.Since, spoke: r.Spoke,
	}
	for _, x := range r.Samples {
		t.slots[i].win.push(t.intervals(i), x)
	}
	t.set(i)
}

// check says what is impossible about t, its members aside.
func (t *table[K]) check() string {
	switch {
	case t.now < 0 || t.pausedTo < 0 || t.pausedTo > t.now && t.pausedTo-t.now > int64(lockstep.MaxWalltime):
		return "paused for too long"
	case t.late < 0 || t.late != never && t.late > t.now, t.blindAt < 0 || t.blindAt != never && t.blindAt > t.now:
		return "was away in the future"
	}
	for _, g := range t.gaps {
		if min(g.Longest[0], g.Longest[1], g.Seen[0], g.Seen[1], g.Block) < 0 || g.Block > t.now/int64(t.cfg.Memory) {
			return "gaps out of range"
		}
	}
	return ""
}

// checkRecord says what is impossible about r, a member of t.
func checkRecord[K cmp.Ordered](t *table[K], r *record[K]) string {
	switch {
	case r.Life > gone || r.Told >= states || r.Said == "":
		return "state is unknown"
	case r.Of > r.Inc:
		return "a later incarnation was told of"
	case (r.Quiet || r.Life == dead) && r.Why == "":
		return "has no reason"
	case !slices.IsSorted([]int64{0, r.Joined, r.Moved, r.Since, r.Spoke, r.Last, t.now}):
		return "times out of order"
	case r.Steady < r.Joined || r.Steady > t.now || r.Life == unseen && r.Joined != r.Last:
		return "times out of order"
	case len(r.Samples) < 2 || len(r.Samples) > t.cfg.Window || slices.Max(r.Samples) > maxSample:
		return "intervals out of range"
	}
	return cmp.Or(checkSilence(t, r), checkPhase(t, r))
}

// checkSilence says what is impossible about how r is silent, and excused.
func checkSilence[K cmp.Ordered](t *table[K], r *record[K]) string {
	most := t.now + min(never-t.now, int64(lockstep.MaxWalltime))
	switch {
	case min(r.Paused, r.Hold, r.Cohort) < 0 || max(r.Paused, r.Hold, r.Cohort) > most:
		return "excused for too long"
	case r.CutAt != never && (r.CutAt < r.Last || r.CutAt > t.now || !r.Quiet && r.Life <= live):
		return "cut off at another time"
	case r.CalmAt < r.Joined || r.CalmAt != never && (!r.Quiet || r.CutAt != never):
		return "settles from nothing"
	case r.Relapse > maxRelapses:
		return "relapsed too often"
	}
	return ""
}

// checkPhase says what is impossible about the progress of r.
func checkPhase[K cmp.Ordered](t *table[K], r *record[K]) string {
	switch {
	case r.Phase >= maxPhases || t.rules[r.Phase].Gap == 0:
		return "phase has no rule"
	case r.Life == live && r.Mask&(1<<r.Phase) == 0:
		return "phase is not among those it was in"
	case r.Hung && !t.progress:
		return "is hung where progress is not judged"
	}
	return ""
}
