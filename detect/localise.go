package detect

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

const (
	outlying   = 4.0   // robust scales from which a place stands out from its peers
	leastExtra = 0.02  // and by how much, as a logarithm
	peerScale  = 0.002 // least scale of peers, as a fraction of their time
	waitShare  = 0.5   // of what its peers wait, below which a rank waits least
)

// AppendOutliers appends to dst the places that stand out from their peers, the same stage of the
// other replicas, in one set of chunk times: for each place, at replica*stages+stage, what its
// chunks took and should have taken; 0 is unknown. Comparing within a stage cancels whatever the
// model has wrong about it, such as a loss layer. Worst first, ties to the lower replica, then
// stage. Score is the excess in robust scales (of the median deviation over all places); places
// below four, or that take less than 2 % longer, are not named, nor is any where there is but one
// replica. It needs no history; a ChunkTest knows more.
func AppendOutliers(dst []Suspect, observed, expected []time.Duration, replicas int) ([]Suspect, error) {
	if replicas < 1 || len(observed) == 0 || len(observed)%replicas != 0 {
		return dst, invalid("outliers", "observed", strconv.Itoa(len(observed)), "want one for each stage of each replica")
	}
	if len(expected) != len(observed) {
		return dst, invalid("outliers", "expected", strconv.Itoa(len(expected)), "want one a place: "+strconv.Itoa(len(observed)))
	}
	stages := len(observed) / replicas
	excess := make([]float64, len(observed))
	for i, d := range observed {
		if d < 0 || d > 0 && expected[i] <= 0 {
			return dst, invalid("outliers", "observed["+strconv.Itoa(i)+"]", d.String(), "want 0 or more, and an expected time above 0")
		}
		excess[i] = math.NaN()
		if d > 0 {
			excess[i] = num.Log(float64(d) / float64(expected[i]))
		}
	}
	var deviations []float64
	for stage := range stages {
		deviations = compareStage(excess, deviations, stages, stage)
	}
	if len(deviations) == 0 {
		return dst, nil
	}
	slices.Sort(deviations)
	scale := max(num.MADScale*num.Median(deviations), peerScale)
	from := len(dst)
	for i, e := range excess {
		if z := e / scale; z >= outlying && e >= leastExtra {
			dst = append(dst, Suspect{Replica: i / stages, Stage: i % stages, Rank: Everywhere, Factor: num.Exp(e), Score: z})
		}
	}
	slices.SortStableFunc(dst[from:], func(a, b Suspect) int { return -compareFloats(a.Score, b.Score) })
	return dst, nil
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// compareStage replaces the excesses of a stage by those over the median of the other replicas,
// and appends how far each is from it.
func compareStage(excess, deviations []float64, stages, stage int) []float64 {
	var known []float64
	for i := stage; i < len(excess); i += stages {
		if !math.IsNaN(excess[i]) {
			known = append(known, excess[i])
		}
	}
	slices.Sort(known)
	for i := stage; i < len(excess); i += stages {
		e := excess[i]
		if math.IsNaN(e) {
			continue
		}
		if len(known) < 2 {
			excess[i] = math.NaN()
			continue
		}
		at, _ := slices.BinarySearch(known, e)
		excess[i] = e - middleWithout(known, at)
		deviations = append(deviations, math.Abs(excess[i]))
	}
	return deviations
}

// AppendBlame appends to dst places that may slow an iteration down, from nothing but how much
// each replica and each stage does: the time of the iteration over what it should be, with only
// that replica, or only that stage of all replicas, as observed; 1 is healthy. A place is to blame
// for the lesser of the two (Lin et al., "Understanding Stragglers in Large Model Training Using
// What-if Analysis", OSDI 2025), so that as many evaluations do as there are replicas and stages.
// Worst first, at most limit, ties to the lower replica, then stage; places below half of the
// worst are left out. Factor is that of the iteration, and Score what it is above 1. ErrInvalid
// for figures that are not above 0.
func AppendBlame(dst []Suspect, replicas, stages []float64, limit int) ([]Suspect, error) {
	for _, of := range [...]struct {
		field   string
		figures []float64
	}{{"replicas", replicas}, {"stages", stages}} {
		for i, x := range of.figures {
			if !(x > 0 && x <= math.MaxFloat64) {
				return dst, invalid("blame", of.field+"["+strconv.Itoa(i)+"]", text(x), "want a ratio above 0")
			}
		}
	}
	from := len(dst)
	for r, byReplica := range replicas {
		for s, byStage := range stages {
			least := min(byReplica, byStage)
			dst = rank(dst, from, limit, Suspect{Replica: r, Stage: s, Rank: Everywhere, Factor: least, Score: least - 1})
		}
	}
	return thin(dst, from, 0.5), nil
}

// LeastWait returns the rank of a tensor-parallel group that the others wait for: the one that
// waits least in their collectives. waits is what each rank waited, summed over some iterations.
// False where none stands out: where the least is not below half of the median of the others, or
// within four robust scales of it.
func LeastWait(waits []time.Duration) (rank int, ok bool) {
	if len(waits) < 2 {
		return 0, false
	}
	for i, d := range waits {
		if d < 0 {
			return 0, false
		}
		if d < waits[rank] {
			rank = i
		}
	}
	others := make([]float64, 0, len(waits)-1)
	for i, d := range waits {
		if i != rank {
			others = append(others, float64(d))
		}
	}
	slices.Sort(others)
	usual := num.Median(others)
	for i, x := range others {
		others[i] = math.Abs(x - usual)
	}
	slices.Sort(others)
	scale := num.MADScale * num.Median(others)
	least := float64(waits[rank])
	return rank, least < waitShare*usual && usual-least > outlying*scale
}

// Rounds returns in how many rounds all neighbours of a ring can talk in pairs, such that no rank
// is in two pairs of a round: two for an even ring, three for an odd one, one for two ranks and
// none for fewer.
func Rounds(ranks int) int {
	switch {
	case ranks < 2:
		return 0
	case ranks == 2:
		return 1
	}
	return 2 + ranks%2
}

// AppendPairs appends to dst the pairs of neighbours of a ring that talk in one round. Over all
// rounds each pair is there once.
func AppendPairs(dst [][2]int, ranks, round int) [][2]int {
	switch {
	case round < 0 || round >= Rounds(ranks):
		return dst
	case round == 2: // the link that closes an odd ring
		return append(dst, [2]int{ranks - 1, 0})
	}
	for i := round; i+1 < ranks; i += 2 {
		dst = append(dst, [2]int{i, i + 1})
	}
	if round == 1 && ranks%2 == 0 {
		dst = append(dst, [2]int{ranks - 1, 0})
	}
	return dst
}

// Known says what has been measured already, for AppendProbes.
type Known uint8

// What has been measured.
const (
	KnownTimes  Known = iota // times of whole iterations only
	KnownChunks              // chunk times as well: they name slow places, and what they do not explain is in links
)

// AppendProbes appends to dst what to measure next for a slowdown that is not proven to be of one
// place, cheapest first: chunk times, if they are not there; the same matrix product on the
// suspects, or, without any, everywhere, unless chunk times have cleared them; then the links of
// each ring of replicas that suspects are in, or of all, round by round (see Rounds), and, last,
// those along the pipelines. Each probe is there once.
func AppendProbes(dst []Probe, suspects []Suspect, replicas, stages int, known Known) []Probe {
	if known == KnownTimes {
		dst = append(dst, Probe{Kind: ProbeChunks, Replica: Everywhere, Stage: Everywhere})
	}
	for _, s := range suspects {
		dst = once(dst, Probe{Kind: ProbeCompute, Replica: s.Replica, Stage: s.Stage})
	}
	if len(suspects) == 0 && known == KnownTimes {
		dst = append(dst, Probe{Kind: ProbeCompute, Replica: Everywhere, Stage: Everywhere})
	}
	for round := range Rounds(replicas) {
		for _, s := range suspects {
			dst = once(dst, Probe{Kind: ProbeLink, Replica: Everywhere, Stage: s.Stage, Round: round})
		}
		if len(suspects) == 0 {
			dst = append(dst, Probe{Kind: ProbeLink, Replica: Everywhere, Stage: Everywhere, Round: round})
		}
	}
	for round := range min(stages-1, 2) { // a pipeline is a ring that is not closed
		for _, s := range suspects {
			dst = once(dst, Probe{Kind: ProbeLink, Replica: s.Replica, Stage: Everywhere, Round: round})
		}
		if len(suspects) == 0 && replicas < 2 {
			dst = append(dst, Probe{Kind: ProbeLink, Replica: Everywhere, Stage: Everywhere, Round: round})
		}
	}
	return dst
}

// once appends a probe that is not in dst.
func once(dst []Probe, p Probe) []Probe {
	if slices.Contains(dst, p) {
		return dst
	}
	return append(dst, p)
}
