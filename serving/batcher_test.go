package serving

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// at is a time of the tests.
func at(d time.Duration) time.Time { return lockstep.FromNanos(int64(1_800_000_000*time.Second + d)) }

// host drives a Batcher and numbers the requests from 1.
type host struct {
	t    testing.TB
	b    *Batcher
	plan Plan
	next RequestID
}

func newHost(t testing.TB, c BatcherConfig) *host {
	b, err := NewBatcher(c)
	require.NoError(t, err)
	return &host{t: t, b: b}
}

// submit sends n requests.
func (h *host) submit(d time.Duration, n int, r Request) (last Receipt) {
	h.t.Helper()
	for range n {
		h.next++
		r.ID = h.next
		var err error
		last, err = h.b.Submit(at(d), r)
		require.NoError(h.t, err)
		require.Equal(h.t, last.Accepted, last.Ticket != 0)
	}
	return last
}

// step returns the sizes of the batches that are sent.
func (h *host) step(d time.Duration) (sizes []int) {
	h.t.Helper()
	require.NoError(h.t, h.b.Step(at(d), &h.plan))
	for _, b := range h.plan.Batches {
		sizes = append(sizes, len(b.Requests))
	}
	return sizes
}

func (h *host) wake(d time.Duration) time.Duration {
	w, ok := h.b.NextWake(at(d))
	if !ok {
		return -1
	}
	return w.Sub(at(0))
}

// triton is the case of the rule: at most 8, better 4 or 8, up to 100 µs.
var triton = BatcherConfig{MaxBatch: 8, Preferred: []int{4, 8}, MaxDelay: 100 * time.Microsecond}

const us = time.Microsecond

func TestTritonRule(t *testing.T) {
	t.Run("a preferred size is reached", func(t *testing.T) {
		h := newHost(t, triton)
		h.submit(0, 3, Request{})
		require.Nil(t, h.step(0))
		require.Equal(t, 100*us, h.wake(0))
		h.submit(60*us, 1, Request{})
		require.Equal(t, 60*us, h.wake(60*us))
		require.Equal(t, []int{4}, h.step(60*us))
		require.Equal(t, CausePreferred, h.plan.Batches[0].Cause)
	})
	t.Run("it is not", func(t *testing.T) {
		h := newHost(t, triton)
		h.submit(0, 3, Request{})
		require.Nil(t, h.step(0))
		require.Nil(t, h.step(100*us-1))
		require.Equal(t, []int{3}, h.step(100*us))
		require.Equal(t, CauseDelay, h.plan.Batches[0].Cause)
		require.Equal(t, -1*time.Nanosecond, h.wake(100*us))
	})
	t.Run("more than the largest", func(t *testing.T) {
		h := newHost(t, triton)
		h.submit(0, 9, Request{})
		require.Equal(t, []int{8}, h.step(0))
		require.Equal(t, 1, h.b.Waiting())
		require.Equal(t, 8, h.b.Running())
	})
	t.Run("full without a preference", func(t *testing.T) {
		h := newHost(t, BatcherConfig{MaxBatch: 8, MaxDelay: 100 * us})
		h.submit(0, 7, Request{})
		require.Nil(t, h.step(0))
		h.submit(1, 1, Request{})
		require.Equal(t, []int{8}, h.step(1))
		require.Equal(t, CauseFull, h.plan.Batches[0].Cause)
	})
	t.Run("the largest preferred one that fits", func(t *testing.T) {
		h := newHost(t, BatcherConfig{MaxBatch: 16, Preferred: []int{2, 6}, MaxDelay: 100 * us})
		h.submit(0, 9, Request{})
		require.Equal(t, []int{6}, h.step(0))
	})
}

// TestComplaint8QueuedRequestsAreMerged: what queued while an instance was busy goes in one batch even with delay 0.
// (triton-inference-server/server#3624, #8094)
func TestComplaint8QueuedRequestsAreMerged(t *testing.T) {
	h := newHost(t, BatcherConfig{MaxBatch: 8})
	h.submit(0, 1, Request{})
	require.Equal(t, []int{1}, h.step(0))
	for d := time.Duration(1); d < 10; d++ {
		h.submit(d, 1, Request{})
		require.Nil(t, h.step(d))
	}
	require.NoError(t, h.b.Done(at(10), 0))
	require.Equal(t, []int{8}, h.step(10))
	require.Equal(t, 1, h.b.Waiting())
}

