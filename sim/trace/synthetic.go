package trace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// SyntheticConfig configures Synthetic. The zero value is valid.
type SyntheticConfig struct {
	Seed    uint64        `json:"seed"`              // Seed chooses the trace; every seed is as good.
	Span    time.Duration `json:"span,omitempty"`    // Span is the time over which jobs arrive; 0 means three days.
	GPUs    int           `json:"gpus,omitempty"`    // GPUs is the cluster that Load refers to and the widest job; 0 means 192.
	Load    int           `json:"load,omitempty"`    // Load is the offered work in thousandths of GPUs × Span; 0 means 900.
	Tenants int           `json:"tenants,omitempty"` // Tenants is how many submit; 0 means 11. Tenant k submits 1/k as often as the first.
}

// Marginals of the Philly trace's fortnight from 2017-10-16 (Jeon et al.,
// USENIX ATC 2019; 21,933 jobs of its 11 large virtual clusters): how often
// each width occurs, and quantiles of the running time of each width, cut at
// one day. Rare widths between the ones listed are counted with their
// neighbours.
var (
	// widths holds the job widths, narrow first. Immutable: never written to.
	widths = [...]int{1, 2, 4, 8, 16, 32}
	// widthShare is parts in 10,000 of the jobs by width. Immutable: never written to.
	widthShare = [...]int{9463, 157, 253, 110, 13, 4}
	// quantileAt is where runQuantiles are taken, in thousandths. Immutable: never written to.
	quantileAt = [...]int{0, 50, 250, 500, 750, 900, 950, 990, 1000}
	// runQuantiles are seconds by width. Immutable: never written to.
	runQuantiles = [...][len(quantileAt)]int{
		{20, 57, 465, 1154, 2076, 8746, 16824, 86400, 86400},
		{5, 8, 14, 20, 136, 43200, 86400, 86400, 86400},
		{30, 81, 510, 21378, 86400, 86400, 86400, 86400, 86400},
		{60, 179, 16458, 64800, 86400, 86400, 86400, 86400, 86400},
		{120, 288, 7921, 64800, 86400, 86400, 86400, 86400, 86400},
		{120, 345, 365, 418, 71514, 86400, 86400, 86400, 86400},
	}
	// hourShare is how often jobs arrive in each hour of the day (UTC), in
	// hundredths of the mean hour, the mean of the fortnight and of the three
	// days before it. Immutable: never written to.
	hourShare = [24]int{104, 64, 92, 57, 40, 131, 180, 344, 146, 128, 90, 92, 59, 30, 23, 28, 88, 80, 74, 33, 108, 112, 174, 123}
)

// Synthetic makes up a trace with the marginals published for Philly: nearly
// all jobs want one device, most of the work is in the few wide ones, arrivals
// follow the hour of the day and come in bursts of one tenant, as sweeps do.
// The number of jobs is whatever offers Load. It draws from integers alone, so
// a seed gives the same trace on every platform.
func Synthetic(cfg SyntheticConfig) (*Trace, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.fill()
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x10c45739))
	budget := int64(cfg.Span/time.Second) * int64(cfg.GPUs) / 1000 * int64(cfg.Load)
	t := &Trace{}
	for id := 0; budget > 0; {
		tenant := drawTenant(rng, cfg.Tenants)
		at := drawArrival(rng, cfg.Span)
		// A burst holds 1 to 16 jobs, small ones far more often.
		for range 1 << rng.IntN(rng.IntN(5)+1) {
			w := drawIndex(rng, widthShare[:])
			for widths[w] > cfg.GPUs {
				w--
			}
			run := drawRun(rng, w)
			t.Jobs = append(t.Jobs, Job{
				ID:       lockstep.JobID(fmt.Sprintf("s%06d", id)),
				Tenant:   lockstep.TenantID(fmt.Sprintf("t%02d", tenant+1)),
				Submit:   min(at, cfg.Span-time.Second),
				Duration: run,
				GPUs:     widths[w],
			})
			id++
			budget -= int64(run/time.Second) * int64(widths[w])
			at += time.Duration(rng.IntN(20)) * time.Second
		}
	}
	return t.sort(), nil
}

// Validate reports every field of c that is out of range, joined.
func (c SyntheticConfig) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "trace: synthetic", Field: field, Value: value, Reason: reason})
	}
	if c.Span < 0 || c.Span > MaxDuration || c.Span != 0 && c.Span < time.Hour {
		bad("Span", c.Span.String(), "want 1h to "+MaxDuration.String())
	}
	if c.GPUs < 0 || c.GPUs > MaxGPUs {
		bad("GPUs", strconv.Itoa(c.GPUs), "want 0 to "+strconv.Itoa(MaxGPUs))
	}
	if c.Load < 0 || c.Load > 10000 {
		bad("Load", strconv.Itoa(c.Load), "want 0 to 10000 thousandths")
	}
	if c.Tenants < 0 || c.Tenants > 10000 {
		bad("Tenants", strconv.Itoa(c.Tenants), "want 0 to 10000")
	}
	return errors.Join(errs...)
}

func (c *SyntheticConfig) fill() {
	if c.Span == 0 {
		c.Span = 72 * time.Hour
	}
	if c.GPUs == 0 {
		c.GPUs = 192
	}
	if c.Load == 0 {
		c.Load = 900
	}
	if c.Tenants == 0 {
		c.Tenants = 11
	}
}

// drawTenant draws 0 to n-1, k with a weight of 1/(k+1).
func drawTenant(rng *rand.Rand, n int) int {
	const scale = 1 << 20
	total := 0
	for k := range n {
		total += scale / (k + 1)
	}
	at := rng.IntN(total)
	for k := range n {
		if at -= scale / (k + 1); at < 0 {
			return k
		}
	}
	return n - 1
}

// drawArrival draws a second of the span, busy hours more often.
func drawArrival(rng *rand.Rand, span time.Duration) time.Duration {
	for {
		at := time.Duration(rng.Int64N(int64(span/time.Second))) * time.Second
		if rng.IntN(400) < hourShare[int(at/time.Hour)%24] {
			return at
		}
	}
}

// drawIndex draws an index with the given weights.
func drawIndex(rng *rand.Rand, weights []int) int {
	total := 0
	for _, w := range weights {
		total += w
	}
	at := rng.IntN(total)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return len(weights) - 1
}

// drawRun draws a running time of the given width from its quantiles, straight
// between them, in whole seconds.
func drawRun(rng *rand.Rand, width int) time.Duration {
	const fine = 1000
	p := rng.IntN(1000 * fine)
	i := 1
	for p >= quantileAt[i]*fine {
		i++
	}
	lo, hi := runQuantiles[width][i-1], runQuantiles[width][i]
	from, to := quantileAt[i-1]*fine, quantileAt[i]*fine
	s := int64(lo) + int64(hi-lo)*int64(p-from)/int64(to-from)
	return time.Duration(s) * time.Second
}
