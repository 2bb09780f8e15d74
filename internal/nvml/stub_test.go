package nvml_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/internal/nvml"
)

func TestNoLibraryIsAnError(t *testing.T) {
	_, err := nvml.Open(nvml.Config{Library: "no-such-library.so"})
	require.ErrorIs(t, err, nvml.ErrUnavailable)
}
