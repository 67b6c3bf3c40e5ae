// The window: how much a program has in flight while others want the GPU.

package hosttest

import (
	"testing"
	"time"

	"weir/cgo/abi"
)

// With rivals little is in flight, whatever the program would like: once it is known what its kernels take,
// and they are attended to.
func TestWindow(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	a.setLease(open(3))
	*a.control.word32(windowAt) = 4000
	h.ok("hog 1000 0 %d", streamA)
	h.ok("hog 20 0 %d", streamB)
	deepest := uint64(1 << 20)
	for deadline := time.Now().Add(20 * time.Second); deepest > 400 && time.Now().Before(deadline); {
		a.look(s, 3)
		h.ok("worked")
		time.Sleep(300 * time.Millisecond)
		deepest = h.ok("worked")[6]
	}
	if deepest > 400 {
		t.Errorf("%d operations were ahead of one", deepest)
	}
	a.setLease(closed(3))
	a.look(s, 3)
	a.said(abi.MsgDrained, 3)
	a.setLease(open(4))
	h.ok("stop")
}

// Of operations that are longer than the window one is behind the one at work before that ends, so that the GPU does
// not stand still between them, and no more.
func TestWindowOfLongOperations(t *testing.T) {
	t.Parallel()
	a, h, s := startTime(t, plain)
	a.setLease(open(3))
	*a.control.word32(windowAt) = 4000
	h.ok("hog 40000 0 %d", streamA)
	var ahead []uint64
	inARow := 0 // times that it was so, of ten operations or so
	for deadline := time.Now().Add(20 * time.Second); inARow < 3 && time.Now().Before(deadline); {
		a.look(s, 3)
		time.Sleep(400 * time.Millisecond)
		deepest := h.ok("worked")[6]
		ahead = append(ahead, deepest)
		if inARow++; deepest != 1 {
			inARow = 0
		}
	}
	if inARow < 3 {
		t.Errorf("of long operations so many were ahead of one, at most: %d; want 1", ahead)
	}
	h.ok("stop")
	a.setLease(closed(3))
	a.look(s, 3)
	a.said(abi.MsgDrained, 3)
}
