package harness

import "slices"

// Peer is what another scheduler showed on its own benchmark.
type Peer struct {
	Name    string  // Name is the project.
	Commit  string  // Commit is the version that ran.
	Nodes   int     // Nodes is the size of the cluster.
	PerCPU  float64 // PerCPU is gangs placed in a second of processor time, user and system.
	Input   string  // Input is what it was given.
	Differs string  // Differs is what it does that our benchmark does not, or the other way round.
}

// PeersMeasured says when, on what and how the figures of Peers came about.
const PeersMeasured = "measured 2026-11 with Go 1.26.8 on 2 cores shared with other work (load average 20 to 35), " +
	"so per second of processor time; to be measured again on a quiet machine before they are quoted elsewhere"

// Peers returns the figures of gang placement by other schedulers.
func Peers() []Peer {
	const (
		hivedInput = "pods of 16 racks of 16 nodes of 8 GPUs; two tenants; gangs of 1, 2, 4, 8, 16 whole nodes in turn; " +
			"oldest released above 70% use; no failures"
		hivedDiffers = "HiveD also keeps two tenants' guaranteed cells and adds each pod of a gang to the cluster's book " +
			"one by one; ours has no tenants, and a plan is applied whole"
		kaiDiffers = "KAI's cycle builds its session, orders jobs and queues and runs its plugins each time; ours is " +
			"the placement alone, on a state that lives on"
	)
	return slices.Clone([]Peer{
		{Name: "HiveD", Commit: "66f26ac", Nodes: 4096, PerCPU: 52, Input: hivedInput, Differs: hivedDiffers},
		{Name: "HiveD", Commit: "66f26ac", Nodes: 10240, PerCPU: 26, Input: hivedInput, Differs: hivedDiffers},
		{Name: "KAI", Commit: "72de64f", Nodes: 50, PerCPU: 780, Input: "50 nodes of 8 GPUs, empty; 100 gangs of 4 members of one GPU; one cycle", Differs: kaiDiffers},
	})
}
