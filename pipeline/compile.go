package pipeline

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// dep is what an op waits for: the index of another op, 0 for none, and the transfer between them.
type dep struct{ on, hop int32 }

// The transfers of a virtual stage v: the activation it sends on and the gradient it gets back, each within a replica and
// between two. Transfer 0 takes no time.
const (
	hopSend = iota
	hopReturn
	hopSendAcross
	hopReturnAcross
	hopKinds
)

func hopOf(v, kind int) int32 { return int32(1 + v*hopKinds + kind) }

// connect finds every op and what it waits for.
func (l *Line) connect() error {
	if err := l.find(); err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return err
	}
	c := &l.cfg
	prev := make([]int, c.Stages*c.Chunks) // the one before it that holds layers; -1 for none
	for v, before := 0, -1; v < len(prev); v++ {
		prev[v] = before
		if l.holds[v][Forward] {
			before = v
		}
	}
	l.waits = make([]dep, len(l.ops))
	for row, ops := range l.rows {
		for i, op := range ops {
			at := l.base[row] + 1 + int32(i)
			v, j := int(l.virt[at]), int(op.Micro)
			d := &l.waits[at]
			switch {
			case op.Kind == Weight:
				d.on = l.index(Backward, v, j)
			case op.Kind == Backward && l.next[v] < 0:
				d.on = l.index(Forward, v, j)
			case op.Kind == Backward:
				*d = l.transfer(at, l.index(Backward, int(l.next[v]), j), hopOf(v, hopReturn))
			case prev[v] >= 0:
				*d = l.transfer(at, l.index(Forward, prev[v], j), hopOf(prev[v], hopSend))
			}
		}
	}
	return nil
}

// find notes where every op is, what it costs, and which virtual stages hold layers.
func (l *Line) find() error {
	c := &l.cfg
	n := c.Stages * c.Chunks
	l.place = make([]int32, kinds*n*c.Micros)
	l.full, l.virt, l.row = make([]int32, len(l.ops)), make([]int32, len(l.ops)), make([]int32, len(l.ops))
	l.holds = make([][kinds]bool, n)
	for row, ops := range l.rows {
		for i, op := range ops {
			if op.Kind > Weight || op.Chunk < 0 || int(op.Chunk) >= c.Chunks || op.Micro < 0 || int(op.Micro) >= c.Micros {
				return l.fault(row, i, "kind, chunk or micro-batch is out of range")
			}
			v := int(op.Chunk)*c.Stages + row%c.Stages
			at := l.base[row] + 1 + int32(i)
			l.virt[at], l.full[at], l.row[at] = int32(v), int32(v*c.Micros+int(op.Micro)), int32(row)
			p := &l.place[(int(op.Kind)*n+v)*c.Micros+int(op.Micro)]
			if *p != 0 {
				e := l.fault(row, i, "is there twice")
				e.Kind = lockstep.ErrDuplicate
				return e
			}
			*p = at
			l.holds[v][Forward], l.holds[v][op.Kind] = true, true
			l.splits = l.splits || op.Kind == Weight
		}
	}
	l.next = make([]int32, n)
	after := int32(-1)
	for v := n - 1; v >= 0; v-- {
		l.next[v] = after
		if l.holds[v][Forward] {
			after = int32(v)
		}
	}
	if after < 0 {
		return invalid("new", "Orders", "", "there is no op")
	}
	return nil
}

// check sees that no op is missing and that the ops of a micro-batch in a virtual stage are in one row.
func (l *Line) check() error {
	for v, holds := range l.holds {
		if !holds[Forward] {
			continue
		}
		for j := range l.cfg.Micros {
			f := l.index(Forward, v, j)
			for k := Forward; k <= Weight; k++ {
				at := l.index(k, v, j)
				switch {
				case at == 0 && (k != Weight || holds[k]):
					op := Op{Kind: k, Chunk: int32(v / l.cfg.Stages), Micro: int32(j)}
					return invalid("new", "Orders", op.String(), "stage "+strconv.Itoa(v%l.cfg.Stages)+" lacks it")
				case at != 0 && l.row[at] != l.row[f]:
					row := int(l.row[at])
					return l.fault(row, int(at-l.base[row]-1), "its activations are in the replica of its forward")
				}
			}
			if !holds[Weight] {
				l.fused = append(l.fused, l.index(Backward, v, j))
			}
		}
	}
	return nil
}

// index returns where an op is, or 0.
func (l *Line) index(k Kind, v, micro int) int32 {
	return l.place[(int(k)*len(l.next)+v)*l.cfg.Micros+micro]
}

// transfer returns the dependency of at on on: free within a row, and of another kind between replicas.
func (l *Line) transfer(at, on, hop int32) dep {
	a, b := int(l.row[at]), int(l.row[on])
	switch {
	case a == b:
		hop = 0
	case a/l.cfg.Stages != b/l.cfg.Stages:
		hop += hopSendAcross - hopSend
	}
	return dep{on: on, hop: hop}
}

// sort finds the order of evaluation: the rows in turn, one op each, as far as what they wait for has been evaluated.
func (l *Line) sort() error {
	n := len(l.ops) - len(l.rows)
	l.nodes = make([]node, 0, n)
	waiting := make([]int32, len(l.ops)) // by op: the row that waits for it, plus 1; no two rows wait for the same one
	head := make([]int32, len(l.rows))   // by row: the op it has come to; those before it have been evaluated
	// A row is in the queue, waits, or is done; so it is a ring.
	queue, first, length := make([]int32, len(l.rows)), 0, len(l.rows)
	push := func(row int32) {
		queue[(first+length)%len(queue)] = row
		length++
	}
	for row := range l.rows {
		head[row], queue[row] = l.base[row]+1, int32(row)
	}
	for length > 0 {
		row := queue[first]
		first, length = (first+1)%len(queue), length-1
		at := head[row]
		if at == l.base[row+1] {
			continue
		}
		d := &l.waits[at]
		if d.on != 0 && d.on >= head[l.row[d.on]] {
			waiting[d.on] = row + 1
			continue
		}
		if l.row[d.on] == row { // before it in its own row, so it never waits for it
			*d = dep{}
		}
		l.nodes = append(l.nodes, node{at: at, dep: d.on, hop: d.hop, row: row})
		head[row]++
		push(row)
		if w := waiting[at]; w != 0 {
			push(w - 1)
		}
	}
	if len(l.nodes) < n {
		return l.deadlock(head)
	}
	return nil
}

// fault is the error about one op of Orders.
func (l *Line) fault(row, i int, reason string) *lockstep.Error {
	return invalid("new", "Orders["+strconv.Itoa(row)+"]["+strconv.Itoa(i)+"]", l.rows[row][i].String(), reason)
}
