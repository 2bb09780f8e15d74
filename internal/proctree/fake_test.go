package proctree

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fake is a kernel in memory, for what real processes do too rarely to wait for. Each
// look at it lets its processes live on a little.
type fake struct {
	me      int
	procs   map[int]*fakeProcess
	ticks   uint64
	live    func(*fake) // what happens at each look
	sent    []string    // all signals to processes, as "order pid@start"
	reaped  []int
	refused bool // refuses signals
	refuses int  // a process that refuses signals sent to itself
	blind   bool // reading a process fails
}

type fakeProcess struct {
	Process
	states  []byte
	env     string
	pending bool // a stop that is not acted on: the process waits in D
	ours    bool // came of the root, as the oracle knows
}

func newFake() *fake {
	f := &fake{me: 10, procs: make(map[int]*fakeProcess), ticks: 100}
	f.add(1, 0, 1, 1)
	f.add(10, 1, 10, 10)
	return f
}

func (f *fake) add(pid, parent, group, session int) *fakeProcess {
	f.ticks++
	p := &fakeProcess{
		Process: Process{Identity: Identity{PID: pid, Start: f.ticks}, Name: "p", Parent: parent, Group: group, Session: session, Threads: 1},
		states:  []byte("R"),
	}
	if q := f.procs[parent]; q != nil {
		p.env, p.ours = q.env, q.ours
	}
	f.procs[pid] = p
	return p
}

// tree returns the tree below pid.
func (f *fake) tree(pid int) *Tree {
	t := makeTree(f, Config{Poll: time.Microsecond})
	t.token = "token"
	f.procs[pid].env, f.procs[pid].ours = "token", true
	t.adopt(f.procs[pid].Process)
	return t
}

func (f *fake) pids() (list []int) {
	for pid := range f.procs {
		list = append(list, pid)
	}
	slices.Sort(list)
	return list
}

func (f *fake) table() (list []Process, err error) {
	if f.live != nil {
		f.live(f)
	}
	for _, pid := range f.pids() {
		p, _, _ := f.process(pid)
		list = append(list, p)
	}
	return list, nil
}

func (f *fake) process(pid int) (Process, bool, error) {
	if f.blind {
		return Process{}, false, fmt.Errorf("too many open files")
	}
	p, ok := f.procs[pid]
	if !ok {
		return Process{}, false, nil
	}
	q := p.Process
	q.State, q.Threads = p.states[0], len(p.states)
	return q, true, nil
}

func (f *fake) states(pid int) []byte {
	if p, ok := f.procs[pid]; ok {
		return p.states
	}
	return nil
}

func (f *fake) self() int       { return f.me }
func (f *fake) leader(int) bool { return true }

func (f *fake) tagged(pid int, token string) (named, sure bool) {
	return f.procs[pid] != nil && f.procs[pid].env == token, true
}

func (f *fake) reap(pid int) {
	f.reaped = append(f.reaped, pid)
	delete(f.procs, pid)
}

func (f *fake) wait([]handle, time.Duration)         {}
func (f *fake) prepare(*exec.Cmd, bool, *cage) error { return nil }
func (f *fake) open(id Identity) (handle, bool) {
	p, ok := f.procs[id.PID]
	return &fakeHandle{f: f, p: p}, ok && p.Start == id.Start
}

type fakeHandle struct {
	f *fake
	p *fakeProcess
}

func (h *fakeHandle) close() {}

func (h *fakeHandle) signal(what order) error {
	if h.f.refused || h.p.PID == h.f.refuses {
		return fmt.Errorf("not permitted")
	}
	if h.f.procs[h.p.PID] == h.p {
		h.f.deliver(h.p, what)
	}
	return nil
}

func (f *fake) group(group int, what order) error {
	if f.refused {
		return fmt.Errorf("not permitted")
	}
	for _, pid := range f.pids() {
		if p := f.procs[pid]; p.Group == group {
			f.deliver(p, what)
		}
	}
	return nil
}

