package turns

// Decisions carried out, and what follows from what processes have said.

import (
	"slices"

	"weir/agent/sched"
)

// carry carries out decisions, and those that follow from them, in their order. Then the containers are
// judged of which something has changed, until nothing changes any more.
func (t *Table) carry(decisions []sched.Decision) {
	t.decisions = append(t.decisions, decisions...)
	if t.carrying {
		return
	}
	t.carrying = true
	for done, judged := 0, 0; ; {
		switch {
		case done < len(t.decisions):
			t.decide(t.decisions[done])
			done++
		case judged < len(t.changed):
			c := t.changed[judged]
			judged++
			if c.changed = false; !c.gone {
				c.judge()
			}
		default:
			t.decisions, t.changed, t.carrying = t.decisions[:0], t.changed[:0], false
			return
		}
	}
}

func (t *Table) decide(d sched.Decision) {
	if d.Flow == 0 {
		t.decideAll(d)
		return
	}
	c := t.byID[d.Flow]
	if c == nil {
		return
	}
	s := &c.seats[d.GPU]
	switch d.Kind {
	case sched.Open:
		if s.state == seatClosed {
			c.turnTo(d.GPU, seatOpen)
			c.lookWanting(d.GPU)
		}
	case sched.CoRun:
		c.turnTo(d.GPU, seatCoRun)
		c.lookActive(d.GPU)
		c.tellCoRun(d.GPU, true)
	case sched.Leased:
		c.settleMode(d.GPU)
		c.tellCoRun(d.GPU, false)
	case sched.Throttle:
		s.throttledFrom = t.now
	case sched.Grant:
		s.skip(d.GPU)
		s.reported, s.lease, s.throttledFrom = t.now, d.Lease, 0
		if s.inPlace = !c.movable; c.movable {
			c.turnTo(d.GPU, seatEntering)
		} else {
			c.turnTo(d.GPU, seatLeased)
			c.lookWanting(d.GPU)
		}
		c.change() // who has become idle meanwhile gives it back
	default:
		switch {
		case s.holds() && s.lease == d.Lease:
			c.closing(d)
		case s.isLate() && s.lease == d.Lease, s.state == seatClosed && c.isLate(d.Lease):
			c.closingLate(d)
		}
	}
}

// closing carries out what concerns the end of a lease that the seat has.
func (c *Container) closing(d sched.Decision) {
	s := &c.seats[d.GPU]
	switch d.Kind {
	case sched.Revoke:
		if c.entering(d.Lease) {
			c.finish(d.Lease) // nothing was submitted on it
			return
		}
		c.revoke(d.GPU)
	case sched.Reopen:
		s.reopen() // and who waited is still counted: it does not say WANT for a number again
		c.turnTo(d.GPU, seatReopened)
		c.lookActive(d.GPU)
		c.tellStalled(d.GPU)
	case sched.Expire:
		c.tellLong(d.GPU)
		s.noneDrained()
		c.turnTo(d.GPU, seatLate)
		c.lookActive(d.GPU)
		c.change()
	}
}

// closingLate carries out what concerns a lease that has expired: its gate opens for a moment, and that of a GPU that
// the container has come to use since.
func (c *Container) closingLate(d sched.Decision) {
	s, state := &c.seats[d.GPU], seatLate
	switch d.Kind {
	case sched.Reopen:
		s.lease, state = d.Lease, seatLateOpen
		s.reopen()
	case sched.Revoke:
		c.waiters = true // as the scheduler takes it
		c.find(d.GPU, false)
		s.noneDrained()
	default:
		return
	}
	c.turnTo(d.GPU, state)
	c.lookActive(d.GPU)
	c.change()
}

// decideAll carries out what is for all seats of a GPU.
func (t *Table) decideAll(d sched.Decision) {
	g := &t.gpus[d.GPU]
	switch d.Kind {
	case sched.Open:
		g.gated, g.rivals = false, d.Rivals
	case sched.Gate:
		g.gated, g.rivals = true, true
	}
	for _, c := range t.containers {
		if s := &c.seats[d.GPU]; s.state == seatCoRun || s.isLate() {
			c.show(d.GPU, false)
			continue
		}
		c.settleMode(d.GPU)
	}
}

// settleMode brings a seat into what holds for all of its GPU.
func (c *Container) settleMode(gpu int) {
	state := seatOpen
	if c.table.gpus[gpu].gated {
		state = seatClosed
	}
	s := &c.seats[gpu]
	s.throttledFrom = 0
	if s.state == state {
		c.show(gpu, false)
		return
	}
	c.turnTo(gpu, state)
	if s.residual, s.residualFrom = state == seatClosed, c.table.now; s.residual {
		s.noneDrained()
		c.lookActive(gpu)
	} else {
		c.lookWanting(gpu)
	}
	c.countBeside(gpu)
	c.change()
}

