package sched

// A flow: its account, and in which of the queue's heaps it belongs.

// flow is a container on one GPU. Its fields are changed by its own queue only. What each turn touches is
// at the beginning, in few cache lines.
type flow struct {
	id    FlowID
	on    *queue
	of    *container
	peers []*flow // the same container's on all GPUs that it is granted together, this one included

	weight   float64
	virtual  float64 // C, ns per unit of weight
	filed    float64 // C when it was last filed in the heap of active ones
	reserved int64   // what its leases are still expected to cost, ns
	leases   []*lease
	one      [1]*lease // leases, where there is one
	late     []*lease  // expired and not closed: it gets no other lease meanwhile
	limit    int32     // leases that it may have at once
	wants    int32     // leases that it has work for
	index    int32     // in the queue's table
	class    int32     // of its heap in queue.ready

	heaps     uint8 // which it is in, by kind
	blocked   bool  // waits, but its gang needs a slot elsewhere first
	probe     bool  // and that can begin only once this flow is not too far ahead here
	hurry     bool  // its gang holds slots elsewhere for it
	resident  bool  // its memory is on this GPU
	coRun     bool
	counted   bool // in queue.waiting
	lags      bool // in queue.late
	throttled bool // Throttle was said in this wait
	fetching  bool // Prefetch was said since its last lease

	estimate int64 // moving mean of what a lease of it costs, ns; 0 while unknown
	timer    int64 // the time under which it is in the timers' heap
	waitFrom int64
	leasedAt int64 // the last lease's grant
	stats    stats
	rate     rate

	// From here on no turn touches anything.
	graceUntil int64 // it is idle and counts for GVT until then
	reported   int64 // when it last reported, ns
	keepUntil  int64 // it is idle and its memory stays until then
	wokeAt     int64 // when it last returned from idle
	apart      int64 // moving mean of the time between its returns, ns; 0 while unknown
	coRunUntil int64
	hurried    uint64 // the number of its hurrying, of all that there were
	before     uint64 // the closing of the gates before which it has submitted what may not be done; 0: it is
	move       int64  // what bringing its memory here would take, ns
	stalls     stalls
}

// stats are for people.
type stats struct {
	served, got, waited, longest int64
	leases                       uint64
	changes                      uint64 // of these, that another flow's lease came before
	lifts, reopened, expired     uint32
}

// make begins a flow that is idle and in nothing.
func (f *flow) make(q *queue, id FlowID, weight float64, leases int) {
	*f = flow{id: id, on: q, weight: weight, limit: int32(leases), resident: true}
	f.leases = f.one[:0]
}

// average is the moving mean that Ilúvatar takes (decision 11): nine parts old, one new.
func average(old, new int64) int64 {
	if old == 0 {
		return new
	}
	return old + (new-old)/10
}

// active: the flow counts for GVT. One with a late lease is not waiting for a slot, whatever it
// wants, and must not hold the others back while its kernel never ends.
func (f *flow) active() bool {
	if f.coRun {
		return false
	}
	return len(f.leases) > 0 || len(f.late) == 0 && (f.wants > 0 || f.graceUntil > f.on.now)
}

// waits: it would take another lease now.
func (f *flow) waits() bool {
	return !f.coRun && len(f.late) == 0 && int(f.wants) > len(f.leases) &&
		len(f.leases) < min(int(f.limit), f.on.config.Slots)
}

// ahead is P, leaving out what is reserved for one of its leases (nil: none).
func (f *flow) ahead(except *lease) float64 {
	reserved := f.reserved
	if except != nil {
		reserved -= except.reserved
	}
	return f.virtual + float64(reserved)/f.weight
}

// threshold is T for this flow, in virtual time. A heavy flow's T is T of its own service, else
// it could hold the GPU for weight x T.
func (f *flow) threshold() float64 {
	return float64(f.on.config.Threshold) / max(1, f.weight)
}

// tag: the flow may have a lease where tag <= GVT, which is P - GVT <= T.
func (f *flow) tag(except *lease) float64 { return f.ahead(except) - f.threshold() }

// join is to be called before a flow that may be idle gets something to do.
func (q *queue) join(f *flow) {
	if !f.in(inActive) && !f.coRun && len(f.late) == 0 {
		f.virtual = max(f.virtual, q.level())
		f.reported, f.rate.unclaimed = q.now, 0
		q.mode.forget(f)
		if f.wokeAt > 0 {
			f.apart = average(f.apart, q.now-f.wokeAt)
		}
		f.wokeAt = q.now
	}
	f.graceUntil, f.keepUntil = 0, 0
}

