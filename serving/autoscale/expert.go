package autoscale

import "github.com/lockstep-gpu/lockstep/internal/int128"

// fine is how many steps a unit of load has inside forecasts, so that smoothing does not stick at whole ones.
const fine = 1 << 10

// expert is one simple forecast: exponential smoothing of a level and, damped, of a trend (Holt 1957; Gardner and
// McKenzie 1985), of the load or of what it is above the season.
type expert struct {
	Alpha    int64 `json:"alpha"`              // how much a slot counts for the level, in thousandths
	Beta     int64 `json:"beta,omitempty"`     // how much a change of the level counts for the trend; 0 for no trend
	Seasonal bool  `json:"seasonal,omitempty"` // it goes by what is above the season
	Level    int64 `json:"level"`              // scaled by fine
	Trend    int64 `json:"trend,omitempty"`    // a slot, scaled by fine
}

// damp is what is left of a trend in each further slot, in thousandths.
const damp = 900

// follow is how much a season counts for what is usual, in thousandths.
const follow = 300

// experts returns those that run side by side. The first counts until others were better: of equals the first.
func experts(seasonal bool) []expert {
	out := []expert{{Alpha: 300}, {Alpha: 1000}, {Alpha: 60}, {Alpha: 400, Beta: 150}}
	if seasonal {
		out = append(out, expert{Alpha: 200, Seasonal: true}, expert{Alpha: 30, Seasonal: true})
	}
	return out
}

// next takes the load of a slot in, unknown included.
func (s *series) next(load int64, season int) {
	first := load != unknown && !s.Known
	usual := int64(0)
	if season > 0 {
		usual = s.repeat(load, season)
	}
	if load != unknown {
		for i := range s.Experts {
			e := &s.Experts[i]
			at := load * fine
			if e.Seasonal {
				at -= usual
			}
			e.next(at, first)
		}
		s.Known = true
	} else {
		for i := range s.Experts {
			e := &s.Experts[i]
			e.Trend = scale(e.Trend, damp)
			e.Level += e.Trend
		}
	}
	s.N++
}

// next smooths; the first load is the level.
func (e *expert) next(at int64, first bool) {
	if first {
		e.Level = at
		return
	}
	trend := scale(e.Trend, damp)
	was := e.Level
	e.Level = was + trend + scale(at-was-trend, e.Alpha)
	if e.Beta > 0 {
		e.Trend = trend + scale(e.Level-was-trend, e.Beta)
	}
}

// repeat keeps the season up to date, and returns what is usual for the slot. What is usual is measured against the
// mean of the last whole season; of the first it is what that season was.
func (s *series) repeat(load int64, season int) (usual int64) {
	phase := int(s.N % int64(season))
	usual = s.Season[phase]
	if load == unknown {
		load = s.Last[phase]
	}
	s.Sum += load - s.Last[phase]
	s.Last[phase] = load
	switch {
	case s.N < int64(season)-1:
	case s.N == int64(season)-1:
		mean := int128.MulDiv(s.Sum, fine, int64(season))
		for p, v := range s.Last {
			s.Season[p] = v*fine - mean
		}
		for i := range s.Experts { // until now they went by the load itself
			if s.Experts[i].Seasonal {
				s.Experts[i].Level = mean
			}
		}
		usual = s.Season[phase]
	default:
		above := load*fine - int128.MulDiv(s.Sum, fine, int64(season))
		s.Season[phase] += scale(above-s.Season[phase], follow)
	}
	return usual
}

// peak returns the highest forecast of e for the next slots.
func (s *series) peak(e *expert, slots, season int) int64 {
	best, level, trend := int64(0), e.Level, e.Trend
	if !e.Seasonal && trend <= 0 {
		return max(level+scale(trend, damp), 0) / fine
	}
	for h := range slots {
		trend = scale(trend, damp)
		level += trend
		at := level
		if e.Seasonal {
			at += s.Season[(s.N+int64(h))%int64(season)]
		}
		best = max(best, at)
		if !e.Seasonal && trend == 0 {
			break // nothing changes any more
		}
	}
	return min(best/fine, maxLoad)
}

// highest returns the highest load of the last slots, unknown if one of them is.
func (s *series) highest(slots int) int64 {
	best := int64(0)
	for _, v := range s.Recent[len(s.Recent)-slots:] {
		if v == unknown {
			return unknown
		}
		best = max(best, v)
	}
	return best
}
