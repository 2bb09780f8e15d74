package view

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
)

// world is a random history of pods and groups: each object has versions, which come
// in order, among those of the others in any.
type world struct {
	versions [][]func(a *Assembler)
}

func randomPod(r *rand.Rand, uid int) *corev1.Pod {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	p := newPod(pick("a", "b", "c", "w-2", "w-10")+number(uid%3), Prefix+"gang", pick("g", "h"), Prefix+"min-member", pick("2", "2", "2", "3", "x"))
	p.UID = types.UID("u" + number(uid))
	if r.IntN(4) == 0 {
		delete(p.Annotations, Prefix+"gang")
		if r.IntN(2) == 0 {
			name := pick("g", "h", "i")
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
			delete(p.Annotations, Prefix+"min-member")
		}
	}
	if r.IntN(3) == 0 {
		p.Annotations[Prefix+"index"] = pick("0", "1", "2", "bad")
	}
	if r.IntN(3) == 0 {
		p.Annotations[Prefix+"role"] = pick("x", "y")
	}
	if r.IntN(5) == 0 {
		p.Annotations[Prefix+"queue"] = pick("q", "r")
	}
	p.Labels = map[string]string{"app": pick("one", "two")}
	if r.IntN(6) == 0 {
		p.Spec.SchedulerName = "default-scheduler"
		if r.IntN(2) == 0 {
			p.Spec.Containers[0].Resources.Requests = list("cpu", "1")
		}
	}
	if r.IntN(2) == 0 {
		bound(p, pick("n1", "n2"))
		if r.IntN(2) == 0 {
			p.Annotations[KeyRoleRank] = pick("0", "1", "2")
		}
		p.Status.Phase = corev1.PodPhase(pick("Running", "Running", "Succeeded", "Failed"))
	} else if r.IntN(5) == 0 {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}}
	}
	if r.IntN(8) == 0 {
		p.DeletionTimestamp = &metav1.Time{}
	}
	return p
}

func randomWorld(r *rand.Rand) *world {
	w := &world{}
	for i := range 4 + r.IntN(8) {
		var versions []func(*Assembler)
		var uid types.UID
		for range 1 + r.IntN(3) {
			p := randomPod(r, i)
			uid = p.UID
			versions = append(versions, func(a *Assembler) { _ = a.Upsert(p) })
		}
		if r.IntN(5) == 0 {
			versions = append(versions, func(a *Assembler) { a.Delete(uid) })
		}
		w.versions = append(w.versions, versions)
	}
	for _, name := range []string{"g", "h"} {
		var versions []func(*Assembler)
		for range r.IntN(3) {
			g := Group{Namespace: "ns", Name: name, Min: r.IntN(4), Annotations: map[string]string{Prefix + "queue": []string{"q", "r", "a b"}[r.IntN(3)]}}
			versions = append(versions, func(a *Assembler) { _ = a.UpsertGroup(g) })
			if r.IntN(4) == 0 {
				versions = append(versions, func(a *Assembler) { a.DeleteGroup("ns", name) })
			}
		}
		w.versions = append(w.versions, versions)
	}
	return w
}

// play feeds the versions of w in a random order, the objects' own orders kept, and
// now and then looks.
func (w *world) play(t testing.TB, r *rand.Rand, look bool) *Assembler {
	a := newAssembler(t, Config{})
	at := make([]int, len(w.versions))
	for {
		var open []int
		for i, v := range w.versions {
			if at[i] < len(v) {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			return a
		}
		i := open[r.IntN(len(open))]
		w.versions[i][at[i]](a)
		at[i]++
		if look && r.IntN(3) == 0 {
			for _, id := range a.Take().Gangs {
				a.State(id)
			}
		}
	}
}

// states is all that an Assembler tells.
func states(a *Assembler) (out []*State) {
	for _, id := range a.IDs() {
		s, _ := a.State(id)
		out = append(out, s)
	}
	return out
}

func TestOrderOfEventsDoesNotMatter(t *testing.T) {
	phases := map[Phase]int{}
	for seed := range uint64(800) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(r)
		want := w.play(t, r, false)
		for range 3 {
			got := w.play(t, r, true)
			require.Equal(t, states(want), states(got), "seed %d", seed)
			require.Equal(t, want.Foreign(), got.Foreign(), "seed %d", seed)
		}
		for _, s := range states(want) {
			phases[s.Phase]++
			checkState(t, s)
		}
	}
	for _, p := range []Phase{Faulty, Incomplete, Gated, Ready, Partial, Placed, Over} {
		require.NotZero(t, phases[p], "%s was not met: %v", p, phases)
	}
}

