package residency

// One process's memory in a flow, and what rests: it is not moved for a while, since its process does not answer, the
// driver refused a move, or a move could not be had. What rests neither comes nor goes, and nobody waits for it, so that
// others' memory moves instead; only kernels and the driver change its place. Invariants:
//   - the flow's lack and lacking are those of its processes that do not rest, without allocations that rest;
//   - an allocation is in its process's heaps, or rests by itself and is in its GPU's.

const (
	// An allocation of which a move was not to be had rests for restFirst, and twice as long each time again, restDoubles
	// times at most. With restingMost of them at rest the process rests as a whole.
	restFirst   = 2 * ms
	restDoubles = 6
	restingMost = 64
)

// process is one with movable memory in a flow.
type process struct {
	session   Session
	flow      *flow
	allocs    int
	resting   int   // allocations that rest by themselves
	restUntil int64 // 0: it does not rest
	lack      int64 // bytes neither on the card nor under way
	lacking   [recentLeases]int64
	there     heap
	lacks     heap
}

// process finds that of a session, and makes it known.
func (f *flow) process(session Session) *process {
	for _, p := range f.processes {
		if p.session == session {
			return p
		}
	}
	p := &process{session: session, flow: f, there: heap{which: there}, lacks: heap{which: lacks}}
	f.processes = append(f.processes, p)
	return p
}

// left: one of p's allocations is gone.
func (p *process) left() {
	if p.allocs--; p.allocs > 0 {
		return
	}
	p.wake()
	p.flow.processes = without(p.flow.processes, p)
}

// lose counts what p lacks in its flow, or no more.
func (p *process) lose(sign int64) {
	p.flow.lack += sign * p.lack
	for i := range p.lacking {
		p.flow.lacking[i] += sign * p.lacking[i]
	}
}

// count counts what one of p's allocations lacks.
func (p *process) count(a *alloc, bytes int64) {
	f := p.flow
	recent, lease := f.lease-a.usedIn < recentLeases, a.usedIn%recentLeases
	if p.lack += bytes; recent {
		p.lacking[lease] += bytes
	}
	if p.restUntil != 0 {
		return
	}
	if f.lack += bytes; recent {
		f.lacking[lease] += bytes
	}
}

// rest has nothing of p move until then.
func (p *process) rest(until int64) {
	g := p.flow.on
	if until <= g.now {
		p.wake()
		return
	}
	if p.restUntil == 0 {
		p.lose(-1)
		g.sleepers = append(g.sleepers, p)
	}
	p.restUntil = until
}

func (p *process) wake() {
	if p.restUntil == 0 {
		return
	}
	p.restUntil = 0
	p.lose(1)
	p.flow.on.sleepers = without(p.flow.on.sleepers, p)
}

// rest has a not move for a while, since a move of it was not to be had.
func (a *alloc) rest() {
	f, p := a.flow, a.process
	g := f.on
	f.untally(a)
	if a.restUntil == 0 {
		p.resting++
	}
	a.restUntil = g.now + restFirst<<a.undone
	a.undone = min(a.undone+1, restDoubles)
	f.tally(a)
	f.file(a)
	if p.resting > restingMost {
		p.rest(max(p.restUntil, a.restUntil))
	}
}

func (a *alloc) wake() {
	if a.restUntil == 0 {
		return
	}
	f := a.flow
	f.untally(a)
	a.restUntil = 0
	a.process.resting--
	f.tally(a)
	f.file(a)
}

// wake ends the rests that are over.
func (g *gpu) wake() {
	for a := g.rests.first(); a != nil && a.restUntil <= g.now; a = g.rests.first() {
		a.wake()
	}
	for i := len(g.sleepers) - 1; i >= 0; i-- {
		if p := g.sleepers[i]; p.restUntil <= g.now {
			p.wake()
		}
	}
}

// wakes is when the next rest is over.
func (g *gpu) wakes() int64 {
	at := Never
	if a := g.rests.first(); a != nil {
		at = a.restUntil
	}
	for _, p := range g.sleepers {
		at = min(at, p.restUntil)
	}
	return at
}

// leaver is what of f would go first: the least recently used that is on the card and does not rest. nil if nothing may.
func (f *flow) leaver() (least *alloc) {
	for _, p := range f.processes {
		if a := p.there.first(); a != nil && p.restUntil == 0 && (least == nil || a.stamp < least.stamp) {
			least = a
		}
	}
	return least
}

// comer is what would come first: the most recently used that lacks something and does not rest.
func (f *flow) comer() (most *alloc) {
	for _, p := range f.processes {
		if a := p.lacks.first(); a != nil && p.restUntil == 0 && (most == nil || a.stamp > most.stamp) {
			most = a
		}
	}
	return most
}

// Rest: nothing of a process moves until then, since it does not answer; Never: until another Rest. Who says so is to
// answer what is under way of it.
func (n *Node) Rest(now int64, session Session, until int64) []Decision {
	n.begin()
	for _, g := range n.gpus {
		g.now = max(g.now, now)
		found := false
		for _, f := range g.flows {
			for _, p := range f.processes {
				if p.session == session {
					p.rest(until)
					found = true
					break
				}
			}
		}
		if found {
			g.finish()
		}
	}
	return n.out
}

func without[T comparable](list []T, one T) []T {
	for i, other := range list {
		if other == one {
			last := len(list) - 1
			list[i] = list[last]
			clear(list[last:])
			return list[:last]
		}
	}
	return list
}
