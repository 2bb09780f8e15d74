//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lockstep-gpu/lockstep/checkpoint/cudalog"
)

// driver is the library, loaded at run time.
type driver struct{ handle uintptr }

// open loads the library and initialises it.
func open(path string) (*driver, error) {
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	d := &driver{h}
	return d, d.call("cuInit", 0)
}

// call makes one call and turns its result into an error.
func (d *driver) call(name string, args ...uintptr) error {
	f, err := purego.Dlsym(d.handle, name)
	if err != nil {
		return err
	}
	if r, _, _ := purego.SyscallN(f, args...); uint32(r) != 0 {
		return fmt.Errorf("%s: CUDA error %d", name, uint32(r))
	}
	return nil
}

// make makes one object whose handle the library writes to its first argument.
func (d *driver) make(name string, args ...uintptr) (uint64, error) {
	var out uint64
	var pin runtime.Pinner
	pin.Pin(&out)
	defer pin.Unpin()
	err := d.call(name, append([]uintptr{uintptr(unsafe.Pointer(&out))}, args...)...)
	return out, err
}

func (d *driver) newContext(flags uint32) (uint64, error) {
	return d.make("cuCtxCreate_v2", uintptr(flags), 0)
}

func (d *driver) newStream(flags uint32) (uint64, error) {
	return d.make("cuStreamCreate", uintptr(flags))
}

func (d *driver) newEvent(flags uint32) (uint64, error) {
	return d.make("cuEventCreate", uintptr(flags))
}

// property and access are CUmemAllocationProp and CUmemAccessDesc for memory on device 0: a pinned allocation on a
// device (1, 0, 1, 0) and reading and writing from there (1, 0, 3).
type (
	property struct {
		kind, handles, locationType, location int32
		_                                     [16]byte
	}
	access struct{ locationType, location, flags int32 }
)

// restore brings a range of memory back at its address.
func (d *driver) restore(res cudalog.Reservation) error {
	at, err := d.make("cuMemAddressReserve", uintptr(res.Size), 0, uintptr(res.Addr), 0)
	if err != nil {
		return err
	}
	if at != res.Addr {
		return fmt.Errorf("reserved %#x in place of %#x", at, res.Addr)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, m := range res.Maps {
		prop := &property{kind: 1, locationType: 1, location: int32(m.Device)}
		desc := &access{locationType: 1, location: int32(m.Device), flags: 3}
		pin.Pin(prop)
		pin.Pin(desc)
		h, err := d.make("cuMemCreate", uintptr(m.Size), uintptr(unsafe.Pointer(prop)), 0)
		if err != nil {
			return err
		}
		if err := d.call("cuMemMap", uintptr(m.Addr), uintptr(m.Size), 0, uintptr(h), 0); err != nil {
			return err
		}
		if err := d.call("cuMemSetAccess", uintptr(m.Addr), uintptr(m.Size), uintptr(unsafe.Pointer(desc)), 1); err != nil {
			return err
		}
	}
	return nil
}

// roundTrip writes text to device memory and reads it back.
func (d *driver) roundTrip(at uint64, text string) (string, error) {
	in, out := []byte(text), make([]byte, len(text))
	var pin runtime.Pinner
	pin.Pin(&in[0])
	pin.Pin(&out[0])
	defer pin.Unpin()
	if err := d.call("cuMemcpyHtoD_v2", uintptr(at), uintptr(unsafe.Pointer(&in[0])), uintptr(len(in))); err != nil {
		return "", err
	}
	err := d.call("cuMemcpyDtoH_v2", uintptr(unsafe.Pointer(&out[0])), uintptr(at), uintptr(len(out)))
	return string(out), err
}
