package standalone

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// feed collects the names of objects that changed, each once, until somebody asks.
// What they are like is for the informers' stores to say, so that a burst of
// changes of one object is one change. Safe for concurrent use.
type feed struct {
	mu    sync.Mutex
	dirty [kinds]map[string]bool
	wake  chan struct{} // has one element while something is there
}

// kind is a kind of object that is watched.
type kind int

// Those that pods are read with come before them.
const (
	published kind = iota
	classes
	claims
	nodes
	groups
	pods
	queues
	kinds // how many there are
)

func newFeed() *feed {
	f := &feed{wake: make(chan struct{}, 1)}
	for k := range f.dirty {
		f.dirty[k] = make(map[string]bool)
	}
	return f
}

// touch notes that an object changed.
func (f *feed) touch(k kind, key string) {
	f.mu.Lock()
	f.dirty[k][key] = true
	f.mu.Unlock()
	f.signal()
}

// signal wakes who waits.
func (f *feed) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take returns the names of what changed and forgets them. They are in no order.
func (f *feed) take() (dirty [kinds]map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dirty = f.dirty
	for k := range f.dirty {
		f.dirty[k] = make(map[string]bool)
	}
	return dirty
}

// handler feeds what an informer tells.
func (f *feed) handler(k kind) cache.ResourceEventHandler {
	touch := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			f.touch(k, key)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    touch,
		UpdateFunc: func(_, obj any) { touch(obj) },
		DeleteFunc: touch,
	}
}
