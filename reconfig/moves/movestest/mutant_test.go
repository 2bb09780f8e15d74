package movestest_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
	"github.com/lockstep-gpu/lockstep/reconfig/moves/movestest"
)

// mutant is a fake with one thing wrong.
type mutant struct {
	*movestest.Fake
	do func(f *movestest.Fake, a moves.Action) error
}

func (m mutant) Do(a moves.Action) error { return m.do(m.Fake, a) }

// skips leaves an action out.
func skips(kind moves.ActionKind) func(f *movestest.Fake, a moves.Action) error {
	return func(f *movestest.Fake, a moves.Action) error {
		if a.Kind == kind {
			return nil
		}
		return f.Do(a)
	}
}

// mutants are what the conformance test has to find. The table is immutable.
var mutants = map[string]func(f *movestest.Fake, a moves.Action) error{
	"prepares for any digest": func(f *movestest.Fake, a moves.Action) error {
		if err := f.Do(a); a.Kind != moves.DoPrepare || !errors.Is(err, lockstep.ErrStale) {
			return err
		}
		return nil
	},
	"commits unprepared": func(f *movestest.Fake, a moves.Action) error {
		if a.Kind == moves.DoCommit {
			_ = f.Do(moves.Action{Kind: moves.DoPrepare, Device: a.Device, Digest: a.Digest})
		}
		return f.Do(a)
	},
	"aborts when committed": func(f *movestest.Fake, a moves.Action) error {
		if err := f.Do(a); a.Kind != moves.DoAbort || !errors.Is(err, lockstep.ErrConflict) {
			return err
		}
		return nil
	},
	"has no word for gone": func(f *movestest.Fake, a moves.Action) error {
		if err := f.Do(a); err != nil {
			return errors.New("failed")
		}
		return nil
	},
	"cannot do it again": func(f *movestest.Fake, a moves.Action) error {
		before := f.Moved()
		err := f.Do(a)
		if err == nil && a.Kind == moves.DoTransfer && f.Moved() == before && a.Device == "gpu-0" {
			return errors.New("is done already")
		}
		return err
	},
	"makes no room":     skips(moves.DoMakeRoom),
	"moves nothing":     skips(moves.DoTransfer),
	"keeps after halt":  skips(moves.DoHalt),
	"keeps the prepare": skips(moves.DoAbort),
}

const mutantName = "MOVESTEST_MUTANT"

// TestMutant is run by TestMutantsAreFound, in a process of its own, since it has to fail.
func TestMutant(t *testing.T) {
	do, ok := mutants[os.Getenv(mutantName)]
	if !ok {
		t.Skip("runs only with the name of a mutant in " + mutantName)
	}
	movestest.TestExecutor(t, func(_ *testing.T, b movestest.Bench) movestest.Subject {
		return mutant{movestest.NewFake(b), do}
	})
}

func TestMutantsAreFound(t *testing.T) {
	for name := range mutants { // each stands alone, so the order does not matter
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMutant$")
			cmd.Env = append(os.Environ(), mutantName+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Skipf("this machine does not start the test again: %v", err)
			}
			require.Error(t, err, "%s", out)
			require.Contains(t, string(out), "--- FAIL: TestMutant")
			require.NotContains(t, string(out), "panic:")
		})
	}
}
