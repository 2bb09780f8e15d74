package process

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verdict says whether the work of a target that was ended is safe.
type Verdict string

// The verdicts.
const (
	Saved    Verdict = "saved"     // Saved: Contract.Image has found the image.
	NotSaved Verdict = "not-saved" // NotSaved: it has found none, whatever the job claims; or nothing claims a save.
	Unproven Verdict = "unproven"  // Unproven: the job claims a save and nobody has looked for it, or looking failed.
)

// Complaint is something about a target that keeps it from being ended well. Each is a
// code; what it means is said here.
type Complaint string

// The complaints.
const (
	ShellRoot    Complaint = "shell-root"    // ShellRoot: who was asked is a shell with a child. Shells do not pass SIGTERM on: use exec in the entry point, or All or Named.
	TermUncaught Complaint = "term-uncaught" // TermUncaught: who was asked has no handler, so SIGTERM ends it without a save.
	TermIgnored  Complaint = "term-ignored"  // TermIgnored: who was asked ignores SIGTERM.
	TermDropped  Complaint = "term-dropped"  // TermDropped: who was asked is the first process of a pid namespace and has no handler, so the kernel drops SIGTERM.
	Frozen       Complaint = "frozen"        // Frozen: its cgroup was frozen by somebody else, so nobody in it could act.
	AckedOnly    Complaint = "acked-only"    // AckedOnly: it acknowledged and did not exit.
	NoImage      Complaint = "no-image"      // NoImage: it claimed a save by its exit code or an acknowledgement, and there is no image.
	Orphans      Complaint = "orphans"       // Orphans: the root ended in time and left others behind, who had to be killed.
)

// Exit is how the root died.
type Exit struct {
	Known  bool `json:"known"`            // Known says that it could be told: only of a job that this Driver started.
	Code   int  `json:"code,omitempty"`   // Code is what it exited with; 0 if by a signal.
	Signal int  `json:"signal,omitempty"` // Signal is the signal that ended it; 0 if it exited.
}

// Report says how a target was ended. When Terminate returns it without an error, the
// kernel has confirmed that nobody of the tree is alive.
type Report struct {
	Asked      int           `json:"asked"`                // Asked is how many processes were sent SIGTERM.
	Acked      bool          `json:"acked,omitempty"`      // Acked says that the job has acknowledged.
	AckAfter   time.Duration `json:"ackAfter,omitempty"`   // AckAfter is the time from SIGTERM to the acknowledgement: the save, as measured.
	Exited     bool          `json:"exited"`               // Exited says that all ended by themselves; nobody was killed.
	Killed     int           `json:"killed,omitempty"`     // Killed is how many processes were alive when SIGKILL was sent.
	Escaped    int           `json:"escaped,omitempty"`    // Escaped is how many members were seen outside of the root's process group, whom a signal to that would have missed.
	Zombies    int           `json:"zombies,omitempty"`    // Zombies is how many dead ones are left to parents that are not this process.
	Took       time.Duration `json:"took"`                 // Took is the time from SIGTERM until the kernel confirmed.
	Exit       Exit          `json:"exit"`                 // Exit is how the root died.
	Claimed    bool          `json:"claimed,omitempty"`    // Claimed says that the job acknowledged, or exited with one of Contract.Saved.
	Verdict    Verdict       `json:"verdict"`              // Verdict says whether its work is safe.
	ImageErr   error         `json:"-"`                    // ImageErr is what Contract.Image failed of; nil if it did not.
	Complaints []Complaint   `json:"complaints,omitempty"` // Complaints are sorted; the caller owns them.
}

// String returns r on one line.
func (r *Report) String() string {
	var b strings.Builder
	switch {
	case r.Exited:
		b.WriteString("exited")
	default:
		fmt.Fprintf(&b, "killed %d", r.Killed)
	}
	if r.Acked {
		b.WriteString(", acknowledged")
	}
	if r.Exit.Known {
		if r.Exit.Signal != 0 {
			fmt.Fprintf(&b, ", signal %d", r.Exit.Signal)
		} else {
			fmt.Fprintf(&b, ", code %d", r.Exit.Code)
		}
	}
	b.WriteString(", " + string(r.Verdict))
	for _, c := range r.Complaints {
		b.WriteString(", " + string(c))
	}
	return b.String()
}

func (r *Report) complain(c Complaint) {
	if at, found := slices.BinarySearch(r.Complaints, c); !found {
		r.Complaints = slices.Insert(r.Complaints, at, c)
	}
}
