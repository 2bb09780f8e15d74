package nvml_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/detect/health"
	"github.com/lockstep-gpu/lockstep/detect/nvml"
	"github.com/lockstep-gpu/lockstep/internal/nvml/nvmltest"
)

// TestNoLibraryIsUnknown holds in every build.
func TestNoLibraryIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, health.Config{Lenient: true})
		require.NoError(t, b.machine.Track(time.Now(), "host", gpu(0)))
		w, err := nvml.New(nvml.Config{Node: "host", Library: "no-such-library.so", Report: b.report})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		err = w.Run(ctx)
		if nvmltest.Supported {
			require.NoError(t, err)
			require.Len(t, b.reports, 4, "it may come yet")
		} else {
			require.ErrorIs(t, err, nvml.ErrUnavailable)
			require.Len(t, b.reports, 1, "it will not come")
		}
		require.ErrorIs(t, b.reports[0].Err, nvml.ErrUnavailable)
		s, ok := b.machine.Status("host", gpu(0))
		require.True(t, ok)
		require.Equal(t, health.Unknown, s.State)
		require.False(t, s.Open)
	})
}
