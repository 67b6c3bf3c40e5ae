package sched

// One view over all GPUs of a node: containers, and the events that come in.

import (
	"fmt"
	"slices"
)

// Container is what Add is told.
type Container struct {
	ID     FlowID
	Weight float64
	// GPUs are the GPUs that it uses, by their place in New's list.
	GPUs []int
	// Choose: it runs on any one of GPUs. Else it uses all of them, and is granted all or none.
	Choose bool
	// Leases is how many it may have at once on a GPU, 1 to the GPU's slots; 1 for a gang.
	Leases int
}

// Node schedules all GPUs of a node. Make one with New.
type Node struct {
	board
	queues     []*queue
	containers map[FlowID]*container
}

// container is one with its flows, in the order of the GPUs' numbers.
type container struct {
	flows  []*flow
	choose bool
	on     int // of Choose: the flow in use
	gang   bool
	one    [1]*flow // flows, where there is one: most containers, and all in one piece of memory
	first  flow
}

// using is what of a container is scheduled now.
func (c *container) using() []*flow {
	if c.choose {
		return c.flows[c.on : c.on+1]
	}
	return c.flows
}

// New makes a node with a GPU for each configuration.
func New(configs ...Config) (*Node, error) {
	n := &Node{containers: make(map[FlowID]*container)}
	for i, config := range configs {
		if err := config.Check(); err != nil {
			return nil, fmt.Errorf("GPU %d: %w", i, err)
		}
		n.queues = append(n.queues, newQueue(&n.board, i, config))
	}
	return n, nil
}

// Add makes a container known. It is idle, and its memory is on its GPUs until Resident says otherwise.
func (n *Node) Add(spec Container) error {
	if err := CheckWeight(spec.Weight); err != nil {
		return err
	}
	if spec.ID == 0 || n.containers[spec.ID] != nil {
		return fmt.Errorf("id %d: give one above 0 that is not in use", spec.ID)
	}
	gpus := slices.Compact(slices.Sorted(slices.Values(spec.GPUs)))
	if len(gpus) == 0 || len(gpus) != len(spec.GPUs) || gpus[0] < 0 || gpus[len(gpus)-1] >= len(n.queues) {
		return fmt.Errorf("GPUs %v: give different numbers from 0 to %d", spec.GPUs, len(n.queues)-1)
	}
	c := &container{choose: spec.Choose, gang: len(gpus) > 1 && !spec.Choose}
	c.flows = c.one[:0]
	for _, gpu := range gpus {
		if err := n.queues[gpu].checkLeases(spec.Leases, c.gang); err != nil {
			return err
		}
	}
	for _, gpu := range gpus {
		f := &c.first
		if len(c.flows) > 0 {
			f = &flow{}
		}
		*f = flow{id: spec.ID, on: n.queues[gpu], weight: spec.Weight, limit: int32(spec.Leases), resident: true}
		f.leases = f.one[:0]
		c.flows = append(c.flows, f)
		f.on.table.add(f)
	}
	for i, f := range c.flows {
		if f.peers = c.flows; !c.gang {
			f.peers = c.flows[i : i+1]
		}
	}
	for _, f := range c.flows {
		if c.gang {
			f.on.gangs = append(f.on.gangs, c)
		}
	}
	n.containers[spec.ID] = c
	return nil
}

func (q *queue) checkLeases(leases int, gang bool) error {
	most := q.config.Slots
	if gang {
		most = 1
	}
	if leases < 1 || leases > most {
		return fmt.Errorf("leases: %d; give 1 to %d", leases, most)
	}
	return nil
}

// begin finds a container and brings its queues' clocks up to now; nil if there is none of that id.
func (n *Node) begin(now int64, id FlowID) *container {
	n.out = n.out[:0]
	c := n.containers[id]
	if c != nil {
		for _, f := range c.flows {
			f.on.now = max(f.on.now, now)
		}
	}
	return c
}

// Want: the container has work for so many leases (on each of its GPUs), at least one; it is told Grant,
// or Open where none is needed. To be repeated where the number changes only.
func (n *Node) Want(now int64, id FlowID, leases int) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	if c.choose {
		c.place()
	}
	for _, f := range c.using() {
		q := f.on
		q.join(f)
		f.wants = int32(min(max(1, leases), SlotsMax))
		q.refile(f)
		q.advance()
		q.throttle(f)
		if !q.mode.gated || f.coRun {
			q.say(Decision{Kind: Open, GPU: q.gpu, Flow: id, Rivals: q.active.len() > 1})
		}
	}
	return n.finish(c)
}

// Used: the container reports what it has done on a GPU, at least every 10 ms while its gate is open, and
// right before Close. What it did before a Grant is no part of a report after it.
func (n *Node) Used(now int64, id FlowID, gpu int, use Use) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.using() {
		if f.on.gpu == gpu {
			f.on.used(f, use)
		}
	}
	return n.finish(c)
}

