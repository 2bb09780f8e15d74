package hetero

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// GroupID names a group of identical jobs.
type GroupID string

// Source says where a rate comes from.
type Source uint8

// The sources.
const (
	Measured Source = iota // Measured means that the job ran there.
	Inferred               // Inferred means that it is a model's figure, such as that of the nearest profile. It counts as a measured one.
	Unknown                // Unknown means that there is no figure: the class is given for exploration only.
)

// Rate is how fast one job of a group runs on one class, with all its devices.
type Rate struct {
	Class     lockstep.DeviceClass // Class is one of the problem's.
	PerSecond float64              // PerSecond is in steps, finite, up to 10^15; 0 means that the job cannot run there, as does less than 10^-15 or than 10^-9 of its best rate.
	Source    Source               // Source says how much the figure is worth; with Unknown, PerSecond must be 0.
}

// Class is the devices of one kind.
type Class struct {
	ID      lockstep.DeviceClass // ID is unique.
	Devices int                  // Devices is how many there are, 0 to 2^30.
	Price   float64              // Price is of one device for an hour, in any money, finite and at least 0. Only policies about cost read it.
}

// Group is jobs that are alike in everything below. They get the same share each.
type Group struct {
	ID     GroupID // ID is unique, and a name as a JobID is.
	Count  int     // Count is how many jobs there are; 0 means 1. At most 2^20.
	GPUs   int     // GPUs is how many devices one job takes, on whatever class; 0 means 1. At most 2^20.
	Weight int64   // Weight is what one job counts for beside others in a fair split; 0 means 1. At most 10^6.
	Rates  []Rate  // Rates are by class, each at most once; a class that is left out cannot be used.

	Remaining       float64       // Remaining is what one job has left, in steps, finite and at least 0. Read by FinishTime, Makespan and MinCost.
	Elapsed         time.Duration // Elapsed is the time since the job came. Read by FinishTime.
	IsolatedElapsed time.Duration // IsolatedElapsed is how long it would have taken on its equal split to get where it is. Read by FinishTime.
	Deadline        time.Duration // Deadline is the time that is left to finish Remaining; 0 means that there is none. Read by MinCost and PerCost.
}

// Problem is who wants a share of what.
type Problem struct {
	Classes []Class // Classes are the devices, in any order.
	Groups  []Group // Groups are the jobs, in any order.
}

// negligible is the part of a job's best rate below which a class is of no use to
// it: less than the solver's digits tell apart.
const negligible = 1e-9

// The largest figures that are taken.
const (
	maxCount   = 1 << 20 // of jobs in a group, and devices of a job
	maxDevices = 1 << 30
	maxTotal   = 1 << 40 // of devices that all jobs want together, so that parts per million of them fit an int64
	maxWeight  = 1_000_000
	maxRate    = 1e15
	minRate    = 1e-15 // a smaller one is none: parts of it would be no numbers
)

// faults collects what a validator finds.
type faults struct {
	op   string
	errs []error
}

func (f *faults) bad(field, value, reason string) {
	f.errs = append(f.errs, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: f.op, Field: field, Value: value, Reason: reason})
}

func (f *faults) duplicate(field, value string) {
	f.errs = append(f.errs, &lockstep.Error{Kind: lockstep.ErrDuplicate, Op: f.op, Field: field, Value: value, Reason: "named twice"})
}

func (f *faults) within(field string, v, most int64) {
	if v < 0 || v > most {
		f.bad(field, strconv.FormatInt(v, 10), "want 0 to "+strconv.FormatInt(most, 10))
	}
}

func (f *faults) number(field string, v, most float64) {
	if !(v >= 0 && v <= most) {
		f.bad(field, strconv.FormatFloat(v, 'g', -1, 64), "want a number of 0 to "+strconv.FormatFloat(most, 'g', -1, 64))
	}
}