// TestComplaint9ObjectiveBeforePreference: a preferred size makes no request late, neither those held nor those left behind, and an
// uneven load is not cut into tiny batches. (triton-inference-server/server#7318, #7776, #8251)
func TestComplaint9ObjectiveBeforePreference(t *testing.T) {
	c := BatcherConfig{MaxBatch: 8, Preferred: []int{4, 8}, MaxDelay: time.Second, SLO: 50 * ms, Latency: curve}
	t.Run("held no longer than the objective allows", func(t *testing.T) {
		h := newHost(t, c)
		h.submit(0, 3, Request{})
		require.Nil(t, h.step(0))
		require.Equal(t, 40500*us, h.wake(0)) // 50 - (5 + 3 × 1.5)
		require.Equal(t, []int{3}, h.step(40500*us))
		require.Equal(t, CauseDeadline, h.plan.Batches[0].Cause)
	})
	t.Run("one more would make the first late", func(t *testing.T) {
		h := newHost(t, c)
		h.submit(0, 3, Request{})
		require.Nil(t, h.step(40*ms))
		h.submit(40*ms, 1, Request{})
		require.Equal(t, []int{3}, h.step(40*ms), "4 would take 11 ms and the first has 10")
	})
	t.Run("those left behind", func(t *testing.T) {
		h := newHost(t, c)
		h.submit(0, 7, Request{Deadline: at(20 * ms)})
		require.Equal(t, []int{7}, h.step(0), "4 take 11 ms, and 3 after them 9.5 of the 9 that are left")
		require.Equal(t, CauseDeadline, h.plan.Batches[0].Cause)
		h = newHost(t, c)
		h.submit(0, 7, Request{Deadline: at(20500 * us)})
		require.Equal(t, []int{4}, h.step(0))
	})
	t.Run("not when another instance takes them", func(t *testing.T) {
		two := c
		two.Instances = 2
		h := newHost(t, two)
		h.submit(0, 7, Request{Deadline: at(20 * ms)})
		require.Equal(t, []int{4}, h.step(0))
		require.Nil(t, h.step(10*ms))
		require.Equal(t, []int{3}, h.step(10500*us))
	})
}

func TestTooLateIsRejectedOnArrival(t *testing.T) {
	h := newHost(t, BatcherConfig{MaxBatch: 8, Latency: curve})
	r := h.submit(0, 1, Request{Deadline: at(5 * ms)}) // one takes 6.5 ms
	require.False(t, r.Accepted)
	require.Equal(t, ReasonDeadline, r.Reason)
	r = h.submit(0, 1, Request{Deadline: at(6500 * us)})
	require.Equal(t, Receipt{Accepted: true, Ticket: r.Ticket, Finish: at(6500 * us)}, r)
	require.Equal(t, []int{1}, h.step(0))
	require.Equal(t, at(6500*us), h.plan.Batches[0].End)
	// The instance is free after 6.5 ms; then 8 take 17 ms, and one more 6.5.
	h.submit(0, 8, Request{})
	require.False(t, h.submit(0, 1, Request{Deadline: at(30*ms - 1)}).Accepted)
	require.True(t, h.submit(0, 1, Request{Deadline: at(30 * ms)}).Accepted)
	require.False(t, h.submit(0, 1, Request{Deadline: at(-time.Hour)}).Accepted)
}

func TestSlackAndLateOnes(t *testing.T) {
	h := newHost(t, BatcherConfig{MaxBatch: 8, Latency: curve, SLO: 50 * ms, Slack: 10 * ms})
	h.submit(0, 1, Request{})
	require.Equal(t, []int{1}, h.step(0))
	h.submit(0, 2, Request{})
	require.Equal(t, 33500*us+1, h.wake(0)) // 50 - 10 - 6.5
	require.Nil(t, h.step(33500*us))
	require.Empty(t, h.plan.Rejected)
	require.Nil(t, h.step(33500*us+1))
	require.Equal(t, []Rejection{{2, ReasonDeadline}, {3, ReasonDeadline}}, h.plan.Rejected)
	require.Zero(t, h.b.Waiting())
}

