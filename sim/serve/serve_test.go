package serve

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy"
	"github.com/lockstep-gpu/lockstep/serving/autoscale"
	"github.com/lockstep-gpu/lockstep/serving/llm"
)

func testConfig() Config {
	return Config{
		Engine: llm.Config{
			Blocks: 20_000, TokenBudget: 1024,
			Classes: []llm.Class{{TTFT: 2 * time.Second, TPOT: 60 * time.Millisecond}},
			Cost:    llm.Roofline{Overhead: 5 * time.Millisecond, Weights: 15 * time.Millisecond, Token: 100 * time.Second / 1000, KV: 20 * time.Millisecond},
		},
		Servers: 24, Initial: 4, Load: 30 * time.Second, GPUs: 8,
	}
}

func testScaler(t testing.TB, rule autoscale.Rule, servers int) *autoscale.Scaler {
	s, err := autoscale.New(autoscale.Config{
		Rule: rule,
		Demand: autoscale.Demand{Slot: 15 * time.Second, Capacity: autoscale.Tokens{
			Step: 20 * time.Millisecond, Sequence: 100 * time.Microsecond, PromptToken: 100 * time.Microsecond, PerToken: 60 * time.Millisecond,
		}},
		Loan: autoscale.LoanConfig{
			PerReplica: lockstep.WholeGPU.Mul(8), Grace: 60 * time.Second, Cleanup: 10 * time.Second, Load: 30 * time.Second,
		},
		Steady: policy.Steady{Bounded: policy.Bounded{Min: 1, Max: servers}},
	})
	require.NoError(t, err)
	return s
}

func testDay(t testing.TB, span time.Duration) []Request {
	q, err := Day{Seed: 7, Span: span, Period: span, Peak: 30, Prompt: 800, Output: 80}.Requests()
	require.NoError(t, err)
	require.NotEmpty(t, q)
	return q
}

func TestEveryRequestGetsItsTokensOnce(t *testing.T) {
	c := testConfig()
	c.Deaths = []Death{{At: 5 * time.Minute, Replica: 1}, {At: 6 * time.Minute}, {At: 10 * time.Minute, Replica: 5}}
	c.Cuts = []time.Duration{4 * time.Minute, 11 * time.Minute}
	q := testDay(t, 20*time.Minute)
	r, err := Run(c, q, testScaler(t, autoscale.Predictive{Load: 30 * time.Second}, c.Servers))
	require.NoError(t, err)
	var got, want int64
	var n, deaths int
	for _, p := range r.Parts {
		require.Equal(t, p.Requests, p.Finished+p.Refused)
		require.Zero(t, p.Refused)
		got, n, deaths = got+p.Tokens, n+p.Requests, deaths+p.Deaths
	}
	for _, one := range q {
		want += int64(one.Output)
	}
	require.Equal(t, want, got)
	require.Len(t, q, n)
	require.Equal(t, 3, deaths)
}

func TestGPUTimeIsThatOfItsReplicas(t *testing.T) {
	c := testConfig()
	c.Load, c.Initial = 0, 3
	q := testDay(t, 10*time.Minute)
	r, err := Run(c, q, still{})
	require.NoError(t, err)
	require.Equal(t, q[len(q)-1].At*3*8, r.Parts[0].GPUTime)
	whole := r.Parts[0]
	c.Cuts = []time.Duration{time.Minute, 2*time.Minute + 1}
	r, err = Run(c, q, still{})
	require.NoError(t, err)
	require.Equal(t, whole.GPUTime, r.Parts[0].GPUTime+r.Parts[1].GPUTime+r.Parts[2].GPUTime)
	require.Equal(t, whole.Attained, r.Parts[0].Attained+r.Parts[1].Attained+r.Parts[2].Attained)
}

// still keeps what there is.
type still struct{}

func (still) Observe(time.Time, autoscale.Sample) error { return nil }
func (still) Decide(time.Time, autoscale.Fleet) (autoscale.Decision, error) {
	return autoscale.Decision{}, nil
}

func TestTheSameRunHasTheSameResult(t *testing.T) {
	c := testConfig()
	c.Loans = Loans{Enabled: true, Jobs: testJobs()}
	q := testDay(t, 30*time.Minute)
	a, err := Run(c, q, testScaler(t, autoscale.Predictive{Load: 30 * time.Second}, c.Servers))
	require.NoError(t, err)
	b, err := Run(c, q, testScaler(t, autoscale.Predictive{Load: 30 * time.Second}, c.Servers))
	require.NoError(t, err)
	require.Equal(t, a, b)
}

