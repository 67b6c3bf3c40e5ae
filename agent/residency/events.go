package residency

// What containers and the scheduler do.

// Set: the scheduler's state of a flow has changed. turn is when its lease is expected while it waits, 0 if unknown;
// it may be told again whenever that changes.
func (n *Node) Set(now int64, id FlowID, gpu int, state State, turn int64) []Decision {
	f := n.on(now, id, gpu)
	if f == nil {
		return nil
	}
	f.turn = turn
	f.enter(state)
	return f.on.finish()
}

// Used: kernels, copies or sets of a flow use these allocations. What of them was not on the card has been faulted in,
// whether the flow holds the GPU or not: copies from and to the host wait for no lease.
func (n *Node) Used(now int64, ids ...AllocID) []Decision {
	n.begin()
	n.changed = n.changed[:0]
	for _, id := range ids {
		a := n.allocs[id]
		if a == nil {
			continue
		}
		f := a.flow
		f.on.now = max(f.on.now, now)
		f.age()
		f.touch(a)
		f.on.meet(a)
		faulted := a.sum.lack() > 0
		if f.state == Idle {
			f.keepUntil = max(f.keepUntil, f.on.now+f.on.config.Linger)
		}
		if faulted {
			f.fault(a)
		}
		if faulted || a.sum.coming > 0 || a.sum.going > 0 { // which is there, or may stay, now that it is recent
			n.change(f.on)
		}
	}
	return n.finish()
}

// fault: all of a that was neither on the card nor under way is there now.
func (f *flow) fault(a *alloc) {
	if f.state != Holder {
		f.brought += a.sum.lack()
	}
	for a.sum.lack() > 0 {
		i := a.lacking()
		if a.pieces[i] == host {
			f.stats.faulted += a.bytes(i)
		}
		a.setPiece(i, resident)
	}
	f.exceeds()
}

// UsedAll: the flow has used memory in its present lease, and what is not known: all of it is taken to be recent.
func (n *Node) UsedAll(now int64, id FlowID, gpu int) []Decision {
	f := n.on(now, id, gpu)
	if f == nil {
		return nil
	}
	f.age()
	f.allUsed = f.lease
	return f.on.finish()
}

// Displaced: the driver has swapped out this much of the flow by itself, as far as the caller can tell: what came first.
func (n *Node) Displaced(now int64, id FlowID, gpu int, bytes int64) []Decision {
	f := n.on(now, id, gpu)
	if f == nil {
		return nil
	}
	for p := f.on.arrivals.first(); p != nil && bytes > 0; {
		next := f.on.arrivals.next(p)
		if a := p.alloc; a.flow == f && a.pieces[p.piece] == resident {
			bytes -= a.bytes(p.piece)
			p.displace()
		}
		p = next
	}
	return f.on.finish()
}

// Free: these allocations are gone.
func (n *Node) Free(now int64, ids ...AllocID) []Decision {
	n.begin()
	n.changed = n.changed[:0]
	for _, id := range ids {
		a := n.allocs[id]
		if a == nil {
			continue
		}
		g := a.flow.on
		g.now = max(g.now, now)
		n.forget(a)
		n.change(g)
	}
	return n.finish()
}

// Ended: a process is gone, with all of its movable memory. Its plain memory is to be taken off with Release.
func (n *Node) Ended(now int64, session Session) []Decision {
	n.begin()
	for a := n.sessions[session]; a != nil; a = n.sessions[session] {
		a.flow.on.now = max(a.flow.on.now, now)
		n.forget(a)
	}
	for _, g := range n.gpus {
		g.finish()
	}
	return n.out
}

// Others: so much of the card is used by what is no flow.
func (n *Node) Others(now int64, gpu int, bytes int64) []Decision {
	n.begin()
	g := n.gpus[gpu]
	g.now = max(g.now, now)
	g.used += bytes - g.others
	g.others = bytes
	return g.finish()
}

// Link: what the link was found to carry, in bytes a second.
func (n *Node) Link(now int64, gpu int, in, out int64) []Decision {
	n.begin()
	g := n.gpus[gpu]
	g.now = max(g.now, now)
	g.config.In, g.config.Out = max(1, in), max(1, out)
	return g.finish()
}
