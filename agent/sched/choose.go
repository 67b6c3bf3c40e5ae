package sched

// Who gets a free slot. Among flows that may have one, in this order: gangs that hold slots elsewhere,
// the fewest leases, memory on this GPU, the least P - T. No order can break the bounds, which rest on
// P - GVT <= T alone (decision 11); this one keeps flows where their memory is.
//
// Flows of one kind lie in one heap, so that a choice looks at as many heaps as there are kinds and
// not at flows: if the first of a heap may not have a slot, none in it may.

// hurrying is the class of gangs' members that are waited for elsewhere. Here, who came first is first:
// else a gang that is behind the others could keep one waiting, and what it holds idle, for many turns. It
// was found to be no more than T ahead here before it reserved anything, if it is not that this GPU's gate
// has closed while the gang ran elsewhere.
const hurrying = 0

// rank is by what a flow is ordered in its class.
func (f *flow) rank() float64 {
	if f.class == hurrying {
		return float64(f.hurried)
	}
	return f.tag(nil)
}

// classes is how many kinds of flows there are where a flow can have so many leases.
func classes(slots int) int { return 1 + 2*slots }

func (f *flow) wantedClass() int {
	switch {
	case f.hurry:
		return hurrying
	case f.resident:
		return 1 + 2*len(f.leases)
	}
	return 2 + 2*len(f.leases)
}

// fill grants what slots are free, with all that is held charged up to now.
func (q *queue) fill() {
	if !q.mode.gated || q.settling() || len(q.leases) >= q.allowed() {
		return
	}
	for _, l := range q.leases {
		q.settle(l)
	}
	q.advance()
	for len(q.leases) < q.allowed() {
		f := q.candidate()
		if f == nil {
			f = q.unstick()
		}
		if f == nil {
			return
		}
		q.grant(f)
	}
}

// candidate is the flow that would get a slot now, nil if none may have one.
func (q *queue) candidate() *flow {
	if q.mode.paying {
		if f := q.active.first(); f != nil && f.in(inReady) {
			return f // who is owed most
		}
	}
	for i := range q.ready {
		if h := &q.ready[i]; h.len() > 0 && (i == hurrying || h.least() <= q.gvt) {
			return h.first()
		}
	}
	return nil
}

// unstick keeps a slot from idling where T alone would: GVT stands at a flow that holds leases or whose
// gang waits for another GPU, and all who wait here are too far ahead of it (decision 11: at T = 0 and D > 1 that is common).
func (q *queue) unstick() *flow {
	f := q.nearest()
	for f != nil && f.tag(nil) > q.gvt {
		tag, gvt := f.tag(nil), q.gvt
		if !q.lift(tag) {
			return nil
		}
		next := q.nearest()
		if next == f && f.tag(nil) == tag && q.gvt == gvt {
			return nil // nothing has moved: never round and round, whatever the books say
		}
		f = next
	}
	return f
}

// lift brings GVT towards tag, past flows that cannot take the slot and so are not owed what they cannot
// take: their C is raised. It tells whether somebody may run now. One that waits for a second lease is
// kept from it by what its first may still cost, which is a guess and is dropped. One without a lease is
// in its grace: it may be back in a moment, and the slot waits for that long.
func (q *queue) lift(tag float64) bool {
	level, reached := tag, true
	q.passed = q.passed[:0]
	for low := q.active.first(); low != nil && low.virtual < tag; low = q.active.first() {
		if low.in(inReady) {
			for _, l := range low.leases {
				low.reserved -= l.reserved
				l.reserved = 0
			}
			q.refile(low)
		}
		if low.in(inReady) || len(low.leases) == 0 && !low.blocked {
			level, reached = low.virtual, low.in(inReady)
			break
		}
		q.active.drop(low)
		q.passed = append(q.passed, low)
	}
	for _, f := range q.passed {
		if f.virtual < level {
			f.virtual = level
			f.stats.lifts++
		}
		q.count(f)
	}
	q.top = max(q.top, level)
	q.advance()
	return reached
}

// nearest is the flow that is the first to become eligible, nil if none waits.
func (q *queue) nearest() (found *flow) {
	for i := range q.ready {
		if f := q.ready[i].first(); f != nil && (found == nil || f.tag(nil) < found.tag(nil)) {
			found = f
		}
	}
	return found
}

// throttle says that f waits and may not have a slot yet, once in a wait.
func (q *queue) throttle(f *flow) {
	if q.mode.gated && f.in(inReady) && !f.throttled && f.tag(nil) > q.gvt {
		f.throttled = true
		q.say(Decision{Kind: Throttle, GPU: q.gpu, Flow: f.id})
	}
}

// prefetch says who comes next, so that memory moves before the lease and not during it.
func (q *queue) prefetch() {
	f := q.candidate()
	if f == nil {
		f = q.nearest()
	}
	if f != nil && !f.resident && !f.fetching {
		f.fetching = true
		q.say(Decision{Kind: Prefetch, GPU: q.gpu, Flow: f.id})
	}
}
