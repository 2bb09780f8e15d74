package prometheus_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/prometheus"
	"github.com/lockstep-gpu/lockstep/integrations/prometheus/devices"
)

// board is what of a dashboard is looked at.
type board struct {
	Title  string
	UID    string
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ H, W, X, Y int }
		Targets []struct {
			RefID        string
			Expr         string
			LegendFormat string
		}
	}
}

// series is what a query may name: the labels of each.
func shownSeries(prefix string) map[string][]string {
	out := map[string][]string{}
	for _, d := range prometheus.Metrics() {
		labels := []string{}
		for _, l := range d.Labels {
			labels = append(labels, l.String())
		}
		name := prefix + string(d.Name)
		if d.Kind == lockstep.MetricHistogram {
			out[name+"_bucket"] = append(slices.Clone(labels), "le")
			out[name+"_sum"], out[name+"_count"] = labels, labels
			continue
		}
		out[name] = labels
	}
	for _, m := range devices.Metrics() {
		labels := slices.Clone(m.Labels)
		if !m.Host {
			labels = append(labels, "gpu", "uuid")
		}
		out[prefix+m.Name] = labels
	}
	return out
}

var (
	groupings = regexp.MustCompile(`by \(([^)]*)\)`)
	selectors = regexp.MustCompile(`\{([a-z_]+)[=!~]`)
	legends   = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
	rates     = regexp.MustCompile(`rate\(([a-z_]+)`)
)

// Each query names series that are exported, rates are taken of counters and
// histograms only and of those always, and labels are those that the series have.
func TestTheDashboardAsksForWhatThereIs(t *testing.T) {
	for _, prefix := range []string{"", "other_"} {
		data, err := prometheus.Dashboard(prefix)
		require.NoError(t, err)
		var b board
		require.NoError(t, json.Unmarshal(data, &b))
		if prefix == "" {
			prefix = prometheus.DefaultPrefix
		}
		known := shownSeries(prefix)
		names := regexp.MustCompile(prefix + `[a-z0-9_]+`)
		asked := map[string]bool{}
		ids := map[int]bool{}
		for _, p := range b.Panels {
			require.False(t, ids[p.ID], "panel %d twice", p.ID)
			ids[p.ID] = true
			require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24)
			if p.Type == "row" {
				continue
			}
			require.NotEmpty(t, p.Targets, p.Title)
			for _, q := range p.Targets {
				require.Equal(t, strings.Count(q.Expr, "("), strings.Count(q.Expr, ")"), q.Expr)
				labels := []string{"instance"} // which Prometheus adds
				found := names.FindAllString(q.Expr, -1)
				require.NotEmpty(t, found, q.Expr)
				rated := map[string]bool{}
				for _, m := range rates.FindAllStringSubmatch(q.Expr, -1) {
					rated[m[1]] = true
				}
				for _, name := range found {
					of, ok := known[name]
					require.True(t, ok, "%s: no such series: %s", p.Title, name)
					labels = append(labels, of...)
					asked[name] = true
					accumulates := strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count")
					require.Equal(t, accumulates, rated[name], "%s: a rate is of what accumulates: %s", p.Title, q.Expr)
				}
				grouped := []string{}
				for _, m := range groupings.FindAllStringSubmatch(q.Expr, -1) {
					grouped = append(grouped, strings.Split(m[1], ", ")...)
				}
				for _, m := range selectors.FindAllStringSubmatch(q.Expr, -1) {
					require.Contains(t, labels, m[1], q.Expr)
				}
				for _, l := range grouped {
					require.Contains(t, labels, l, q.Expr)
				}
				for _, m := range legends.FindAllStringSubmatch(q.LegendFormat, -1) {
					require.Contains(t, grouped, m[1], "%s: the legend has a label that the query sums over", p.Title)
				}
			}
		}
		// Nothing that the meter records is left out, whichever of its series is asked for.
		for _, d := range prometheus.Metrics() {
			name := prefix + string(d.Name)
			at := slices.ContainsFunc(slices.Collect(maps.Keys(asked)), func(s string) bool { // any will do, so the order cannot matter
				return s == name || strings.TrimSuffix(strings.TrimSuffix(s, "_bucket"), "_sum") == name
			})
			if !at && !slices.Contains(unasked, d.Name) {
				t.Errorf("%s is on no panel", name)
			}
		}
	}
	_, err := prometheus.Dashboard("Bad Prefix")
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// unasked are on no panel: others say the same or more.
var unasked = []lockstep.Metric{
	"gang_wait_seconds", "gang_actions_total", "gang_queued_jobs", "preemption_victims", "resize_stall_seconds",
	"pack_slowdown_ratio", "model_prediction_error_ratio",
}
