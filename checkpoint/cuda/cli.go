package cuda

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// CLIConfig configures a Driver that runs NVIDIA's program cuda-checkpoint. The zero
// value is valid.
type CLIConfig struct {
	// Path is the program; "" means "cuda-checkpoint", looked for in PATH.
	Path string

	// Workers is as in Config; each call is a process.
	Workers int

	// Facts is as in Config.
	Facts Facts `json:"-"`
}

// Validate reports all that is wrong with c.
func (c CLIConfig) Validate() error {
	var err error
	if strings.ContainsRune(c.Path, 0) {
		err = invalid("new", "Path", strconv.Quote(c.Path), "holds a zero byte")
	}
	return errors.Join(err, checkWorkers(c.Workers))
}

// NewCLI makes a Driver that runs cuda-checkpoint for each call. The driver is
// initialised anew each time, which takes seconds on a large host, but the release
// 555, which has no functions to call, is enough. A run is never ended before it ends
// by itself, since that would leave the driver's talk with the target half finished.
func NewCLI(c CLIConfig) (*Driver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	path := c.Path
	if path == "" {
		path = "cuda-checkpoint"
	}
	return newDriver("cuda-checkpoint", &cli{path: path}, c.Facts, c.Workers), nil
}

// cli is the program.
type cli struct{ path string }

// deviceMap is the option that came with release 580.
const deviceMap = "--device-map"

// actions are the program's words for the verbs. It is immutable.
var actions = [...]string{lock: "lock", suspend: "checkpoint", resume: "restore", unlock: "unlock"}

// words are the program's words for states, in the order of their numbers. It is
// immutable.
var words = [...]string{"running", "locked", "checkpointed", "failed", "checkpointing", "restoring"}

// longestOutput is how much a run may say; the rest is dropped.
const longestOutput = 64 << 10

// output takes what a run says. It does not embed the buffer, whose ReadFrom would go
// round the bound.
type output struct{ buf bytes.Buffer }

func (o *output) Write(p []byte) (int, error) {
	room := longestOutput - o.buf.Len()
	_, _ = o.buf.Write(p[:min(len(p), room)])
	return len(p), nil
}

func (o *output) String() string { return o.buf.String() }

// run runs the program to its end.
func (c *cli) run(call string, args ...string) (string, *failure) {
	var stdout, stderr output
	// No context: a run that is killed leaves the target with half a command.
	cmd := exec.Command(c.path, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C") // its texts are read
	apart(cmd)
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	var exit *exec.ExitError
	why := errText(c.path, ": ", err.Error(), ": ", said(stderr.String()))
	switch {
	case !errors.As(err, &exit), exit.ExitCode() == 127, exit.ExitCode() == 126:
		// 127 is the dynamic linker's: the program is there, the driver's library is not.
		return "", &failure{kind: checkpoint.ErrUnsupported, call: call, err: why}
	case exit.ExitCode() < 0:
		return "", &failure{kind: checkpoint.ErrDriver, call: call, err: why}
	}
	f := &failure{kind: checkpoint.ErrDriver, call: call, err: why}
	if c := codeOf(quoted(stderr.String() + stdout.String())); c != success {
		f.code, f.kind = c, describe(c).kind
	}
	return "", f
}

// said returns what a program has complained of, as one line that is not too long.
func said(text string) string {
	text = strings.TrimSpace(text)
	return strconv.Quote(text[:min(len(text), 200)])
}

// quoted returns what stands between the last two quotation marks, "" without them:
// the program's sentences end with the driver's own text.
func quoted(s string) string {
	end := strings.LastIndexByte(s, '"')
	if end < 1 {
		return ""
	}
	begin := strings.LastIndexByte(s[:end], '"')
	if begin < 0 {
		return ""
	}
	return s[begin+1 : end]
}

// find implements backend. That the program is there says nothing: it is linked with
// the driver's library and has to be run.
func (c *cli) find() found {
	text, f := c.run("--help", "--help")
	if f != nil {
		return found{Where: c.path, Absent: f.err.Error()}
	}
	out := found{Where: c.path, Release: parseRelease(text)}
	if !strings.Contains(text, "--action") {
		out.Missing = append(out.Missing, functions[lock], functions[suspend], functions[resume], functions[unlock])
	}
	if !strings.Contains(text, "--get-state") {
		out.Missing = append(out.Missing, getState)
	}
	if !strings.Contains(text, deviceMap) {
		out.Missing = append(out.Missing, deviceMap)
	}
	return out
}

// read implements backend. One word and a newline is all that is understood.
func (c *cli) read(pid int) (int, *failure) {
	text, f := c.run(getState, "--get-state", "--pid", strconv.Itoa(pid))
	if f != nil {
		return 0, f
	}
	for n, word := range words {
		if text == word+"\n" || text == word {
			return n, nil
		}
	}
	return 0, &failure{kind: checkpoint.ErrDriver, call: getState, err: errText(c.path, " says ", errtext.Quote(text), ", want a state")}
}

// act implements backend.
func (c *cli) act(r request) *failure {
	args := []string{"--action", actions[r.do], "--pid", strconv.Itoa(r.pid)}
	if r.do == lock {
		args = append(args, "--timeout", strconv.FormatUint(uint64(r.ms), 10))
	}
	if len(r.pairs) > 0 {
		// It has to have every device that the target had, or none.
		list := make([]string, len(r.pairs))
		for i, p := range r.pairs {
			list[i] = p.From.String() + "=" + p.To.String()
		}
		args = append(args, deviceMap, strings.Join(list, ","))
	}
	_, f := c.run(functions[r.do], args...)
	return f
}

// close implements backend.
func (c *cli) close() error { return nil }
