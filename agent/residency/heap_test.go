package residency

// The heap against a search of all.

import (
	"math/rand/v2"
	"testing"
)

// TestHeap puts, changes and drops at random, and compares the first with a search.
func TestHeap(t *testing.T) {
	seed := testSeed(t)
	r := rand.New(rand.NewPCG(seed, 2))
	for range 200 {
		h := heap{which: there}
		allocs := make([]alloc, 1+r.IntN(40))
		keys := make(map[*alloc]int64)
		for range 400 {
			a := &allocs[r.IntN(len(allocs))]
			if r.IntN(3) == 0 {
				h.put(a, false, 0)
				delete(keys, a)
			} else {
				keys[a] = r.Int64N(1000)
				h.put(a, true, keys[a])
			}
			least := int64(1000)
			for _, key := range keys {
				least = min(least, key)
			}
			first := h.first()
			if first == nil && len(keys) > 0 || first != nil && keys[first] != least {
				t.Fatalf("seed %d: the least of %d is %d, not of the first", seed, len(keys), least)
			}
		}
	}
}
