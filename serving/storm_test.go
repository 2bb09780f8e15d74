package serving

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plainRequest is a request of the reference.
type plainRequest struct {
	Request
	number   int
	arrived  time.Duration
	due      time.Duration // never if far
	expires  time.Duration
	deferred bool
	ticket   Ticket
}

// never is after all times of the tests.
const never = 1000 * time.Hour

// plain is a Batcher written down as the documentation has it: a list that is sorted and searched from end to end.
type plain struct {
	c       BatcherConfig
	limit   int
	waiting []*plainRequest
	number  int
	state   []instanceState
	end     []time.Duration
	with    [][]RequestID
}

func (p *plain) l(n int) time.Duration { return p.c.Latency.Batch(n) }

func (p *plain) sort() {
	slices.SortFunc(p.waiting, func(a, b *plainRequest) int {
		rank := func(r *plainRequest) time.Duration {
			if p.c.Order == EDF {
				return r.Request.Deadline.Sub(at(0)) // the tests set it for all
			}
			return 0
		}
		late := func(r *plainRequest) int {
			if r.deferred {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(late(a), late(b)), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.number, b.number))
	})
}

// fastest is the least time at which whoever is number k in order can be over, whatever batches are formed, with one instance.
func (p *plain) fastest(now time.Duration, k int) time.Duration {
	best := make([]time.Duration, k+1) // by how many are over
	for n := 1; n <= k; n++ {
		best[n] = never
		for b := 1; b <= min(n, p.c.MaxBatch); b++ {
			best[n] = min(best[n], best[n-b]+p.l(b))
		}
	}
	start := now
	if p.state[0] == busy {
		start = max(now, p.end[0])
	}
	return start + best[k]
}

func (p *plain) step(now time.Duration) (out Plan) {
	for i := range p.state {
		if p.state[i] == busy && p.end[i]+p.c.Lost <= now {
			out.Lost = append(out.Lost, p.with[i]...)
			p.state[i], p.with[i] = down, nil
		}
	}
	for {
		var first *plainRequest
		for _, r := range p.waiting {
			if r.expires < now && (first == nil || r.expires < first.expires || r.expires == first.expires && r.number < first.number) {
				first = r
			}
		}
		if first == nil {
			break
		}
		if p.c.Late == DeferLate {
			first.deferred, first.due, first.expires = true, never, never
			p.sort()
			continue
		}
		reason := ReasonTimeout
		if first.due < never && first.due-p.l(1) == first.expires {
			reason = ReasonDeadline
		}
		out.Rejected = append(out.Rejected, Rejection{first.ID, reason})
		p.waiting = slices.DeleteFunc(p.waiting, func(r *plainRequest) bool { return r == first })
	}
	for i := range p.state {
		if p.state[i] != idle || len(p.waiting) == 0 {
			continue
		}
		n, cause := p.size(now)
		if n == 0 {
			break
		}
		b := Batch{Instance: i, End: at(now + p.l(n)), Cause: cause}
		for _, r := range p.waiting[:n] {
			b.Requests = append(b.Requests, r.ID)
		}
		p.waiting = p.waiting[n:]
		p.state[i], p.end[i], p.with[i] = busy, now+p.l(n), b.Requests
		out.Batches = append(out.Batches, b)
	}
	return out
}

// size says how many go now.
func (p *plain) size(now time.Duration) (int, Cause) {
	n := min(len(p.waiting), p.limit)
	timely := func(start time.Duration, size, of int) bool {
		for _, r := range p.waiting[:of] {
			if start+p.l(size) > r.due {
				return false
			}
		}
		return true
	}
	m := n
	for m > 1 && !timely(now, m, m) {
		m--
	}
	if m < n {
		return m, CauseDeadline
	}
	free := 0
	for _, s := range p.state {
		if s == idle {
			free++
		}
	}
	for k := len(p.c.Preferred) - 1; k >= 0; k-- {
		if size := p.c.Preferred[k]; size <= n {
			if size < n && free < 2 && !timely(now+p.l(size), n-size, n) {
				return n, CauseDeadline
			}
			return size, CausePreferred
		}
	}
	if n == p.limit {
		return n, CauseFull
	}
	for _, r := range p.waiting {
		if now-r.arrived >= p.c.MaxDelay {
			return n, CauseDelay
		}
	}
	if !timely(now+1, n, n) {
		return n, CauseDeadline
	}
	return 0, 0
}

