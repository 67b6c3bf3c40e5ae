package sched

// The life of a lease: reserved (gangs only), granted, renewed, draining, open again, ended.

// leaseState says what a lease's gate does.
type leaseState uint8

const (
	leaseReserved leaseState = iota // the slot is held, and the gate still closed: its gang is not complete
	leaseGranted
	leaseDraining
	leaseReopened
)

// lease is one slot in a flow's hands. All times are of the queue's clock, in ns.
type lease struct {
	number uint64
	flow   *flow
	state  leaseState
	from   int64 // of the grant, or of the reservation
	due    int64 // when it has to be looked at

	// What is charged. Up to `settled` the time with others waiting is in C. `free` is the time without, and
	// `full` that with others, since the holder's last report.
	settled    int64
	contended  bool
	unchecked  bool // it was renewed because nobody waited, however far its flow was ahead
	free, full int64
	reserved   int64 // expected cost that is not charged yet
	cost       int64 // charged so far
	clean      bool  // nothing from before the closing of the gates ran beside it when it began
	had        int64 // slot time, what is not charged included
	work       int64 // reported

	drain drain
	late  bool // it has expired: see late.go
}

// grant gives f a slot. A gang's member only reserves it: Node confirms once all have one.
func (q *queue) grant(f *flow) {
	q.utilGrant(len(q.leases))
	l := q.newLease()
	*l = lease{flow: f, from: q.now, settled: q.now, due: q.now + q.config.Quantum}
	l.reserved = f.estimate
	if l.reserved == 0 {
		l.reserved = q.config.Quantum
	}
	q.leases = append(q.leases, l)
	f.leases = append(f.leases, l)
	f.reserved += l.reserved
	if len(f.peers) > 1 {
		q.board.reserved = append(q.board.reserved, f)
	} else {
		q.number++
		q.begin(l, q.number)
	}
	q.refile(f)
	q.bringNear(f)
	q.advance()
	if f.tag(nil) > q.gvt {
		q.prefetch()
	}
}

// newLease takes one that has ended, if there is any: a scheduler at work makes no garbage. Nobody keeps
// a lease beyond its end.
func (q *queue) newLease() *lease {
	if n := len(q.spare); n > 0 {
		l := q.spare[n-1]
		q.spare = q.spare[:n-1]
		return l
	}
	return &lease{}
}

// begin opens the gate of a lease.
func (q *queue) begin(l *lease, number uint64) {
	f := l.flow
	l.number, l.state, l.due, l.clean = number, leaseGranted, q.now+q.config.Quantum, q.clean()
	f.leasedAt, f.fetching, f.throttled = q.now, false, false
	f.stats.leases++
	if q.last != f.id {
		f.stats.changes++
		q.last = f.id
	}
	waited := q.now - max(f.waitFrom, q.mode.since)
	f.stats.waited += waited
	f.stats.longest = max(f.stats.longest, waited)
	q.say(Decision{Kind: Grant, GPU: q.gpu, Flow: f.id, Lease: number})
	q.recent = f.of
}

// othersWait: somebody else than f would take a slot.
func (q *queue) othersWait(f *flow) bool {
	return q.waiting > 1 || q.waiting == 1 && !f.counted
}

// recount charges the leases for which it has changed whether others wait, and tells whether there
// were any.
func (q *queue) recount() (changed bool) {
	for _, l := range q.leases {
		if waits := q.othersWait(l.flow); waits != l.contended {
			q.settle(l)
			if l.contended, changed = waits, true; waits && l.unchecked {
				q.recheck(l)
			}
		}
	}
	return changed
}

// recheck: somebody waits again, and a lease that was renewed without looking goes on only as if it were renewed now.
func (q *queue) recheck(l *lease) {
	l.unchecked = false
	if q.advance(); l.state == leaseGranted && l.flow.tag(l) > q.gvt {
		l.due = min(l.due, q.now+1)
	}
}

// settle charges a lease's time up to now if others wait, and else keeps it for the holder's report.
func (q *queue) settle(l *lease) {
	passed := q.now - l.settled
	l.settled = q.now
	if passed <= 0 {
		return
	}
	if l.contended {
		l.full += passed
		q.got(l, passed)
		q.pay(l, passed)
	} else {
		l.free += passed
	}
}

// pay charges ns to l's flow, out of what is reserved for it as far as that goes.
func (q *queue) pay(l *lease, ns int64) {
	f := l.flow
	l.cost += ns
	off := min(ns, l.reserved)
	l.reserved -= off
	f.reserved -= off
	q.charge(f, ns)
	q.refile(f)
}

