package sched

// What the next decisions touch, brought near the processor: see near.go.

import "unsafe"

// What a turn touches of a container of one GPU: from its beginning to where its flow says.
const (
	flowAt   = unsafe.Offsetof(container{}.first)
	hotLines = int(flowAt+unsafe.Offsetof(flow{}.graceUntil)+63) / 64
)

// bringNear is called when f begins to hold: it will be charged next, and whoever is first among those that wait
// is likely to be granted next.
func (q *queue) bringNear(f *flow) {
	if f.in(inActive) {
		near(address(&q.active.items[q.table.at[inActive][f.index]]), 1)
	}
	for i := range q.ready {
		if h := &q.ready[i]; h.len() > 0 {
			next := h.items[heapRoot].flow
			near(address(&q.table.at[inActive][next]), 1)
			near(address(q.table.flows[next])-flowAt, hotLines)
			return
		}
	}
}

func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
