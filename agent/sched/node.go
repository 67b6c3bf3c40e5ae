package sched

// One view over all GPUs of a node: containers, and the events that come in.

import "fmt"

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

// container is one with its flows, in the order of the GPUs' numbers. What a turn touches lies together.
type container struct {
	flows  []*flow
	one    [1]*flow // flows, where there is one
	on     int      // of choose: the flow in use
	choose bool
	gang   bool
	first  flow    // most use one GPU only
	left   []*flow // of GPUs that it does not use any more
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
	gpus, err := n.checkGPUs(spec.GPUs)
	if err != nil {
		return err
	}
	c := &container{choose: spec.Choose}
	for _, gpu := range gpus {
		if err := n.queues[gpu].checkLeases(spec.Leases, len(gpus) > 1 && !spec.Choose); err != nil {
			return err
		}
	}
	flows := c.one[:0]
	for _, gpu := range gpus {
		f := &c.first
		if len(flows) > 0 {
			f = &flow{}
		}
		f.make(n.queues[gpu], spec.ID, spec.Weight, spec.Leases)
		f.on.table.add(f)
		flows = append(flows, f)
	}
	c.use(flows)
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
	c := n.recent
	if c == nil || c.first.id != id {
		c = n.containers[id]
	}
	if c != nil {
		for _, f := range c.flows {
			f.on.now = max(f.on.now, now)
		}
	}
	return c
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
