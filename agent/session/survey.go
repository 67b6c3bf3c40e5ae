package session

// What is measured of the node, again and again, for those that keep figures. Nothing waits for it: the locks are taken
// for one container at a time, no process is looked into (what the rounds found is told), and NVML is not asked.

import (
	"context"
	"maps"
	"slices"

	"weir/agent/control"
)

// Survey tells of all containers, the oldest first, and of their flows. One that comes or goes meanwhile is in it or not.
func (n *Node) Survey(context.Context) (control.Survey, error) {
	s := control.Survey{
		Containers: []control.Container{}, Flows: []control.Flow{}, Events: n.events.Counts(), EventsDropped: n.events.Dropped(),
	}
	for _, c := range n.list() {
		n.survey(c, &s)
	}
	n.mu.Lock()
	uncapped := slices.Collect(maps.Values(n.uncapped))
	n.mu.Unlock()
	for _, u := range living(uncapped) {
		s.Containers = append(s.Containers, u.report())
	}
	return s, nil
}

// survey adds one container, if it is still there.
func (n *Node) survey(c *container, s *control.Survey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.containers[c.spec.ID] != c {
		return
	}
	s.Containers = append(s.Containers, c.report())
	flows := make(map[int]control.Flow)
	if c.turns != nil {
		n.time.do(func(now int64) {
			for _, f := range c.turns.Flows(now) {
				flows[f.GPU] = reportFlow(f)
			}
		})
	}
	for gpu := range n.gpus {
		if f, there := c.flow(gpu, flows); there {
			s.Flows = append(s.Flows, f)
		}
	}
}
