package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
)

func TestFailuresCrossTheWire(t *testing.T) {
	require.Nil(t, unpack(pack(nil)))
	for _, f := range []*failure{
		failed("cuCheckpointProcessLock", 600),
		failed("x", 12345),
		{kind: checkpoint.ErrUnsupported, call: "y", err: errText("z")},
		{kind: checkpoint.ErrDriver, err: errText("z")},
	} {
		require.Equal(t, f, unpack(pack(f)))
	}
}

func TestMessagesAreBounded(t *testing.T) {
	var b bytes.Buffer
	q := question{ID: 7, Do: "restore", PID: 9, Pairs: []pair{{uuid{1, 2}, uuid{15: 0xff}}}}
	require.NoError(t, send(&b, q))
	var got question
	require.NoError(t, receive(&b, &got))
	require.Equal(t, q, got)
	require.ErrorIs(t, receive(&b, &got), io.EOF)
	require.Error(t, send(io.Discard, strings.Repeat("x", longestMessage)))
	require.Error(t, receive(bytes.NewReader([]byte{255, 255, 255, 255}), &got))
	require.ErrorIs(t, receive(bytes.NewReader([]byte{0, 0, 0, 9, '{'}), &got), io.ErrUnexpectedEOF)
	many := make([]pair, maxPairs)
	require.NoError(t, send(io.Discard, question{Pairs: many}), "the longest map fits")
}

// What comes from a helper that is none, or of another version, is an error.
func TestHelpersThatAreNone(t *testing.T) {
	f := cudatest.New(t)
	p := f.Start(t)
	script := func(text string) string {
		path := t.TempDir() + "/helper"
		cmd := exec.Command("sh", "-c", `cat >"$0" && chmod 755 "$0"`, path)
		cmd.Stdin = strings.NewReader("#!/bin/sh\n" + text)
		require.NoError(t, cmd.Run())
		return path
	}
	for name, path := range map[string]string{ // each stands alone, so order cannot matter
		"missing":  t.TempDir() + "/none",
		"silent":   script("exit 0"),
		"fails":    script("exit 3"),
		"garbage":  script("printf 'hello world, this is no message' >&4"),
		"too long": script(`printf '\377\377\377\377' >&4`),
		"hangs up": script("exec 3<&- 4>&-; exit 0"),
	} {
		d, err := NewHelper(HelperConfig{Path: path})
		require.NoError(t, err)
		for range 2 {
			e := driverError(t, do(d, lock, p.Target), checkpoint.ErrUnsupported)
			require.Error(t, e.Err, name)
		}
		reason, _ := limit(capsNow(t, d), checkpoint.CanLock)
		require.Equal(t, ReasonLibrary, reason, name)
		require.NoError(t, d.Close(), name)
	}
	require.Equal(t, cudatest.Running, p.State())
}

func TestServeRefusesStrangers(t *testing.T) {
	for _, q := range []question{{Do: "read"}, {Do: "hello", Version: wireVersion + 1}} {
		var in, out bytes.Buffer
		require.NoError(t, send(&in, q))
		require.Error(t, serve(&in, &out, nowhere))
		var a answer
		require.NoError(t, receive(&out, &a))
		require.NotNil(t, a.Fault)
	}
	var in, out bytes.Buffer
	require.NoError(t, send(&in, question{Do: "hello", Version: wireVersion}))
	require.NoError(t, send(&in, question{ID: 1, Do: "format"}))
	require.NoError(t, serve(&in, &out, nowhere))
	var a answer
	require.NoError(t, receive(&out, &a))
	require.Nil(t, a.Fault)
	require.NoError(t, receive(&out, &a))
	require.Equal(t, "unknown question", a.Fault.Text)
}

// Closing the driver ends the helper, and it can be closed twice.
func TestCloseEndsTheHelper(t *testing.T) {
	f := cudatest.New(t)
	d, err := NewHelper(HelperConfig{Library: f.Library()})
	require.NoError(t, err)
	require.Equal(t, checkpoint.Running, stateNow(t, d, f.Start(t)))
	pid := d.backend.(*helper).child.cmd.Process.Pid
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	_, err = os.Stat("/proc/" + strconv.Itoa(pid))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// none is a backend that does nothing.
type none struct{}

func nowhere(string, []string) backend { return none{} }

func (none) find() found              { return found{} }
func (none) read(int) (int, *failure) { return 0, nil }
func (none) act(request) *failure     { return nil }
func (none) close() error             { return nil }

func FuzzReceive(f *testing.F) {
	var b bytes.Buffer
	_ = send(&b, question{Do: "hello", Version: wireVersion})
	_ = send(&b, question{ID: 1, Do: "lock", PID: 2, MS: 3})
	f.Add(b.Bytes())
	f.Add([]byte{0, 0, 0, 0})
	f.Add(binary.BigEndian.AppendUint32(nil, longestMessage+1))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		_ = serve(bytes.NewReader(data), &out, nowhere)
		for {
			var a answer
			if err := receive(&out, &a); err != nil {
				require.ErrorIs(t, err, io.EOF)
				return
			}
		}
	})
}

