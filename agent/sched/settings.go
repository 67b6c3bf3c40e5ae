package sched

// What operators and other parts of the agent set while containers run.

import "fmt"

// SetWeight changes a container's weight. What it has had until now counts by the old one.
func (n *Node) SetWeight(now int64, id FlowID, weight float64) ([]Decision, error) {
	if err := CheckWeight(weight); err != nil {
		return nil, err
	}
	c := n.begin(now, id)
	if c == nil {
		return nil, nil
	}
	for _, f := range c.left {
		f.weight = weight
		f.on.forgive(f)
	}
	for _, f := range c.flows {
		for _, l := range f.leases {
			f.on.settle(l)
		}
		for _, l := range f.late {
			f.on.payLate(l)
		}
		if f.in(inActive) {
			f.on.mode.weigh(f.on, weight-f.weight, true)
		}
		f.weight = weight
		f.on.forgive(f)
		f.on.refile(f)
	}
	return n.finish(c), nil
}

// forgive leaves a flow whose weight has changed no further ahead than leases bring it by that weight: one of 20 ms at
// a weight of 0.001 is 20 s of virtual time, which it would wait for at a weight of 1.
func (q *queue) forgive(f *flow) {
	q.advance()
	most := q.level() + f.threshold() + float64(f.limit)*float64(max(q.config.Quantum, f.estimate))/f.weight
	f.virtual = min(f.virtual, most)
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
