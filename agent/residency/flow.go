package residency

// One flow: a container on one GPU, its sums, and what of its memory is recent.

// State is what the scheduler says of a flow.
type State uint8

const (
	// Idle: it has nothing to do. Its memory stays for a while.
	Idle State = iota
	// Waiting for a lease.
	Waiting
	// Next: it is expected to have the next lease. At most one flow of a GPU is; another one takes its place.
	Next
	// Holder: it may run, by a lease until the end of the drain, or because the gate is open to it.
	Holder
)

// recentLeases: what was used in so many leases, the present one included, is recent. While a flow waits, the present
// one is only what it has allocated since, so that is its last two leases.
const recentLeases = 3

type flow struct {
	id    FlowID
	on    *gpu
	state State
	turn  int64 // when its lease is expected, while it waits; 0: unknown
	ready bool  // Ready was said in this lease

	limit int64 // cap
	swap  int64 // most beyond the cap; 0: nothing is swapped out
	drain bool  // swap is being turned off
	plain int64 // memory that cannot move
	asks  []ask
	asked int64
	owed  int64 // within plan: what it is to have of the free room
	excess
	brought int64 // what its copies have faulted in without a lease, and nothing has gone for

	sum     sums
	used    [recentLeases]int64 // bytes last used in each recent lease
	lack    int64               // what is not on the card nor under way, and does not rest
	lacking [recentLeases]int64 // of that, what was last used in each recent lease
	lease   uint64              // number of the present or coming lease
	allUsed uint64              // the last lease of which only is known that it used something; 0: none
	began   int64               // when the present lease, or the present part of it, did

	processes []*process // with movable memory

	wokeAt    int64 // when it last returned from idle; 0: not yet
	idleSince int64
	apart     int64 // moving mean of the time between its returns; 0: unknown
	lingers   int64 // while idle: until then it counts as active for what fits together
	keepUntil int64 // while idle: then its memory need not stay
	leftAt    int64 // the end of its last lease
	stats     stats
}

// ask is for plain memory.
type ask struct {
	number uint64
	bytes  int64
}

// stats are for people. Bytes.
type stats struct {
	in, out, filled, faulted, displaced int64
	above                               int64 // most that faults have brought beyond the cap
	cancelled, failed                   uint64
}

func newFlow(g *gpu, id FlowID, limit, swap int64) *flow {
	return &flow{id: id, on: g, limit: limit, swap: swap, lease: recentLeases, idleSince: g.now,
		keepUntil: g.now + g.config.KeepMax}
}

func (f *flow) tally(a *alloc)   { f.count(a, 1) }
func (f *flow) untally(a *alloc) { f.count(a, -1) }

// count adds a's bytes to all sums, or takes them off.
func (f *flow) count(a *alloc, sign int64) {
	s, t := &f.sum, &a.sum
	s.fresh += sign * t.fresh
	s.host += sign * t.host
	s.resident += sign * t.resident
	s.coming += sign * t.coming
	s.going += sign * t.going
	f.on.used += sign * t.here()
	f.on.going += sign * t.going
	if f.lease-a.usedIn < recentLeases {
		f.used[a.usedIn%recentLeases] += sign * t.total()
	}
	if a.restUntil == 0 {
		a.process.count(a, sign*t.lack())
	}
}

// file has a in the heaps where it belongs.
func (f *flow) file(a *alloc) {
	awake := a.restUntil == 0
	a.process.there.put(a, awake && a.sum.resident > 0, a.stamp)
	a.process.lacks.put(a, awake && a.sum.lack() > 0, -a.stamp)
	f.on.rests.put(a, !awake, a.restUntil)
}

// touch makes a the most recently used.
func (f *flow) touch(a *alloc) {
	g := f.on
	if a.stamp == g.stamp && a.usedIn == f.lease {
		return
	}
	g.stamp++
	a.stamp = g.stamp
	if a.usedIn != f.lease {
		f.untally(a)
		a.usedIn = f.lease
		f.tally(a)
	}
	f.file(a)
}

// roll begins a new lease in the books of what is recent.
func (f *flow) roll() {
	f.lease++
	now := f.lease % recentLeases
	f.used[now], f.lacking[now] = 0, 0
	for _, p := range f.processes {
		p.lacking[now] = 0
	}
	f.began = f.on.now
}

// age has a lease that lasts long count as several.
func (f *flow) age() {
	if f.state == Holder && f.on.now-f.began >= f.on.config.Round {
		f.roll()
	}
}

// everything is recent: the leases are not known more closely.
func (f *flow) everything() bool { return f.allUsed != 0 && f.lease-f.allUsed < recentLeases }

func (f *flow) recent(a *alloc) bool { return f.lease-a.usedIn < recentLeases || f.everything() }

// set is the recent working set, in bytes.
func (f *flow) set() int64 {
	if f.everything() {
		return f.sum.total()
	}
	return sum(&f.used)
}

// lackOfSet is what of it is not on the card nor under way, and does not rest.
func (f *flow) lackOfSet() int64 {
	if f.everything() {
		return f.lack
	}
	return sum(&f.lacking)
}

func sum(ring *[recentLeases]int64) (all int64) {
	for _, bytes := range ring {
		all += bytes
	}
	return all
}

// headroom is what may still come to the card under the cap, now.
func (f *flow) headroom() int64 { return f.limit - f.plain - f.asked - f.sum.here() }

// wanted is what a flow that is prepared still lacks and may have once what goes has gone.
func (f *flow) wanted(why Why) int64 {
	lack := f.lackOfSet()
	if why == ForDrain {
		lack = f.lack
	}
	if most := max(0, f.headroom()+f.sum.going); lack > most {
		return most - most%f.on.config.Piece // half a piece does not come
	}
	return lack
}

// movable: its memory may be swapped out for others.
func (f *flow) movable() bool { return f.swap > 0 && !f.drain }

// expired: it is idle, and has been for longer than usual.
func (f *flow) expired() bool { return f.state == Idle && f.keepUntil <= f.on.now }

// due is when its memory is expected to be needed again.
func (f *flow) due() int64 {
	now := f.on.now
	switch {
	case f.state == Waiting && f.turn > 0:
		return max(now, f.turn)
	case f.state == Idle && f.apart > 0:
		// What is overdue has gone on to be less likely: it is taken to need as long again.
		expected := f.wokeAt + f.apart
		return max(expected, now+(now-expected))
	}
	return now + (now - f.leftAt)
}

// enter has a flow go over to another state.
func (f *flow) enter(to State) {
	g, from := f.on, f.state
	if from == to {
		return
	}
	if from == Holder {
		f.roll()
		f.leftAt, f.ready = g.now, false
	}
	if from == Idle {
		if f.wokeAt > 0 {
			f.apart = average(f.apart, g.now-f.wokeAt)
		}
		f.wokeAt = g.now
	}
	if g.next == f {
		g.next = nil
	}
	switch f.state = to; to {
	case Idle:
		keep := float64(g.config.KeepMax)
		if f.apart > 0 {
			keep = min(keep, g.config.Alpha*float64(f.apart))
		}
		f.idleSince, f.lingers, f.keepUntil = g.now, g.now+g.config.Linger, g.now+int64(keep)
	case Next:
		if g.next != nil {
			g.next.state = Waiting
		}
		g.next = f
	case Holder:
		f.began = g.now
	}
}

// average is the moving mean of agent/sched: nine parts old, one new.
func average(old, new int64) int64 {
	if old == 0 {
		return max(1, new)
	}
	return old + (new-old)/10
}
