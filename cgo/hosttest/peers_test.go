// Work on two GPUs at once, at their gates.

package hosttest

import (
	"testing"
	"time"

	"weir/cgo/abi"
)

// Who waits for one GPU is inside no other's gate: the lease of that one ends at once. Then it needs both.
func TestNobodyWaitsInsideAnotherGPUsGate(t *testing.T) {
	t.Parallel()
	for _, work := range []string{"peer 10", "both 10"} {
		t.Run(work, func(t *testing.T) {
			t.Parallel()
			a, h, s := startTime(t, plain)
			h.ok("use 2")
			h.ok("alloc %d", mib)
			h.ok("use 1")
			h.ok("kernel 10")
			a.setLease(open(3))
			a.setLeaseOf(1, closed(1))
			h.send("%s", work)
			a.saidOf(1, abi.MsgWant, 1)
			a.setLease(closed(3))
			a.look(s, 3)
			a.said(abi.MsgDrained, 3)
			a.setLeaseOf(1, open(2))
			a.said(abi.MsgWant, 3)
			h.stays(50 * time.Millisecond)
			a.setLease(open(4))
			h.answers("ok 0")
			if got := h.ok("worked"); got[3]+got[4]+got[5] != 0 {
				t.Errorf("worked: %v", got)
			}
		})
	}
}