func TestTimeoutRejectsOrDefers(t *testing.T) {
	h := newHost(t, BatcherConfig{MaxBatch: 2, Timeout: 10 * ms})
	h.submit(0, 2, Request{})
	h.step(0)
	h.submit(0, 1, Request{})                     // 3
	h.submit(0, 1, Request{Timeout: time.Second}) // 4
	h.step(10*ms + 1)
	require.Equal(t, []Rejection{{3, ReasonTimeout}}, h.plan.Rejected)
	require.NoError(t, h.b.Done(at(10*ms+1), 0))
	require.Equal(t, []int{1}, h.step(10*ms+1))

	h = newHost(t, BatcherConfig{MaxBatch: 2, Timeout: 10 * ms, Late: DeferLate, Levels: 2})
	h.submit(0, 2, Request{})
	h.step(0)
	h.submit(0, 1, Request{})            // 3
	h.submit(5*ms, 2, Request{})         // 4, 5
	h.submit(5*ms, 1, Request{Level: 1}) // 6
	h.step(10*ms + 1)                    // 3 goes behind 5
	require.Empty(t, h.plan.Rejected)
	var order []RequestID
	for range 3 {
		require.NoError(t, h.b.Done(at(10*ms+1), 0))
		h.step(10*ms + 1)
		for _, b := range h.plan.Batches {
			order = append(order, b.Requests...)
		}
	}
	require.Equal(t, []RequestID{4, 5, 3, 6}, order)
}

func TestDeferredOnArrival(t *testing.T) {
	h := newHost(t, BatcherConfig{MaxBatch: 1, Late: DeferLate, Latency: curve})
	h.submit(0, 1, Request{})
	h.step(0)
	r := h.submit(0, 1, Request{Deadline: at(5 * ms)})
	require.True(t, r.Accepted && r.Deferred)
	require.Equal(t, ReasonDeadline, r.Reason)
	require.Equal(t, at(13*ms), r.Finish)
	h.submit(0, 1, Request{})
	require.NoError(t, h.b.Done(at(ms), 0))
	h.step(ms)
	require.Equal(t, []RequestID{3}, h.plan.Batches[0].Requests, "in time first")
}

func TestLevelsAndDeadlinesOrder(t *testing.T) {
	for order, want := range map[Order][]RequestID{FIFO: {3, 5, 1, 2, 4}, EDF: {5, 3, 4, 2, 1}} { // order does not matter
		h := newHost(t, BatcherConfig{MaxBatch: 5, MaxDelay: time.Hour, Levels: 2, Order: order})
		h.submit(0, 1, Request{Level: 1})
		h.submit(0, 1, Request{Level: 1, Deadline: at(9 * ms)})
		h.submit(0, 1, Request{Level: 0, Deadline: at(9 * ms)})
		h.submit(0, 1, Request{Level: 1, Deadline: at(8 * ms)})
		h.submit(0, 1, Request{Level: 0, Deadline: at(8 * ms)})
		h.step(0)
		require.Equal(t, want, h.plan.Batches[0].Requests)
	}
}

func TestQueueIsBoundedAndCancelMakesRoom(t *testing.T) {
	h := newHost(t, BatcherConfig{Queue: 2, MaxBatch: 4, MaxDelay: time.Hour})
	a := h.submit(0, 1, Request{})
	h.submit(0, 1, Request{})
	require.Equal(t, Receipt{Reason: ReasonFull}, h.submit(0, 1, Request{}))
	require.True(t, h.b.Cancel(a.Ticket))
	require.False(t, h.b.Cancel(a.Ticket), "only once")
	b := h.submit(0, 1, Request{})
	require.True(t, b.Accepted)
	require.NotEqual(t, a.Ticket, b.Ticket, "the place is used again, the ticket is not")
	require.False(t, h.b.Cancel(a.Ticket))
	require.Equal(t, []int{2}, h.step(time.Hour))
	require.Equal(t, []RequestID{2, 4}, h.plan.Batches[0].Requests)
	require.False(t, h.b.Cancel(b.Ticket), "it was sent")
	require.False(t, h.b.Cancel(0))
	require.False(t, h.b.Cancel(math.MaxUint64))
}

// TestComplaint7SilentInstanceIsGivenUp: what was with it counts no longer, and is told. (ray-project/ray#61551)
func TestComplaint7SilentInstanceIsGivenUp(t *testing.T) {
	h := newHost(t, BatcherConfig{MaxBatch: 2, Instances: 2, Latency: curve, Lost: 100 * ms})
	h.submit(0, 3, Request{})
	require.Equal(t, []int{2, 1}, h.step(0))
	require.NoError(t, h.b.Done(at(6*ms), 1))
	require.Equal(t, 108*ms, h.wake(6*ms)) // 8 ms and 100
	h.step(108*ms - 1)
	require.Equal(t, 2, h.b.Running())
	h.step(108 * ms)
	require.Equal(t, []RequestID{1, 2}, h.plan.Lost)
	require.Zero(t, h.b.Running())
	require.ErrorIs(t, h.b.Done(at(109*ms), 0), lockstep.ErrConflict, "a late word is not counted")
	h.submit(109*ms, 3, Request{})
	require.Equal(t, []int{2}, h.step(109*ms), "only the other one is used")
	require.Equal(t, 1, h.plan.Batches[0].Instance)
	require.NoError(t, h.b.Up(at(110*ms), 0))
	require.Equal(t, []int{1}, h.step(110*ms))
}

