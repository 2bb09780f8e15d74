package pollux

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Bounds of what a profile may say.
const (
	maxBatch  = 1 << 24 // samples of a step or a pass
	maxEpochs = 1 << 16
	maxWide   = 1 << 12 // nodes or GPUs of a layout that was measured
)

// timing is how long a step takes and which part of it is the exchange, in seconds.
type timing struct{ step, sync float64 }

// measured is a timing with a batch.
type measured struct {
	batch int64 // of one GPU, in a pass
	timing
}

// epoch is what was measured of training with one batch up to the end of an epoch.
type epoch struct {
	progress  float64 // in steps of the initial batch
	iteration float64 // in steps of its own
	norm      float64 // squared length of the gradient
	variance  float64
}

// validation is a training run with one batch over all GPUs.
type validation struct {
	batch  int64
	epochs []epoch
}

// Profile is what was measured of one application. It is read only; make one with ReadProfile.
type Profile struct {
	name        string
	layouts     map[string][]measured // by placement, by rising batch
	points      []point               // for what was not measured
	validations []validation          // by rising batch

	epochs   int   // how many make a run
	minLocal int64 // the least that one GPU takes in a pass
	maxLocal int64 // the most
	single   bool  // it runs on one GPU only
}

// traits are what the authors set for their applications beside the measurements.
type traits struct {
	epochs   int
	maxLocal int64 // 0: the largest measured
	single   bool
}

func traitsOf(name string) (t traits, ok bool) {
	switch name {
	case "bert":
		return traits{epochs: 2}, true
	case "cifar10":
		return traits{epochs: 100}, true
	case "ncf":
		return traits{epochs: 10, single: true}, true
	case "imagenet":
		return traits{epochs: 90}, true
	case "deepspeech2":
		return traits{epochs: 80}, true
	case "yolov3":
		return traits{epochs: 50, maxLocal: 8}, true
	}
	return traits{}, false
}