// TestBatcherDoesWhatAPlainOneDoes plays random calls on both, and checks on the way that nothing is lost, nobody is late, what is
// refused could not have made it, and nothing is due between a step and NextWake.
func TestBatcherDoesWhatAPlainOneDoes(t *testing.T) {
	seeds := 400
	if testing.Short() {
		seeds = 60
	}
	seen := make(map[Cause]int)
	refused := 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		c := BatcherConfig{
			MaxBatch: 1 + r.IntN(8), MaxDelay: time.Duration(r.IntN(40)), Order: Order(r.IntN(2)), Levels: 1 + r.IntN(2), Late: Late(r.IntN(4) / 3),
			Instances: 1 + r.IntN(3), Lost: time.Duration(20 + r.IntN(100)), Latency: Linear{time.Duration(1 + r.IntN(10)), time.Duration(r.IntN(5))},
			Slack: time.Duration(r.IntN(3)),
		}
		for n := 1; n <= c.MaxBatch; n++ {
			if r.IntN(4) == 0 {
				c.Preferred = append(c.Preferred, n)
			}
		}
		h := newHost(t, c)
		p := &plain{c: c, limit: c.MaxBatch, state: make([]instanceState, c.Instances), end: make([]time.Duration, c.Instances), with: make([][]RequestID, c.Instances)}
		deadline := make(map[RequestID]time.Duration)
		now, accepted, gone := time.Duration(0), 0, 0
		for range 300 {
			switch op := r.IntN(12); {
			case op < 5:
				h.next++
				q := Request{ID: h.next, Level: r.IntN(c.Levels)}
				left := time.Duration(r.IntN(120))
				q.Deadline = at(now + left)
				if r.IntN(4) == 0 {
					q.Timeout = time.Duration(1 + r.IntN(30))
				}
				got, err := h.b.Submit(at(now), q)
				require.NoError(t, err)
				p.number++
				x := &plainRequest{Request: q, number: p.number, arrived: now, due: now + left - c.Slack, ticket: got.Ticket}
				x.expires = x.due - p.l(1)
				if q.Timeout > 0 {
					x.expires = min(x.expires, now+q.Timeout)
				}
				p.waiting = append(p.waiting, x)
				p.sort()
				if c.Instances == 1 && p.state[0] != down {
					fastest := p.fastest(now, slices.Index(p.waiting, x)+1)
					require.Equal(t, fastest > x.due, got.Reason == ReasonDeadline, "seed %d", seed)
				}
				if !got.Accepted {
					refused++
					p.waiting = slices.DeleteFunc(p.waiting, func(y *plainRequest) bool { return x == y })
					break
				}
				accepted++
				deadline[q.ID] = x.due
				if got.Deferred {
					x.deferred, x.due, x.expires = true, never, never
					deadline[q.ID] = never
					p.sort()
				}
			case op == 5 && len(p.waiting) > 0:
				k := r.IntN(len(p.waiting))
				require.True(t, h.b.Cancel(p.waiting[k].ticket))
				require.False(t, h.b.Cancel(p.waiting[k].ticket))
				p.waiting = slices.Delete(p.waiting, k, k+1)
				gone++
			case op == 6:
				k := r.IntN(c.Instances)
				require.Equal(t, p.state[k] == busy, h.b.Done(at(now), k) == nil)
				if p.state[k] == busy {
					p.state[k] = idle
				}
			case op == 7:
				k := r.IntN(c.Instances)
				require.Equal(t, p.state[k] == down, h.b.Up(at(now), k) == nil)
				if p.state[k] == down {
					p.state[k] = idle
				}
			case op == 8 && r.IntN(4) == 0:
				k := r.IntN(c.Instances)
				ids, err := h.b.Down(at(now), k, nil)
				require.NoError(t, err)
				if p.state[k] == busy {
					require.Equal(t, p.with[k], ids)
				} else {
					require.Empty(t, ids)
				}
				p.state[k] = down
			case op == 9 && r.IntN(4) == 0:
				p.limit = 1 + r.IntN(c.MaxBatch)
				h.b.Limit(p.limit)
			default:
				now += time.Duration(r.IntN(12))
			}
			require.NoError(t, h.b.Step(at(now), &h.plan))
			want := p.step(now)
			require.Equal(t, append([]RequestID{}, want.Lost...), append([]RequestID{}, h.plan.Lost...))
			require.Equal(t, append([]Rejection{}, want.Rejected...), append([]Rejection{}, h.plan.Rejected...))
			require.Equal(t, append([]Batch{}, want.Batches...), append([]Batch{}, h.plan.Batches...), "seed %d", seed)
			for _, b := range h.plan.Batches {
				seen[b.Cause]++
				gone += len(b.Requests)
				for _, id := range b.Requests {
					if c.Late == RejectLate {
						require.False(t, b.End.After(at(deadline[id])), "nobody is late")
					}
				}
			}
			gone += len(h.plan.Rejected)
			require.Equal(t, accepted, gone+h.b.Waiting(), "nobody is lost")
			quiet(t, h, p, now, r)
		}
	}
	for cause := range CauseDeadline + 1 {
		require.Greater(t, seen[cause], seeds/4, "%v", cause)
	}
	require.Greater(t, refused, seeds)
}

