// Package bubble says what to run in the bubbles of a pipeline-parallel job, and when to stop, so that the job never
// has to wait for it.
//
// # Model
//
// A main job leaves its devices idle in windows that come again in every iteration (package pipeline predicts them).
// A [Bundle] is trials that can be trained as one fused model, as many at once as were measured ([fusion.Point]).
// What runs in a window is resumed at its start, makes quanta, a step's parts between two safe points, and is paused.
// The main job is late if the pause ends after the window does: an overrun.
//
// What is paused keeps its memory. So what may run on a device is checked against what the main job holds at its peak
// ([Device]), never against what is free in a window, and with [ResidentSet] all of it has to fit at once. The set for
// each device and the policy of each window come from the points, the lengths of windows and samples of how far lengths
// are off ([Packer.Calibrate]).
//
// Invariants: what is loaded fits; a trial is loaded on one device and in one bundle there, so it never runs twice at
// once; no window is filled without 1/MissFraction - 1 samples of windows and as many of steps; a CommWait is filled
// with LowBandwidth bundles only; bundles make no more trial-steps than they have; after an error nothing has changed.
//
// # Usage
//
//	p, err := bubble.New(bubble.Config{Bundles: bundles, Devices: devices, Windows: windows, Quanta: 4})
//	err = p.Calibrate(windowSamples, stepSamples) // load what p.Residents says
//	fill, err := p.Begin(now, w)                  // resume what is loaded if fill.Feasible
//	q, why, err := p.MayStartQuantum(now, stage)  // at each safe point; with why, pause
//	why, err = p.Observe(bubble.Observation{Window: w, Start: start, End: end, Overrun: late})
//
// # How a window is filled
//
// A stochastic dynamic programme over the time since the resume, with the distribution of steps and that of the
// window's end from the samples, says for every time which quantum to start, or to pause. So each quantum is planned
// anew with the time that it really is. A price for overruns is raised until their expected share is at most half of
// MissFraction, or one sample's worth if that is more. For the share, each count of samples is one higher, as in
// conformal risk control (Angelopoulos et al., ICLR 2024). A certain overrun costs 16 times the window's worth at least.
//
// # When filling stops
//
// Windows are ranked among the samples, and bets against chance are settled (see the benchmark for what they find when):
//
//   - ReasonDrift: windows are longer or shorter than they were, all of them or one by itself. Those are left, until
//     Steady lengths in a row lie within a tenth, or one and a half margins, of their mean, which is the length from then on
//     unless it differs by less than scatter explains.
//   - ReasonScale: all windows scatter more. Nothing is filled until Samples windows were observed; if the first of them
//     show that nothing has changed, only until then.
//   - ReasonHarm: filled windows overrun more often than they may.
//
// # Order of decision
//
// Stages come by index, each with the members that those before it left. Sets to load are tried in the order in
// which they rank by an integer knapsack without jitter, of equal ones the one with the larger numbers of later bundles
// first; the four best are worked out in full, and the first with the highest expected worth is loaded. Of quanta equally
// good it is pause, then the bundle given first, then fewer trials. Of what Observe finds at once, harm comes first, then
// drift of all windows, scatter, drift of one.
//
// # Errors
//
// All are *lockstep.Error: ErrInvalid and ErrDuplicate for a Config (all faults, joined) or a sample out of range, a
// snapshot that is none; ErrUnknown for a window or stage that is not there; ErrConflict for a window that begins while
// another of its stage is open, a quantum outside a window, samples while one is open; ErrPast for a time before one
// told for the stage. That a window is not filled is no error: [Fill] and MayStartQuantum give the reason.
//
// # Concurrency
//
// A Packer is not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// Begin, MayStartQuantum and Observe are O(log samples) and allocate nothing while windows are filled, unless a bundle
// ran out or a window was learnt: then windows are solved, as by Calibrate, each in O(cells × choices × 19) some 13 times, with 1024
// to 4096 cells and a byte for each that is kept; without jitter up to 262,144 cells, once. Sets are ranked in at most
// 2^26 steps a window.
//
// # Limits
//
// It moves no process and watches no device. State has to be loaded before windows come: the first touch of a device
// does not fit one. Noise of quanta counts as independent; a device that is slow throughout a window is met by the
// clock and not foreseen. Samples of steps change by Calibrate only. Where more than 4096 sets fit a device, the first
// ones are ranked. The guarantee is an average over samples: for one set of n samples the share of overruns
// scatters by about one over the square root of MissFraction/2 × n.
package bubble
