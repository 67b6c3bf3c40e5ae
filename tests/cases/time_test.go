package cases

// T1 and T6: nothing that takes the GPU gets past a closed gate, whatever it is called by and into whichever
// stream it goes; and all of it is counted.

import (
	"fmt"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// always has the gates closed to all but the holder of a lease, so that a test knows who is held back.
const always = "contention = \"off\"\n"

// held is a container that the gate holds back, beside one that has always work and is owed the GPU for ever:
// its weight is a million times the other's.
type held struct {
	n            *node.Node
	holder, back *node.Flow
	load         int // of the one that is held back
}

func hold(t *testing.T, config string) *held {
	t.Helper()
	n := node.Start(t, node.Options{Config: always + config})
	h := &held{n: n, holder: n.Weighted("holder", 1000), back: n.Weighted("back", 0.001)}
	h.holder.Play(node.Hog)
	h.load = h.back.Play("cost=1000000 burst=4 sync=1")
	h.waits()
	return h
}

// waits until the one has stood still for a while that the other has used.
func (h *held) waits() {
	h.n.Eventually(func() string {
		gains := node.Gains(300*time.Millisecond, 0, h.holder, h.back)
		if gains[0] == 0 || gains[1] != 0 {
			return fmt.Sprintf("in 300 ms the holder got %s, and who is to be held back %s", gains[0], gains[1])
		}
		return ""
	})
}

// release ends the one for which the other is held back.
func (h *held) release() { h.holder.Kill() }

// T1: every way of launching, of copying within a device and of setting is held back by a closed gate, and is
// counted when it goes through. Copies from and to the host go on.
func TestT1EveryWayIsGated(t *testing.T) {
	t.Parallel()
	const cost = 200 * time.Microsecond
	h := hold(t, "")
	before, busy := h.back.Queue(0), h.back.Busy(0)
	ways := h.back.Number("ways %d", cost.Nanoseconds())
	for range 20 {
		time.Sleep(20 * time.Millisecond)
		if through := h.back.Number("through"); through != 0 {
			t.Fatalf("%d of %d ways of launching came through a closed gate", through, ways)
		}
	}
	if got := h.back.Busy(0) - busy; got != 0 {
		t.Errorf("the GPU worked for %s for who was held back", got)
	}
	h.back.OK("copy")
	now := h.back.Queue(0)
	if now.State != "waiting" && now.State != "throttled" {
		t.Errorf("who is held back is %q in weir queue", now.State)
	}
	if now.Submitted-before.Submitted > 4 { // the copies, and what was under way
		t.Errorf("weir queue counts %d operations of who was held back", now.Submitted-before.Submitted)
	}
	h.release()
	h.n.Eventually(func() string {
		if through := h.back.Number("through"); through != ways {
			return fmt.Sprintf("the gate is open, and %d of %d ways of launching are through", through, ways)
		}
		return ""
	})
	h.n.Eventually(func() string {
		after := h.back.Queue(0)
		if after.Submitted-before.Submitted < ways {
			return fmt.Sprintf("weir queue counts %d operations, of %d", after.Submitted-before.Submitted, ways)
		}
		return ""
	})
}

// T6: stream 0, the thread's own default stream, a non-blocking one: launches in all of them are held back,
// and come through together.
func TestT6EveryStreamIsGated(t *testing.T) {
	t.Parallel()
	h := hold(t, "")
	loads := map[string]int{}
	for name, stream := range map[string]int{"non-blocking": 0, "legacy default": 1, "per-thread default": 2} {
		loads[name] = h.back.Play(fmt.Sprintf("cost=100000 stream=%d sync=1", stream))
	}
	for range 20 {
		time.Sleep(20 * time.Millisecond)
		for name, load := range loads {
			if launches := h.back.Launches(load); launches != 0 {
				t.Fatalf("%d launches in the %s stream came through a closed gate", launches, name)
			}
		}
	}
	h.release()
	for name, load := range loads {
		h.n.Eventually(func() string {
			if launches := h.back.Launches(load); launches < 10 {
				return fmt.Sprintf("the gate is open, and %d launches in the %s stream came through", launches, name)
			}
			return ""
		})
	}
}
