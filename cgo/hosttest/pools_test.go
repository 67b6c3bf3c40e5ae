// Stream-ordered memory: what pools have reserved.

package hosttest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"weir/cgo/abi"
)

const chunk = uint64(256) << 10 // what the tests' driver lets a pool grow by

func TestPoolsAreChargedByReserve(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 2*mib)
	h := startHost(t, plain, a.path)
	first := h.ok("async 1000 0")[0]
	owned(t, h, chunk, "one allocation")
	second := h.ok("asyncptsz 1000 0")[0]
	owned(t, h, chunk, "two in one chunk")
	large := h.ok("async %d 0", 5*chunk-1)[0]
	owned(t, h, 6*chunk, "a large one beside")
	h.want("ok 0", "afree %d 0", first)
	h.want("ok 0", "afree %d 0", large)
	owned(t, h, 6*chunk, "freed, but nobody has waited")
	h.want("ok 0", "syncstream 0")
	owned(t, h, chunk, "what is still used")
	h.want("ok 0", "free %d", second)
	owned(t, h, chunk, "freed at once") // the pool has not given it up
	h.want("ok 0", "syncevent")
	owned(t, h, 0, "nothing is used")
	h.want("err 1", "async 0 0")
	h.want("err 1", "freeasync 12345")
	h.want("err 2", "async %d 0", uint64(1)<<50)
	h.want("ok 0", "errno")
	a.balance(h, a.session(h, 1))
}

// TestM4 allocates and frees in stream order again and again: no drift, and no refusal.
func TestM4(t *testing.T) {
	t.Parallel()
	for _, lags := range []int{0, 1} {
		a := startAgent(t, 4*chunk)
		h := startHost(t, plain, a.path)
		h.ok("lags %d; busy 1", lags)
		pool := h.ok("pool 0")[0]
		other := h.ok("alloc %d", chunk)[0]
		for i := range 10000 {
			// The whole of what is left each time: fits only if what was freed is used again.
			pointer := h.ok("pooled %d 0 %d", 3*chunk-uint64(i%3)*512, pool)[0]
			h.want("ok 0", "afree %d 0", pointer)
		}
		owned(t, h, 4*chunk, "at the end of the loop")
		h.want("ok 0", "sync")
		h.want("ok 0", "nopool %d", pool)
		h.want("ok 0", "free %d", other)
		owned(t, h, 0, "at rest")
		a.balance(h, a.session(h, 1))
	}
}

func TestPoolAtTheCap(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 8*chunk)
	h := startHost(t, plain, a.path)
	h.ok("limit 0 %d", 8*chunk)
	pool := h.ok("pool 0")[0]
	h.want("ok 0", "keep %d %d", pool, 100*chunk) // as frameworks do
	pointer := h.ok("pooled %d 0 %d", 7*chunk, pool)[0]
	h.want("err 2", "pooled %d 0 %d", 2*chunk, pool)
	h.want("err 2", "pooled %d 0 %d", 9*chunk, pool)
	h.want("err 2", "async %d 0", 2*chunk)
	h.want("err 2", "alloc %d", 2*chunk)
	if got := h.ok("driver"); got[0] != 7*chunk || got[2] != 0 {
		t.Errorf("after refusals: %v", got)
	}
	h.want("ok 0", "afree %d 0", pointer)
	h.want("ok 0", "sync")
	owned(t, h, 7*chunk, "what the pool keeps")
	// Memory that lies unused in the pool makes room for any other kind.
	plain := h.ok("alloc %d", 8*chunk)[0]
	owned(t, h, 8*chunk, "plain memory in its place")
	h.want("ok 0", "free %d", plain)
	pointer = h.ok("pooled %d 0 %d", 3*chunk, pool)[0]
	h.want("ok 0", "afree %d 0", pointer)
	h.ok("array3d %d 1 1", 2*mib/4)
	owned(t, h, 8*chunk, "an array in its place")
	if len(a.notes) != 0 {
		t.Errorf("notes of what was not refused in the end: %+v", a.notes)
	}
	if got := h.ok("driver"); got[2] != 0 {
		t.Errorf("%d times over the cap", got[2])
	}
}

// TestPoolIsTrimmedOnlyWhereNeeded: a program's cache stays as long as there is room without it.
func TestPoolIsTrimmedOnlyWhereNeeded(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 8*chunk)
	h := startHost(t, plain, a.path)
	pool := h.ok("pool 0")[0]
	h.want("ok 0", "keep %d %d", pool, 100*chunk)
	pointer := h.ok("pooled %d 0 %d", 4*chunk, pool)[0]
	h.want("ok 0", "afree %d 0", pointer)
	h.ok("alloc %d", 3*chunk)
	owned(t, h, 7*chunk, "both")
	h.ok("alloc %d", 2*chunk)
	owned(t, h, 5*chunk, "the cache has gone")
}

