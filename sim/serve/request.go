package serve

import (
	"cmp"
	"encoding/csv"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Bounds of a request, so that sums over a run stay inside int64.
const (
	maxTokens = 1 << 24               // as in llm.Request
	maxSpan   = 32 * 24 * time.Hour   // of a list of requests
	azureTime = "2006-01-02 15:04:05" // parts of a second may follow
)

// Request is one that clients send.
type Request struct {
	At     time.Duration `json:"at"`              // At is when it comes, from the start of the run; at least 0, at most 32 days.
	Class  int           `json:"class,omitempty"` // Class is the index of its objectives in Config.Engine.Classes.
	Prompt int           `json:"prompt"`          // Prompt is how many tokens its prompt has, from 1 to 2^24.
	Output int           `json:"output"`          // Output is how many tokens it makes, from 1 to 2^24.
}

// ReadAzure reads a file of the Azure LLM inference trace of 2023 (Patel et al.,
// "Splitwise", ISCA 2024): rows of TIMESTAMP, ContextTokens and GeneratedTokens
// under a header, by time. Times count from the first row. A row without tokens
// on one side has one there, since a replica makes nothing of nothing. Anything
// malformed is ErrInvalid, names the line and the column, and nothing is returned.
func ReadAzure(r io.Reader) ([]Request, error) {
	const op = "serve: azure"
	rows := csv.NewReader(r)
	rows.FieldsPerRecord, rows.ReuseRecord = 3, true
	var out []Request
	var first time.Time
	for line := 1; ; line++ {
		row, err := rows.Read()
		switch {
		case errors.Is(err, io.EOF) && line > 1:
			return sorted(out), nil
		case errors.Is(err, io.EOF):
			return nil, fault(op, "line 1", "", "there is no header")
		case err != nil:
			return nil, fault(op, "line "+strconv.Itoa(line), "", err.Error())
		case line == 1:
			if row[0] != "TIMESTAMP" || row[1] != "ContextTokens" || row[2] != "GeneratedTokens" {
				return nil, fault(op, "line 1", row[0], "want the header TIMESTAMP,ContextTokens,GeneratedTokens")
			}
			continue
		}
		at, q, err := azureRow(op, line, row)
		if err != nil {
			return nil, err
		}
		if first.IsZero() {
			first = at
		}
		q.At = at.Sub(first)
		if q.At < 0 || q.At > maxSpan {
			return nil, fault(op, "line "+strconv.Itoa(line)+": TIMESTAMP", row[0], "is before the first row, or more than 32 days after it")
		}
		out = append(out, q)
	}
}

// azureRow reads one row.
func azureRow(op string, line int, row []string) (time.Time, Request, error) {
	name := "line " + strconv.Itoa(line) + ": "
	at, err := time.Parse(azureTime, row[0])
	if err != nil {
		return at, Request{}, fault(op, name+"TIMESTAMP", row[0], "want a time as in "+azureTime)
	}
	var tokens [2]int
	for k, column := range [...]string{"ContextTokens", "GeneratedTokens"} {
		n, err := strconv.Atoi(row[k+1])
		if err != nil || n < 0 || n > maxTokens {
			return at, Request{}, fault(op, name+column, row[k+1], "want 0 to 2^24")
		}
		tokens[k] = max(n, 1)
	}
	return at, Request{Prompt: tokens[0], Output: tokens[1]}, nil
}

// Superpose returns copies of requests on top of each other, the k-th of them k
// times shift later, so that a stream for one replica asks for many and keeps its
// bursts, where shift is short beside them. Copies, and a shift below 0, count as
// at least 1 and 0. What would come after 32 days is left out.
func Superpose(requests []Request, copies int, shift time.Duration) []Request {
	var out []Request
	for k := range max(copies, 1) {
		later := time.Duration(0)
		if shift > 0 {
			later = min(shift, maxSpan) * time.Duration(k)
		}
		for _, q := range requests {
			if later > maxSpan || q.At > maxSpan-later {
				continue
			}
			q.At += later
			out = append(out, q)
		}
	}
	return sorted(out)
}

// Day is a load that swells and falls as that of a day does.
type Day struct {
	Seed   uint64        `json:"seed"`             // Seed chooses the requests.
	Span   time.Duration `json:"span,omitempty"`   // Span is for how long they come; 0 means 24 h.
	Period time.Duration `json:"period,omitempty"` // Period is from peak to peak; 0 means 24 h.
	Peak   float64       `json:"peak,omitempty"`   // Peak is how many come in a second at the peak; 0 means 2.
	Trough float64       `json:"trough,omitempty"` // Trough is the same half a period later, at most Peak; 0 means a fifth of Peak.
	Prompt int           `json:"prompt,omitempty"` // Prompt is how many tokens a prompt has at the mean; 0 means 1000.
	Output int           `json:"output,omitempty"` // Output is how many are made at the mean; 0 means 200.
}

// Validate reports every fault of d, joined.
func (d Day) Validate() error {
	const op = "serve: day"
	var errs []error
	if d.Span < 0 || d.Span > maxSpan {
		errs = append(errs, fault(op, "Span", d.Span.String(), "want 0 to 32 days"))
	}
	if d.Period < 0 || d.Period > maxSpan {
		errs = append(errs, fault(op, "Period", d.Period.String(), "want 0 to 32 days"))
	}
	if !(d.Peak >= 0 && d.Peak <= 1e4) {
		errs = append(errs, fault(op, "Peak", number(d.Peak), "want 0 to 10000"))
	}
	if !(d.Trough >= 0 && d.Trough <= d.withDefaults().Peak) {
		errs = append(errs, fault(op, "Trough", number(d.Trough), "want 0 to Peak"))
	}
	for _, f := range []struct {
		name string
		n    int
	}{{"Prompt", d.Prompt}, {"Output", d.Output}} {
		if f.n < 0 || f.n > maxTokens/16 {
			errs = append(errs, fault(op, f.name, strconv.Itoa(f.n), "want 0 to 2^20"))
		}
	}
	return errors.Join(errs...)
}

func (d Day) withDefaults() Day {
	d.Span = cmp.Or(d.Span, 24*time.Hour)
	d.Period = cmp.Or(d.Period, 24*time.Hour)
	d.Peak = cmp.Or(d.Peak, 2)
	d.Trough = cmp.Or(d.Trough, d.Peak/5)
	d.Prompt = cmp.Or(d.Prompt, 1000)
	d.Output = cmp.Or(d.Output, 200)
	return d
}

// Requests makes up requests: a Poisson process whose rate is a sine between
// Trough, where it starts, and Peak; tokens are exponential, held at 16 times
// their mean.
func (d Day) Requests() ([]Request, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	d = d.withDefaults()
	r := rand.New(rand.NewPCG(d.Seed, 0x5e12e))
	tokens := func(mean int) int {
		return 1 + int(min(r.ExpFloat64(), 16)*float64(mean-1))
	}
	var out []Request
	for at := 0.0; ; {
		at += r.ExpFloat64() / d.Peak
		if at >= d.Span.Seconds() {
			return out, nil
		}
		phase := 2 * math.Pi * at / d.Period.Seconds()
		rate := d.Trough + float64((d.Peak-d.Trough)*(1-math.Cos(phase))/2)
		if r.Float64()*d.Peak >= rate {
			continue // thinning (Lewis and Shedler, 1979)
		}
		out = append(out, Request{At: time.Duration(at * 1e9), Prompt: tokens(d.Prompt), Output: tokens(d.Output)})
	}
}

// sorted sorts requests by time; those of one time stay in their order.
func sorted(requests []Request) []Request {
	slices.SortStableFunc(requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	return requests
}

func fault(op, field, value, reason string) error {
	return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: field, Value: errtext.Quote(value), Reason: reason}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
