package view

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
)

// Phase says how far a gang has come.
type Phase string

// The phases of a gang.
const (
	Faulty     Phase = "faulty"     // Faulty: something it says is wrong; see State.Faults. It is held; what it has bound stays.
	Incomplete Phase = "incomplete" // Incomplete: fewer pods exist than its least, or its PodGroup does not, and none is bound.
	Gated      Phase = "gated"      // Gated: its least exist, but some have scheduling gates.
	Ready      Phase = "ready"      // Ready: its least members exist, none is bound.
	Partial    Phase = "partial"    // Partial: pods are bound, of some role fewer than its least: to be completed if Gang is there, or undone.
	Placed     Phase = "placed"     // Placed: the least of each role are bound, or more.
	Over       Phase = "over"       // Over: every pod ended or is leaving.
)

// State is how a gang stands. It is immutable.
type State struct {
	ID      lockstep.JobID // ID is "namespace/gang"; "namespace/pod:name" for a pod that is in no gang, "namespace/foreign:name" for one that others place.
	Phase   Phase          // Phase is how far it has come.
	Gang    *lockstep.Gang // Gang is what to submit; nil while it is faulty, or pods of its least are missing. Max of each role is no more than its pods. The pointer stays the same as long as the gang says the same.
	Foreign bool           // Foreign says that it is a pod with devices that others place: its room is taken, and nothing is to be done to it.
	Pods    []Pod          // Pods are the members, in rank order, role by role: those that live, and those that ended well.
	Leaving []Pod          // Leaving are pods that are being deleted and have a node, by name: they hold their room until they are gone.
	Faults  []*Fault       // Faults are what is wrong: the group's, then those of pods by name.
	Want    int            // Want is its least members; 0 where that is not known.
	Missing int            // Missing is how many pods of its least are not there, or are gated; at least 1 while it waits for its PodGroup.
	Bound   int            // Bound is how many of Pods have a node.
	Ended   int            // Ended is how many of Pods ended well: they hold nothing.
	Failed  int            // Failed is how many pods failed; they are not among Pods.
	Gated   int            // Gated is how many pods have scheduling gates; they are not among Pods.
	Detail  string         // Detail says for people why the gang is not ready; "" where it is.
}

// Pod is one member of a gang.
type Pod struct {
	Namespace string          // Namespace is its namespace.
	Name      string          // Name is its name.
	UID       types.UID       // UID tells it from others that had its name.
	Role      int32           // Role is the index of its role in Gang.Roles.
	Node      lockstep.NodeID // Node is where it is bound; "" means not yet.
	Ended     bool            // Ended says that it ended well: it holds nothing any more.

	spec  *spec             // what it says; nil where it is at fault
	relic []lockstep.Demand // what it takes where spec does not say
}

// Takes returns what p takes of its node, one demand for each member that stands for
// it: a pod of others may have several MIG instances.
func (p *Pod) Takes() []lockstep.Demand {
	if p.relic != nil {
		return p.relic
	}
	if p.spec == nil {
		return nil
	}
	return []lockstep.Demand{p.spec.demand}
}
