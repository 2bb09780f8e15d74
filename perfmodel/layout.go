package perfmodel

import "github.com/lockstep-gpu/lockstep"

// Bounds of a layout and of what a step does.
const (
	maxDegree = 1 << 20 // ranks along one dimension
	maxCount  = 1 << 20 // micro-batches and model chunks
	maxElem   = 64      // bytes of one element
)

// Layout says how a model is divided over ranks. In its zero value one rank has
// everything, in bf16 with fp32 optimizer state.
type Layout struct {
	TP   int `json:"tp,omitempty"`   // TP is the tensor-parallel degree; 0 means 1.
	PP   int `json:"pp,omitempty"`   // PP is the number of pipeline stages; 0 means 1.
	DP   int `json:"dp,omitempty"`   // DP is the number of data-parallel replicas; 0 means 1.
	EP   int `json:"ep,omitempty"`   // EP is over how many of the DP replicas the routed experts are divided, a divisor of DP; 0 means 1.
	ZeRO int `json:"zero,omitempty"` // ZeRO is what the replicas divide among them: 1 the optimizer state, 2 gradients as well, 3 weights as well; 0 nothing.

	SequenceParallel bool `json:"sequenceParallel,omitempty"` // SequenceParallel says that what tensor parallelism leaves whole is divided along the tokens.
	ScatterGather    bool `json:"scatterGather,omitempty"`    // ScatterGather says that ranks of a stage send 1/TP of what goes to the next, which gathers it.

	Precision Precision `json:"precision"` // Precision is the size of what is kept; zero is bf16 with fp32 optimizer state.
}

// Precision is how many bytes are kept for each parameter and each activation. The
// zero Precision means {Weight: 2, Gradient: 2, Optimizer: 8, Master: 4}: bf16, with
// the two fp32 moments of Adam and an fp32 copy of the weights. If any field is set, a
// zero elsewhere is none.
type Precision struct {
	Weight     int `json:"weight,omitempty"`     // Weight is of the weights that are computed with.
	Gradient   int `json:"gradient,omitempty"`   // Gradient is of the gradients, in which they are also reduced.
	Optimizer  int `json:"optimizer,omitempty"`  // Optimizer is of the moments.
	Master     int `json:"master,omitempty"`     // Master is of the copy of the weights that the optimizer updates.
	Activation int `json:"activation,omitempty"` // Activation is of one element of an activation; 0 means 2.
}

// filled returns p with its defaults.
func (p Precision) filled() Precision {
	if p.Weight|p.Gradient|p.Optimizer|p.Master == 0 {
		p.Weight, p.Gradient, p.Optimizer, p.Master = 2, 2, 8, 4
	}
	if p.Activation == 0 {
		p.Activation = 2
	}
	return p
}

// filled returns l with its defaults.
func (l Layout) filled() Layout {
	l.TP, l.PP, l.DP, l.EP = max(l.TP, 1), max(l.PP, 1), max(l.DP, 1), max(l.EP, 1)
	l.Precision = l.Precision.filled()
	return l
}

// Ranks returns how many ranks a valid l takes.
func (l Layout) Ranks() int64 {
	l = l.filled()
	return int64(l.TP) * int64(l.PP) * int64(l.DP)
}

// Validate reports every fault of l alone, joined, each an *lockstep.Error of kind
// ErrInvalid. Model.Check says whether a model can be divided so.
func (l Layout) Validate() error {
	f := faults{op: "perfmodel: layout"}
	l.validate(&f)
	return f.err()
}

func (l Layout) validate(f *faults) {
	f.within("TP", int64(l.TP), 0, maxDegree)
	f.within("PP", int64(l.PP), 0, maxDegree)
	f.within("DP", int64(l.DP), 0, maxDegree)
	f.within("EP", int64(l.EP), 0, maxDegree)
	f.within("ZeRO", int64(l.ZeRO), 0, 3)
	f.divides("DP", int64(max(l.DP, 1)), int64(l.EP), "EP")
	l.Precision.validate("Precision.", f)
}

// Validate reports every fault of p, joined, each an *lockstep.Error of kind
// ErrInvalid.
func (p Precision) Validate() error {
	f := faults{op: "perfmodel: precision"}
	p.validate("", &f)
	return f.err()
}

