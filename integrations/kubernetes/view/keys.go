package view

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Prefix is what the keys of our annotations begin with. Those that are read may be
// annotations or labels; an annotation wins over a label of the same key.
const Prefix = "lockstep.dev/"

// The annotations that bindings write to pods.
const (
	KeyRank      = Prefix + "rank"       // KeyRank is the pod's number in its gang, from 0.
	KeyRoleRank  = Prefix + "role-rank"  // KeyRoleRank is the pod's number in its role, from 0.
	KeyWorldSize = Prefix + "world-size" // KeyWorldSize is how many members the gang has.
	KeyAttempt   = Prefix + "attempt"    // KeyAttempt is which of the gang's starts it is, growing from 1.
)

// key is one thing that can be said about a gang, a role or a pod.
type key uint8

const (
	keyGang key = iota
	keyMinMember
	keyMaxMember
	keyQueue
	keyTenant
	keyPriority
	keyWalltime
	keyRequired
	keyPreferred
	keyPreemption
	keyPreemptible
	keyResizable
	keyReplaceable
	keyGrace
	keySave
	keyRestore
	keyHold
	keyStrategy
	keyCanary
	keyRole
	keyRoleMin
	keyRoleMax
	keyRoleOrder
	keyInnerLevel
	keyInnerSize
	keySpares
	keyIndex
	keyShare
	keyGPUMemory
	keyClasses
	keys
)

// Scope says of whom an annotation speaks.
type Scope string

// The scopes.
const (
	ScopeGang Scope = "gang" // ScopeGang: of the gang; its pods must not contradict each other, and its PodGroup wins.
	ScopeRole Scope = "role" // ScopeRole: of the pod's role; the pods of the role must not contradict each other.
	ScopePod  Scope = "pod"  // ScopePod: of the pod.
)

// Annotation describes one annotation that is read.
type Annotation struct {
	Key     string               // Key is its key.
	Scope   Scope                // Scope says of whom it speaks.
	Form    string               // Form is what its value looks like.
	Meaning string               // Meaning is what it says, and what its absence means.
	Aliases map[Dialect][]string // Aliases are the keys of annotations or labels that other schedulers have for it, the first that is there counts; nil means none.
}

// Annotations returns all annotations that are read, in a fixed order. The values are
// the caller's.
func Annotations() []Annotation {
	out := make([]Annotation, 0, keys)
	for k := range keys {
		r := &rules[k]
		a := Annotation{Key: Prefix + r.name, Scope: r.scope, Form: r.form.String(), Meaning: r.meaning}
		for _, al := range r.aliases {
			if a.Aliases == nil {
				a.Aliases = make(map[Dialect][]string)
			}
			a.Aliases[al.dialect] = append(a.Aliases[al.dialect], al.key)
		}
		out = append(out, a)
	}
	return out
}

// form says how a value is read.
type form uint8

const (
	formName form = iota
	formCount
	formNumber
	formPriority
	formLevel
	formDuration
	formBool
	formPreemption
	formStrategy
	formShare
	formBytes
	formNames
	formFraction // of KAI: a decimal fraction of a device
	formMiB      // of KAI: a number of MiB
)

func (f form) String() string { return forms[f].words }

// alias is a key of another scheduler.
type alias struct {
	dialect Dialect
	key     string
	form    form // how the value is read, where it is not as ours
	differs bool // form counts
}

// rule is what there is to know about a key.
type rule struct {
	name    string
	scope   Scope
	form    form
	meaning string
	aliases []alias
}