func FuzzTexts(f *testing.F) {
	f.Add("7 (a) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0", "GPU-00000000-0000-0000-0000-000000000000")
	f.Add(`Could not lock on process ID 1: "device not ready"`, "MIG-1")
	f.Add(`""`, "GPU-")
	f.Fuzz(func(t *testing.T, a, b string) {
		parseStat([]byte(a))
		new(process).readStatus([]byte(a))
		require.GreaterOrEqual(t, parseRelease(a), 0)
		require.NotEqual(t, code(-1), codeOf(quoted(a)))
		if u, why := parseUUID(lockstep.DeviceID(b)); why == "" {
			again, why := parseUUID(lockstep.DeviceID(u.String()))
			require.Empty(t, why)
			require.Equal(t, u, again)
			require.Equal(t, strings.ToLower(b[4:]), u.String()[4:])
		}
		if _, err := parsePairs([]checkpoint.DevicePair{{Old: lockstep.DeviceID(a), New: lockstep.DeviceID(b)}}); err != nil {
			require.True(t, errors.Is(err, lockstep.ErrInvalid))
		}
	})
}

// hung is a backend whose calls end when they are told to.
type hung struct {
	none
	in, out chan struct{}
}

func (h *hung) act(request) *failure {
	h.in <- struct{}{}
	<-h.out
	return nil
}

// A helper whose host has gone ends its calls before it ends itself.
func TestHelpersFinishWhatTheyHaveBegun(t *testing.T) {
	h := &hung{in: make(chan struct{}), out: make(chan struct{})}
	r, w := io.Pipe()
	end := make(chan error, 1)
	go func() { end <- serve(r, io.Discard, func(string, []string) backend { return h }) }()
	require.NoError(t, send(w, question{Do: "hello", Version: wireVersion}))
	require.NoError(t, send(w, question{ID: 1, Do: "lock", PID: 1 << 20}))
	<-h.in
	require.NoError(t, w.Close())
	select {
	case <-end:
		require.Fail(t, "it left a call behind")
	default:
	}
	close(h.out)
	require.NoError(t, <-end)
}

// A host that is killed in the middle of a pause: its helper lets the targets go, if
// it was told to, and does not after Close.
func TestAHelperOutlivesItsHost(t *testing.T) {
	const role = "LOCKSTEP_TEST_HOST"
	if text := os.Getenv(role); text != "" {
		host(t, text)
		return
	}
	f := cudatest.New(t)
	for _, mode := range []string{"undo", "keep", "close"} {
		p, q := f.Start(t), f.Start(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestAHelperOutlivesItsHost$")
		cmd.Env = append(os.Environ(), role+"="+strings.Join([]string{
			mode, f.Library(), pidText(p), strconv.FormatUint(p.Target.Start, 10), pidText(q), strconv.FormatUint(q.Target.Start, 10),
		}, " "))
		out, err := cmd.Output()
		require.Error(t, err, "it was killed")
		var helper int
		_, err = fmt.Sscanf(string(out), "paused by %d", &helper)
		require.NoError(t, err, "%s", out)
		cudatest.Await(t, "the helper to end", func() bool {
			p, ok, err := look(helper)
			return err == nil && (!ok || p.dead())
		})
		if mode == "undo" {
			require.Equal(t, cudatest.Running, p.State())
			require.Equal(t, cudatest.Running, q.State())
			locks, unlocks := q.Locks()
			require.Equal(t, locks, unlocks)
			continue
		}
		require.Equal(t, cudatest.Locked, p.State(), mode)
		require.Equal(t, cudatest.Checkpointed, q.State(), mode)
		d := apiDriver(t, f)
		require.NoError(t, do(d, undo, p.Target))
		require.NoError(t, do(d, undo, q.Target))
	}
}

// host locks one target, suspends another, and dies.
func host(t *testing.T, text string) {
	var mode, library string
	var p, q checkpoint.Target
	_, err := fmt.Sscan(text, &mode, &library, &p.PID, &p.Start, &q.PID, &q.Start)
	require.NoError(t, err)
	d, err := NewHelper(HelperConfig{Library: library, UndoOnLoss: mode != "keep"})
	require.NoError(t, err)
	require.NoError(t, do(d, lock, p))
	require.NoError(t, do(d, lock, q))
	require.NoError(t, do(d, suspend, q))
	fmt.Println("paused by", d.backend.(*helper).child.cmd.Process.Pid)
	if mode == "close" {
		require.NoError(t, d.Close())
	}
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, self.Kill())
	select {}
}
