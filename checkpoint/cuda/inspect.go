package cuda

import (
	"context"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// Inspect says what stands in the way of pausing t, as far as /proc and the host's
// Facts show it. It calls no driver, so it can be asked of a target that the driver
// would hang on. What cannot be seen, such as managed memory, is among Probe's limits.
func (d *Driver) Inspect(ctx context.Context, t checkpoint.Target) ([]checkpoint.Unsupported, error) {
	const call = "inspect"
	if !supported {
		return nil, noSystem(call, t)
	}
	if err := ctx.Err(); err != nil {
		return nil, &checkpoint.DriverError{Kind: checkpoint.ErrTimeout, Call: call, PID: t.PID, Err: err}
	}
	p, ok, err := alive(call, t)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, gone(call, t)
	case p.kernel:
		return nil, wrong(call, t, invalid(call, "PID", strconv.Itoa(t.PID), "is a thread of the kernel"))
	}
	var list []checkpoint.Unsupported
	add := func(what checkpoint.Ability, reason lockstep.Reason, detail string) {
		list = append(list, checkpoint.Unsupported{What: what, Reason: reason, Detail: detail})
	}
	if why := halted(t.PID, p); why != "" {
		add(checkpoint.CanLock, ReasonStopped, why)
	}
	if why := foreign(); why != "" {
		add(checkpoint.CanLock, ReasonNamespace, why)
	}
	switch text, err := maps(t.PID); {
	case err != nil:
		add(checkpoint.CanLock, ReasonRights, "its memory map cannot be read; want CAP_SYS_PTRACE, or its user, and no hidepid: "+err.Error())
	// Children of a CUDA process may keep a device open and never use it.
	case !strings.Contains(text, "libcuda.so") && !strings.Contains(text, "/dev/nvidia"):
		add(checkpoint.CanLock, ReasonNoCUDA, "it has mapped neither libcuda nor a device")
	}
	d.inspectDevices(ctx, t, add)
	sortLimits(list)
	return list, nil
}

// inspectDevices adds what the host's facts show.
func (d *Driver) inspectDevices(ctx context.Context, t checkpoint.Target, add func(checkpoint.Ability, lockstep.Reason, string)) {
	list := d.ask(ctx, t.PID)
	for _, dev := range list {
		if dev.Held <= 0 {
			continue
		}
		if dev.MIG {
			add(checkpoint.CanSuspend, ReasonMIG, string(dev.ID)+" is in MIG mode")
		}
		// A driver that lives in a process of its own, once for each call, does not
		// keep a device initialised between Suspend and Resume.
		if _, brief := d.backend.(*cli); brief && !dev.Persistent {
			add(checkpoint.CanSuspend, ReasonPersistence, "persistence mode of "+string(dev.ID)+" is off")
		}
	}
	if left, ok := available(); ok && total(list) > lockstep.Bytes(left) {
		add(checkpoint.CanSuspend, ReasonMemory, "it has "+strconv.FormatInt(int64(total(list)), 10)+" bytes on devices, the host has room for "+strconv.FormatInt(left, 10))
	}
}
