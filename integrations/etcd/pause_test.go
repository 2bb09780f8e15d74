//go:build unix

package etcd

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-gpu/lockstep/lease"
)

// process is a run of play.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func spawn(t *testing.T, addr, device, prefix string) *process {
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), roleEnv+"="+strings.Join([]string{addr, device, prefix}, " "))
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewScanner(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// until reads what p says until a line begins with word, and returns the rest of it.
func (p *process) until(t *testing.T, word string) string {
	t.Helper()
	for p.out.Scan() {
		if rest, ok := strings.CutPrefix(p.out.Text(), word+" "); ok {
			return rest
		}
		require.False(t, strings.HasPrefix(p.out.Text(), "failed"), p.out.Text())
	}
	t.Fatalf("the process ended before it said %q", word)
	return ""
}

// leads reads on until p leads under a higher token than that.
func (p *process) leads(t *testing.T, above lease.Token) lease.Token {
	t.Helper()
	for {
		if token := tokenOf(t, p.until(t, "lead")); token > above {
			return token
		}
	}
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	require.NoError(t, p.cmd.Process.Signal(s))
}

func (p *process) say(t *testing.T, line string) {
	_, err := fmt.Fprintln(p.in, line)
	require.NoError(t, err)
}

func tokenOf(t *testing.T, text string) lease.Token {
	var token lease.Token
	_, err := fmt.Sscan(text, &token)
	require.NoError(t, err)
	return token
}

// TestPausedPastItsLeaseAndResumed stops one of two processes, for longer than its
// lease, between its check and its act, and then the other one anywhere. Each comes
// back to find that it leads no longer: by its own clock, by the guard of its write,
// and by the device.
func TestPausedPastItsLeaseAndResumed(t *testing.T) {
	prefix := "/" + t.Name() + "/"
	d := newDevice(t)
	a := spawn(t, sharedAddr(t), d.l.Addr().String(), prefix)
	a.until(t, "lead")
	a.until(t, "acted")
	b := spawn(t, shared.addr, d.l.Addr().String(), prefix)

	// On a slow machine leases also end by themselves, and then there are more reigns
	// than these.
	a.say(t, "brink")
	first := tokenOf(t, a.until(t, "brink"))
	a.signal(t, syscall.SIGSTOP)
	second := b.leads(t, first)
	b.until(t, "acted")
	a.signal(t, syscall.SIGCONT)
	a.say(t, "go")
	require.Equal(t, fmt.Sprint(first, " true refused refused"), a.until(t, "after"))
	require.Equal(t, first, tokenOf(t, a.until(t, "deposed")))

	b.signal(t, syscall.SIGSTOP)
	third := a.leads(t, second)
	a.until(t, "acted")
	b.signal(t, syscall.SIGCONT)
	b.until(t, "deposed")

	// Killed without a word: the other one takes over again.
	a.signal(t, syscall.SIGKILL)
	b.leads(t, third)
	b.until(t, "acted")
	require.NoError(t, b.in.Close())
	require.NoError(t, b.cmd.Wait())

	c := newClient(t, shared.addr)
	resp, err := c.Get(t.Context(), prefix+"act/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(resp.Kvs), 20)
	last, changes := lease.Token(0), 0
	for _, kv := range resp.Kvs {
		require.EqualValues(t, 1, kv.Version, "no act is done twice")
		token := tokenOf(t, string(kv.Value))
		require.GreaterOrEqual(t, token, last, "who is succeeded acts no more")
		if token != last {
			changes++
		}
		last = token
	}
	require.GreaterOrEqual(t, changes, 4, "they took turns")
	d.mu.Lock()
	defer d.mu.Unlock()
	require.Positive(t, d.refused, "the device was asked by one who no longer led")

	// What all four reigns logged is one history.
	s := newSpace(t, func(cfg *Config) { cfg.Prefix = prefix })
	j, err := s.Journal("scheduler", nil)
	require.NoError(t, err)
	core, err := j.Scheduler(t.Context(), workConfig())
	require.NoError(t, err)
	ref := doWork(t, core.Seq())
	require.Equal(t, ref.states[core.Seq()], state(t, core))
	var latest uint64
	_, err = fmt.Sscan(strings.TrimPrefix(string(resp.Kvs[len(resp.Kvs)-1].Key), prefix+"act/"), &latest)
	require.NoError(t, err)
	require.LessOrEqual(t, latest, core.Seq(), "nothing is done that is not logged")
}
