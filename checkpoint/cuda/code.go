package cuda

import (
	"strings"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// code is a CUresult. The numbers and names are those of the CUDA driver API's
// reference, section "Data types used by CUDA driver".
type code int32

const (
	success        code = 0
	invalidValue   code = 1
	outOfMemory    code = 2
	notInitialized code = 3
	stubLibrary    code = 34
	osCall         code = 304
	illegalState   code = 401
	notReady       code = 600
	notSupported   code = 801
	timedOut       code = 909
)

// meaning is what a code is called, what kind of failure it is, and the text that
// cuGetErrorString has for it, by which the command line tells codes.
type meaning struct {
	code code
	name string
	kind error
	text string
}

// meanings are all codes that the checkpoint functions are known to return,
// documented or not. It is immutable.
var meanings = [...]meaning{
	{success, "CUDA_SUCCESS", nil, "no error"},
	{invalidValue, "CUDA_ERROR_INVALID_VALUE", checkpoint.ErrDriver, "invalid argument"},
	{outOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", checkpoint.ErrMemory, "out of memory"},
	{notInitialized, "CUDA_ERROR_NOT_INITIALIZED", checkpoint.ErrDriver, "initialization error"},
	{stubLibrary, "CUDA_ERROR_STUB_LIBRARY", checkpoint.ErrUnsupported, "cuda driver is a stub library"},
	{36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", checkpoint.ErrUnsupported, "api call is not supported in the installed cuda driver"},
	{100, "CUDA_ERROR_NO_DEVICE", checkpoint.ErrUnsupported, "no cuda-capable device is detected"},
	// 304 comes from state reads of processes that a container or a right hides, and
	// for ever after a Restore that ran out of memory; judge tells the two apart.
	{osCall, "CUDA_ERROR_OPERATING_SYSTEM", checkpoint.ErrPermission, "os call failed or operation not supported on this os"},
	{illegalState, "CUDA_ERROR_ILLEGAL_STATE", checkpoint.ErrIllegalState, "the operation cannot be performed in the present state"},
	{500, "CUDA_ERROR_NOT_FOUND", checkpoint.ErrUnsupported, "named symbol not found"},
	{notReady, "CUDA_ERROR_NOT_READY", checkpoint.ErrTimeout, "device not ready"},
	{notSupported, "CUDA_ERROR_NOT_SUPPORTED", checkpoint.ErrUnsupported, "operation not supported"},
	{803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", checkpoint.ErrUnsupported, "system has unsupported display driver / cuda driver combination"},
	{timedOut, "CUDA_ERROR_TIMEOUT", checkpoint.ErrTimeout, "wait operation timed out"},
	{999, "CUDA_ERROR_UNKNOWN", checkpoint.ErrDriver, "unknown error"},
}

// describe returns what is known of c; of others, that the driver failed.
func describe(c code) meaning {
	for _, m := range meanings {
		if m.code == c {
			return m
		}
	}
	return meaning{code: c, name: "CUDA_ERROR", kind: checkpoint.ErrDriver}
}

// codeOf returns the code whose text is given, 0 where nobody has it.
func codeOf(text string) code {
	text = strings.ToLower(strings.TrimSpace(text))
	for _, m := range meanings[1:] {
		if m.text == text {
			return m.code
		}
	}
	return 0
}

// stateOf turns the driver's number into a state: CUprocessState, whose numbers 4
// and 5 came with CUDA 13.4.
func stateOf(n int) checkpoint.State {
	switch n {
	case 0:
		return checkpoint.Running
	case 1:
		return checkpoint.Locked
	case 2:
		return checkpoint.Checkpointed
	case 3:
		return checkpoint.Failed
	case 4:
		return checkpoint.Checkpointing
	case 5:
		return checkpoint.Restoring
	}
	return checkpoint.UnknownState(n)
}
