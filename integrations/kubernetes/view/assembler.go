package view

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
)

// Assembler makes gangs of pods. It keeps what it needs of each pod, not the pod.
// Not safe for concurrent use; the caller serializes calls.
type Assembler struct {
	cfg     Config
	pods    map[types.UID]*pod
	gangs   map[lockstep.JobID]*team
	others  map[types.UID]other         // pods without devices that are not ours
	usage   map[lockstep.NodeID]Usage   // their sum by node
	nodes   map[string]lockstep.NodeID  // names of nodes, so that each is kept once
	sweep   int                         // how many names there may be before those not in use are forgotten
	changed map[lockstep.JobID]struct{} // gangs since the last Take
	moved   map[lockstep.NodeID]struct{}
}

// pod is what is kept of a pod that is a member.
type pod struct {
	team  *team
	name  string
	uid   types.UID
	node  lockstep.NodeID
	spec  *spec             // nil where fault is not
	fault *Fault            // what is wrong with it
	relic []lockstep.Demand // what it takes, where spec cannot say and it is bound
	index int32             // said number in the role; -1: none
	seat  int32             // number in the role that it was bound with; -1: none
	stage stage

	grouped bool // its gang is a PodGroup
}

// stage is how far a pod has come.
type stage uint8

const (
	waiting stage = iota // waiting or running
	gated
	ended
	failed
	leaving
)

// team is a gang as it is kept.
type team struct {
	id    lockstep.JobID
	space string
	name  string
	kind  teamKind
	pods  []*pod // by name, then UID
	group *group
	last  *lockstep.Gang // the last that was made, so that the pointer stays
	state *State         // nil where it is to be made
}

// teamKind says what makes pods a gang.
type teamKind uint8

const (
	together teamKind = iota // a name that they share
	alone                    // being a pod in no gang
	foreign                  // being a pod of others, with devices
)

// group is what an object that stands for a gang says.
type group struct {
	object object
	values [keys]value
	roles  map[string]int
	fault  *Fault
}

// other is a pod that is not ours.
type other struct {
	node   lockstep.NodeID
	cpu    lockstep.MilliCPU
	memory lockstep.Bytes
}

// NewAssembler returns an Assembler without pods. It reports every fault of cfg.
func NewAssembler(cfg Config) (*Assembler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Assembler{
		cfg:  cfg,
		pods: make(map[types.UID]*pod), gangs: make(map[lockstep.JobID]*team),
		others: make(map[types.UID]other), usage: make(map[lockstep.NodeID]Usage), nodes: make(map[string]lockstep.NodeID),
		changed: make(map[lockstep.JobID]struct{}), moved: make(map[lockstep.NodeID]struct{}),
	}, nil
}

// Upsert takes in a pod as it is now, and keeps nothing of it but strings. A pod at
// fault holds its own gang only; the fault is returned, and is in the gang's state
// until the pod changes. A pod that ended and is not ours is forgotten. O(containers),
// and O(log members) or, for a new one, O(members) of its gang; a pod that did not
// change in what counts changes nothing.
func (a *Assembler) Upsert(p *corev1.Pod) error {
	if !a.cfg.Ours(p) && !a.members(p) {
		a.drop(p.UID)
		a.other(p)
		return nil
	}
	a.forget(p.UID)
	np := a.read(p)
	old := a.pods[p.UID]
	if old != nil && old.team != np.team {
		a.drop(p.UID)
		old = nil
	}
	switch {
	case old == nil:
		at, _ := slices.BinarySearchFunc(np.team.pods, np, byName)
		np.team.pods = slices.Insert(np.team.pods, at, np)
		a.pods[p.UID] = np
	case old.same(np):
		return np.err()
	default:
		np.name = old.name // what is shared stays so
		*old = *np
	}
	a.touch(np.team)
	return np.err()
}

func (p *pod) err() error {
	if p.fault == nil {
		return nil
	}
	return p.fault
}

func (p *pod) same(o *pod) bool {
	if p.spec != o.spec || p.node != o.node || p.index != o.index || p.seat != o.seat || p.stage != o.stage || p.grouped != o.grouped {
		return false
	}
	return (p.fault == nil) == (o.fault == nil) && (p.fault == nil || *p.fault.Err == *o.fault.Err)
}

func byName(a, b *pod) int {
	if c := natural(a.name, b.name); c != 0 {
		return c
	}
	return cmp.Compare(a.uid, b.uid)
}

// members reports whether a pod that is not ours is a gang of its own all the same,
// since it has devices.
func (a *Assembler) members(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && !over(p) && a.cfg.hasDevices(p)
}

func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// read makes of p what is kept, sharing what its like have already.
func (a *Assembler) read(p *corev1.Pod) *pod {
	o := podObject(p)
	np := &pod{name: p.Name, uid: p.UID, node: a.node(p.Spec.NodeName), index: -1, seat: seat(p), stage: stageOf(p)}
	if !a.cfg.Ours(p) {
		np.team = a.team(p.Namespace, p.Name, foreign)
		np.relic = a.cfg.relic(p)
		np.spec = &spec{}
		return np
	}
	name, grouped, f := a.cfg.gang(o, p)
	if np.grouped = grouped; f == nil {
		np.index, f = a.cfg.index(o, p)
	}
	kind := together
	if name == "" {
		name, kind = p.Name, alone
	}
	np.team = a.team(p.Namespace, name, kind)
	if f == nil {
		np.spec, f = a.cfg.spec(o, p)
	}
	if f == nil && !np.share() {
		f = check(o, np.spec)
	}
	if f != nil {
		np.fault, np.spec = f, nil
		if np.node != "" {
			np.relic = a.cfg.relic(p)
		}
	}
	return np
}

