package swaps

// Leases followed: who holds, who is next, when the others are, and which gates wait for memory.

import (
	"weir/agent/residency"
	"weir/agent/session/turns"
)

// Follow takes what has changed at the table of turns. To be called after each event there.
func (t *Table) Follow(now int64) {
	t.advance(now)
	t.settle()
}

// settle ends each event: leases and memory follow from each other until neither changes, and processes are told.
func (t *Table) settle() {
	for range roundsMax {
		t.stirred = t.turns.Stirred(t.stirred[:0])
		if len(t.stirred) == 0 {
			break
		}
		t.follow(t.stirred)
	}
	if len(t.outbox) > 0 {
		t.send()
	}
}

// follow tells the policy where these stand. Who does not hold any more comes first: else the memory of both would
// seem to be in use.
func (t *Table) follow(stirred []*turns.Container) {
	for _, holders := range []bool{false, true} {
		for _, seat := range stirred {
			c := t.seats[seat]
			if c == nil {
				continue
			}
			for gpu := range c.flows {
				if stands := seat.Standing(gpu); (stands == turns.Holder) == holders {
					c.stand(gpu, stands)
				}
			}
		}
	}
	for gpu := range t.gpus {
		if g := &t.gpus[gpu]; g.touched {
			g.touched = false
			t.order(gpu)
		}
	}
	for _, seat := range stirred {
		if c := t.seats[seat]; c != nil {
			for gpu := range c.flows {
				c.enter(gpu)
			}
		}
	}
}

// stand tells the policy where a container stands, if that has changed.
func (c *Container) stand(gpu int, stands turns.Standing) {
	t, f := c.table, &c.flows[gpu]
	if stands != turns.Idle || f.stands != stands {
		t.gpus[gpu].touched = true
	}
	if f.stands == stands {
		return
	}
	f.stands, f.next, f.turn = stands, false, 0
	state := residency.Idle
	switch stands {
	case turns.Waiting:
		state, f.turn = residency.Waiting, c.expected(gpu)
	case turns.Holder:
		state, f.ready = residency.Holder, false
	}
	t.carry(t.node.Set(t.now, c.id, gpu, state, f.turn))
	c.tellResident(gpu)
}

// expected is when the container is to have its next lease on a GPU, 0 if that is not known. It is told with the first
// word of its waiting: else who has just run would seem to be the first to run again, and others' memory would go.
func (c *Container) expected(gpu int) (when int64) {
	c.table.turns.Expected(gpu, func(seat *turns.Container, at int64) {
		if seat == c.seat {
			when = at
		}
	})
	return when
}

// order tells the policy who is next on a GPU, and when the others are.
func (t *Table) order(gpu int) {
	first := true
	t.turns.Expected(gpu, func(seat *turns.Container, at int64) {
		c := t.seats[seat]
		if c == nil || c.flows[gpu].stands != turns.Waiting {
			return
		}
		f := &c.flows[gpu]
		near := max(t.gpus[gpu].quantum/8, ms) // expectations that change by less are the same
		switch {
		case first && !f.next:
			t.next(gpu, c)
		case !first && (f.next || f.turn == 0 || max(at-f.turn, f.turn-at) > near):
			f.next, f.turn = false, at
			t.carry(t.node.Set(t.now, c.id, gpu, residency.Waiting, at))
		}
		first = false
	})
}

// next: c is the first to have a lease. Who was is only waiting, which the policy knows.
func (t *Table) next(gpu int, c *Container) {
	for _, other := range t.containers {
		if f := &other.flows[gpu]; f.next {
			f.next, f.turn = false, 0
		}
	}
	c.flows[gpu].next = true
	t.carry(t.node.Set(t.now, c.id, gpu, residency.Next, 0))
}

// tellResident tells the scheduler whether the container's memory is on the GPU, if that has changed.
func (c *Container) tellResident(gpu int) {
	f := &c.flows[gpu]
	if resident, cost := c.table.node.Moves(c.id, gpu); resident != f.resident {
		f.resident = resident
		c.seat.Resident(c.table.now, gpu, resident, cost)
	}
}

// enter begins to wait for the memory of a container that has been granted a lease.
func (c *Container) enter(gpu int) {
	f, lease := &c.flows[gpu], c.seat.Entering(gpu)
	if lease == f.entering {
		return
	}
	if f.entering = lease; lease == 0 {
		return
	}
	if f.ready {
		c.open(gpu)
		return
	}
	c.wait(gpu)
}

// wait sets until when the gate waits: for twice the time that what lacks should take.
func (c *Container) wait(gpu int) {
	t, f := c.table, &c.flows[gpu]
	_, takes := t.node.Moves(c.id, gpu)
	f.lacked, f.openBy = t.node.Lacks(c.id, gpu), t.now+2*takes+entrySlack
	until := f.openBy // a lease of several GPUs begins with the last of them
	for other := range c.flows {
		if o := &c.flows[other]; o.entering == f.entering {
			until = max(until, o.openBy)
		}
	}
	c.seat.Hold(t.now, f.entering, until)
}

// open has the gate open, if it waits.
func (c *Container) open(gpu int) {
	if f := &c.flows[gpu]; f.entering != 0 {
		f.entering = 0
		c.seat.InPlace(c.table.now, gpu)
	}
}

// dueEntries opens gates that have waited for long enough, unless memory still comes in. Who makes room for it piece by
// piece, as slowly as it likes, must not keep the gate closed for hundreds of times what all should take.
func (c *Container) dueEntries() {
	t := c.table
	for gpu := range c.flows {
		f := &c.flows[gpu]
		if f.entering == 0 || t.now < f.openBy {
			continue
		}
		if lacks := t.node.Lacks(c.id, gpu); lacks < f.lacked && lacks <= f.lacked-f.lacked/entryPart {
			c.wait(gpu)
			continue
		}
		c.tell(EventSlow, gpu, f.lacked)
		c.open(gpu)
		t.blame(gpu)
	}
}
