package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/serving"
)

const ms = time.Millisecond

// paper is the example of Nexus: A has an objective of 200 ms, B and C have 250 ms.
func paper() []Session {
	return []Session{
		{ID: "A", Rate: 64, Objective: 200 * ms, Latency: serving.Points{{Size: 4, Time: 50 * ms}, {Size: 8, Time: 75 * ms}, {Size: 16, Time: 100 * ms}}},
		{ID: "B", Rate: 32, Objective: 250 * ms, Latency: serving.Points{{Size: 4, Time: 50 * ms}, {Size: 8, Time: 90 * ms}, {Size: 16, Time: 125 * ms}}},
		{ID: "C", Rate: 32, Objective: 250 * ms, Latency: serving.Points{{Size: 4, Time: 60 * ms}, {Size: 8, Time: 95 * ms}, {Size: 16, Time: 125 * ms}}},
	}
}

// TestPackTheExampleOfThePaper: A's turn of 125 ms has just room for B's 50 ms beside its own 75 ms, and none for C's 60.
func TestPackTheExampleOfThePaper(t *testing.T) {
	p, err := Pack(paper(), 0)
	require.NoError(t, err)
	require.Len(t, p.GPUs, 2)
	require.Equal(t, GPU{
		Parts: []Part{{Session: "A", Rate: 64, Batch: 8}, {Session: "B", Rate: 32, Batch: 4}},
		Duty:  125 * ms, Occupancy: million,
	}, p.GPUs[0])
	require.Equal(t, "C", string(p.GPUs[1].Parts[0].Session))
	require.Empty(t, p.Infeasible)
}

// TestPackSaturatedAndResidual: batches take 5 + 1.5 b ms and the objective is 50 ms, so 13 are a saturated batch and
// 13/24.5 ms = 530.6 a second; of 2000 a second three GPUs leave 408.16, in batches of 11 every 26.95 ms.
func TestPackSaturatedAndResidual(t *testing.T) {
	s := Session{ID: "s", Rate: 2000, Objective: 50 * ms, Latency: serving.Linear{Base: 5 * ms, Each: 1500 * time.Microsecond}}
	p, err := Pack([]Session{s}, 0)
	require.NoError(t, err)
	require.Len(t, p.GPUs, 4)
	for _, g := range p.GPUs[:3] {
		require.True(t, g.Saturated)
		require.Equal(t, 13, g.Parts[0].Batch)
		require.InDelta(t, 530.6, g.Parts[0].Rate, .05)
	}
	rest := p.GPUs[3]
	require.Equal(t, 11, rest.Parts[0].Batch)
	require.InDelta(t, 408.16, rest.Parts[0].Rate, .01)
	require.InDelta(t, 26.95, rest.Duty.Seconds()*1000, .005)
	require.InDelta(t, .798, float64(rest.Occupancy)/million, .0005)
	require.Equal(t, 4, p.Least)

	s.Rate = 200
	p, err = Pack([]Session{s}, 0)
	require.NoError(t, err)
	require.Len(t, p.GPUs, 1)
	require.Equal(t, 6, p.GPUs[0].Parts[0].Batch)
	require.Equal(t, 30*ms, p.GPUs[0].Duty)
	require.InDelta(t, .467, float64(p.GPUs[0].Occupancy)/million, .0005)
}

// checkPacking works out anew that every session is served in full and in time.
func checkPacking(t *testing.T, sessions []Session, memory lockstep.Bytes, p Packing) {
	t.Helper()
	served := map[ID]float64{}
	by := map[ID]Session{}
	for _, s := range sessions {
		by[s.ID] = s
	}
	for _, g := range p.GPUs {
		used, held := time.Duration(0), lockstep.Bytes(0)
		for _, part := range g.Parts {
			s := by[part.Session]
			took := s.Latency.Batch(part.Batch)
			used += took
			held += s.Memory
			served[part.Session] += part.Rate
			require.GreaterOrEqual(t, float64(part.Batch)*(1+1e-6)+1e-6, part.Rate*g.Duty.Seconds(), "what comes in a turn fits its batch")
			require.LessOrEqual(t, g.Duty+took, s.Objective)
		}
		require.LessOrEqual(t, used, g.Duty)
		require.LessOrEqual(t, g.Occupancy, int64(million))
		if memory > 0 {
			require.LessOrEqual(t, held, memory)
		}
	}
	for _, s := range sessions {
		if !contains(p.Infeasible, s.ID) {
			require.InDelta(t, s.Rate, served[s.ID], 1e-5, "%s", s.ID)
		} else {
			require.Zero(t, served[s.ID])
		}
	}
	require.GreaterOrEqual(t, len(p.GPUs), p.Least)
}

func contains(ids []ID, id ID) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

// fewest finds the least number of GPUs for sessions of which each sits on one, over all partitions and all turns at
// which a batch changes.
func fewest(sessions []Session, memory lockstep.Bytes) int {
	best := len(sessions)
	var groups [][]Session
	var walk func(i int)
	walk = func(i int) {
		if len(groups) >= best {
			return
		}
		if i == len(sessions) {
			best = len(groups)
			return
		}
		for g := range groups {
			old := groups[g]
			groups[g] = append(append([]Session(nil), old...), sessions[i])
			if sits(groups[g], memory) {
				walk(i + 1)
			}
			groups[g] = old
		}
		groups = append(groups, []Session{sessions[i]})
		walk(i + 1)
		groups = groups[:len(groups)-1]
	}
	walk(0)
	return best
}

