package dag

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// again restores a run from its bytes.
func again(t *testing.T, run *Tracker) *Tracker {
	t.Helper()
	back, err := Restore(bytes.NewReader(snapshottest.Save(t, run.Snapshot)))
	require.NoError(t, err)
	return back
}

// TestRetriesWithoutEnd: as many as an int can say are as good as any other number, and can be saved.
func TestRetriesWithoutEnd(t *testing.T) {
	run, err := New(Config{Steps: []Step{{ID: "a", Retries: math.MaxInt}}})
	require.NoError(t, err)
	for range 3 {
		run = again(t, run)
		at, err := run.Start("a")
		require.NoError(t, err)
		answer, err := run.Finish("a", at, Failure, nil)
		require.NoError(t, err)
		require.Equal(t, Again, answer)
	}
	_, err = run.Start("a")
	require.NoError(t, err)
	again(t, run)
}

// TestBytesThatAreNoTextAreRefused: the saved form is JSON, which would change them, and make two steps one.
func TestBytesThatAreNoTextAreRefused(t *testing.T) {
	_, err := New(Config{Steps: []Step{{ID: "\xff"}, {ID: "\xfe"}}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorContains(t, err, `Steps[0].ID = "\xff"`)
	require.ErrorContains(t, err, `Steps[1].ID = "\xfe"`)
	run, err := New(Config{Steps: []Step{{ID: "任 \n务"}}})
	require.NoError(t, err)
	at, err := run.Start("任 \n务")
	require.NoError(t, err)
	for _, o := range []Output{{Name: "\xff"}, {Name: "x", Value: "a\xffb"}} {
		_, err = run.Finish("任 \n务", at, Success, []Output{o})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.ErrorContains(t, err, "outputs[0].")
	}
	_, err = run.Finish("任 \n务", at, Success, []Output{{Name: "\u2028<", Value: "\x00\u2029&\""}})
	require.NoError(t, err)
	back := again(t, run)
	require.Equal(t, run.steps, back.steps)
}

// TestCyclesAreSpelledOutOnOneLine: whatever their steps are called.
func TestCyclesAreSpelledOutOnOneLine(t *testing.T) {
	a, b := StepID("a\nb"), StepID(strings.Repeat("x", 200))
	err := Config{Steps: []Step{{ID: a, After: []Edge{{Step: b}}}, {ID: b, After: []Edge{{Step: a}}}}}.Validate()
	require.ErrorContains(t, err, "is a cycle")
	require.NotContains(t, err.Error(), "\n")
	require.Less(t, len(err.Error()), 300)
}

// TestARunThatIsOverCannotBeStopped: how it ended stays.
func TestARunThatIsOverCannotBeStopped(t *testing.T) {
	empty, err := New(Config{})
	require.NoError(t, err)
	one, err := New(Config{Steps: []Step{{ID: "a"}}})
	require.NoError(t, err)
	at, err := one.Start("a")
	require.NoError(t, err)
	_, err = one.Finish("a", at, Success, nil)
	require.NoError(t, err)
	for _, run := range []*Tracker{empty, one} {
		before := snapshottest.Save(t, run.Snapshot)
		require.Empty(t, run.Cancel(nil))
		result, over := run.Result()
		require.True(t, over)
		require.Equal(t, Succeeded, result)
		require.Equal(t, before, snapshottest.Save(t, run.Snapshot))
	}
}

// TestAnAttemptOfAnotherStepIsUnknown: b has not run, so that nothing of it can be over.
func TestAnAttemptOfAnotherStepIsUnknown(t *testing.T) {
	run, err := New(Config{Steps: []Step{{ID: "a"}, {ID: "b"}}})
	require.NoError(t, err)
	at, err := run.Start("a")
	require.NoError(t, err)
	_, err = run.Finish("b", at, Success, nil)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
}

// TestSavedRunsThatCannotBeAreRefused: numbers of attempts that do not add up would come to the end of theirs.
func TestSavedRunsThatCannotBeAreRefused(t *testing.T) {
	const cfg = `{"config":{"steps":[{"id":"a","retries":1},{"id":"b"}]},`
	for name, body := range map[string]string{ // each by itself
		"last":      `"steps":[{"status":"ready"},{"status":"ready"}],"last":18446744073709551615}`,
		"few":       `"steps":[{"status":"running","used":2,"attempt":1},{"status":"ready"}],"last":2}`,
		"too few":   `"steps":[{"status":"running","used":2,"attempt":2},{"status":"running","used":1,"attempt":1}],"last":2}`,
		"bad value": `"steps":[{"status":"succeeded","used":1,"attempt":1,"outputs":[{"step":"a","name":"x","value":"\ud800"}]},{"status":"ready"}],"last":1}`,
	} {
		run, err := Restore(bytes.NewReader(snapshottest.Frame(t, format, version, []byte(cfg+body))))
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
		require.Nil(t, run, name)
	}
	_, err := Restore(bytes.NewReader(snapshottest.Frame(t, format, version, []byte(cfg+`"steps":[{"status":"running","used":2,"attempt":3},{"status":"running","used":1,"attempt":2}],"last":3}`))))
	require.NoError(t, err)
}

// BenchmarkWide starts and ends steps that wait for nothing, the first first, under a last one that waits for all.
func BenchmarkWide(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, MaxSteps - 1} {
		b.Run(fmt.Sprintf("steps=%d", n), func(b *testing.B) {
			cfg := Config{Steps: make([]Step, n)}
			last := Step{ID: "last"}
			for i := range cfg.Steps {
				cfg.Steps[i].ID = StepID(fmt.Sprint(i))
				last.After = append(last.After, Edge{Step: cfg.Steps[i].ID})
			}
			last.After[n-1].When = Always
			cfg.Steps = append(cfg.Steps, last)
			b.ReportAllocs()
			for b.Loop() {
				run, err := New(cfg)
				require.NoError(b, err)
				for i := range n {
					at, err := run.Start(cfg.Steps[i].ID)
					if err == nil {
						_, err = run.Finish(cfg.Steps[i].ID, at, Success, nil)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/step")
		})
	}
}

// TestCyclesAreFoundAndAreOnes: by a walk that tries every way, and the steps that are spelled out do wait for each other.
func TestCyclesAreFoundAndAreOnes(t *testing.T) {
	found := 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := 1 + r.IntN(8)
		if seed%10 == 0 {
			n = 30
		}
		var cfg Config
		for i := range n {
			s := Step{ID: StepID(fmt.Sprint("s", i))}
			for j := range n {
				if r.IntN(n*2) < 3 || n == 30 && j == (i+1)%n {
					s.After = append(s.After, Edge{Step: StepID(fmt.Sprint("s", j))})
				}
			}
			cfg.Steps = append(cfg.Steps, s)
		}
		after := map[StepID][]Edge{}
		for _, s := range cfg.Steps {
			after[s.ID] = s.After
		}
		var reaches func(from, to StepID) bool
		seen := map[StepID]bool{}
		reaches = func(from, to StepID) bool {
			for _, e := range after[from] {
				if e.Step == to {
					return true
				}
				if !seen[e.Step] {
					seen[e.Step] = true
					if reaches(e.Step, to) {
						return true
					}
				}
			}
			return false
		}
		cyclic := false
		for _, s := range cfg.Steps {
			clear(seen)
			cyclic = cyclic || reaches(s.ID, s.ID)
		}
		err := cfg.Validate()
		require.Equal(t, cyclic, err != nil, "seed %d", seed)
		if err == nil {
			continue
		}
		found++
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
		ids := strings.Split(strings.ReplaceAll(e.Value, `"`, ""), " -> ")
		require.Equal(t, ids[0], ids[len(ids)-1], "it comes round")
		for i, id := range ids[1:] {
			if before := ids[i]; id != "..." && before != "..." {
				require.True(t, slices.ContainsFunc(after[StepID(id)], func(e Edge) bool { return string(e.Step) == before }), "%s does not wait for %s in %s", id, before, e.Value)
			}
		}
	}
	require.Greater(t, found, 200)
}
