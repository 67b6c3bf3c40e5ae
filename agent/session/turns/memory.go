package turns

// Containers whose memory moves before their leases (package swaps): what is to be known of them, and what is told.
// Their gates do not open when they are granted a lease, but once their memory is in place on all GPUs of it. A
// container that is not movable costs nothing here.

import (
	"slices"
	"time"
)

// Standing is what a container is on a GPU, for whoever moves its memory.
type Standing uint8

const (
	// Idle: it has nothing to do there.
	Idle Standing = iota
	// Waiting for a lease.
	Waiting
	// Holder: it may run, or enters, or what it has submitted may still run.
	Holder
)

// What may be in flight where leases are long: so much of a quantum, at most so long.
const (
	windowTurns = 16
	windowMost  = 100 * time.Millisecond
)

// SetMovable has the container's leases begin with its memory.
func (c *Container) SetMovable(now int64) {
	c.table.advance(now)
	c.movable = true
	c.stir()
}

// stir notes that a movable container may stand elsewhere now.
func (c *Container) stir() {
	if c.movable && !c.stirs {
		c.stirs = true
		c.table.stirred = append(c.table.stirred, c)
	}
}

// Stirred takes those movable containers of which something may have changed since the last time, appended to list.
func (t *Table) Stirred(list []*Container) []*Container {
	for _, c := range t.stirred {
		if c.stirs = false; !c.gone {
			list = append(list, c)
		}
	}
	clear(t.stirred)
	t.stirred = t.stirred[:0]
	return list
}

// Standing of a container on a GPU. What was submitted before the gates closed counts for as long as a drain may take.
func (c *Container) Standing(gpu int) Standing {
	s, t := &c.seats[gpu], c.table
	switch {
	case s.holds() || s.isLate():
		return Holder
	case s.state == seatOpen || s.state == seatCoRun:
		if len(s.users) > 0 {
			return Holder
		}
	case s.residual && s.beside:
		return Holder
	case slices.Contains(c.gpus, gpu) && t.node.Wants(c.id):
		return Waiting
	}
	return Idle
}

// Entering is the lease whose gate waits for the container's memory on a GPU, 0 if there is none.
func (c *Container) Entering(gpu int) (lease uint64) {
	if s := &c.seats[gpu]; s.state == seatEntering && !s.inPlace {
		return s.lease
	}
	return 0
}

// entering tells whether nothing has been submitted on a lease, since its gate has been open nowhere.
func (c *Container) entering(lease uint64) bool {
	return !slices.ContainsFunc(c.seats, func(s seat) bool { return s.lease == lease && s.state != seatEntering })
}

// Hold: the container's memory is expected to be in place at this time at the latest, until when its quantum does not
// begin.
func (c *Container) Hold(now int64, lease uint64, until int64) {
	t := c.table
	t.advance(now)
	t.carry(t.node.Begins(t.now, c.id, lease, until))
}

// InPlace: the container's memory is in place on a GPU, or is not waited for any more. If it is on all, the gates open.
func (c *Container) InPlace(now int64, gpu int) {
	t := c.table
	t.advance(now)
	lease := c.Entering(gpu)
	if lease == 0 {
		return
	}
	c.seats[gpu].inPlace = true
	waits := func(s seat) bool { return s.state == seatEntering && s.lease == lease && !s.inPlace }
	if slices.ContainsFunc(c.seats, waits) {
		return
	}
	for gpu := range c.seats {
		if s := &c.seats[gpu]; s.state == seatEntering && s.lease == lease {
			s.skip(gpu)
			s.reported = t.now
			c.turnTo(gpu, seatLeased)
			c.lookWanting(gpu)
		}
	}
	t.carry(t.node.Begins(t.now, c.id, lease, t.now))
}

// Resident tells the scheduler whether the container's memory is on a GPU, and how long bringing it takes, in ns.
func (c *Container) Resident(now int64, gpu int, resident bool, move int64) {
	t := c.table
	t.advance(now)
	t.carry(t.node.Resident(t.now, c.id, gpu, resident, move))
}

// Apart: what the containers need does not fit the GPU together, so leases are exclusive, with this quantum in ns. 0: it
// fits again.
func (t *Table) Apart(now int64, gpu int, quantum int64) {
	t.advance(now)
	g, config := &t.gpus[gpu], t.config.Config
	if g.quantum = quantum; quantum > 0 {
		config = config.Moving(quantum)
		g.quantum = config.Quantum
	}
	decisions, err := t.node.Configure(t.now, gpu, config)
	if err != nil {
		return // which New would have refused, too
	}
	t.carry(decisions)
	for _, c := range t.containers {
		c.show(gpu, false)
	}
}

// window is what a process may have in flight on a GPU with rivals: where a lease is long, so may its drain be, and work is
// not to run out between two looks at what is done.
func (t *Table) window(gpu int) time.Duration {
	w := t.config.Window
	if w == 0 {
		return 0 // no bound
	}
	return max(w, min(time.Duration(t.gpus[gpu].quantum)/windowTurns, windowMost))
}

// Expected visits who waits for a lease on a GPU, in the order in which they are expected to have one, and when.
func (t *Table) Expected(gpu int, visit func(c *Container, at int64)) {
	t.expected = t.node.Expected(gpu, t.expected[:0])
	for _, e := range t.expected {
		if c := t.byID[e.Flow]; c != nil {
			visit(c, e.At)
		}
	}
}

// Gated tells whether only leases open gates on a GPU.
func (t *Table) Gated(gpu int) bool { return t.gpus[gpu].gated }
