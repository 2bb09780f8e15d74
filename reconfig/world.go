package reconfig

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// whole is the speed of a healthy device: speeds count in millionths.
const whole = 1_000_000

// unit is a device as the planner sees it.
type unit struct {
	id    lockstep.DeviceID
	node  int32
	leaf  int32
	speed int64 // millionths; 0 if it may have no role
	mem   int64 // bytes; math.MaxInt64 if it does not limit
	holds bool  // what it holds can be read
}

// world is a job and its devices, checked, ordered and in integers.
type world struct {
	given   Job      // as it came
	devs    []Device // as they came
	job     Job      // with defaults
	units   []unit   // by leaf, node and ID; nodes and leaves are numbered in that order
	index   map[lockstep.DeviceID]int32
	nodes   [][]int32 // by node: its units
	live    int       // units with speed
	limited bool      // some unit states its memory
	basis   Digest

	layers    int
	alike     bool        // all layers cost the same
	prefix    [3][]int64  // by kind: the cost of the first n layers, at n
	sum       []int64     // the same of all kinds together
	ends      [2][3]int64 // embedding and head, by kind
	endSum    [2]int64
	endParts  [2]int64 // their parameters, in thousandths of a layer's
	layerSize int64    // parameters of a layer
	degrees   []int32  // allowed degrees, ascending
	coll      []int64  // by degree: collectives of one layer's forward pass, in a node
	across    []int64  // the same over nodes
	splits    bool     // the schedule has weight ops
	chunks    int
	stages    int // the longest pipeline

	caps  map[capKey]int32
	lines map[[2]int32]*schedule // by stages and micro-batches; nil where there is none
	res   pipeline.Result
	ran   *pipeline.Line // what res is of
	buf   costBuffer
	ops   int64 // simulated so far

	next, table []int64 // memory of divide
	order       []int32
}

// newWorld checks what Replan, Evaluate and Verify are given.
func newWorld(op string, job Job, devs []Device) (*world, error) {
	f := faults{op: op}
	job.validate(&f)
	validateDevices(&f, devs)
	if err := f.err(); err != nil {
		return nil, err
	}
	w := &world{given: job, devs: devs, job: job.filled(), layers: job.Model.Layers, chunks: max(1, job.Chunks)}
	w.splits = job.Schedule.Splits()
	w.stages = w.job.Allow.MaxStages
	sorted := w.admit(devs)
	w.price()
	w.allowDegrees()
	w.caps = map[capKey]int32{}
	w.lines = map[[2]int32]*schedule{}
	w.basis = basis(w, sorted)
	return w, nil
}

// admit orders and numbers the devices, and returns them in their order.
func (w *world) admit(devs []Device) []Device {
	sorted := slices.Clone(devs)
	slices.SortFunc(sorted, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Leaf, b.Leaf), cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	w.units = make([]unit, len(sorted))
	w.index = make(map[lockstep.DeviceID]int32, len(sorted))
	node, leaf := int32(-1), int32(-1)
	for i, d := range sorted {
		if i == 0 || d.Leaf != sorted[i-1].Leaf {
			leaf++
		}
		if i == 0 || d.Node != sorted[i-1].Node || d.Leaf != sorted[i-1].Leaf {
			node++
			w.nodes = append(w.nodes, nil)
		}
		u := unit{id: d.ID, node: node, leaf: leaf, mem: int64(d.Memory), holds: d.State != Down && millionths(d.Speed) > 0 || d.State == Cordoned}
		if d.State == Up {
			u.speed = millionths(d.Speed)
		}
		if u.mem == 0 {
			u.mem = math.MaxInt64
		} else {
			w.limited = true
		}
		if u.speed > 0 {
			w.live++
		}
		w.units[i], w.index[d.ID] = u, int32(i)
		w.nodes[node] = append(w.nodes[node], int32(i))
	}
	return sorted
}

// millionths quantises a speed in [0, 1].
func millionths(speed float64) int64 { return int64(math.Round(float64(speed * whole))) }

// price turns the costs into prefix sums.
func (w *world) price() {
	c := w.job.costs()
	w.alike = c.Layers == nil
	for k := range w.prefix {
		w.prefix[k] = make([]int64, w.layers+1)
	}
	w.sum = make([]int64, w.layers+1)
	for n := range w.layers {
		layer := c.Layer
		if c.Layers != nil {
			layer = c.Layers[n]
		}
		for k, v := range w.kinds(layer) {
			w.prefix[k][n+1] = w.prefix[k][n] + v
			w.sum[n+1] += v
		}
		w.sum[n+1] += w.sum[n]
	}
	for i, end := range []Cost{c.Embed, c.Head} {
		w.ends[i] = w.kinds(end)
		for _, v := range w.ends[i] {
			w.endSum[i] += v
		}
	}
	layer := max(1, w.job.Model.Parameters(perfmodel.Stage{Layers: 1}))
	w.layerSize = layer
	w.endParts[0] = quotient(w.job.Model.Parameters(perfmodel.Stage{First: true}), 1000, layer)
	w.endParts[1] = quotient(w.job.Model.Parameters(perfmodel.Stage{Last: true}), 1000, layer)
	for k := 0; k <= w.job.Layout.TP; k++ {
		w.coll = append(w.coll, collective(c.Collective, k))
		w.across = append(w.across, collective(c.Across, k))
		if c.Across == nil {
			w.across[k] = w.coll[k]
		}
	}
	w.job.Costs = c
}

// kinds returns c by the kind of op; where weights are not split off, they are
// part of the backward pass.
func (w *world) kinds(c Cost) [3]int64 {
	v := [3]int64{int64(c.Forward), int64(c.Backward), int64(c.Weight)}
	if !w.splits {
		v[1], v[2] = v[1]+v[2], 0
	}
	return v
}

// allowDegrees lists the degrees that a group may have.
func (w *world) allowDegrees() {
	for k := w.job.Allow.MinTP; k <= w.job.Layout.TP; k++ {
		if w.job.divides(k) {
			w.degrees = append(w.degrees, int32(k))
		}
	}
}

// divides says whether a group may have degree k.
func (j *Job) divides(k int) bool {
	if k < 1 || k&(k-1) != 0 && !j.Allow.AllowOddTP {
		return false
	}
	return j.Model.Vocab%k == 0 && j.Model.Check(perfmodel.Layout{TP: k}) == nil
}

// share returns ceil(work·1e6/rate): what a group of that rate takes for work that
// one healthy device does in that many nanoseconds.
func share(work, rate int64) int64 {
	if work < math.MaxInt64/(2*whole) {
		return (work*whole + rate - 1) / rate
	}
	hi, lo := bits.Mul64(uint64(work), whole)
	lo, carry := bits.Add64(lo, uint64(rate-1), 0)
	hi += carry
	if hi >= uint64(rate) {
		return forever
	}
	q, _ := bits.Div64(hi, lo, uint64(rate))
	return int64(min(q, forever))
}

// quotient returns a·b/d, rounded down, for numbers that are not negative.
func quotient(a, b, d int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(d) {
		return forever
	}
	q, _ := bits.Div64(hi, lo, uint64(d))
	return int64(min(q, forever))
}

// forever is a time that nothing good takes, about 39 hours; sums of one for each
// layer stay in range. never is worse.
const (
	forever = math.MaxInt64 >> 16
	never   = 2 * forever
)