// checkState looks at what doc.go promises of every state.
func checkState(t testing.TB, s *State) {
	t.Helper()
	bound, ended := 0, 0
	for i, p := range s.Pods {
		if p.Node != "" {
			bound++
		}
		if p.Ended {
			ended++
		}
		require.True(t, i == 0 || s.Pods[i-1].Role <= p.Role, "role by role")
	}
	require.Equal(t, s.Bound, bound)
	require.Equal(t, s.Ended, ended)
	require.Equal(t, s.Phase == Faulty, len(s.Faults) > 0)
	if s.Gang != nil {
		require.NoError(t, s.Gang.Validate())
		require.Equal(t, s.ID, s.Gang.ID)
		require.LessOrEqual(t, s.Gang.MinMembers(), len(s.Pods))
		require.LessOrEqual(t, s.Gang.MaxMembers(), len(s.Pods))
		require.Equal(t, s.Want, s.Gang.MinMembers())
		require.Zero(t, s.Missing)
	}
	switch s.Phase {
	case Ready:
		require.NotNil(t, s.Gang)
		require.Zero(t, s.Bound)
		require.Empty(t, s.Detail)
	case Placed:
		require.GreaterOrEqual(t, s.Bound+s.Ended, s.Want)
	case Partial:
		require.Positive(t, s.Bound)
	case Incomplete, Gated:
		require.Zero(t, s.Bound)
		require.Nil(t, s.Gang)
		require.NotEmpty(t, s.Detail)
	}
}

// Every change of a state is told by Take.
func TestEveryChangeIsTold(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := randomWorld(r)
		a := newAssembler(t, Config{})
		known := map[lockstep.JobID]*State{}
		for _, versions := range w.versions {
			for _, v := range versions {
				v(a)
				changes := a.Take()
				require.True(t, slices.IsSorted(changes.Gangs))
				for _, id := range changes.Gangs {
					if s, ok := a.State(id); ok {
						known[id] = s
					} else {
						delete(known, id)
					}
				}
				require.Len(t, a.IDs(), len(known), "seed %d", seed)
				for _, id := range a.IDs() {
					s, _ := a.State(id)
					require.Same(t, known[id], s, "seed %d: %s changed and was not told", seed, id)
				}
			}
		}
	}
}

// Malformed or not, what anybody writes into annotations is read or refused with a
// fault that names the pod, and the gang that is there beside it stays as it is.
func FuzzAnnotations(f *testing.F) {
	for _, a := range Annotations() {
		for _, text := range []string{"", "1", "true", "90m", "rack", "a,b", "0.5", "never", "-1", "任", "a b", "9999999999999999999", "\x00", "1e3", "0x10"} {
			f.Add(a.Key[len(Prefix):], text, true)
		}
	}
	cfg := racks()
	cfg.Aliases = []Dialect{Volcano, Kueue, Coscheduling, KAI}
	f.Fuzz(func(t *testing.T, key, text string, ours bool) {
		if ours {
			key = Prefix + key
		}
		a, err := NewAssembler(cfg)
		require.NoError(t, err)
		require.NoError(t, a.Upsert(member("other", 1, 0)))
		p := member("g", 1, 0)
		p.Annotations[key] = text
		err = a.Upsert(p)
		if err != nil {
			var fault *Fault
			require.ErrorAs(t, err, &fault)
			require.Equal(t, "g-0", fault.Name)
			require.Equal(t, p.UID, fault.UID)
			require.Less(t, len(err.Error()), 4096)
		}
		require.NoError(t, a.UpsertGroup(Group{Namespace: "ns", Name: "third", Min: 1}))
		_ = a.UpsertGroup(Group{Namespace: "ns", Name: "g", Annotations: map[string]string{key: text}})
		for _, s := range states(a) {
			checkState(t, s)
		}
		require.Equal(t, Ready, state(t, a, "ns/other").Phase)
	})
}
