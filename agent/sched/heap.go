package sched

// An indexed heap of flows: least key first, equal keys in the order in which they came. It has four
// children a node, which touch fewer cache lines than two where there are many flows.

import "cmp"

// Which heap a flow's position belongs to. A flow is in at most one heap of each kind.
const (
	inActive = iota
	inReady
	inTimers
	inProbes
	heapKinds
)

// The root is at heapRoot, so that the children of one node, from 4 x (place - 2), lie in one cache line.
const heapRoot = 3

// heapItem is small, and names its flow by its place in the table, so that moving one touches no flow.
type heapItem[K cmp.Ordered] struct {
	key   K
	order uint32 // wraps around, which only changes who of equals is first
	flow  int32
}

// heap is one of the heaps of a kind. A flow's position is 0 while it is in none of them.
type heap[K cmp.Ordered] struct {
	table *table
	which int
	order uint32
	items []heapItem[K] // from heapRoot on
}

// table has a queue's flows, by flow.index, and their positions in its heaps.
type table struct {
	flows []*flow
	at    [heapKinds][]int32
	free  []int32
}

func (t *table) add(f *flow) {
	if n := len(t.free); n > 0 {
		f.index, t.free = t.free[n-1], t.free[:n-1]
		t.flows[f.index] = f
		return
	}
	f.index = int32(len(t.flows))
	t.flows = append(t.flows, f)
	for i := range t.at {
		t.at[i] = append(t.at[i], 0)
	}
}

// remove forgets a flow that is in no heap.
func (t *table) remove(f *flow) {
	t.flows[f.index] = nil
	t.free = append(t.free, f.index)
}

// in tells whether f is in a heap of this kind.
func (f *flow) in(which int) bool { return f.heaps&(1<<which) != 0 }

func (h *heap[K]) len() int { return max(0, len(h.items)-heapRoot) }

// all are the heap's items, in no order.
func (h *heap[K]) all() []heapItem[K] { return h.items[min(heapRoot, len(h.items)):] }

// first returns the flow with the least key, nil if there is none.
func (h *heap[K]) first() *flow {
	if len(h.items) <= heapRoot {
		return nil
	}
	return h.table.flows[h.items[heapRoot].flow]
}

// least is the key of the first flow; there must be one.
func (h *heap[K]) least() K { return h.items[heapRoot].key }

// set puts f in with this key, or changes its key, which keeps its place among equals.
func (h *heap[K]) set(f *flow, key K) {
	if !f.in(h.which) {
		f.heaps |= 1 << h.which
		if len(h.items) == 0 {
			h.items = make([]heapItem[K], heapRoot, 4*heapRoot+4)
		}
		h.order++
		h.items = append(h.items, heapItem[K]{key, h.order, f.index})
		h.up(len(h.items) - 1)
		return
	}
	i := int(h.table.at[h.which][f.index])
	if old := h.items[i].key; key < old {
		h.items[i].key = key
		h.up(i)
	} else if key > old {
		h.items[i].key = key
		h.down(i)
	}
}

// drop takes f out if it is in.
func (h *heap[K]) drop(f *flow) {
	if !f.in(h.which) {
		return
	}
	f.heaps &^= 1 << h.which
	i := int(h.table.at[h.which][f.index])
	last := len(h.items) - 1
	moved := h.items[last]
	h.items = h.items[:last]
	if i < last {
		h.items[i] = moved
		h.down(h.up(i))
	}
}

func (h *heap[K]) before(a, b *heapItem[K]) bool {
	return a.key < b.key || a.key == b.key && a.order < b.order
}

// up moves the item at i to where it belongs towards the root, and returns where that is.
func (h *heap[K]) up(i int) int {
	item := h.items[i]
	for i > heapRoot {
		parent := i/4 + 2
		if !h.before(&item, &h.items[parent]) {
			break
		}
		h.place(i, h.items[parent])
		i = parent
	}
	h.place(i, item)
	return i
}

func (h *heap[K]) down(i int) {
	item := h.items[i]
	for {
		child := 4 * (i - 2)
		if child >= len(h.items) {
			break
		}
		end := min(child+4, len(h.items))
		for other := child + 1; other < end; other++ {
			if h.before(&h.items[other], &h.items[child]) {
				child = other
			}
		}
		if !h.before(&h.items[child], &item) {
			break
		}
		h.place(i, h.items[child])
		i = child
	}
	h.place(i, item)
}

func (h *heap[K]) place(i int, item heapItem[K]) {
	h.items[i] = item
	h.table.at[h.which][item.flow] = int32(i)
}
