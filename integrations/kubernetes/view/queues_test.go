package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

func TestQueuesOfAConfigMap(t *testing.T) {
	q, err := ParseQueues("kube-system", "lockstep-queues", map[string]string{
		SchedulerKey: "rule: las\nweights: {vision: 3, speech: 1}\ndefaultWeight: 1\nterm: 20m\nlimits: [1h, 10h]\nhold: 90s\nmaxAttempts: 100\n",
		QueuesKey:    "capacity: {gpu: 64}\nqueues:\n- {name: vision, weight: 3, nominal: {gpu: 48}, borrowLimit: {gpu: 8}}\n- {name: speech, weight: 1}\n",
	})
	require.NoError(t, err)
	require.Equal(t, scheduler.Config{
		Rule: scheduler.LAS, Weights: map[lockstep.TenantID]int64{"vision": 3, "speech": 1}, DefaultWeight: 1, Term: 20 * time.Minute,
		Limits: []time.Duration{time.Hour, 10 * time.Hour}, Hold: 90 * time.Second, MaxAttempts: 100,
	}, q.Scheduler)
	require.Equal(t, quota.Config{
		Capacity: lockstep.Resources{lockstep.ResourceGPU: 64_000},
		Queues: []quota.Queue{
			{Name: "vision", Weight: 3, Nominal: lockstep.Resources{lockstep.ResourceGPU: 48_000}, BorrowLimit: lockstep.Resources{lockstep.ResourceGPU: 8000}},
			{Name: "speech", Weight: 1},
		},
	}, q.Quota)
	q, err = ParseQueues("ns", "n", nil)
	require.NoError(t, err)
	require.Zero(t, q)
	q, err = ParseQueues("ns", "n", map[string]string{SchedulerKey: "term: never"})
	require.NoError(t, err)
	require.Equal(t, scheduler.NoTerm, q.Scheduler.Term)
}

func TestRulesOfTheStandaloneScheduler(t *testing.T) {
	for _, rule := range []scheduler.Rule{"priority", "ltgf"} {
		q, err := ParseQueues("ns", "n", map[string]string{SchedulerKey: "rule: " + string(rule) + "\nweights: {a: 1}"})
		require.NoError(t, err)
		require.Equal(t, rule, q.Scheduler.Rule)
		_, err = ParseQueues("ns", "n", map[string]string{SchedulerKey: "rule: " + string(rule) + "\nweights: {a: -1}"})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}

func TestQueuesAtFault(t *testing.T) {
	for name, c := range map[string]struct { // each case stands alone
		key, text, field string
		kind             error
	}{
		"not yaml":      {SchedulerKey, "a: [", SchedulerKey, lockstep.ErrInvalid},
		"no such field": {SchedulerKey, "ruel: las", SchedulerKey, lockstep.ErrInvalid},
		"duration":      {SchedulerKey, "term: 20", SchedulerKey, lockstep.ErrInvalid},
		"negative":      {SchedulerKey, "term: -1s", SchedulerKey, lockstep.ErrInvalid},
		"no such rule":  {SchedulerKey, "rule: best", SchedulerKey + ": Rule", lockstep.ErrInvalid},
		"twice":         {QueuesKey, "queues: [{name: a}, {name: a}]", QueuesKey + ": Queues[1].Name", lockstep.ErrDuplicate},
		"parent":        {QueuesKey, "queues: [{name: a, parent: b}]", QueuesKey + ": Queues[0].Parent", lockstep.ErrUnknown},
		"amount":        {QueuesKey, "capacity: {gpu: much}", QueuesKey + ": Resources.gpu", lockstep.ErrInvalid},
		"no such key":   {"other", "", "other", lockstep.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := ParseQueues("ns", "map", map[string]string{c.key: c.text})
			requireFault(t, err, c.kind, "map", c.field, "")
			require.Zero(t, q)
		})
	}
	_, err := ParseQueues("ns", "map", map[string]string{SchedulerKey: "rule: best\ninside: out", QueuesKey: "queues: [{name: a}, {name: a}]"})
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	require.Len(t, joined.Unwrap(), 3, "%v", err)
}

// Whatever a ConfigMap says is taken as valid settings, or refused by the key.
func FuzzQueues(f *testing.F) {
	f.Add("rule: las\nterm: 20m", "capacity: {gpu: 64}\nqueues: [{name: a, weight: 1}]")
	f.Add("term: never", "tenants: [{id: x, weight: 1}]")
	f.Add("a: [", "\t")
	f.Add("limits: [1h, -1h]", "null")
	f.Fuzz(func(t *testing.T, settings, queues string) {
		q, err := ParseQueues("ns", "n", map[string]string{SchedulerKey: settings, QueuesKey: queues})
		if err != nil {
			var fault *Fault
			require.ErrorAs(t, err, &fault)
			require.Equal(t, "n", fault.Name)
			require.Regexp(t, `^(scheduler|queues)\.yaml`, fault.Err.Field)
			require.Zero(t, q)
			return
		}
		require.NoError(t, q.Quota.Validate())
	})
}
