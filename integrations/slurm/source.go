package slurm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/slurm"
)

// Client runs Slurm's commands. The zero Client finds them by PATH. It is safe for concurrent use.
type Client struct {
	Bin     string        // Bin is the folder of squeue, sinfo and scontrol; empty means PATH.
	Timeout time.Duration // Timeout is how long a command may take; 0 and less mean 1 minute.
	Rate    int           // Rate is how many priorities are set in a second at most, itself at most 1000; 0 and less mean 10.
	Logger  *zap.Logger   // Logger is told of each priority that was set or refused; nil means nobody.

	look time.Duration // how old the jobs may get; 0 means look
}

// maxOutput is how much a command may print.
const maxOutput = maxDocument

// run runs a command and returns what it printed.
func (c *Client) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	path := name
	if c.Bin != "" {
		path = strings.TrimRight(c.Bin, "/") + "/" + name
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = environment(os.Environ())
	cmd.WaitDelay = 5 * time.Second
	together(cmd)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &limited{w: &out, left: maxOutput}, &limited{w: &said, left: 1 << 16, cut: true}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, &CommandError{Command: name + " " + strings.Join(args, " "), Said: strings.TrimSpace(said.String()), Err: err}
	}
	return out.Bytes(), nil
}

// environment leaves out what would filter or sort the output of Slurm's commands, and asks for the tasks of arrays in
// full: by default they are cut after 64 bytes.
func environment(env []string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "SQUEUE_") || strings.HasPrefix(v, "SINFO_") || strings.HasPrefix(v, "SCONTROL_")
	})
	return append(out, "SLURM_TIME_FORMAT=standard", "SLURM_BITSTR_LEN=0", "LC_ALL=C")
}

// CommandError is a command of Slurm that failed.
type CommandError struct {
	Command string // Command is what was run.
	Said    string // Said is what it wrote to standard error, cut where it is long.
	Err     error  // Err is how it ended.
}

// Error returns the text of e on one line.
func (e *CommandError) Error() string {
	s := "slurm: " + printable(clip([]byte(e.Command))) + ": " + e.Err.Error()
	if e.Said != "" {
		s += ": " + quote(e.Said)
	}
	return s
}

// Unwrap returns how the command ended.
func (e *CommandError) Unwrap() error { return e.Err }

// limited takes so many bytes and then fails or, with cut, drops the rest: what is left of an error text still helps,
// what is left of a document does not.
type limited struct {
	w    *bytes.Buffer
	left int
	cut  bool
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left && !l.cut {
		return 0, io.ErrShortWrite
	}
	some := p[:min(len(p), l.left)]
	l.left -= len(some)
	l.w.Write(some) // never fails
	return len(p), nil
}

// View asks Slurm for its nodes and jobs. The topology is the caller's to add, as ReadTopology reads it.
// The error is a *CommandError, or that of a reader.
func (c *Client) View(ctx context.Context) (*View, error) {
	v := &View{}
	var err error
	if v.Nodes, v.Faults, err = c.nodes(ctx); err != nil {
		return nil, err
	}
	jobs, faults, err := c.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	v.Jobs, v.Faults = jobs, append(v.Faults, faults...)
	v.Now = time.Now().UTC()
	return v, nil
}

// nodes asks scontrol, which tells all of each node since 23.02, and else sinfo.
func (c *Client) nodes(ctx context.Context) ([]Node, []*lockstep.Error, error) {
	out, err := c.run(ctx, "scontrol", "show", "nodes", "--json")
	if err == nil {
		var nodes []Node
		var faults []*lockstep.Error
		if nodes, faults, err = ReadNodes(bytes.NewReader(out)); err == nil {
			return nodes, faults, nil
		}
	}
	if ctx.Err() != nil {
		return nil, nil, err
	}
	out, second := c.run(ctx, "sinfo", "-N", "--json")
	if second != nil {
		return nil, nil, errors.Join(err, second)
	}
	return ReadNodes(bytes.NewReader(out))
}

// Jobs asks Slurm for all jobs that the caller may see.
func (c *Client) Jobs(ctx context.Context) ([]Job, []*lockstep.Error, error) {
	out, err := c.run(ctx, "squeue", "--all", "--json")
	if err != nil {
		return nil, nil, err
	}
	return ReadJobs(bytes.NewReader(out))
}

// ReadTopology reads a topology.conf, or a topology.yaml where name ends in .yaml, of which it takes the one that is
// marked as the cluster's default, and else the first.
func ReadTopology(name string, r io.Reader) (*slurm.Topology, error) {
	if !strings.HasSuffix(name, ".yaml") {
		return slurm.Parse(r)
	}
	all, err := slurm.ParseYAML(r)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Default {
			return &all[i], nil
		}
	}
	if len(all) == 0 {
		return nil, fault(lockstep.ErrInvalid, "read topology", "document", "", "has no topology")
	}
	return &all[0], nil
}
