//go:build !cgo || !linux

package nvml

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// errStub is what all calls return.
func errStub() error {
	return unavailable("", "", "this build has no NVML, which takes cgo and Linux")
}

// Library is a loaded library.
type Library struct{}

// Open returns ErrUnavailable.
func Open(Config) (*Library, error) { return nil, errStub() }

// Close returns nil.
func (l *Library) Close() error { return nil }

// Version returns ErrUnavailable.
func (l *Library) Version() (Version, error) { return Version{}, errStub() }

// Count returns ErrUnavailable.
func (l *Library) Count() (int, error) { return 0, errStub() }

// Device returns ErrUnavailable.
func (l *Library) Device(int) (*Device, error) { return nil, errStub() }

// Events are a watch for events of devices.
type Events struct{}

// Events returns ErrUnavailable.
func (l *Library) Events([]*Device, EventKind) (*Events, error) { return nil, errStub() }

// Wait returns ErrUnavailable.
func (e *Events) Wait(time.Duration) (Event, bool, error) { return Event{}, false, errStub() }

// Close returns nil.
func (e *Events) Close() error { return nil }

// Device is a GPU.
type Device struct{}

// Index returns 0.
func (d *Device) Index() int { return 0 }

// UUID returns ErrUnavailable.
func (d *Device) UUID() (string, error) { return "", errStub() }

// Name returns ErrUnavailable.
func (d *Device) Name() (string, error) { return "", errStub() }

// Minor returns ErrUnavailable.
func (d *Device) Minor() (int, error) { return 0, errStub() }

// Bus returns ErrUnavailable.
func (d *Device) Bus() (string, error) { return "", errStub() }

// Memory returns ErrUnavailable.
func (d *Device) Memory() (lockstep.Bytes, error) { return 0, errStub() }

// Capability returns ErrUnavailable.
func (d *Device) Capability() (int, error) { return 0, errStub() }

// PCIe returns ErrUnavailable.
func (d *Device) PCIe() (PCIe, error) { return PCIe{}, errStub() }

// CPUs returns ErrUnavailable.
func (d *Device) CPUs() ([]int, error) { return nil, errStub() }

// NUMA returns ErrUnavailable.
func (d *Device) NUMA() ([]int, error) { return nil, errStub() }

// Own returns ErrUnavailable.
func (d *Device) Own() (int, error) { return 0, errStub() }

// Ancestor returns ErrUnavailable.
func (d *Device) Ancestor(*Device) (Ancestor, error) { return 0, errStub() }

// P2P returns ErrUnavailable.
func (d *Device) P2P(*Device, Access) (int, error) { return 0, errStub() }

// NVLinks returns ErrUnavailable.
func (d *Device) NVLinks() ([]NVLink, error) { return nil, errStub() }

// Fabric returns ErrUnavailable.
func (d *Device) Fabric() (Fabric, error) { return Fabric{}, errStub() }

// MIG returns ErrUnavailable.
func (d *Device) MIG() (MIG, error) { return MIG{}, errStub() }

// ECC returns ErrUnavailable.
func (d *Device) ECC() (ECC, error) { return ECC{}, errStub() }

// Rows returns ErrUnavailable.
func (d *Device) Rows() (Rows, error) { return Rows{}, errStub() }

// Recovery returns ErrUnavailable.
func (d *Device) Recovery() (int, error) { return 0, errStub() }

// Temperature returns ErrUnavailable.
func (d *Device) Temperature() (int, error) { return 0, errStub() }

// Clocks returns ErrUnavailable.
func (d *Device) Clocks() (Clocks, error) { return Clocks{}, errStub() }
