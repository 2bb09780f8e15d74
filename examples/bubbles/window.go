package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/bubble"
)

// window goes through a window, which ends as the mark is reached, and returns when the device is the job's again.
func (s *stage) window(ctx context.Context, w int, until *mark) error {
	s.say("")
	start := s.now()
	still := start // since when no trial runs
	var err error
	if s.trials != nil {
		if still, err = s.fill(ctx, w, start, until); err != nil {
			return err
		}
	}
	select {
	case <-until.reached:
	case <-ctx.Done():
		return ctx.Err()
	}
	// The mark may have been reached before the stage came to wait for it.
	end := max(until.at, start+1)
	predicted := s.cfg.Windows[w].End - s.cfg.Windows[w].Start
	s.bars = append(s.bars, bar{start: start, end: end, what: barBubble})
	if still > end {
		s.bars = append(s.bars, bar{start: end, end: still, what: barOverrun})
	}
	if s.trials == nil {
		s.samples = append(s.samples, bubble.Sample{Predicted: predicted, Actual: end - start})
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	why, err := s.packer.Observe(bubble.Observation{Window: w, Start: start, End: end, Overrun: max(still-end, 0)})
	if why != "" {
		s.stopped[why]++
		s.reload = s.reload || why == bubble.ReasonRearmed
	}
	return err
}

// fill runs trials from start on for as long as the packer lets it. It returns since when all are still.
func (s *stage) fill(ctx context.Context, w int, start time.Duration, until *mark) (still time.Duration, err error) {
	s.mu.Lock()
	var f bubble.Fill
	if !s.reload {
		f, err = s.packer.Begin(start, w)
	}
	s.mu.Unlock()
	if err != nil || !f.Feasible {
		return start, err
	}
	var running *trial
	halt := func() (time.Duration, error) {
		if running == nil {
			return start, nil
		}
		err := running.stop(ctx)
		return s.now(), err
	}
	for {
		select {
		case <-until.reached:
			return halt()
		default:
		}
		q, why, err := s.ask()
		if err != nil || why != "" {
			still, stopped := halt()
			return still, errors.Join(err, stopped)
		}
		t := s.trials[choice{q.Bundle, q.Fused}]
		if t == nil {
			return start, fmt.Errorf("%s with %d is not loaded on stage %d", q.Bundle, q.Fused, s.number)
		}
		if running != nil && running != t {
			if _, err := halt(); err != nil {
				return start, err
			}
		}
		running = t
		s.say(string(q.Bundle))
		from := s.now()
		if err := t.quantum(ctx, q.Expected, until.reached); err != nil {
			return start, err
		}
		s.bars = append(s.bars, bar{start: from, end: s.now(), what: barTrial, trial: string(q.Bundle)})
	}
}

// ask asks the packer at a safe point.
func (s *stage) ask() (bubble.Quantum, lockstep.Reason, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reload { // what it would choose may not be loaded
		return bubble.Quantum{}, bubble.ReasonRearmed, nil
	}
	return s.packer.MayStartQuantum(s.now(), s.number)
}
