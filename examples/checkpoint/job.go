package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/checkpoint/cooperative"
)

// The job is this program again, told by its environment what it is.
const (
	roleVariable   = "LOCKSTEP_EXAMPLE_ROLE"   // "job" or "rank"
	stepsVariable  = "LOCKSTEP_EXAMPLE_STEPS"  // how many steps it has in all
	imagesVariable = "LOCKSTEP_EXAMPLE_IMAGES" // where it starts from: a path to which a dot and the rank are added; "" for the beginning
	paceVariable   = "LOCKSTEP_EXAMPLE_PACE"   // how long a step takes
)

const (
	ranks   = 4
	prime   = 1_000_000_007
	shared  = 1 << 20 // numbers that all ranks hold alike: 8 MiB
	private = 1 << 19 // numbers of each rank: 4 MiB
	touched = 256     // numbers that a step changes, of either kind
)

// exitAlone is how a rank ends whose peers, or whose host, are gone.
const exitAlone = 9

// runJob is the root of the job: it starts the ranks, joined by pipes, and waits for them.
func runJob() int {
	go endWithHost(os.Stdin)
	var up, down [ranks][2]*os.File
	for r := range ranks {
		var err error
		if up[r][0], up[r][1], err = os.Pipe(); err != nil {
			return fail(err)
		}
		if down[r][0], down[r][1], err = os.Pipe(); err != nil {
			return fail(err)
		}
	}
	var kids [ranks]*exec.Cmd
	for r := range ranks {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"=rank", cooperative.EnvRank+"="+strconv.Itoa(r))
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.ExtraFiles = []*os.File{up[r][1], down[r][0]}
		if r == 0 { // the one that sums
			for k := range ranks {
				cmd.ExtraFiles = append(cmd.ExtraFiles, up[k][0], down[k][1])
			}
		}
		if err := cmd.Start(); err != nil {
			return fail(err)
		}
		kids[r] = cmd
	}
	for r := range ranks { // or nobody would see the end of the others
		for _, f := range []*os.File{up[r][0], up[r][1], down[r][0], down[r][1]} {
			_ = f.Close()
		}
	}
	code := 0
	for _, cmd := range kids {
		if err := cmd.Wait(); err != nil {
			code = max(code, 1, cmd.ProcessState.ExitCode())
		}
	}
	return code
}

// endWithHost ends this process once the program that started the job is gone: nothing is ever written to the lifeline,
// and it ends when nobody could. A hook alone would let the job train on, as a real one should.
func endWithHost(lifeline io.Reader) {
	_, _ = io.Copy(io.Discard, lifeline)
	os.Exit(exitAlone)
}

// rank is one process of the training.
type rank struct {
	number  int
	step    uint64 // the next one
	state   uint64
	shared  []uint64
	private []uint64
	up      *os.File
	down    io.Reader
	ups     []io.Reader // of rank 0
	downs   []*os.File
}

// runRank trains until the steps are done, the host has it leave, or a peer is gone.
func runRank() int {
	go endWithHost(os.Stdin)
	r, err := newRank()
	if err != nil {
		return fail(err)
	}
	steps, err := strconv.ParseUint(os.Getenv(stepsVariable), 10, 64)
	if err != nil {
		return fail(err)
	}
	pace, err := time.ParseDuration(os.Getenv(paceVariable))
	if err != nil {
		return fail(err)
	}
	var hook *cooperative.Hook
	ctx := context.Background()
	if os.Getenv(cooperative.EnvSocket) != "" {
		if hook, err = cooperative.Dial(ctx, cooperative.HookConfig{Save: r.save}); err != nil {
			return fail(err)
		}
		defer func() { _ = hook.Close() }()
	}
	for r.step <= steps {
		if hook != nil {
			if err := hook.Next(ctx, r.step); errors.Is(err, cooperative.ErrLeave) {
				return 0
			} else if err != nil {
				return fail(err)
			}
		}
		if err := r.train(); err != nil {
			return exitAlone
		}
		if pace > 0 {
			time.Sleep(pace) // stands for the work
		}
	}
	fmt.Printf("rank %d: %d\n", r.number, r.digest())
	return 0
}