func testJobs() []Job {
	return []Job{
		{ID: "elastic", Min: 2, Max: 12, Work: 1000 * time.Hour, Save: 40 * time.Second, Restart: 30 * time.Second},
		{ID: "rigid", Min: 4, Work: 1000 * time.Hour, Save: 60 * time.Second, Restart: 30 * time.Second},
		{ID: "short", At: time.Minute, Min: 1, Work: 20 * time.Minute, Save: time.Second, Restart: 5 * time.Second},
		{ID: "too slow", Min: 1, Work: time.Hour, Save: 2 * time.Hour},
	}
}

func TestLentServersComeBackInTime(t *testing.T) {
	c := testConfig()
	c.Loans = Loans{Enabled: true, Jobs: testJobs()}
	q := testDay(t, 3*time.Hour)
	r, err := Run(c, q, testScaler(t, autoscale.Predictive{Load: 30 * time.Second}, c.Servers))
	require.NoError(t, err)
	require.NotEmpty(t, r.Recalls)
	require.Positive(t, r.Parts[0].Trained)
	require.LessOrEqual(t, r.Parts[0].Trained, r.Parts[0].Lent)
	require.LessOrEqual(t, r.Parts[0].Lent+r.Parts[0].GPUTime, q[len(q)-1].At*24*8)
	for _, recall := range r.Recalls {
		if recall.Deadline < q[len(q)-1].At {
			require.True(t, recall.Met(), "%+v", recall)
		}
	}
	for _, p := range r.Timeline {
		require.LessOrEqual(t, p.Ready+p.Starting+p.Draining+p.Lent, c.Servers, "%+v", p)
		require.LessOrEqual(t, p.Training, p.Lent, "%+v", p)
	}
}

func TestBadInputIsRefused(t *testing.T) {
	q := []Request{{Prompt: 1, Output: 1}}
	for field, change := range map[string]func(*Config){
		"GPUs":            func(c *Config) { c.GPUs = -1 },
		"Servers":         func(c *Config) { c.Servers = math.MaxInt },
		"Initial":         func(c *Config) { c.Initial = 25 },
		"Load":            func(c *Config) { c.Load = -1 },
		"Interval":        func(c *Config) { c.Interval = 1 },
		"Deaths[0].At":    func(c *Config) { c.Deaths = []Death{{At: -1}} },
		"Cuts[1]":         func(c *Config) { c.Cuts = []time.Duration{2, 2} },
		"Loans.Jobs[0]":   func(c *Config) { c.Loans.Jobs = []Job{{ID: "a"}} },
		"Loans.Jobs[1].I": func(c *Config) { c.Loans.Jobs = []Job{{ID: "a", Work: 1}, {ID: "a", Work: 1}} },
	} {
		c := testConfig()
		change(&c)
		_, err := Run(c, q, still{})
		require.ErrorIs(t, err, lockstep.ErrInvalid, field)
		require.ErrorContains(t, err, field)
	}
	for _, bad := range []Request{{At: -1, Prompt: 1, Output: 1}, {Class: 1, Prompt: 1, Output: 1}, {Prompt: 0, Output: 1}, {Prompt: 1, Output: maxTokens + 1}} {
		_, err := Run(testConfig(), []Request{bad}, still{})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err := Run(testConfig(), q, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	c := testConfig()
	c.Loans.Enabled = true
	_, err = Run(c, q, still{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	c = testConfig()
	c.Initial, c.Interval = 0, time.Hour
	_, err = Run(c, q, still{})
	require.ErrorIs(t, err, lockstep.ErrConflict)
	_, err = Day{Peak: math.NaN()}.Requests()
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestReadAzure(t *testing.T) {
	const head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	q, err := ReadAzure(strings.NewReader(head + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:47.6805900,0,109\n"))
	require.NoError(t, err)
	require.Equal(t, []Request{{Prompt: 374, Output: 44}, {At: time.Second, Prompt: 1, Output: 109}}, q)
	for _, bad := range []string{"", "a,b,c\n", head + "x,1,1\n", head + "2023-11-16 18:15:46,-1,1\n", head + "2023-11-16 18:15:46,1\n", head + "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1\n"} {
		_, err := ReadAzure(strings.NewReader(bad))
		require.ErrorIs(t, err, lockstep.ErrInvalid, bad)
	}
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "traces", "azure-llm-2023", "AzureLLMInferenceTrace_conv.csv"))
	if os.IsNotExist(err) {
		t.Skip("without ../shared/traces/azure-llm-2023 the reading of the real trace is left out")
	}
	require.NoError(t, err)
	defer f.Close()
	q, err = ReadAzure(f)
	require.NoError(t, err)
	require.Len(t, q, 19_366)
	require.Len(t, Superpose(q, 3, time.Second), 3*19_366)
}

func FuzzReadAzure(f *testing.F) {
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ReadAzure(strings.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		require.NoError(t, validateRequests(Config{}.withDefaults(), q))
	})
}
