package sessiontest

// A tenant's part in GPU time, said by hand: what a test wants to be said, and what the pages show.

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

// turnMessages are the messages of GPU time by their names.
var turnMessages = map[string]uint16{
	"want": abi.MsgWant, "drained": abi.MsgDrained, "progress": abi.MsgProgress, "idle": abi.MsgIdle,
}

// SayTurn sends a message of GPU time: want, drained, progress or idle.
func (t *Tenant) SayTurn(kind string, gpu, lease, waiting uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		return fmt.Errorf("%s: there is no connection", kind)
	}
	return t.conn.Send(Packet(turnMessages[kind], 0, &abi.Turn{Gpu: gpu, Lease: lease, Waiting: waiting}))
}

// Lease is the lease word of a GPU.
func (t *Tenant) Lease(gpu int) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return atomic.LoadUint32(&t.control.Gpus[gpu].Lease)
}

// Window is what may be in flight on a GPU, in us; waitMax the longest wait in ms; rivals, whether there are others.
func (t *Tenant) Window(gpu int) (us, waitMax, rivals uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := &t.control.Gpus[gpu]
	return atomic.LoadUint32(&g.Window_us), atomic.LoadUint32(&g.Wait_ms_max), atomic.LoadUint32(&g.Turns)
}

// Work writes the words of GPU time: whether the process is active, how many operations it has submitted
// and are done, and how long it was busy in ns.
func (t *Tenant) Work(gpu int, active bool, submitted, completed, busyNS uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := &t.usage.Gpus[gpu]
	atomic.StoreUint64(&g.Submitted, submitted)
	atomic.StoreUint64(&g.Completed, completed)
	atomic.StoreUint64(&g.Work_ns, 1000*submitted)
	atomic.StoreUint64(&g.Busy_ns, busyNS)
	word := uint32(0)
	if active {
		word = 1
	}
	atomic.StoreUint32(&g.Active, word)
}

// Looks takes what LOOKs have come since the last call: how many, and the GPU and lease of the latest. No question
// may be under way.
func (t *Tenant) Looks() (count int, last abi.Turn, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.conn != nil {
		packet, _, err := t.conn.ReceiveWithin(0)
		if err != nil {
			break // there is none
		}
		if Type(packet) == abi.MsgMove {
			if err := t.keepMoves(packet); err != nil {
				return count, last, err
			}
			continue
		}
		if Type(packet) != abi.MsgLook {
			return count, last, fmt.Errorf("message of type %d", Type(packet))
		}
		if err := Decode(packet, &last); err != nil {
			return count, last, err
		}
		count++
	}
	return count, last, nil
}

// AwaitOpen sleeps until a GPU's lease word is open, as a thread at the gate does.
func (t *Tenant) AwaitOpen(gpu int) {
	word := &t.control.Gpus[gpu].Lease
	const futexWait = 0
	for {
		seen := atomic.LoadUint32(word)
		if seen&abi.LeaseClosed == 0 {
			return
		}
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(seen), 0, 0, 0)
	}
}
