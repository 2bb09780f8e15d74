package movestest_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
	"github.com/lockstep-gpu/lockstep/reconfig/moves/movestest"
)

// mutant is a fake with one thing wrong.
type mutant struct {
	*movestest.Fake
	do   func(f *movestest.Fake, a moves.Action) error
	once moves.ActionKind          // it does this once only for moves of one digest
	done map[moves.Action]struct{} // what of it is done
}

func (m mutant) Do(a moves.Action) error {
	if a.Kind != m.once {
		return m.do(m.Fake, a)
	}
	key := moves.Action{Device: a.Device, Digest: a.Digest}
	if _, ok := m.done[key]; ok {
		return nil
	}
	err := m.Fake.Do(a)
	if err == nil {
		m.done[key] = struct{}{}
	}
	return err
}

// right does what it should.
func right(f *movestest.Fake, a moves.Action) error { return f.Do(a) }

// once are mutants that do something once only. The table is immutable.
var once = map[string]moves.ActionKind{
	"halts once":  moves.DoHalt,
	"aborts once": moves.DoAbort,
}

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
	name := os.Getenv(mutantName)
	do, ok := mutants[name]
	kind, again := once[name]
	if again {
		do = right
	}
	if !ok && !again {
		t.Skip("runs only with the name of a mutant in " + mutantName)
	}
	movestest.TestExecutor(t, func(_ *testing.T, b movestest.Bench) movestest.Subject {
		return mutant{movestest.NewFake(b), do, kind, map[moves.Action]struct{}{}}
	})
}

func TestMutantsAreFound(t *testing.T) {
	names := append(slices.Collect(maps.Keys(mutants)), slices.Collect(maps.Keys(once))...)
	slices.Sort(names)
	if testing.Short() {
		t.Skip("left out with -short: a process for each faulty executor, to see that the conformance test finds it")
	}
	for _, name := range names {
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
