package prometheus_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/integrations/prometheus"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// serve serves /metrics of a registry on a port of this host.
func serve(t testing.TB, reg *client.Registry) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/metrics"
}

// scrape gets a page as Prometheus does.
func scrape(t testing.TB, url string) string {
	t.Helper()
	http := &http.Client{Timeout: 10 * time.Second}
	response, err := http.Get(url)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, 200, response.StatusCode, "%s", page)
	return string(page)
}

// A simulated day is scraped over HTTP while it runs and when it is over; and
// Prometheus' own linter has nothing to say, with every metric of the table there.
func TestAScrapeOverHTTPIsClean(t *testing.T) {
	r, reg := recorder(t, prometheus.Config{})
	url := serve(t, reg)
	tree := cluster(t, 8)
	h := host(t, scheduler.Config{Tree: tree}, r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		simulate(t, h, tree, 4*time.Hour)
	}()
	pages := 0
	for running := true; running; pages++ {
		select {
		case <-done:
			running = false
		default:
		}
		scrape(t, url)
	}
	require.Greater(t, pages, 1)
	touch(r, prometheus.Metrics())
	page := scrape(t, url)
	for _, d := range prometheus.Metrics() {
		require.Contains(t, page, "# TYPE gpusched_"+string(d.Name)+" "+string(d.Kind)+"\n")
	}
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	require.NotContains(t, page, "job_id")
}

// The linter does find what there is: a name that it must not like.
func TestTheLinterIsAwake(t *testing.T) {
	reg := client.NewRegistry()
	reg.MustRegister(client.NewCounter(client.CounterOpts{Name: "gpusched_wait_milliseconds", Help: "Bad."}))
	problems, err := promlint.New(strings.NewReader(scrape(t, serve(t, reg)))).Lint()
	require.NoError(t, err)
	require.NotEmpty(t, problems)
}
