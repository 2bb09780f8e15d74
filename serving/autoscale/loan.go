package autoscale

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// LoanConfig says on what terms a service lends its idle capacity. The zero value lends nothing. What was lent is back
// in service Grace + Cleanup + Load after it was asked for.
type LoanConfig struct {
	PerReplica lockstep.MilliGPU `json:"perReplica,omitempty"` // PerReplica is how much a replica takes, at most 2^40; 0 turns loans off.
	Grace      time.Duration     `json:"grace,omitempty"`      // Grace is how long a borrower has to save and stop, at most 24 h.
	Cleanup    time.Duration     `json:"cleanup,omitempty"`    // Cleanup is how long devices take to be free after that, at most 24 h.
	Load       time.Duration     `json:"load,omitempty"`       // Load is how long a replica takes to be ready, at most 24 h.
	Lasts      time.Duration     `json:"lasts,omitempty"`      // Lasts is for how long capacity has to be idle to be lent, at least Grace + Cleanup + Load and at most 96 h; 0 means four times that.
	Quantile   int               `json:"quantile,omitempty"`   // Quantile is how surely it has to be, in thousandths, 1 to 999; 0 means 990.
	Use        int               `json:"use,omitempty"`        // Use is how much of a replica's capacity is planned with, in thousandths, 1 to 1000; 0 means 900.
}

// Validate reports every fault of c, joined.
func (c LoanConfig) Validate() error {
	f := faults{op: "loan"}
	f.count("PerReplica", int64(c.PerReplica), 0, 1<<40)
	f.span("Grace", c.Grace, 0, 24*time.Hour)
	f.span("Cleanup", c.Cleanup, 0, 24*time.Hour)
	f.span("Load", c.Load, 0, 24*time.Hour)
	if c.Lasts != 0 {
		f.span("Lasts", c.Lasts, min(max(c.back(), 0), 72*time.Hour), 96*time.Hour)
	}
	f.count("Quantile", int64(c.Quantile), 0, thousand-1)
	f.count("Use", int64(c.Use), 0, thousand)
	return f.err()
}

func (c LoanConfig) on() bool { return c.PerReplica > 0 }

// back is how long it takes to have capacity back in service.
func (c LoanConfig) back() time.Duration { return c.Grace + c.Cleanup + c.Load }

func (c LoanConfig) withDefaults() LoanConfig {
	c.Lasts = or(c.Lasts, min(4*c.back(), 96*time.Hour))
	c.Quantile = or(c.Quantile, 990)
	c.Use = or(c.Use, 900)
	return c
}

func (c LoanConfig) ahead(slot time.Duration) []Horizon {
	return []Horizon{{slotsOf(c.back(), slot), c.Quantile}, {slotsOf(c.Lasts, slot), c.Quantile}}
}

// Loan is what to lend or to have back now. One of Lend and Recall is 0.
type Loan struct {
	Lend     lockstep.MilliGPU `json:"lend,omitempty"`    // Lend is how much more can be lent: it is idle for Lasts, as surely as Quantile says.
	Recall   lockstep.MilliGPU `json:"recall,omitempty"`  // Recall is how much is to come back.
	Deadline time.Time         `json:"deadline,omitzero"` // Deadline is by when, so that replicas are ready when the load may have risen; zero without Recall. It is never less than Grace + Cleanup away.
	Notice   time.Duration     `json:"notice"`            // Notice is how long before its deadline any recall comes: Grace + Cleanup.
	Need     lockstep.MilliGPU `json:"need"`              // Need is what the service may need until a recall made now is back in service.
	Later    lockstep.MilliGPU `json:"later"`             // Later is what it may need within Lasts; at least Need.
	Warm     bool              `json:"warm"`              // Warm says that forecasts have been seen to be right as often as they should; nothing is lent before.
}

// Loanable says what of owned can be lent now beyond lent, which is lent already, or how much of that is to come back.
// It only reads. The amounts go to lease.Table: Lend with Notice, Recall with Deadline. Since a loan has to be idle for
// longer than a recall takes, what is lent is not recalled at once. A Scaler without Config.Loan is ErrConflict.
func (s *Scaler) Loanable(now time.Time, owned, lent lockstep.MilliGPU) (Loan, error) {
	const op = "loanable"
	if !s.cfg.Loan.on() {
		return Loan{}, fault(lockstep.ErrConflict, op, "Config.Loan.PerReplica", "0", "nothing is lent")
	}
	f := faults{op: op}
	f.count("owned", int64(owned), 0, 1<<60)
	f.count("lent", int64(lent), 0, int64(max(owned, 0)))
	if err := f.err(); err != nil {
		return Loan{}, err
	}
	ns, err := s.at(op, now)
	if err != nil {
		return Loan{}, err
	}
	c, first := s.cfg.Loan, len(s.cfg.Rule.ahead(s.cfg.Demand.Slot))
	need, _ := s.forecast.Bound(first)
	later, _ := s.forecast.Bound(first + 1)
	out := Loan{Notice: c.Grace + c.Cleanup, Warm: s.forecast.Warm(first) && s.forecast.Warm(first+1)}
	out.Need = min(s.gpus(max(need, s.open())), owned)
	out.Later = min(max(s.gpus(later), out.Need), owned)
	have := owned - lent
	switch {
	case out.Need > have:
		out.Recall = out.Need - have
		out.Deadline = lockstep.FromNanos(ns).Add(out.Notice)
	case out.Warm && ns-s.told <= int64(s.cfg.Expiry):
		out.Lend = max(have-out.Later, 0)
	}
	return out, nil
}

// gpus returns what a load takes: whole replicas, not fewer than were last wanted or than there always are.
func (s *Scaler) gpus(load int64) lockstep.MilliGPU {
	n := replicas(int128.MulDivUp(load, thousand, int64(s.cfg.Loan.Use)))
	return s.cfg.Loan.PerReplica.Mul(int64(max(n, s.want, s.cfg.Steady.Bounded.Min)))
}
