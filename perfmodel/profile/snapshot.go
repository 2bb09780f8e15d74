package profile

import (
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// formats and version of the saved forms; others are refused.
const (
	storeFormat     = "lockstep/profile-store"
	poolFormat      = "lockstep/profile-pool"
	durationsFormat = "lockstep/profile-durations"
	version         = 1
)

// restored decodes a saved form into img, has made build a core of it, and refuses bytes that the core would not write.
func restored[T any](r io.Reader, format string, img any, build func() (T, string, error), image func(T) any) (T, error) {
	const op = "profile: restore"
	var none T
	body, err := snapshot.ReadJSON(r, op, format, version, img)
	if err != nil {
		return none, err
	}
	core, reason, err := build()
	if err != nil {
		reason = err.Error()
	}
	if reason != "" {
		return none, fault(lockstep.ErrInvalid, op, "snapshot", "", reason)
	}
	if err := snapshot.CheckJSON(op, body, image(core)); err != nil {
		return none, err
	}
	return core, nil
}

const saving = "profile: snapshot"

// storeImage is the saved form of a Store.
type storeImage struct {
	Config Config      `json:"config"`
	Kinds  []kindImage `json:"kinds"` // what was observed longest ago first
}

// kindImage is the saved form of what is known of a kind.
type kindImage struct {
	Kind    Kind           `json:"kind"`
	Levels  [][]float64    `json:"levels,omitempty"`
	Classes []classImage   `json:"classes,omitempty"`
	Beside  []partnerImage `json:"beside,omitempty"` // what was observed longest ago first
	Usage   *Usage         `json:"usage,omitempty"`
}

type classImage struct {
	Class lockstep.DeviceClass `json:"class"`
	Rates []float64            `json:"rates"`
}

type partnerImage struct {
	Kind  Kind    `json:"kind"`
	Rates []int64 `json:"rates"`
}

// Snapshot writes the whole store: one line with format, version and SHA-256, then JSON.
// Equal stores give equal bytes.
func (s *Store) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, saving, storeFormat, version, s.image())
}

// Restore reads what the Snapshot of a Store wrote, configuration included. Bytes that are
// cut short, changed, of another version or of no possible store are ErrInvalid.
func Restore(r io.Reader) (*Store, error) {
	var img storeImage
	return restored(r, storeFormat, &img, img.store, func(s *Store) any { return s.image() })
}

func (s *Store) image() *storeImage {
	img := &storeImage{Config: s.given, Kinds: make([]kindImage, 0, s.kinds.len())}
	s.kinds.all(func(k Kind, e *known) {
		out := kindImage{Kind: k, Levels: e.levels}
		for _, c := range e.classes {
			out.Classes = append(out.Classes, classImage{Class: c.name, Rates: c.rates})
		}
		e.beside.all(func(other Kind, rates *[]int64) {
			out.Beside = append(out.Beside, partnerImage{Kind: other, Rates: *rates})
		})
		if e.told {
			out.Usage = &e.usage
		}
		img.Kinds = append(img.Kinds, out)
	})
	return img
}

// store returns the store that img is of, or why there is none.
func (img *storeImage) store() (*Store, string, error) {
	s, err := New(img.Config)
	if err != nil {
		return nil, "", err
	}
	if len(img.Kinds) > s.cfg.Kinds {
		return nil, "more kinds than it keeps", nil
	}
	for i := range img.Kinds {
		k := &img.Kinds[i]
		f := faults{}
		f.kind("kind", k.Kind)
		switch {
		case f.err() != nil:
			return nil, "", f.err()
		case s.kinds.get(k.Kind) != nil:
			return nil, "kinds[" + strconv.Itoa(i) + "] stands twice", nil
		case !s.reenter(s.kinds.touch(k.Kind), k):
			return nil, "kinds[" + strconv.Itoa(i) + "] has measurements that cannot be", nil
		}
	}
	return s, s.lopsided(), nil
}

// reenter fills e with what was saved and says whether it can be.
func (s *Store) reenter(e *known, k *kindImage) bool {
	if k.Usage != nil {
		f := faults{}
		f.figure("", k.Usage.Cache, 0, 1)
		f.figure("", k.Usage.Memory, 0, 1)
		if f.err() != nil {
			return false
		}
		e.usage, e.told = *k.Usage, true
	}
	return s.reenterLevels(e, k.Levels) && s.reenterClasses(e, k.Classes) && s.reenterPartners(e, k.Beside)
}

