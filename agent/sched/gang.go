package sched

// Containers that use several GPUs together: all or none, in the order of the GPUs' numbers.
//
// A gang waits at its first GPU like any flow, once it is not too far ahead of others on any of them. When
// it has the slot there, that is reserved, its gate still closed, and the gang waits at the next, where it
// now goes before the others and a holder's lease is cut short: an idle slot waits for it. Since it waits for a
// GPU only while it holds none of a higher number, no two gangs can wait for each other. (A GPU whose gates
// close later may be one of a lower number: then what was reserved above it is given back.) At GPUs that it
// does not wait at yet it counts for GVT like a waiting flow, so it is not forgotten there; but if its
// turn comes first there, the slot goes to others (unstick).

// gangs lets those go on that have got a slot, or whose GPU has opened or closed its gates.
func (n *Node) gangs() []Decision {
	for len(n.reserved) > 0 || len(n.switched) > 0 {
		var touched []*flow
		for _, f := range n.reserved {
			touched = append(touched, f.peers...)
			n.containers[f.id].advance(&n.board)
		}
		n.reserved = n.reserved[:0]
		for _, q := range n.switched {
			for _, c := range q.gangs {
				touched = append(touched, c.flows...)
				c.advance(&n.board)
			}
		}
		n.switched = n.switched[:0]
		for _, f := range touched {
			f.on.finish()
		}
	}
	return n.out
}

// advance brings a gang as far as it can get: to wait at the first GPU where it needs a slot and has none,
// or, where there is no such, to begin.
func (c *container) advance(b *board) {
	at, holds, probes := c.missing()
	for i, f := range c.flows {
		if i > at {
			f.unreserve()
		}
		blocked, hurry, probe := i > at || probes, i == at && holds, i == at && probes
		if blocked != f.blocked || hurry != f.hurry || probe != f.probe {
			if hurry && !f.hurry {
				b.hurries++
				f.hurried = b.hurries
			}
			f.blocked, f.hurry, f.probe = blocked, hurry, probe
			f.on.refile(f)
			if hurry {
				f.on.clear()
			}
		}
	}
	if at == len(c.flows) {
		c.complete(b)
	}
}

// clear has the lease of the flow that is furthest ahead revoked, now or once it has lasted a quarter of a
// quantum, if no slot is free or about to be.
func (q *queue) clear() {
	var last *lease
	for _, l := range q.leases {
		if l.state != leaseGranted {
			return
		}
		if last == nil || l.flow.virtual > last.flow.virtual {
			last = l
		}
	}
	if len(q.leases) < q.config.Slots || last == nil {
		return
	}
	last.due = min(last.due, last.flow.leasedAt+q.config.Quantum/4)
	if last.due <= q.now {
		q.dueLease(last) // which does not renew it where a gang hurries
	}
}

// missing is the first flow that needs a slot and has none, the number of flows if there is none, and
// whether the gang holds slots. -1: none is to be had, as an expired lease is still at work. If it holds none, a flow that is too far ahead comes first, and probes:
// the gang waits until that one may have a slot, which stays so, and reserves none meanwhile.
func (c *container) missing() (at int, holds, probes bool) {
	at = len(c.flows)
	ahead := -1
	for i, f := range c.flows {
		switch {
		case len(f.late) > 0:
			return -1, false, false
		case len(f.leases) > 0:
			holds = true
		case f.on.mode.gated && !f.coRun && f.wants > 0:
			at = min(at, i)
			if ahead < 0 && f.tag(nil) > f.on.gvt {
				ahead = i
			}
		}
	}
	if ahead >= 0 && !holds {
		return ahead, false, true
	}
	return at, holds, false
}

// probe lets those gangs go on that waited until they are no longer too far ahead here.
func (q *queue) probe() {
	for h := &q.probes; h.len() > 0 && h.least() <= q.gvt; {
		f := h.first()
		f.probe = false
		q.refile(f)
		q.board.reserved = append(q.board.reserved, f)
	}
}

// complete opens the gates of what was reserved. All leases of a gang have one number. One that comes while
// others drain is revoked with them: what they wait for may be what the gate here has held back.
func (c *container) complete(b *board) {
	number, draining := uint64(0), (*lease)(nil)
	for _, f := range c.flows {
		for _, l := range f.leases {
			if number = max(number, l.number); l.state >= leaseDraining {
				draining = l
			}
		}
	}
	for _, f := range c.flows {
		for _, l := range f.leases {
			if l.state != leaseReserved {
				continue
			}
			if number == 0 {
				b.number++
				number = b.number
			}
			if f.on.begin(l, number); draining != nil {
				f.on.joinDrain(l, draining)
			}
		}
	}
}

// unreserve gives back a slot of a gang that is not complete.
func (f *flow) unreserve() {
	for _, l := range f.leases {
		if l.state == leaseReserved {
			f.on.end(l)
			return // a gang's flow has one lease at most
		}
	}
}
