package dag

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// plain is the definition, computed anew after every call: what became of the steps that began, and from that what
// the others are.
type plain struct {
	cfg     Config
	began   map[StepID]Status // Running, an end, or Ready for one that may be tried again
	used    map[StepID]int
	stopped bool
}

func (p *plain) statuses() map[StepID]Status {
	out := make(map[StepID]Status)
	failed := false
	for _, s := range p.cfg.Steps {
		if st, ok := p.began[s.ID]; ok {
			out[s.ID] = st
			failed = failed || (st == Failed && !s.Optional && p.cfg.OnFailure == FailFast)
		}
	}
	for changed := true; changed; {
		changed = false
		for _, s := range p.cfg.Steps {
			if st, ok := out[s.ID]; ok && st != Ready && st != Waiting {
				continue
			}
			handler, over, broken := false, true, false
			for _, e := range s.After {
				handler = handler || e.When != OnSuccess
				st := out[e.Step]
				over = over && st.Over()
				broken = broken || (st.Over() && e.When == OnSuccess && st != Succeeded) || (st.Over() && e.When == OnFailure && st != Failed)
			}
			st := Waiting
			switch {
			case broken, p.stopped, failed && !handler:
				st = Skipped
			case over:
				st = Ready
			}
			if out[s.ID] != st {
				out[s.ID], changed = st, true
			}
		}
	}
	return out
}

// workflow draws one without cycles: edges lead from earlier IDs, in an order that the list does not show.
func workflow(r *rand.Rand) Config {
	n := 1 + r.IntN(9)
	var cfg Config
	for i := range n {
		s := Step{ID: StepID(fmt.Sprint("s", i)), Retries: r.IntN(3), Optional: r.IntN(4) == 0}
		for j := range i {
			if r.IntN(3) == 0 {
				s.After = append(s.After, Edge{StepID(fmt.Sprint("s", j)), []Condition{OnSuccess, OnSuccess, OnFailure, Always}[r.IntN(4)]})
			}
		}
		cfg.Steps = append(cfg.Steps, s)
	}
	r.Shuffle(n, func(i, j int) { cfg.Steps[i], cfg.Steps[j] = cfg.Steps[j], cfg.Steps[i] })
	if r.IntN(2) == 0 {
		cfg.OnFailure = Continue
	}
	return cfg
}

func TestRunsAreAsDefined(t *testing.T) {
	runs := 4000
	if testing.Short() {
		runs = 400
	}
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 1))
		cfg := workflow(r)
		run, err := New(cfg)
		require.NoError(t, err)
		p := &plain{cfg: cfg, began: map[StepID]Status{}, used: map[StepID]int{}}
		for range 200 {
			want := p.statuses()
			var ready, running []StepID
			for _, s := range cfg.Steps {
				st, _, ok := run.Status(s.ID)
				require.True(t, ok)
				require.Equal(t, want[s.ID], st, "seed %d step %s", seed, s.ID)
				switch st {
				case Ready:
					ready = append(ready, s.ID)
				case Running:
					running = append(running, s.ID)
				}
			}
			require.Equal(t, ready, run.AppendReady(nil))
			_, over := run.Result()
			require.Equal(t, len(ready)+len(running) == 0, over, "a run never gets stuck")
			if over {
				break
			}
			if r.IntN(5) == 0 { // from its bytes
				data := snapshottest.Save(t, run.Snapshot)
				run, err = Restore(bytes.NewReader(data))
				require.NoError(t, err, "seed %d", seed)
				require.Equal(t, data, snapshottest.Save(t, run.Snapshot))
			}
			switch k := r.IntN(40); {
			case k == 0:
				require.Equal(t, running, run.Cancel(nil))
				p.stopped = true
			case k < 18 && len(ready) > 0:
				id := ready[r.IntN(len(ready))]
				_, err := run.Start(id)
				require.NoError(t, err)
				p.began[id] = Running
				p.used[id]++
			case len(running) > 0:
				p.finish(t, r, run, running[r.IntN(len(running))])
			}
		}
		_, over := run.Result()
		require.True(t, over)
	}
}

// finish ends one attempt in both.
func (p *plain) finish(t *testing.T, r *rand.Rand, run *Tracker, id StepID) {
	t.Helper()
	end := []End{Success, Success, Failure, Failure, Fatal, Stopped}[r.IntN(6)]
	_, attempt, _ := run.Status(id)
	answer, err := run.Finish(id, attempt, end, nil)
	require.NoError(t, err)
	retry := false
	switch end {
	case Success:
		p.began[id] = Succeeded
	case Stopped:
		p.began[id] = Cancelled
	case Fatal:
		p.began[id] = Failed
	case Failure:
		// It may go again if by the definition it would not be skipped.
		p.began[id] = Ready
		s := p.cfg.Steps[run.index[id]]
		retry = p.used[id] <= s.Retries && p.statuses()[id] == Ready
		if !retry {
			p.began[id] = Failed
		}
	}
	if retry {
		require.Equal(t, Again, answer)
	} else {
		require.Equal(t, Ended, answer)
	}
	again, err := run.Finish(id, attempt, Failure, nil)
	require.NoError(t, err)
	require.Equal(t, Stale, again, "told twice")
}

