package change

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

// exactRuns is the textbook recursion, which keeps every run length and computes each
// predictive density from all samples of its run. It differs from runs only in that runs
// counts a run longer than its support as one of that length.
func exactRuns(zs []float64, hazard float64, longest int) []float64 {
	weight := make([]float64, longest+len(zs)+1)
	weight[longest] = 1 // it has not changed for so long, and lay at 0
	for at, z := range zs {
		next := make([]float64, len(weight))
		for n, w := range weight {
			if w == 0 {
				continue
			}
			sum := 0.0
			for i := max(0, at-n); i < at; i++ {
				sum += zs[i]
			}
			v := 1 + 1/(float64(n)+newMean)
			e := z - sum/(float64(n)+newMean)
			p := w * math.Exp(-e*e/2/v) / math.Sqrt(v)
			next[n+1] += p * (1 - hazard)
			next[0] += p * hazard
		}
		total := 0.0
		for _, p := range next {
			total += p
		}
		for n := range next {
			next[n] /= total
		}
		weight = next
	}
	return weight
}

func TestRunLengthsAreThoseOfTheTextbook(t *testing.T) {
	const hazard, support = 0.01, 4000
	n := newNoise(31, 1, 0, 0)
	r := newRuns(support)
	var zs []float64
	for i := range 50 {
		z := n.next()
		if i >= 30 {
			z += 2
		}
		zs = append(zs, z)
		r.update(z, hazard)
		want := exactRuns(zs, hazard, support)
		for n := range support {
			require.InDelta(t, want[n], r.weight[n], 1e-4, "run %d after %d", n, i+1)
		}
		beyond := 0.0
		for _, w := range want[support:] {
			beyond += w
		}
		require.InDelta(t, beyond, r.weight[support], 1e-4)
		// The trap: with a constant hazard the chance that the level changed just now is the hazard, whatever was seen.
		require.InDelta(t, hazard, r.weight[0], 1e-15)
	}
	chance, _ := r.recent(25)
	require.Greater(t, chance, 0.9)
}

func TestRunLengthsAreBounded(t *testing.T) {
	r := newRuns(16)
	n := newNoise(32, 1, 0, 0)
	for i := range 100_000 {
		r.update(num.Clip(n.next(), 4), 0.004)
		if i%1000 == 0 {
			total := 0.0
			for _, w := range r.weight {
				require.GreaterOrEqual(t, w, 0.0)
				total += w
			}
			require.InDelta(t, 1, total, 1e-9)
		}
	}
	r.update(1e6, 0.004)
	require.InDelta(t, 1, r.weight[0]+r.weight[16], 0.01, "an impossible sample leaves a distribution")
}

// TestTheResiHPRuleIsBlindBelowItsGate has a fault of a fifth, which every other test finds.
func TestTheResiHPRuleIsBlindBelowItsGate(t *testing.T) {
	for factor, want := range map[float64]bool{1.2: false, 1.5: true} { // the order does not matter: each case stands alone
		alarm, cusum := false, false
		for seed := range uint64(10) {
			n := newNoise(seed, 0.01, 0, 0)
			rule, sum := newTest(t, Config{Method: ResiHP}), newTest(t, Config{})
			for i := range 200 {
				x := n.next()
				if i >= 100 {
					x += math.Log(factor)
				}
				alarm = observe(t, rule, x).Alarm || alarm
				cusum = observe(t, sum, x).Alarm || cusum
			}
		}
		require.Equal(t, want, alarm)
		require.True(t, cusum)
	}
}

func TestTheResiHPRuleLeavesBenignPointsOut(t *testing.T) {
	n := newNoise(33, 0.01, 0, 0)
	rule := newTest(t, Config{Method: ResiHP})
	p := rule.(Predictive)
	for range 100 {
		observe(t, rule, n.next())
	}
	removed := 0
	for range 20 { // the work grew, and the prediction knows
		before := saved(t, rule)
		_, err := p.ObserveExpected(n.next()+0.5, 0.5)
		require.NoError(t, err)
		if string(before) != string(saved(t, rule)) {
			continue
		}
		removed++
	}
	require.Positive(t, removed)
}
