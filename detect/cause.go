package detect

import (
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

const (
	workMemory = 256  // iterations over which the typical work is averaged
	longer     = 0.05 // rise of the expected time, as a logarithm, that is told as the lengths'
	lastExcess = 0.05 // excess of the last stage, as a logarithm, that is told as the loss layer's
	lastRise   = 0.03 // rise of that excess that explains slow iterations
	lastMemory = 32   // iterations over which it is averaged
	lateMemory = 4    // iterations over which it is averaged to see a rise
	alone      = 3.0  // scales at which an iteration stands out
	placed     = 0.5  // chance that a slowdown is of one place, from which its places are suspects
)

// workload is what is known of the work of a job, to tell it from faults.
type workload struct {
	learning bool
	n        int     // iterations in the mean of expected, held at workMemory
	known    int     // iterations in those of the batches, held alike
	tokens   float64 // mean of a micro-batch
	pairs    float64
	expected float64 // mean logarithm of what iterations should take
	spikes   int     // iterations in a row that stood out
	pause    bool    // the last iteration stood out alone, and nothing was suspected
	last     float64 // excess of the last stage, in the replica where it is least, over the median of the other stages
	lastNow  float64 // the same of late
	lastWide float64 // excess of the replica where it is most over where it is least, of late
	lastBase float64 // last after the first iterations
	lastN    int
}

// batch returns a typical micro-batch.
func (w *workload) batch() perfmodel.Batch {
	return perfmodel.Batch{Tokens: max(1, int64(min(w.tokens, 1<<48))), Pairs: w.pairs}
}

// see takes the work of an iteration in; batches are nil where they are not known.
func (w *workload) see(batches [][]perfmodel.Batch, e *evidence) {
	if e.modelled {
		w.n = min(w.n+1, workMemory)
		w.expected += float64((e.expected - w.expected) / float64(w.n))
	}
	tokens, pairs, count := 0.0, 0.0, 0
	for _, micros := range batches {
		for i := range micros {
			tokens += float64(micros[i].Tokens)
			pairs += micros[i].Pairs
			count++
		}
	}
	if count > 0 {
		w.known = min(w.known+1, workMemory)
		w.tokens += (tokens/float64(count) - w.tokens) / float64(w.known)
		w.pairs += (pairs/float64(count) - w.pairs) / float64(w.known)
	}
}

// spike says whether an iteration stands out alone, where the score before it was no suspicion.
func (w *workload) spike(e *evidence, suspected bool) {
	if e.timed && e.test >= 0 && e.whole.Residual >= alone {
		w.spikes = min(w.spikes+1, math.MaxInt32)
	} else {
		w.spikes = 0
	}
	w.pause = w.spikes == 1 && !suspected
}

// explain sets the cause, the places and the reason of a verdict.
func (m *Monitor) explain(v *Verdict, e *evidence) {
	m.compareLast(e)
	switch v.State {
	case Slow:
		v.Onset = m.onset
		m.blame(v, e)
		return
	case Learning:
		v.Reason = reasonLearning
		if m.resized {
			v.Cause = Resize
		}
		return
	case Suspicious:
		v.Cause, v.Reason = Unknown, reasonEvidence
	case Recovered:
		v.Reason = reasonCleared
	default:
		v.Reason = reasonHealthy
	}
	m.resized = false
	m.excuse(v, e)
}

// excuse names what of an iteration without an alarm is the work's and not a device's.
func (m *Monitor) excuse(v *Verdict, e *evidence) {
	switch {
	case e.test < 0:
		v.Reason = reasonUnmeasured
	case m.work.pause:
		v.Cause, v.Reason = Pause, reasonSpike
	case e.modelled && m.work.n >= 8 && e.expected-m.work.expected >= longer && e.whole.Residual < alone:
		v.Cause = Lengths
	case v.Cause == NoCause && e.chunked && m.work.last >= lastExcess:
		v.Cause = LossLayer
	}
}

// blame names the cause and the places of a slowdown.
func (m *Monitor) blame(v *Verdict, e *evidence) {
	limit := m.cfg.Suspects
	switch {
	case m.standing[byChunks]:
		v.Cause, v.Reason = Hardware, reasonChunks
		if e.chunked {
			m.suspects = m.chunks.AppendSuspects(m.suspects[:0], limit)
		}
		m.probes = m.probes[:0]
		other := func(s Suspect) bool { return s.Stage != m.model.shape.Stages-1 }
		if m.work.lastRose() && !slices.ContainsFunc(m.suspects, other) {
			v.Cause, m.suspects = LossLayer, m.suspects[:0]
		}
	case m.standing[byMatched]:
		v.Cause, v.Reason = Unknown, reasonMatched
		if e.test == byMatched {
			m.suspects = m.suspects[:0]
			if m.matched.Places() >= placed {
				m.suspects = m.matched.AppendSuspects(m.suspects, limit)
			}
			m.plan(KnownTimes)
		}
		if len(m.suspects) > 0 {
			v.Cause = Hardware
		}
	default:
		m.suspects = m.suspects[:0]
		v.Cause, v.Reason = Unknown, reasonWhole
		if e.aside() {
			v.Cause = Network
			if m.work.lastRose() {
				v.Cause = LossLayer
			}
		}
		known := KnownTimes
		if e.chunked {
			known = KnownChunks
		}
		m.plan(known)
	}
	m.nameRanks(e.waits)
	v.Suspects, v.Probes = some(m.suspects), some(m.probes)
}

// nameRanks names the rank of suspects whose group waited for one of its ranks.
func (m *Monitor) nameRanks(waits []Wait) {
	for i := range m.suspects {
		s := &m.suspects[i]
		for j := range waits {
			if waits[j].Replica != s.Replica || waits[j].Stage != s.Stage {
				continue
			}
			if rank, ok := LeastWait(waits[j].Ranks); ok {
				s.Rank = rank
			}
		}
	}
}

// some returns s, or nil where it is empty.
func some[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

// plan lists what to measure.
func (m *Monitor) plan(known Known) {
	replicas, stages := m.cfg.Replicas, 2 // without a model there may be as much as two of anything
	if m.model != nil {
		stages = m.model.shape.Stages
	} else {
		replicas = max(replicas, 2)
	}
	m.probes = AppendProbes(m.probes[:0], m.suspects, replicas, stages, known)
}

// compareLast follows by how much the last stage of all replicas takes longer than the
// rates say, and the other stages do not. The replica where it is least counts, so that a
// slow device does not.
func (m *Monitor) compareLast(e *evidence) {
	if !e.chunked || m.model.shape.Stages < 2 {
		return
	}
	stages := m.model.shape.Stages
	lasts, others := m.scratch[0][:0], m.scratch[1][:0]
	for i, took := range m.observed {
		if took == 0 {
			continue
		}
		x := num.Log(float64(took) / float64(m.wanted[i]))
		if i%stages == stages-1 {
			lasts = append(lasts, x)
		} else {
			others = append(others, x)
		}
	}
	m.scratch[0], m.scratch[1] = lasts, others
	if len(lasts) < 2 || len(others) == 0 {
		return
	}
	slices.Sort(lasts)
	slices.Sort(others)
	w := &m.work
	w.lastN = min(w.lastN+1, math.MaxInt32)
	least := lasts[0] - num.Median(others)
	w.last += (least - w.last) / float64(min(w.lastN, lastMemory))
	w.lastNow += (least - w.lastNow) / float64(min(w.lastN, lateMemory))
	w.lastWide += (lasts[len(lasts)-1] - lasts[0] - w.lastWide) / float64(min(w.lastN, lateMemory))
	if w.lastN <= lastMemory {
		w.lastBase = w.last
	}
}

// lastRose says that the last stage of all replicas became slower, and no replica by much more.
func (w *workload) lastRose() bool {
	rise := w.lastNow - w.lastBase
	return rise >= lastRise && rise >= w.lastWide
}
