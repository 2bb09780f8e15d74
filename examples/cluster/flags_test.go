package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDefaultsAreTheReadmesCommand(t *testing.T) {
	o, err := parse(nil, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, 24, o.nodes)
	require.Equal(t, 8, o.perNode)
	require.Equal(t, 3.0, o.days)
	require.Equal(t, 15*time.Minute, o.lease)
	require.Equal(t, 5*time.Second, o.save)
	require.Equal(t, 20*time.Second, o.restore)
	require.Len(t, o.policies, 5)
}

func TestPoliciesComeInOneOrder(t *testing.T) {
	o, err := parse([]string{"-policies", "LTGF, fifo"}, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, "fifo", o.policies[0].Flag)
	require.Equal(t, "ltgf", o.policies[1].Flag)
}

func TestFaultsOfFlagsAreNamed(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown policy", []string{"-policies", "fifo,lottery"}, `"lottery"`},
		{"policy twice", []string{"-policies", "fifo,fifo"}, "occurs twice"},
		{"no policy", []string{"-policies", ""}, "want some of"},
		{"no nodes", []string{"-nodes", "0"}, "-nodes 0"},
		{"too many devices", []string{"-gpus-per-node", "65"}, "-gpus-per-node 65"},
		{"no lease", []string{"-lease", "0s"}, "-lease 0s"},
		{"no days", []string{"-days", "NaN"}, "-days NaN"},
		{"negative cost", []string{"-resume-cost", "-1s"}, "-resume-cost -1s"},
		{"unknown format", []string{"-trace", "x", "-format", "xml"}, `-format "xml"`},
		{"seed of a file", []string{"-trace", "x", "-seed", "3"}, "do not go with -trace"},
		{"argument", []string{"x.csv"}, `"x.csv"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(c.args, &bytes.Buffer{})
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := parse([]string{"-nodes", "0", "-lease", "0s"}, &bytes.Buffer{})
	require.ErrorContains(t, err, "-nodes")
	require.ErrorContains(t, err, "-lease", "all faults are reported at once")
}
