// Random sequences over all kinds of memory.

package hosttest

import (
	"fmt"
	"testing"
)

// TestMix lets threads take, give back and end memory of all kinds near the cap. Whenever they rest, the
// library's books are the driver's; nothing is ever over the cap but inside a call that makes a pool
// grow; and a thread that is alone is never refused what fits.
func TestMix(t *testing.T) {
	for _, run := range []struct {
		b       *build
		threads int
	}{{plain, 1}, {plain, 6}, {address, 1}, {address, 4}, {threads, 6}} {
		t.Run(fmt.Sprintf("%s-%d", run.b.name, run.threads), func(t *testing.T) {
			t.Parallel()
			seed := newSeed(t)
			const limit = 6 * mib
			a := startAgent(t, limit, limit)
			h := startHost(t, run.b, a.path)
			for gpu := range gpus {
				h.ok("limit %d %d", gpu, limit)
			}
			h.ok("dawdle 10")
			h.want("ok 0", "mix %d 150 8 %d", run.threads, seed)
			settle(t, h, a)
			for gpu := range gpus {
				if books := h.ok("books %d", gpu); books[0] != 0 || books[2] != 0 {
					t.Errorf("GPU %d: %v after all was given back", gpu, books)
				}
			}
		})
	}
}
