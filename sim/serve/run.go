package serve

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/serving"
	"github.com/lockstep-gpu/lockstep/serving/autoscale"
	"github.com/lockstep-gpu/lockstep/serving/llm"
)

// request is what is known of one while it is there.
type request struct {
	part    int
	replica int            // -1 while it is held
	ticket  serving.Ticket // of the router
	made    int            // tokens that a lost replica made
	first   time.Time      // of them
}

// world is a run.
type world struct {
	cfg    Config
	scaler Scaler
	events events
	seq    uint64
	now    time.Duration

	requests []Request
	state    []request
	next     int   // of requests
	open     int   // requests that are not over
	held     []int // that wait for a replica, in order

	router   *llm.Router
	replicas []*replica // by number, all that ever were
	alive    []*replica // those that are not gone, by number
	sample   autoscale.Sample
	want     int

	train   *training // nil without loans
	result  Result
	ttft    [][]time.Duration // by part
	tpot    [][]time.Duration
	billed  time.Duration // up to when GPU time is counted
	horizon time.Duration // of GPU time: the last arrival
}

// Run replays requests, which are sorted by time, on replicas whose number scaler
// decides, until all of them are over. Errors: ErrInvalid for a configuration (all
// faults, joined) or a request out of range, ErrConflict where the last requests
// are still there a day after the last came, and what scaler returns.
func Run(cfg Config, requests []Request, scaler Scaler) (*Result, error) {
	w, err := newWorld(cfg, requests, scaler)
	if err != nil {
		return nil, err
	}
	for w.open > 0 || w.next < len(w.requests) {
		if w.now > w.horizon+maxWait {
			return nil, &lockstep.Error{Kind: lockstep.ErrConflict, Op: "serve: run", Field: "scaler", Reason: fmt.Sprintf("leaves %d requests without an end", w.open)}
		}
		if err := w.advance(); err != nil {
			return nil, err
		}
	}
	w.bill(w.horizon)
	w.result.End = w.now
	for i := range w.result.Parts {
		w.result.Parts[i].TTFT, w.result.Parts[i].TPOT = percentiles(w.ttft[i]), percentiles(w.tpot[i])
	}
	return &w.result, nil
}

func newWorld(cfg Config, requests []Request, scaler Scaler) (*world, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := validateRequests(cfg, requests); err != nil {
		return nil, err
	}
	if scaler == nil {
		return nil, fault("serve: run", "scaler", "", "is nil")
	}
	router, err := llm.NewRouter(cfg.Router)
	if err != nil {
		return nil, err
	}
	w := &world{cfg: cfg, scaler: scaler, requests: requests, state: make([]request, len(requests)), router: router, want: cfg.Initial}
	if n := len(requests); n > 0 {
		w.horizon = requests[n-1].At
	}
	n := len(cfg.Cuts) + 1
	w.result.Parts, w.ttft, w.tpot = make([]Part, n), make([][]time.Duration, n), make([][]time.Duration, n)
	if cfg.Loans.Enabled {
		if w.train, err = newTraining(w); err != nil {
			return nil, err
		}
	}
	for range cfg.Initial {
		r := w.ask()
		if err := w.boot(r, 0); err != nil {
			return nil, err
		}
	}
	for i, d := range cfg.Deaths {
		w.schedule(d.At, died, i, 0)
	}
	w.schedule(0, tick, 0, 0)
	return w, nil
}

// advance does what happens next.
func (w *world) advance() error {
	if w.next < len(w.requests) {
		at := w.requests[w.next].At
		if e := w.events[0]; at < e.at || at == e.at && e.kind == tick {
			w.bill(at)
			w.now = at
			w.next++
			return w.arrive(w.next - 1)
		}
	}
	e := heap.Pop(&w.events).(event)
	w.bill(e.at)
	w.now = e.at
	switch e.kind {
	case iterated:
		return w.iterate(w.replicas[e.who])
	case loaded:
		return w.ready(w.replicas[e.who])
	case died:
		return w.die(w.cfg.Deaths[e.who])
	case tick:
		w.schedule(w.now+w.cfg.Interval, tick, 0, 0)
		return w.tick()
	default:
		return w.train.event(e)
	}
}