// sits says whether sessions can take turns on one GPU at any turn.
func sits(sessions []Session, memory lockstep.Bytes) bool {
	held := lockstep.Bytes(0)
	for _, s := range sessions {
		held += s.Memory
	}
	if memory > 0 && held > memory {
		return false
	}
	for _, s := range sessions {
		for k := 1; ; k++ {
			duty := float64(k) / s.Rate // turns between two such serve no more
			if duty > s.Objective.Seconds() {
				break
			}
			if sitsAt(sessions, duty) {
				return true
			}
		}
		if sitsAt(sessions, (s.Objective - s.Latency.Batch(1)).Seconds()) {
			return true
		}
	}
	return false
}

func sitsAt(sessions []Session, duty float64) bool {
	used := 0.0
	for _, s := range sessions {
		n := max(int(math.Ceil(duty*s.Rate-1e-9)), 1)
		took := s.Latency.Batch(n).Seconds()
		used += took
		if duty+took > s.Objective.Seconds()+1e-12 {
			return false
		}
	}
	return used <= duty+1e-12
}

func randomSessions(r *rand.Rand, n int) (out []Session) {
	for i := range n {
		out = append(out, Session{
			ID: ID(fmt.Sprintf("s%02d", i)), Rate: float64(1+r.IntN(40)) / 2, Objective: time.Duration(50+r.IntN(300)) * ms,
			Latency: serving.Linear{Base: time.Duration(2+r.IntN(20)) * ms, Each: time.Duration(1+r.IntN(8)) * ms},
			Memory:  lockstep.Bytes(r.IntN(5)),
		})
	}
	return out
}

// TestPackIsNearTheBest compares packings of seven sessions with the best of all, and with the bound.
func TestPackIsNearTheBest(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 40
	}
	r := rand.New(rand.NewPCG(14, 15))
	ours, best, same := 0, 0, 0
	for range rounds {
		sessions := randomSessions(r, 7)
		memory := lockstep.Bytes(r.IntN(2) * 8)
		p, err := Pack(sessions, memory)
		require.NoError(t, err)
		checkPacking(t, sessions, memory, p)
		if len(p.Infeasible) > 0 {
			continue
		}
		single := true
		for _, g := range p.GPUs {
			single = single && !g.Saturated
		}
		if !single {
			continue
		}
		f := fewest(sessions, memory)
		require.GreaterOrEqual(t, len(p.GPUs), f)
		require.GreaterOrEqual(t, f, p.Least)
		ours += len(p.GPUs)
		best += f
		if len(p.GPUs) == f {
			same++
		}
	}
	t.Logf("%d GPUs, the best are %d; as few in %d cases", ours, best, same)
	require.LessOrEqual(t, float64(ours), 1.01*float64(best))
}

func TestPackServesWhatItCanAtRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 15))
	for range 300 {
		sessions := randomSessions(r, r.IntN(30))
		for i := range sessions {
			sessions[i].Rate *= float64(r.IntN(40))
			if r.IntN(10) == 0 {
				sessions[i].Objective = time.Duration(1+r.IntN(20)) * ms
			}
		}
		p, err := Pack(sessions, lockstep.Bytes(r.IntN(2)*6))
		require.NoError(t, err)
		checkPacking(t, sessions, 0, p)
		r.Shuffle(len(sessions), func(i, j int) { sessions[i], sessions[j] = sessions[j], sessions[i] })
		again, err := Pack(sessions, 0)
		require.NoError(t, err)
		other, err := Pack(append([]Session(nil), sessions...), 0)
		require.NoError(t, err)
		require.Equal(t, again, other)
	}
}

func TestPackDoesNotDependOnOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 15))
	sessions := randomSessions(r, 20)
	want, err := Pack(sessions, 9)
	require.NoError(t, err)
	for range 20 {
		r.Shuffle(len(sessions), func(i, j int) { sessions[i], sessions[j] = sessions[j], sessions[i] })
		got, err := Pack(sessions, 9)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestPackRefusesBadInput(t *testing.T) {
	good := paper()[0]
	for name, change := range map[string]func(*Session){ // the order does not matter
		"no ID":     func(s *Session) { s.ID = "" },
		"NaN":       func(s *Session) { s.Rate = math.NaN() },
		"infinite":  func(s *Session) { s.Rate = math.Inf(1) },
		"negative":  func(s *Session) { s.Rate = -1 },
		"objective": func(s *Session) { s.Objective = 0 },
		"latency":   func(s *Session) { s.Latency = nil },
		"no time":   func(s *Session) { s.Latency = serving.Linear{} },
		"memory":    func(s *Session) { s.Memory = -1 },
	} {
		s := good
		change(&s)
		_, err := Pack([]Session{s}, 0)
		require.ErrorIs(t, err, lockstep.ErrInvalid, name)
	}
	_, err := Pack([]Session{good, good}, 0)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = Pack(nil, -1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	huge := good
	huge.Rate = 1e9
	_, err = Pack([]Session{huge}, 0)
	require.ErrorIs(t, err, lockstep.ErrInvalid, "more GPUs than there may be")
	p, err := Pack(nil, 0)
	require.NoError(t, err)
	require.Equal(t, Packing{}, p)
	tight := good
	tight.Objective = 99 * ms // a batch takes 50 ms, and one may just be missed
	p, err = Pack([]Session{tight}, 0)
	require.NoError(t, err)
	require.Equal(t, []ID{"A"}, p.Infeasible)
}
