// Faults that are armed in a machine: driver functions that fail, kernels that never end, moves of data
// that go wrong, cards that fall off the bus.

package sim

// #include <stdlib.h>
// #include "machine.h"
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unsafe"
)

// Fault says which use of a driver function fails, of all uses by the processes that it names.
type Fault struct {
	ID       int    `json:"id"`
	Function string `json:"function"` // "cuMemAlloc": all its forms; "kernel", "move_lost": see fault.h
	Process  string `json:"process"`  // a program's name, its first 15 letters; empty: any
	PID      int    `json:"pid"`      // as the process sees itself; 0: any
	Nth      int64  `json:"nth"`      // the first use that fails, from 1
	Times    int64  `json:"times"`    // how many fail; 0: all from then on
	Code     int64  `json:"code"`     // CUDA's number of the error
	Used     int64  `json:"used"`     // uses so far
}

var (
	// ErrBadFault says that a text is no fault.
	ErrBadFault = errors.New("not a fault such as cuMemAlloc:3=2, cuMemFree:1+=999 or kernel:4")
	// ErrNoFault says that no fault of a number is armed.
	ErrNoFault = errors.New("no such fault")
	// ErrTooManyFaults says that no more can be armed.
	ErrTooManyFaults = errors.New("too many faults are armed")
	// ErrNoGPU says that the machine has no such GPU.
	ErrNoGPU = errors.New("no such GPU")
)

// ParseFault reads "function[:nth][+|*times][=code]": "cuMemAlloc:3=2" is the third use,
// "cuMemFree:1+=999" each. ErrBadFault.
func ParseFault(text string) (Fault, error) {
	from := C.CString(text)
	defer C.free(unsafe.Pointer(from))
	var fault C.struct_sim_fault
	rc := C.sim_fault_parse(from, C.uint32_t(len(text)), &fault)
	parsed := faultFrom(0, &fault, 0)
	driverFunction := strings.HasPrefix(parsed.Function, "cu") || C.sim_fault_is_event(&fault) != 0
	if rc != 0 || !driverFunction {
		return Fault{}, fmt.Errorf("%.60q: %w", text, ErrBadFault)
	}
	return parsed, nil
}

func faultFrom(id int, fault *C.struct_sim_fault, used uint64) Fault {
	return Fault{
		ID:       id,
		Function: C.GoString(&fault.function[0]),
		Process:  C.GoString(&fault.process[0]),
		PID:      int(fault.pid),
		Nth:      int64(fault.nth),
		Times:    int64(fault.times),
		Code:     int64(fault.code),
		Used:     int64(used),
	}
}

// Arm arms a fault and returns its number. ErrBadFault, ErrTooManyFaults.
func (r *Running) Arm(fault Fault) (int, error) {
	armed := C.struct_sim_fault{
		pid:   C.int32_t(fault.PID),
		nth:   C.uint32_t(fault.Nth),
		times: C.uint32_t(fault.Times),
		code:  C.uint32_t(fault.Code),
	}
	putString(armed.function[:], fault.Function)
	putString(armed.process[:], fault.Process)
	var id C.uint32_t
	switch rc := syscall.Errno(C.sim_fault_arm(r.machine, &armed, &id)); rc {
	case 0:
		return int(id), nil
	case syscall.EINVAL:
		return 0, fmt.Errorf("%.60q: %w", fault.Function, ErrBadFault)
	case syscall.ENOSPC:
		return 0, ErrTooManyFaults
	default:
		return 0, fmt.Errorf("arming a fault: %w", rc)
	}
}

// Faults lists what is armed.
func (r *Running) Faults() []Fault {
	faults := []Fault{}
	for id := range C.SIM_FAULTS_MAX {
		var fault C.struct_sim_fault
		var used C.uint64_t
		if C.sim_fault_look(r.machine, C.uint32_t(id), &fault, &used) == 0 {
			faults = append(faults, faultFrom(id, &fault, uint64(used)))
		}
	}
	return faults
}

// ClearFault disarms a fault by its number. ErrNoFault.
func (r *Running) ClearFault(id int) error {
	if id < 0 || C.sim_fault_clear(r.machine, C.uint32_t(id)) != 0 {
		return fmt.Errorf("%w: %d", ErrNoFault, id)
	}
	return nil
}

// Lose makes a card fall off the bus: every call on it gives the code. Code 0: it is back. ErrNoGPU.
func (r *Running) Lose(gpu int, code int) error {
	if gpu < 0 || code < 0 || C.sim_gpu_lose(r.machine, C.uint(gpu), C.uint32_t(code)) != 0 {
		return fmt.Errorf("%w: %d, or no such code: %d", ErrNoGPU, gpu, code)
	}
	return nil
}
