package slurm

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
)

// Applied is what became of a change.
type Applied struct {
	Change Change // Change is which.
	Done   bool   // Done says that Slurm took it.
	Why    error  // Why is why not: an *Error of kind ErrStale where the job has changed meanwhile, one of kind ErrInvalid for what no Report gives as a Change, else a *CommandError.
}

// look is how old the jobs that Apply goes by may get.
const look = 5 * time.Second

// Apply sets priorities with scontrol, one after the other, no faster than Client.Rate. Before the first, and every
// 5 s, it asks for the jobs again: one that has gone, runs or is held is left alone, since to set a priority would also
// let go a job that is held. What Slurm refuses is left out and the rest goes on. It returns what became of those that
// it came to; the error is that of ctx, or of a look at the jobs.
func (c *Client) Apply(ctx context.Context, changes []Change) ([]Applied, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	var jobs map[uint32]*Job
	var seen time.Time
	pace := time.Second / time.Duration(c.rate())
	tick := time.NewTicker(pace)
	defer tick.Stop()
	var out []Applied
	for i, ch := range changes {
		if i > 0 {
			select {
			case <-ctx.Done():
				return out, ctx.Err()
			case <-tick.C:
			}
		}
		if i == 0 || time.Since(seen) > cmp.Or(c.look, look) {
			var err error
			if jobs, err = c.present(ctx); err != nil {
				return out, err
			}
			seen = time.Now()
		}
		a := Applied{Change: ch, Why: stale(jobs[ch.ID], &ch)}
		if a.Why == nil {
			_, err := c.run(ctx, "scontrol", "update", "job="+ch.Job, "priority="+strconv.FormatUint(uint64(ch.To), 10))
			a.Done, a.Why = err == nil, err
		}
		out = append(out, a)
		c.log(&a)
		if err := ctx.Err(); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (c *Client) rate() int {
	if c.Rate <= 0 {
		return 10
	}
	return min(c.Rate, 1000)
}

// present returns the jobs by number.
func (c *Client) present(ctx context.Context) (map[uint32]*Job, error) {
	jobs, _, err := c.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[uint32]*Job, len(jobs))
	for i := range jobs {
		out[jobs[i].ID] = &jobs[i]
	}
	return out, nil
}

// stale says why a change no longer suits a job.
func stale(j *Job, ch *Change) error {
	field := "job " + label(ch.ID)
	switch {
	case j == nil:
		return fault(lockstep.ErrStale, "apply", field, "", "is not there any more")
	case j.State != Pending:
		return fault(lockstep.ErrStale, "apply", field+".job_state", string(j.State), "waits no longer")
	case j.Held:
		return fault(lockstep.ErrStale, "apply", field+".priority", strconv.FormatUint(uint64(j.Priority), 10), "is held now")
	}
	return ch.check(j)
}

// check refuses what no Report gives as a Change of j: a name of another job, of which scontrol would take any number,
// and priorities that mean something else.
func (ch *Change) check(j *Job) error {
	if ch.To == 0 || ch.To > maxPriority {
		return fault(lockstep.ErrInvalid, "apply", "Change.To", label(ch.To), "want 1 to "+label(maxPriority))
	}
	if ch.Job == label(j.ID) || ch.Job == j.String() || j.Het != 0 && ch.Job == label(j.Het) {
		return nil
	}
	if tasks, ok := strings.CutPrefix(ch.Job, label(j.Array)+"_["); ok && j.Array != 0 {
		if tasks, ok = strings.CutSuffix(tasks, "]"); ok && strings.Trim(tasks, "0123456789,:-") == "" {
			return nil
		}
	}
	return fault(lockstep.ErrInvalid, "apply", "Change.Job", quote(ch.Job), "is no name of job "+label(j.ID))
}

func (c *Client) log(a *Applied) {
	if c.Logger == nil {
		return
	}
	fields := []zap.Field{zap.String("job", a.Change.Job), zap.Uint32("from", a.Change.From), zap.Uint32("to", a.Change.To)}
	switch {
	case a.Done:
		c.Logger.Info("priority set", fields...)
	case errors.Is(a.Why, lockstep.ErrStale):
		c.Logger.Info("priority left alone", append(fields, zap.Error(a.Why))...)
	default:
		c.Logger.Warn("priority refused", append(fields, zap.Error(a.Why))...)
	}
}
