package liveness

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// This file plays calls that come as bytes on a monitor and on the plain model.

// script is a list of calls on its way.
type script struct {
	t     *testing.T
	data  []byte
	m     *Monitor
	p     *plain
	now   time.Duration
	kinds map[State]int // how often each state was told
}

func (s *script) next() int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b)
}

func of[T any](s *script, from ...T) T { return from[s.next()%len(from)] }

func (s *script) config() Config {
	cfg := Config{
		Method: of(s, PhiAccrual, PhiAccrual, Deadline), Interval: of(s, 0, 100*time.Millisecond), Window: 5, MinSigma: of(s, 0, time.Millisecond),
		Pause: of(s, 0, NoPause, sec), Suspect: of(s, 0, 1000), Reconnect: of(s, 0, 3*sec), Settle: of(s, 0, sec),
		Startup: 20 * sec, Late: of(s, 0, 2*sec), Learn: 4, Memory: of(s, 30*sec, minute), Factor: of(s, 0, 1500), Hold: 15 * sec,
		Rules: []Rule{{Phase: PhaseStep, Gap: of(s, 3*sec, 12*sec), Least: 2 * sec}, {Phase: PhaseTeardown, Gap: 6 * sec, Fixed: of(s, false, true)}, {Phase: PhaseOwn, Gap: 5 * sec}},
	}
	if cfg.Method == PhiAccrual {
		cfg.DeadAfter = of[time.Duration](s, 0, 1, 1, 30*sec)
	}
	return cfg
}

func newScript(t *testing.T, data []byte) *script {
	s := &script{t: t, data: data, kinds: map[State]int{}}
	cfg := s.config()
	s.m = newMonitor(t, cfg)
	s.p = &plain{cfg: s.m.t.cfg, ranks: map[int]*plainRank{}, z: map[int]int64{}}
	for _, threshold := range []int{1000, 8000, 12000} {
		s.p.z[threshold] = sigmasFor(threshold)
	}
	s.join(0, 1)
	s.join(1, 1)
	return s
}

func (s *script) join(rank int, inc uint64) {
	err := s.m.Join(at(s.now), rank, inc)
	require.Equal(s.t, s.p.join(at(s.now).UnixNano(), rank, inc), err == nil)
}

func (s *script) play() {
	for len(s.data) > 0 {
		if s.next()%3 > 0 {
			s.now += of(s, 0, 100*time.Millisecond, sec, sec, time.Duration(s.next())*10*time.Millisecond, time.Duration(s.next())*100*time.Millisecond)
		}
		if s.next()%8 == 0 {
			if wake, ok := s.m.NextWake(at(s.now)); ok {
				s.now = wake.Sub(t0)
			}
		}
		s.call()
		s.same()
		switch s.next() % 8 {
		case 0:
			s.m = again(s.t, s.m)
		case 1:
			s.early()
		}
	}
}

func again(t testing.TB, m *Monitor) *Monitor {
	saved := save(t, m)
	back, err := RestoreMonitor(strings.NewReader(saved))
	require.NoError(t, err, "%s", saved)
	require.Equal(t, saved, save(t, back))
	return back
}

