package sched

// What the next decisions touch, brought near the processor: see near.go.

import "unsafe"

// bringNear is called when f begins to hold: it will be charged next, and whoever is first among those that wait
// is likely to be granted next.
func (q *queue) bringNear(f *flow) {
	if f.in(inActive) {
		near(unsafe.Pointer(&q.active.items[q.table.at[inActive][f.index]]), 1)
	}
	for i := range q.ready {
		if h := &q.ready[i]; h.len() > 0 {
			next := h.items[heapRoot].flow
			near(unsafe.Pointer(&q.table.at[inActive][next]), 1)
			near(unsafe.Pointer(q.table.flows[next]), int(unsafe.Sizeof(container{})+63)/64)
			return
		}
	}
}
