// Contexts, code and limits that take memory.

package hosttest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"unsafe"

	"weir/cgo/abi"
)

// counting starts an agent that has contexts counted, each of which takes `size`; 0 where it has to learn
// that.
func counting(t *testing.T, size uint64, caps ...uint64) *agent {
	a := newAgent(t, caps...)
	a.contextBytes, a.countContexts = size, true
	a.start()
	return a
}

// shown reads what a process says of its contexts and its code.
func (a *agent) shown(s *session, gpu int) (contexts, code uint64) {
	at := pageCredit + uintptr(gpu)*sizeofUsage
	return atomic.LoadUint64(s.usage.word64(at + unsafe.Offsetof(abi.GPUUsage{}.Context_bytes))),
		atomic.LoadUint64(s.usage.word64(at + unsafe.Offsetof(abi.GPUUsage{}.Code_bytes)))
}

// The first context waits for an agent as an allocation does, also where one has said that it is there
// and is gone before it has said anything of the GPU.
func TestContextWhileTheAgentDies(t *testing.T) {
	t.Parallel()
	a := newAgent(t, 10*mib)
	a.contextBytes, a.countContexts = mib, true
	left := 3
	a.meddle = func(s *session, message any, fds []int) (any, []int, bool) {
		if _, ok := message.(abi.Verdict); ok && left > 0 {
			left--
			s.conn.Close()
			return nil, nil, false
		}
		return message, fds, true
	}
	a.start()
	h := startHost(t, plain, a.path)
	h.ok("contexts-take %d", mib)
	h.ok("ctx-create 0")
	a.balance(h, a.session(h, 4))
	if left != 0 {
		t.Errorf("the agent was to die %d times more", left)
	}
}

// A context for which the agent has lent the credit is made without a question, and without the helper
// having been needed before it is there.
func TestLentContext(t *testing.T) {
	t.Parallel()
	a := newAgent(t, 10*mib)
	a.contextBytes, a.countContexts = mib, true
	a.meddle = func(s *session, message any, fds []int) (any, []int, bool) {
		if _, ok := message.(abi.Welcome); ok {
			s.granted[0] = 2 * mib
			atomic.StoreUint64(s.usage.credit(0), 2*mib)
		}
		return message, fds, true
	}
	a.start()
	h := startHost(t, plain, a.path)
	h.ok("contexts-take %d", mib)
	h.ok("ctx-create 0")
	s := a.session(h, 1)
	if s.hello.Held_count != 1 || s.hello.Held[0].Uuid != uuidOf(0) || s.hello.Held[0].Bytes != 0 {
		t.Errorf("HELLO names %d GPUs: %v", s.hello.Held_count, s.hello.Held[0])
	}
	if unused := atomic.LoadUint64(s.usage.credit(0)); unused != mib {
		t.Errorf("%d in the credit word, want %d", unused, mib)
	}
	a.mu.Lock()
	asked := len(a.requests) + a.queries
	a.mu.Unlock()
	if asked != 0 {
		t.Errorf("%d questions", asked)
	}
	if threads := threadsOf(t, h); threads != 2 {
		t.Errorf("%d threads, want the helper beside the program's", threads)
	}
	a.balance(h, s)
}

// Threads make and end contexts, retain and release primary ones, load and unload code, and change limits,
// near the cap: never is more in use than it, and at rest the library's books are the driver's.
func TestContextsAtRandom(t *testing.T) {
	for _, run := range []struct {
		b        *build
		threads  int
		failures int
	}{{plain, 1, 0}, {plain, 8, 0}, {plain, 8, 1}, {address, 6, 1}, {threads, 6, 0}} {
		t.Run(fmt.Sprintf("%s-%d-%d", run.b.name, run.threads, run.failures), func(t *testing.T) {
			t.Parallel()
			seed := newSeed(t)
			const limit, size = 24 * mib, mib
			a := counting(t, size, limit, limit)
			h := startHost(t, run.b, a.path)
			h.ok("contexts-take %d; dawdle 20", size)
			for gpu := range gpus {
				h.ok("limit %d %d", gpu, limit)
			}
			h.want("ok 0", "contexts %d 150 6 %d %d", run.threads, seed, run.failures)
			settle(t, h, a)
			for gpu := range gpus {
				contexts, code := a.shown(a.session(h, 1), gpu)
				if books := h.ok("books %d", gpu); books[0] != 0 || contexts != 0 || code != 0 {
					t.Errorf("GPU %d: %v after all has ended; shown %d and %d", gpu, books, contexts, code)
				}
			}
		})
	}
}

// The same while the agent dies, restarts, loses and delays messages.
func TestContextsWithoutAnAgent(t *testing.T) {
	t.Parallel()
	seed := newSeed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	const limit, size = 24 * mib, mib
	a := newAgent(t, limit, limit)
	a.contextBytes, a.countContexts = size, true
	trouble(a, random)
	a.start()
	h := startHost(t, plain, a.path)
	h.ok("contexts-take %d", size)
	for gpu := range gpus {
		h.ok("limit %d %d", gpu, limit)
	}
	h.send("contexts 6 800 3 %d 0", seed)
	if line := bother(t, h, a, random); line != "ok 0" {
		t.Fatalf("contexts: %s", line)
	}
	settle(t, h, a)
}

