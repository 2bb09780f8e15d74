package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/lockstep-gpu/lockstep"
)

func TestArgs(t *testing.T) {
	a, err := parse(&runtime.Unknown{Raw: []byte(`
rule: las
queues: {namespace: sched, name: q}
permit: 5s
evict: true
view:
  keys:
  - label: rack
`)})
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, a.Permit.Duration)
	require.Equal(t, "q", a.Queues.Name)
	require.Len(t, a.View.Keys, 1)
	for _, obj := range []runtime.Object{nil, &runtime.Unknown{}, &runtime.Unknown{Raw: []byte("{}")}} {
		a, err := parse(obj)
		require.NoError(t, err)
		require.Zero(t, a)
	}
}

func TestBadArgs(t *testing.T) {
	for _, c := range []struct{ raw, field string }{
		{`permit: -1s`, "Permit"},
		{`permit: 2h`, "Permit"},
		{`permit: soon`, "args"},
		{`permits: 1s`, "args"},
		{`view: {schedulerName: x}`, "View.SchedulerName"},
		{"a: [", "args"},
		{"rule: las\nrule: fifo", "args"},
	} {
		_, err := parse(&runtime.Unknown{Raw: []byte(c.raw)})
		var e *lockstep.Error
		require.ErrorAs(t, err, &e, c.raw)
		require.Equal(t, c.field, e.Field, c.raw)
	}
	_, err := New(t.Context(), &runtime.Unknown{Raw: []byte("parallel: -1")}, &handle{client: fake.NewClientset()})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = parse(&corev1.Pod{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestLogsGoToTheFramework(t *testing.T) {
	log := logger(klog.Background())
	require.NotPanics(t, func() {
		log.With(zap.String("a", "b")).Debug("detail")
		log.Warn("warning", zap.Int("n", 1))
	})
}
