package criu

import (
	"errors"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Config configures an Imager. The zero value is valid.
type Config struct {
	Path    string        `json:"path,omitempty"`    // Path is the program; "" means "criu" from PATH.
	Dir     string        `json:"dir,omitempty"`     // Dir is the absolute path of a folder in which private folders are made; "" means the system's for temporary files. It needs room for an image.
	Timeout time.Duration `json:"timeout,omitempty"` // Timeout is how long CRIU may take to collect and freeze the tree of a dump, in whole seconds, rounded up; 0 means 10 minutes. It has to be longer than a driver's lock may take. It bounds neither the rest of a dump nor a restore: give the call a context that ends.

	TCP          bool           `json:"tcp,omitempty"`          // TCP saves connections that are open; without it they make a dump fail.
	ShellJob     bool           `json:"shellJob,omitempty"`     // ShellJob lets a target share its session and terminal with what is not saved.
	FileLocks    bool           `json:"fileLocks,omitempty"`    // FileLocks saves file locks; without it they make a dump fail.
	GhostLimit   lockstep.Bytes `json:"ghostLimit,omitempty"`   // GhostLimit is how large a file that was deleted and is open may be; 0 means 1 MiB.
	External     []string       `json:"external,omitempty"`     // External names what a dump leaves outside of the image, in CRIU's words, such as "mnt[/dev/nvidia0]:gpu0".
	ExternalLoad []string       `json:"externalLoad,omitempty"` // ExternalLoad says what stands for it in a restore, such as "mnt[gpu0]:/dev/nvidia1": the other way round.
	Subreap      bool           `json:"subreap,omitempty"`      // Subreap makes this process, as a whole, the parent of orphans below it (prctl(2), PR_SET_CHILD_SUBREAPER), and has Load reap those that hold a pid, group or session of its image. Needed where PID 1 does not reap, as in many containers; wait for a target that you started before you load it.
	LogLevel     int            `json:"logLevel,omitempty"`     // LogLevel is CRIU's, 1 to 4; 0 means 2. Its errors are in those of this package.
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "criu: config", Field: field, Value: value, Reason: reason})
	}
	if c.Dir != "" && !filepath.IsAbs(c.Dir) {
		bad("Dir", strconv.Quote(c.Dir), "want an absolute path")
	}
	if c.Timeout < 0 || c.Timeout > 24*time.Hour {
		bad("Timeout", c.Timeout.String(), "want 0 to 24h")
	}
	if c.GhostLimit < 0 || c.GhostLimit > 1<<31 {
		bad("GhostLimit", strconv.FormatInt(int64(c.GhostLimit), 10), "want 0 to 2 GiB")
	}
	if c.LogLevel < 0 || c.LogLevel > 4 {
		bad("LogLevel", strconv.Itoa(c.LogLevel), "want 0 to 4")
	}
	for i, e := range c.External {
		if e == "" {
			bad("External["+strconv.Itoa(i)+"]", `""`, "want a name")
		}
	}
	for i, e := range c.ExternalLoad {
		if e == "" {
			bad("ExternalLoad["+strconv.Itoa(i)+"]", `""`, "want a name")
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Path == "" {
		c.Path = "criu"
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Minute
	}
	if c.LogLevel == 0 {
		c.LogLevel = 2
	}
	return c
}
