package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/sim/trace"
)

func TestTheLedgerDoesNotDrift(t *testing.T) {
	d, err := newDrift(3)
	require.NoError(t, err)
	for n := 0; n < 5000; {
		events, err := d.step()
		require.NoError(t, err)
		n += events
		require.NoError(t, d.check())
	}
	service, entitlement, err := d.off()
	require.NoError(t, err)
	require.Zero(t, service)
	require.LessOrEqual(t, entitlement, 2.0)
	require.Less(t, d.worst[longHalf], 1e-8)
	require.Less(t, d.worst[shortHalf], 1e-8)
	require.InEpsilon(t, seconds(&d.truth.service[0]), d.others.float, 1e-9)
}

// The others are rebuilt right if they show the errors that their formulas have for
// one device in steady use over a day.
func TestSlurmsDecayIsOffAsItsFormulaSays(t *testing.T) {
	var o others
	day := 24 * time.Hour
	o.advance(int64(day), 1)
	require.InDelta(t, day.Seconds(), o.float, 1e-6)
	require.InDelta(t, longHalf.Seconds()/math.Ln2*(1-math.Exp2(-day.Seconds()/longHalf.Seconds())), o.exactLong, 1e-6)
	require.InDelta(t, -0.00016, o.slurmLong/o.exactLong-1, 0.0003)
	require.InDelta(t, -0.164, o.slurmNow/o.exactNow-1, 0.01)
}

func TestMaxMinByHand(t *testing.T) {
	require.Equal(t, [3]int64{1000 * common, 21_000 * common, 42_000 * common}, maxMin([3]int64{1000, 1 << 20, 1 << 20}))
	require.Equal(t, [3]int64{5 * common, 6 * common, 7 * common}, maxMin([3]int64{5, 6, 7}))
}

func TestCrowdsKeepGoing(t *testing.T) {
	for _, m := range memories {
		c, err := newCrowd(50, m.memory)
		require.NoError(t, err)
		for range 200 {
			require.NoError(t, c.swap())
		}
		c.ledger.Begin(c.now)
		_, ok := c.ledger.Next()
		require.True(t, ok)
	}
	_, err := newCrowd(1, fairness.Memory{HalfLife: -1})
	require.Error(t, err)
}

// A tenant with a quota of 4 has two jobs of 4 devices: they deserve 2 each while both
// are there, and the one that is left 4.
func TestDeservedByHand(t *testing.T) {
	x := deserve([]span{
		{tenant: "a", gpus: 4, submit: 0, end: 100 * time.Second, service: 400, useful: 400},
		{tenant: "a", gpus: 4, submit: 0, end: 150 * time.Second, service: 200, useful: 200},
	}, map[lockstep.TenantID]float64{"a": 4})
	require.Equal(t, []float64{200. / 400, 400. / 200}, x.jobs)
	require.Equal(t, []float64{600. / 600}, x.tenants)
	require.Equal(t, 0.5, at(x.jobs, 0))
	require.Equal(t, 1, below(x.jobs, 1))
	require.Zero(t, at(nil, 0.5))
}

// Every rule ends a small made-up load, under one clock.
func TestRulesPlay(t *testing.T) {
	tr, err := trace.Synthetic(trace.SyntheticConfig{Seed: 1, Span: 2 * time.Hour, GPUs: 16, Tenants: 3})
	require.NoError(t, err)
	in := &input{nodes: 2, term: 10 * time.Minute}
	weights := map[lockstep.TenantID]int64{}
	for i := range tr.Jobs {
		weights[tr.Jobs[i].Tenant] = 1
	}
	for _, r := range rules(in.term) {
		o, err := play(in, tr, weights, r)
		require.NoError(t, err, r.name)
		require.Equal(t, len(tr.Jobs), o.finished, r.name)
		require.Len(t, o.indexes.jobs, o.finished, r.name)
	}
}
