package reconfig

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/stretchr/testify/require"
)

// shapeOf is a model of so many layers that degrees 1 to 8 divide.
func modelOf(layers int) perfmodel.Model {
	return perfmodel.Model{Layers: layers, Hidden: 840, Heads: 840, FFN: 3360, Vocab: 8400}
}

// jobOf is a job of equal layers: 1 ms forward and 2 ms back on one device.
func jobOf(tp, dp, pp, layers, micros int) Job {
	return Job{
		Model:  modelOf(layers),
		Layout: perfmodel.Layout{TP: tp, DP: dp, PP: pp},
		Micros: micros,
		Costs:  Costs{Layer: Cost{Forward: time.Millisecond, Backward: time.Millisecond, Weight: time.Millisecond}},
	}
}

// fleet is so many devices, all well, on nodes of so many.
func fleet(n, perNode int) []Device {
	out := make([]Device, n)
	for i := range out {
		out[i] = Device{
			ID:    lockstep.DeviceID(fmt.Sprintf("gpu-%05d", i)),
			Node:  lockstep.NodeID(fmt.Sprintf("node-%04d", i/perNode)),
			Leaf:  fmt.Sprintf("leaf-%03d", i/perNode/16),
			Speed: 1,
		}
	}
	return out
}

func healthy(t testing.TB, job Job, devs []Device) *Plan {
	t.Helper()
	p, err := Replan(job, devs, nil, Options{})
	require.NoError(t, err)
	return p
}

// with returns the devices with those at these indices at a speed.
func with(devs []Device, speed float64, at ...int) []Device {
	out := append([]Device(nil), devs...)
	for _, i := range at {
		out[i].Speed = speed
	}
	return out
}