func (f *faults) duration(field string, d time.Duration) {
	if d < 0 || d > lockstep.MaxWalltime {
		f.bad(field, d.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
}

func (f *faults) name(field, id string, err error) {
	if err == nil {
		return
	}
	reason := err.Error()
	if e := (*lockstep.Error)(nil); errors.As(err, &e) {
		reason = e.Reason
	}
	f.bad(field, errtext.Quote(id), reason)
}

// Validate reports every fault, joined: ErrInvalid, ErrDuplicate, and ErrUnknown
// for a rate on a class that is none.
func (p Problem) Validate() error {
	f := faults{op: "hetero: validate"}
	classes := f.classes(p.Classes)
	seen := make(map[GroupID]bool, len(p.Groups))
	total := int64(0)
	for i := range p.Groups {
		g := &p.Groups[i]
		field := "Groups[" + strconv.Itoa(i) + "]"
		f.name(field+".ID", string(g.ID), lockstep.JobID(g.ID).Validate())
		if seen[g.ID] {
			f.duplicate(field+".ID", errtext.Quote(g.ID))
		}
		seen[g.ID] = true
		f.group(field, g, classes)
		total = min(total+min(int64(g.count()), maxCount)*min(int64(g.gpus()), maxCount), maxTotal+1)
	}
	if total > maxTotal {
		f.bad("Groups", "", "all jobs together want more than 2^40 devices")
	}
	return errors.Join(f.errs...)
}

func (f *faults) classes(all []Class) map[lockstep.DeviceClass]bool {
	seen := make(map[lockstep.DeviceClass]bool, len(all))
	for i, c := range all {
		field := "Classes[" + strconv.Itoa(i) + "]"
		f.name(field+".ID", string(c.ID), c.ID.Validate())
		if seen[c.ID] {
			f.duplicate(field+".ID", errtext.Quote(c.ID))
		}
		seen[c.ID] = true
		f.within(field+".Devices", int64(c.Devices), maxDevices)
		f.number(field+".Price", c.Price, maxRate)
	}
	return seen
}

func (f *faults) group(field string, g *Group, classes map[lockstep.DeviceClass]bool) {
	f.within(field+".Count", int64(g.Count), maxCount)
	f.within(field+".GPUs", int64(g.GPUs), maxCount)
	f.within(field+".Weight", g.Weight, maxWeight)
	f.number(field+".Remaining", g.Remaining, maxRate)
	f.duration(field+".Elapsed", g.Elapsed)
	f.duration(field+".IsolatedElapsed", g.IsolatedElapsed)
	f.duration(field+".Deadline", g.Deadline)
	for k, r := range g.Rates {
		at := field + ".Rates[" + strconv.Itoa(k) + "]"
		if !classes[r.Class] {
			f.errs = append(f.errs, &lockstep.Error{Kind: lockstep.ErrUnknown, Op: f.op, Field: at + ".Class", Value: errtext.Quote(r.Class), Reason: "is no class of the problem"})
		}
		if slices.ContainsFunc(g.Rates[:k], func(o Rate) bool { return o.Class == r.Class }) {
			f.duplicate(at+".Class", errtext.Quote(r.Class))
		}
		f.number(at+".PerSecond", r.PerSecond, maxRate)
		if r.Source > Unknown || r.Source == Unknown && r.PerSecond != 0 {
			f.bad(at+".Source", strconv.Itoa(int(r.Source)), "want Measured or Inferred, or Unknown with no rate")
		}
	}
}

func (g *Group) count() int    { return max(g.Count, 1) }
func (g *Group) gpus() int     { return max(g.GPUs, 1) }
func (g *Group) weight() int64 { return max(g.Weight, 1) }

// model is a problem made ready: classes and groups by ID, so that the order in
// which they were given decides nothing. Groups that are alike but for ID and count
// are one here, so that they get the same.
type model struct {
	p       *Problem
	classes []int       // index in p, by ID
	groups  []Group     // the first of those that are alike, with the count of all
	members [][]int     // index in p of those that are alike, by ID
	rates   [][]float64 // by group and class, in the order of IDs; 0 where the job cannot run
	equal   []float64   // rate of one job on its equal split; 0 for one that can run nowhere
}

func newModel(p *Problem) (*model, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	m := &model{p: p, classes: sorted(len(p.Classes), func(i int) string { return string(p.Classes[i].ID) })}
	m.merge()
	weights := m.weights()
	for k := range m.groups {
		m.equal = append(m.equal, m.rate(k, m.split(k, weights)))
	}
	return m, nil
}

// merge fills groups, members and rates.
func (m *model) merge() {
	p := m.p
	at := make(map[lockstep.DeviceClass]int, len(m.classes))
	for k, c := range m.classes {
		at[p.Classes[c].ID] = k
	}
	alike := make(map[string]int, len(p.Groups))
	flat := make([]float64, len(p.Groups)*len(m.classes))
	var key []byte
	for _, i := range sorted(len(p.Groups), func(i int) string { return string(p.Groups[i].ID) }) {
		g := p.Groups[i]
		g.Count, g.GPUs, g.Weight = g.count(), g.gpus(), g.weight()
		rates := flat[:len(m.classes):len(m.classes)]
		flat = flat[len(m.classes):]
		for _, r := range g.Rates {
			if c := at[r.Class]; p.Classes[m.classes[c]].Devices >= g.GPUs && r.PerSecond >= minRate {
				rates[c] = r.PerSecond
			}
		}
		for c := range rates {
			if rates[c] < float64(slices.Max(rates)*negligible) {
				rates[c] = 0
			}
		}
		key = g.key(key[:0], rates)
		if k, ok := alike[string(key)]; ok {
			m.groups[k].Count += g.Count // at most 2^40 in all
			m.members[k] = append(m.members[k], i)
			continue
		}
		alike[string(key)] = len(m.groups)
		m.groups, m.members, m.rates = append(m.groups, g), append(m.members, []int{i}), append(m.rates, rates)
	}
}

// key is what groups that are alike have in common.
func (g *Group) key(key []byte, rates []float64) []byte {
	put := func(v uint64) { key = binary.LittleEndian.AppendUint64(key, v) }
	put(uint64(g.GPUs))
	put(uint64(g.Weight))
	put(math.Float64bits(g.Remaining))
	put(uint64(g.Elapsed))
	put(uint64(g.IsolatedElapsed))
	put(uint64(g.Deadline))
	for _, r := range rates {
		put(math.Float64bits(r))
	}
	return key
}

// weights is the sum of all jobs' weights.
func (m *model) weights() float64 {
	sum := 0.0
	for _, g := range m.groups {
		sum += float64(float64(g.Count) * float64(g.Weight))
	}
	return sum
}

func sorted(n int, id func(int) string) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	slices.SortFunc(s, func(a, b int) int { return cmp.Compare(id(a), id(b)) })
	return s
}

func (m *model) group(k int) *Group { return &m.groups[k] }
func (m *model) class(c int) *Class { return &m.p.Classes[m.classes[c]] }

// devices is how many devices one part of a share of every job of group k is.
func (m *model) devices(k int) float64 {
	g := m.group(k)
	return float64(g.Count) * float64(g.GPUs)
}

// split is the equal split of one job of group k: of the devices of each class,
// its part by weight, turned into time on all that it takes. A job cannot be in
// two places, so it is cut to the whole of its time.
func (m *model) split(k int, weights float64) []float64 {
	x := make([]float64, len(m.classes))
	g := m.group(k)
	sum := 0.0
	for c := range x {
		x[c] = float64(m.class(c).Devices) * float64(g.Weight) / (weights * float64(g.GPUs))
		sum += x[c]
	}
	for c := range x {
		x[c] /= max(sum, 1)
	}
	return x
}

// rate is that of one job of group k with shares x.
func (m *model) rate(k int, x []float64) float64 {
	sum := 0.0
	for c, v := range x {
		sum += float64(m.rates[k][c] * v)
	}
	return sum
}

// best is the rate of one job of group k that has its best class for all time.
func (m *model) best(k int) float64 {
	if len(m.rates[k]) == 0 {
		return 0
	}
	return slices.Max(m.rates[k])
}

// failed is the error of a solver that lost its digits.
func failed(op string) error {
	return &lockstep.Error{Kind: lockstep.ErrConflict, Op: "hetero: " + op, Field: "Groups", Reason: "the figures are too far apart for the solver"}
}

func finite(v float64) bool { return !math.IsInf(v, 0) && !math.IsNaN(v) }