// Close: all that was submitted on this lease is done, on all GPUs of a gang together, and its gate is
// closed. more tells whether the container would go on: then it waits for its next lease. A lease that
// is not there any more is ignored.
func (n *Node) Close(now int64, id FlowID, lease uint64, more bool) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	found := false
	for _, f := range c.flows {
		if f.on.close(f, lease) {
			found = true
		}
	}
	if found && !more {
		n.rest(c, 1)
	}
	for _, f := range c.using() {
		f.on.refile(f)
		f.on.advance()
		f.on.throttle(f)
	}
	return n.finish(c)
}

// Idle: the container has no work any more, and no lease, because its gate was open or it waited.
func (n *Node) Idle(now int64, id FlowID) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.using() {
		f.unreserve()
	}
	n.rest(c, SlotsMax)
	return n.finish(c)
}

// rest takes so many leases off what c wants.
func (n *Node) rest(c *container, leases int) {
	for _, f := range c.using() {
		f.wants = max(int32(len(f.leases)), f.wants-int32(leases))
		f.on.leave(f)
		f.on.refile(f)
	}
}

// Progress: something that the container submitted is done. To be told at least every 10 ms while a
// lease drains, if there was any, and within 5 ms of Reopen: later is not taken for its effect.
func (n *Node) Progress(now int64, id FlowID) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.using() {
		f.on.progress(f)
	}
	return n.finish(c)
}

// Gone: the container has ended, however that was.
func (n *Node) Gone(now int64, id FlowID) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.flows {
		for len(f.leases) > 0 {
			f.on.end(f.leases[0])
		}
		f.on.remove(f)
		f.on.gangs = slices.DeleteFunc(f.on.gangs, func(other *container) bool { return other == c })
	}
	delete(n.containers, id)
	return n.finish(c)
}

// SetWeight changes a container's weight. What it has had until now counts by the old one.
func (n *Node) SetWeight(now int64, id FlowID, weight float64) ([]Decision, error) {
	if err := CheckWeight(weight); err != nil {
		return nil, err
	}
	c := n.begin(now, id)
	if c == nil {
		return nil, nil
	}
	for _, f := range c.flows {
		for _, l := range f.leases {
			f.on.settle(l)
		}
		if f.in(inActive) {
			f.on.mode.weigh(f.on, weight-f.weight, true)
		}
		f.weight = weight
		f.on.refile(f)
	}
	return n.finish(c), nil
}

// SetLeases changes how many leases a container may have at once on a GPU.
func (n *Node) SetLeases(now int64, id FlowID, leases int) ([]Decision, error) {
	c := n.begin(now, id)
	if c == nil {
		return nil, nil
	}
	for _, f := range c.flows {
		if err := f.on.checkLeases(leases, c.gang); err != nil {
			return nil, err
		}
	}
	for _, f := range c.flows {
		f.limit = int32(leases)
		f.on.refile(f)
	}
	return n.finish(c), nil
}

// Resident: whether the container's memory is on this GPU, and how long bringing it there would take (ns).
func (n *Node) Resident(now int64, id FlowID, gpu int, resident bool, move int64) []Decision {
	c := n.begin(now, id)
	if c == nil {
		return nil
	}
	for _, f := range c.flows {
		if f.on.gpu == gpu {
			f.resident, f.move, f.fetching = resident, max(0, move), false
			f.on.refile(f)
		}
	}
	return n.finish(c)
}

// Utilisation: a sample of a GPU's utilisation, in percent.
func (n *Node) Utilisation(now int64, gpu int, percent float64) []Decision {
	n.out = n.out[:0]
	q := n.queues[gpu]
	q.now = max(q.now, now)
	q.sampled(percent)
	q.finish()
	return n.gangs()
}

// Configure changes a GPU's configuration. O(n log n).
func (n *Node) Configure(now int64, gpu int, config Config) ([]Decision, error) {
	if err := config.Check(); err != nil {
		return nil, fmt.Errorf("GPU %d: %w", gpu, err)
	}
	n.out = n.out[:0]
	q := n.queues[gpu]
	q.now = max(q.now, now)
	q.reconfigure(config)
	q.finish()
	return n.gangs(), nil
}

// Tick: time has passed. To be called at Next.
func (n *Node) Tick(now int64) []Decision {
	n.out = n.out[:0]
	for _, q := range n.queues {
		q.now = max(q.now, now)
	}
	for _, q := range n.queues {
		q.tick(now)
	}
	for _, q := range n.queues {
		q.finish()
	}
	return n.gangs()
}

// Next is when Tick has something to do, Never if there is nothing.
func (n *Node) Next() int64 {
	at := Never
	for _, q := range n.queues {
		at = min(at, q.next())
	}
	return at
}

// finish ends an event of c's.
func (n *Node) finish(c *container) []Decision {
	if c.gang {
		c.advance(&n.board)
	}
	for _, f := range c.flows {
		f.on.finish()
	}
	return n.gangs()
}
