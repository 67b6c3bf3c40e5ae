package page

// Tests of the words of GPU time.

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

// TestTurnWakes: a tenant that sleeps on a closed lease, on a mapping that it can only read, is woken when
// it opens; the other words are there by then.
func TestTurnWakes(t *testing.T) {
	c := newControl(t)
	c.SetTurn(1, Turn{Lease: 5<<1 | abi.LeaseClosed, Rivals: true})
	memory := tenantMapping(t, duplicate(t, c), unix.PROT_READ)
	g := &(*abi.ControlPage)(unsafe.Pointer(&memory[0])).Gpus[1]
	if g.Lease != 5<<1|abi.LeaseClosed || g.Turns != abi.TurnsRivals || g.Window_us != 0 {
		t.Fatalf("closed: %+v", g)
	}
	woken := make(chan unix.Errno)
	const futexWait = 0
	go func() {
		limit := unix.NsecToTimespec(20 * int64(time.Second))
		_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&g.Lease)), futexWait,
			5<<1|abi.LeaseClosed, uintptr(unsafe.Pointer(&limit)), 0, 0)
		woken <- errno
	}()
	time.Sleep(10 * time.Millisecond) // asleep by now, or about to find the word changed
	c.SetTurn(1, Turn{Lease: 6 << 1, Window: 4000, WaitMax: 30_000, Rivals: false})
	if errno := <-woken; errno != 0 && errno != unix.EAGAIN {
		t.Errorf("the sleeper: %v", errno)
	}
	if g.Lease != 6<<1 || g.Window_us != 4000 || g.Wait_ms_max != 30_000 || g.Turns != abi.TurnsAlone {
		t.Errorf("open: %+v", g)
	}
	c.SetTurn(1, Turn{Lease: 7 << 1, Rivals: true, Beside: true})
	if g.Lease != 7<<1 || g.Turns != abi.TurnsBeside {
		t.Errorf("beside others' work: %+v", g)
	}
}

// TestWorked reads what the tenant wrote, of the GPU that is meant.
func TestWorked(t *testing.T) {
	u, fd := newUsage(t)
	memory := tenantMapping(t, fd, unix.PROT_READ|unix.PROT_WRITE)
	g := &(*abi.UsagePage)(unsafe.Pointer(&memory[0])).Gpus[3]
	g.Active, g.Waiting = 9, 2
	g.Submitted, g.Completed, g.Work_ns, g.Busy_ns, g.Ungated = 1, 2, 3, 4, 5
	want := Worked{Submitted: 1, Completed: 2, WorkNS: 3, BusyNS: 4, Ungated: 5, Waiting: 2}
	if got := u.Worked(3); got != want || !u.Active(3) {
		t.Errorf("got %+v, active %v", got, u.Active(3))
	}
	if got := u.Worked(2); got != (Worked{}) || u.Active(2) {
		t.Errorf("of another GPU: %+v, active %v", got, u.Active(2))
	}
}