func TestPoolOfOtherDevice(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 8*chunk, 8*chunk)
	h := startHost(t, plain, a.path)
	pool := h.ok("pool 1")[0]
	h.ok("use 0") // no context at all
	pointer := h.ok("pooled 512 0 %d", pool)[0]
	if got := h.ok("books 1")[0]; got != chunk {
		t.Errorf("charged %d to the pool's device", got)
	}
	h.want("err 2", "pooled %d 0 %d", 9*chunk, pool)
	h.want("ok 0", "afree %d 0", pointer)
	h.want("err 201", "async 512 0")
	h.ok("use 1") // device 0, with a stream of device 1
	context := h.ok("context 1")[0]
	stream := h.ok("stream %d 7", context)[0]
	h.ok("use 1")
	h.ok("async 512 %d", stream)
	if zero, one := h.ok("books 0")[0], h.ok("books 1")[0]; zero != 0 || one != 2*chunk {
		t.Errorf("charged %d and %d", zero, one)
	}
	// The current pool is the device's, whichever that is.
	h.want("ok 0", "setpool %d 1", pool)
	h.want("ok 0", "nopool %d", pool)
	h.ok("async 512 %d", stream)
	if got := h.ok("driver"); got[1] != h.ok("books 1")[0] {
		t.Errorf("owns %d, the driver has %d", h.ok("books 1")[0], got[1])
	}
}

func TestPoolInHostMemory(t *testing.T) {
	t.Parallel()
	a := startAgent(t, chunk)
	h := startHost(t, plain, a.path)
	pool := h.ok("hostpool")[0]
	pointer := h.ok("pooled %d 0 %d", 10*chunk, pool)[0]
	owned(t, h, 0, "host memory")
	h.want("ok 0", "afree %d 0", pointer)
	h.want("ok 0", "nopool %d", pool)
}

// TestPoolDestroyedInUse destroys pools whose memory is still in use: it stays charged until it is free.
func TestPoolDestroyedInUse(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 8*chunk)
	h := startHost(t, plain, a.path)
	pool := h.ok("pool 0")[0]
	h.want("ok 0", "keep %d %d", pool, 100*chunk)
	h.want("ok 0", "setpool %d 0", pool)
	first, second := h.ok("async %d 0", 3*chunk)[0], h.ok("async 512 0")[0]
	h.want("ok 0", "afree %d 0", first)
	h.want("ok 0", "nopool %d", pool)
	owned(t, h, chunk, "what is in use")
	h.want("err 1", "nopool %d", pool)
	h.want("err 1", "pooled 512 0 %d", pool)
	owned(t, h, chunk, "after what the driver refuses")
	other := h.ok("async 512 0")[0] // the default pool is the current one again
	owned(t, h, 2*chunk, "memory of the default pool beside")
	h.want("ok 0", "afree %d 0", second)
	h.want("ok 0", "syncstream 0")
	owned(t, h, chunk, "once it is free")
	h.want("ok 0", "afree %d 0", other)
	h.want("ok 0", "sync")
	h.want("err 1", "nopool %d", h.ok("default 0")[0]) // no program's to destroy
	owned(t, h, 0, "nothing in use")
	a.balance(h, a.session(h, 1))
}

// TestPoolDestroyedWhileOthersWait: a pool that is destroyed while memory of it is in use is the driver's
// until it is told so, whoever else sees the memory come free meanwhile. There is room for all pools at once:
// the thread that waits may come late, and until then their memory is in use.
func TestPoolDestroyedWhileOthersWait(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 512*chunk)
	h := startHost(t, plain, a.path)
	h.ok("dawdle 10")
	h.want("ok 0", "leave 300")
	owned(t, h, 0, "all are destroyed")
	a.balance(h, a.session(h, 1))
}

// TestTooMuchAtOnce: what no GPU has is refused by the library, which says so once in a while.
func TestTooMuchAtOnce(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 64*chunk)
	h := startHost(t, plain, a.path)
	for range 100 {
		h.want("err 2", "alloc %d", uint64(1)<<49)
	}
	if note := a.noted(abi.NoteBound); note.A != abi.BoundBytes || note.B != 1<<48 {
		t.Errorf("the note says %+v", note)
	}
	if len(a.requests) != 0 {
		t.Errorf("the agent was asked: %+v", a.requests)
	}
}

