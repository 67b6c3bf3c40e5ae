package residency

// An indexed heap of allocations: least key first. A process has one of what is on the card, least recently used first,
// and one of what lacks, most recently used first; a GPU one of those that rest, by when that is over.

const (
	there = iota
	lacks
	rests
	heaps
)

type heapItem struct {
	key   int64
	alloc *alloc
}

type heap struct {
	which int
	items []heapItem // from 1 on
}

// first returns the allocation with the least key, nil if there is none.
func (h *heap) first() *alloc {
	if len(h.items) <= 1 {
		return nil
	}
	return h.items[1].alloc
}

// put has a in the heap with this key, or not at all.
func (h *heap) put(a *alloc, in bool, key int64) {
	i := a.at[h.which]
	switch {
	case in && i == 0:
		if len(h.items) == 0 {
			h.items = make([]heapItem, 1, 8)
		}
		h.items = append(h.items, heapItem{key, a})
		h.up(len(h.items) - 1)
	case in && h.items[i].key != key:
		h.items[i].key = key
		h.down(h.up(i))
	case !in && i != 0:
		a.at[h.which] = 0
		last := len(h.items) - 1
		moved := h.items[last]
		h.items[last] = heapItem{}
		if h.items = h.items[:last]; i < last {
			h.items[i] = moved
			h.down(h.up(i))
		}
	}
}

func (h *heap) up(i int) int {
	item := h.items[i]
	for ; i > 1 && item.key < h.items[i/2].key; i /= 2 {
		h.place(i, h.items[i/2])
	}
	h.place(i, item)
	return i
}

func (h *heap) down(i int) {
	item := h.items[i]
	for child := 2 * i; child < len(h.items); child = 2 * i {
		if child+1 < len(h.items) && h.items[child+1].key < h.items[child].key {
			child++
		}
		if item.key <= h.items[child].key {
			break
		}
		h.place(i, h.items[child])
		i = child
	}
	h.place(i, item)
}

func (h *heap) place(i int, item heapItem) {
	h.items[i] = item
	item.alloc.at[h.which] = i
}
