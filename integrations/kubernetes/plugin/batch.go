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
	waiting              // in Permit, for the others
	passing              // let through: it will be bound, or fail by itself
	ended                // bound, or failed
)

// batch is the pods of one gang that are to be bound together.
type batch struct {
	gang    string
	items   []item
	arrived int // how many have come to Permit
	done    func(i int, err error)
	timer   *time.Timer
}

type item struct {
	binding *corev1.Binding
	stage   stage
}

// pin is one pod of a batch.
type pin struct {
	batch *batch
	index int
}

func (p pin) item() *item { return &p.batch.items[p.index] }

func (p pin) node() string { return p.item().binding.Target.Name }

// board is what is pinned where. It calls nobody while it is locked.
type board struct {
	mu     sync.Mutex
	pins   map[types.UID]pin
	probes int  // pods that were let into the queue without a pin
	begun  bool // a cycle was seen
}

// maxProbes bounds the pods that are let into the queue before a cycle was seen.
const maxProbes = 16

// Causes for which a batch fails.
var (
	errDeleted = errors.New("plugin: the pod is gone")
	errLate    = errors.New("plugin: the pods of the gang did not come through in time")
)

// put pins the pods of b. One that is pinned already fails its old batch first.
func (t *board) put(b *batch) {
	for i := range b.items {
		t.fail(b.items[i].binding.UID, fmt.Errorf("plugin: pinned anew, to %s", b.items[i].binding.Target.Name), nil)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range b.items {
		t.pins[b.items[i].binding.UID] = pin{b, i}
	}
}

// get returns the pin of a pod.
func (t *board) get(uid types.UID) (pin, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.pins[uid]
	return p, ok
}

// enters reports whether a pod may enter the queue: it is pinned, or it is a probe.
func (t *board) enters(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.pins[uid]; ok {
		return true
	}
	if t.begun || t.probes == maxProbes {
		return false
	}
	t.probes++
	return true
}

// begin notes that a cycle was seen. It reports whether it is the first.
func (t *board) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.begun
	t.begun = true
	return first
}

// arrive notes that a pod has come to Permit on a node. It returns the others of its
// batch to be let through if it is the last, and whether it is; ok is false where the
// pod is not pinned there.
func (t *board) arrive(uid types.UID, node string) (others []types.UID, last, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.pins[uid]
	if !ok || p.node() != node {
		return nil, false, false
	}
	b := p.batch
	if it := p.item(); it.stage == pinned {
		it.stage = waiting
		b.arrived++
	}
	if b.arrived < len(b.items) {
		return nil, false, true
	}
	b.timer.Stop()
	for i := range b.items {
		it := &b.items[i]
		if it.stage == waiting {
			it.stage = passing
			if it.binding.UID != uid {
				others = append(others, it.binding.UID)
			}
		}
	}
	return others, true, true
}

// finish ends one pod that passed: it is bound, or, with an error, it is not.
func (t *board) finish(uid types.UID, err error) {
	t.mu.Lock()
	p, ok := t.pins[uid]
	if ok {
		p.item().stage = ended
		delete(t.pins, uid)
	}
	t.mu.Unlock()
	if ok {
		p.batch.done(p.index, err)
	}
}

// fail ends the batch of a pod for all that have not passed, and for the pod itself.
// Those of them that wait in Permit are given to reject, if that is not nil. A pod
// that is not pinned fails nothing.
func (t *board) fail(uid types.UID, err error, reject func(uid types.UID)) {
	t.mu.Lock()
	p, ok := t.pins[uid]
	if !ok {
		t.mu.Unlock()
		return
	}
	b := p.batch
	var over []int
	var waits []types.UID
	for i := range b.items {
		it := &b.items[i]
		if it.stage == ended || it.stage == passing && i != p.index {
			continue
		}
		if it.stage == waiting && i != p.index {
			waits = append(waits, it.binding.UID)
		}
		it.stage = ended
		if q := t.pins[it.binding.UID]; q.batch == b {
			delete(t.pins, it.binding.UID)
		}
		over = append(over, i)
	}
	b.timer.Stop()
	t.mu.Unlock()
	if reject != nil {
		for _, uid := range waits {
			reject(uid)
		}
	}
	for _, i := range over {
		b.done(i, err)
	}
}
