package cuda

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
)

func capsNow(t testing.TB, d *Driver) checkpoint.Caps {
	t.Helper()
	c, err := d.Probe(context.Background())
	require.NoError(t, err)
	return c
}

// limit returns why something cannot be done, "" if nothing is said of it.
func limit(c checkpoint.Caps, what checkpoint.Ability) (lockstep.Reason, string) {
	for _, l := range c.Limits {
		if l.What == what {
			return l.Reason, l.Detail
		}
	}
	return "", ""
}

func TestVersionsDecideWhatCanBeDone(t *testing.T) {
	f := cudatest.New(t)
	for _, tt := range []struct {
		version int32
		text    string
		can     []checkpoint.Ability
	}{
		{12040, "12.4", nil}, // release 550
		{12070, "12.7", nil},
		{12080, "12.8", []checkpoint.Ability{checkpoint.CanLock, checkpoint.CanSuspend}}, // 570
		{12090, "12.9", []checkpoint.Ability{checkpoint.CanLock, checkpoint.CanSuspend}},
		{13000, "13.0", []checkpoint.Ability{checkpoint.CanLock, checkpoint.CanRemap, checkpoint.CanSuspend}}, // 580
		{13040, "13.4", []checkpoint.Ability{checkpoint.CanLock, checkpoint.CanRemap, checkpoint.CanSuspend}},
	} {
		f.SetVersion(tt.version)
		d := apiDriver(t, f)
		c := capsNow(t, d)
		require.Equal(t, tt.text, c.Version)
		require.Equal(t, tt.can, c.Abilities, tt.text)
		if reason, _ := limit(c, checkpoint.CanRemap); tt.version < 13000 {
			require.Equal(t, ReasonVersion, reason)
		}
		p := f.Start(t)
		_, err := d.State(context.Background(), p.Target)
		if tt.can == nil {
			driverError(t, err, checkpoint.ErrUnsupported)
			driverError(t, do(d, lock, p.Target), checkpoint.ErrUnsupported)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, do(d, lock, p.Target))
		require.NoError(t, do(d, suspend, p.Target))
		m := []checkpoint.DevicePair{{Old: lockstep.DeviceID(f.UUID(0)), New: lockstep.DeviceID(f.UUID(1))}}
		_, err = d.Resume(context.Background(), p.Target, checkpoint.ResumeOptions{Map: m})
		if tt.version < 13000 {
			e := driverError(t, err, checkpoint.ErrUnsupported)
			require.Equal(t, checkpoint.Checkpointed, e.State)
			require.NoError(t, do(d, resume, p.Target), "without a map it can")
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, do(d, unlock, p.Target))
		unharmed(t, d, p)
	}
	require.Equal(t, 6, f.Inits(), "the driver is initialised once for each library that is loaded")
}

// Each function missing alone, as in drivers that are older than it.
func TestEachFunctionMayBeMissing(t *testing.T) {
	cudatest.Need(t)
	for _, name := range wanted {
		if testing.Short() && name != functions[lock] && name != cuInit {
			continue
		}
		t.Run(name, func(t *testing.T) {
			f := cudatest.New(t, name)
			d := apiDriver(t, f)
			c := capsNow(t, d)
			p := f.Start(t)
			_, stateErr := d.State(context.Background(), p.Target)
			lockErr := do(d, lock, p.Target)
			switch name {
			case "cuCheckpointOperationComplete": // of 13.4, and not needed
				require.True(t, c.Can(checkpoint.CanSuspend))
				require.NoError(t, lockErr)
				require.NoError(t, do(d, unlock, p.Target))
				return
			case cuInit, cuDriverGetVersion:
				reason, detail := limit(c, checkpoint.CanLock)
				require.Equal(t, ReasonLibrary, reason)
				require.Contains(t, detail, name)
				driverError(t, stateErr, checkpoint.ErrUnsupported)
			default:
				reason, detail := limit(c, checkpoint.CanSuspend)
				require.Equal(t, ReasonFunction, reason)
				require.Contains(t, detail, name)
				require.Equal(t, name == functions[suspend] || name == functions[resume], c.Can(checkpoint.CanLock))
			}
			if !c.Can(checkpoint.CanLock) && name != functions[unlock] {
				driverError(t, lockErr, checkpoint.ErrUnsupported)
				require.ErrorContains(t, lockErr, name)
			}
			require.False(t, c.Can(checkpoint.CanSuspend))
			if name == functions[suspend] {
				driverError(t, do(d, suspend, p.Target), checkpoint.ErrUnsupported)
				require.NoError(t, do(d, undo, p.Target))
				unharmed(t, d, p)
			}
		})
	}
}

