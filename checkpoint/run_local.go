package checkpoint

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
)

// LocalConfig is a job whose processes are all reached from this program.
type LocalConfig struct {
	Config                                            // Config is the leader's; Ranks may be 0 and is the number of Targets.
	Agent   AgentConfig                               // Agent is that of every rank; its Job and Rank are set.
	Targets []Target                                  // Targets has the process of each rank, by rank.
	Driver  Driver                                    // Driver stops them and lets them go.
	Saver   Saver                                     // Saver writes their images; nil refuses all but pauses.
	Kill    func(ctx context.Context, t Target) error // Kill ends a target and returns once it is gone; nil refuses to stop any.
	Ledger  Ledger                                    // Ledger is where epochs are committed.
	Journal func(rank int) Journal                    // Journal keeps the records, of each rank and, for -1, of the leader; nil keeps none.
	Workers int                                       // Workers is how many calls may be under way at once; 0 means one for each rank, and two.
	Clock   lockstep.Clock                            `json:"-"` // Clock tells the time; nil means the system's.
	Logger  *zap.Logger                               `json:"-"` // Logger is for what fails; nil means none.
}

// Local is a Leader and the Ranks of its job in one program.
type Local struct {
	*Leader // Leader takes the requests; its Run is hidden by that of Local.
	ranks   []*Rank
}

// NewLocal returns the leader and the ranks of a job, or the faults of cfg.
func NewLocal(cfg LocalConfig) (*Local, error) {
	if cfg.Ranks == 0 {
		cfg.Ranks = len(cfg.Targets)
	}
	if cfg.Ranks != len(cfg.Targets) {
		return nil, fault(lockstep.ErrInvalid, "local", "Targets", strconv.Itoa(len(cfg.Targets)), "want one for each of "+strconv.Itoa(cfg.Ranks)+" ranks")
	}
	journal := cfg.Journal
	if journal == nil {
		journal = func(int) Journal { return nil }
	}
	if cfg.Workers <= 0 {
		cfg.Workers = cfg.Ranks + 2
	}
	hub, workers := NewHub(), NewWorkers(cfg.Workers)
	leader, err := NewLeader(LeaderConfig{
		Config: cfg.Config, Ledger: cfg.Ledger, Transport: hub.Leader(), Journal: journal(-1), Clock: cfg.Clock, Logger: cfg.Logger,
	})
	list := []error{err}
	l := &Local{Leader: leader}
	seen := map[int]int{}
	for i, t := range cfg.Targets {
		if j, ok := seen[t.PID]; ok {
			list = append(list, fault(lockstep.ErrDuplicate, "local", "Targets["+strconv.Itoa(i)+"].PID", strconv.Itoa(t.PID), "is that of rank "+strconv.Itoa(j)+" too"))
		}
		seen[t.PID] = i
		agent := cfg.Agent
		agent.Job, agent.Rank = cfg.Job, i
		r, err := NewRank(RankConfig{
			AgentConfig: agent, Target: t, Driver: cfg.Driver, Saver: cfg.Saver, Kill: cfg.Kill, Ledger: cfg.Ledger, Transport: hub.Rank(i),
			Journal: journal(i), Workers: workers, Clock: cfg.Clock, Logger: cfg.Logger,
		})
		l.ranks, list = append(l.ranks, r), append(list, err)
	}
	if err := errors.Join(list...); err != nil {
		return nil, err
	}
	return l, nil
}

// Run acts for the leader and the ranks until ctx ends, which is no error.
// Targets that are held then are let go. It runs once.
func (l *Local) Run(ctx context.Context) error {
	list := make([]error, len(l.ranks)+1)
	var wg sync.WaitGroup
	wg.Go(func() { list[len(l.ranks)] = l.Leader.Run(ctx) })
	for i, r := range l.ranks {
		wg.Go(func() { list[i] = r.Run(ctx) })
	}
	wg.Wait()
	return errors.Join(list...)
}

// Restorer starts a rank from its image, as by an Imager from a store.
type Restorer interface {
	// Restore starts the rank on the devices given, nil meaning those of the
	// image, and returns its new identity once it runs.
	Restore(ctx context.Context, m *Manifest, rank int, devices []DevicePair) (Target, error)
}

// Migrate saves the job, stops it, and starts every rank from its image again,
// elsewhere or on other devices: devices is by rank, nil meaning the ones before.
// The old ranks are gone before the first new one starts. If the job could not
// be stopped the report says so, and nothing was started; if a rank could not be
// started the error says which, the others have been ended again with kill, and
// the image is what is left.
func (l *Leader) Migrate(ctx context.Context, r Request, to Restorer, devices [][]DevicePair, kill func(ctx context.Context, t Target) error) ([]Target, *Report, error) {
	if err := l.migratable(to, kill, devices); err != nil {
		return nil, nil, err
	}
	r.StopAfter = true
	report, err := l.Checkpoint(ctx, r)
	if report == nil || !report.Stopped {
		return nil, report, err
	}
	targets := make([]Target, len(report.Manifest.Ranks))
	faults := make([]error, len(targets))
	var wg sync.WaitGroup
	for i := range targets {
		var m []DevicePair
		if devices != nil {
			m = devices[i]
		}
		wg.Go(func() { targets[i], faults[i] = to.Restore(ctx, report.Manifest, i, m) })
	}
	wg.Wait()
	if err := errors.Join(faults...); err == nil {
		return targets, report, nil
	}
	for i, t := range targets { // some would wait for the others for ever
		if faults[i] == nil {
			faults[i] = kill(context.WithoutCancel(ctx), t)
		} else {
			faults[i] = &DriverError{Kind: ErrDriver, Call: "restore rank " + strconv.Itoa(i), Err: faults[i]}
		}
	}
	return nil, report, errors.Join(faults...)
}

func (l *Leader) migratable(to Restorer, kill func(ctx context.Context, t Target) error, devices [][]DevicePair) error {
	switch {
	case to == nil:
		return fault(lockstep.ErrInvalid, "migrate", "to", "nil", "is needed")
	case kill == nil:
		return fault(lockstep.ErrInvalid, "migrate", "kill", "nil", "is needed")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.c.badDevices(devices)
}
