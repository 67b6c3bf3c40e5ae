package page

// The words of GPU time: what the agent shows in the control page of leases, and what a process says in
// its usage page of what it does.

import (
	"math"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

// Turn is what the control page says of GPU time on one GPU.
type Turn struct {
	// Lease is the number of the lease, with abi.LeaseClosed in bit 0; 0: there are no leases.
	Lease uint32
	// Window is what one process may have in flight, in us of expected work; 0: as much as it likes.
	Window uint32
	// WaitMax is the longest that a launch waits at the gate, in ms.
	WaitMax uint32
	// Rivals: others use the GPU, so the agent wants to hear of idleness at once.
	Rivals bool
	// Beside: work of others runs beside the lease, so what launches take cannot be measured.
	Beside bool
}

// Open tells whether launches need not wait.
func (t Turn) Open() bool { return t.Lease&abi.LeaseClosed == 0 }

// SetTurn shows a turn: the lease is the last word to change, and who waits for it to open is woken. It may
// be called at the same time as the other methods, but not as another SetTurn, or Close.
func (c *Control) SetTurn(gpu int, t Turn) {
	g := &(*abi.ControlPage)(c.at(0)).Gpus[gpu]
	turns := uint32(abi.TurnsAlone)
	switch {
	case t.Beside:
		turns = abi.TurnsBeside
	case t.Rivals:
		turns = abi.TurnsRivals
	}
	atomic.StoreUint32(&g.Window_us, t.Window)
	atomic.StoreUint32(&g.Wait_ms_max, t.WaitMax)
	atomic.StoreUint32(&g.Turns, turns)
	was := atomic.SwapUint32(&g.Lease, t.Lease)
	if was&abi.LeaseClosed != 0 && t.Open() {
		wake(&g.Lease)
	}
}

// wake ends all waits on a word of the page.
func wake(word *uint32) {
	const futexWake, everyone = 1, math.MaxInt32
	unix.Syscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, everyone)
}

// Worked is what a process says that it has done on a GPU since it began. All of it may be a lie.
type Worked struct {
	Submitted, Completed uint64 // operations
	WorkNS               uint64 // what those submitted were expected to take
	BusyNS               uint64 // with any of them outstanding
	Ungated              uint64 // of those submitted, how many went through a closed gate
	Waiting              uint32 // threads that wait at the gate now
}

// Active tells whether the process says that it uses the GPU.
func (u *Usage) Active(gpu int) bool {
	return atomic.LoadUint32(&(*abi.UsagePage)(u.at(0)).Gpus[gpu].Active) != 0
}

// Worked reads what the process says that it has done on a GPU.
func (u *Usage) Worked(gpu int) Worked {
	g := &(*abi.UsagePage)(u.at(0)).Gpus[gpu]
	return Worked{
		Submitted: atomic.LoadUint64(&g.Submitted), Completed: atomic.LoadUint64(&g.Completed),
		WorkNS: atomic.LoadUint64(&g.Work_ns), BusyNS: atomic.LoadUint64(&g.Busy_ns),
		Ungated: atomic.LoadUint64(&g.Ungated), Waiting: atomic.LoadUint32(&g.Waiting),
	}
}
