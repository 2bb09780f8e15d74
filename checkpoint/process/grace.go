package process

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// Recipient says who of a tree is sent SIGTERM.
type Recipient int

// The recipients.
const (
	Root  Recipient = iota // Root: the target alone, as a kubelet does with the first process of a container.
	All                    // All: every member of the tree, as a batch system does.
	Named                  // Named: Grace.Forward alone, such as the training process below a shell that passes nothing on.
)

// Grace says how a target is ended. The zero Grace sends SIGTERM to the root, waits 30s
// and kills.
type Grace struct {
	Period    time.Duration     `json:"period,omitempty"`    // Period is the time from SIGTERM to SIGKILL; 0 means 30s, as Kubernetes has it. What is left of a longer chain is for checkpoint/interval to say.
	Immediate bool              `json:"immediate,omitempty"` // Immediate kills at once; nobody is asked. Period does not count.
	To        Recipient         `json:"to,omitempty"`        // To is who is sent SIGTERM.
	Forward   checkpoint.Target `json:"forward,omitzero"`    // Forward is who is sent SIGTERM if To is Named; a member of the tree.
	AckFile   string            `json:"ackFile,omitempty"`   // AckFile is the absolute path of a regular file whose appearance says that the job has saved; "" means none. It must not be there before.
	Linger    time.Duration     `json:"linger,omitempty"`    // Linger is how long after an acknowledgement the job may live on before it is killed ahead of the end of Period; 0 means until that.
	Confirm   time.Duration     `json:"confirm,omitempty"`   // Confirm is how long the kernel may take to end who was killed; 0 means 10s.
	Poll      time.Duration     `json:"poll,omitempty"`      // Poll is how often AckFile is looked for; 0 means 20ms. It is looked for rather than watched, since it may be on a network file system.
	Contract  Contract          `json:"contract,omitzero"`   // Contract is what the way in which the job ends is worth.

	Ack <-chan struct{} `json:"-"` // Ack is closed, or sent to once, when the job has said that it has saved; nil means that it does not say.
}

// Contract says what a job claims by the code it exits with, and how to find out. A code
// is never more than a claim: a handler that fell through, a shell that was asked in place
// of its child, and a job that had finished anyhow all exit with 0.
type Contract struct {
	Saved []int `json:"saved,omitempty"` // Saved are the exit codes of the root that claim a save, 0 to 255; nil means that none does, and only an acknowledgement counts.

	Image func(ctx context.Context) (bool, error) `json:"-"` // Image looks for the image that the job should have left, and verifies it; nil means that nothing is proven. It is called once, when all are dead.
}

// Validate says all that is wrong with g, or nil.
func (g Grace) Validate() error {
	var list []error
	bad := func(field, value, reason string) {
		list = append(list, fault(lockstep.ErrInvalid, "grace", field, value, reason))
	}
	for _, w := range []struct {
		field string
		d     time.Duration
	}{{"Period", g.Period}, {"Linger", g.Linger}, {"Confirm", g.Confirm}, {"Poll", g.Poll}} {
		if w.d < 0 || w.d > lockstep.MaxWalltime {
			bad(w.field, w.d.String(), "want 0 to "+lockstep.MaxWalltime.String())
		}
	}
	if g.To < Root || g.To > Named {
		bad("To", strconv.Itoa(int(g.To)), "want Root, All or Named")
	}
	switch {
	case g.To == Named && (g.Forward.PID <= 1 || g.Forward.Start == 0):
		bad("Forward", strconv.Itoa(g.Forward.PID), "want a process of the tree and when it started")
	case g.To != Named && g.Forward != checkpoint.Target{}:
		bad("Forward", strconv.Itoa(g.Forward.PID), "is for To = Named")
	}
	if g.AckFile != "" && (!filepath.IsAbs(g.AckFile) || filepath.Clean(g.AckFile) != g.AckFile) {
		bad("AckFile", g.AckFile, "want a clean absolute path")
	}
	if g.Linger > 0 && g.AckFile == "" && g.Ack == nil {
		bad("Linger", g.Linger.String(), "is counted from an acknowledgement, and there is none to wait for")
	}
	for _, code := range g.Contract.Saved {
		if code < 0 || code > 255 {
			bad("Contract.Saved", strconv.Itoa(code), "want 0 to 255")
		}
	}
	return errors.Join(list...)
}

func (g Grace) withDefaults() Grace {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&g.Period, 30*time.Second)
	set(&g.Confirm, 10*time.Second)
	set(&g.Poll, 20*time.Millisecond)
	return g
}
