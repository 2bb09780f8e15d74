//go:build linux

package coop

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestMessagesHaveOneText(t *testing.T) {
	for line, want := range map[string]Message{
		"close 1 2":                {Verb: "close", Args: []string{"1", "2"}},
		"a":                        {Verb: "a", Args: []string{}},
		"a 1 2 3 4 5 6 7 8":        {Verb: "a", Args: strings.Fields("1 2 3 4 5 6 7 8")},
		"hello 1 gate trial-1:a/b": {Verb: "hello", Args: []string{"1", "gate", "trial-1:a/b"}},
	} {
		m, err := Parse(line)
		require.NoError(t, err)
		require.Equal(t, want, m)
		back, err := m.Line()
		require.NoError(t, err)
		require.Equal(t, line+"\n", back)
	}
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	for _, line := range []string{
		"", " ", "A", "a ", " a", "a  b", "a\tb", "a \xff", "a b\n", "a\r", "é", "1", "a 1 2 3 4 5 6 7 8 9", "a " + strings.Repeat("x", MaxLine),
	} {
		_, err := Parse(line)
		require.ErrorIs(t, err, ErrProtocol, "%q", line)
	}
	_, err := Message{Verb: "a", Args: []string{"b c"}}.Line()
	require.ErrorIs(t, err, ErrProtocol)
	_, err = Message{Verb: "a", Args: []string{""}}.Line()
	require.ErrorIs(t, err, ErrProtocol)
}

func TestNumbersAreReadWhole(t *testing.T) {
	list, ok := Numbers("a", 0, 1<<63-1).Uints(2)
	require.True(t, ok)
	require.Equal(t, []uint64{0, 1<<63 - 1}, list)
	for _, args := range []string{"1", "1 x", "1 -1", "1 +1 ", "1 9223372036854775808", "1 1.0"} {
		_, ok := Message{Args: strings.Fields(args)}.Uints(2)
		require.Equal(t, false, ok, args)
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range []string{"open 1 2 3", "quiet 1 2 3", "", "a  b", "hello 1 gate x"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		m, err := Parse(line)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		back, err := m.Line()
		require.NoError(t, err)
		require.Equal(t, line+"\n", back)
	})
}

// pair returns both ends of a greeted connection.
func pair(t *testing.T, admit func(string, Peer) string) (sup, hook *Conn, err error) {
	t.Helper()
	l, err := Listen(filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	type dialed struct {
		c   *Conn
		err error
	}
	done := make(chan dialed, 1)
	go func() {
		c, err := Dial(ctx, l.l.Addr().String(), "gate", "me")
		done <- dialed{c, err}
	}()
	c, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	name, greet := c.Greet("gate", 20*time.Second, admit)
	d := <-done
	if d.err != nil {
		require.Error(t, greet)
		return nil, nil, d.err
	}
	require.NoError(t, greet)
	require.Equal(t, "me", name)
	t.Cleanup(func() { _ = d.c.Close() })
	return c, d.c, nil
}

func TestBothSidesGreetAndTheKernelTellsWho(t *testing.T) {
	sup, hook, err := pair(t, func(name string, p Peer) string { return "" })
	require.NoError(t, err)
	require.Equal(t, Peer{PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid()}, sup.Peer())

	_, ok, err := hook.TryReceive()
	require.NoError(t, err)
	require.False(t, ok, "nothing has arrived")
	require.NoError(t, sup.Send(Numbers("open", 1, 2, 3), time.Second))
	require.NoError(t, sup.Send(Numbers("close", 1, 3), time.Second))
	m, err := hook.Receive()
	require.NoError(t, err)
	require.Equal(t, "open", m.Verb)
	m, ok, err = hook.TryReceive()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "close", m.Verb)

	hook.Wake()
	_, err = hook.Receive()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	hook.Rest()
	require.NoError(t, sup.Close())
	_, err = hook.Receive()
	require.ErrorIs(t, err, io.EOF)
	_, _, err = hook.TryReceive()
	require.ErrorIs(t, err, io.EOF)
}

