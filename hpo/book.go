package hpo

// state is what a trial does.
type state uint8

// The states.
const (
	waiting state = iota // added, never started
	running
	paused // at a rung
	again  // to be started again
	done
	states int = iota
)

// trial is one trial. Slots of trials are used again after Forget.
type trial struct {
	id      TrialID
	order   uint64  // of Add, from 1; 0 for a free slot
	seq     uint64  // arrival of its latest record; 0 for none
	step    uint64  // largest reported
	key     float64 // latest recorded
	stamp   uint64  // batch in which it last reported
	attempt uint32
	crashes uint32
	bracket int32
	rung    int32 // those below it are passed
	place   int32 // of its latest record, for the variant Determined
	state   state
}

// book is the trials of a search.
type book struct {
	index   map[TrialID]int32
	trials  []trial
	spare   []int32 // free slots
	counts  [states]int
	waiting queue
	again   queue
	seq     uint64 // records so far
	added   uint64 // trials so far
	batch   uint64 // calls of Report so far
	closed  bool   // nothing is started that never ran
}

// add returns the slot of a new trial.
func (b *book) add(id TrialID) int32 {
	b.added++
	slot := int32(len(b.trials))
	if n := len(b.spare); n > 0 {
		slot = b.spare[n-1]
		b.spare = b.spare[:n-1]
	} else {
		b.trials = append(b.trials, trial{})
	}
	b.trials[slot] = trial{id: id, order: b.added}
	b.index[id] = slot
	b.counts[waiting]++
	b.waiting.push(ticket{b.added, slot})
	return slot
}

// move brings a trial into another state.
func (b *book) move(slot int32, to state) {
	t := &b.trials[slot]
	b.counts[t.state]--
	b.counts[to]++
	t.state = to
	if to == again {
		b.again.push(ticket{t.order, slot})
	}
}

// forget frees the slot of a trial that is done.
func (b *book) forget(slot int32) {
	b.counts[done]--
	delete(b.index, b.trials[slot].id)
	b.trials[slot] = trial{}
	b.spare = append(b.spare, slot)
}

// record returns an entry for what a trial reported now.
func (b *book) record(slot int32, key float64) entry {
	b.seq++
	t := &b.trials[slot]
	t.seq, t.key = b.seq, key
	return entry{key, b.seq, slot}
}

// ticket is a place in a queue. It is void once its trial has left the state for which it queues.
type ticket struct {
	order uint64 // the trial's
	slot  int32
}

// queue is first in, first out.
type queue struct {
	line []ticket
	head int
}

func (q *queue) push(t ticket) {
	if q.head > 32 && q.head*2 > len(q.line) {
		n := copy(q.line, q.line[q.head:])
		q.line, q.head = q.line[:n], 0
	}
	q.line = append(q.line, t)
}

// pop returns the first whose trial is in the state.
func (q *queue) pop(b *book, in state) (int32, bool) {
	for q.head < len(q.line) {
		t := q.line[q.head]
		q.head++
		if have := &b.trials[t.slot]; have.order == t.order && have.state == in {
			return t.slot, true
		}
	}
	q.line, q.head = q.line[:0], 0
	return 0, false
}

// slots returns who queues, in order.
func (q *queue) slots(b *book, in state) []int32 {
	var out []int32
	for _, t := range q.line[q.head:] {
		if have := &b.trials[t.slot]; have.order == t.order && have.state == in {
			out = append(out, t.slot)
		}
	}
	return out
}
