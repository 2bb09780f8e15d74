package pipeline

import "github.com/lockstep-gpu/lockstep"

// node is an op in the order of evaluation. It starts when the op before it in its row and the op it depends on have
// ended, the latter with a transfer.
type node struct {
	at  int32 // index of the op; at-1 is the op before it, or the origin of its row
	dep int32 // index of the op it depends on; 0 where there is none outside its row
	hop int32 // index of the transfer between them; 0 takes no time
	row int32 // the row it is in
}

// Line is a schedule, compiled: the ops of every stage and the order in which to evaluate them. It never changes, so any
// number of goroutines may use it, each with its own Result.
//
// Each row of ops has an origin in front of it, at index base[row], which ends at 0.
type Line struct {
	cfg    Config
	rows   [][]Op
	base   []int32       // index of each row's origin, and the end of the last row
	ops    []Op          // by index; the zero Op at origins
	row    []int32       // by index: its row
	full   []int32       // by index: entry of (virtual stage, micro-batch); 0 at origins
	virt   []int32       // by index: virtual stage; 0 at origins
	nodes  []node        // in order of evaluation
	waits  []dep         // by index: what it waits for outside its row
	fused  []int32       // backward ops whose weights are not split off
	splits bool          // some op is of kind Weight
	holds  [][kinds]bool // by virtual stage: the kinds of ops it has; all with a forward
	next   []int32       // by virtual stage: the one after it that holds layers; -1 for none
	place  []int32       // index of the op (kind, virtual stage, micro-batch); 0 where there is none
	peaks  [][2]int      // by row: activations, and weight gradients put off
}

// New compiles the schedule of cfg. It returns a *DeadlockError for orders that could never end.
func New(cfg Config) (*Line, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	l := &Line{cfg: cfg}
	l.layOut()
	if err := l.connect(); err != nil {
		return nil, err
	}
	if err := l.sort(); err != nil {
		return nil, err
	}
	l.replay()
	return l, nil
}

// layOut copies or makes the ops and numbers them.
func (l *Line) layOut() {
	c := &l.cfg
	n := c.Stages * c.Replicas
	l.rows, l.base = make([][]Op, n), make([]int32, n+1)
	size := n + c.Stages*c.Chunks*c.Micros*2
	if c.Orders != nil {
		size = n
		for _, ops := range c.Orders {
			size += len(ops)
		}
	} else if c.Schedule.Splits() {
		size += c.Stages * c.Micros
	}
	l.ops = make([]Op, 0, size)
	for i := range n {
		l.base[i] = int32(len(l.ops))
		l.ops = append(l.ops, Op{})
		if c.Orders != nil {
			l.ops = append(l.ops, c.Orders[i]...)
		} else {
			first, micros := c.share(i / c.Stages)
			own := len(l.ops)
			l.ops = c.appendOrder(l.ops, i%c.Stages, micros)
			for k := range l.ops[own:] {
				l.ops[own+k].Micro += int32(first)
			}
		}
	}
	l.base[n] = int32(len(l.ops))
	for i := range n {
		l.rows[i] = l.ops[l.base[i]+1 : l.base[i+1] : l.base[i+1]]
	}
	c.Orders, c.Split = nil, nil
}

// Stages is how many rows of ops there are: the stages, times the replicas.
func (l *Line) Stages() int { return len(l.rows) }

// Order returns the ops of a stage in the order it runs them, or nil for a stage that there is not. The memory is shared and
// read only.
func (l *Line) Order(stage int) []Op {
	if stage < 0 || stage >= len(l.rows) {
		return nil
	}
	return l.rows[stage]
}

// Index returns where an op is in the order of a stage, and false if it is not there.
func (l *Line) Index(stage int, op Op) (int, bool) {
	c := &l.cfg
	if stage < 0 || stage >= len(l.rows) || op.Kind > Weight || op.Chunk < 0 || int(op.Chunk) >= c.Chunks || op.Micro < 0 || int(op.Micro) >= c.Micros {
		return 0, false
	}
	at := l.index(op.Kind, int(op.Chunk)*c.Stages+stage%c.Stages, int(op.Micro))
	if at == 0 || int(l.row[at]) != stage {
		return 0, false
	}
	return int(at - l.base[stage] - 1), true
}

// Splits says whether some ops are of kind Weight.
func (l *Line) Splits() bool { return l.splits }

// invalid builds the common error of this package.
func invalid(op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "pipeline: " + op, Field: field, Value: value, Reason: reason}
}