func (p Precision) validate(path string, f *faults) {
	for i, size := range [...]int{p.Weight, p.Gradient, p.Optimizer, p.Master, p.Activation} {
		if size < 0 || size > maxElem {
			name := [...]string{"Weight", "Gradient", "Optimizer", "Master", "Activation"}[i]
			f.within(path+name, int64(size), 0, maxElem)
		}
	}
}

// Check reports every reason why m cannot be divided by l, joined, each an
// *lockstep.Error of kind ErrInvalid: the faults of both, fewer layers than stages, and
// what TP and EP do not divide. TP divides Heads and the inner widths; it divides KVHeads
// or is a multiple of them, and then ranks hold the same ones. It need not divide Vocab:
// ranks then have ceil(Vocab/TP) rows, of which the last ones are padding.
func (m Model) Check(l Layout) error {
	f := faults{op: "perfmodel: check"}
	if err := m.Validate(); err != nil {
		f.errs = append(f.errs, err)
	}
	l.validate(&f)
	if len(f.errs) > 0 {
		return f.err()
	}
	m.check(l.filled(), &f)
	return f.err()
}

// check notes what a valid layout cannot divide of a valid model.
func (m Model) check(l Layout, f *faults) {
	t := int64(l.TP)
	if m.Layers < l.PP {
		f.bad("Layers", text(m.Layers), "want at least PP = "+text(l.PP))
	}
	f.divides("Heads", int64(m.Heads), t, "TP")
	if t <= m.kvHeads() {
		f.divides("KVHeads", m.kvHeads(), t, "TP")
	} else {
		f.divides("TP", t, m.kvHeads(), "KVHeads")
	}
	if m.Experts == 0 {
		f.divides("FFN", int64(m.FFN), t, "TP")
		f.within("EP", int64(l.EP), 1, 1)
		return
	}
	field := "ExpertFFN"
	if m.ExpertFFN == 0 {
		field = "FFN"
	}
	f.divides(field, m.expertFFN(), t, "TP")
	f.divides("Experts", int64(m.Experts), int64(l.EP), "EP")
}

// Load is what a rank is asked to hold and do at once.
type Load struct {
	Tokens   int64 `json:"tokens"`             // Tokens is how many tokens a micro-batch has, at least 1.
	Sequence int64 `json:"sequence,omitempty"` // Sequence is the longest sequence whose scores are stored where attention is not a flash kernel, at most Tokens; 0 means Tokens.
	InFlight int   `json:"inFlight,omitempty"` // InFlight is for how many micro-batches of a model chunk the stage keeps activations at the worst moment: pipeline.Line.Peak, or what PeakBytes makes of ones where weights are put off; 0 means 1.
	Chunks   int   `json:"chunks,omitempty"`   // Chunks is into how many model chunks of equal size the stage is divided, of which InFlight counts each; 0 means 1.
	Losses   int   `json:"losses,omitempty"`   // Losses is for how many micro-batches the last stage keeps logits: 1, but all of them with GPipe, and those whose weight op is still to come where weights are put off; 0 means 1.

	Context lockstep.Bytes `json:"context,omitempty"` // Context is what the driver and the libraries take of each device.
	Reserve lockstep.Bytes `json:"reserve,omitempty"` // Reserve is what is to stay free, for workspace and fragmentation.
}

// filled returns u with its defaults.
func (u Load) filled() Load {
	if u.Sequence == 0 {
		u.Sequence = u.Tokens
	}
	u.InFlight, u.Chunks, u.Losses = max(u.InFlight, 1), max(u.Chunks, 1), max(u.Losses, 1)
	return u
}

// validate notes what is wrong with u.
func (u Load) validate(f *faults) {
	f.within("Tokens", u.Tokens, 1, maxTokens)
	f.within("Sequence", u.Sequence, 0, max(u.Tokens, 0))
	f.within("InFlight", int64(u.InFlight), 0, maxCount)
	f.within("Chunks", int64(u.Chunks), 0, maxCount)
	f.within("Losses", int64(u.Losses), 0, maxCount)
	if u.Context < 0 {
		f.bad("Context", u.Context.String(), "want at least 0")
	}
	if u.Reserve < 0 {
		f.bad("Reserve", u.Reserve.String(), "want at least 0")
	}
}
