package swaps

// A container that has, or has had, swap.

import (
	"maps"

	"weir/agent/residency"
	"weir/agent/session/turns"
)

// Limits are a container's on one GPU, in bytes.
type Limits struct {
	Cap, Swap int64
}

// Container is one at the table.
type Container struct {
	table   *Table
	id      residency.FlowID
	owner   any
	seat    *turns.Container
	flows   []flow // by GPU
	members []*Member
	gone    bool
}

// flow is a container on one GPU.
type flow struct {
	stands   turns.Standing
	next     bool             // it was said to be next
	turn     int64            // when its lease was said to be expected; 0: it was not
	resident bool             // the scheduler was told so
	ready    bool             // since it may run: its memory is in place
	entering uint64           // the lease whose gate waits for its memory
	openBy   int64            // and until when
	lacked   int64            // what lacked when that was decided, in bytes
	told     map[string]int64 // when an event of a kind was last told
	links    [2]link          // as its moves saw it, to the card and from it
	admitted int64            // plain memory that has room and was not settled yet, in bytes
	cancels  Cancels
}

// Cancels are moves that were to be taken back when their process had been told of them, and of these the ones that it
// has not begun.
type Cancels struct {
	Asked, Undone int64
}

// Add gives a container its place. Its leases begin with its memory from now on.
func (t *Table) Add(now int64, owner any, seat *turns.Container, limits []Limits) (*Container, error) {
	t.advance(now)
	t.lastFlow++
	c := &Container{table: t, id: t.lastFlow, owner: owner, seat: seat, flows: make([]flow, len(t.gpus))}
	for gpu := range t.gpus {
		c.flows[gpu].resident = true // as a scheduler takes it
		if err := t.node.Add(t.now, c.id, gpu, limits[gpu].Cap, limits[gpu].Swap); err != nil {
			for ; gpu > 0; gpu-- {
				t.carry(t.node.Remove(t.now, c.id, gpu-1))
			}
			return nil, err
		}
	}
	t.containers = append(t.containers, c)
	t.seats[seat], t.flows[c.id] = c, c
	seat.SetMovable(t.now)
	t.settle()
	return c, nil
}

// Remove takes a container away, with its processes. Its seat is to be removed afterwards.
func (c *Container) Remove(now int64) {
	t := c.table
	if c.gone {
		return
	}
	t.advance(now)
	maps.DeleteFunc(t.asks, func(_ uint64, a *ask) bool { return a.c == c })
	for len(c.members) > 0 {
		c.members[0].drop()
	}
	c.gone = true
	t.containers = without(t.containers, c)
	delete(t.seats, c.seat)
	delete(t.flows, c.id)
	for gpu := range t.gpus {
		t.carry(t.node.Remove(t.now, c.id, gpu))
	}
	t.settle()
}

// SetCap changes the container's cap on a GPU. What is above it goes while it runs.
func (c *Container) SetCap(now int64, gpu int, limit int64) {
	t := c.table
	t.advance(now)
	t.carry(t.node.SetCap(t.now, c.id, gpu, limit))
	t.settle()
}

// SetSwap changes what the container may have beyond its cap on a GPU. An error is a *residency.Refusal; with drain, what
// is on the host comes back first, and EventDrained tells when it has.
func (c *Container) SetSwap(now int64, gpu int, swap int64, drain bool) error {
	t := c.table
	t.advance(now)
	before := c.View(gpu).Swap
	decisions, err := t.node.SetSwap(t.now, c.id, gpu, swap, drain)
	if err == nil && swap == 0 && before > 0 && !c.View(gpu).Draining {
		c.tell(EventDrained, gpu, 0) // nothing was swapped
	}
	t.carry(decisions)
	t.settle()
	return err
}

// Cancels are how many of the container's moves on a GPU were cancelled.
func (c *Container) Cancels(gpu int) Cancels { return c.flows[gpu].cancels }

// View is what the container has on a GPU.
func (c *Container) View(gpu int) residency.View {
	v, _ := c.table.node.View(c.id, gpu)
	return v
}
