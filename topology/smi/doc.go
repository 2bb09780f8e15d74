// Package smi reads what nvidia-smi topo prints: how the GPUs and network cards
// of a host are joined.
//
// # Model
//
// A text holds matrices, each a head line and a row for each device, and legends
// in any number: one matrix of nvidia-smi topo -m, whose codes are those of
// [topology.Link], and any of nvidia-smi topo -p2p, whose codes are [Status]. All
// are of the same GPUs in the same order, which becomes the order of devices of
// the shape. Read are tabs and blanks between cells, doubled tabs, indented
// matrices, codes for underlining, network cards by head or by device name,
// missing rows of network cards, missing or empty columns of affinity, lines
// that begin with #, CRLF ends and a byte order mark.
//
// # Usage
//
//	report, err := smi.Parse(r)
//	cfg, ok := report.Config()
//	shape, err := topology.NewShape(cfg)
//
// # Order of decision
//
// The nearest network card of a GPU is the one whose code is nearest in the order
// of topology.Link; equally near ones are shared out, each GPU in turn taking the
// one that fewest GPUs before it took, then the first in the matrix.
//
// # Errors
//
// [Parse] returns all faults joined, at most 64, each a [*lockstep.Error] whose
// Field says line and column in bytes: ErrInvalid for a matrix that is not square
// or not symmetric, an unknown code, a word that stands under no head, a legend
// for codes or cards that the matrix does not have, any other line, and a line
// over 4 MiB; ErrDuplicate for a head, a card or a matrix of topo -m given twice.
// An error of the reader is wrapped. Report.Config cannot fail, and NewShape takes
// what it returns.
//
// # Concurrency
//
// Reports are plain values; the package keeps nothing.
//
// # Cost
//
// O(bytes) time. A line at a time and the matrices are kept.
//
// # Limits
//
// At most 64 GPUs, 1,024 network cards and 16 matrices of topo -p2p. Which kind of
// access a matrix of topo -p2p is about the tool does not print, so their order
// has to tell. It does not check what a legend says about a code. A NUMA affinity
// of several nodes counts as unknown in the shape. The forms read are those of the
// texts in the tests, of drivers from 2018 to 2026.
package smi