func TestDownGivesBackItsRequests(t *testing.T) {
	h := newHost(t, BatcherConfig{MaxBatch: 2, Instances: 2})
	h.submit(0, 4, Request{})
	h.step(0)
	ids, err := h.b.Down(at(1), 0, nil)
	require.NoError(t, err)
	require.Equal(t, []RequestID{1, 2}, ids)
	require.Equal(t, 2, h.b.Running())
	ids, err = h.b.Down(at(1), 0, ids)
	require.NoError(t, err)
	require.Equal(t, []RequestID{1, 2}, ids, "again changes nothing")
	_, err = h.b.Down(at(1), 1, nil)
	require.NoError(t, err)
	h.submit(2, 1, Request{})
	require.Nil(t, h.step(2), "nobody is up")
	require.ErrorIs(t, h.b.Up(at(2), 5), lockstep.ErrUnknown)
	require.NoError(t, h.b.Up(at(2), 1))
	require.ErrorIs(t, h.b.Up(at(2), 1), lockstep.ErrConflict)
	require.Equal(t, []int{1}, h.step(2))
}

func TestLimitFollowsAController(t *testing.T) {
	h := newHost(t, BatcherConfig{MaxBatch: 8, Preferred: []int{6}})
	h.submit(0, 20, Request{})
	for _, c := range []struct{ limit, want int }{{0, 1}, {3, 3}, {7, 6}, {100, 6}} {
		h.b.Limit(c.limit)
		require.Equal(t, []int{c.want}, h.step(0))
		require.NoError(t, h.b.Done(at(0), 0))
	}
}

func TestBadBatcherConfigs(t *testing.T) {
	_, err := NewBatcher(BatcherConfig{
		MaxBatch: -1, Preferred: []int{0, 5}, MaxDelay: -1, SLO: -1, Slack: -1, Order: 9, Levels: -1, Queue: -1, Timeout: -1, Late: 9,
		Instances: -1, Lost: -1,
	})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{"MaxBatch", "Preferred[0]", "Preferred[1]", "MaxDelay", "SLO", "Slack", "Order", "Levels", "Queue", "Timeout", "Late", "Instances", "Lost"} {
		require.ErrorContains(t, err, field)
	}
	for _, c := range []BatcherConfig{
		{MaxBatch: MaxSize + 1},
		{SLO: ms, Slack: ms},
		{MaxBatch: 8, Preferred: []int{4, 4}},
		{Latency: Linear{Base: -1}},
		{MaxBatch: 2, Latency: Linear{Base: 10, Each: -1}},
		{Latency: Linear{Base: maxSpan + 1}},
		{MaxDelay: maxSpan + 1},
	} {
		_, err := NewBatcher(c)
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%+v", c)
	}
	h := newHost(t, BatcherConfig{}) // the zero value
	h.submit(0, 2, Request{})
	require.Equal(t, []int{1}, h.step(0))
}