func TestLateAttemptChangesNothing(t *testing.T) {
	run, err := New(Config{Steps: []Step{{ID: "a", Retries: 1}}})
	require.NoError(t, err)
	first, err := run.Start("a")
	require.NoError(t, err)
	answer, err := run.Finish("a", first, Failure, nil)
	require.NoError(t, err)
	require.Equal(t, Again, answer)
	second, err := run.Start("a")
	require.NoError(t, err)
	answer, err = run.Finish("a", first, Success, nil)
	require.NoError(t, err)
	require.Equal(t, Stale, answer)
	st, _, _ := run.Status("a")
	require.Equal(t, Running, st)
	_, err = run.Finish("a", second+1, Success, nil)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
}

func TestFailureHandlersRunUnderFailFast(t *testing.T) {
	run, err := New(Config{Steps: []Step{
		{ID: "a"},
		{ID: "other"},
		{ID: "b", After: []Edge{{Step: "a"}}},
		{ID: "mend", After: []Edge{{Step: "a", When: OnFailure}}},
		{ID: "tell", After: []Edge{{Step: "b", When: Always}, {Step: "mend", When: Always}}},
	}})
	require.NoError(t, err)
	at, err := run.Start("a")
	require.NoError(t, err)
	_, err = run.Finish("a", at, Failure, nil)
	require.NoError(t, err)
	require.Equal(t, []StepID{"mend"}, run.AppendReady(nil), "other and b do not start")
	at, err = run.Start("mend")
	require.NoError(t, err)
	_, err = run.Finish("mend", at, Success, nil)
	require.NoError(t, err)
	require.Equal(t, []StepID{"tell"}, run.AppendReady(nil))
	at, err = run.Start("tell")
	require.NoError(t, err)
	_, err = run.Finish("tell", at, Success, nil)
	require.NoError(t, err)
	result, over := run.Result()
	require.True(t, over)
	require.Equal(t, Failed, result)
}

func TestLongChainOfSkips(t *testing.T) {
	cfg := Config{OnFailure: Continue, Steps: []Step{{ID: "s0"}}}
	for i := 1; i < 50_000; i++ {
		cfg.Steps = append(cfg.Steps, Step{ID: StepID(fmt.Sprint("s", i)), After: []Edge{{Step: StepID(fmt.Sprint("s", i-1))}}})
	}
	run, err := New(cfg)
	require.NoError(t, err)
	at, err := run.Start("s0")
	require.NoError(t, err)
	_, err = run.Finish("s0", at, Fatal, nil)
	require.NoError(t, err)
	result, over := run.Result()
	require.True(t, over)
	require.Equal(t, Failed, result)
}

