// Package scaling says how to shrink a model in width so that the hyperparameters found on the small one hold for
// the large one.
//
// # Model
//
// The target is the model to be trained in the end, the surrogate the same model with every width divided by one
// ratio. A parameter has a [Role], which says which of its axes are widths: the fan-out of an input, the fan-in of
// an output, both of a hidden matrix, the one axis of a vector, none of a scalar. A [Rule] says what to do on the
// surrogate (how to initialise, what to multiply the learning rate by, and so on) so that a hyperparameter means
// there what it means on the target, where every multiplier is 1.
//
// With a the target's fan-in over the surrogate's, and b the same of the fan-out:
//
//	role     init std    forward   LR Adam   LR SGD
//	input    x 1         x 1       x 1       x 1/b
//	vector   as is       x 1       x 1       x 1/b
//	hidden   x sqrt(a)   x 1       x a       x a/b
//	output   zero, or 1  x a       x 1       x 1/a
//	scalar   as is       x 1       x 1       x 1
//
// The fan-in of a grouped convolution is that of one group: where the groups shrink with the channels, as in a
// depthwise one, a is 1.
//
// Decay that the optimizer multiplies by the learning rate (coupled; AdamW as it is usually written) is divided by
// the multiplier of the learning rate; a decoupled one stays. Attention logits are scaled by sqrt(D)/d with D and d
// the head dimensions of target and surrogate, instead of 1/sqrt(d). This is the maximal update parametrization
// (Yang et al., "Tensor Programs V", 2021, table 8; the weight decay after issue 1 of the mup package, version 1.0)
// with the target as its base shape, as a tuner of surrogates needs it (Hu et al., "Hydro", OSDI 2023).
//
// Invariants: the plan for ratio 1 changes nothing; the plan for a times b is the plan for a and then the one for b;
// no multiplier is 0, infinite or no number; coupled decay times learning rate is always 1.
//
// # Usage
//
//	plan, err := scaling.New(params, 8, scaling.Options{})
//	for _, rule := range plan.Rules { ... }
//
// [Choose] finds a ratio. [Transfers] says which hyperparameters may be carried over at all. [Check] looks at the
// sizes of activations that the host measured at several widths: under a right plan they do not depend on the width,
// and nothing else shows that a parameter was given the wrong role.
//
// # Order of decision
//
// Rules are in the order of the parameters. Choose takes the largest ratio for which every width stays whole and at
// least MinWidth, and stops before a doubling that gains less than minGain, compared in millionths.
//
// # Errors
//
// All are *lockstep.Error: ErrInvalid for a shape, ratio or option out of range, a width that the ratio does not
// divide or makes too narrow, a group that it cuts, an unknown role; ErrDuplicate for a name given twice. All faults
// are reported together. Nothing is ever rounded to a width of 0.
//
// # Concurrency
//
// Functions only; safe for concurrent use.
//
// # Cost
//
// New is O(parameters) in time and memory, Choose as much for each ratio; Check is O(n log n) in coordinates.
//
// # Limits
//
// Depth is never scaled and heads keep their number, so that the head dimension shrinks. Parameters with more than
// two width axes are refused. CompatHydro reproduces two departures of Hydro's published code (2023, branch master)
// for comparison: it multiplies the learning rate of hidden matrices by the ratio under SGD as well, and initialises
// embeddings, here every Input, by the width.
package scaling
