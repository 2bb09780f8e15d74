package cuda

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// Why something cannot be done. The facts are those that NVIDIA documents for
// cuda-checkpoint or that its users report.
const (
	ReasonLibrary     lockstep.Reason = "library"     // ReasonLibrary: no driver's library, or program, was found that works.
	ReasonFunction    lockstep.Reason = "function"    // ReasonFunction: the library lacks a function, or the program an option.
	ReasonVersion     lockstep.Reason = "version"     // ReasonVersion: the driver is too old.
	ReasonMachine     lockstep.Reason = "machine"     // ReasonMachine: not with processors of this kind.
	ReasonManaged     lockstep.Reason = "managed"     // ReasonManaged: targets with managed (UVM) memory; it cannot be seen beforehand.
	ReasonMIG         lockstep.Reason = "mig"         // ReasonMIG: devices that are cut into instances.
	ReasonMPS         lockstep.Reason = "mps"         // ReasonMPS: targets that share a device through MPS.
	ReasonIPC         lockstep.Reason = "ipc"         // ReasonIPC: targets that share device memory with other processes.
	ReasonNCCL        lockstep.Reason = "nccl"        // ReasonNCCL: communicators with NVLink SHARP or multicast; suspend them first (NCCL 2.29.7).
	ReasonProfiler    lockstep.Reason = "profiler"    // ReasonProfiler: targets under CUPTI or a debugger.
	ReasonElsewhere   lockstep.Reason = "elsewhere"   // ReasonElsewhere: another driver of this module does it.
	ReasonStopped     lockstep.Reason = "stopped"     // ReasonStopped: the target is stopped or frozen.
	ReasonNamespace   lockstep.Reason = "namespace"   // ReasonNamespace: /proc and this process count processes differently.
	ReasonRights      lockstep.Reason = "rights"      // ReasonRights: this process may not look into the target; it needs CAP_SYS_PTRACE.
	ReasonNoCUDA      lockstep.Reason = "no-cuda"     // ReasonNoCUDA: the target has not loaded the driver's library.
	ReasonPersistence lockstep.Reason = "persistence" // ReasonPersistence: persistence mode is off and no process keeps the driver initialised.
	ReasonMemory      lockstep.Reason = "memory"      // ReasonMemory: the host lacks memory for what the target has on devices.
)

// Releases of the driver in which something appeared, as its users report: arm64 in
// 595 (before, Lock works and Checkpoint does not), CUDA IPC inside a job in 610.
const (
	armRelease = 595
	ipcRelease = 610
)

// capsOf says what can be done with what was found.
func capsOf(name string, f found, arch string) checkpoint.Caps {
	c := checkpoint.Caps{Driver: name, Version: versionText(f.Version)}
	if c.Version == "" && f.Release > 0 {
		c.Version = "release " + strconv.Itoa(f.Release)
	}
	abilities := []struct {
		what   checkpoint.Ability
		reason lockstep.Reason
		detail string
	}{
		{checkpoint.CanLock, "", ""},
		{checkpoint.CanSuspend, "", ""},
		{checkpoint.CanRemap, "", ""},
		{checkpoint.CanIPC, "", ""},
		{checkpoint.CanImage, ReasonElsewhere, "a suspended target is an ordinary process: CRIU writes it"},
		{checkpoint.CanTree, ReasonElsewhere, "one process a call"},
	}
	for i := range abilities {
		a := &abilities[i]
		if a.reason == "" {
			a.reason, a.detail = obstacle(a.what, f, arch)
		}
		if a.reason == "" {
			c.Abilities = append(c.Abilities, a.what)
			continue
		}
		c.Limits = append(c.Limits, checkpoint.Unsupported{What: a.what, Reason: a.reason, Detail: a.detail})
	}
	if c.Can(checkpoint.CanSuspend) {
		c.Limits = append(c.Limits, always(c.Can(checkpoint.CanIPC))...)
	}
	slices.Sort(c.Abilities)
	sortLimits(c.Limits)
	return c
}

// needs are the functions without which an ability is none. It is immutable.
var needs = map[checkpoint.Ability][]string{
	checkpoint.CanLock:    {getState, functions[lock], functions[unlock]},
	checkpoint.CanSuspend: {getState, functions[lock], functions[unlock], functions[suspend], functions[resume]},
	checkpoint.CanRemap:   {getState, functions[lock], functions[unlock], functions[suspend], functions[resume], deviceMap},
	checkpoint.CanIPC:     {getState, functions[lock], functions[unlock], functions[suspend], functions[resume]},
}

// obstacle says what keeps an ability from being one, "" if nothing does.
func obstacle(what checkpoint.Ability, f found, arch string) (lockstep.Reason, string) {
	if f.Absent != "" {
		return ReasonLibrary, strings.ReplaceAll(f.Absent, "\n", "; ")
	}
	var missing []string
	for _, name := range needs[what] {
		if slices.Contains(f.Missing, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return ReasonFunction, f.Where + " has no " + strings.Join(missing, ", ")
	}
	if f.Version > 0 && f.Version < 12080 {
		return ReasonVersion, "CUDA " + versionText(f.Version) + ", want 12.8"
	}
	if what == checkpoint.CanRemap && f.Version > 0 && f.Version < 13000 {
		return ReasonVersion, "CUDA " + versionText(f.Version) + ", want 13.0"
	}
	if what != checkpoint.CanLock && arch == "arm64" && f.Release < armRelease {
		return ReasonMachine, "arm64 wants release 595, here is " + releaseText(f.Release)
	}
	if what == checkpoint.CanIPC && f.Release < ipcRelease {
		return ReasonVersion, "want release 610, here is " + releaseText(f.Release)
	}
	return "", ""
}

func releaseText(n int) string {
	if n == 0 {
		return "an unknown one"
	}
	return strconv.Itoa(n)
}

// always are the limits that no version lifts, or that cannot be seen.
func always(ipc bool) []checkpoint.Unsupported {
	list := []checkpoint.Unsupported{
		{What: checkpoint.CanSuspend, Reason: ReasonManaged, Detail: "managed memory is not saved, and the target may be lost"},
		{What: checkpoint.CanSuspend, Reason: ReasonMIG, Detail: "the driver says that memory is out"},
		{What: checkpoint.CanSuspend, Reason: ReasonMPS, Detail: "clients of MPS are refused"},
		{What: checkpoint.CanSuspend, Reason: ReasonNCCL, Detail: "multicast memory hangs; suspend communicators first"},
		{What: checkpoint.CanSuspend, Reason: ReasonProfiler, Detail: "profilers and debuggers hold the target"},
	}
	if ipc {
		list = append(list, checkpoint.Unsupported{What: checkpoint.CanIPC, Reason: ReasonIPC, Detail: "only in a job that cuda-checkpoint --launch-job started, one member after another"})
	}
	return list
}

func sortLimits(list []checkpoint.Unsupported) {
	slices.SortFunc(list, func(a, b checkpoint.Unsupported) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Detail, b.Detail))
	})
}
