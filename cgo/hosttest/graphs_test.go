// Memory nodes of graphs.

package hosttest

import (
	"testing"

	"weir/cgo/abi"
)

func TestGraphs(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 8*chunk, 8*chunk)
	h := startHost(t, plain, a.path)
	h.ok("limit 0 %d", 8*chunk)
	graph, child := h.ok("graph")[0], h.ok("graph")[0]
	h.ok("node %d %d 0", graph, chunk)
	h.ok("node %d %d 1", child, 2*chunk)
	h.ok("node %d 100 0", child)
	h.ok("child %d %d", graph, child)
	exec := h.ok("exec %d", graph)[0]
	owned(t, h, 0, "not launched yet")
	h.want("ok 0", "launch %d 0", exec)
	owned(t, h, 2*chunk, "launched")
	if got := h.ok("books 1")[0]; got != 2*chunk {
		t.Errorf("charged %d to the other device", got)
	}
	for range 3 {
		h.want("ok 0", "launch %d 0", exec)
	}
	stream := h.ok("stream 1 3")[0]
	h.want("ok 0", "upload %d %d", exec, stream)
	owned(t, h, 4*chunk, "in two streams")
	h.want("ok 0", "noexec %d", exec)
	h.want("ok 0", "gtrim 0")
	h.want("ok 0", "gtrim 1")
	owned(t, h, 0, "trimmed")
	if got := h.ok("books 1")[0]; got != 0 {
		t.Errorf("the other device keeps %d", got)
	}
	h.want("ok 0", "errno")
	a.balance(h, a.session(h, 1))
}

func TestGraphAtTheCap(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 8*chunk)
	h := startHost(t, plain, a.path)
	h.ok("limit 0 %d; busy 1", 8*chunk)
	graph := h.ok("graph")[0]
	h.ok("node %d %d 0", graph, 3*chunk)
	h.ok("node %d %d 0", graph, 3*chunk)
	exec := h.ok("exec %d", graph)[0]
	pointer := h.ok("alloc %d", 3*chunk)[0]
	h.want("err 2", "launch %d 0", exec) // each node fits by itself
	h.want("err 2", "upload %d 0", exec)
	h.want("err 2", "uploaded %d 0", graph)
	if got := h.ok("driver"); got[0] != 3*chunk || got[2] != 0 {
		t.Errorf("after refusals: %v", got)
	}
	h.want("ok 0", "free %d", pointer)
	h.want("ok 0", "launch %d 0", exec)
	owned(t, h, 6*chunk, "launched")
	h.want("err 2", "alloc %d", 3*chunk) // running
	h.want("ok 0", "sync")
	pointer = h.ok("alloc %d", 8*chunk)[0] // what no graph uses makes room
	owned(t, h, 8*chunk, "plain memory in its place")
	h.want("err 2", "launch %d 0", exec)
	h.want("ok 0", "free %d", pointer)
	// Another stream's, which nobody uses, makes room for this one's.
	stream := h.ok("stream 1 4")[0]
	h.want("ok 0", "upload %d %d", exec, stream)
	h.want("ok 0", "launch %d 0", exec)
	owned(t, h, 6*chunk, "moved to another stream")
	second := h.ok("uploaded %d 0", graph)[0]
	h.want("ok 0", "launch %d 0", second)
	owned(t, h, 6*chunk, "both in one stream")
	if got := h.ok("driver"); got[2] != 0 {
		t.Errorf("%d times over the cap", got[2])
	}
	h.want("ok 0", "sync")
	h.want("ok 0", "gtrim 0")
	owned(t, h, 0, "trimmed")
	a.balance(h, a.session(h, 1))
}

// TestCapture captures allocations: they take nothing until the graph is launched.
func TestCapture(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 4*chunk)
	h := startHost(t, plain, a.path)
	stream := h.ok("stream 1 5")[0]
	taken := h.ok("alloc %d", 3*chunk)[0]
	h.want("ok 0", "capture %d", stream)
	pointer := h.ok("async %d %d", 2*chunk, stream)[0]
	h.want("ok 0", "afree %d %d", pointer, stream)
	owned(t, h, 3*chunk, "captured")
	graph := h.ok("endcapture %d", stream)[0]
	exec := h.ok("exec %d", graph)[0]
	h.want("err 2", "launch %d %d", exec, stream)
	h.want("ok 0", "free %d", taken)
	h.want("ok 0", "launch %d %d", exec, stream)
	owned(t, h, 2*chunk, "launched")
	h.want("ok 0", "gtrim 0")
	owned(t, h, 0, "trimmed")
}

func TestGraphDriverFails(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 8*chunk)
	h := startHost(t, plain, a.path)
	graph := h.ok("graph")[0]
	h.ok("node %d 512 0", graph)
	h.ok("fail 2")
	h.want("err 2", "exec %d", graph)
	exec := h.ok("exec %d", graph)[0]
	h.ok("fail 2")
	h.want("err 2", "launch %d 0", exec)
	if note := a.noted(abi.NoteDriverOOM); note.A != 0 {
		t.Errorf("note: %+v", note)
	}
	owned(t, h, 0, "after the driver has refused")
	h.want("ok 0", "launch %d 0", exec)
	owned(t, h, chunk, "launched")
	empty := h.ok("graph")[0] // without memory nodes
	plain := h.ok("exec %d", empty)[0]
	h.want("ok 0", "launch %d 0", plain)
	owned(t, h, chunk, "a graph without memory nodes beside")
	h.want("ok 0", "noexec %d", plain)
}
