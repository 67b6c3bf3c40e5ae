package sched

// Which GPUs a container uses, while it runs. A GPU that a container has left and comes back to knows its
// flow: what it has had there is not forgotten by leaving.

import (
	"fmt"
	"slices"
)

// SetGPUs changes the GPUs that a container uses; not of one that may choose. Its virtual times and its
// leases on those that stay are kept, and it wants a lease on a new one if it wants any. It is granted
// leases on all of them or none from now on: one that holds a lease goes on, and goes first at the GPU
// where it lacks one. On a GPU that it leaves its leases end without a decision: the caller closes that
// gate, and is to know that nothing of the container is at work there. Several leases on one GPU
// become one, the newest, where it becomes a gang. O(log n) for each of the container's GPUs.
func (n *Node) SetGPUs(now int64, id FlowID, gpus []int) ([]Decision, error) {
	c := n.begin(now, id)
	if c == nil {
		return nil, nil
	}
	if c.choose {
		return nil, fmt.Errorf("id %d: its GPUs are those of Add, of which it may choose one", id)
	}
	sorted, err := n.checkGPUs(gpus)
	if err != nil {
		return nil, err
	}
	var flows []*flow
	wants, coRun := c.wants()
	for _, gpu := range sorted {
		f, stays := c.flow(gpu)
		if f == nil {
			f = &flow{}
			f.make(n.queues[gpu], id, c.flows[0].weight, int(c.flows[0].limit))
		}
		if f.on.now = max(f.on.now, now); !stays {
			f.on.table.add(f)
			f.enter(wants, coRun)
		}
		flows = append(flows, f)
	}
	was := c.flows
	left := slices.DeleteFunc(slices.Clone(was), func(f *flow) bool { return slices.Contains(flows, f) })
	c.left = slices.DeleteFunc(c.left, func(f *flow) bool { return slices.Contains(flows, f) })
	for _, f := range left {
		f.leave()
		c.left = append(c.left, f)
	}
	c.use(flows)
	c.regroup(&n.board)
	for _, f := range left {
		f.on.finish()
	}
	return n.finish(c), nil
}

// checkGPUs returns the GPUs in order, or what is wrong with them.
func (n *Node) checkGPUs(gpus []int) ([]int, error) {
	sorted := slices.Compact(slices.Sorted(slices.Values(gpus)))
	if len(sorted) == 0 || len(sorted) != len(gpus) || sorted[0] < 0 || sorted[len(sorted)-1] >= len(n.queues) {
		return nil, fmt.Errorf("GPUs %v: give different numbers from 0 to %d", gpus, len(n.queues)-1)
	}
	return sorted, nil
}

// flow is c's flow on a GPU, and whether it uses that GPU now; nil if it never did.
func (c *container) flow(gpu int) (f *flow, uses bool) {
	here := func(f *flow) bool { return f.on.gpu == gpu }
	if i := slices.IndexFunc(c.flows, here); i >= 0 {
		return c.flows[i], true
	}
	if i := slices.IndexFunc(c.left, here); i >= 0 {
		return c.left[i], false
	}
	return nil, false
}

// wants tells whether c wants leases, and whether it runs without.
func (c *container) wants() (wants, coRun bool) {
	for _, f := range c.flows {
		wants, coRun = wants || f.wants > 0, coRun || f.coRun
	}
	return wants, coRun
}

// enter begins the use of a GPU; f is in the queue's table, and in nothing else.
func (f *flow) enter(wants, coRun bool) {
	q := f.on
	if coRun {
		q.startCoRun(f)
	}
	if wants {
		q.join(f)
		f.wants = 1
		q.refile(f)
	}
}

// leave ends the use of a GPU.
func (f *flow) leave() {
	for len(f.leases) > 0 {
		f.on.end(f.leases[0])
	}
	f.blocked, f.hurry, f.probe = false, false, false
	f.on.remove(f)
}

// use makes flows, of different GPUs and in order, those of c.
func (c *container) use(flows []*flow) {
	c.dropGang()
	c.flows, c.gang = flows, len(flows) > 1 && !c.choose
	for i, f := range flows {
		f.of = c
		if f.peers = flows; !c.gang {
			f.peers = flows[i : i+1]
		}
		if c.gang {
			f.on.gangs = append(f.on.gangs, c)
		}
	}
}

// dropGang takes c off its GPUs' lists of gangs.
func (c *container) dropGang() {
	for _, f := range c.flows {
		if c.gang {
			f.on.gangs = slices.DeleteFunc(f.on.gangs, func(other *container) bool { return other == c })
		}
	}
}

// regroup makes leases fit a change of c's GPUs. A gang has one lease a GPU, and goes on with its missing
// ones in finish; a container of one GPU does not wait for others.
func (c *container) regroup(b *board) {
	if !c.gang {
		for _, f := range c.flows {
			f.blocked, f.hurry, f.probe = false, false, false
			f.on.refile(f)
		}
		c.complete(b)
		return
	}
	for _, f := range c.flows {
		for f.limit = 1; len(f.leases) > 1; {
			f.on.end(f.leases[0])
		}
		f.wants = min(f.wants, 1)
		f.on.refile(f)
	}
}
