package sched

// What happens between the revocation of a lease and its end. A drain that makes no progress may wait
// for work that the gate holds back (rows T7 and T9 of tests/cases), so the gate opens again for a moment.
// If progress comes at once then, that was it; a flow to which it happens again and again is co-run.
// If none comes, a long kernel runs, most likely: the gate is opened again after and for twice as long each time, and once the
// kernel has ended with the gate closed the flow's patience is raised to its length, so that the gate is not opened for
// nothing at each of its drains. What never ends loses the slot after the drain timeout.
//
// On a machine that is busy everything takes longer: progress that comes later, but before the gate closes, may be
// either. It raises patience a little, with which a kernel of that length ends while the gate is closed; if
// nothing happens until the gate is open again, that was it.

// helpWithin: progress so soon after the gate has opened again is taken as its effect, in ns. A guess
// that lies well over the few wake-ups that it takes, and well under kernels worth waiting for.
const helpWithin = 5 * ms

// patienceUnsure is how many times the usual patience a flow's may become by what may have been either.
const patienceUnsure = 4

// drain is what a lease remembers of its drain.
type drain struct {
	revoked  int64 // the first revocation
	still    int64 // since when nothing has happened that could have been seen
	reopened int64
	reclosed int64 // when the gate closed after it was opened in vain
	opened   bool  // the gate was opened again
	helped   bool  // and that brought progress, the last time
	helps    int   // so many times, since the lease was late
	vain     int   // or it did not, so many times since the last progress
	unsure   int   // openings in which progress came late
	nobody   bool  // waits at the gate, so that opening it cannot help
}

// stalls are what a flow remembers of its drains.
type stalls struct {
	patience int64 // how long a drain of this flow may stand still, ns; 0: the configured time
	helped   int   // drains in a row that went on only with the gate open
}

// patience is how long this drain may stand still. If it has been helped once, it will not take long to
// see that it needs help again.
func (l *lease) patience() int64 {
	if l.drain.helped {
		return helpWithin
	}
	return max(l.usual(), l.flow.stalls.patience)
}

// usual is the patience with a flow of which nothing is known, and for how long a gate that was opened again
// stays open. A quantum that is longer than a drain may take would never have it open.
func (l *lease) usual() int64 {
	c := &l.flow.on.config
	return max(min(c.Quantum, c.DrainTimeout/2), c.DrainStall)
}

// reopening is when the gate of a draining lease may open again if nothing happens.
func (l *lease) reopening() int64 {
	switch d := &l.drain; {
	case d.nobody:
		return Never
	case l.late && (!d.helped || d.helps >= l.flow.on.config.StallsMax):
		return max(d.still, d.reclosed) + lateRest*l.opening()
	case d.vain > 0:
		return d.reclosed + l.patience()<<d.vain
	default:
		return d.still + l.patience()
	}
}

// revoke closes the gate of a granted lease.
func (q *queue) revoke(l *lease) {
	if l.state != leaseGranted {
		return
	}
	q.settle(l)
	l.drain = drain{revoked: q.now}
	q.closeGate(l)
	q.prefetch()
}

func (q *queue) closeGate(l *lease) {
	l.state, l.drain.nobody = leaseDraining, false
	if l.drain.reclosed = q.now; l.drain.vain == 0 {
		l.drain.still = q.now
	}
	q.say(Decision{Kind: Revoke, GPU: q.gpu, Flow: l.flow.id, Lease: l.number})
	q.watch(l)
}

// waiters takes whether any thread of f's container waits at a closed gate.
func (q *queue) waiters(f *flow, some bool) {
	for _, l := range f.leases {
		if l.state == leaseDraining && l.drain.nobody == some {
			l.drain.nobody = !some
			q.watch(l)
		}
	}
	for _, l := range f.late {
		q.waitersLate(l, some)
	}
}

// joinDrain revokes the lease of a gang that has just begun, as another of its leases is. Then opening
// the gates is worth another try.
func (q *queue) joinDrain(l, other *lease) {
	other.drain.vain = 0
	l.drain = other.drain
	if other.state == leaseDraining {
		q.closeGate(l)
		return
	}
	l.state = leaseReopened
	q.watch(l)
}

// reclosing is when the gate of a lease that was opened again closes.
func (l *lease) reclosing() int64 {
	if l.drain.helped {
		return l.drain.reopened + helpWithin
	}
	return l.drain.reopened + l.opening()
}

