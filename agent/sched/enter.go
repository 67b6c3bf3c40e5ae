package sched

// Leases whose holders bring their memory first, and who is expected to have the next ones: what package residency
// is told and asks for.

import (
	"cmp"
	"slices"
)

// Begins: the quantum of this lease begins then, now or later, since its gate stays closed until the holder's memory
// is in place. All of the time is charged, but a lease whose memory takes as long as a quantum would else end as it
// begins. To be told right after Grant with the latest time at which the gate opens, and again when it does.
func (n *Node) Begins(now int64, id FlowID, lease uint64, at int64) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.flows {
		if l := f.lease(lease); l != nil {
			f.on.begins(l, max(at, f.on.now))
		}
	}
	return n.finish(c)
}

func (q *queue) begins(l *lease, at int64) {
	if l.state != leaseGranted {
		return
	}
	q.settle(l)
	l.had, l.work = 0, 0 // what bringing memory takes tells nothing of what the holder's operations cost
	quantum := q.config.Quantum
	if q.ready[hurrying].len() > 0 {
		quantum /= 4 // as for all leases that a gang waits for
	}
	l.flow.leasedAt, l.due = at, max(at+quantum, q.now+1)
}

// Expected is a container that waits for a lease on a GPU, and when it may expect that.
type Expected struct {
	Flow FlowID
	At   int64
}

// Expected appends to list who waits for a lease on a GPU, in the order in which they are expected to have one: the
// present leases last as long as they may, and each of those that follow what its flow's mostly cost. Of a gang it
// tells from the GPU where it waits. O(n log n) of those that wait.
func (n *Node) Expected(gpu int, list []Expected) []Expected {
	q := n.queues[gpu]
	if !q.mode.gated {
		return list
	}
	var waiting []*flow
	for i := range q.ready {
		for _, item := range q.ready[i].all() {
			waiting = append(waiting, q.table.flows[item.flow])
		}
	}
	slices.SortFunc(waiting, q.order)
	at := q.now
	for i, l := range q.leases {
		if ends := max(q.now, l.due); i == 0 || ends < at {
			at = ends
		}
	}
	for _, f := range waiting {
		list = append(list, Expected{f.id, at})
		if f.estimate > 0 {
			at += f.estimate
		} else {
			at += q.config.Quantum
		}
	}
	return list
}

// order of two flows that wait: candidate takes those that may have a lease by their class, and the others follow by
// how soon they may.
func (q *queue) order(a, b *flow) int {
	may, other := a.class == hurrying || a.tag(nil) <= q.gvt, b.class == hurrying || b.tag(nil) <= q.gvt
	switch {
	case may && !other:
		return -1
	case other && !may:
		return 1
	case may && a.class != b.class:
		return cmp.Compare(a.class, b.class)
	case may:
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.id, b.id))
	}
	return cmp.Or(cmp.Compare(a.tag(nil), b.tag(nil)), cmp.Compare(a.id, b.id))
}
