package serve

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/serving/autoscale"
	"github.com/lockstep-gpu/lockstep/serving/llm"
)

// phase is where a replica is in its life.
type phase uint8

const (
	asked    phase = iota // it waits for a server
	starting              // it loads
	ready                 // it takes requests
	draining              // it finishes what it has
	gone
)

// replica is one copy of the model on one server.
type replica struct {
	number  int
	name    string
	phase   phase
	asked   time.Duration
	engine  *llm.Engine // nil unless it is ready or draining
	step    llm.Step    // which runs
	ongoing int         // requests
}

// count is how many replicas are in each phase.
func (w *world) count() (n [gone + 1]int) {
	for _, r := range w.alive {
		n[r.phase]++
	}
	return n
}

// ask makes a replica that has no server yet.
func (w *world) ask() *replica {
	n := len(w.replicas)
	r := &replica{number: n, name: fmt.Sprintf("r%08d", n), asked: w.now}
	w.replicas, w.alive = append(w.replicas, r), append(w.alive, r)
	return r
}

// byName is the replica of a name that ask gave.
func (w *world) byName(id llm.ReplicaID) *replica {
	n, _ := strconv.Atoi(string(id[1:]))
	return w.replicas[n]
}

// free is how many servers neither have a replica nor are lent.
func (w *world) free() int {
	n := w.count()
	free := w.cfg.Servers - n[starting] - n[ready] - n[draining]
	if w.train != nil {
		free -= w.train.lent()
	}
	return free
}

// fill starts what waits for a server, the first that asked first.
func (w *world) fill() error {
	free := w.free()
	for _, r := range w.alive {
		if free <= 0 {
			break
		}
		if r.phase == asked {
			free--
			w.current().Starts++
			if err := w.boot(r, w.cfg.Load); err != nil {
				return err
			}
		}
	}
	return nil
}

// boot starts a replica that is ready after load.
func (w *world) boot(r *replica, load time.Duration) error {
	r.phase = starting
	if load > 0 {
		w.schedule(w.now+load, loaded, r.number, 0)
		return nil
	}
	return w.ready(r)
}

// ready has a replica take requests, first those that were held.
func (w *world) ready(r *replica) (err error) {
	if r.phase != starting {
		return nil // it was told to go while it loaded
	}
	if r.engine, err = llm.New(w.cfg.Engine); err != nil {
		return err
	}
	if err := w.router.Add(llm.ReplicaID(r.name)); err != nil {
		return err
	}
	r.phase = ready
	held := w.held
	w.held = nil
	for _, i := range held {
		if err := w.send(i); err != nil {
			return err
		}
	}
	return nil
}

// iterate ends a replica's iteration and begins the next.
func (w *world) iterate(r *replica) error {
	if r.phase != ready && r.phase != draining || r.step.Busy && clock(w.now).Before(r.step.Until) {
		return nil // it died, or this is of before
	}
	now := clock(w.now)
	for _, c := range r.step.Prefill {
		if c.Emits && r.phase == ready {
			if _, err := w.router.Started(now, w.state[c.ID].ticket); err != nil {
				return err
			}
		}
	}
	if err := r.engine.Step(now, &r.step); err != nil {
		return err
	}
	for i := range r.step.Finished {
		r.ongoing--
		if err := w.finish(&r.step.Finished[i]); err != nil {
			return err
		}
	}
	for _, late := range r.step.Refused {
		r.ongoing--
		if err := w.refuse(int(late.ID)); err != nil {
			return err
		}
	}
	if r.step.Busy {
		w.result.Steps++
		w.schedule(since(r.step.Until), iterated, r.number, 0)
		return nil
	}
	if r.phase == draining {
		return w.end(r)
	}
	return nil
}

// drain tells a replica to go.
func (w *world) drain(r *replica) error {
	switch r.phase {
	case asked:
		return w.end(r)
	case starting:
		w.current().Stops++
		return w.end(r)
	case ready:
		w.current().Stops++
		r.phase = draining
		if err := w.router.Remove(llm.ReplicaID(r.name)); err != nil {
			return err
		}
		if r.ongoing == 0 {
			return w.end(r)
		}
	}
	return nil
}

// end takes a replica off its server.
func (w *world) end(r *replica) error {
	r.phase, r.engine, r.step = gone, nil, llm.Step{}
	w.alive = slices.DeleteFunc(w.alive, func(o *replica) bool { return o == r })
	return w.fill()
}

// die loses a replica; what it had goes on elsewhere, from the tokens that clients have.
func (w *world) die(d Death) error {
	var up []*replica
	for _, r := range w.alive {
		if r.phase == ready {
			up = append(up, r)
		}
	}
	if len(up) == 0 {
		return nil
	}
	r := up[d.Replica%len(up)]
	lost, err := r.engine.Reset(clock(w.now), nil)
	if err != nil {
		return err
	}
	if err := w.router.Remove(llm.ReplicaID(r.name)); err != nil {
		return err
	}
	p := w.current()
	p.Deaths++
	p.Restarted += len(lost)
	if err := w.end(r); err != nil {
		return err
	}
	for _, l := range lost {
		s := &w.state[l.ID]
		s.replica, s.made, s.first = -1, l.Tokens, l.First
		if err := w.send(int(l.ID)); err != nil {
			return err
		}
	}
	return nil
}

// tick tells the Scaler, asks it and does what it says.
func (w *world) tick() error {
	now := clock(w.now)
	w.sample.Ongoing, w.sample.Queued = 0, int64(len(w.held))
	var fleet autoscale.Fleet
	for _, r := range w.alive {
		w.sample.Ongoing += int64(r.ongoing)
		of := autoscale.Replica{ID: autoscale.ReplicaID(r.name), Started: clock(r.asked), Ongoing: int64(r.ongoing)}
		switch r.phase {
		case asked, starting:
			fleet.Starting = append(fleet.Starting, of)
		case ready:
			fleet.Ready = append(fleet.Ready, of)
		default:
			fleet.Draining = append(fleet.Draining, of)
		}
	}
	if err := w.scaler.Observe(now, w.sample); err != nil {
		return err
	}
	w.sample = autoscale.Sample{}
	d, err := w.scaler.Decide(now, fleet)
	if err != nil {
		return err
	}
	if err := w.apply(d); err != nil {
		return err
	}
	if w.train != nil {
		if err := w.train.tick(); err != nil {
			return err
		}
	}
	w.mark()
	return nil
}

// apply starts and drains what the Scaler says. More than there are servers is not
// asked for: it could never start.
func (w *world) apply(d autoscale.Decision) error {
	w.want = d.Want
	n := w.count()
	for range min(max(d.Add, 0), w.cfg.Servers-n[asked]-n[starting]-n[ready]) {
		w.ask()
	}
	for _, id := range d.Remove {
		for _, r := range w.alive {
			if r.name == string(id) {
				if err := w.drain(r); err != nil {
					return err
				}
				break
			}
		}
	}
	return w.fill()
}

// mark adds a point to the timeline.
func (w *world) mark() {
	n := w.count()
	p := Point{
		At: w.now, Want: w.want, Ready: n[ready], Starting: n[starting], Asked: n[asked], Draining: n[draining], Held: len(w.held),
	}
	for _, r := range w.alive {
		p.Ongoing += r.ongoing
	}
	if w.train != nil {
		p.Lent, p.Training = w.train.lent(), w.train.running()
	}
	w.result.Timeline = append(w.result.Timeline, p)
}
