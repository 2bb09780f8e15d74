package prometheus_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/integrations/prometheus"
	"github.com/lockstep-gpu/lockstep/integrations/prometheus/devices"
	"github.com/lockstep-gpu/lockstep/perfmodel/profile"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

var update = flag.Bool("update", false, "write the tables of README.md anew")

// feeder says who records a metric.
func feeder() map[string]string {
	out := map[string]string{}
	for _, d := range meter.Metrics() {
		out[string(d.Name)] = meter.Feeder(d.Name)
	}
	for _, d := range gang.Metrics() {
		out[string(d.Name)] = "gang"
	}
	for _, d := range profile.Metrics() {
		out[string(d.Name)] = "perfmodel/profile"
	}
	return out
}

// recorded is the table of what is recorded.
func recorded() string {
	var b strings.Builder
	b.WriteString("| `gpusched_…` | kind | labels | what | recorded by |\n| --- | --- | --- | --- | --- |\n")
	by := feeder()
	for _, d := range prometheus.Metrics() {
		labels := make([]string, len(d.Labels))
		for i, l := range d.Labels {
			labels[i] = l.String()
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.Name, d.Kind, strings.Join(labels, ", "), d.Help, by[string(d.Name)])
	}
	return b.String()
}

// hardware is the table of what package devices exports.
func hardware() string {
	var b strings.Builder
	b.WriteString("| `gpusched_…` | kind | labels | what |\n| --- | --- | --- | --- |\n")
	for _, m := range devices.Metrics() {
		labels := m.Labels
		if !m.Host {
			labels = append([]string{"gpu", "uuid"}, labels...)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, strings.Join(labels, ", "), m.Help)
	}
	return b.String()
}

// between replaces what stands between two marks.
func between(t *testing.T, text, mark, table string) string {
	t.Helper()
	begin, end := "<!-- "+mark+": generated -->\n", "<!-- /"+mark+" -->"
	before, rest, ok := strings.Cut(text, begin)
	require.True(t, ok, "README.md has no %s", begin)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "README.md has no %s", end)
	return before + begin + table + end + after
}

func TestTheTablesOfTheReadmeAreCurrent(t *testing.T) {
	data, err := os.ReadFile("README.md")
	require.NoError(t, err)
	want := between(t, between(t, string(data), "metrics", recorded()), "devices", hardware())
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(data), "run go test -run Readme -update .")
}

// Each of our names that the README tells somebody to use is one that there is.
func TestTheReadmeNamesWhatThereIs(t *testing.T) {
	data, err := os.ReadFile("README.md")
	require.NoError(t, err)
	known := shownSeries(prometheus.DefaultPrefix)
	found := regexp.MustCompile("gpusched_[a-z0-9_]+[a-z0-9]").FindAllString(string(data), -1)
	require.Greater(t, len(found), 30)
	for _, name := range found {
		_, whole := known[name]
		_, histogram := known[name+"_bucket"]
		require.True(t, whole || histogram, name)
	}
	for _, field := range []string{"Prefix", "Metrics", "Labels", "Values", "Series", "Registerer"} {
		require.Contains(t, string(data), "| `"+field+"`", "the table of the configuration has all fields")
	}
}
