package otel_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/integrations/otel"
)

var update = flag.Bool("update", false, "write the table of README.md anew")

// instruments is the table of what is recorded.
func instruments() string {
	var b strings.Builder
	b.WriteString("| instrument | unit | kind | attributes | what |\n| --- | --- | --- | --- | --- |\n")
	for _, d := range otel.Metrics() {
		name, unit := otel.Instrument(otel.DefaultPrefix, d)
		labels := make([]string, len(d.Labels))
		for i, l := range d.Labels {
			labels[i] = l.String()
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", name, unit, d.Kind, strings.Join(labels, ", "), d.Help)
	}
	return b.String()
}

func TestTheTableOfTheReadmeIsCurrent(t *testing.T) {
	data, err := os.ReadFile("README.md")
	require.NoError(t, err)
	const begin, end = "<!-- metrics: generated -->\n", "<!-- /metrics -->"
	before, rest, ok := strings.Cut(string(data), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	want := before + begin + instruments() + end + after
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(data), "run go test -run Readme -update .")
}

// Each of our names that the README tells somebody to use is one that there is,
// and it names all fields, spans and attributes.
func TestTheReadmeNamesWhatThereIs(t *testing.T) {
	data, err := os.ReadFile("README.md")
	require.NoError(t, err)
	text := string(data)
	known := map[string]bool{otel.SpanAction: true, otel.SpanDecision: true, otel.SpanEvent: true, otel.SpanWait: true}
	for _, d := range otel.Metrics() {
		name, _ := otel.Instrument(otel.DefaultPrefix, d)
		known[name] = true
	}
	found := regexp.MustCompile("`(gpusched\\.[a-z0-9_]+)").FindAllStringSubmatch(text, -1)
	require.Greater(t, len(found), 40)
	for _, m := range found {
		require.True(t, known[m[1]], m[1])
	}
	for name := range known { // each by itself: the order cannot matter
		require.Contains(t, text, "`"+name+"`")
	}
	for _, field := range []string{"Prefix", "Metrics", "Values", "Series", "MeterProvider", "Policy", "Jobs", "Waiting", "TracerProvider", "Clock"} {
		require.Contains(t, text, "| `"+field+"`", "the tables of the configuration have all fields")
	}
	source, err := os.ReadFile("decision.go")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`attribute\.Key\("(lockstep\.[a-z_]+)"\)`).FindAllStringSubmatch(string(source), -1) {
		require.Contains(t, text, "`"+m[1]+"`", "the table of attributes has all")
	}
}
