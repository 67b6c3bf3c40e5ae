package residency

// What can be seen from outside.

import (
	"cmp"
	"slices"
)

// View is one flow's state, for people. Bytes, and ns.
type View struct {
	State   string // idle, waiting, next, entering, holder
	Cap     int64
	Swap    int64
	Plain   int64 // cannot move
	Total   int64 // movable memory, wherever it is; the sum of the next five
	Here    int64 // on the card
	Swapped int64 // on the host
	Fresh   int64 // never touched
	Coming  int64
	Going   int64
	Recent  int64 // used in the last leases
	Above   int64 // what is on the card beyond the cap
	// AboveMost is the most of that there was by faults.
	AboveMost int64
	// Since the flow began.
	MovedIn, MovedOut, Filled int64
	Faulted                   int64 // came to the card by kernels' faults
	Displaced                 int64 // went by others' faults, as far as is known or assumed
	Cancelled, Failed         uint64
	KeepUntil                 int64 // of an idle one: when its memory need not stay any more
	Draining                  bool
}

// View returns a flow's state, and whether there is one.
func (n *Node) View(id FlowID, gpu int) (View, bool) {
	if gpu < 0 || gpu >= len(n.gpus) {
		return View{}, false
	}
	f := n.gpus[gpu].flow(id)
	if f == nil {
		return View{}, false
	}
	v := View{
		State: f.stateName(), Cap: f.limit, Swap: f.swap, Plain: f.plain, Total: f.sum.total(), Here: f.sum.resident,
		Swapped: f.sum.host, Fresh: f.sum.fresh, Coming: f.sum.coming, Going: f.sum.going, Recent: f.set(),
		Above:   f.above(),
		MovedIn: f.stats.in, MovedOut: f.stats.out, Filled: f.stats.filled, Faulted: f.stats.faulted,
		Displaced: f.stats.displaced, Cancelled: f.stats.cancelled, Failed: f.stats.failed, Draining: f.drain, AboveMost: f.stats.above,
	}
	if f.state == Idle {
		v.KeepUntil = f.keepUntil
	}
	return v, true
}

func (f *flow) stateName() string {
	switch f.state {
	case Waiting:
		return "waiting"
	case Next:
		return "next"
	case Holder:
		if !f.ready {
			return "entering"
		}
		return "holder"
	}
	return "idle"
}

// Pressure is what of the card is used, by all that is known, and the node's host memory set aside.
func (n *Node) Pressure(gpu int) (used, hostReserved int64) { return n.gpus[gpu].used, n.reserved }

// Moves tells whether anything of the flow is to be moved or is lacking for its next lease, and how long bringing
// that takes: what Resident of agent/sched wants to know.
func (n *Node) Moves(id FlowID, gpu int) (resident bool, cost int64) {
	f := n.gpus[gpu].flow(id)
	if f == nil {
		return true, 0
	}
	lack := f.lackOfSet() + f.sum.coming
	return lack == 0, f.on.takes(lack)
}

// Lacks is what is still to come for the flow's present or next lease, in bytes, what is under way included.
func (n *Node) Lacks(id FlowID, gpu int) int64 {
	f := n.gpus[gpu].flow(id)
	if f == nil {
		return 0
	}
	return f.lackOfSet() + f.sum.coming
}

// Step is what one allocation is to bring, or to give.
type Step struct {
	Flow  FlowID
	Alloc AllocID
	Bytes int64
}

// Prefetch lists what would come for this flow's next lease, in order, under its cap and regardless of others.
// O(n log n), for people.
func (n *Node) Prefetch(id FlowID, gpu int) (steps []Step) {
	f := n.gpus[gpu].flow(id)
	if f == nil {
		return nil
	}
	left := f.headroom() + f.sum.going
	extra := int64(f.on.config.Recent*float64(f.set())) - f.sum.resident - f.sum.coming - f.lackOfSet()
	for _, a := range f.sorted(lacks) {
		bytes := min(a.sum.lack(), left)
		if !f.recent(a) {
			bytes = min(bytes, extra)
			extra -= bytes
		}
		if bytes <= 0 {
			break
		}
		left -= bytes
		steps = append(steps, Step{f.id, a.id, bytes})
	}
	return steps
}

// SwapOut lists what would go for a flow that is next and lacks so many bytes, in order. O(n log n), for people.
func (n *Node) SwapOut(gpu int, bytes int64) (steps []Step) {
	g := n.gpus[gpu]
	flows := slices.DeleteFunc(slices.Clone(g.flows), func(f *flow) bool {
		return g.classOf(f, nil, ForNext) == safe
	})
	slices.SortStableFunc(flows, func(a, b *flow) int {
		c, d := g.classOf(a, nil, ForNext), g.classOf(b, nil, ForNext)
		switch {
		case c != d:
			return int(c) - int(d)
		case sooner(a, b, c):
			return -1
		}
		return 1
	})
	for _, f := range flows {
		for _, a := range f.sorted(there) {
			part := min(a.sum.resident, bytes)
			if part <= 0 || f == g.next && f.recent(a) {
				break
			}
			bytes -= part
			steps = append(steps, Step{f.id, a.id, part})
		}
	}
	return steps
}

// sorted is what the heaps of f's processes hold that do not rest, in order.
func (f *flow) sorted(which int) []*alloc {
	var items []heapItem
	for _, p := range f.processes {
		if h := map[int]*heap{there: &p.there, lacks: &p.lacks}[which]; p.restUntil == 0 && len(h.items) > 1 {
			items = append(items, h.items[1:]...)
		}
	}
	slices.SortFunc(items, func(a, b heapItem) int { return cmp.Compare(a.key, b.key) })
	allocs := make([]*alloc, len(items))
	for i, item := range items {
		allocs[i] = item.alloc
	}
	return allocs
}
