package plugin

import (
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// stage is how far a pod of a batch has come.
type stage uint8

const (
	pinned  stage = iota // not through Permit yet
	waiting              // through Permit, and waits for the others
	passing              // let through: it will be bound, or fail by itself
	ended                // bound, or failed
)

// batch is the pods of one gang that are to be bound together.
type batch struct {
	gang    string
	items   []item
	arrived int // how many have come to Permit
	done    func(i int, err error)
	limit   time.Duration // until when all have to have come to Permit, from put on
	timer   *time.Timer
	settled chan struct{} // closed when all have come to Permit, or one of them failed
	over    bool          // settled is closed
}

type item struct {
	binding *corev1.Binding
	stage   stage
	held    bool // it waits in Permit, rather than in Bind
}

func newBatch(gang string, bindings []*corev1.Binding, limit time.Duration, done func(i int, err error)) *batch {
	b := &batch{gang: gang, items: make([]item, len(bindings)), done: done, limit: limit, settled: make(chan struct{})}
	for i, o := range bindings {
		b.items[i].binding = o
	}
	return b
}

// settle ends the wait for the others. The board is locked.
func (b *batch) settle() {
	if b.over {
		return
	}
	b.over = true
	close(b.settled)
	if b.timer != nil {
		b.timer.Stop()
	}
}

// pin is one pod of a batch. What binding it has does not change; its stage is the
// board's.
type pin struct {
	batch *batch
	index int
}

func (p pin) item() *item { return &p.batch.items[p.index] }

func (p pin) node() string { return p.item().binding.Target.Name }

func (p pin) uid() types.UID { return p.item().binding.UID }

// board is what is pinned where. It calls nobody while it is locked.
type board struct {
	mu     sync.Mutex
	pins   map[types.UID]pin
	probes map[types.UID]bool // pods that were let into the queue without a pin
	begun  bool               // a cycle was seen
	closed error              // why nothing is pinned any more
	reject func(p pin)        // has a pod that waits in Permit let go
}

// maxProbes bounds the pods that are let into the queue before a cycle was seen.
const maxProbes = 16

// Causes for which a batch fails.
var (
	errGone   = errors.New("plugin: the pod is gone, or about to be")
	errBound  = errors.New("plugin: somebody else bound the pod")
	errLate   = errors.New("plugin: the pods of the gang did not come through in time")
	errClosed = errors.New("plugin: the scheduler ends")
)

func newBoard(reject func(p pin)) *board {
	return &board{pins: make(map[types.UID]pin), probes: make(map[types.UID]bool), reject: reject}
}

// ending is what is to be told, once the board is not locked, of pods that ended.
type ending struct {
	cause error
	batch *batch
	over  []int
	waits []pin // of them, those that wait in Permit
}

func (t *board) tell(list ...ending) {
	for _, e := range list {
		for _, p := range e.waits {
			t.reject(p)
		}
		for _, i := range e.over {
			e.batch.done(i, e.cause)
		}
	}
}

// end ends a batch for all of its pods that have not passed, and for one that has; -1
// means none. The board is locked.
func (t *board) end(b *batch, one int, cause error) ending {
	e := ending{cause: cause, batch: b}
	for i := range b.items {
		it := &b.items[i]
		if it.stage == ended || it.stage == passing && i != one {
			continue
		}
		if it.stage == waiting && it.held {
			e.waits = append(e.waits, pin{b, i})
		}
		t.close(pin{b, i})
		e.over = append(e.over, i)
	}
	b.settle()
	return e
}

// close ends one pod. The board is locked.
func (t *board) close(p pin) {
	p.item().stage = ended
	if t.pins[p.uid()] == p {
		delete(t.pins, p.uid())
	}
}

// put pins the pods of b. One that is pinned already fails its old batch first.
func (t *board) put(b *batch) {
	var list []ending
	t.mu.Lock()
	for i := range b.items {
		uid := b.items[i].binding.UID
		if old, ok := t.pins[uid]; ok {
			list = append(list, t.end(old.batch, old.index, fmt.Errorf("plugin: pinned anew, to %s", b.items[i].binding.Target.Name)))
		}
		if b.items[i].stage != ended { // which it is where a pod is in b twice
			t.pins[uid] = pin{b, i}
		}
	}
	switch {
	case t.closed != nil:
		list = append(list, t.end(b, -1, t.closed))
	case !b.over:
		b.timer = time.AfterFunc(b.limit, func() { t.expire(b) })
	}
	t.mu.Unlock()
	t.tell(list...)
}

// expire fails a batch of which not all have come in time.
func (t *board) expire(b *batch) {
	t.mu.Lock()
	if b.over {
		t.mu.Unlock()
		return
	}
	e := t.end(b, -1, errLate)
	t.mu.Unlock()
	t.tell(e)
}

// get returns the pin of a pod.
func (t *board) get(uid types.UID) (pin, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.pins[uid]
	return p, ok
}

// holds reports whether a pin is the one that its pod has now.
func (t *board) holds(p pin) bool {
	now, ok := t.get(p.uid())
	return ok && now == p
}

// enters reports whether a pod may enter the queue: it is pinned, or it is a probe. Of
// those that other plugins may refuse before they come to this one, few are.
func (t *board) enters(uid types.UID, doubtful bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.pins[uid]; ok {
		return true
	}
	most := maxProbes
	if doubtful {
		most = maxProbes / 2
	}
	if t.begun || len(t.probes) >= most && !t.probes[uid] {
		return false
	}
	t.probes[uid] = true
	return true
}

// begin notes that a cycle was seen. It reports whether it is the first.
func (t *board) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.begun
	t.begun, t.probes = true, nil
	return first
}