// share takes the spec of another pod of the gang that says the same, if there is one.
func (p *pod) share() bool {
	for _, like := range p.team.pods {
		if like.spec != nil && like.spec.equal(p.spec) {
			p.spec = like.spec
			return true
		}
	}
	return false
}

func stageOf(p *corev1.Pod) stage {
	switch {
	case p.Status.Phase == corev1.PodFailed:
		return failed
	case p.Status.Phase == corev1.PodSucceeded:
		return ended
	case p.DeletionTimestamp != nil:
		return leaving
	case len(p.Spec.SchedulingGates) > 0 && p.Spec.NodeName == "":
		return gated
	}
	return waiting
}

// node returns a name of a node as it is kept.
func (a *Assembler) node(name string) lockstep.NodeID {
	if name == "" {
		return ""
	}
	id, ok := a.nodes[name]
	if !ok {
		if len(a.nodes) >= a.sweep {
			a.tidy()
		}
		name = strings.Clone(name)
		id = lockstep.NodeID(name)
		a.nodes[name] = id
	}
	return id
}

// tidy forgets the names of nodes on which no pod is any more.
func (a *Assembler) tidy() {
	clear(a.nodes)
	for _, p := range a.pods { // a set
		if p.node != "" {
			a.nodes[string(p.node)] = p.node
		}
	}
	for _, o := range a.others { // a set
		a.nodes[string(o.node)] = o.node
	}
	a.sweep = max(1024, 2*len(a.nodes))
}

// team returns the gang of that name, a new one if need be.
func (a *Assembler) team(space, name string, kind teamKind) *team {
	id := teamID(space, name, kind)
	t := a.gangs[id]
	if t == nil {
		t = &team{id: id, space: space, name: name, kind: kind}
		a.gangs[id] = t
	}
	return t
}

// teamID returns the ID of a gang. No gang's name has a colon in it.
func teamID(space, name string, kind teamKind) lockstep.JobID {
	switch kind {
	case alone:
		name = "pod:" + short(space, name)
	case foreign:
		name = "foreign:" + short(space, name)
	}
	return lockstep.JobID(space + "/" + name)
}

// short cuts the name of a pod where an ID has no room for it, and tells it by a hash.
func short(space, name string) string {
	const prefix, sum = len("/foreign:"), 16
	room := lockstep.MaxIDLength - len(space) - prefix
	if len(name) <= room {
		return name
	}
	h := fnv.New64a()
	h.Write([]byte(name)) // never fails
	return name[:room-sum-1] + "%" + strconv.FormatUint(h.Sum64(), 16)
}

// touch notes that a gang changed.
func (a *Assembler) touch(t *team) {
	t.state = nil
	a.changed[t.id] = struct{}{}
}

// Delete says that a pod is gone. One that is not known is no error.
func (a *Assembler) Delete(uid types.UID) {
	a.drop(uid)
	a.forget(uid)
}

// drop takes a pod out of its gang.
func (a *Assembler) drop(uid types.UID) {
	p := a.pods[uid]
	if p == nil {
		return
	}
	delete(a.pods, uid)
	t := p.team
	if at, ok := slices.BinarySearchFunc(t.pods, p, byName); ok {
		t.pods = slices.Delete(t.pods, at, at+1)
	}
	a.touch(t)
	a.clean(t)
}

// clean forgets a gang of which nothing is left.
func (a *Assembler) clean(t *team) {
	if len(t.pods) == 0 && t.group == nil {
		delete(a.gangs, t.id)
	}
}

// UpsertGroup takes in what stands for a gang as it is now, see PodGroup. One at fault
// holds its own gang only; the fault is returned too.
func (a *Assembler) UpsertGroup(g Group) error {
	t := a.team(g.Namespace, g.Name, together)
	now := a.cfg.group(g)
	if t.group != nil && t.group.equal(now) {
		return now.err()
	}
	t.group = now
	a.touch(t)
	return now.err()
}

// DeleteGroup says that what stands for a gang is gone.
func (a *Assembler) DeleteGroup(namespace, name string) {
	t := a.gangs[teamID(namespace, name, together)]
	if t == nil || t.group == nil {
		return
	}
	t.group = nil
	a.touch(t)
	a.clean(t)
}

// Changes is what changed since the last Take.
type Changes struct {
	Gangs []lockstep.JobID  // Gangs are those whose state may differ, sorted; one that State does not find has no pods left.
	Nodes []lockstep.NodeID // Nodes are those of which others take more or less, sorted.
}

// Take returns what changed since the last call and forgets it. O(changed·log changed).
func (a *Assembler) Take() Changes {
	c := Changes{Gangs: slices.Sorted(maps.Keys(a.changed)), Nodes: slices.Sorted(maps.Keys(a.moved))}
	clear(a.changed)
	clear(a.moved)
	return c
}

// State returns how a gang stands; false means that it has no pods. O(members·log
// members) where it changed, else O(1). The value is shared and must not be changed.
func (a *Assembler) State(id lockstep.JobID) (*State, bool) {
	t := a.gangs[id]
	if t == nil || len(t.pods) == 0 {
		return nil, false
	}
	if t.state == nil {
		t.state = a.cfg.assemble(t)
	}
	return t.state, true
}

// IDs returns the IDs of all gangs that have pods, sorted.
func (a *Assembler) IDs() []lockstep.JobID {
	out := make([]lockstep.JobID, 0, len(a.gangs))
	for id, t := range a.gangs { // sorted below
		if len(t.pods) > 0 {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// Gang returns the gang of a pod that was taken in.
func (a *Assembler) Gang(uid types.UID) (lockstep.JobID, bool) {
	if p := a.pods[uid]; p != nil {
		return p.team.id, true
	}
	return "", false
}
