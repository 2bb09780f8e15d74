package change

import (
	"math"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

// cells is how finely the statistic of a test is divided to work out its power.
const cells = 48

// chain is a statistic on [low, high) as a Markov chain over cells, for tests whose
// next statistic depends on the present one and the next sample only (Brook and Evans,
// "An approach to the probability distribution of CUSUM run length", 1972). What would
// fall below low stays at low; what reaches high is an alarm.
type chain struct {
	low, high float64
	needs     func(from, to float64) float64 // sample that leads from one statistic to another
}

// power returns the chance that the alarm is raised within a number of samples, each
// standard normal plus rise and clipped, beginning at the statistic start.
func (c *chain) power(rise, clipAt, start float64, horizon int) float64 {
	width := (c.high - c.low) / cells
	var move [cells][cells]float64
	for i := range cells {
		from := c.low + float64(width*(float64(i)+0.5))
		if i == 0 {
			from = c.low
		}
		below := 0.0
		for j := range cells {
			upTo := clipped(c.needs(from, c.low+float64(width*float64(j+1))), rise, clipAt)
			move[i][j] = upTo - below
			below = upTo
		}
	}
	var at, next [cells]float64
	at[min(int((start-c.low)/width), cells-1)] = 1
	for range horizon {
		next = [cells]float64{}
		for i, p := range at {
			if p < 1e-9 {
				continue
			}
			for j, q := range move[i] {
				next[j] += float64(p * q)
			}
		}
		at = next
	}
	left := 0.0
	for _, p := range at {
		left += p
	}
	return 1 - left
}

// clipped returns the chance that a clipped sample is below z.
func clipped(z, rise, clipAt float64) float64 {
	switch {
	case z <= -clipAt:
		return 0
	case z > clipAt:
		return 1
	}
	return num.Normal(z - rise)
}

// rise returns the rise that is found with a power within a horizon; the search ends where a rise is found as often as
// any larger one.
func (c *chain) rise(cfg Config) float64 {
	low, high := 0.0, 2*cfg.Clip
	for range 16 {
		mid := (low + high) / 2
		if c.power(mid, cfg.Clip, 0, cfg.Horizon) < cfg.Power {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// cusumRise is the rise, in scales, that a cumulative sum finds with the power configured; +Inf where none is.
func cusumRise(cfg Config) float64 {
	if (cfg.Clip-cfg.Reference)*float64(cfg.Horizon) < cfg.Threshold {
		return math.Inf(1)
	}
	c := chain{low: 0, high: cfg.Threshold, needs: func(from, to float64) float64 { return to - from + cfg.Reference }}
	return c.rise(cfg)
}

// ewmaRise is the same for a weighted mean.
func ewmaRise(cfg Config) float64 {
	high := cfg.Threshold * math.Sqrt(cfg.Weight/(2-cfg.Weight))
	c := chain{low: -high, high: high, needs: func(from, to float64) float64 {
		return (to - float64((1-cfg.Weight)*from)) / cfg.Weight
	}}
	return c.rise(cfg)
}

// quantile returns z with num.Normal(z) = p, for p in (0, 1).
func quantile(p float64) float64 {
	low, high := -9.0, 9.0
	for range 40 {
		mid := (low + high) / 2
		if num.Normal(mid) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}