func TestBadWorkflowsAreNamed(t *testing.T) {
	long := strings.Repeat("x", 254)
	for name, c := range map[string]struct { // each is checked by itself
		cfg  Config
		kind error
		want string
	}{
		"cycle": {Config{Steps: []Step{
			{ID: "a", After: []Edge{{Step: "c"}}},
			{ID: "b", After: []Edge{{Step: "a"}}},
			{ID: "c", After: []Edge{{Step: "b"}}},
		}}, lockstep.ErrInvalid, `dag: config: Steps = "a" -> "b" -> "c" -> "a": is a cycle`},
		"itself":     {Config{Steps: []Step{{ID: "a", After: []Edge{{Step: "a"}}}}}, lockstep.ErrInvalid, `"a" -> "a": is a cycle`},
		"twice":      {Config{Steps: []Step{{ID: "a"}, {ID: "a"}}}, lockstep.ErrDuplicate, `Steps[1].ID = "a": is given twice`},
		"edge twice": {Config{Steps: []Step{{ID: "a"}, {ID: "b", After: []Edge{{Step: "a"}, {Step: "a", When: Always}}}}}, lockstep.ErrDuplicate, `Steps[1].After[1].Step = "a"`},
		"no step":    {Config{Steps: []Step{{ID: "b", After: []Edge{{Step: "a"}}}}}, lockstep.ErrInvalid, `Steps[0].After[0].Step = "a": is no step`},
		"no ID":      {Config{Steps: []Step{{}}}, lockstep.ErrInvalid, `Steps[0].ID = ""`},
		"long ID":    {Config{Steps: []Step{{ID: StepID(long)}}}, lockstep.ErrInvalid, "want 1 to 253 bytes"},
		"retries":    {Config{Steps: []Step{{ID: "a", Retries: -1}}}, lockstep.ErrInvalid, "Retries = -1"},
		"when":       {Config{Steps: []Step{{ID: "a"}, {ID: "b", After: []Edge{{Step: "a", When: "never"}}}}}, lockstep.ErrInvalid, `When = "never"`},
		"policy":     {Config{OnFailure: "explode"}, lockstep.ErrInvalid, `OnFailure = "explode"`},
		"many":       {Config{Steps: make([]Step, MaxSteps+1)}, lockstep.ErrInvalid, "want at most 100000"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.cfg)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestBadCallsChangeNothing(t *testing.T) {
	run, err := New(Config{Steps: []Step{{ID: "a"}, {ID: "b", After: []Edge{{Step: "a"}}}}})
	require.NoError(t, err)
	at, err := run.Start("a")
	require.NoError(t, err)
	before := snapshottest.Save(t, run.Snapshot)
	for name, c := range map[string]struct { // each is checked by itself
		call func() error
		kind error
	}{
		"again":     {func() error { _, err := run.Start("a"); return err }, lockstep.ErrConflict},
		"early":     {func() error { _, err := run.Start("b"); return err }, lockstep.ErrConflict},
		"unknown":   {func() error { _, err := run.Start("c"); return err }, lockstep.ErrUnknown},
		"finish":    {func() error { _, err := run.Finish("c", at, Success, nil); return err }, lockstep.ErrUnknown},
		"inputs":    {func() error { _, err := run.AppendInputs(nil, "c"); return err }, lockstep.ErrUnknown},
		"attempt 0": {func() error { _, err := run.Finish("a", 0, Success, nil); return err }, lockstep.ErrUnknown},
		"end":       {func() error { _, err := run.Finish("a", at, "well", nil); return err }, lockstep.ErrInvalid},
		"outputs":   {func() error { _, err := run.Finish("a", at, Failure, []Output{{Name: "x"}}); return err }, lockstep.ErrInvalid},
		"no name":   {func() error { _, err := run.Finish("a", at, Success, []Output{{}}); return err }, lockstep.ErrInvalid},
		"name":      {func() error { _, err := run.Finish("a", at, Success, []Output{{Name: "x"}, {Name: "x"}}); return err }, lockstep.ErrDuplicate},
		"size": {func() error {
			_, err := run.Finish("a", at, Success, []Output{{Name: "x", Value: strings.Repeat("x", MaxOutput)}})
			return err
		}, lockstep.ErrInvalid},
	} {
		require.ErrorIs(t, c.call(), c.kind, name)
		require.Equal(t, before, snapshottest.Save(t, run.Snapshot), name)
	}
}

func TestTrackerKeepsItsOwnCopy(t *testing.T) {
	cfg := Config{Steps: []Step{{ID: "a"}, {ID: "b", After: []Edge{{Step: "a"}}}}}
	run, err := New(cfg)
	require.NoError(t, err)
	out := []Output{{Name: "z"}, {Name: "k", Value: "1"}}
	at, err := run.Start("a")
	require.NoError(t, err)
	_, err = run.Finish("a", at, Success, out)
	require.NoError(t, err)
	cfg.Steps[0].ID, cfg.Steps[1].After[0].Step, out[1].Value = "x", "y", "2"
	in, err := run.AppendInputs(nil, "b")
	require.NoError(t, err)
	require.Equal(t, []Output{{"a", "k", "1"}, {"a", "z", ""}}, in)
}

func TestSnapshotRefusesDamage(t *testing.T) {
	run, err := New(Config{Steps: []Step{{ID: "a", Retries: 2}, {ID: "b", After: []Edge{{Step: "a"}}}}})
	require.NoError(t, err)
	_, err = run.Start("a")
	require.NoError(t, err)
	snapshottest.RefusesDamage(t, snapshottest.Save(t, run.Snapshot), func(r io.Reader) error { _, err := Restore(r); return err })
}

func FuzzRestore(f *testing.F) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		run, err := New(workflow(r))
		require.NoError(f, err)
		for _, id := range run.AppendReady(nil) {
			at, err := run.Start(id)
			require.NoError(f, err)
			if r.IntN(2) == 0 {
				_, err := run.Finish(id, at, []End{Success, Failure}[r.IntN(2)], nil)
				require.NoError(f, err)
			}
			break
		}
		var b bytes.Buffer
		require.NoError(f, run.Snapshot(&b))
		_, body, _ := bytes.Cut(b.Bytes(), []byte("\n"))
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		run, err := Restore(bytes.NewReader(snapshottest.Frame(t, format, version, body)))
		if err != nil {
			return
		}
		// What was restored goes on to an end.
		for range 10_000 {
			ready := run.AppendReady(nil)
			if len(ready) == 0 {
				break
			}
			at, err := run.Start(ready[0])
			require.NoError(t, err)
			_, err = run.Finish(ready[0], at, Success, nil)
			require.NoError(t, err)
		}
		for _, s := range run.cfg.Steps {
			if st, at, _ := run.Status(s.ID); st == Running {
				_, err := run.Finish(s.ID, at, Fatal, nil)
				require.NoError(t, err)
			}
		}
		for range 10_000 {
			ready := run.AppendReady(nil)
			if len(ready) == 0 {
				break
			}
			at, err := run.Start(ready[0])
			require.NoError(t, err)
			_, err = run.Finish(ready[0], at, Success, nil)
			require.NoError(t, err)
		}
		_, over := run.Result()
		require.True(t, over)
	})
}
