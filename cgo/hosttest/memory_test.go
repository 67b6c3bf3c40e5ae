// Allocation, free and reports, with an agent that behaves.

package hosttest

import (
	"sync/atomic"
	"testing"

	"weir/cgo/abi"
)

const mib = uint64(1) << 20

func TestUnits(t *testing.T) {
	for _, b := range []*build{plain, address, threads} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			h := startHost(t, b, "")
			h.want("ok 0", "lock")
			if b != threads {
				h.want("ok 0", "table %d", newSeed(t))
				h.want("ok 0", "messages %d 3000", newSeed(t))
			}
		})
	}
}

func TestAllocateAndFree(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 10*mib)
	h := startHost(t, plain, a.path)
	h.want("ok 0", "init")
	first := h.ok("alloc 1")[0] // a byte takes a unit
	s := a.session(h, 1)
	if got := h.ok("books 0"); got[0] != 512 || got[2] != 1 {
		t.Errorf("after one byte: %v", got)
	}
	h.want("ok 0", "free %d", first)
	a.balance(h, s)
	if got := atomic.LoadUint64(s.usage.credit(0)); got != 512 {
		t.Errorf("freed memory is not in the credit word: %d", got)
	}
	requests := len(a.requests)
	second := h.ok("alloc 512")[0]
	if len(a.requests) != requests {
		t.Error("an allocation within credit asked the agent")
	}
	whole := h.ok("managed %d", 10*mib-512)[0] // what fits is given, to the last byte
	h.want("err 2", "alloc 1")
	h.want("err 2", "alloc %d", uint64(1)<<63)
	h.want("err 2", "alloc %d", ^uint64(0))
	h.want("err 1", "alloc 0") // the driver's own answers
	h.want("err 1", "nowhere 512")
	h.want("err 1", "free 12345")
	if got := h.ok("books 0"); got[0] != 10*mib || got[2] != 2 {
		t.Errorf("at the cap: %v", got)
	}
	a.setCap(0, 11*mib)
	third := h.ok("alloc %d", mib)[0]
	for _, pointer := range []uint64{second, whole, third} {
		h.want("ok 0", "freeasync %d", pointer)
	}
	if got := h.ok("books 0"); got[0] != 0 || got[2] != 0 {
		t.Errorf("after all was freed: %v", got)
	}
	a.balance(h, s)
	h.want("ok 0", "errno")
}

func TestPitch(t *testing.T) {
	t.Parallel()
	a := startAgent(t, mib)
	h := startHost(t, plain, a.path)
	pointer := h.ok("pitch 1001 7")[0]
	s := a.session(h, 1)
	if got := h.ok("books 0"); got[0] != 1024*7 {
		t.Errorf("charged %d for 7 rows of 1024", got[0])
	}
	h.want("ok 0", "free %d", pointer)
	// Rows longer than expected: the difference is asked for, or the allocation undone.
	h.ok("rows 4096")
	pointer = h.ok("pitch 1001 100")[0]
	if got := h.ok("books 0"); got[0] != 409600 {
		t.Errorf("charged %d for 100 rows of 4096", got[0])
	}
	h.want("err 2", "pitch 1001 200")
	if got := h.ok("driver"); got[0] != 409600 {
		t.Errorf("the driver has %d in use after a refusal", got[0])
	}
	h.want("err 2", "pitch %d %d", uint64(1)<<40, uint64(1)<<40)
	h.want("err 2", "pitch %d 1", ^uint64(0))
	h.want("err 1", "pitch 0 5")
	h.want("ok 0", "free %d", pointer)
	a.balance(h, s)
}

func TestDriverFails(t *testing.T) {
	t.Parallel()
	a := startAgent(t, mib)
	h := startHost(t, plain, a.path)
	h.ok("fail 2")
	h.want("err 2", "alloc 1000")
	if note := a.noted(abi.NoteDriverOOM); note.A != 0 || note.B != 1024 {
		t.Errorf("note: %+v", note)
	}
	h.ok("fail 719")
	h.want("err 719", "alloc 1000")
	if got := h.ok("books 0"); got[0] != 0 || got[2] != 0 {
		t.Errorf("after failed allocations: %v", got)
	}
	pointer := h.ok("alloc 1000")[0]
	h.ok("fail 716")
	h.want("err 716", "free %d", pointer)
	if got := h.ok("books 0"); got[0] != 1024 || got[2] != 1 {
		t.Errorf("after a failed free: %v", got)
	}
	h.want("ok 0", "free %d", pointer)
	a.balance(h, a.session(h, 1))
	h.ok("use 0")
	h.want("err 201", "alloc 1000")
}