// revoke closes the gate of a lease. Asked are all that have used the GPU since they last rested, which their
// words tell better than what they have said.
func (c *Container) revoke(gpu int) {
	s := &c.seats[gpu]
	if s.state == seatLeased || s.state == seatEntering {
		s.drainFrom = c.table.now
	}
	c.waiters = true // as the scheduler takes it
	s.noneDrained()
	c.turnTo(gpu, seatDraining)
	c.find(gpu, false)
	c.lookActive(gpu)
	c.change()
}

// lookWanting tells those that waited at the gate that it is open.
func (c *Container) lookWanting(gpu int) {
	s := &c.seats[gpu]
	if s.waiting > 0 {
		for _, m := range s.users {
			if p := &m.places[gpu]; s.isWaiting(p) {
				s.setLooking(p, true)
			}
		}
	}
	s.noneWaiting()
	c.table.lookAgain(c, gpu)
}

func (c *Container) lookActive(gpu int) {
	s := &c.seats[gpu]
	for _, m := range s.users {
		s.setLooking(&m.places[gpu], true)
	}
	c.table.lookAgain(c, gpu)
}

// judge does what follows from what the container's processes have said.
func (c *Container) judge() {
	t := c.table
	idle := !c.busy()
	if lease, drained := c.draining(); lease != 0 && (drained || idle) {
		c.finish(lease)
		return
	}
	if lease := c.late(); lease != 0 {
		c.finishLate(lease)
		return
	}
	c.residue()
	if idle && !c.idle {
		c.idle = true
		t.carry(t.node.Idle(t.now, c.id))
	}
}

// residue tells the scheduler once what was submitted before the gates closed is done: until then, leases of
// others do not have the GPU for themselves.
func (c *Container) residue() {
	for _, gpu := range c.gpus {
		if s := &c.seats[gpu]; s.residual && s.state == seatClosed && c.drained(gpu) {
			s.residual = false
			c.countBeside(gpu)
			c.table.carry(c.table.node.Drained(c.table.now, c.id, gpu))
		}
	}
}

// busy tells whether any process uses a GPU, or waits for one.
func (c *Container) busy() bool {
	return slices.ContainsFunc(c.gpus, func(gpu int) bool { return len(c.seats[gpu].users) > 0 })
}

// draining is the container's lease, 0 if it has none, and whether that has been drained on all GPUs.
func (c *Container) draining() (lease uint64, drained bool) {
	drained = true
	for _, gpu := range c.gpus {
		if s := &c.seats[gpu]; s.holds() {
			lease = s.lease
			drained = drained && c.drained(gpu)
		}
	}
	return lease, drained
}

// drained tells whether nothing is outstanding on a GPU whose gate is closed.
func (c *Container) drained(gpu int) bool {
	s := &c.seats[gpu]
	switch s.state {
	case seatLeased, seatEntering:
		return false
	case seatReopened, seatLateOpen:
		return len(s.users) == 0
	}
	return s.drained == len(s.users)
}

// late is a lease that has expired and has been drained by now on all GPUs, 0 if there is none.
func (c *Container) late() (lease uint64) {
	for gpu := range c.seats {
		if s := &c.seats[gpu]; s.isLate() {
			if lease = s.lease; !c.drained(gpu) {
				return 0
			}
		}
	}
	return lease
}

// isLate tells whether a lease has expired and its drain goes on.
func (c *Container) isLate(lease uint64) bool {
	return slices.ContainsFunc(c.seats, func(s seat) bool { return s.isLate() && s.lease == lease })
}

// finish ends a lease: all that was submitted on it is done, or there is nothing to do. So is what was left from
// before the gates closed.
func (c *Container) finish(lease uint64) {
	t, more := c.table, false
	var residual []int
	for _, gpu := range c.gpus {
		s := &c.seats[gpu]
		ends := s.holds() && s.lease == lease
		if ends {
			t.reportSeat(c, gpu)
			c.turnTo(gpu, seatClosed)
			if s.residual {
				s.residual, residual = false, append(residual, gpu)
				c.countBeside(gpu)
			}
		}
		more = more || s.waiting > 0
		if ends {
			s.noneDrained()
			c.find(gpu, true) // who launched just before the gate closed
		}
	}
	t.carry(t.node.Close(t.now, c.id, lease, more))
	for _, gpu := range residual {
		t.carry(t.node.Drained(t.now, c.id, gpu))
	}
	c.change()
}

func (c *Container) finishLate(lease uint64) {
	t := c.table
	more := false
	for gpu := range c.seats {
		if s := &c.seats[gpu]; s.isLate() && s.lease == lease {
			t.reportSeat(c, gpu)
			s.noneDrained()
			c.settleMode(gpu)
		}
		more = more || c.seats[gpu].waiting > 0
	}
	t.carry(t.node.Close(t.now, c.id, lease, more))
	c.change()
}
