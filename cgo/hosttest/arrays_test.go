// Arrays and mipmapped arrays.

package hosttest

import "testing"

// owned checks what the library owns for the first GPU.
func owned(t *testing.T, h *host, want uint64, what string) {
	t.Helper()
	if got := h.ok("books 0")[0]; got != want {
		t.Errorf("%s: owns %d, want %d", what, got, want)
	}
}

func TestArrays(t *testing.T) {
	t.Parallel()
	a := startAgent(t, mib)
	h := startHost(t, plain, a.path)
	flat := h.ok("array 100 7")[0] // 4 channels of a byte
	owned(t, h, 3072, "100 x 7 x 4")
	cube := h.ok("array3d 10 10 10")[0]
	owned(t, h, 3072+4096, "10 x 10 x 10 x 4 beside")
	mipmap := h.ok("mipmap 64 32 0 4")[0] // (64*32 + 32*16 + 16*8 + 8*4) * 4 = 10880
	owned(t, h, 3072+4096+11264, "four levels beside")
	h.want("err 2", "array %d 1024", 257)
	h.want("err 2", "array3d %d %d %d", uint64(1)<<40, uint64(1)<<40, uint64(1)<<40)
	h.want("err 2", "mipmap %d 2 0 10", uint64(1)<<62)
	rest := h.ok("array3d 1 1 1 %d", 0x40)[0] // sparse, and mapped later: nothing of its own
	later := h.ok("array3d 100000 1 1 %d", 0x80)[0]
	owned(t, h, 3072+4096+11264, "arrays without memory beside")
	h.want("err 1", "array 0 0")
	h.want("err 1", "nomipmap %d", flat) // a level, or another's: the driver's own answer
	owned(t, h, 3072+4096+11264, "after a failed destruction")
	for _, array := range []uint64{flat, cube, rest, later} {
		h.want("ok 0", "noarray %d", array)
	}
	h.want("ok 0", "nomipmap %d", mipmap)
	owned(t, h, 0, "after all was destroyed")
	h.ok("fail 2") // the driver's own refusal
	h.want("err 2", "array 100 7")
	h.ok("fail 2")
	h.want("err 2", "mipmap 64 32 0 4")
	owned(t, h, 0, "after the driver has refused")
	a.balance(h, a.session(h, 1))
	h.want("ok 0", "errno")
}

// TestArraysAsToldByDriver has a driver whose arrays take more than what they contain, and which tells.
func TestArraysAsToldByDriver(t *testing.T) {
	t.Parallel()
	a := startAgent(t, mib)
	h := startHost(t, plain, a.path)
	h.ok("unit 65536")
	array := h.ok("array 100 7")[0]
	owned(t, h, 65536, "an array")
	mipmap := h.ok("mipmap 256 256 0 1")[0]
	owned(t, h, 65536+262144, "a mipmapped array beside")
	h.ok("alloc %d", mib-65536-262144-1024)
	h.want("err 2", "array 10 10") // would fit if it took no more than it contains: undone
	if got := h.ok("driver"); got[0] != mib-1024 {
		t.Errorf("the driver has %d in use after a refusal", got[0])
	}
	h.want("ok 0", "noarray %d", array)
	h.want("ok 0", "nomipmap %d", mipmap)
	owned(t, h, mib-65536-262144-1024, "after all arrays were destroyed")
}

// TestArraysEndWithContext ends a context with arrays, plain memory and equal numbers in it.
func TestArraysEndWithContext(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	h := startHost(t, plain, a.path)
	kept := h.ok("array 128 4")[0]
	context := h.ok("context 0")[0]
	h.ok("array 128 4")
	h.ok("mipmap 16 16 0 1")
	h.ok("alloc 512")
	owned(t, h, 2048+2048+1024+512, "two contexts")
	h.want("ok 0", "destroy %d", context)
	owned(t, h, 2048, "one context")
	h.ok("use 1")
	h.want("ok 0", "noarray %d", kept)
	owned(t, h, 0, "no array")
}
