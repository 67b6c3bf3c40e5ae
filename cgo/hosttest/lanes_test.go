// More threads and streams than there are lanes for what each thread has launched in each stream.

package hosttest

import (
	"testing"
	"time"
	"unsafe"

	"weir/cgo/abi"
)

const submittedAt = pageCredit + unsafe.Offsetof(abi.GPUUsage{}.Submitted)

// submits waits until the page says that so much was submitted.
func submits(a *agent, s *session, lease uint32, want uint64) {
	a.t.Helper()
	var got uint64
	for end := time.Now().Add(10 * time.Second); got < want && time.Now().Before(end); {
		a.look(s, lease)
		got = *s.usage.word64(submittedAt)
		time.Sleep(time.Millisecond)
	}
	if got != want {
		a.t.Errorf("%d launches were submitted, want %d", got, want)
	}
}

// attended runs a command of the host's while the agent has the library look at the GPU.
func attended(a *agent, h *host, s *session, lease uint32, format string, args ...any) {
	a.t.Helper()
	h.send(format, args...)
	for {
		a.look(s, lease)
		select {
		case line := <-h.lines:
			if line != "ok 0" {
				a.t.Fatalf("answered %q", line)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// drains checks that a launch in stream A is waited for in a drain.
func drains(t *testing.T, a *agent, h *host, s *session, lease uint32) {
	t.Helper()
	h.ok("use 1")
	h.ok("hold 1")
	h.ok("kernel 10 %d", streamA)
	a.setLease(closed(lease))
	a.look(s, lease)
	time.Sleep(200 * time.Millisecond)
	if n := a.times(abi.MsgDrained, lease); n != 0 {
		t.Errorf("DRAINED was said %d times with work outstanding", n)
	}
	h.ok("hold 0")
	a.said(abi.MsgDrained, lease)
}

// Streams and contexts that were used once do not keep what comes after them from being counted and drained.
func TestLanesOfManyContexts(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	a.setLease(open(1))
	a.look(s, 1)
	const contexts, each = 100, 12
	for range contexts {
		h.ok("spread 0 %d %d 10", each, h.ok("context 0")[0])
	}
	submits(a, s, 1, contexts*each)
	a.look(s, 1)
	a.said(abi.MsgIdle, 1)
	h.ok("use 1")
	for range 100 {
		h.ok("kernel 10 %d", streamA)
	}
	before := h.ok("lanes")[1]
	h.ok("kernel 10 %d", streamA)
	if got := h.ok("lanes"); got[1] != before {
		t.Errorf("a launch has no lane, while all that use them rest: %v", got)
	}
	submits(a, s, 1, contexts*each+101)
	drains(t, a, h, s, 1)
}

// More threads at work in more streams than there are lanes: all is counted, and a drain comes to its end.
func TestLanesOfManyThreads(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	a.setLease(open(1))
	a.look(s, 1)
	h.ok("spread 40 32 1 10")
	submits(a, s, 1, 40*32)
	h.ok("hold 1")
	h.ok("spread 40 32 1 10")
	h.ok("hold 0")
	submits(a, s, 1, 2*40*32)
	a.setLease(closed(1))
	a.look(s, 1)
	a.said(abi.MsgDrained, 1)
	a.setLease(open(2))
	a.look(s, 2)
	a.said(abi.MsgIdle, 2)
}

// Threads that come and go leave lanes to those that come after them.
func TestLanesOfEndedThreads(t *testing.T) {
	for name, one := range map[string]struct {
		b      *build
		rounds uint64
	}{"plain": {plain, 1000}, "address": {address, 100}, "threads": {threads, 100}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, h, s := startTime(t, one.b)
			a.setLease(open(1))
			a.look(s, 1)
			attended(a, h, s, 1, "churn %d 10 2 10", one.rounds)
			submits(a, s, 1, one.rounds*20)
			if got := h.ok("lanes"); got[1] > one.rounds {
				t.Errorf("lanes and launches without one: %v", got)
			}
			drains(t, a, h, s, 1)
		})
	}
}