// report takes what the holder says of the time since its last report: the lease costs the busy time,
// and at least the time with others waiting, which is charged already. What it has had while nobody
// waited puts a flow no further ahead of the others than T and a quantum: nobody was kept from anything by
// it, and it must not be kept from much for it later.
func (q *queue) report(l *lease, use Use) {
	q.settle(l)
	extra := min(use.Busy-l.full, l.free)
	q.got(l, max(0, extra))
	l.work += max(0, use.Work)
	if f := l.flow; q.active.len() > 1 {
		q.advance()
		extra = min(extra, int64((q.gvt+f.threshold()-f.virtual)*f.weight)+q.config.Quantum)
	}
	if extra > 0 {
		q.pay(l, extra)
	}
	l.free, l.full = 0, 0
}

func (q *queue) got(l *lease, ns int64) {
	l.had += ns
	l.flow.stats.got += ns
}

// dueLease does what is due for a lease; its due is later than now afterwards, or it has ended.
func (q *queue) dueLease(l *lease) {
	q.settle(l)
	q.advance()
	switch l.state {
	case leaseReserved:
		l.due = q.now + q.config.Quantum
	case leaseGranted:
		if q.renewable(l) {
			q.renew(l)
		} else {
			for _, peer := range l.flow.peers {
				if other := peer.lease(l.number); other != nil {
					peer.on.revoke(other)
				}
			}
		}
	default:
		q.dueDrain(l)
	}
}

// renewable: nobody else waits, or the holder may have another lease and no gang is waited for. The
// holder keeps the GPU while it may, since each switch costs ("sticky").
func (q *queue) renewable(l *lease) bool {
	if q.surplus() {
		return false
	}
	if !q.othersWait(l.flow) {
		return true
	}
	if q.ready[hurrying].len() > 0 || q.measuring() {
		return false
	}
	if q.mode.paying && l.flow.ahead(l) > q.gvt {
		return false
	}
	if tag := l.flow.tag(l); tag > q.gvt && q.nearest() == nil {
		q.lift(tag) // who waits, waits for other GPUs, too
	}
	return l.flow.tag(l) <= q.gvt
}

// surplus: there are more leases than slots, since that is configured anew.
func (q *queue) surplus() bool {
	if len(q.leases) <= q.config.Slots {
		return false
	}
	going := 0
	for _, l := range q.leases {
		if l.state < leaseDraining {
			going++
		}
	}
	return going > q.config.Slots
}

func (q *queue) renew(l *lease) {
	f := l.flow
	f.reserved -= l.reserved
	l.reserved = max(1, f.estimate)
	f.reserved += l.reserved
	l.due = q.now + q.config.Quantum
	l.unchecked = !q.othersWait(f)
	q.refile(f)
	if q.othersWait(f) && f.tag(nil) > q.gvt {
		q.prefetch()
	}
}

// lease is the flow's lease of this number, nil if it has none.
func (f *flow) lease(number uint64) *lease {
	for _, l := range f.leases {
		if l.number == number && l.state != leaseReserved {
			return l
		}
	}
	return nil
}

// end takes a lease away from its flow, which pays what it has had.
func (q *queue) end(l *lease) {
	q.release(l)
	q.spare = append(q.spare, l)
}

// release gives a lease's slot to others.
func (q *queue) release(l *lease) {
	f := l.flow
	q.settle(l)
	q.utilEnd(len(q.leases))
	q.leases = without(q.leases, l)
	f.leases = without(f.leases, l)
	f.reserved -= l.reserved
	if l.state != leaseReserved {
		f.estimate = average(f.estimate, max(1, l.cost))
		q.turn = average(q.turn, l.cost)
		if !f.rate.known {
			q.note(f, false)
		}
	}
	q.refile(f)
	q.advance()
}

// without keeps the order, so that decisions do not depend on what has ended.
func without(leases []*lease, l *lease) []*lease {
	for i := range leases {
		if leases[i] == l {
			copy(leases[i:], leases[i+1:])
			leases[len(leases)-1] = nil
			return leases[:len(leases)-1]
		}
	}
	return leases
}

// close ends the lease of this number, if f has it: all that was submitted on it is done, or its
// holder has given it back.
func (q *queue) close(f *flow, number uint64) bool {
	l := f.lease(number)
	if l == nil {
		return q.closeLate(f, number)
	}
	q.settle(l)
	q.drained(l)
	q.measure(l)
	q.done(f)
	q.end(l)
	return true
}