// rules are by key. Nothing writes to it.
var rules = [keys]rule{
	keyGang: {"gang", ScopePod, formName, "the gang, in the pod's namespace; absent: spec.schedulingGroup.podGroupName, else the pod is alone", []alias{
		{dialect: Volcano, key: "scheduling.k8s.io/group-name"},
		{dialect: Volcano, key: "scheduling.volcano.sh/group-name"},
		{dialect: Kueue, key: "kueue.x-k8s.io/pod-group-name"},
		{dialect: Coscheduling, key: "scheduling.x-k8s.io/pod-group"},
		{dialect: Coscheduling, key: "pod-group.scheduling.sigs.k8s.io"},
		{dialect: Coscheduling, key: "pod-group.scheduling.sigs.k8s.io/name"},
		{dialect: KAI, key: "pod-group-name"},
	}},
	keyMinMember: {"min-member", ScopeGang, formCount, "how many pods must start together, of all roles; absent: the PodGroup's minimum; a gang needs one of them", []alias{
		{dialect: Volcano, key: "scheduling.volcano.sh/group-min-member"},
		{dialect: Kueue, key: "kueue.x-k8s.io/pod-group-total-count"},
		{dialect: Coscheduling, key: "pod-group.scheduling.sigs.k8s.io/min-available"},
	}},
	keyMaxMember: {"max-member", ScopeGang, formCount, "how many pods may run, of a gang with one role; absent: all that there are", nil},
	keyQueue: {"queue", ScopeGang, formName, "the queue; absent: none", []alias{
		{dialect: Volcano, key: "scheduling.volcano.sh/queue-name"},
		{dialect: Volcano, key: "volcano.sh/queue-name"},
		{dialect: Kueue, key: "kueue.x-k8s.io/queue-name"},
		{dialect: KAI, key: "kai.scheduler/queue"},
	}},
	keyTenant:   {"tenant", ScopeGang, formName, "who is charged; absent: the namespace", nil},
	keyPriority: {"priority", ScopeGang, formPriority, "its priority; absent: the PodGroup's, else the highest of its pods", nil},
	keyWalltime: {"walltime", ScopeGang, formDuration, "how long it is expected to run; absent: spec.activeDeadlineSeconds of its pods, else unknown", nil},
	keyRequired: {"required-level", ScopeGang, formLevel, "the level of which one domain must hold it; absent: the PodGroup's topology, else none", []alias{
		{dialect: Kueue, key: "kueue.x-k8s.io/podset-required-topology"},
		{dialect: KAI, key: "kai.scheduler/topology-required-placement"},
	}},
	keyPreferred: {"preferred-level", ScopeGang, formLevel, "the level of which one domain should hold it; absent: the finest that does", []alias{
		{dialect: Kueue, key: "kueue.x-k8s.io/podset-preferred-topology"},
		{dialect: KAI, key: "kai.scheduler/topology-preferred-placement"},
	}},
	keyPreemption: {"preemption", ScopeGang, formPreemption, "whether it takes room from those of lower priority; absent: spec.preemptionPolicy of its pods", nil},
	keyPreemptible: {"preemptible", ScopeGang, formBool, "whether its room may be taken; absent: true, as Kubernetes has it", []alias{
		{dialect: Volcano, key: "volcano.sh/preemptable"},
	}},
	keyResizable:   {"resizable", ScopeGang, formBool, "whether single pods of it, above its least, may be stopped; absent: false", nil},
	keyReplaceable: {"replaceable", ScopeGang, formBool, "whether it goes on while pods of a lost node are made anew; absent: false", nil},
	keyGrace:       {"grace", ScopeGang, formDuration, "the warning before it is stopped; absent: the longest terminationGracePeriodSeconds of its pods", nil},
	keySave:        {"save", ScopeGang, formDuration, "how long a checkpoint takes; absent: no time", nil},
	keyRestore:     {"restore", ScopeGang, formDuration, "how long a resume takes; absent: no time", nil},
	keyHold:        {"hold", ScopeGang, formDuration, "how long its room is kept while it is bound; absent: the scheduler's default", nil},
	keyStrategy:    {"strategy", ScopeGang, formStrategy, "whether it is packed or spread; absent: packed", nil},
	keyCanary:      {"canary", ScopeGang, formNumber, "how many members are tried first; absent: none", nil},
	keyRole: {"role", ScopePod, formName, "the pod's role; absent: the label training.kubeflow.org/replica-type, jobset.sigs.k8s.io/replicatedjob-name or leaderworkerset.sigs.k8s.io/role, else the one without a name", []alias{
		{dialect: Volcano, key: "volcano.sh/task-spec"},
		{dialect: KAI, key: "kai.scheduler/subgroup-name"},
	}},
	keyRoleMin:   {"role-min", ScopeRole, formCount, "how many pods of the role must start together; absent: min-member where the gang has one role, else its pods where those of all roles come to min-member", nil},
	keyRoleMax:   {"role-max", ScopeRole, formCount, "how many pods of the role may run; absent: all that there are", nil},
	keyRoleOrder: {"role-order", ScopeRole, formNumber, "where the role stands among the others: ranks go role by role, of equal ones by name; absent: 0", nil},
	keyInnerLevel: {"inner-level", ScopeRole, formLevel, "the level of which one domain must hold each inner group; absent: node", []alias{
		{dialect: Kueue, key: "kueue.x-k8s.io/podset-slice-required-topology"},
	}},
	keyInnerSize: {"inner-size", ScopeRole, formCount, "how many pods in rank order make an inner group; absent: there are no groups", []alias{
		{dialect: Kueue, key: "kueue.x-k8s.io/podset-slice-size"},
	}},
	keySpares: {"spares", ScopeRole, formNumber, "how many more pods' room is kept for when a node fails; absent: none", nil},
	keyIndex: {"index", ScopePod, formNumber, "the pod's number in its role; absent: batch.kubernetes.io/job-completion-index, apps.kubernetes.io/pod-index, training.kubeflow.org/replica-index or leaderworkerset.sigs.k8s.io/worker-index, else by name", []alias{
		{dialect: Volcano, key: "volcano.sh/task-index"},
		{dialect: Kueue, key: "kueue.x-k8s.io/pod-group-pod-index"},
	}},
	keyShare: {"gpu-share-milli", ScopePod, formShare, "how much of each device it takes; one device where it asks for none; absent: all", []alias{
		{dialect: KAI, key: "gpu-fraction", form: formFraction, differs: true},
	}},
	keyGPUMemory: {"gpu-memory", ScopePod, formBytes, "how much memory each device must have, and with a share how much the pod takes; absent: any", []alias{
		{dialect: KAI, key: "gpu-memory", form: formMiB, differs: true},
	}},
	keyClasses: {"gpu-classes", ScopePod, formNames, "the device models that will do; absent: any", nil},
}

