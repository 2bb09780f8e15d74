package checkpoint

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// MaxRanks is the most ranks that one job may have here.
const MaxRanks = 1 << 20

// maxWait is the longest that any wait may be set to: milliseconds in 32 bits,
// which is what drivers count in, end at 49.7 days.
const maxWait = math.MaxUint32 * time.Millisecond

// Config configures a Coordinator. All but Job, Ranks and Term may be zero.
type Config struct {
	Job   lockstep.JobID `json:"job"`             // Job is whose checkpoints they are.
	Ranks int            `json:"ranks"`           // Ranks is how many ranks the job has; they are numbered from 0.
	Term  Term           `json:"term"`            // Term is the leader's fencing token, from 1.
	After Epoch          `json:"after,omitempty"` // After is a number that epochs have to lie above, such as that of Ledger.Latest; a restored Coordinator keeps the greater one.

	LockTimeout   time.Duration `json:"lockTimeout,omitempty"`   // LockTimeout is how long all ranks together may take to stop; 0 means 30s.
	SaveTimeout   time.Duration `json:"saveTimeout,omitempty"`   // SaveTimeout is how long they may take to save; 0 means 10m. A dump of 290 GB has been seen to take that long.
	FinishTimeout time.Duration `json:"finishTimeout,omitempty"` // FinishTimeout is how long they may take to go on or to end; a rank that is silent for longer is lost. 0 means 5m.
	MaxPause      time.Duration `json:"maxPause,omitempty"`      // MaxPause is the longest that a rank is held before a commit; keep it below the framework's watchdog. 0 means 7m; NCCL groups of torch give up after 10m.
	Silence       time.Duration `json:"silence,omitempty"`       // Silence is for how long a paused rank may hear nothing from the leader; 0 means 30s.
	Resend        time.Duration `json:"resend,omitempty"`        // Resend is how often the leader repeats its last word, which also keeps ranks from undoing; 0 means a fifth of Silence.
	Margin        uint64        `json:"margin,omitempty"`        // Margin is how many steps ahead of the foremost rank all stop, in a cooperative epoch; 0 means 2.
	Backoff       time.Duration `json:"backoff,omitempty"`       // Backoff is the mean wait before the second attempt; each later one is twice as long, up to 64 times. 0 means 5s.
	MaxAborts     int           `json:"maxAborts,omitempty"`     // MaxAborts is after how many aborts in a row requests are refused; 0 means 3.
	Cooldown      time.Duration `json:"cooldown,omitempty"`      // Cooldown is for how long they are refused then; 0 means 10m.
	Seed          uint64        `json:"seed,omitempty"`          // Seed is what the jitter of Backoff comes from.
}

// Validate says all that is wrong with c, or nil.
func (c Config) Validate() error {
	var list []error
	bad := func(field, value, reason string) {
		list = append(list, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if err := c.Job.Validate(); err != nil {
		list = append(list, err)
	}
	if c.Ranks < 1 || c.Ranks > MaxRanks {
		bad("Ranks", strconv.Itoa(c.Ranks), "want 1 to "+strconv.Itoa(MaxRanks))
	}
	if c.Term == 0 {
		bad("Term", "0", "want the token of a lease, from 1")
	}
	if c.After == math.MaxUint64 {
		bad("After", strconv.FormatUint(uint64(c.After), 10), "no epoch lies above it")
	}
	if c.MaxAborts < 0 {
		bad("MaxAborts", strconv.Itoa(c.MaxAborts), "want 0 or more")
	}
	for _, w := range []struct {
		field string
		d     time.Duration
	}{
		{"LockTimeout", c.LockTimeout},
		{"SaveTimeout", c.SaveTimeout},
		{"FinishTimeout", c.FinishTimeout},
		{"MaxPause", c.MaxPause},
		{"Silence", c.Silence},
		{"Resend", c.Resend},
		{"Backoff", c.Backoff},
		{"Cooldown", c.Cooldown},
	} {
		if w.d < 0 || w.d > maxWait {
			bad(w.field, w.d.String(), "want 0 to "+maxWait.String())
		}
	}
	if d := c.withDefaults(); len(list) == 0 && d.Resend >= d.Silence {
		bad("Resend", d.Resend.String(), "want less than Silence, or ranks undo between two words")
	}
	return errors.Join(list...)
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&c.LockTimeout, 30*time.Second)
	set(&c.SaveTimeout, 10*time.Minute)
	set(&c.FinishTimeout, 5*time.Minute)
	set(&c.MaxPause, 7*time.Minute)
	set(&c.Silence, 30*time.Second)
	set(&c.Resend, c.Silence/5)
	set(&c.Backoff, 5*time.Second)
	set(&c.Cooldown, 10*time.Minute)
	if c.Margin == 0 {
		c.Margin = 2
	}
	if c.MaxAborts == 0 {
		c.MaxAborts = 3
	}
	return c
}

// Request is what to do with a job. The zero Request saves it and lets it go on
// once the image is committed.
type Request struct {
	StopAfter   bool `json:"stopAfter,omitempty"`   // StopAfter terminates the ranks once the image is committed: preemption.
	Cooperative bool `json:"cooperative,omitempty"` // Cooperative has all ranks stop before the collective of one step, which the leader picks; otherwise they stop wherever they are.
	Sequential  bool `json:"sequential,omitempty"`  // Sequential does one rank after another, in the order of ranks, as targets that share memory by CUDA IPC need.
	Early       bool `json:"early,omitempty"`       // Early lets the ranks go on once all their bytes are in memory that lasts, and commits when they are durable.
	Hold        bool `json:"hold,omitempty"`        // Hold saves nothing and holds the ranks until they are released: a pause.
	Attempts    int  `json:"attempts,omitempty"`    // Attempts is how many epochs may be tried; 0 means 1.
}

// Validate says all that is wrong with r, or nil.
func (r Request) Validate() error {
	var list []error
	bad := func(field, value, reason string) {
		list = append(list, fault(lockstep.ErrInvalid, "request", field, value, reason))
	}
	if r.Attempts < 0 || r.Attempts > 1000 {
		bad("Attempts", strconv.Itoa(r.Attempts), "want 0 to 1000")
	}
	if r.Early && r.StopAfter {
		bad("Early", "true", "ranks that are to be stopped do not go on")
	}
	if r.Hold && (r.StopAfter || r.Early) {
		bad("Hold", "true", "saves nothing, so there is nothing to commit")
	}
	return errors.Join(list...)
}

func isInvalid(err error) bool { return errors.Is(err, lockstep.ErrInvalid) }