// criu#2953: a driver of release 550 has none of the functions, nor the options.
func TestComplaint18Driver550(t *testing.T) {
	f := cudatest.New(t, wanted[2:]...)
	f.SetVersion(12040)
	d := apiDriver(t, f)
	require.Empty(t, capsNow(t, d).Abilities)
	driverError(t, do(d, lock, f.Start(t).Target), checkpoint.ErrUnsupported)
	f.SetCLI(550)
	cli := cliDriver(t, f)
	c := capsNow(t, cli)
	require.Empty(t, c.Abilities, "toggling has no timeout and no way back halfway")
	require.Equal(t, "release 550", c.Version)
	reason, _ := limit(c, checkpoint.CanLock)
	require.Equal(t, ReasonFunction, reason)
}

func TestLibrariesThatAreNone(t *testing.T) {
	f := cudatest.New(t)
	p := f.Start(t)
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o755))
		return path
	}
	good, err := os.ReadFile(f.Library())
	require.NoError(t, err)
	narrow, other := slices.Clone(good), slices.Clone(good)
	narrow[4], other[18] = 1, 8                                   // ELFCLASS32, MIPS
	for name, tt := range map[string]struct{ path, want string }{ // each stands alone, so order cannot matter
		"missing":         {filepath.Join(dir, "none.so"), "no such file"},
		"text file":       {write("text.so", []byte("INPUT(libcuda.so.570) GROUP(none) and more")), "some other file"},
		"empty file":      {write("empty.so", nil), "some other file"},
		"directory":       {dir, "some other file"},
		"32-bit":          {write("narrow.so", narrow), "32-bit"},
		"another machine": {write("other.so", other), "another machine"},
		"truncated":       {write("short.so", good[:100]), "short.so"},
		"by a name":       {"liblockstep-none.so.1", "liblockstep-none.so.1"},
	} {
		d, err := New(Config{Library: tt.path})
		require.NoError(t, err, name)
		c := capsNow(t, d)
		require.Empty(t, c.Abilities, name)
		reason, detail := limit(c, checkpoint.CanLock)
		require.Equal(t, ReasonLibrary, reason, name)
		require.Contains(t, detail, tt.want, name)
		require.NotContains(t, detail, "\n", name)
		e := driverError(t, do(d, lock, p.Target), checkpoint.ErrUnsupported)
		require.ErrorContains(t, e, tt.want, name)
		require.NoError(t, d.Close())
	}
}

// A stub, which programs are linked with, says so only when it is initialised.
func TestAStubLibraryIsPassedOver(t *testing.T) {
	stub, good := cudatest.New(t), cudatest.New(t)
	stub.SetInit(34)
	d := apiDriver(t, stub)
	reason, detail := limit(capsNow(t, d), checkpoint.CanLock)
	require.Equal(t, ReasonLibrary, reason)
	require.Contains(t, detail, "stub")
	driverError(t, do(d, lock, stub.Start(t).Target), checkpoint.ErrUnsupported)

	// Where the search meets a stub first it goes on.
	search, err := New(Config{Roots: []string{stub.Dir(), good.Dir()}})
	require.NoError(t, err)
	p := good.Start(t)
	if where, _ := os.Stat("/proc/driver/nvidia/version"); where != nil {
		t.Skip("NOT TESTED: this host has a driver of its own, which is found first")
	}
	require.NoError(t, do(search, lock, p.Target))
	require.NoError(t, do(search, unlock, p.Target))
}

// What cuInit says is told, and asked again: device files may come later.
func TestInitialisingIsTriedAgain(t *testing.T) {
	f := cudatest.New(t)
	f.SetInit(100)
	d := apiDriver(t, f)
	p := f.Start(t)
	reason, detail := limit(capsNow(t, d), checkpoint.CanLock)
	require.Equal(t, ReasonLibrary, reason)
	require.Contains(t, detail, "NO_DEVICE")
	e := driverError(t, do(d, lock, p.Target), checkpoint.ErrUnsupported)
	require.Equal(t, 100, e.Code)
	f.SetInit(0)
	require.NoError(t, do(d, lock, p.Target))
	require.NoError(t, do(d, unlock, p.Target))
	before := f.Inits()
	require.NoError(t, cycle(context.Background(), d, patience, nil, p))
	require.NotEmpty(t, capsNow(t, d).Abilities)
	require.Equal(t, before, f.Inits(), "once it has worked, it is not called again")
}

func TestDriverRoots(t *testing.T) {
	f := cudatest.New(t)
	root := t.TempDir()
	folder := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.Symlink(f.Library(), filepath.Join(folder, "libcuda.so.580.65.06")))
	require.Equal(t, []string{soname, filepath.Join(folder, "libcuda.so.580.65.06")}, candidates("", []string{root}))
	require.Equal(t, []string{"/x"}, candidates("/x", []string{root}), "a path is all that is tried")
	require.Equal(t, []string{soname, f.Library()}, candidates("", []string{f.Dir()}))
}

