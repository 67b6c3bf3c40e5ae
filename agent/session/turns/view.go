package turns

// What operators see.

import (
	"weir/agent/sched"
	"weir/agent/session/page"
)

// Flow is a container on a GPU that it uses.
type Flow struct {
	sched.View
	Owner any
	// Share is the part of the GPU's time that it got, over the last 1, 10 and 60 s; Known, whether there is
	// anything to say of so long.
	Share [3]float64
	Known [3]bool
	// What its processes say that they have done, those that live.
	Worked page.Worked
	// Waits is how long it has waited for a lease by now, in ns; 0: it does not.
	Waits int64
}

// shareSlots are the spans of Flow.Share.
var shareSlots = [3]int64{10, 100, 600}

// Flows lists all containers on the GPUs that they use, in the order of Add.
func (t *Table) Flows(now int64) (flows []Flow) {
	t.advance(now)
	for _, c := range t.containers {
		flows = c.flows(flows)
	}
	return flows
}

// Flows lists the container on the GPUs that it uses.
func (c *Container) Flows(now int64) []Flow {
	c.table.advance(now)
	return c.flows(nil)
}

// flows adds them to a list.
func (c *Container) flows(flows []Flow) []Flow {
	t := c.table
	c.remember()
	for _, gpu := range c.gpus {
		f := Flow{Owner: c.owner}
		f.View, _ = t.node.ViewOn(c.id, gpu)
		if f.WaitsFrom > 0 {
			f.Waits = max(1, t.now-f.WaitsFrom)
		}
		for i, slots := range shareSlots {
			f.Share[i], f.Known[i] = c.seats[gpu].history.share(t.now, slots)
		}
		for _, m := range c.processes {
			if m.absent {
				continue
			}
			w := m.process.Worked(gpu)
			f.Worked.BusyNS += w.BusyNS
			f.Worked.Submitted += w.Submitted
			f.Worked.Ungated += w.Ungated
		}
		flows = append(flows, f)
	}
	return flows
}

// remember takes what the container got into its history.
func (c *Container) remember() {
	for _, gpu := range c.gpus {
		v, _ := c.table.node.ViewOn(c.id, gpu)
		s := &c.seats[gpu]
		s.history.add(c.table.now, v.Got-s.got)
		s.got = v.Got
	}
}
