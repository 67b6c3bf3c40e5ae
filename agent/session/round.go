package session

// Regular looks at what nobody tells the agent of.

import (
	"context"
	"time"

	"weir/agent/session/proc"
)

// rounds looks at everything now and then, for what no message and no descriptor tells: a forged
// page of a tenant that asks for nothing, an exec while another process holds the connection open,
// a process that has left its container, one without the library.
func (n *Node) rounds(ctx context.Context) {
	round, inspect := time.NewTicker(roundEvery), time.NewTicker(inspectEvery)
	defer round.Stop()
	defer inspect.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-round.C:
			n.round()
		case <-inspect.C:
			n.inspect()
			n.dropUnstarted()
			n.tellMisnamed()
		}
	}
}

func (n *Node) list() []*container {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sorted()
}

// inspect looks over all usage pages.
func (n *Node) inspect() {
	granted := make([]uint64, len(n.gpus))
	for _, c := range n.list() {
		c.mu.Lock()
		for _, s := range c.sessions {
			if s.usage == nil || c.closed {
				continue
			}
			for gpu, l := range c.ledgers {
				granted[gpu] = l.Granted(s.holder())
			}
			if err := s.usage.Intact(s.id, granted, s.moves); err != nil {
				c.forged(s)
			}
		}
		c.mu.Unlock()
	}
}

func (n *Node) round() {
	containers := n.list()
	if len(containers) == 0 {
		return
	}
	all, err := proc.All()
	if err != nil {
		n.log.Warn("the processes cannot be listed", "error", err)
		return
	}
	byPID := make(map[int]proc.Stat, len(all))
	for _, st := range all {
		byPID[st.PID] = st
	}
	for _, c := range containers {
		c.findStrays(all)
		c.lookAround(all, byPID)
	}
}

// lookAround is one container's part of a round.
func (c *container) lookAround(all []proc.Stat, byPID map[int]proc.Stat) {
	members, err := c.identity.members(all)
	if err != nil {
		c.node.log.Warn("a container's processes cannot be listed", "container", c.spec.Name, "error", err)
		return
	}
	inside := make(map[proc.ID]bool)
	for _, st := range members {
		inside[st.ID] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	for _, s := range c.sessions {
		st, there := byPID[s.process.PID]
		if !there || st.ID != s.process || s.state == exiting {
			continue
		}
		if s.state == connected && anotherImage(s, st) {
			c.detach(s, nil)
		}
		// A list of processes is not of one moment, so who seems outside is looked at once more.
		if !s.left && !c.rootOver && !inside[s.process] && !c.identity.has(st.ID) {
			s.left = true
			c.event("left", s.process.PID, "%s has left its container: it keeps what it has under "+
				"the container's cap, and new processes of it are refused", s.program)
		}
	}
	for _, x := range c.strays {
		if c.reported[x.ID] != x.Image {
			c.reported[x.ID] = x.Image
			c.event("unenforced", x.PID, "%s: %s%s", x.Name, x.why, c.butDriver())
		}
	}
}
