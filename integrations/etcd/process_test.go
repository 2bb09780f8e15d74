package etcd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-gpu/lockstep/lease"
)

// play is a process of a test: a scheduler that leads when it can, logs each input
// before it acts on it, and acts both in etcd and on a device that stands outside,
// until its input ends. On "brink" it stops between its check and its act, says so,
// and goes on at the next line.
func play(role string, in *bufio.Scanner) error {
	var addr, device, prefix string
	if _, err := fmt.Sscan(role, &addr, &device, &prefix); err != nil {
		return err
	}
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := New(Config{Client: c, Prefix: prefix, TTL: time.Second})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lines := make(chan string)
	go func() {
		for in.Scan() {
			lines <- in.Text()
		}
		cancel()
	}()
	conn, err := net.Dial("tcp", device)
	if err != nil {
		return err
	}
	defer conn.Close()
	a := &actor{s: s, lines: lines, device: bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))}
	for ctx.Err() == nil {
		err := s.Run(ctx, func(ctx context.Context, l *Leader) error {
			err := a.reign(ctx, l)
			if l.Check() != nil {
				fmt.Println("deposed", l.Token())
			}
			return err
		})
		if err != nil && !s.transient(err) {
			return err
		}
	}
	return nil
}

type actor struct {
	s      *Space
	lines  <-chan string
	device *bufio.ReadWriter
}

func (a *actor) reign(ctx context.Context, l *Leader) error {
	j, err := a.s.Journal("scheduler", l)
	if err != nil {
		return err
	}
	core, err := j.Scheduler(ctx, workConfig())
	if err != nil {
		return err
	}
	fmt.Println("lead", l.Token())
	for n := core.Seq() + 1; ctx.Err() == nil; n++ {
		if _, err := input(core, n); err != nil {
			return err
		}
		if err := j.Commit(ctx, core); err != nil {
			return err
		}
		if err := l.Check(); err != nil {
			return err
		}
		select {
		case <-a.lines:
			fmt.Println("brink", l.Token())
			<-a.lines // it may be stopped here for a long time
			check := l.Check()
			// A host that does not check is stopped by the guard, and by the device.
			ops := []clientv3.Op{clientv3.OpPut(a.act(n), l.Token().String())}
			resp, err := a.s.txn(context.WithoutCancel(ctx), l.Guard(), ops, nil)
			write := "refused"
			if err != nil {
				write = "failed"
			} else if resp.Succeeded {
				write = "done"
			}
			fmt.Println("after", l.Token(), errors.Is(check, ErrDeposed), write, a.tell(l.Token()))
		default:
		}
		if _, err := l.Commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(a.act(n)), "=", 0)},
			clientv3.OpPut(a.act(n), l.Token().String())); err != nil {
			return err
		}
		if got := a.tell(l.Token()); got != "done" {
			return fmt.Errorf("device: %s: %w", got, ErrDeposed)
		}
		if n%10 == 0 {
			fmt.Println("acted", l.Token(), n)
		}
	}
	return ctx.Err()
}

func (a *actor) act(n uint64) string { return fmt.Sprintf("%sact/%08d", a.s.cfg.Prefix, n) }

// tell has the device do something, under a token.
func (a *actor) tell(token lease.Token) string {
	fmt.Fprintln(a.device, token)
	if err := a.device.Flush(); err != nil {
		return err.Error()
	}
	line, err := a.device.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// device is something outside etcd that obeys: it refuses every token but the
// highest it was shown, as the guard of a GPU does.
type device struct {
	l       net.Listener
	mu      sync.Mutex
	highest lease.Token
	refused int
	conns   []net.Conn
	wg      sync.WaitGroup
}

func newDevice(t *testing.T) *device {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &device{l: l}
	d.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.conns = append(d.conns, c)
			d.mu.Unlock()
			d.wg.Go(func() { d.obey(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		d.mu.Lock()
		for _, c := range d.conns {
			_ = c.Close()
		}
		d.mu.Unlock()
		d.wg.Wait()
	})
	return d
}

func (d *device) obey(c net.Conn) {
	for in := bufio.NewScanner(c); in.Scan(); {
		var token lease.Token
		_, _ = fmt.Sscan(in.Text(), &token)
		answer := "done"
		d.mu.Lock()
		if token < d.highest {
			d.refused++
			answer = "refused"
		}
		d.highest = max(d.highest, token)
		d.mu.Unlock()
		fmt.Fprintln(c, answer)
	}
}