func (f *fake) deliver(p *fakeProcess, what order) {
	f.sent = append(f.sent, fmt.Sprintf("%d %s", what, p.Identity))
	for i, s := range p.states {
		switch {
		case dead(s):
		case what == kill, what == term && s == 'R':
			p.states[i] = 'Z'
		case what == stop && s == 'D':
			p.pending = true
		case what == stop && s == 'R':
			p.states[i] = 'T'
		case what == cont && s == 'T':
			p.states[i] = 'R'
		}
	}
	if what == cont {
		p.pending = false
	}
	if dead(p.states[0]) {
		for _, q := range f.procs {
			if q.Parent == p.PID {
				q.Parent = 1 // its children are init's now
			}
		}
	}
}

func TestAPidThatIsAnothersNowIsNotSignalled(t *testing.T) {
	f := newFake()
	f.add(20, 10, 20, 20)
	f.add(21, 20, 1, 1) // in a group that is not the tree's, so it is signalled by itself
	tree := f.tree(20)
	_, err := tree.Pause(context.Background(), 1)
	require.NoError(t, err)

	// 21 dies, and its pid goes to a process of somebody else.
	delete(f.procs, 21)
	other := f.add(21, 1, 21, 21)
	f.sent = nil
	_, err = tree.Resume(context.Background(), 2)
	require.NoError(t, err)
	_, err = tree.Pause(context.Background(), 2)
	require.NoError(t, err)
	_, err = tree.Terminate(context.Background(), 0)
	require.NoError(t, err)
	require.NotEmpty(t, f.sent)
	for _, s := range f.sent {
		require.False(t, strings.HasSuffix(s, " "+other.Identity.String()), "%s", s)
	}
	require.Equal(t, []byte("R"), other.states)
}

func TestAPidReusedBetweenTheLookAndTheSignalIsNotSignalled(t *testing.T) {
	f := newFake()
	f.add(20, 10, 20, 20)
	f.add(21, 20, 1, 1)
	tree := f.tree(20)
	require.NoError(t, tree.scan())
	m := tree.members[21]
	delete(f.procs, 21)
	other := f.add(21, 1, 21, 21)
	require.NoError(t, tree.send(kill, []*member{m}))
	require.Equal(t, []byte("R"), other.states)
}

func TestAGroupWhoseFounderIsGoneStaysTheTreesWhileSomebodyIsInIt(t *testing.T) {
	f := newFake()
	f.add(20, 10, 20, 20)
	f.add(21, 20, 21, 20)
	f.add(22, 21, 21, 20)
	tree := f.tree(20)
	tree.token = ""
	require.NoError(t, tree.scan())
	delete(f.procs, 21)
	f.procs[22].Parent = 1
	f.add(23, 1, 21, 20) // was 22's child's child before anybody looked
	require.NoError(t, tree.scan())
	require.Len(t, tree.members, 3)

	// When nobody is left in it, the number may go to others.
	delete(f.procs, 22)
	delete(f.procs, 23)
	require.NoError(t, tree.scan())
	f.add(21, 1, 21, 21)
	f.add(24, 1, 21, 21)
	require.NoError(t, tree.scan())
	require.Len(t, tree.members, 1)
}

