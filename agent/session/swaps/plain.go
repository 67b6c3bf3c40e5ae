package swaps

// Plain memory of a container, for which its movable memory makes room on the card before it is taken.

import "weir/agent/residency"

// ask is plain memory that is to be taken, from Need to Settle.
type ask struct {
	c     *Container
	gpu   int
	bytes int64
	there bool // it has its room, which counts as taken
	late  bool // Need has returned
}

// Plain: so much memory that cannot move the container has on a GPU, unused credit included, and without what it has
// asked for with Need and not settled.
func (c *Container) Plain(now int64, gpu int, bytes int64) {
	t := c.table
	if c.gone {
		return
	}
	t.advance(now)
	t.carry(t.node.SetPlain(t.now, c.id, gpu, bytes+c.flows[gpu].admitted))
	t.settle()
}

// Need: so much more plain memory is about to be taken. Where it does not fit beside the container's movable memory on
// the card, that goes, and Config.Admit tells when there is room. In either case Settle follows. What breaks a limit is
// there at once: who keeps account of plain memory has refused what it refuses.
func (c *Container) Need(now int64, gpu int, bytes int64) (number uint64, there bool) {
	t := c.table
	if c.gone {
		return 0, true
	}
	t.advance(now)
	t.lastAsk++
	number = t.lastAsk
	decisions, err := t.node.Need(t.now, c.id, gpu, number, bytes)
	if err != nil {
		return 0, true
	}
	a := &ask{c: c, gpu: gpu, bytes: bytes}
	t.asks[number] = a
	t.carry(decisions)
	t.settle()
	a.late = true
	return number, a.there
}

// admit takes that there is room for an ask.
func (t *Table) admit(d residency.Decision) {
	a := t.asks[d.Ask]
	if a == nil {
		return
	}
	a.there = true
	a.c.flows[a.gpu].admitted += a.bytes
	if a.late && t.config.Admit != nil {
		t.config.Admit(a.c.owner, a.gpu, d.Ask)
	}
}

// Settle ends an ask, whether its memory was taken or not: plain is what the container has of it now, as in Plain.
func (c *Container) Settle(now int64, gpu int, number uint64, plain int64) {
	t := c.table
	if c.gone {
		return
	}
	t.advance(now)
	if a := t.asks[number]; a != nil && a.c == c {
		delete(t.asks, number)
		if a.there {
			c.flows[gpu].admitted -= a.bytes
		} else {
			t.carry(t.node.Withdraw(t.now, c.id, gpu, number))
		}
	}
	c.Plain(now, gpu, plain)
}
