package standalone

import corev1 "k8s.io/api/core/v1"

// Binder makes bindings in place of the client: something else of which this
// scheduler is the part that decides, such as a framework that has pods of its own
// queue bound. Deletions stay with the client.
type Binder interface {
	// Bind has the pods of one gang bound, which were decided together: those of a
	// gang that starts, or that are missing of one that runs. It does not block. done
	// is called once for each, with its index, from any goroutine but not from within
	// Bind; with an error where the pod was not bound and will not be. The bindings
	// carry the pods' UIDs, and are Bind's to keep.
	Bind(gang string, bindings []*corev1.Binding, done func(i int, err error))
}

// delegate gives bindings to the binder, those of one gang together, and returns
// the other orders. The desk puts those of a gang one behind the other.
func (w *writer) delegate(orders []task) (others []task) {
	for len(orders) > 0 {
		if orders[0].kind != orderBind || len(orders[0].grants) > 0 { // devices of claims are given out by the client
			others, orders = append(others, orders[0]), orders[1:]
			continue
		}
		n := 1
		for n < len(orders) && orders[n].kind == orderBind && orders[n].job == orders[0].job {
			n++
		}
		batch := orders[:n:n]
		orders = orders[n:]
		list := make([]*corev1.Binding, n)
		for i := range batch {
			list[i] = batch[i].binding
		}
		w.mu.Lock()
		w.busy += n
		w.mu.Unlock()
		w.binder.Bind(string(batch[0].job), list, func(i int, err error) { w.delegated(batch[i], err) })
	}
	return others
}

// delegated takes note of what became of a binding.
func (w *writer) delegated(o task, err error) {
	if err != nil {
		o.node = ""
	}
	w.mu.Lock()
	w.busy--
	w.results = append(w.results, result{task: o, err: err})
	if len(w.orders) == 0 && w.busy == 0 {
		w.idle.Broadcast()
	}
	w.mu.Unlock()
	w.wake()
}