func (s *Store) reenterLevels(e *known, levels [][]float64) bool {
	if levels == nil {
		return true
	}
	e.levels = levels
	some := false
	for _, times := range levels {
		if len(times) == 0 {
			continue
		}
		some = true
		if !s.logarithms(times, math.Log(1e-9)-1, math.Log(lockstep.MaxWalltime.Seconds())+1) {
			return false
		}
	}
	return some && len(levels) == len(s.cfg.Levels)
}

func (s *Store) reenterClasses(e *known, classes []classImage) bool {
	for i, c := range classes {
		if c.Class.Validate() != nil || i == maxClasses || !s.logarithms(c.Rates, -math.Log(maxRate)-1, math.Log(maxRate)+1) {
			return false
		}
		if i > 0 && c.Class <= classes[i-1].Class {
			return false
		}
		e.classes = append(e.classes, class{name: c.Class, rates: c.Rates})
	}
	return true
}

func (s *Store) reenterPartners(e *known, partners []partnerImage) bool {
	for _, p := range partners {
		if e.beside == nil {
			e.beside = newLRU[Kind, []int64]()
		}
		if len(p.Rates) == 0 || len(p.Rates) > s.cfg.Keep || e.beside.get(p.Kind) != nil || e.beside.len() == s.cfg.Partners {
			return false
		}
		if slices.ContainsFunc(p.Rates, func(r int64) bool { return r < 0 || r > maxPairRate }) {
			return false
		}
		*e.beside.touch(p.Kind) = p.Rates
	}
	return true
}

// logarithms says whether xs are measurements that may be kept.
func (s *Store) logarithms(xs []float64, least, most float64) bool {
	return len(xs) > 0 && len(xs) <= s.cfg.Keep && !slices.ContainsFunc(xs, func(x float64) bool { return !(x >= least && x <= most) })
}

// lopsided says which kind has a partner that has it not, "" if none has.
func (s *Store) lopsided() (reason string) {
	s.kinds.all(func(k Kind, e *known) {
		e.beside.all(func(other Kind, _ *[]int64) {
			if o := s.kinds.get(other); o == nil || o.beside.get(k) == nil {
				reason = "a kind was measured beside one that was not"
			}
		})
	})
	return reason
}

// poolImage is the saved form of a Pool.
type poolImage struct {
	Config PoolConfig   `json:"config"`
	Now    int64        `json:"now"`
	Queue  []visitImage `json:"queue"` // in the order of their turn
	Held   []visitImage `json:"held"`  // in the order of their start
}

type visitImage struct {
	Job      lockstep.JobID `json:"job"`
	GPUs     int            `json:"gpus"`
	Since    int64          `json:"since"`
	Stopping bool           `json:"stopping,omitempty"`
}

// Snapshot writes the whole pool: one line with format, version and SHA-256, then JSON.
// Equal pools give equal bytes.
func (p *Pool) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, saving, poolFormat, version, p.image())
}

// RestorePool reads what the Snapshot of a Pool wrote, configuration included. Bytes that
// are cut short, changed, of another version or of no possible pool are ErrInvalid.
func RestorePool(r io.Reader) (*Pool, error) {
	var img poolImage
	return restored(r, poolFormat, &img, img.pool, func(p *Pool) any { return p.image() })
}

func (p *Pool) image() *poolImage {
	list := func(vs []*visit) []visitImage {
		out := make([]visitImage, len(vs))
		for i, v := range vs {
			out[i] = visitImage{Job: v.id, GPUs: v.gpus, Since: v.since, Stopping: v.phase == stopping}
		}
		return out
	}
	return &poolImage{Config: p.given, Now: p.now, Queue: list(p.queue), Held: list(p.held)}
}