// quiet checks that nothing happens before NextWake.
func quiet(t *testing.T, h *host, p *plain, now time.Duration, r *rand.Rand) {
	t.Helper()
	wake, ok := h.b.NextWake(at(now))
	next := now + 50
	if ok {
		require.True(t, wake.After(at(now)), "what was due is done")
		next = min(next, wake.Sub(at(0)))
	}
	then := next - 1
	if then <= now || r.IntN(3) > 0 {
		return
	}
	// On a copy, as if nothing had happened.
	q := *p
	q.state, q.end, q.with = slices.Clone(p.state), slices.Clone(p.end), slices.Clone(p.with)
	q.waiting = nil
	for _, x := range p.waiting {
		y := *x
		q.waiting = append(q.waiting, &y)
	}
	out := q.step(then)
	require.Empty(t, out.Batches)
	require.Empty(t, out.Rejected)
	require.Empty(t, out.Lost)
	if ok && wake.Before(at(now+50)) { // and at it something does, or a request is deferred
		out = q.step(wake.Sub(at(0)))
		deferred := false
		for k := range q.waiting {
			deferred = deferred || k < len(p.waiting) && q.waiting[k].deferred != p.waiting[k].deferred || k < len(p.waiting) && q.waiting[k].ID != p.waiting[k].ID
		}
		require.True(t, deferred || len(out.Batches)+len(out.Rejected)+len(out.Lost) > 0)
	}
}

// TestSeveralInstancesAreForeseen compares the prediction with batches played out one by one.
func TestSeveralInstancesAreForeseen(t *testing.T) {
	for seed := range 300 {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		c := BatcherConfig{MaxBatch: 1 + r.IntN(5), Instances: 1 + r.IntN(4), Latency: Linear{time.Duration(r.IntN(9)), time.Duration(1 + r.IntN(5))}}
		h := newHost(t, c)
		free := make([]time.Duration, c.Instances)
		for i := range free {
			if n := r.IntN(c.MaxBatch + 1); n > 0 {
				h.b.Limit(n)
				h.submit(0, n, Request{})
				h.step(0)
				free[i] = c.Latency.Batch(n)
			}
		}
		slices.Sort(free) // which one is which does not matter
		now := time.Duration(r.IntN(5))
		for i := range free {
			free[i] = max(free[i], now)
		}
		h.b.Limit(c.MaxBatch)
		for k := range 30 {
			got := h.submit(now, 1, Request{})
			slices.Sort(free)
			if k%c.MaxBatch == 0 && k > 0 {
				free[0] += c.Latency.Batch(c.MaxBatch)
				slices.Sort(free)
			}
			want := free[0] + c.Latency.Batch(k%c.MaxBatch+1)
			require.Equal(t, at(want), got.Finish, "seed %d, request %d", seed, k)
		}
	}
}
