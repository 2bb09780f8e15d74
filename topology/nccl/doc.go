// Package nccl reads the XML in which NCCL describes the inside of a host: PCI
// devices below NUMA nodes, GPUs with their NVLinks, and network cards.
//
// # Model
//
// NCCL writes the text where NCCL_TOPO_DUMP_FILE says, and reads it, or one that
// a cloud provider ships, where NCCL_TOPO_FILE says. A [Host] is what has one
// host_hash; of systems whose NVLinks join hosts a text has several. Its devices
// are the PCI devices with an element gpu or of class 0x03, its network cards the
// elements net, and PCI devices of class 0x02 without one. Two GPUs are joined
//
//   - by NVLink, where they name each other, with the count that they name, or
//     where both have NVLinks to switches, with the lesser of their counts;
//   - else as the tree of PCI devices says: PIX where at most one bridge is on the
//     way, PXB where there are more, PHB below one NUMA node, SYS beyond.
//
// # Usage
//
//	system, err := nccl.Parse(r)
//	shape, err := topology.NewShape(system.Hosts[0].Config())
//
// # Order of decision
//
// Hosts keep the order of the text. Devices are in the order of their numbers, dev,
// where all have one, else of their bus. The nearest network card of a GPU is the
// one whose link is nearest; equally near ones are shared out, each GPU in turn
// taking the one that fewest GPUs before it took, then the first in the text.
//
// # Errors
//
// [Parse] returns all faults joined, at most 64, each a [*lockstep.Error] whose
// Field says line and column in bytes: ErrInvalid for what is no such XML, another
// version, a text over 16 MiB, bad numbers, GPUs of which one names the other and
// not the other way, or with another count; ErrDuplicate for a bus, device number
// or network card given twice in a host. An error of the reader is wrapped.
//
// # Concurrency
//
// Systems are plain values; the package keeps nothing.
//
// # Cost
//
// O(bytes) time, and O(devices²) a host.
//
// # Limits
//
// At most 64 GPUs and 1,024 network cards a host. The text does not tell PCI host
// bridges apart, so that NODE never comes up. Elements that it does not know it
// skips, as NCCL does; links between PCI switches (pcilink) and to the CPU (c2c)
// change nothing here. The bandwidth of an NVLink is told by the generation of the
// GPU: 20 GB/s for compute capability 6, 50 from 10 on, else the default of
// topology.ShapeConfig. Read is what NCCL 2.29 writes (src/graph/xml.cc).
package nccl