func TestAParentInVforkIsLetGoThroughItsChild(t *testing.T) {
	f := newFake()
	f.add(20, 10, 20, 20).states = []byte("D")
	f.add(21, 20, 20, 20)
	execs := 0
	f.live = func(f *fake) {
		// The child calls exec as soon as it runs, unless it was stopped first, as it is here at first.
		if f.procs[21].states[0] == 'R' && len(f.sent) > 0 && f.procs[20].states[0] == 'D' {
			execs++
			f.procs[20].states[0] = 'R'
			if f.procs[20].pending {
				f.procs[20].states[0] = 'T'
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := f.tree(20).Pause(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, Done, out)
	require.Equal(t, 1, execs)
	require.Equal(t, "TT", string(f.procs[20].states)+string(f.procs[21].states))
}

func TestOnlyThreadsThatAreHaltedOrDeadCountAsStopped(t *testing.T) {
	for states, want := range map[string]threads{
		"T":  {alive: true, stopped: true},
		"t":  {alive: true, stopped: true},
		"Z":  {},
		"ZX": {},
		"ZT": {alive: true, stopped: true},
		"ZS": {alive: true, running: true},
		"TR": {alive: true, running: true, stopped: true},
		"TD": {alive: true, running: true, stopped: true, waiting: true},
		"I":  {alive: true, running: true},
		"":   {},
	} {
		require.Equal(t, want, summary([]byte(states)), states)
	}
}

func TestARefusedSignalIsAnError(t *testing.T) {
	f := newFake()
	f.add(20, 10, 20, 20)
	tree := f.tree(20)
	f.refused = true
	_, err := tree.Pause(context.Background(), 1)
	require.ErrorIs(t, err, ErrFailed)
	_, err = tree.Terminate(context.Background(), time.Hour)
	require.ErrorIs(t, err, ErrFailed)
}

// chaos lets processes fork, die, and change their groups and sessions at each look.
func chaos(r *rand.Rand, budget int) func(*fake) {
	next := 1000
	return func(f *fake) {
		for _, pid := range f.pids() {
			p := f.procs[pid]
			if pid <= 20 && pid != 20 || p.states[0] != 'R' || budget == 0 {
				continue
			}
			switch r.IntN(6) {
			case 0, 1, 2:
				budget--
				next++
				f.add(next, pid, p.Group, p.Session)
			case 3:
				p.Group = pid
			case 4:
				p.Group, p.Session = pid, pid
			case 5:
				if pid == 20 {
					continue
				}
				delete(f.procs, pid)
				for _, q := range f.procs {
					if q.Parent == pid {
						q.Parent = 1
					}
				}
			}
		}
	}
}

func TestPauseStopsAllThatCameOfTheRootAndNobodyElse(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := newFake()
		f.add(20, 10, 20, 20)
		f.add(30, 1, 30, 30) // a stranger, whose children fork as well
		f.live = chaos(r, 60)
		tree := f.tree(20)
		for epoch := range uint64(4) {
			out, err := tree.Pause(context.Background(), epoch)
			require.NoError(t, err)
			require.NotEqual(t, Stale, out)
			for _, pid := range f.pids() {
				p := f.procs[pid]
				require.Equal(t, p.ours, p.states[0] == 'T', "seed %d: %v", seed, p.Process)
			}
			_, err = tree.Resume(context.Background(), epoch+1)
			require.NoError(t, err)
			for _, pid := range f.pids() {
				require.Equal(t, byte('R'), f.procs[pid].states[0], "seed %d", seed)
			}
		}
		_, err := tree.Terminate(context.Background(), 0)
		require.NoError(t, err)
		for _, pid := range f.pids() {
			p := f.procs[pid]
			require.Equal(t, p.ours, dead(p.states[0]), "seed %d: %v", seed, p.Process)
		}
	}
}

// Processes of another user may refuse; the rest is stopped and ended all the same.
func TestWhoRefusesASignalDoesNotKeepItFromOthers(t *testing.T) {
	f := newFake()
	f.add(20, 10, 20, 20)
	tree := f.tree(20)
	f.add(30, 20, 10, 10) // in a group that is not the tree's, so signalled by itself
	f.add(31, 20, 10, 10)
	f.refuses = 30
	_, err := tree.Pause(context.Background(), 1)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "30@")
	require.Equal(t, "T", string(f.procs[20].states))
	require.Equal(t, "T", string(f.procs[31].states))
	_, err = tree.Terminate(context.Background(), 0)
	require.ErrorIs(t, err, ErrFailed)
	require.Equal(t, "Z", string(f.procs[31].states))
}

func TestARootThatCannotBeReadIsNotTakenForDead(t *testing.T) {
	f := newFake()
	f.add(20, 10, 20, 20)
	tree := f.tree(20)
	f.blind = true
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, tree.Wait(ctx), ErrTimeout)
	require.ErrorIs(t, tree.Close(), ErrFailed)
	f.blind = false
	delete(f.procs, 20)
	require.NoError(t, tree.Wait(ctx))
	require.NoError(t, tree.Close())
}

func TestAThreadThatCannotBeReadCountsAsRunning(t *testing.T) {
	require.Equal(t, threads{alive: true, running: true, stopped: true}, summary([]byte{'T', unknown}))
}
