package devices

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/internal/nvml"
)

// The library made for tests has one XID a GPU, so many kinds of them come from here.
func TestXIDsBeyondTheBoundAreOther(t *testing.T) {
	c, err := New(Config{XIDs: 3})
	require.NoError(t, err)
	for i := range 50 {
		c.xid(&nvml.Event{Device: 1, Kind: nvml.EventXID, Data: uint64(i % 10)})
	}
	c.xid(&nvml.Event{Device: -1, Kind: nvml.EventXID, Data: 79})
	c.xid(&nvml.Event{Device: 1, Kind: nvml.EventDoubleBit})
	require.Len(t, c.gpus, 1)
	require.Equal(t, map[string]uint64{"0": 5, "1": 5, "2": 5, "other": 35}, c.gpus[0].xids)
}

// A recovery that is not known yet is not taken for none.
func TestUnknownRecoveriesAreOther(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "reset", 2: "reboot", 3: "drain", 4: "drain_and_reset", 5: "other", -1: "other"} { // each by itself: the order cannot matter
		var r reading
		r.setRecovery(n)
		for _, v := range r.values {
			require.Equal(t, truth(v.label == want), v.v, "%d: %s", n, v.label)
		}
	}
}

// TestGPUsThatHaveGoneAreNotShownAsTheyWere: a driver that is loaded anew may have
// fewer, and nobody reads the others any more.
func TestGPUsThatHaveGoneAreNotShownAsTheyWere(t *testing.T) {
	c, err := New(Config{})
	require.NoError(t, err)
	for i, uuid := range []string{"GPU-0", "GPU-1", "GPU-2"} {
		c.meet(i, uuid)
		c.at(i).up = true
	}
	c.lack(2)
	require.True(t, c.gpus[1].up)
	require.False(t, c.gpus[2].up)
	require.Equal(t, "GPU-2", c.gpus[2].uuid)
}

// TestClosedTwice: the second Close of one may not take away the one that came after it.
func TestClosedTwice(t *testing.T) {
	reg := prometheus.NewRegistry()
	old, err := New(Config{Registerer: reg})
	require.NoError(t, err)
	require.NoError(t, old.Close())
	_, err = New(Config{Registerer: reg})
	require.NoError(t, err)
	require.NoError(t, old.Close())
	got, err := reg.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, got)
}