// value is what was said for a key, in canonical form, so that == compares what is
// meant. The zero value says nothing.
type value struct {
	set  bool
	n    int64  // numbers, durations, booleans, bytes
	text string // names, levels, lists
}

// forms are how values are read, by form; a reader's reason is why a text cannot be
// read. Nothing writes to it.
var forms = [...]struct {
	words string
	read  func(c *Config, text string) (v value, reason string)
}{
	formName:       {"name", readName},
	formCount:      {"number, 1 or more", func(_ *Config, text string) (value, string) { return readNumber(text, 1, lockstep.MaxMembers) }},
	formNumber:     {"number, 0 or more", func(_ *Config, text string) (value, string) { return readNumber(text, 0, lockstep.MaxMembers) }},
	formPriority:   {"number", readPriority},
	formLevel:      {"level or node label", readLevel},
	formDuration:   {"duration such as 90m", readDuration},
	formBool:       {"true or false", func(_ *Config, text string) (value, string) { return readWord(text, "false", "true") }},
	formPreemption: {"lower or never", func(_ *Config, text string) (value, string) { return readWord(text, "lower", "never") }},
	formStrategy:   {"pack or spread", func(_ *Config, text string) (value, string) { return readWord(text, "pack", "spread") }},
	formShare:      {"thousandths, 1 to 1000", func(_ *Config, text string) (value, string) { return readNumber(text, 1, int64(lockstep.WholeGPU)) }},
	formBytes:      {"bytes such as 40Gi", readBytes},
	formNames:      {"names with commas between", func(_ *Config, text string) (value, string) { return readNames(text) }},
	formFraction:   {"fraction such as 0.5", readFraction},
	formMiB:        {"number of MiB", readMiB},
}

// read parses text; reason is why it cannot be.
func (c *Config) read(f form, text string) (v value, reason string) {
	v, reason = forms[f].read(c, text)
	v.set = true
	return v, reason
}

