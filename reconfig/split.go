package reconfig

// stepOf returns of how many micro-batches a pipeline takes a multiple.
func (s *shapes) stepOf(sh *shape) int {
	if s.w.chunks > 1 {
		return len(sh.slots)
	}
	return 1
}

// split deals micros out to the shapes so that the slowest takes least: a
// micro-batch goes where it ends first, the first of those that tie. It returns
// forever if that is not possible. Times may not fall as micro-batches are added.
func (s *shapes) split(pipes []*shape, micros int, out []int32) int64 {
	step := s.stepOf(pipes[0])
	for _, sh := range pipes {
		if s.stepOf(sh) != step {
			return forever
		}
	}
	if micros%step != 0 {
		return forever
	}
	left := micros / step
	left -= s.guess(pipes, micros, step, out)
	for ; left < 0; left++ { // take from where the last one ends last
		worst, at := int64(-1), -1
		for i, sh := range pipes {
			if out[i] > 0 {
				if took, _ := s.time(sh, int(out[i])*step); took >= worst {
					worst, at = took, i
				}
			}
		}
		out[at]--
	}
	for ; left > 0; left-- { // give where the next one ends first
		best, at := int64(never), -1
		for i, sh := range pipes {
			if took, _ := s.time(sh, int(out[i]+1)*step); took < best {
				best, at = took, i
			}
		}
		out[at]++
	}
	top := int64(0)
	for i, sh := range pipes {
		took, _ := s.time(sh, int(out[i])*step)
		top = max(top, took)
		out[i] *= int32(step)
	}
	return min(top, forever)
}

// guess writes a threshold split, one in which no replica could take one more within
// the time of the slowest, in steps, and returns how many that are. It takes every
// replica's time for linear, and then looks.
func (s *shapes) guess(pipes []*shape, micros, step int, out []int32) int {
	around := max(1, micros/step/len(pipes)) * step
	var weight, base float64 // of 1/slope and start/slope
	for _, sh := range pipes {
		took, _ := s.time(sh, around)
		if took >= forever {
			continue
		}
		slope := float64(s.bottleneck(sh, around))
		weight += 1 / slope
		base += float64((float64(took) / slope)) - float64(around)
	}
	clear(out)
	if weight == 0 {
		return 0
	}
	bound := int64((float64(micros) + base) / weight)
	sum := 0
	for i, sh := range pipes {
		out[i] = int32(s.capacity(sh, bound, micros) / step)
		sum += int(out[i])
	}
	return sum
}

// capacity returns how many micro-batches a shape can take within the bound, at most
// limit.
func (s *shapes) capacity(sh *shape, bound int64, limit int) int {
	step := s.stepOf(sh)
	limit -= limit % step
	around := step
	if n := len(sh.times); n > 0 { // begin at the nearest that is known
		around = int(sh.times[n/2].micros)
		for _, t := range sh.times {
			if t.took <= bound {
				around = int(t.micros)
			}
		}
	}
	around = min(around, limit)
	lo, hi := 0, limit+step // lo is within the bound, hi is not or too many
	for hi-lo > step {
		m := around
		if m <= lo || m >= hi {
			m = lo + (hi-lo)/2/step*step
			m = max(m, lo+step)
		}
		took, _ := s.time(sh, m)
		if took <= bound {
			lo = m
		} else {
			hi = m
		}
		if took >= forever {
			around = 0
			continue
		}
		slope := s.bottleneck(sh, m)
		around = m + int(max(-int64(limit), min(int64(limit), (bound-took)/slope)))/step*step
		if took <= bound && around == m {
			around = m + step
		} else if took > bound && around >= m {
			around = m - step
		}
	}
	return lo
}