func TestContextsEnd(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	h := startHost(t, plain, a.path)
	h.ok("alloc 512")
	owned := func(want uint64, what string) {
		t.Helper()
		if got := h.ok("books 0")[0]; got != want {
			t.Errorf("%s: owns %d, want %d", what, got, want)
		}
	}
	context := h.ok("context 0")[0]
	for range 300 {
		h.ok("alloc 512")
	}
	h.ok("fail 1")
	h.want("err 1", "destroy %d", context)
	owned(301*512, "context not destroyed")
	h.want("ok 0", "destroy %d", context)
	owned(512, "context destroyed")

	context = h.ok("context 0")[0]
	h.ok("alloc 512")
	h.ok("attach")
	h.want("ok 0", "detach %d", context)
	owned(1024, "detached from a context attached to twice")
	h.want("ok 0", "detach %d", context)
	owned(512, "detached for good")

	h.ok("retain 0")
	h.ok("retain 0")
	h.ok("use 1")
	h.ok("alloc 512")
	h.want("ok 0", "release 0")
	owned(1024, "primary context still retained")
	h.want("ok 0", "release 0")
	owned(0, "primary context released") // the first allocation was its, too
	h.ok("alloc 512")
	h.want("ok 0", "reset 0")
	owned(0, "primary context reset")
	a.balance(h, a.session(h, 1))
}

func TestReports(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	h := startHost(t, plain, a.path)
	const card = uint64(64) << 30
	h.ok("alloc 1024")
	if got := h.ok("info"); got[0] != card-1024 || got[1] != card {
		t.Errorf("without a cap: %v", got)
	}
	a.setCap(0, 10*mib)
	pointer := h.ok("alloc %d", mib)[0]
	check := func(free, total uint64) {
		t.Helper()
		if got := h.ok("info"); got[0] != free || got[1] != total {
			t.Errorf("info: %v, want %d %d", got, free, total)
		}
		if got := h.ok("total 0"); got[0] != total {
			t.Errorf("total: %v, want %d", got, total)
		}
	}
	check(9*mib-1024, 10*mib)
	h.ok("free %d", pointer) // credit of one's own counts as free
	check(10*mib-1024, 10*mib)
	if a.queries != 0 {
		t.Errorf("%d round trips for the only holder", a.queries)
	}
	other := startHost(t, plain, a.path)
	theirs := other.ok("alloc %d", 2*mib)[0]
	check(8*mib-1024, 10*mib)
	other.ok("free %d", theirs) // unused credit of others can be recalled
	check(10*mib-1024, 10*mib)
	a.setCap(0, 512)
	check(0, 512)
	a.setCap(0, card*2)
	if got := h.ok("info"); got[0] != card-1024 || got[1] != card {
		t.Errorf("with a cap above the card: %v", got)
	}
	a.setCap(0, 10*mib)
	a.stop() // the last caps keep showing
	if got := h.ok("info"); got[0] != 8*mib-1024 || got[1] != 10*mib {
		t.Errorf("agent away: %v", got)
	}
}

func TestUnknownGPU(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	copy(a.control.memory[pageGPUs+sizeofControl:], make([]byte, 16))
	h := startHost(t, plain, a.path)
	h.ok("use 2")
	h.want("err 2", "alloc 512")
	if note := a.noted(abi.NoteUnknownGPU); note.A != 1 {
		t.Errorf("note: %+v", note)
	}
	if got := h.ok("info"); got[0] != 0 {
		t.Errorf("free memory on a GPU that is refused: %d", got[0])
	}
	h.ok("use 1")
	h.ok("alloc 512")
}

func TestPassThrough(t *testing.T) {
	t.Parallel()
	h := startHost(t, plain, "")
	before := h.ok("descriptors")[0]
	h.want("ok 0", "init")
	pointer := h.ok("alloc 512")[0]
	h.ok("info")
	h.want("ok 0", "free %d", pointer)
	if after := h.ok("descriptors")[0]; after != before || threadsOf(t, h) != 1 {
		t.Errorf("%d descriptors before, %d after; %d threads", before, after, threadsOf(t, h))
	}
}
