// GPU time: launches at the gate, and what the helper says of them.

package hosttest

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

const (
	leaseAt   = pageGPUs + unsafe.Offsetof(abi.GPUControl{}.Lease)
	windowAt  = pageGPUs + unsafe.Offsetof(abi.GPUControl{}.Window_us)
	waitMaxAt = pageGPUs + unsafe.Offsetof(abi.GPUControl{}.Wait_ms_max)
	turnsAt   = pageGPUs + unsafe.Offsetof(abi.GPUControl{}.Turns)
	// A stream's number is that of its context times this, and something; the primary context of GPU 0 is 1.
	streams          = 256
	streamA, streamB = streams + 70, streams + 71

	activeAt = pageCredit + unsafe.Offsetof(abi.GPUUsage{}.Active)
	workAt   = pageCredit + unsafe.Offsetof(abi.GPUUsage{}.Work_ns)
)

func open(number uint32) uint32   { return number << 1 }
func closed(number uint32) uint32 { return number<<1 | abi.LeaseClosed }

// setLease writes the lease of GPU 0 and wakes who waits for it.
func (a *agent) setLease(word uint32) { a.setLeaseOf(0, word) }

func (a *agent) setLeaseOf(gpu uintptr, word uint32) {
	a.mu.Lock()
	at := a.control.word32(leaseAt + gpu*unsafe.Sizeof(abi.GPUControl{}))
	a.mu.Unlock()
	atomic.StoreUint32(at, word)
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(at)), 1, 1<<30, 0, 0, 0)
}

// look has the library look at GPU 0.
func (a *agent) look(s *session, number uint32) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	turn := abi.Turn{Header: abi.Header{Type: abi.MsgLook, Bytes: uint16(unsafe.Sizeof(abi.Turn{}))}, Lease: number}
	if err := a.send(s, turn, nil); err != nil {
		a.t.Errorf("LOOK: %v", err)
	}
}

// said waits until something was said of a lease of GPU 0, and returns it.
func (a *agent) said(kind uint16, number uint32) (turn abi.Turn) {
	a.t.Helper()
	return a.saidOf(0, kind, number)
}

func (a *agent) saidOf(gpu uint32, kind uint16, number uint32) (turn abi.Turn) {
	a.t.Helper()
	a.eventually("a message about GPU time", func() bool {
		for _, one := range a.turns {
			if one.Header.Type == kind && one.Lease == number && one.Gpu == gpu {
				turn = one
				return true
			}
		}
		return false
	})
	return turn
}

func (a *agent) times(kind uint16, number uint32) (count int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.turns {
		if one.Header.Type == kind && one.Lease == number {
			count++
		}
	}
	return count
}

// stays checks that a host does not answer for a while.
func (h *host) stays(d time.Duration) {
	h.t.Helper()
	select {
	case line := <-h.lines:
		h.t.Fatalf("answered %q", line)
	case <-time.After(d):
	}
}

func (h *host) answers(want string) {
	h.t.Helper()
	if got := h.answer(); got != want {
		h.t.Fatalf("answered %q, want %q", got, want)
	}
}

// startTime starts a program that has memory, and so a session, on an agent with rivals on GPU 0.
func startTime(t *testing.T, b *build) (*agent, *host, *session) {
	t.Helper()
	a := newAgent(t)
	a.start()
	*a.control.word32(turnsAt) = abi.TurnsRivals
	*a.control.word32(waitMaxAt) = 20000
	h := startHost(t, b, a.path)
	h.ok("alloc %d", mib)
	return a, h, a.session(h, 1)
}