// What a context takes is not known: the first is made and measured, and all are charged from then on;
// one that does not fit is undone.
func TestContextIsMeasured(t *testing.T) {
	t.Parallel()
	const size = 3 * mib
	a := counting(t, 0, 5*mib, 2*mib)
	a.measured = size
	h := startHost(t, plain, a.path)
	h.ok("contexts-take %d", size)
	context := h.ok("ctx-create 0")[0]
	if len(a.measures) != 1 || a.measures[0].Contexts != 1 || a.measures[0].Bytes != 0 {
		t.Errorf("asked %+v", a.measures)
	}
	if books := h.ok("books 0"); books[0] != size {
		t.Errorf("books %v, want %d owned", books, size)
	}
	a.mu.Lock()
	a.contextBytes = 0 // forgotten; as on the other GPU, which has no room for one
	a.publish()
	a.mu.Unlock()
	h.ok("alloc 512")
	h.want("err 2", "ctx-create 0")
	if got := a.measures[len(a.measures)-1]; got.Contexts != 2 || got.Bytes != 512 {
		t.Errorf("asked %+v, want 2 contexts and 512 bytes beside them", got)
	}
	a.mu.Lock()
	a.contextBytes = 0
	a.publish()
	a.mu.Unlock()
	h.want("err 2", "ctx-create 1")
	for gpu, want := range []uint64{size + 512, 0} {
		if books := h.ok("books %d", gpu); books[0] != want {
			t.Errorf("GPU %d: books %v, want %d owned", gpu, books, want)
		}
	}
	h.want("ok 0", "destroy %d", context)
	a.balance(h, a.session(h, 1))
}

// Nothing is charged where the agent says so, or cannot find it out; it is shown all the same.
func TestContextsNotCounted(t *testing.T) {
	t.Parallel()
	const size = mib
	a := newAgent(t, mib, mib)
	a.contextBytes = size
	a.start()
	h := startHost(t, plain, a.path)
	h.ok("contexts-take %d", size)
	h.ok("ctx-create 0; ctx-create 0; ctx-load 0; ctx-limit 2 %d", 10*mib)
	contexts, code := a.shown(a.session(h, 1), 0)
	if books := h.ok("books 0"); books[0] != 0 || contexts != 2*size || code != 2*mib+1024+512 {
		t.Errorf("books %v, shown %d and %d", books, contexts, code)
	}
	h.ok("alloc %d", mib)

	b := counting(t, 0, mib, mib)
	g := startHost(t, plain, b.path)
	g.ok("contexts-take %d", size)
	g.ok("ctx-create 0; ctx-create 0")
	if books := g.ok("books 0"); books[0] != 0 || len(b.measures) != 2 {
		t.Errorf("books %v after %d questions without an answer", books, len(b.measures))
	}
}

// A module belongs to its context: unloading it, its context's end and a handle that is used again give it
// back once.
func TestModules(t *testing.T) {
	t.Parallel()
	const size = mib
	a := counting(t, size, 8*mib, 8*mib)
	h := startHost(t, plain, a.path)
	h.ok("contexts-take %d", size)
	owned := func(want uint64, what string) {
		t.Helper()
		if got := h.ok("books 0")[0]; got != want {
			t.Errorf("%s: owns %d, want %d", what, got, want)
		}
	}
	context := h.ok("ctx-create 0")[0]
	first := h.ok("ctx-load 0")[0]
	owned(size+1536, "one module")
	h.ok("fail 7")
	h.want("err 7", "ctx-unload %d", first)
	owned(size+1536, "not unloaded")
	h.want("ok 0", "ctx-unload %d", first)
	owned(size, "unloaded")
	h.want("err 201", "ctx-unload %d", first)
	owned(size, "unloaded twice")
	again := h.ok("ctx-load 1")[0]
	if again != first {
		t.Errorf("the test driver gives handle %d, not %d again", again, first)
	}
	h.ok("fail 7")
	h.want("err 7", "ctx-load 2")
	owned(size+512+8704, "another module under the same handle")
	h.want("ok 0", "destroy %d", context)
	owned(0, "its context has ended")
	h.ok("ctx-create 0; ctx-load 2")
	h.want("ok 0", "ctx-unload %d", first)
	owned(size, "a third one")
	// Many contexts with modules that nobody unloads leave nothing behind.
	for range 300 {
		one := h.ok("ctx-create 1")[0]
		h.ok("ctx-load 0; ctx-load 1; ctx-load 2")
		h.want("ok 0", "destroy %d", one)
	}
	a.balance(h, a.session(h, 1))
	if books := h.ok("books 1"); books[0] != 0 {
		t.Errorf("GPU 1: %v", books)
	}
}