// ReadProfile reads the profile of an application from the folder of its name: placements.csv,
// scalability.csv and a validation-BATCH.csv for each batch. The authors' six applications get the
// epochs, the largest pass and the bound to one GPU that the authors set; others run as many epochs as
// every validation has.
func ReadProfile(fsys fs.FS, name string) (*Profile, error) {
	p := &Profile{name: name, layouts: map[string][]measured{}}
	if err := p.readPlacements(fsys, name+"/placements.csv"); err != nil {
		return nil, err
	}
	if err := p.readScalability(fsys, name+"/scalability.csv"); err != nil {
		return nil, err
	}
	if err := p.readValidations(fsys, name); err != nil {
		return nil, err
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return p, nil
}

// Name returns the application's name.
func (p *Profile) Name() string { return p.name }

// each calls do for every row of a file.
func each(fsys fs.FS, path string, do func(*table), columns ...string) error {
	f, err := fsys.Open(path)
	if err != nil {
		return fmt.Errorf("pollux: profile: %w", err)
	}
	defer f.Close()
	t, err := newTable("profile "+path, f, columns...)
	if err != nil {
		return err
	}
	for t.next() {
		do(t)
	}
	return t.err()
}

func (t *table) timing(col int) timing {
	x := timing{step: t.figure(col, math.SmallestNonzeroFloat64, 1e9), sync: t.figure(col+1, 0, 1e9)}
	if x.sync >= x.step {
		t.bad(col+1, "want less than the step time")
	}
	return x
}

func (p *Profile) readPlacements(fsys fs.FS, path string) error {
	sums := map[point]*mean{}
	err := each(fsys, path, func(t *table) {
		place, nodes, gpus := t.placement(0)
		m := measured{batch: t.count(1, 1, maxBatch), timing: t.timing(2)}
		p.layouts[place] = append(p.layouts[place], m)
		at := point{nodes: nodes, gpus: gpus, batch: m.batch}
		if sums[at] == nil {
			sums[at] = &mean{}
		}
		sums[at].add(m.timing)
	}, "placement", "local_bsz", "step_time", "sync_time")
	for at, sum := range sums { // the order does not matter: finish sorts them
		at.timing = sum.value()
		p.points = append(p.points, at)
	}
	return err
}

// mean adds timings up.
type mean struct {
	sum timing
	n   float64
}

func (m *mean) add(t timing) {
	m.sum.step, m.sum.sync, m.n = m.sum.step+t.step, m.sum.sync+t.sync, m.n+1
}

func (m *mean) value() timing { return timing{m.sum.step / m.n, m.sum.sync / m.n} }

// placement reads the GPUs of each node, a digit a node.
func (t *table) placement(col int) (key string, nodes, gpus int64) {
	text := t.text(col)
	for _, c := range text {
		if c < '1' || c > '9' {
			t.bad(col, "want a digit from 1 for each node")
			return "", 0, 0
		}
		gpus += int64(c - '0')
	}
	return text, int64(len(text)), gpus
}

func (p *Profile) readScalability(fsys fs.FS, path string) error {
	return each(fsys, path, func(t *table) {
		x := point{nodes: t.count(0, 1, maxWide), gpus: t.count(1, 1, maxWide), batch: t.count(2, 1, maxBatch), timing: t.timing(3)}
		p.points = append(p.points, x)
	}, "num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
}

func (p *Profile) readValidations(fsys fs.FS, name string) error {
	names, err := fs.Glob(fsys, name+"/validation-*.csv")
	if err != nil {
		return fmt.Errorf("pollux: profile: %w", err)
	}
	for _, path := range names {
		digits := strings.TrimSuffix(strings.TrimPrefix(path, name+"/validation-"), ".csv")
		batch, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || batch < 1 || batch > maxBatch {
			return fault(lockstep.ErrInvalid, "profile", path, errtext.Quote(digits), "want a batch from 1 to 2^24")
		}
		v := validation{batch: batch}
		err = each(fsys, path, func(t *table) {
			e := epoch{
				progress: t.figure(0, math.SmallestNonzeroFloat64, 1e15), iteration: t.figure(1, 0, 1e15),
				norm: t.figure(2, 0, 1e100), variance: t.figure(3, 0, 1e100),
			}
			if e.norm+e.variance == 0 {
				t.bad(3, "want more than 0 where grad_sqr is 0")
			}
			v.epochs = append(v.epochs, e)
		}, "progress", "iteration", "grad_sqr", "grad_var")
		if err != nil {
			return err
		}
		p.validations = append(p.validations, v)
	}
	return nil
}

// finish sorts what was read and checks that it suffices for a run.
func (p *Profile) finish() error {
	bad := func(field, value, reason string) error {
		return fault(lockstep.ErrInvalid, "profile "+p.name, field, value, reason)
	}
	if len(p.layouts["1"]) == 0 || len(p.validations) == 0 {
		return bad("files", strconv.Itoa(len(p.validations))+" validations", "want one or more, and placement 1")
	}
	slices.SortFunc(p.validations, func(a, b validation) int { return cmp.Compare(a.batch, b.batch) })
	slices.SortFunc(p.points, comparePoints)
	p.minLocal, p.maxLocal = maxBatch, 0
	for _, place := range slices.Sorted(maps.Keys(p.layouts)) {
		rows := p.layouts[place]
		slices.SortFunc(rows, func(a, b measured) int { return cmp.Compare(a.batch, b.batch) })
		for i := 1; i < len(rows); i++ {
			if rows[i].batch == rows[i-1].batch {
				return bad("placement "+place, strconv.FormatInt(rows[i].batch, 10), "occurs twice")
			}
		}
		p.minLocal, p.maxLocal = min(p.minLocal, rows[0].batch), max(p.maxLocal, rows[len(rows)-1].batch)
	}
	least := maxEpochs
	for _, v := range p.validations {
		least = min(least, len(v.epochs))
		for i := 1; i < len(v.epochs); i++ {
			if now, past := &v.epochs[i], &v.epochs[i-1]; now.progress <= past.progress || now.iteration < past.iteration {
				return bad("validation "+strconv.FormatInt(v.batch, 10), "row "+strconv.Itoa(i), "want progress to rise and iterations not to fall")
			}
		}
	}
	p.epochs = least
	if t, ok := traitsOf(p.name); ok {
		p.epochs, p.single = t.epochs, t.single
		if t.maxLocal > 0 {
			p.maxLocal = t.maxLocal
		}
	}
	if p.epochs < 1 || p.epochs > least {
		return bad("epochs", strconv.Itoa(p.epochs), "a validation has fewer, or none")
	}
	if p.minLocal > p.maxLocal {
		return bad("passes", strconv.FormatInt(p.minLocal, 10), "more than the largest pass")
	}
	return nil
}

// initial returns the batch that progress is counted in; largest the most that may be trained with.
func (p *Profile) initial() int64 { return p.validations[0].batch }
func (p *Profile) largest() int64 { return p.validations[len(p.validations)-1].batch }

// progressAt returns the progress at which that many epochs are done: that of the batch that gets there
// first.
func (p *Profile) progressAt(epochs int) float64 {
	if epochs == 0 {
		return 0
	}
	least := math.Inf(1)
	for i := range p.validations {
		least = min(least, p.validations[i].epochs[epochs-1].progress)
	}
	return least
}

// between returns a figure of a batch, on the line between those of the validated batches around it.
func (p *Profile) between(batch int64, figure func(*validation) float64) (float64, bool) {
	i, found := slices.BinarySearchFunc(p.validations, batch, func(v validation, b int64) int { return cmp.Compare(v.batch, b) })
	switch {
	case found:
		return figure(&p.validations[i]), true
	case i == 0 || i == len(p.validations):
		return 0, false
	}
	lo, hi := &p.validations[i-1], &p.validations[i]
	sum := float64(float64(batch-lo.batch)*figure(hi)) + float64(float64(hi.batch-batch)*figure(lo))
	return sum / float64(hi.batch-lo.batch), true
}

// noise returns what gradients are like in an epoch.
func (p *Profile) noise(batch int64, epoch int) (norm, variance float64, ok bool) {
	norm, ok = p.between(batch, func(v *validation) float64 { return v.epochs[epoch].norm })
	variance, _ = p.between(batch, func(v *validation) float64 { return v.epochs[epoch].variance })
	return norm, variance, ok
}

// iterations returns how many steps of that batch are done at the end of an epoch.
func (p *Profile) iterations(batch int64, epoch int) float64 {
	n, _ := p.between(batch, func(v *validation) float64 { return v.epochs[epoch].iteration })
	return n
}
