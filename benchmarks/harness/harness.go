package harness

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Bench is one run of a benchmark program. Not safe for concurrent use.
type Bench struct {
	Quick bool   // Quick asks for small rounds: the program is to end within 30 seconds.
	Check bool   // Check makes Close return 1 when a target was missed.
	Seed  uint64 // Seed starts every random generator of the program.

	name   string
	out    io.Writer
	missed []string
}

// New reads the flags of a program in args, without its name, and prints the
// heading to out. The program may define flags of its own in extra. A fault in
// args is returned after it was reported, with usage, to out.
func New(name string, args []string, out io.Writer, extra func(*flag.FlagSet)) (*Bench, error) {
	b := &Bench{name: name, out: out}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&b.Quick, "quick", false, "measure less: end within 30 seconds")
	flags.BoolVar(&b.Check, "check", false, "leave with status 1 when a stated target is missed")
	flags.Uint64Var(&b.Seed, "seed", 1, "seed of every random choice")
	if extra != nil {
		extra(flags)
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		err := fmt.Errorf("%s: unexpected argument %q", name, flags.Arg(0))
		fmt.Fprintln(out, err)
		return nil, err
	}
	b.Printf("# benchmark %s\n", name)
	b.Input("go", runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+", GOMAXPROCS "+strconv.Itoa(runtime.GOMAXPROCS(0)))
	b.Input("machine", strconv.Itoa(runtime.NumCPU())+" cores"+processor()+load())
	b.Input("seed", strconv.FormatUint(b.Seed, 10))
	return b, nil
}

// ExitCode returns what a program whose New failed with err is to exit with: 0
// when it was only asked for help.
func ExitCode(err error) int {
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	return 2
}

// Rounds returns how many rounds a measurement is cut into.
func (b *Bench) Rounds() int {
	if b.Quick {
		return 7
	}
	return 21
}

// Printf prints to the program's output.
func (b *Bench) Printf(format string, args ...any) { fmt.Fprintf(b.out, format, args...) }

// Input prints one property of what is measured, such as its size.
func (b *Bench) Input(key, value string) { b.Printf("input %s: %s\n", key, value) }

// Note prints a remark for people.
func (b *Bench) Note(text string) { b.Printf("note: %s\n", text) }

// Result prints a figure for scripts. The name holds no spaces.
func (b *Bench) Result(name string, value float64, unit string) {
	b.Printf("result %s %s %s\n", name, Number(value), unit)
}

// Target is what a figure should be.
type Target struct {
	Name    string  // Name is the figure's, as in its result.
	Value   float64 // Value is the figure that is judged: a time as the reference core would have shown it.
	Unit    string  // Unit is that of Value and Limit.
	Limit   float64 // Limit is the worst value that will do.
	AtLeast bool    // AtLeast says that Value must not be below Limit; false: not above it.
}

// Met reports whether t holds. A value that is not a number does not.
func (t Target) Met() bool {
	if t.AtLeast {
		return t.Value >= t.Limit
	}
	return t.Value <= t.Limit
}

// Target judges t, prints the outcome and remembers a miss.
func (b *Bench) Target(t Target) {
	verdict, relation := "ok", "<="
	if t.AtLeast {
		relation = ">="
	}
	if !t.Met() {
		verdict = "MISSED"
		b.missed = append(b.missed, t.Name)
	}
	b.Printf("target %s %s %s %s want %s %s\n", t.Name, verdict, Number(t.Value), t.Unit, relation, Number(t.Limit))
}

// Close prints the outcome and returns the status to exit with: 1 when a target
// was missed and Check is on, else 0.
func (b *Bench) Close() int {
	if len(b.missed) == 0 {
		b.Printf("# %s: every target met\n", b.name)
		return 0
	}
	b.Printf("# %s: missed %s\n", b.name, strings.Join(b.missed, ", "))
	if b.Check {
		return 1
	}
	return 0
}

// Number formats a figure with four significant digits, for those below 10 four
// decimals, and no exponent.
func Number(v float64) string {
	if v != v || v > 1e15 || v < -1e15 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	decimals := 4
	if v >= 1 || v <= -1 {
		decimals = 3
	}
	for limit := 10.0; decimals > 0 && (v >= limit || v <= -limit); limit *= 10 {
		decimals--
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// processor names the processor where the system tells, for the record.
func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return " of " + strings.TrimSpace(value)
		}
	}
	return ""
}

// load tells how busy the machine was, where the system tells.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	one, _, _ := strings.Cut(string(data), " ")
	return ", load average " + one
}