func TestARefusalIsToldWithItsWord(t *testing.T) {
	_, _, err := pair(t, func(string, Peer) string { return "process" })
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "process")
}

func TestFirstLinesThatAreNoneAreRefused(t *testing.T) {
	for text, kind := range map[string]error{
		"hello 2 gate x\n":           ErrRefused, // another version
		"hello 1 other x\n":          ErrRefused,
		"quiet 1 2 3\n":              ErrRefused,
		"hello 1 gate\n":             ErrRefused,
		"\n":                         ErrProtocol,
		"GET / HTTP/1.1\r\n":         ErrProtocol,
		strings.Repeat("a", MaxLine): ErrProtocol,
		"":                           io.EOF,
	} {
		l, err := Listen(filepath.Join(t.TempDir(), "s"))
		require.NoError(t, err)
		c, err := net.Dial("unix", l.l.Addr().String())
		require.NoError(t, err)
		_, err = c.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, c.(*net.UnixConn).CloseWrite())
		sup, err := l.Accept()
		require.NoError(t, err)
		_, err = sup.Greet("gate", 20*time.Second, func(string, Peer) string { return "" })
		require.ErrorIs(t, err, kind, "%q", text)
		require.NoError(t, sup.Close())
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
	}
}

func TestAHookWhoseClockIsBehindDoesNotGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for now, kind := range map[string]error{"9223372036854775807": ErrRefused, "x": ErrProtocol, "0": nil} {
		l, err := net.Listen("unix", path)
		require.NoError(t, err)
		go func() {
			c, err := l.Accept()
			if err == nil {
				_, _ = c.Write([]byte("welcome 1 " + now + "\n"))
			}
		}()
		c, err := Dial(context.Background(), path, "gate", "me")
		require.ErrorIs(t, err, kind, now)
		if err == nil {
			require.NoError(t, c.Close())
		}
		require.NoError(t, l.Close())
	}
}

func TestSendDoesNotWaitForAPeerThatDoesNotRead(t *testing.T) {
	sup, _, err := pair(t, func(string, Peer) string { return "" })
	require.NoError(t, err)
	for err == nil {
		err = sup.Send(Numbers("open", 1, 2, 3), time.Millisecond)
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// What a peer has said before it died is heard, though another has a copy of its end.
func TestDrainHearsTheLastWordAndThenTheEnd(t *testing.T) {
	sup, hook, err := pair(t, func(string, Peer) string { return "" })
	require.NoError(t, err)
	for n := range uint64(3) {
		require.NoError(t, hook.Send(Numbers("step", n), time.Minute))
	}
	sup.Drain()
	for n := range uint64(3) {
		m, err := sup.Receive()
		require.NoError(t, err)
		require.Equal(t, Numbers("step", n), m)
	}
	_, err = sup.Receive()
	require.ErrorIs(t, err, io.EOF)

	waits := make(chan error, 1) // nor does one that waits already wait on
	sup, _, err = pair(t, func(string, Peer) string { return "" })
	require.NoError(t, err)
	go func() {
		_, err := sup.Receive()
		waits <- err
	}()
	sup.Drain()
	require.ErrorIs(t, <-waits, io.EOF)
}

func TestListenReplacesASocketThatNobodyListensTo(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	_, err = Listen(path)
	require.ErrorIs(t, err, lockstep.ErrConflict, "somebody listens")
	require.NoError(t, l.Close())
	mine, err := Listen(path)
	require.NoError(t, err, "its owner has died")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, mine.Close())
	_, err = os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = mine.Accept()
	require.ErrorIs(t, err, net.ErrClosed)

	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = Listen(path)
	require.ErrorIs(t, err, lockstep.ErrConflict, "a file is not removed")
	for _, bad := range []string{"", "@abstract", strings.Repeat("x", 108)} {
		_, err = Listen(bad)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path) // accepts, and says nothing
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Read(make([]byte, 100)) // the hello
			cancel()
			_, _ = c.Read(make([]byte, 1))
		}
	}()
	_, err = Dial(ctx, path, "gate", "me")
	require.Error(t, err)
	require.ErrorIs(t, err, context.Canceled)
}
