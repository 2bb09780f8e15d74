package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/hpo/bubble"
)

// programEnv makes the test binary the program, which takes its arguments from there.
const programEnv = "BUBBLES_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if args, ok := os.LookupEnv(programEnv); ok && os.Getenv(trialEnv) == "" {
		os.Args = append(os.Args[:1], strings.Fields(args)...)
		main()
		return
	}
	if os.Getenv(trialEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// brief are the flags of a short run.
var brief = []string{"-forward", "6ms", "-backward", "12ms", "-micros", "4", "-for", "700ms"}

func needLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("trials can be stopped on Linux only")
	}
}

func TestRunFillsBubblesAndTellsOfIt(t *testing.T) {
	needLinux(t)
	for _, more := range [][]string{{"-jitter", "0.02"}, {"-signals", "-stages", "3"}} {
		svg := filepath.Join(t.TempDir(), "out.svg")
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), append(append(append([]string{}, brief...), more...), "-svg", svg), &out))
		for _, word := range []string{"job ", "windows ", "quanta ", "overruns ", "of at most ", "margin "} {
			require.Contains(t, out.String(), word)
		}
		text, err := os.ReadFile(svg)
		require.NoError(t, err)
		wellFormed(t, text)
	}
}

func wellFormed(t *testing.T, text []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

// However the program ends, its trials do: they hold its standard error, which is at its end only when nobody does.
func TestNoTrialOutlivesTheProgram(t *testing.T) {
	needLinux(t)
	for _, c := range []struct {
		name string
		sign os.Signal
		more string
	}{
		{name: "by itself"},
		{name: "interrupted", sign: os.Interrupt, more: " -for 1h"},
		{name: "killed", sign: syscall.SIGKILL, more: " -for 1h"},
		{name: "killed with trials that have no hook", sign: syscall.SIGKILL, more: " -for 1h -signals"},
	} {
		t.Run(c.name, func(t *testing.T) {
			errs, held, err := os.Pipe()
			require.NoError(t, err)
			defer errs.Close()
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), programEnv+"="+strings.Join(brief, " ")+c.more)
			cmd.Stderr = held
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			require.NoError(t, held.Close())
			var text strings.Builder
			sent := c.sign == nil
			for b := make([]byte, 4096); ; {
				n, err := out.Read(b)
				text.Write(b[:n])
				if err != nil {
					break
				}
				if !sent && strings.Contains(text.String(), "filled: ") {
					sent = true
					require.NoError(t, cmd.Process.Signal(c.sign))
				}
			}
			_, err = io.ReadAll(errs)
			require.NoError(t, err)
			err = cmd.Wait()
			if c.sign == syscall.SIGKILL {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Contains(t, text.String(), "overruns ")
		})
	}
}

func TestTrialMakesOneQuantumForEachLease(t *testing.T) {
	needLinux(t)
	n, err := newNursery(false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	const d = 20 * time.Millisecond
	one, err := n.start(ctx, 0, bubble.Resident{Bundle: "a", Fused: 1}, d)
	require.NoError(t, err)
	const leases = 5
	for range leases {
		require.NoError(t, one.quantum(ctx, d, nil))
	}
	require.NoError(t, one.stop(ctx))
	still, err := one.gate.Quiesced()
	require.NoError(t, err)
	require.True(t, still)
	cancel()
	require.NoError(t, n.close())
	require.LessOrEqual(t, one.quanta.Load(), uint64(leases), "a lease that comes too late has none")
	require.NoDirExists(t, n.dir)
	require.True(t, one.gate.Status().Over)
}

func TestTrialThatEndsIsNoticed(t *testing.T) {
	needLinux(t)
	n, err := newNursery(false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	one, err := n.start(ctx, 0, bubble.Resident{Bundle: "a", Fused: 1}, time.Hour)
	require.NoError(t, err)
	root, err := os.FindProcess(one.gate.Status().PID)
	require.NoError(t, err)
	require.NoError(t, root.Kill())
	require.ErrorContains(t, one.quantum(ctx, time.Hour/200, nil), "has ended")
	cancel()
	require.NoError(t, n.close())
}

func TestPlanKnowsWhichOpEndsEachWindow(t *testing.T) {
	for _, args := range [][]string{nil, {"-stages", "2", "-micros", "1"}, {"-stages", "16", "-micros", "64"}} {
		o, err := parse(args, io.Discard)
		require.NoError(t, err)
		p, err := newPlan(o)
		require.NoError(t, err)
		require.Positive(t, p.bound)
		seen := 0
		for stage, ends := range p.ends {
			require.Len(t, ends, len(p.line.Order(stage))+1)
			for i, w := range ends {
				if w < 0 {
					continue
				}
				seen++
				require.Equal(t, stage, p.cfg.Windows[w].Stage)
				if i < len(ends)-1 {
					_, _, waits := p.before(stage, p.line.Order(stage)[i])
					require.True(t, waits, "a window ends as another stage is done")
				}
			}
		}
		require.Len(t, p.cfg.Windows, seen)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"x"},
		{"-stages", "1"},
		{"-micros", "0"},
		{"-forward", "0s"},
		{"-backward", "2s"},
		{"-jitter", "NaN"},
		{"-warm", "-1"},
		{"-for", "0s"},
		{"-nope"},
	} {
		require.Error(t, run(t.Context(), args, io.Discard), "%v", args)
	}
}
