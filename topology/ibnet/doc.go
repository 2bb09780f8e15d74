// Package ibnet reads what ibnetdiscover prints of an InfiniBand fabric, and tells
// which network card of which host is on which leaf switch: the rails.
//
// # Model
//
// A text has a block for each switch and channel adapter, with a line for each
// connected port. A [Fabric] holds the switches, the cables between them, and the
// ports of adapters that are on a switch. The description of an adapter names its
// host and itself, "host-04 mlx5_5"; one word names the host alone. Adapters whose
// description is of another form, such as a product's name or an aggregation node,
// are counted and belong to no host. A block may be missing where others name what
// it would describe.
//
// A leaf is a switch with a port of a host on it. A unit is as many hosts as share
// leaves, directly or over others: on a rail-optimised fabric those whose first
// cards are on one leaf, second cards on the next and so on; where all cards of a
// host are on one leaf, the hosts of that leaf. In a unit a leaf is a rail. Leaves
// are tier 1, the switches next to them tier 2, and so on; what switches of a tier
// and below join is a domain of that tier.
//
// # Usage
//
//	fabric, err := ibnet.Parse(r)
//	levels, nodes, err := fabric.Inputs(ibnet.Config{Shape: shape}) // the NICs of shape go by name
//	tree, err := topology.New(levels, nodes)
//
// # Order of decision
//
// Switches and ports keep the order of the text. Rails of a unit are numbered by
// the name of the card that most hosts have on the leaf, in the order of numbers in
// names, then by GUID; where two names are as frequent, the first by name counts.
// Nodes come by name in the order of numbers in names. Units and the domains above
// are named after the lowest GUID of their leaves.
//
// # Errors
//
// [Parse] returns all faults joined, at most 64, each a [*lockstep.Error] whose
// Field says line and column in bytes: ErrInvalid for what is not of the form, a
// port that its switch does not have, a cable that one end does not name or names
// otherwise; ErrDuplicate for a block or port given twice and for two adapters of
// one host and name. An error of the reader is wrapped. [Fabric.Inputs] returns
// ErrInvalid for a number of tiers out of range.
//
// # Concurrency
//
// Fabrics are plain values; the package keeps nothing.
//
// # Cost
//
// O(bytes + ports·log ports) time, and O(ports) memory.
//
// # Limits
//
// At most 65,536 switches, 1,048,576 adapters and 2,097,152 port lines. Routers are
// read and left out. Cards that lead elsewhere, to storage say, join what they
// should not, so Config.HCAs is to name those that count. Of an adapter with several
// ports the lowest connected one says its rail. Rates are those of the standard, by
// lane: SDR 2.5 to XDR 200 Gbit/s as sent, less the coding up to QDR. The form is
// that of the manual page ibnetdiscover(8) of rdma-core.
package ibnet
