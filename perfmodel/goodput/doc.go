// Package goodput says how fast a training job progresses with so many GPUs and such a batch, learns it from measured
// steps, and finds the best batch: the throughput and the statistical efficiency of Pollux, speed-up tables and
// curves.
//
// # Model
//
// A step of m samples on each of n GPUs, after s passes that only accumulate, takes
//
//	s × c + (c^γ + x^γ)^(1/γ)
//	c = αc + βc × m
//	x = 0 on one GPU, αr + βr × max(n-2, 0) on one node, αn + βn × max(n-2, 0) on several
//
// and has M = n × m × (s+1) samples ([Params], [Shape]). A sample is worth (φ + M₀)/(φ + M) of one of the initial
// batch M₀, with φ = M₀ × variance / squared length of the gradient at M₀ ([Noise]). Goodput is the product of
// samples a second and their worth. A [Model] answers for shapes, and [Model.Best] finds the batch with the greatest
// goodput.
//
// [FitParams] finds the seven parameters: it minimises the root mean squared error of the logarithm of step times,
// and of compute times where there are some, plus 10⁻³ (γ-1)² + 10⁻² ((βn/αn)² + (βr/αr)²), with all coefficients at
// least 10⁻⁸ s and γ in [1, 10]. What was never measured is thought free: exchange inside a node or between nodes,
// what each GPU beyond two adds, and of a single batch half of the pass counts as constant. [Fit.Basis] tells such
// guesses apart.
//
// On the step times that the authors of Pollux measured for six applications the fit has a median error of 4 to 7 %,
// and, made of layouts of up to three nodes, of 4 to 11 % for those of four to sixteen.
//
// A [Table] keeps measured rates by number of GPUs and answers how fast n are, how many are x times as fast, and what
// one more would save. Invariant: its line rises, ever less steeply, from 0, so that giving GPUs one by one to where
// they save most is best overall. A [Curve] is Amdahl's law with a cost for each GPU.
//
// # Usage
//
//	fit, err := goodput.FitParams(samples)
//	limits := goodput.Limits{MaxSamples: 4096, MaxBatch: 256, Accumulate: true}
//	m, err := goodput.New(goodput.Config{Params: fit.Params, Noise: noise, Initial: 128, Limits: limits})
//	best, ok := m.Best(2, 8)
//	faster, ok := m.Speedup(2, 8)
//
//	t, err := goodput.NewTable(points)
//	n, ok := t.Smallest(3.5)
//
// # Order of decision
//
// Best: fewest passes that hold a batch, then most goodput, compared in millionths, then fewest samples. Smallest
// compares speed-ups in millionths and takes the fewest GPUs. FitParams: least loss, in billionths, of eight
// descents, then the first. Points and samples are sorted by value first, so that the order given does not matter.
//
// # Sources
//
// Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021, section 3;
// the objective, bounds, priors, the rule of two passes on one GPU and the factor of restarts are those of the
// authors' code (petuum/adaptdl, adaptdl/goodput.py at commit 084518b and the branch osdi21-artifact). There a search
// looks at 50 batches; here at all of them: with the fewest passes a step's time is convex in the samples, so that
// goodput has one peak. Speed-up tables and what the next GPU saves: Peng et al., "Optimus", EuroSys 2018, sections 3 and 4,
// whose step time has the parts of Curve and more for parameter servers. Non-negative least squares: Lawson and
// Hanson, "Solving Least Squares Problems", 1974, chapter 23.
//
// # Errors
//
// All are *lockstep.Error of kind ErrInvalid, joined: a figure that is negative, not a number or out of range, no
// points or samples, too many of them. A shape that cannot be has a goodput of 0; that no batch fits is a false ok.
//
// # Concurrency
//
// Functions, values, and types that are read only; safe for concurrent use.
//
// # Cost
//
// A goodput is O(1), Best O(log batch); neither allocates. FitParams is O(samples) a step of at most 8 × 200 descent
// steps, in practice about a tenth of a second for a thousand samples. NewTable is O(points log points) where the
// points rise as they should, else O(points × counts²) for at most 64 different counts; its answers are O(log
// counts), Smallest O(log² counts).
//
// # Limits
//
// Figures are floats: they are the same for equal input on one platform, and platforms may differ in the last digits,
// since exponentials do. Decide by what Best, Smallest and Saved round. Data parallelism only: a GPU here may stand
// for a group of GPUs with tensor or pipeline parallelism inside. How a loss falls with the steps is not modelled.
// Samples that are far off pull a fit: give it medians, and leave out first steps and pauses.
package goodput
