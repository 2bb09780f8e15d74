package gang_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
)

func TestAllMetricsAreDescribed(t *testing.T) {
	all := gang.Metrics()
	require.NoError(t, lockstep.ValidateMetrics(all))
	names := make([]lockstep.Metric, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	require.ElementsMatch(t, []lockstep.Metric{gang.MetricWait, gang.MetricActions, gang.MetricQueued, gang.MetricFits, gang.MetricHunts}, names)
}
