package bubble

// Bound returns the most trial-steps, times their weight, that any packer can make in one pass over the windows if
// windows and steps are as long as predicted and a step can be cut anywhere: the linear programme over the time of
// each window less resume, pause and margin, a share of its length, and over the trial-steps that each bundle has left.
// What has to stay loaded is not counted. It is for comparison and decides nothing.
func Bound(cfg Config, margin float64) (float64, error) {
	if !(margin >= 0 && margin <= 1) {
		return 0, invalid("bound", "margin", "", "must lie in [0, 1]")
	}
	if err := cfg.Validate(); err != nil {
		return 0, err
	}
	cfg = cfg.withDefaults()
	all, err := choices(&cfg)
	if err != nil {
		return 0, err
	}
	lp := programme(&cfg, all, margin)
	return lp.maximum(), nil
}

// programme builds the linear programme: a variable is the seconds that a window spends on a choice.
func programme(cfg *Config, all []choice, margin float64) *simplex {
	limited := make([]int, 0, len(cfg.Bundles)) // bundles with Steps
	row := make([]int, len(cfg.Bundles))
	for b := range cfg.Bundles {
		if cfg.Bundles[b].Steps > 0 {
			row[b] = len(cfg.Windows) + len(limited)
			limited = append(limited, b)
		}
	}
	lp := &simplex{limits: make([]float64, len(cfg.Windows)+len(limited))}
	for i, b := range limited {
		lp.limits[len(cfg.Windows)+i] = float64(cfg.Bundles[b].Steps)
	}
	for w := range cfg.Windows {
		win := &cfg.Windows[w]
		length := (win.End - win.Start).Seconds()
		lp.limits[w] = max(length-(cfg.Resume+cfg.Pause).Seconds()-float64(margin*length), 0)
		spare := cfg.Devices[win.Stage].spare()
		may := (set(1)<<len(all) - 1).suits(all, win.Kind)
		best := -1
		for i := range all {
			x := &all[i]
			if !may.has(i) || x.memory > spare {
				continue
			}
			if len(limited) > 0 {
				lp.add(w, row[x.bundle], x, win.share(), cfg)
			} else if best < 0 || x.rate() > all[best].rate() {
				best = i
			}
		}
		if best >= 0 {
			lp.add(w, 0, &all[best], win.share(), cfg)
		}
	}
	return lp
}

// rate returns the worth of a second.
func (x *choice) rate() float64 { return float64(x.worth) / float64(x.step) }

// add adds the variable of a choice in a window, that uses the steps of its bundle where those are limited.
func (s *simplex) add(window, supply int, x *choice, share int64, cfg *Config) {
	second := float64(share) / million * 1e9 / float64(x.step) // steps of the bundle in a second
	c := column{gain: second * float64(x.worth), at: []entry{{window, 1}}}
	if cfg.Bundles[x.bundle].Steps > 0 {
		c.at = append(c.at, entry{supply, second * float64(x.fused)})
	}
	s.columns = append(s.columns, c)
}

// Knapsack returns the most that a packer can make if windows and steps are as long as predicted and pauses come at
// safe points only: an integer knapsack over each window, and with ResidentSet the best set for each stage. It is the
// exact optimum wherever quanta are multiples of a common time that is not too fine, and a bound above it elsewhere;
// trial-steps that are left and members that stages share are not counted, and neither are sets past the first 4096. It
// is for comparison and decides nothing.
func Knapsack(cfg Config) (float64, error) {
	if err := cfg.Validate(); err != nil {
		return 0, err
	}
	cfg = cfg.withDefaults()
	all, err := choices(&cfg)
	if err != nil {
		return 0, err
	}
	var p pack
	sum := int64(0)
	for stage := range cfg.Devices {
		r := rule{all: all, spare: cfg.Devices[stage].spare(), residency: cfg.Residency, members: make([]int64, len(cfg.Bundles))}
		for b := range r.members {
			r.members[b] = -1
			if n := cfg.Bundles[b].Members; n > 0 && cfg.Residency == ResidentSet {
				r.members[b] = n
			}
		}
		most, sets := int64(0), r.sets()
		for _, s := range sets {
			most = max(most, p.stage(&cfg, all, stage, s, packCells(len(sets), len(all))))
		}
		sum = addSat(sum, most)
	}
	return float64(sum) / float64(cfg.Quanta), nil
}

// stage returns the most that the windows of a stage can make of a set.
func (p *pack) stage(cfg *Config, all []choice, stage int, may set, cells int64) int64 {
	sum := int64(0)
	quanta, worth := make([]int64, len(all)), make([]int64, len(all))
	for _, w := range cfg.Windows {
		if w.Stage != stage {
			continue
		}
		for i := range all {
			quanta[i], worth[i] = all[i].quantum(cfg.Quanta, w.share()), all[i].worth
		}
		room := int64(w.End - w.Start - cfg.Resume - cfg.Pause)
		sum = addSat(sum, p.most(room, quanta, worth, may.suits(all, w.Kind), cells, false))
	}
	return sum
}