func TestTheProgramIsRunToKnowThatItIsThere(t *testing.T) {
	f := cudatest.New(t)
	p := f.Start(t)
	for _, path := range []string{filepath.Join(t.TempDir(), "none"), f.Dir(), "lockstep-no-such-program"} {
		d, err := NewCLI(CLIConfig{Path: path})
		require.NoError(t, err)
		reason, _ := limit(capsNow(t, d), checkpoint.CanLock)
		require.Equal(t, ReasonLibrary, reason)
		driverError(t, do(d, lock, p.Target), checkpoint.ErrUnsupported)
	}
	d := cliDriver(t, f)
	c := capsNow(t, d)
	require.Equal(t, "release 580", c.Version)
	require.Equal(t, []checkpoint.Ability{checkpoint.CanLock, checkpoint.CanRemap, checkpoint.CanSuspend}, c.Abilities)
	f.SetCLI(127) // there, but the loader finds no library for it
	reason, detail := limit(capsNow(t, d), checkpoint.CanLock)
	require.Equal(t, ReasonLibrary, reason)
	require.Contains(t, detail, "loading shared libraries")
	driverError(t, do(d, lock, p.Target), checkpoint.ErrUnsupported)
}

func TestOutputIsReadStrictly(t *testing.T) {
	dir := t.TempDir()
	f := cudatest.New(t)
	p := f.Start(t)
	for text, want := range map[string]checkpoint.State{ // each stands alone, so order cannot matter
		"running": checkpoint.Running, "locked": checkpoint.Locked, "checkpointed": checkpoint.Checkpointed, "failed": checkpoint.Failed,
		"": "", "Running": "", "running locked": "", " running": "", "0": "", "unknown": "", "running\\nrunning": "",
	} {
		path := filepath.Join(dir, "program")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nprintf '"+text+"\\n'\n"), 0o755))
		d, err := NewCLI(CLIConfig{Path: path})
		require.NoError(t, err)
		got, err := d.State(context.Background(), p.Target)
		if want == "" {
			driverError(t, err, checkpoint.ErrDriver)
		} else {
			require.NoError(t, err, text)
			require.Equal(t, want, got)
		}
	}
}

func TestAProgramThatTalksTooMuch(t *testing.T) {
	f := cudatest.New(t)
	p := f.Start(t)
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nhead -c 1000000 /dev/zero\nhead -c 1000000 /dev/zero >&2\n"), 0o755))
	d, err := NewCLI(CLIConfig{Path: path})
	require.NoError(t, err)
	text, e := d.backend.(*cli).run("x")
	require.Nil(t, e)
	require.Len(t, text, longestOutput)
	_, err = d.State(context.Background(), p.Target)
	require.Less(t, len(driverError(t, err, checkpoint.ErrDriver).Error()), 1000)
}

func TestWhatMachinesAndReleasesLack(t *testing.T) {
	all := []checkpoint.Ability{checkpoint.CanIPC, checkpoint.CanLock, checkpoint.CanRemap, checkpoint.CanSuspend}
	c := capsOf("x", found{Version: 13040, Release: 615}, "arm64")
	require.Equal(t, all, c.Abilities)
	reason, _ := limit(c, checkpoint.CanIPC)
	require.Equal(t, ReasonIPC, reason, "only inside a job")
	c = capsOf("x", found{Version: 13040, Release: 609}, "amd64")
	require.False(t, c.Can(checkpoint.CanIPC))
	for _, release := range []int{580, 594, 0} {
		c = capsOf("x", found{Version: 13000, Release: release}, "arm64")
		require.Equal(t, []checkpoint.Ability{checkpoint.CanLock}, c.Abilities)
		reason, _ = limit(c, checkpoint.CanSuspend)
		require.Equal(t, ReasonMachine, reason)
	}
	var reasons []lockstep.Reason
	for _, l := range capsOf("x", found{Version: 13000, Release: 580}, "amd64").Limits {
		require.NotEmpty(t, l.Detail)
		if l.What == checkpoint.CanSuspend {
			reasons = append(reasons, l.Reason)
		}
	}
	require.Equal(t, []lockstep.Reason{ReasonManaged, ReasonMIG, ReasonMPS, ReasonNCCL, ReasonProfiler}, reasons)
}

func TestReleasesAreRead(t *testing.T) {
	for text, want := range map[string]int{ // each stands alone, so order cannot matter
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27":                                         580,
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC version:  gcc 12.2.0\n": 570,
		"Version 580.65.06. Copyright": 580,
		"":                             0, "garbage": 0, "Version x.y": 0, "Kernel Module  99999999999999999999.1": 0, "Version 5": 0, "\x00\xff": 0,
	} {
		require.Equal(t, want, parseRelease(text), "%q", text)
	}
}