func (s *script) call() {
	now, ns := at(s.now), at(s.now).UnixNano()
	rank, inc := s.next()%4, uint64(1)
	if r := s.p.ranks[rank]; r != nil {
		inc = r.inc + of[uint64](s, 0, 0, 0, 0, 0, 0, 1) - of[uint64](s, 0, 0, 0, 0, 0, 0, 1)
	}
	switch s.next() % 24 {
	case 0:
		s.join(rank, inc+1)
	case 1:
		out, err := s.m.Leave(now, rank, inc)
		require.NoError(s.t, err)
		require.Equal(s.t, s.p.leave(ns, rank, inc), out)
	case 2:
		e := of(s, Exited, Broken, Disconnected, Disconnected, Disconnected, Seen, Seen, Seen)
		out, err := s.m.Evidence(now, rank, inc, e)
		require.NoError(s.t, err)
		require.Equal(s.t, s.p.evidence(ns, rank, inc, e), out)
	case 4:
		until := now.Add(time.Duration(s.next()) * 100 * time.Millisecond)
		require.NoError(s.t, s.m.Pause(now, until))
		s.p.pass(ns)
		s.p.pausedTo = until.UnixNano()
	case 5:
		cfg := s.config()
		cfg.Memory = s.p.cfg.Memory // the model has no notion of stretches of two lengths
		require.NoError(s.t, s.m.Tune(now, cfg))
		s.p.cfg = s.m.t.cfg
		s.p.pass(ns)
	case 6:
		if r := s.p.ranks[rank]; r != nil && (r.dead || r.gone) {
			require.NoError(s.t, s.m.Forget(rank))
			delete(s.p.ranks, rank)
		} else {
			require.Error(s.t, s.m.Forget(rank))
		}
	case 3, 7, 8, 9, 10, 11:
		events, err := s.m.Check(nil, now)
		require.NoError(s.t, err)
		require.Equal(s.t, s.p.check(ns), events)
		for _, e := range events {
			s.kinds[e.To]++
		}
	default:
		s.beat(ns, rank, inc)
	}
}

func (s *script) beat(ns int64, rank int, inc uint64) {
	b := Beat{Incarnation: inc, Phase: of(s, PhaseStep, PhaseStep, PhaseStep, PhaseStep, PhaseCheckpoint, PhaseOwn, PhaseTeardown), Pause: of(s, 0, 0, 0, 3*sec)}
	if r := s.p.ranks[rank]; r != nil {
		b.Progress = r.progress + of[uint64](s, 0, 0, 1, 1, 3) - min(r.progress, of[uint64](s, 0, 0, 0, 0, 2))
	}
	out, err := s.m.Beat(at(s.now), rank, b)
	require.NoError(s.t, err)
	require.Equal(s.t, s.p.beat(ns, rank, b), out)
}

// same holds the next wake and every status against the model.
func (s *script) same() {
	wake, ok := s.m.NextWake(at(s.now))
	want, any := s.p.wake()
	if s.p.late != nil {
		want, any = 0, true
	}
	require.Equal(s.t, any, ok)
	if any {
		require.Equal(s.t, max(want, at(s.now).UnixNano()), wake.UnixNano())
	}
	for rank, r := range s.p.ranks { // in any order: each is compared
		st, ok := s.m.Status(at(s.now), rank)
		require.True(s.t, ok)
		require.Equal(s.t, s.p.state(r), st.State)
		require.Equal(s.t, r.progress, st.Progress)
		require.Equal(s.t, r.last, st.Last.UnixNano())
		if r.dead || r.gone {
			continue
		}
		quietAt, deadAt := s.p.silence(r)
		require.Equal(s.t, []int64{quietAt, deadAt}, []int64{st.SuspectAt.UnixNano(), st.DeadAt.UnixNano()})
		if r.seen {
			require.Equal(s.t, s.p.hungAt(r), st.HungAt.UnixNano())
		}
	}
	require.Len(s.t, s.m.t.slots, len(s.p.ranks))
}

// early requires that a check before the next wake tells nothing.
func (s *script) early() {
	wake, ok := s.m.NextWake(at(s.now))
	if !ok || !wake.After(at(s.now)) {
		return
	}
	m := again(s.t, s.m)
	events, err := m.Check(nil, wake.Add(-1))
	require.NoError(s.t, err)
	require.Empty(s.t, events)
}

func TestMonitorEqualsThePlainModel(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 30
	}
	kinds := map[State]int{}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		data := make([]byte, 2000)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		s := newScript(t, data)
		s.play()
		for k, n := range s.kinds { // in any order: a sum
			kinds[k] += n
		}
	}
	for _, k := range []State{Unknown, Alive, Hung, Suspect, Dead, Left} {
		require.Greater(t, kinds[k], rounds/4, "%s: %v", k, kinds)
	}
}

func FuzzMonitor(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 8 {
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { newScript(t, data[:min(len(data), 3000)]).play() })
}
