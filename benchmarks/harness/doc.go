// Package harness is what the benchmark programs of this module share: flags, a
// table, results in a form that scripts read, targets, and a clock that knows
// how slow the machine is.
//
// # Model
//
// A Bench is one run of one program. The program states its input ([Bench.Input]),
// prints a [Table], reports figures ([Bench.Result]) and states what they should
// be ([Bench.Target]). Results leave as lines
//
//	result <name> <value> <unit>
//
// and targets as lines
//
//	target <name> ok|MISSED <judged value> <unit> want <= <limit>
//
// # Slow and busy machines
//
// A wall time says as much about the machine as about the code. So a program
// runs a fixed [Calibration] loop beside what it measures: deterministic integer
// arithmetic and dependent loads from a table of one MiB. On a quiet core of the
// reference machine one run of it takes [Nominal]. The time it takes here,
// divided by Nominal, is the slowness ([Calibration.Slowness]); a time divided by
// the slowness of the same moment is the time that the reference core would have
// shown. Figures are
// printed both ways, and -check judges the second, so that a slow or busy
// machine does not fail a good build and a fast one does not pass a bad one.
//
// Work is cut into [Bench.Rounds] rounds with a calibration before and after
// each, and the median over the rounds is reported: a neighbour that wakes up
// spoils some rounds, not the figure.
//
// # Usage
//
//	b, err := harness.New("placement", os.Args[1:], os.Stdout, nil)
//	b.Input("cluster", "10,000 nodes of 8 devices")
//	b.Result("p50", 2.1, "us")
//	b.Target(harness.Target{Name: "p50", Value: 2.0, Unit: "us", Limit: 5})
//	os.Exit(b.Close())
//
// # Flags
//
// Every program has -check (leave with status 1 when a target is missed), -quick
// (smaller rounds: the whole program takes at most 30 seconds) and -seed.
//
// # Peers
//
// [Peers] holds what other schedulers showed, with the commit, the input and how
// that input differs from ours, so that no program prints one without the other.
package harness
