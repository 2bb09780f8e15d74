package cuda

import (
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/checkpointtest"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
)

var (
	_ checkpoint.Driver    = (*Driver)(nil)
	_ checkpoint.Inspector = (*Driver)(nil)
)

func TestConformance(t *testing.T) {
	each(t, func(t *testing.T, f *cudatest.Fake, d *Driver) {
		checkpointtest.TestDriver(t, func(t *testing.T) checkpointtest.Subject {
			p := f.Start(t)
			return checkpointtest.Subject{
				Driver: d, Target: p.Target, Kill: p.Kill,
				Map: []checkpoint.DevicePair{{Old: lockstep.DeviceID(f.UUID(0)), New: lockstep.DeviceID(f.UUID(1))}},
			}
		})
	})
}
