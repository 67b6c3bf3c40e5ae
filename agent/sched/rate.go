package sched

// What flows' operations cost, measured on their leases. What was submitted before the gates closed runs on beside
// the first leases, and a lease beside it tells nothing of its holder: a program that waits for each of its
// kernels would seem to take slices of a hog's for each.

// rate is what is known of a flow's operations: their number and cost on its leases, of which what is
// from earlier phases counts a quarter as much with each.
type rate struct {
	work  float64
	cost  float64 // ns
	known bool    // it has had a lease
	tried bool    // it has had one that was clean
	phase uint64  // of the last measuring that was long enough
	aged  uint64  // of the last measuring

	unclaimed float64 // time of no lease that has not been charged, ns
	opening   uint64  // the phase before the opening since which there are, in ns,
	share     float64 // its share,
	surplus   float64 // what it has had beyond it,
	charged   float64 // and what was charged
}

// worth is the slot time of so much work, in ns; 0 if that is not known.
func (r *rate) worth(work int64) float64 {
	if r.work == 0 {
		return 0
	}
	return float64(max(0, work)) * r.cost / r.work
}

// measure takes what a lease that is over has cost, and what was done on it: all of it, with its drain. Part
// of a lease would not do, since a long operation may lie across its end. A flow's first one tells nothing:
// until then its processes have guessed how long their operations take, and report less work than later.
func (q *queue) measure(l *lease) {
	r := &l.flow.rate
	if !l.clean || l.work <= 0 || l.had <= 0 {
		q.note(l.flow, l.clean && r.work == 0) // who reports no work is measured as far as can be
		return
	}
	if !r.tried {
		r.tried = true
		return
	}
	if r.aged != q.mode.phase {
		r.work, r.cost, r.aged = r.work/4, r.cost/4, q.mode.phase
		if l.had >= q.config.Quantum && r.isOther(float64(l.work), float64(l.had)) {
			r.work, r.cost = 0, 0
		}
	}
	r.work += float64(l.work)
	r.cost += float64(l.had)
	q.note(l.flow, r.cost >= float64(q.config.Quantum))
}

// otherWork is how many times as much, or as little, work has to cost for it to be other work.
const otherWork = 1.5

// isOther tells whether this work costs so much more or less than that of earlier phases that these are not the same
// operations, or what their processes expect of them has changed: then no mean of both is right for either.
func (r *rate) isOther(work, cost float64) bool {
	times := cost * r.work / (work * r.cost)
	return times > otherWork || times < 1/otherWork
}

// measuring: the gates are closed for nothing else any more.
func (q *queue) measuring() bool {
	return !q.config.AlwaysGate && q.mode.gated && q.now >= q.mode.until && q.mode.stale > 0
}

// note: f has been measured, and well enough for this phase or not.
func (q *queue) note(f *flow, enough bool) {
	active := f.in(inActive)
	if active {
		q.mode.count(f, false)
	}
	if f.rate.known = true; enough {
		f.rate.phase = q.mode.phase
	}
	if active {
		q.mode.count(f, true)
	}
}

// mark notes that active flows may have work from before this closing of the gates.
func (q *queue) mark() {
	q.mode.left = q.active.len()
	for _, item := range q.active.all() {
		q.table.flows[item.flow].before = q.mode.phase
	}
}

// done: what f had submitted before the gates closed is done.
func (q *queue) done(f *flow) {
	if m := &q.mode; f.before != 0 && f.before == m.phase {
		if m.left--; m.left == 0 {
			m.heavy = q.now >= m.since+q.config.DrainStall
		}
	}
	f.before = 0
}

// clean: nothing from before the gates closed is left; what takes longer than a drain may is not waited for. Where
// there are late flows and one other, nothing is measured before they are back.
func (q *queue) clean() bool {
	if q.late > 0 && q.active.len() < 2 {
		return false
	}
	return q.mode.left == 0 || q.now >= q.mode.since+q.config.DrainTimeout
}