// newRank is a rank at the beginning, or where its image was saved.
func newRank() (*rank, error) {
	n, err := strconv.Atoi(os.Getenv(cooperative.EnvRank))
	if err != nil {
		return nil, err
	}
	r := &rank{number: n, step: 1, state: uint64(n + 1), shared: make([]uint64, shared), private: make([]uint64, private)}
	fd := uintptr(3)
	next := func(name string) *os.File {
		f := os.NewFile(fd, name)
		fd++
		return f
	}
	r.up, r.down = next("up"), bufio.NewReader(next("down"))
	if n == 0 {
		for range ranks {
			r.ups = append(r.ups, bufio.NewReader(next("up")))
			r.downs = append(r.downs, next("down"))
		}
	}
	if images := os.Getenv(imagesVariable); images != "" {
		return r, r.load(images + "." + strconv.Itoa(n))
	}
	fill(r.shared, 1)
	fill(r.private, uint64(n)+2)
	return r, nil
}

// fill writes numbers that do not repeat (xorshift), as initialised weights do not.
func fill(to []uint64, seed uint64) {
	x := seed * 0x9e3779b97f4a7c15
	for i := range to {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		to[i] = x
	}
}

// train makes one step: all ranks sum a number, and with it change a few of theirs.
func (r *rank) train() error {
	total, err := r.reduce(r.state)
	if err != nil {
		return err
	}
	at := int(r.step) * touched
	for i := range touched {
		r.shared[(at+i)%shared] += total * uint64(i+1)
		r.private[(at+i)%private] ^= total + r.state
	}
	r.state = (r.state*31 + total + r.step + r.private[at%private]%7) % prime
	r.step++
	return nil
}

// reduce sums a number over all ranks; it ends when all have called it, or one is gone.
func (r *rank) reduce(value uint64) (uint64, error) {
	if err := binary.Write(r.up, binary.LittleEndian, value); err != nil {
		return 0, err
	}
	if r.number == 0 {
		sum := uint64(0)
		for _, u := range r.ups {
			var v uint64
			if err := binary.Read(u, binary.LittleEndian, &v); err != nil {
				return 0, err
			}
			sum += v
		}
		for _, d := range r.downs {
			if err := binary.Write(d, binary.LittleEndian, sum%prime); err != nil {
				return 0, err
			}
		}
	}
	var total uint64
	err := binary.Read(r.down, binary.LittleEndian, &total)
	return total, err
}

// save writes the whole rank to a new file; the hook calls it, in the loop.
func (r *rank) save(path string, progress func(done, total uint64)) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const total = 8 * (2 + shared + private)
	done := uint64(0)
	for _, part := range [][]uint64{{r.step, r.state}, r.shared, r.private} {
		for len(part) > 0 {
			n := min(len(part), 1<<16)
			if err := binary.Write(f, binary.LittleEndian, part[:n]); err != nil {
				return err
			}
			part = part[n:]
			done += uint64(8 * n)
			progress(done, total)
		}
	}
	return nil
}

// load reads what save wrote.
func (r *rank) load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	head := make([]uint64, 2)
	for _, part := range [][]uint64{head, r.shared, r.private} {
		if err := binary.Read(f, binary.LittleEndian, part); err != nil {
			return err
		}
	}
	r.step, r.state = head[0], head[1]
	return nil
}

// digest is a number that depends on all that the rank holds.
func (r *rank) digest() uint64 {
	h := r.state
	for _, part := range [][]uint64{r.shared, r.private} {
		for _, v := range part {
			h = h*0x100000001b3 ^ v
		}
	}
	return h
}

// fail reports err and returns the exit code for it.
func fail(err error) int {
	fmt.Fprintln(os.Stderr, "job:", err)
	return 1
}
