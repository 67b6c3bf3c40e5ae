package sched

// What containers do: the events of Node that come from them.

// Want: the container has work for so many leases (on each of its GPUs), at least one; it is told Grant,
// or Open where none is needed. To be repeated where the number changes only.
func (n *Node) Want(now int64, id FlowID, leases int) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	if c.choose {
		c.place()
	}
	for _, f := range c.using() {
		q := f.on
		q.join(f)
		f.wants = int32(min(max(1, leases), SlotsMax))
		q.refile(f)
		q.advance()
		q.throttle(f)
		if !q.mode.gated || f.coRun {
			q.say(Decision{Kind: Open, GPU: q.gpu, Flow: id, Rivals: q.rivals()})
		}
	}
	return n.finish(c)
}

// Used: the container reports what it has done on a GPU, at least every 10 ms while its gate is open, and
// right before Close. What it did before a Grant is no part of a report after it.
func (n *Node) Used(now int64, id FlowID, gpu int, use Use) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.using() {
		if f.on.gpu == gpu {
			f.on.used(f, use)
		}
	}
	return n.finish(c)
}

// Close: all that was submitted on this lease is done, on all GPUs of a gang together, and its gate is
// closed. more tells whether the container would go on: then it waits for its next lease. A lease that
// is not there any more is ignored.
func (n *Node) Close(now int64, id FlowID, lease uint64, more bool) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	found := false
	for _, f := range c.flows {
		if f.on.close(f, lease) {
			found = true
		}
	}
	if found {
		for _, f := range c.using() {
			f.unreserve() // a gang that has got one more GPU meanwhile begins anew, by how far it is ahead now
		}
	}
	if found && !more {
		n.rest(c, 1)
	}
	for _, f := range c.using() {
		f.on.refile(f)
		f.on.advance()
		f.on.throttle(f)
	}
	return n.finish(c)
}

// Idle: the container has no work any more, and no lease, because its gate was open or it waited.
func (n *Node) Idle(now int64, id FlowID) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.using() {
		f.unreserve()
	}
	n.rest(c, SlotsMax)
	return n.finish(c)
}

// rest takes so many leases off what c wants.
func (n *Node) rest(c *container, leases int) {
	for _, f := range c.using() {
		f.wants = max(int32(len(f.leases)), f.wants-int32(leases))
		f.on.leave(f)
		f.on.refile(f)
	}
}

// Progress: something that the container submitted is done. To be told at least every 10 ms while a
// lease drains, late or not, if there was any, and within 5 ms of Reopen: later is not taken for its effect.
func (n *Node) Progress(now int64, id FlowID) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.using() {
		f.on.progress(f)
	}
	return n.finish(c)
}

// Waiters: whether threads of the container wait at its closed gates, on any GPU. Where none does, a drain
// that stands still waits for something else, and the gate is not opened again for it. To be told while a
// lease drains, late or not, when it changes; after each Revoke they are taken to wait until the caller says
// otherwise. Of a late lease it may be told again that some wait where one has just come to: that is a sign of life.
func (n *Node) Waiters(now int64, id FlowID, some bool) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.using() {
		f.on.waiters(f, some)
	}
	return n.finish(c)
}

// Drained: after Gate, what the container had submitted on this GPU before is done. Unless it says so, or has
// no work, leases of others measure nothing for as long as a drain may take.
func (n *Node) Drained(now int64, id FlowID, gpu int) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.flows {
		if f.on.gpu == gpu {
			f.on.done(f)
		}
	}
	return n.finish(c)
}

// Gone: the container has ended, however that was.
func (n *Node) Gone(now int64, id FlowID) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.flows {
		for len(f.leases) > 0 {
			f.on.end(f.leases[0])
		}
		f.on.remove(f)
	}
	c.dropGang()
	delete(n.containers, id)
	n.recent = nil
	return n.finish(c)
}
