package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCrowdStaysAsItIs: whatever the batches, each tenant has a job that runs and
// one that waits.
func TestCrowdStaysAsItIs(t *testing.T) {
	for _, tenants := range []int{1, 7, ledgerBatch, 1000} {
		c, err := newCrowd(tenants, 1)
		require.NoError(t, err)
		for range 5 {
			c.draw()
			sorted := slices.Clone(c.batch)
			slices.Sort(sorted)
			require.Len(t, slices.Compact(sorted), min(tenants, ledgerBatch), "tenants of a batch differ")
			for _, kind := range eventKinds {
				require.NoError(t, c.apply(kind))
			}
		}
		for i := range c.tenants {
			tenant := &c.tenants[i]
			for k, job := range tenant.jobs {
				s, err := c.ledger.JobStatement(c.now, job)
				require.NoError(t, err)
				require.False(t, s.Done)
				require.Equal(t, k == tenant.running, s.Running)
				require.Equal(t, c.amount(i), s.Demand)
			}
		}
		require.NoError(t, c.pass())
	}
}

func TestCrowdWantsMoreThanThereIs(t *testing.T) {
	c, err := newCrowd(80, 1)
	require.NoError(t, err)
	seen := make(map[string]bool)
	for i := range c.tenants {
		seen[c.amount(i).String()] = true
	}
	require.Len(t, seen, 8, "every width from 1 to 8")
}