// leave notes that a pod is no more. It reports whether it was a probe, so that another
// one is needed.
func (t *board) leave(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.probes[uid]
	delete(t.probes, uid)
	return was
}

// arrive notes that a pod has come to Permit, and will be held there unless it is the
// last of its batch. Then those that are held are returned, to be let go; ok is false
// where the pod is not pinned so any more.
func (t *board) arrive(p pin, held bool) (others []types.UID, last, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pins[p.uid()] != p {
		return nil, false, false
	}
	b := p.batch
	if it := p.item(); it.stage == pinned {
		it.stage, it.held = waiting, held
		b.arrived++
	}
	if b.arrived < len(b.items) {
		return nil, false, true
	}
	for i := range b.items {
		it := &b.items[i]
		if it.stage == waiting {
			it.stage = passing
			if it.held && i != p.index {
				others = append(others, it.binding.UID)
			}
		}
	}
	b.settle()
	return others, true, true
}

// passes reports whether a pod was let through.
func (t *board) passes(p pin) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return p.item().stage == passing
}

// finish ends one pod that passed: it is bound, or, with an error, it is not.
func (t *board) finish(p pin, err error) {
	t.mu.Lock()
	open := p.item().stage != ended
	if open {
		t.close(p)
	}
	t.mu.Unlock()
	if open {
		p.batch.done(p.index, err)
	}
}

// awaits reports whether the pod of p waits, as a pod of another batch.
func (t *board) awaits(p pin) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, ok := t.pins[p.uid()]
	return ok && now != p && now.item().stage == waiting
}

// fail ends the batch of a pod for all that have not passed, and for the pod itself,
// of which the framework says that it does not go on.
func (t *board) fail(p pin, cause error) {
	t.mu.Lock()
	if p.item().stage == ended {
		t.mu.Unlock()
		return
	}
	p.item().held = false
	e := t.end(p.batch, p.index, cause)
	t.mu.Unlock()
	t.tell(e)
}

// lose ends the batch of a pod that cannot be bound any more. One that has passed is
// not touched where passed is false: it may be that it was just bound.
func (t *board) lose(uid types.UID, passed bool, cause error) {
	t.mu.Lock()
	p, ok := t.pins[uid]
	if !ok || p.item().stage == passing && !passed {
		t.mu.Unlock()
		return
	}
	e := t.end(p.batch, p.index, cause)
	t.mu.Unlock()
	t.tell(e)
}

// shut ends all batches for all that have not passed, and what is pinned from then on.
func (t *board) shut(cause error) {
	var list []ending
	t.mu.Lock()
	t.closed = cause
	for _, p := range t.pins { // each batch ends once, in any order
		if !p.batch.over {
			list = append(list, t.end(p.batch, -1, cause))
		}
	}
	t.mu.Unlock()
	t.tell(list...)
}