// opening is how long the gate stays open where that brings nothing.
func (l *lease) opening() int64 {
	if l.late {
		return l.usual() << min(l.drain.vain, lateLonger)
	}
	return l.usual() << l.drain.vain
}

// watch sets when a draining lease is to be looked at next: it is also charged once a quantum.
func (q *queue) watch(l *lease) {
	at := min(l.drain.revoked+q.config.DrainTimeout, q.now+q.config.Quantum)
	if l.late {
		at = Never
	}
	if l.state == leaseReopened {
		at = min(at, l.reclosing())
	} else {
		at = min(at, l.reopening())
	}
	if l.due = max(at, q.now+1); l.late {
		q.refileTimer(l.flow)
	}
}

func (q *queue) dueDrain(l *lease) {
	act := (*queue).watch
	switch d := &l.drain; {
	case q.now >= d.revoked+q.config.DrainTimeout:
		act = (*queue).expire
	case l.state == leaseReopened && q.now >= l.reclosing():
		act = (*queue).reclose
	case l.state == leaseDraining && q.now >= l.reopening():
		act = (*queue).reopen
	}
	for _, peer := range l.flow.peers {
		if other := peer.lease(l.number); other != nil {
			act(peer.on, other)
		}
	}
}

func (q *queue) reopen(l *lease) {
	if l.state != leaseDraining {
		return
	}
	l.state, l.drain.reopened, l.drain.opened, l.drain.helped = leaseReopened, q.now, true, false
	l.flow.stats.reopened++
	q.say(Decision{Kind: Reopen, GPU: q.gpu, Flow: l.flow.id, Lease: l.number})
	q.watch(l)
}

func (q *queue) reclose(l *lease) {
	if l.state != leaseReopened {
		return
	}
	if !l.drain.helped {
		l.drain.vain++
	}
	q.closeGate(l)
}

// progress: something that f had submitted on this GPU, or on another of its gang, is done.
func (q *queue) progress(f *flow) {
	for _, l := range f.leases {
		if l.state != leaseDraining && l.state != leaseReopened {
			continue
		}
		if unsure := q.moved(l); unsure {
			q.closeGate(l)
		}
		q.watch(l)
	}
	for _, l := range f.late {
		q.movedLate(l)
	}
	if f.stalls.helped >= q.config.StallsMax {
		for _, peer := range f.peers {
			peer.on.startCoRun(peer)
		}
	}
}

// moved learns from a drain that goes on, or is over, what its standing still was due to, and tells
// whether its gate is open and that cannot be told.
func (q *queue) moved(l *lease) (unsure bool) {
	s, d := &l.flow.stalls, &l.drain
	stood, vain := q.now-d.still, d.vain
	d.still, d.vain = q.now, 0
	switch {
	case l.state == leaseReopened && d.helped:
	case l.state == leaseReopened && (q.now <= d.reopened+helpWithin || d.unsure > 1):
		d.helped = true
		s.helped, s.patience = s.helped+1, 0
	case l.state == leaseReopened, vain > 0 && q.now <= d.reclosed+l.usual():
		d.unsure++
		s.patience = max(s.patience, min(stood+stood/2, patienceUnsure*l.usual()))
		return l.state == leaseReopened
	case vain > 0:
		s.patience = max(s.patience, min(stood+stood/2, q.config.DrainTimeout/2))
		s.helped, d.unsure = 0, 0
	}
	return false
}

// drained learns from the end of a drain. One that never needed the gate open ends the row of those
// that did.
func (q *queue) drained(l *lease) {
	switch {
	case l.state == leaseDraining && !l.drain.opened:
		l.flow.stalls.helped = 0
	case l.state == leaseDraining || l.state == leaseReopened:
		q.moved(l)
	}
}

// startCoRun: the flow runs without leases from now on.
func (q *queue) startCoRun(f *flow) {
	if f.coRun {
		return
	}
	for len(f.leases) > 0 {
		q.end(f.leases[0])
	}
	for len(f.late) > 0 {
		q.endLate(f.late[0])
	}
	f.coRun, f.coRunUntil, f.blocked, f.hurry = true, q.now+q.config.CoRunFor, false, false
	f.stalls.helped = 0
	q.say(Decision{Kind: CoRun, GPU: q.gpu, Flow: f.id})
	q.refile(f)
}

// endCoRun: the flow may try leases again, as one that returns from idle.
func (q *queue) endCoRun(f *flow) {
	f.coRun = false
	f.virtual = max(f.virtual, q.gvt)
	q.say(Decision{Kind: Leased, GPU: q.gpu, Flow: f.id})
}