func TestClosedGate(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	h.ok("kernel 10")
	if got := atomic.LoadUint32(s.usage.word32(activeAt)); got != 1 {
		t.Errorf("active is %d after a launch", got)
	}
	a.look(s, 0)
	a.said(abi.MsgIdle, 0)
	a.setLease(closed(1))
	h.send("kernel 10")
	a.said(abi.MsgWant, 1)
	h.stays(150 * time.Millisecond)
	if got := atomic.LoadUint32(s.usage.word32(activeAt)); got != 1 {
		t.Errorf("active is %d while a thread waits", got)
	}
	if n := a.times(abi.MsgWant, 1); n != 1 {
		t.Errorf("WANT was said %d times", n)
	}
	a.setLease(open(2))
	h.answers("ok 0")
	a.look(s, 2)
	a.said(abi.MsgIdle, 2)
	if got := h.ok("worked"); got[0] != 2 || got[2] != 1 || got[3]+got[4]+got[5] != 0 {
		t.Errorf("worked: %v", got)
	}
}

// A drain is over when the last launch is done, and not before.
func TestDrained(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	a.setLease(open(3))
	h.ok("hold 1")
	h.ok("kernel 10")
	h.ok("kernel 10 %d", streamA)
	a.setLease(closed(3))
	a.look(s, 3)
	h.send("kernel 10")
	h.stays(100 * time.Millisecond)
	if n := a.times(abi.MsgDrained, 3); n != 0 {
		t.Fatalf("DRAINED was said %d times with work outstanding", n)
	}
	a.setLease(open(4)) // lets the thread go, so that this program can be told more
	h.answers("ok 0")
	h.ok("hold 0")
	a.setLease(closed(4))
	a.look(s, 4)
	a.said(abi.MsgDrained, 4)
	// The helper may have seen the page before it was told to look.
	if n := a.times(abi.MsgDrained, 4); n > 2 {
		t.Errorf("DRAINED was said %d times", n)
	}
	a.said(abi.MsgIdle, 4)
}

// The end of the agent frees who waits, and nobody waits while there is none.
func TestAgentEndsAtTheGate(t *testing.T) {
	t.Parallel()
	a, h, _ := startTime(t, plain)
	a.setLease(closed(1))
	h.send("kernel 10")
	a.said(abi.MsgWant, 1)
	a.stop()
	h.answers("ok 0")
	h.ok("kernel 10")
	a.turns = nil
	a.start()
	s := a.session(h, 2)
	h.ok("kernel 10")
	a.setLease(closed(9))
	h.send("kernel 10")
	a.said(abi.MsgWant, 9)
	a.setLease(open(10))
	h.answers("ok 0")
	a.look(s, 10)
	a.said(abi.MsgIdle, 10)
}

// Who has waited as long as it may goes on, and does not wait for the same lease again.
func TestGateWaitEnds(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	*a.control.word32(waitMaxAt) = 150
	a.setLease(closed(1))
	h.ok("kernel 10")
	h.ok("kernel 10;kernel 10;kernel 10")
	if got := h.ok("worked"); got[2] != 1 || got[3] != 4 {
		t.Errorf("%d launches waited and %d went through closed, want 1 and 4", got[2], got[3])
	}
	a.look(s, 1)
	a.said(abi.MsgIdle, 1)
	if got := *s.usage.word64(pageCredit + unsafe.Offsetof(abi.GPUUsage{}.Ungated)); got != 4 {
		t.Errorf("the page says that %d were ungated", got)
	}
}

// A drain says what it comes to, and only its end ends it.
func TestDrainProgress(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	a.setLease(open(3))
	for range 12 {
		h.ok("kernel 20000 %d", streamA)
		h.ok("kernel 1000 %d", streamB)
	}
	a.setLease(closed(3))
	a.look(s, 3)
	a.said(abi.MsgProgress, 3)
	a.said(abi.MsgDrained, 3)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, one := range a.turns {
		if one.Header.Type == abi.MsgDrained && i < len(a.turns)-1 && a.turns[i+1].Header.Type == abi.MsgProgress {
			t.Error("PROGRESS was said after DRAINED")
		}
	}
}