// leave begins the grace of a flow that has nothing to do any more.
func (q *queue) leave(f *flow) {
	if f.wants > 0 || len(f.leases) > 0 || !f.in(inActive) {
		return
	}
	f.graceUntil = q.now + q.config.Grace
	keep := float64(q.config.KeepMax)
	if f.apart > 0 {
		keep = min(keep, q.config.Alpha*float64(f.apart))
	}
	f.keepUntil = f.graceUntil + int64(keep)
}

// charge adds ns of slot time to what f has had. refile is to follow.
func (q *queue) charge(f *flow, ns int64) {
	if ns <= 0 {
		return
	}
	f.virtual += float64(ns) / f.weight
	f.stats.served += ns
	q.top = max(q.top, f.virtual)
}

// count files f under its C among those that count for GVT.
func (q *queue) count(f *flow) {
	if !f.in(inActive) || f.filed != f.virtual {
		f.filed = f.virtual
		q.active.set(f, f.virtual)
	}
}

// refile puts f where it belongs after any change of it. GVT follows with advance: the least C may
// have gone up meanwhile.
func (q *queue) refile(f *flow) {
	was := f.in(inActive)
	if f.active() {
		q.count(f)
	} else {
		q.active.drop(f)
	}
	if is := f.in(inActive); is != was {
		if !is {
			q.done(f)
		}
		q.mode.count(f, is)
		q.mode.weigh(q, f.weight, is)
	}
	if lags := len(f.late) > 0 && !f.coRun; lags != f.lags {
		if f.lags = lags; lags {
			q.late++
		} else {
			q.late--
		}
	}
	waits := f.waits()
	if waits != f.counted {
		f.counted = waits
		if waits {
			q.waiting++
			f.waitFrom, f.throttled = q.now, false
		} else {
			q.waiting--
		}
	}
	ready, class := waits && !f.blocked, int32(0)
	if ready {
		class = int32(f.wantedClass())
	}
	if !ready || class != f.class {
		q.ready[f.class].drop(f)
	}
	if f.class = class; ready {
		q.ready[class].set(f, f.rank())
	}
	if waits && f.probe {
		q.probes.set(f, f.tag(nil))
	} else {
		q.probes.drop(f)
	}
	q.refileTimer(f)
}

func (q *queue) refileTimer(f *flow) {
	at := int64(0)
	switch {
	case f.coRun:
		at = f.coRunUntil
	case len(f.late) > 0:
		at = f.lateDue()
	case f.wants > 0 || len(f.leases) > 0:
	case f.graceUntil > q.now:
		at = f.graceUntil
	case f.resident:
		at = f.keepUntil
	}
	if f.timer = at; at > 0 {
		q.timers.set(f, at)
	} else {
		q.timers.drop(f)
	}
}

// expired does what f's timer was for.
func (q *queue) expired(f *flow) {
	switch {
	case f.coRun:
		q.endCoRun(f)
	case len(f.late) > 0:
		q.dueLate(f)
	case f.graceUntil > 0:
		f.graceUntil = 0
	default:
		f.keepUntil = 0
		q.say(Decision{Kind: Evictable, GPU: q.gpu, Flow: f.id})
	}
	q.refile(f)
}

// remove takes f out of everything; its leases must have ended.
func (q *queue) remove(f *flow) {
	f.wants, f.late, f.graceUntil, f.keepUntil, f.coRun = 0, nil, 0, 0, false
	q.mode.forget(f)
	q.refile(f)
	q.table.remove(f)
}

// reconfigure puts all flows that wait anew into what depends on the configuration.
func (q *queue) reconfigure(config Config) {
	var waiting []*flow
	for _, h := range append(q.ready, q.probes) {
		for f := h.first(); f != nil; f = h.first() {
			h.drop(f)
			waiting = append(waiting, f)
		}
	}
	q.config = config
	q.makeReady()
	for _, f := range waiting {
		f.class = 0
		q.refile(f)
	}
	for _, c := range q.gangs {
		q.board.reserved = append(q.board.reserved, c.flows[0])
	}
	for _, l := range q.leases {
		if l.state == leaseGranted && l.flow.leasedAt <= q.now {
			l.due = min(l.due, q.now+config.Quantum) // a quantum that is shorter holds for who has one, too
		}
	}
	if config.AlwaysGate {
		if !q.mode.gated {
			q.closeGates()
		}
		q.mode.paying = false // the gates stay closed when that is done
	}
}
