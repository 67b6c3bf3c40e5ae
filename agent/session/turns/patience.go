package turns

// How long a launch waits at a closed gate before it goes through all the same. Where memory moves, who goes through has
// what it needs fetched page by page, beside the holder or in the middle of its own entry, and has memory of the holder
// go. So it waits there for longer than any turn takes by plan.

import (
	"time"

	"weir/agent/sched"
)

const (
	// waitTurns is how many quanta a launch waits at least where memory has to move, and waitShares how many times as long
	// as it should be until its container's turn, by weight.
	waitTurns  = 8
	waitShares = 2
	// waitMost is the longest in any case.
	waitMost = time.Hour
)

// patience is how long launches wait at a seat's gate.
type patience struct {
	max   time.Duration
	until int64 // more than is needed by now, which those who wait were told: so long it holds
}

// waitMax is the longest that a launch of the container waits at the gate of a GPU. When less is needed, those who wait
// keep what they were told: quanta get shorter as others end, and just then it is the turn of who has waited for longest.
func (c *Container) waitMax(gpu int) time.Duration {
	p, t := &c.seats[gpu].patience, c.table
	switch needed := c.waitNeeded(gpu); {
	case needed >= p.max, t.now >= p.until:
		p.max, p.until = needed, sched.Never
	case p.until == sched.Never:
		p.until = t.now + int64(p.max)
	}
	return p.max
}

// waitNeeded is that by what turns take now.
func (c *Container) waitNeeded(gpu int) time.Duration {
	g := &c.table.gpus[gpu]
	turns := max(waitTurns, waitShares*g.weights/c.weight)
	return max(c.table.config.WaitMax, time.Duration(min(turns*float64(g.quantum), float64(waitMost))))
}

// weigh adds up the weights of those that use each GPU, and tells all how long they wait.
func (t *Table) weigh() {
	for gpu := range t.gpus {
		t.gpus[gpu].weights = 0
	}
	for _, c := range t.using {
		for _, gpu := range c.gpus {
			t.gpus[gpu].weights += c.weight
		}
	}
	for _, c := range t.using {
		for gpu := range c.seats {
			c.show(gpu, false)
		}
	}
}