// pool returns the pool that img is of, or why there is none.
func (img *poolImage) pool() (*Pool, string, error) {
	p, err := NewPool(img.Config)
	if err != nil {
		return nil, "", err
	}
	p.now = img.Now
	if p.now < 0 || len(img.Queue) > maxJobs-min(len(img.Held), maxJobs) {
		return nil, "too early a time or too many jobs", nil
	}
	for i, v := range img.Queue {
		if v.Stopping || !p.reenter(v, waiting) || p.queue[len(p.queue)-1].id != v.Job {
			return nil, "queue[" + strconv.Itoa(i) + "] cannot be", nil
		}
	}
	for i, v := range img.Held {
		is := running
		if v.Stopping {
			is = stopping
		}
		if !p.reenter(v, is) || p.held[len(p.held)-1].id != v.Job {
			return nil, "held[" + strconv.Itoa(i) + "] cannot be", nil
		}
	}
	return p, "", nil
}

// reenter puts a saved job into its phase and says whether it can be there.
func (p *Pool) reenter(v visitImage, is phase) bool {
	if v.Job.Validate() != nil || p.jobs[v.Job] != nil || v.GPUs < 1 || v.GPUs > p.cfg.Most || v.Since < 0 || v.Since > p.now {
		return false
	}
	p.enter(&visit{id: v.Job, gpus: v.GPUs, since: v.Since, phase: is})
	return p.used <= p.cfg.GPUs
}

// durationsImage is the saved form of Durations.
type durationsImage struct {
	Config DurationsConfig `json:"config"`
	Groups []groupImage    `json:"groups"` // what was observed longest ago first
	Misses []int64         `json:"misses"`
}

type groupImage struct {
	Like   Likeness          `json:"like"`
	Tenant lockstep.TenantID `json:"tenant,omitempty"`
	Name   string            `json:"name,omitempty"`
	GPUs   lockstep.MilliGPU `json:"gpus,omitempty"`
	Took   []int64           `json:"took"`
}

// Snapshot writes the whole table: one line with format, version and SHA-256, then JSON.
// Equal tables give equal bytes.
func (d *Durations) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, saving, durationsFormat, version, d.image())
}

// RestoreDurations reads what the Snapshot of Durations wrote, configuration included but
// for its recorder, which is to be given. Bytes that are cut short, changed, of another
// version or of no possible table are ErrInvalid.
func RestoreDurations(r io.Reader, rec lockstep.Recorder) (*Durations, error) {
	var img durationsImage
	d, err := restored(r, durationsFormat, &img, img.durations, func(d *Durations) any { return d.image() })
	if err != nil {
		return nil, err
	}
	d.cfg.Recorder, d.given.Recorder = rec, rec
	return d, nil
}

func (d *Durations) image() *durationsImage {
	img := &durationsImage{Config: d.given, Groups: make([]groupImage, 0, d.groups.len()), Misses: append([]int64{}, d.misses...)}
	d.groups.all(func(g group, took *[]int64) {
		img.Groups = append(img.Groups, groupImage{Like: g.like, Tenant: g.tenant, Name: g.name, GPUs: g.gpus, Took: *took})
	})
	return img
}

// durations returns the table that img is of, or why there is none.
func (img *durationsImage) durations() (*Durations, string, error) {
	d, err := NewDurations(img.Config)
	if err != nil {
		return nil, "", err
	}
	if len(img.Groups) > d.cfg.Groups || len(img.Misses) > d.cfg.Misses {
		return nil, "more than it keeps", nil
	}
	for i := range img.Groups {
		g := &img.Groups[i]
		key := group{like: g.Like, tenant: g.Tenant, name: g.Name, gpus: g.GPUs}
		if !key.possible() || d.groups.get(key) != nil || !counted(g.Took, d.cfg.Window, int64(lockstep.MaxWalltime)) {
			return nil, "groups[" + strconv.Itoa(i) + "] cannot be", nil
		}
		*d.groups.touch(key) = g.Took
	}
	d.misses = img.Misses
	if len(d.misses) > 0 && !counted(d.misses, d.cfg.Misses, farthest) {
		return nil, "misses cannot be", nil
	}
	return d, "", nil
}

// possible says whether a job can be in g.
func (g group) possible() bool {
	j := Job{Tenant: g.tenant, Name: g.name, GPUs: g.gpus}
	f := faults{}
	j.check(&f)
	if f.err() != nil {
		return false
	}
	groups, n := j.groups()
	return slices.Contains(groups[:n], g)
}

// counted says whether there are 1 to keep values, all from 1 to most.
func counted(xs []int64, keep int, most int64) bool {
	return len(xs) > 0 && len(xs) <= keep && !slices.ContainsFunc(xs, func(x int64) bool { return x < 1 || x > most })
}