// Beside others' work on a lease nothing is learned of what launches take, as with an open gate; without, with the first.
func TestNothingIsLearnedBesideOthers(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	work := func(number uint32) uint64 {
		a.setLease(open(number))
		h.ok("kernel 3000 %d", streamA)
		a.look(s, number)
		a.said(abi.MsgIdle, number)
		return atomic.LoadUint64(s.usage.word64(workAt))
	}
	*a.control.word32(turnsAt) = abi.TurnsBeside
	for number := uint32(2); number < 6; number++ {
		if got := work(number); got > uint64(time.Millisecond) {
			t.Fatalf("lease %d: launches that cannot be measured are to take %d ns", number, got)
		}
	}
	*a.control.word32(turnsAt) = abi.TurnsRivals
	number := uint32(6)
	for got := uint64(0); got < uint64(3*time.Millisecond); number++ {
		if got = work(number); number == 60 {
			t.Fatalf("launches that have been measured are to take %d ns", got)
		}
	}
}

// The helper records nothing: in the default stream that would add an order between streams, and in any it
// would wait for a place in the driver's queue.
func TestTheHelperRecordsNothing(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	h.ok("kernel 1000")
	h.ok("kernel 1000 %d", streamA)
	before := h.ok("worked")[1] // these launches are a new kind, and measured
	a.look(s, 0)
	a.said(abi.MsgIdle, 0)
	if after := h.ok("worked")[1]; after != before {
		t.Errorf("%d events were recorded", after-before)
	}
}

// Who is alone may fill the driver's queue by streams that each have one launch: these have no events of ours behind
// them. Some are there to measure what launches take.
func TestFirstLaunchesHaveNoEvents(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	*a.control.word32(turnsAt) = abi.TurnsAlone
	for range 100 { // until it is known what they take
		h.ok("kernel 10;kernel 10;kernel 10")
		a.look(s, 0)
		time.Sleep(time.Millisecond)
	}
	const streams = 100
	before := h.ok("worked")[1]
	h.ok("spread 0 %d 1 10", streams)
	if events := h.ok("worked")[1] - before; events > streams/2 {
		t.Errorf("%d events were recorded behind the first launches in %d streams", events, streams)
	}
}

// While one stream is captured a drain still waits for what is in others.
func TestDrainBesideACapture(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	h.ok("begincapture %d", streamB)
	h.ok("hold 1")
	h.ok("kernel 10 %d", streamA)
	a.setLease(closed(1))
	a.look(s, 1)
	time.Sleep(200 * time.Millisecond)
	if n := a.times(abi.MsgDrained, 1); n != 0 {
		t.Fatal("DRAINED was said with work outstanding")
	}
	h.ok("hold 0")
	a.said(abi.MsgDrained, 1)
}

// A child has no part in its parent's leases, nor has it a word of the parent's at the gate.
func TestForkAtTheGate(t *testing.T) {
	t.Parallel()
	a, h, _ := startTime(t, plain)
	h.ok("kernel 10")
	a.setLease(closed(1))
	h.want("ok 0", "fork kernel 10")
	h.ok("fork alloc %d", mib)
	h.send("kernel 10")
	a.said(abi.MsgWant, 1)
	a.setLease(open(2))
	h.answers("ok 0")
}

// Streams and contexts end while the helper attends, and other threads launch.
func TestEndsWhileAttended(t *testing.T) {
	for _, b := range []*build{address, threads} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			testEndsWhileAttended(t, b)
		})
	}
}

func testEndsWhileAttended(t *testing.T, b *build) {
	a, h, s := startTime(t, b)
	*a.control.word32(windowAt) = 4000
	a.setLease(open(1))
	h.ok("hog 500 0 %d", streamA)
	h.ok("hog 20 100 %d", streamB)
	for round := range 20 {
		a.look(s, 1)
		context := h.ok("context 0")[0]
		for stream := range 8 {
			h.ok("kernel 300 %d", context*streams+uint64(stream))
		}
		h.ok("endstream %d", context*streams+uint64(round%8))
		h.ok("destroy %d", context)
		h.ok("use 1")
	}
	a.setLease(closed(1))
	a.look(s, 1)
	a.said(abi.MsgDrained, 1)
	a.setLease(open(2))
	h.ok("stop")
	a.look(s, 2)
	a.said(abi.MsgIdle, 2)
}
