package llm

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/serving"
)

// Class is the objectives of some requests.
type Class struct {
	TTFT     time.Duration     `json:"ttft,omitempty"`     // longest time from arrival to the first token; 0 means any
	TPOT     time.Duration     `json:"tpot,omitempty"`     // longest mean time between two tokens of a request; 0 means any
	Priority lockstep.Priority `json:"priority,omitempty"` // higher ones go first and are preempted last
}

// Batching says when requests join those that run.
type Batching uint8

// The ways to batch.
const (
	Continuous Batching = iota // Continuous: in every iteration.
	Static                     // Static: in batches, which none joins once no more fit until all of it are over; for comparison.
)

// String returns "continuous" or "static".
func (b Batching) String() string { return enum("Batching", int(b), "continuous", "static") }

// Preemption says what becomes of the tokens of a request that has to make room.
type Preemption uint8

// The ways to preempt.
const (
	Recompute Preemption = iota // Recompute: they are computed anew when it goes on, except for what is cached still.
	Swap                        // Swap: they move to host memory and back; where that is full they are computed anew.
)

// String returns "recompute" or "swap".
func (p Preemption) String() string { return enum("Preemption", int(p), "recompute", "swap") }

// enum returns the name of value v of a type.
func enum(kind string, v int, names ...string) string {
	if v < len(names) {
		return names[v]
	}
	return kind + "(" + strconv.Itoa(v) + ")"
}

// Config configures an Engine. The zero value is valid. It may be copied; engines share nothing through it but Cost.
type Config struct {
	Blocks        int           `json:"blocks,omitempty"`        // blocks of KV memory; 0 means 4096
	BlockTokens   int           `json:"blockTokens,omitempty"`   // tokens of a block; 0 means 16, as in vLLM
	MaxSequences  int           `json:"maxSequences,omitempty"`  // most requests that run at once; 0 means 256
	TokenBudget   int           `json:"tokenBudget,omitempty"`   // most tokens of an iteration, at least MaxSequences; 0 means 2048, or MaxSequences if that is more
	WholePrompts  bool          `json:"wholePrompts,omitempty"`  // a prompt is computed in one iteration, alone if it is above TokenBudget; else in chunks
	Batching      Batching      `json:"batching,omitempty"`      // zero is Continuous
	Order         serving.Order `json:"order,omitempty"`         // of requests of a priority: by arrival, or by when their first token is due; zero is FIFO
	Preemption    Preemption    `json:"preemption,omitempty"`    // zero is Recompute
	SwapBlocks    int           `json:"swapBlocks,omitempty"`    // blocks of host memory to swap to
	ReserveOutput bool          `json:"reserveOutput,omitempty"` // blocks for all of its tokens are set aside when a request starts, so that none is preempted
	// WatermarkFraction is the share of Blocks that stays free when a request starts beside others, in [0, 1); 0 means 0.01.
	WatermarkFraction float64 `json:"watermarkFraction,omitempty"`
	// GuardTPOT holds requests, and shortens chunks, that would make an iteration longer than the TPOT of a request that runs.
	GuardTPOT bool `json:"guardTPOT,omitempty"`
	// RefuseLate gives back requests whose first token would come after TTFT even if they were alone from now on.
	RefuseLate   bool    `json:"refuseLate,omitempty"`
	DisableCache bool    `json:"disableCache,omitempty"` // no prefix is kept for other requests
	Queue        int     `json:"queue,omitempty"`        // most requests that wait; 0 means 2^24
	Classes      []Class `json:"classes,omitempty"`      // by index; nil means one without objectives. Copied
	Cost         Cost    `json:"-"`                      // how long iterations take; nil means no time
}

// withDefaults fills in what zero means, in copies.
func (c Config) withDefaults() Config {
	for _, f := range []struct {
		field *int
		value int
	}{{&c.Blocks, 4096}, {&c.BlockTokens, 16}, {&c.MaxSequences, 256}, {&c.Queue, maxQueue}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if c.TokenBudget == 0 {
		c.TokenBudget = max(2048, c.MaxSequences)
	}
	if c.WatermarkFraction == 0 {
		c.WatermarkFraction = 0.01
	}
	if c.Cost == nil {
		c.Cost = Roofline{}
	}
	if c.Classes = append([]Class(nil), c.Classes...); len(c.Classes) == 0 {
		c.Classes = []Class{{}}
	}
	return c
}

// watermark returns WatermarkFraction in blocks.
func (c Config) watermark() int { return int(math.Floor(float64(c.Blocks) * c.WatermarkFraction)) }

// Validate reports all faults of c, joined.
func (c Config) Validate() error {
	errs := []error{
		checkInt("config", "Blocks", c.Blocks, 0, maxBlocks),
		checkInt("config", "BlockTokens", c.BlockTokens, 0, 1<<16),
		checkInt("config", "MaxSequences", c.MaxSequences, 0, 1<<20),
		checkInt("config", "TokenBudget", c.TokenBudget, 0, maxTokens),
		checkInt("config", "Batching", int(c.Batching), 0, int(Static)),
		checkInt("config", "Order", int(c.Order), 0, int(serving.EDF)),
		checkInt("config", "Preemption", int(c.Preemption), 0, int(Swap)),
		checkInt("config", "SwapBlocks", c.SwapBlocks, 0, maxBlocks),
		checkFraction("config", "WatermarkFraction", c.WatermarkFraction, 1),
		checkInt("config", "Queue", c.Queue, 0, maxQueue),
		checkInt("config", "len(Classes)", len(c.Classes), 0, 1<<10),
	}
	if most := c.withDefaultSequences(); c.TokenBudget > 0 && c.TokenBudget < most {
		errs = append(errs, invalid("config", "TokenBudget", strconv.Itoa(c.TokenBudget), "must be at least MaxSequences, which is "+strconv.Itoa(most)))
	}
	for i, k := range c.Classes {
		at := "Classes[" + strconv.Itoa(i) + "]."
		errs = append(errs, checkSpan("config", at+"TTFT", k.TTFT), checkSpan("config", at+"TPOT", k.TPOT))
	}
	if v, ok := c.Cost.(interface{ Validate() error }); ok {
		errs = append(errs, v.Validate())
	}
	return errors.Join(errs...)
}

func (c Config) withDefaultSequences() int {
	if c.MaxSequences == 0 {
		return 256
	}
	return c.MaxSequences
}
