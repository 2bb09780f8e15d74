package view

import (
	"errors"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/topology/labels"
)

// Config says how the objects of a cluster are read. The zero value is valid.
type Config struct {
	SchedulerName  string              `json:"schedulerName,omitempty"`  // SchedulerName is spec.schedulerName of the pods that are ours; "" means DefaultSchedulerName.
	Keys           []labels.Key        `json:"keys,omitempty"`           // Keys are the node labels that make the levels of the topology, coarsest first; nil means that there are no levels but the cluster and the nodes.
	GPUResource    corev1.ResourceName `json:"gpuResource,omitempty"`    // GPUResource counts whole devices; "" means nvidia.com/gpu.
	MIGPrefix      string              `json:"migPrefix,omitempty"`      // MIGPrefix is what the resources of MIG instances begin with; "" means nvidia.com/mig-.
	RDMAResource   corev1.ResourceName `json:"rdmaResource,omitempty"`   // RDMAResource counts network endpoints; "" means that they are not counted.
	ClassLabel     string              `json:"classLabel,omitempty"`     // ClassLabel is the node label with the model of its devices, which becomes their class; "" means nvidia.com/gpu.product.
	MemoryLabel    string              `json:"memoryLabel,omitempty"`    // MemoryLabel is the node label with the memory of one device in MiB; "" means nvidia.com/gpu.memory.
	IgnoreTaints   []string            `json:"ignoreTaints,omitempty"`   // IgnoreTaints are the keys of taints that keep nobody off, in any order.
	IgnoreRequests []string            `json:"ignoreRequests,omitempty"` // IgnoreRequests are extended resources that pods may ask for although nobody counts them, in any order; others hold the pod.
	Layouts        bool                `json:"layouts,omitempty"`        // Layouts says that the host gives Cluster.Layouts to its placer; without, nodes go without their MIG instances, since a placer refuses layouts that it does not know.
	Forbidden      []string            `json:"forbidden,omitempty"`      // Forbidden are annotations, without the prefix, that hold the gang of who writes them, such as tenant and priority where namespaces and priority classes are to decide; in any order.
	Aliases        []Dialect           `json:"aliases,omitempty"`        // Aliases are the schedulers whose annotations and labels are read where ours are absent; the first that says something counts.

	// Claims tells what the resource claims of a pod come to: devices in place of
	// its own, where it has any. Nil means that pods with claims are held. It must
	// not call back.
	Claims func(p *corev1.Pod) (lockstep.Demand, error) `json:"-"`
}

// DefaultSchedulerName is Config.SchedulerName where that is "".
const DefaultSchedulerName = "lockstep-scheduler"

// Dialect names a scheduler whose annotations and labels can be read.
type Dialect string

// The dialects.
const (
	Volcano      Dialect = "volcano"      // Volcano is volcano.sh.
	Kueue        Dialect = "kueue"        // Kueue is kueue.x-k8s.io.
	Coscheduling Dialect = "coscheduling" // Coscheduling is the plugin of scheduler-plugins.
	KAI          Dialect = "kai"          // KAI is kai.scheduler.
)

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(kind error, field, value, reason string) {
		errs = append(errs, &lockstep.Error{Kind: kind, Op: "view: config", Field: field, Value: value, Reason: reason})
	}
	if _, _, err := labels.Inputs(labels.Config{Keys: c.Keys}, nil); err != nil {
		errs = append(errs, err)
	}
	seen := make(map[lockstep.Level]bool)
	for i, k := range c.Keys {
		name := levelOf(k)
		if name == lockstep.LevelNode || name == "cluster" || seen[name] {
			bad(lockstep.ErrDuplicate, "Keys["+strconv.Itoa(i)+"].Level", errtext.Quote(name), "the level is there already")
		}
		seen[name] = true
	}
	known := []Dialect{Volcano, Kueue, Coscheduling, KAI}
	for i, d := range c.Aliases {
		if !slices.Contains(known, d) {
			bad(lockstep.ErrUnknown, "Aliases["+strconv.Itoa(i)+"]", errtext.Quote(d), "want volcano, kueue, coscheduling or kai")
		} else if slices.Contains(c.Aliases[:i], d) {
			bad(lockstep.ErrDuplicate, "Aliases["+strconv.Itoa(i)+"]", errtext.Quote(d), "is given twice")
		}
	}
	for i, name := range c.Forbidden {
		if !slices.ContainsFunc(rules[:], func(r rule) bool { return r.name == name }) {
			bad(lockstep.ErrUnknown, "Forbidden["+strconv.Itoa(i)+"]", errtext.Quote(name), "there is no such annotation")
		}
	}
	return errors.Join(errs...)
}

// Ours reports whether p is for this scheduler to place.
func (c Config) Ours(p *corev1.Pod) bool {
	return p.Spec.SchedulerName == or(c.SchedulerName, DefaultSchedulerName)
}

// Level returns the level that text means: the name of a level, the label that
// makes one, "node" or kubernetes.io/hostname; false where there is none.
func (c Config) Level(text string) (lockstep.Level, bool) {
	if text == string(lockstep.LevelNode) || text == corev1.LabelHostname {
		return lockstep.LevelNode, true
	}
	for _, k := range c.Keys {
		if text == k.Label || text == string(levelOf(k)) {
			return levelOf(k), true
		}
	}
	return "", false
}

func levelOf(k labels.Key) lockstep.Level { return or(k.Level.Name, lockstep.Level(k.Label)) }

func (c Config) gpu() corev1.ResourceName { return or(c.GPUResource, "nvidia.com/gpu") }
func (c Config) mig() string              { return or(c.MIGPrefix, "nvidia.com/mig-") }
func (c Config) class() string            { return or(c.ClassLabel, "nvidia.com/gpu.product") }
func (c Config) memory() string           { return or(c.MemoryLabel, "nvidia.com/gpu.memory") }

// or returns s, or what is meant where s is empty.
func or[T ~string](s, otherwise T) T {
	if s == "" {
		return otherwise
	}
	return s
}