func readName(_ *Config, text string) (value, string) {
	if lockstep.JobID(text).Validate() != nil {
		return value{}, "want a name of letters, digits and -_.:/@+%"
	}
	return value{text: text}, ""
}

func readNumber(text string, least, most int64) (value, string) {
	n, err := strconv.ParseUint(text, 10, 32)
	if v := int64(n); err != nil || v < least || v > most {
		return value{}, "want a whole number from " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10)
	}
	return value{n: int64(n)}, ""
}

func readPriority(_ *Config, text string) (value, string) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return value{}, "want a whole number of 32 bits"
	}
	return value{n: n}, ""
}

func readLevel(c *Config, text string) (value, string) {
	level, ok := c.Level(text)
	if !ok {
		return value{}, "want " + c.levels()
	}
	return value{text: string(level)}, ""
}

func readDuration(_ *Config, text string) (value, string) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > lockstep.MaxWalltime {
		return value{}, "want a duration such as 90m or 36h, at most 87600h"
	}
	return value{n: int64(d)}, ""
}

// readWord takes one of two words; the second is 1.
func readWord(text, zero, one string) (value, string) {
	switch text {
	case zero:
		return value{text: text}, ""
	case one:
		return value{text: text, n: 1}, ""
	}
	return value{}, "want " + zero + " or " + one
}

func readBytes(_ *Config, text string) (value, string) {
	n, err := lockstep.ParseBytes(text)
	if err != nil || n < 0 {
		return value{}, "want bytes such as 40Gi"
	}
	return value{n: int64(n)}, ""
}

func readFraction(_ *Config, text string) (value, string) {
	n, err := lockstep.ParseMilliGPU(text)
	if err != nil || n < 1 || n > lockstep.WholeGPU {
		return value{}, "want a fraction from 0.001 to 1 in whole thousandths"
	}
	return value{n: int64(n)}, ""
}

func readMiB(_ *Config, text string) (value, string) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return value{}, "want a whole number of MiB"
	}
	return value{n: int64(n) << 20}, ""
}

// readNames keeps names sorted, each once, with commas between.
func readNames(text string) (value, string) {
	names := strings.Split(text, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if lockstep.DeviceClass(names[i]).Validate() != nil {
			return value{}, "want names with commas between"
		}
	}
	slices.Sort(names)
	return value{text: strings.Join(slices.Compact(names), ",")}, ""
}

// levels lists the levels that there are, for an error.
func (c *Config) levels() string {
	var b strings.Builder
	for _, k := range c.Keys {
		b.WriteString(string(levelOf(k)) + ", ")
	}
	return b.String() + "node, or the label of one"
}

// words are the annotations and labels of an object.
type words struct {
	annotations, labels map[string]string
}

func (w words) get(key string) (string, bool) {
	if text, ok := w.annotations[key]; ok {
		return text, true
	}
	text, ok := w.labels[key]
	return text, ok
}

// say returns what w says for k: in our words, else in those of the dialects that
// are read, in their order.
func (c *Config) say(o object, w words, k key) (value, *Fault) {
	r := &rules[k]
	at, f := ourKeys[k], r.form
	text, ok := w.get(ourKeys[k])
	for i := 0; !ok && i < len(c.Aliases); i++ {
		for j := 0; !ok && j < len(r.aliases); j++ {
			if al := &r.aliases[j]; al.dialect == c.Aliases[i] {
				if text, ok = w.get(al.key); ok {
					at = al.key
					if al.differs {
						f = al.form
					}
				}
			}
		}
	}
	switch {
	case !ok:
		return value{}, nil
	case slices.Contains(c.Forbidden, r.name):
		return value{}, o.fault(lockstep.ErrInvalid, at, text, "nobody may say that here")
	}
	v, reason := c.read(f, text)
	if reason != "" {
		kind := lockstep.ErrInvalid
		if f == formLevel {
			kind = lockstep.ErrUnknown
		}
		return value{}, o.fault(kind, at, text, reason)
	}
	return v, nil
}

// ourKeys are the keys with their prefix, by key, so that looking one up allocates nothing.
var ourKeys = func() (out [keys]string) {
	for k := range keys {
		out[k] = Prefix + rules[k].name
	}
	return out
}()
