package sched

// A lease whose drain has taken longer than the drain timeout is late: it has no slot any more, and its flow gets no
// other until all that was submitted on it is done. Most likely its process is stopped, or a kernel takes very long.
// But what was submitted may also wait for work behind the gate, which a process that was stopped could not bring
// while the drain's openings were there. So the gate of a late lease opens again now and then, as long as threads
// wait at it and nothing gets done: for one part in lateRest of the time and a little longer each time, so that others
// lose little to one that never comes back. Where that brings progress at once the next opening follows at once, as in
// a drain, some times (StallsMax); then each only after the usual rest, since what goes on may be other work beside a
// kernel that never ends. So whoever needs so many launches gets them in bounded time.
//
// Others have their leases meanwhile, and the late flow what the GPU's own slices give it beside them. How much
// that is cannot be seen from here: it pays for all of the time, up to T and a drain timeout beyond GVT. One that was
// stopped had nothing, and is not to be kept waiting for as long as that was.

// lateRest is how many times as long as its openings the gate of a late lease is closed between them; their length
// doubles lateLonger times at most.
const (
	lateRest   = 16
	lateLonger = 2
)

// expire takes the slot of a lease whose drain takes too long.
func (q *queue) expire(l *lease) {
	f := l.flow
	f.stats.expired++
	q.say(Decision{Kind: Expire, GPU: q.gpu, Flow: f.id, Lease: l.number})
	f.late = append(f.late, l)
	q.release(l)
	q.makeLate(l)
	if len(f.peers) > 1 {
		q.board.reserved = append(q.board.reserved, f) // it gives back what it has reserved
	}
}

// makeLate begins the time without a slot, with the gate closed.
func (q *queue) makeLate(l *lease) {
	l.late, l.state, l.settled = true, leaseDraining, q.now
	l.drain.reclosed, l.drain.helped, l.drain.helps, l.drain.vain = q.now, false, 0, 0
	q.watch(l)
}

// lateLease is the flow's late lease of this number, nil if it has none.
func (f *flow) lateLease(number uint64) *lease {
	for _, l := range f.late {
		if l.number == number {
			return l
		}
	}
	return nil
}

// lateDue is when a late lease of f is to be looked at; 0: there is nothing to look for.
func (f *flow) lateDue() int64 {
	at := Never
	for _, l := range f.late {
		at = min(at, l.due)
	}
	if at == Never {
		return 0
	}
	return at
}

// dueLate opens and closes the gates of late leases, a gang's on all of its GPUs.
func (q *queue) dueLate(f *flow) {
	for _, l := range f.late {
		if q.now < l.due {
			continue
		}
		open := l.state == leaseDraining
		for _, peer := range f.peers {
			peer.on.turnLate(peer, l, open)
		}
	}
}

// turnLate opens or closes f's gate for a late lease of its own or of another of its gang.
func (q *queue) turnLate(f *flow, of *lease, open bool) {
	l := f.lateLease(of.number)
	if l == nil {
		if !open || !q.mode.gated || len(f.leases) > 0 || len(f.late) > 0 || f.coRun {
			return
		}
		l = q.newLease() // what waits elsewhere may wait for what is held back here
		*l = lease{flow: f, number: of.number, from: q.now, drain: of.drain}
		f.late = append(f.late, l)
		q.makeLate(l)
	}
	q.payLate(l)
	if open {
		q.reopen(l)
	} else {
		q.reclose(l)
	}
}

// waitersLate takes whether threads wait at the gate of a late lease. One that has just come to wait shows that its
// process goes on, so the next opening is as near as the first one was.
func (q *queue) waitersLate(l *lease, some bool) {
	if l.drain.nobody = !some; some && l.state == leaseDraining {
		l.drain.vain = 0
	}
	q.watch(l)
}

// movedLate: something of a late lease is done. What comes right after an opening is taken as its effect.
func (q *queue) movedLate(l *lease) {
	d := &l.drain
	if l.state == leaseReopened && !d.helped && q.now <= d.reopened+helpWithin {
		d.helped = true
		d.helps++
	}
	d.still = q.now
	if d.helped {
		d.vain = 0
	}
	q.watch(l)
}

// payLate charges a late lease up to now.
func (q *queue) payLate(l *lease) {
	f := l.flow
	passed := q.now - l.settled
	l.settled = q.now
	q.advance()
	most := q.gvt + f.threshold() + float64(q.config.DrainTimeout)/f.weight
	q.charge(f, int64(min(float64(passed), max(0, most-f.virtual)*f.weight)))
	q.refile(f)
}

// closeLate: a late lease's work is over at last.
func (q *queue) closeLate(f *flow, number uint64) bool {
	l := f.lateLease(number)
	if l != nil {
		q.endLate(l)
	}
	return l != nil
}

// endLate takes a late lease away from its flow, which pays, and then comes in like one that returns from idle.
func (q *queue) endLate(l *lease) {
	f := l.flow
	q.payLate(l)
	f.late, q.spare = without(f.late, l), append(q.spare, l)
	q.join(f)
	q.refile(f)
}