func TestBadCallsChangeNothing(t *testing.T) {
	h := newHost(t, BatcherConfig{Latency: curve})
	h.submit(0, 2, Request{})
	h.step(0)
	for _, r := range []Request{{Level: -1}, {Level: 1}, {Timeout: -1}, {Timeout: maxSpan + 1}, {Deadline: time.Unix(-1, 0)}, {Deadline: at(0).AddDate(1000, 0, 0)}} {
		_, err := h.b.Submit(at(5), r)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err := h.b.Submit(at(-1), Request{})
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = h.b.Submit(time.Time{}, Request{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorIs(t, h.b.Step(at(-1), &h.plan), lockstep.ErrPast)
	require.Empty(t, h.plan.Batches)
	require.ErrorIs(t, h.b.Done(at(-1), 0), lockstep.ErrPast)
	require.ErrorIs(t, h.b.Done(at(0), 1), lockstep.ErrUnknown)
	require.ErrorIs(t, h.b.Done(at(0), -1), lockstep.ErrUnknown)
	_, err = h.b.Down(at(0), 7, nil)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, ok := h.b.NextWake(time.Time{})
	require.False(t, ok)
	require.Equal(t, 1, h.b.Waiting())
	require.Equal(t, 1, h.b.Running())
	h.submit(0, 1, Request{}) // the clock stands where it stood
}

func TestNamesOfEnums(t *testing.T) {
	require.Equal(t, []string{"fifo", "edf", "reject", "defer", "Order(9)", "preferred", "full", "delay", "deadline"}, []string{
		FIFO.String(), EDF.String(), RejectLate.String(), DeferLate.String(), Order(9).String(),
		CausePreferred.String(), CauseFull.String(), CauseDelay.String(), CauseDeadline.String(),
	})
}

func TestBatcherAllocatesNothing(t *testing.T) {
	h := newHost(t, BatcherConfig{
		MaxBatch: 16, Preferred: []int{8, 16}, MaxDelay: ms, SLO: 100 * ms, Order: EDF, Instances: 3, Latency: curve, Lost: time.Second,
	})
	d := time.Duration(0)
	cycle := func() {
		var tickets [4]Ticket
		for k := range 40 {
			r, err := h.b.Submit(at(d), Request{ID: RequestID(k), Deadline: at(d + time.Duration(40+k)*ms)})
			if err != nil {
				panic(err)
			}
			tickets[k%4] = r.Ticket
		}
		h.b.Cancel(tickets[0])
		for range 10 {
			d += 5 * ms
			if err := h.b.Step(at(d), &h.plan); err != nil {
				panic(err)
			}
			h.b.NextWake(at(d))
			for k := range 3 {
				_ = h.b.instances[k].state == busy && h.b.Done(at(d), k) != nil
			}
		}
	}
	for range 20 {
		cycle()
	}
	require.Zero(t, testing.AllocsPerRun(100, cycle))
}

func BenchmarkBatcher(b *testing.B) {
	for _, waiting := range []int{10, 1000, 100_000} {
		b.Run(map[int]string{10: "waiting=10", 1000: "waiting=1000", 100_000: "waiting=100000"}[waiting], func(b *testing.B) {
			h := newHost(b, BatcherConfig{MaxBatch: 8, Order: EDF, Latency: Linear{Each: 1}})
			for k := range waiting {
				h.submit(0, 1, Request{Deadline: at(time.Hour + time.Duration(k*7919%waiting))})
			}
			k := 0
			b.ReportAllocs()
			for b.Loop() { // a request in, and an eighth of a batch out
				k++
				if _, err := h.b.Submit(at(0), Request{Deadline: at(time.Hour + time.Duration(k*7919%waiting))}); err != nil {
					b.Fatal(err)
				}
				if k%8 == 0 {
					if err := h.b.Step(at(0), &h.plan); err != nil {
						b.Fatal(err)
					}
					if err := h.b.Done(at(0), 0); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// TestADrainedInstanceEndsItsBatchAndGetsNoOther keeps what an autoscaler ends from being given work meanwhile.
func TestADrainedInstanceEndsItsBatchAndGetsNoOther(t *testing.T) {
	b, err := NewBatcher(BatcherConfig{MaxBatch: 2, Instances: 3, Down: 1, SLO: 40 * time.Millisecond, Latency: Linear{Base: 10 * time.Millisecond}})
	require.NoError(t, err)
	now := time.Unix(100, 0)
	var plan Plan
	ask := func(id RequestID) Receipt {
		r, err := b.Submit(now, Request{ID: id})
		require.NoError(t, err)
		return r
	}
	step := func() []Batch {
		require.NoError(t, b.Step(now, &plan))
		return plan.Batches
	}
	for id := range RequestID(2) { // one each; the third instance is down
		ask(id)
		require.Len(t, step(), 1)
	}
	require.NoError(t, b.Drain(now, 0))
	// Only the second instance counts: of four batches that fit before the deadline three are left.
	for id := range RequestID(6) {
		require.True(t, ask(10+id).Accepted, id)
	}
	require.False(t, ask(20).Accepted)

	now = now.Add(10 * time.Millisecond)
	require.NoError(t, b.Done(now, 0))
	require.ErrorIs(t, b.Done(now, 0), lockstep.ErrConflict)
	require.NoError(t, b.Drain(now, 0), "it is down")
	require.NoError(t, b.Done(now, 1))
	batches := step()
	require.Len(t, batches, 1)
	require.Equal(t, 1, batches[0].Instance)

	require.NoError(t, b.Drain(now, 1))
	require.NoError(t, b.Up(now, 1), "it stays after all")
	require.ErrorIs(t, b.Up(now, 1), lockstep.ErrConflict)
	require.NoError(t, b.Up(now, 2))
	require.Len(t, step(), 1)
	require.NoError(t, b.Drain(now, 0))
	require.ErrorIs(t, b.Drain(now, 3), lockstep.ErrUnknown)
	lost, err := b.Down(now, 1, nil)
	require.NoError(t, err)
	require.Len(t, lost, 2)

	_, err = NewBatcher(BatcherConfig{Instances: 2, Down: 3})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}
