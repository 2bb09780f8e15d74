package fleet

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/serving"
)

// ID names a session, an instance type, a variant, a model or a group; the rule is that of lockstep.JobID.
type ID string

// Session is the requests for one model under one objective.
type Session struct {
	ID        ID              `json:"id"`               // ID is its name, unique among those that are packed.
	Rate      float64         `json:"rate"`             // Rate is how many requests come in a second, 0 to 1e9; it is kept to the millionth.
	Objective time.Duration   `json:"objective"`        // Objective is within what a request is to be answered, above 0, up to 100 h.
	Latency   serving.Latency `json:"-"`                // Latency is how long a batch takes on one GPU.
	Memory    lockstep.Bytes  `json:"memory,omitempty"` // Memory is what the model takes of a GPU's, at most 2^50; 0 means that it does not count.
}

// Part is what a GPU does of a session.
type Part struct {
	Session ID      `json:"session"` // Session is whose requests.
	Rate    float64 `json:"rate"`    // Rate is how many of them a second.
	Batch   int     `json:"batch"`   // Batch is the most that are sent at once.
}

// GPU is one device, and the sessions that take turns on it.
type GPU struct {
	Parts     []Part        `json:"parts"`     // Parts are by session; each has one batch in every duty.
	Duty      time.Duration `json:"duty"`      // Duty is the length of a turn of all.
	Occupancy int64         `json:"occupancy"` // Occupancy is how much of that batches take, in millionths, rounded up.
	Saturated bool          `json:"saturated"` // Saturated says that it has one session, which always has requests waiting.
}

// Packing is which GPUs serve which sessions.
type Packing struct {
	GPUs       []GPU `json:"gpus"`                 // GPUs are the saturated ones by session, then the others as they were filled.
	Infeasible []ID  `json:"infeasible,omitempty"` // Infeasible are sessions whose objective no batch keeps, or whose model no GPU holds, sorted; no GPU serves them.
	Least      int   `json:"least"`                // Least is how many GPUs any packing needs: what requests take in the best batches there are.
}

// maxFull is the most GPUs that sessions may fill, together.
const maxFull = 1 << 20

// Pack says how many GPUs sessions need when models take turns, and which sit together. It is squishy bin packing: a
// session's batch shrinks with the turn, so that its size as an item depends on what it is packed with (Shen et al.,
// "Nexus", SOSP 2019, section 6.1). Sessions that fill GPUs take those; what is left of each is merged, the most
// occupying first, each into the GPU on which it then comes to the highest occupancy, until no two GPUs can be merged.
// What the paper does not: a turn that is too short for all is tried at shorter lengths too; other orders are tried, and
// for up to 8 such GPUs all ways; what takes fewer GPUs wins, of equals the paper's way.
//
// Memory is what a GPU has, 0 for no limit. Bad input is ErrInvalid or ErrDuplicate.
func Pack(sessions []Session, memory lockstep.Bytes) (Packing, error) {
	f := faults{op: "pack"}
	f.count("memory", int64(memory), 0, int64(maxMemory))
	f.count("len(sessions)", int64(len(sessions)), 0, maxItems)
	f.names("sessions", len(sessions), func(i int) ID { return sessions[i].ID })
	for i, s := range sessions {
		s.check(&f, "sessions["+strconv.Itoa(i)+"].")
	}
	if f.err() == nil {
		fills := int64(0)
		for _, s := range sessions {
			fills += s.fills()
		}
		if fills > maxFull {
			f.bad("sessions", "", "fill "+strconv.FormatInt(fills, 10)+" GPUs, want at most "+strconv.Itoa(maxFull))
		}
	}
	if err := f.err(); err != nil {
		return Packing{}, err
	}
	sorted := slices.Clone(sessions)
	slices.SortFunc(sorted, func(a, b Session) int { return cmp.Compare(a.ID, b.ID) })
	var out Packing
	var rest []*bin
	var need int64
	for _, s := range sorted {
		micro := int64(math.Round(s.Rate * million))
		if micro == 0 {
			continue
		}
		gpus, left, ok := s.split(micro, memory)
		if !ok {
			out.Infeasible = append(out.Infeasible, s.ID)
			continue
		}
		need = addSat(need, s.least(micro))
		out.GPUs = append(out.GPUs, gpus...)
		if left != nil {
			rest = append(rest, left)
		}
	}
	for _, b := range pack(rest, memory) {
		out.GPUs = append(out.GPUs, b.gpu())
	}
	out.Least = int(int128.MulDivUp(need, 1, int64(time.Second)*1000))
	return out, nil
}

func (s Session) check(f *faults, field string) {
	f.rate(field+"Rate", s.Rate)
	f.span(field+"Objective", s.Objective, 1, maxSpan)
	f.count(field+"Memory", int64(s.Memory), 0, int64(maxMemory))
	if s.Latency == nil {
		f.bad(field+"Latency", "nil", "is needed")
	} else if d := s.Latency.Batch(1); d <= 0 {
		f.bad(field+"Latency", d.String(), "want more than 0 for a batch of 1")
	}
}

func addSat(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// least returns the GPU time that a second's requests take in the best batches that keep the objective, in 1/1000 ns.
func (s Session) least(micro int64) int64 {
	top := serving.Saturated(s.Latency, s.Objective)
	best := int64(math.MaxInt64)
	for b := 1; b <= top; b++ { // a latency need not be so that larger batches are better
		// time for each request in 1/1000 ns, rounded down: a bound stays one
		best = min(best, int128.MulDiv(int64(s.Latency.Batch(b)), 1000, int64(b)))
		if b >= 1<<12 && b%1024 != 0 {
			b += 63 // large batches differ little; the bound is then one of those looked at
		}
	}
	if best == math.MaxInt64 {
		best = int64(s.Latency.Batch(1)) * 1000
	}
	return int128.MulDiv(best, micro, million)
}

// fills returns how many GPUs a session fills, at least.
func (s Session) fills() int64 {
	top := serving.Saturated(s.Latency, s.Objective)
	if top == 0 {
		return 0
	}
	return int64(s.Rate * s.Latency.Batch(top).Seconds() / float64(top))
}

// split gives a session the GPUs that it fills, and what is left of it; false where it cannot be served.
func (s Session) split(micro int64, memory lockstep.Bytes) (full []GPU, left *bin, ok bool) {
	if memory > 0 && s.Memory > memory {
		return nil, nil, false
	}
	top := serving.Saturated(s.Latency, s.Objective)
	if top == 0 {
		return nil, nil, false // a turn of one and then one take longer than the objective
	}
	took := max(s.Latency.Batch(top), 1)
	each := int128.MulDiv(int64(top)*million, int64(time.Second), int64(took)) // millionths of a request a second
	for n := micro / max(each, 1); n > 0; n-- {
		full = append(full, GPU{
			Parts: []Part{{Session: s.ID, Rate: float64(each) / million, Batch: top}},
			Duty:  took, Occupancy: million, Saturated: true,
		})
		micro -= each
	}
	if micro <= 0 {
		return full, nil, true
	}
	b := &bin{parts: []part{{s, micro}}, memory: s.Memory, first: s.ID, least: s.least(micro)}
	n, duty := serving.Residual(s.Latency, s.Objective, float64(micro)/million)
	whole := int128.MulDiv(int64(n), million*int64(time.Second), micro) // the same, rounded down, so that no more than n come in it
	if n > 0 && (b.fits(min(int64(duty), whole)) || b.fits(int64(duty))) {
		return full, b, true
	}
	// A turn as long as the saturated batch serves whatever does not saturate.
	return full, b, b.fits(int64(took))
}