// part is the part of the run that an instant belongs to.
func (w *world) part(at time.Duration) int {
	i, found := slices.BinarySearch(w.cfg.Cuts, at)
	if found {
		i++
	}
	return i
}

func (w *world) current() *Part { return &w.result.Parts[w.part(w.now)] }

// bill counts GPU time up to an instant, part by part.
func (w *world) bill(to time.Duration) {
	to = min(to, w.horizon)
	for w.billed < to {
		i := w.part(w.billed)
		until := to
		if i < len(w.cfg.Cuts) {
			until = min(until, w.cfg.Cuts[i])
		}
		d := (until - w.billed) * time.Duration(w.cfg.GPUs)
		p := &w.result.Parts[i]
		n := w.count()
		p.GPUTime += d * time.Duration(n[ready]+n[starting]+n[draining])
		p.Starting += d * time.Duration(n[starting])
		p.Draining += d * time.Duration(n[draining])
		if w.train != nil {
			w.train.bill(p, w.billed, until)
		}
		w.billed = until
	}
}

// arrive takes a request in.
func (w *world) arrive(i int) error {
	q := &w.requests[i]
	w.state[i] = request{part: w.part(q.At), replica: -1}
	w.result.Parts[w.state[i].part].Requests++
	w.open++
	w.sample.Requests++
	w.sample.Prompt += int64(q.Prompt)
	return w.send(i)
}

// send routes a request, or holds it where no replica is ready.
func (w *world) send(i int) error {
	q, s := &w.requests[i], &w.state[i]
	route, ok, err := w.router.Route(clock(w.now), q.Prompt+s.made, nil)
	if err != nil {
		return err
	}
	if !ok {
		w.held = append(w.held, i)
		return nil
	}
	r := w.byName(route.Replica)
	s.replica, s.ticket = r.number, route.Ticket
	_, refused, err := r.engine.Submit(clock(w.now), llm.Request{
		ID: serving.RequestID(i), Class: q.Class, Prompt: q.Prompt, Output: q.Output, Made: s.made, First: s.first,
	})
	if err != nil {
		return err
	}
	if refused != "" {
		return w.refuse(i)
	}
	r.ongoing++
	if !r.step.Busy {
		return w.iterate(r)
	}
	return nil
}

// refuse ends a request without its tokens.
func (w *world) refuse(i int) error {
	w.result.Parts[w.state[i].part].Refused++
	w.open--
	w.sample.Finished++
	_, err := w.router.Done(clock(w.now), w.state[i].ticket)
	return err
}

// finish ends a request that has its tokens.
func (w *world) finish(f *llm.Finished) error {
	i := int(f.ID)
	q, s := &w.requests[i], &w.state[i]
	p, class := &w.result.Parts[s.part], w.cfg.Engine.Classes[q.Class]
	w.open--
	w.sample.Finished++
	w.sample.Output += int64(f.Tokens)
	p.Finished++
	p.Tokens += int64(f.Tokens)
	ttft, tpot := since(f.First)-q.At, time.Duration(0)
	w.ttft[s.part] = append(w.ttft[s.part], ttft)
	if f.Tokens > 1 {
		tpot = f.Last.Sub(f.First) / time.Duration(f.Tokens-1)
		w.tpot[s.part] = append(w.tpot[s.part], tpot)
	}
	onTime, onPace := class.TTFT == 0 || ttft <= class.TTFT, class.TPOT == 0 || tpot <= class.TPOT
	if onTime {
		p.OnTime++
	}
	if onPace {
		p.OnPace++
	}
	if onTime && onPace {
		p.Attained++
	}
	_, err := w.router.Done(clock(w.now), s.ticket)
	return err
}