// TestPoolOvershoot makes a pool grow where nobody can know it beforehand, on a stream that has work to do.
func TestPoolOvershoot(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 4*chunk)
	h := startHost(t, plain, a.path)
	h.ok("limit 0 %d", 4*chunk)
	h.ok("busy 1; lags 1")
	pool := h.ok("pool 0")[0]
	stream, other := h.ok("stream 1 1")[0], h.ok("stream 1 2")[0]
	pointer := h.ok("pooled %d %d %d", 3*chunk, stream, pool)[0]
	h.want("ok 0", "afree %d %d", pointer, stream)
	h.want("err 2", "pooled %d %d %d", 3*chunk, other, pool) // the other stream's, and not free yet
	if got := h.ok("driver"); got[0] != 6*chunk || got[2] != 0 {
		t.Errorf("after an allocation was undone: %v", got)
	}
	h.want("ok 0", "syncstream %d", other) // now the driver can give it back
	if got := h.ok("driver"); got[0] != 3*chunk {
		t.Errorf("after a synchronization: %v", got)
	}
	owned(t, h, 3*chunk, "what was not undone")
	a.balance(h, a.session(h, 1))
}

// TestPoolLearns: a driver that counts memory as unused as soon as it is freed is believed after a few
// times, and a request that then cannot fit never reaches it.
func TestPoolLearns(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 4*chunk)
	h := startHost(t, plain, a.path)
	h.ok("busy 1")
	h.ok("async %d 0", 3*chunk)
	for range 3 {
		h.want("err 2", "async %d 0", 2*chunk)
		if got := h.ok("driver"); got[0] != 5*chunk {
			t.Fatalf("the driver has %d: not asked", got[0])
		}
		h.want("ok 0", "syncstream 0")
	}
	h.want("err 2", "async %d 0", 2*chunk)
	if got := h.ok("driver"); got[0] != 3*chunk {
		t.Errorf("the driver has %d: asked once more", got[0])
	}
	owned(t, h, 3*chunk, "what was given")
	h.ok("async %d 0", chunk)
}

func TestPoolDriverFails(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 8*chunk)
	h := startHost(t, plain, a.path)
	pool := h.ok("pool 0")[0]
	h.ok("fail 2")
	h.want("err 2", "pooled 512 0 %d", pool)
	h.ok("fail 719")
	h.want("err 719", "async 512 0")
	owned(t, h, 0, "after failed allocations")
	h.ok("fail 2")
	h.want("err 2", "pool 0")
	pointer := h.ok("pooled 512 0 %d", pool)[0]
	h.ok("fail 716")
	h.want("err 716", "afree %d 0", pointer)
	h.want("ok 0", "sync")
	owned(t, h, chunk, "after a failed free")
	h.want("ok 0", "trim %d 0", pool)
	owned(t, h, chunk, "after a trim that has nothing to give")
	h.want("ok 0", "afree %d 0", pointer)
	h.want("ok 0", "trim %d 0", pool)
	owned(t, h, 0, "after a trim")
	a.balance(h, a.session(h, 1))
}

// TestPoolsPassThrough: nothing is kept of a process that is not weir's.
func TestPoolsPassThrough(t *testing.T) {
	t.Parallel()
	h := startHost(t, plain, "")
	pool := h.ok("pool 0")[0]
	pointer := h.ok("pooled 512 0 %d", pool)[0]
	h.want("ok 0", "afree %d 0", pointer)
	h.want("ok 0", "sync")
	h.want("ok 0", "nopool %d", pool)
	h.want("ok 0", "noarray %d", h.ok("array 10 10")[0])
}

// TestPoolKeepsNoCreditBack: what a pool has given up is in the credit word, for others to have.
func TestPoolKeepsNoCreditBack(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 4*chunk)
	h, other := startHost(t, plain, a.path), startHost(t, plain, a.path)
	pointer := h.ok("async %d 0", 4*chunk)[0]
	other.want("err 2", "alloc 512")
	h.want("ok 0", "afree %d 0", pointer)
	other.want("err 2", "alloc 512") // it is still the pool's
	h.want("ok 0", "query 0")
	if got := atomic.LoadUint64(a.session(h, 1).usage.credit(0)); got != 0 {
		t.Logf("credit %d", got)
	}
	h.want("ok 0", "sync")
	other.ok("async %d 0", 4*chunk)
}

// TestTooManyPools makes more pools than the library has places for: the rest is refused, and there is
// room again once some are gone.
func TestTooManyPools(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	h := startHost(t, plain, a.path)
	var pools []uint64
	for len(pools) < 600 {
		line := h.do("pool 0")
		if line == "err 2" {
			break
		}
		var pool uint64
		if _, err := fmt.Sscanf(line, "ok %d", &pool); err != nil {
			t.Fatal(line)
		}
		pools = append(pools, pool)
	}
	if len(pools) != 512 {
		t.Errorf("%d pools", len(pools))
	}
	if note := a.noted(abi.NoteBound); note.A != abi.BoundPools || note.B != 512 {
		t.Errorf("the note says %+v", note)
	}
	h.ok("pooled 512 0 %d", pools[511])
	h.want("ok 0", "nopool %d", pools[3])
	h.ok("pool 1")
	h.want("err 2", "pool 0")
}
