package turns

// Which GPUs the scheduler grants a container together: those that it uses. One more comes with its
// first use, and goes when it has not been used for a while.

import (
	"slices"

	"weir/agent/sched"
)

// include makes a GPU one that the container is known to use.
func (c *Container) include(gpu int) {
	if slices.Contains(c.gpus, gpu) {
		return
	}
	gpus := append(slices.Clone(c.gpus), gpu)
	slices.Sort(gpus)
	c.uses(gpus)
}

// exclude drops those that have not been used for a while, but never all. Nothing runs on them.
func (c *Container) exclude() {
	t := c.table
	if len(c.gpus) < 2 {
		return
	}
	unused := func(gpu int) bool {
		s := &c.seats[gpu]
		return len(s.users) == 0 && !s.isLate() && t.now-s.usedAt > unusedAfter
	}
	used := slices.DeleteFunc(slices.Clone(c.gpus), unused)
	if len(used) == 0 || len(used) == len(c.gpus) {
		return
	}
	for _, gpu := range c.gpus {
		if unused(gpu) && c.seats[gpu].holds() {
			c.turnTo(gpu, seatClosed)
		}
	}
	c.uses(used)
}

// uses tells the scheduler which GPUs the container uses. It refuses none that are of the node.
func (c *Container) uses(gpus []int) {
	t := c.table
	c.stir()
	if c.gpus == nil {
		if t.node.Add(sched.Container{ID: c.id, Weight: c.weight, GPUs: gpus, Leases: 1}) == nil {
			c.gpus = gpus
		}
		return
	}
	decisions, err := t.node.SetGPUs(t.now, c.id, gpus)
	if err != nil {
		return
	}
	c.gpus = gpus
	t.carry(decisions)
}

// want tells the scheduler that the container has work, if it does not know.
func (c *Container) want() {
	if t := c.table; !t.node.Wants(c.id) {
		c.idle = false
		c.stir()
		t.carry(t.node.Want(t.now, c.id, 1))
	}
}

// waiverLong is how long those that have waited at a closed gate for as long as they may go through it, in ns.
const waiverLong int64 = 1_000_000_000

// wantAgain looks after closed gates whose WANT may have been lost: somebody waits there, or has gone through. Who
// has waited for a lease for as long as it may waits no more until there is another number, which only an agent that
// lives can give it: so what it takes without a lease has an end, and ends nobody's work where the agent hangs.
func (c *Container) wantAgain() {
	for _, gpu := range c.gpus {
		s := &c.seats[gpu]
		if s.state != seatClosed || s.waiting == 0 {
			continue
		}
		if c.want(); s.state == seatClosed && s.waived && c.table.now-s.closedAt >= waiverLong {
			c.turnTo(gpu, seatClosed)
		}
	}
}
