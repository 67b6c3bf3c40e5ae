package turns

// What is looked at regularly: the words of active processes every 10 ms, and whether the others have
// become active ten times a second.

import (
	"math"

	"weir/agent/sched"
)

// staleMax is how old the words may be that were last read, in ns: processes write them every 5 ms.
const staleMax = 100_000_000

// unusedAfter is how long a container may leave a GPU unused that the scheduler grants it together with
// others, in ns.
const unusedAfter int64 = 3_000_000_000

// report reads the words of all active processes.
func (t *Table) report() {
	for _, c := range t.containers {
		for gpu := range c.seats {
			if s := &c.seats[gpu]; s.active > 0 {
				t.lookAgain(c, gpu)
				t.reportSeat(c, gpu)
			}
		}
		c.tellWaiters()
	}
	t.carry(nil)
}

// tellWaiters: a drain that stands still is helped only if threads wait at the gate.
func (c *Container) tellWaiters() {
	t, draining, some := c.table, false, false
	for _, gpu := range c.gpus {
		draining = draining || c.seats[gpu].state == seatDraining
		for _, m := range c.processes {
			p := &m.places[gpu]
			some = some || p.wants || p.waiting > 0 || p.active && m.process.Worked(gpu).Waiting > 0
		}
	}
	if draining && some != c.waiters {
		c.waiters = some
		t.carry(t.node.Waiters(t.now, c.id, some))
	}
}

func (t *Table) lookAgain(c *Container, gpu int) {
	for _, m := range c.processes {
		if m.places[gpu].looking {
			m.look(gpu)
		}
	}
}

// reportSeat tells the scheduler what a container's processes have done on a GPU. The sum of their busy times
// may be more than the time that has passed: how far they overlap they cannot know.
func (t *Table) reportSeat(c *Container, gpu int) {
	s := &c.seats[gpu]
	var busy, work uint64
	for _, m := range c.processes {
		if !m.places[gpu].active {
			continue
		}
		did := m.words(gpu)
		busy += min(did.BusyNS, math.MaxInt32)
		work += worth(did.Submitted, did.WorkNS)
	}
	passed := t.now - s.reported
	s.reported = t.now
	use := sched.Use{Busy: min(int64(busy), passed), Work: int64(min(work, math.MaxInt32))}
	if use == (sched.Use{}) && !c.wants {
		return
	}
	c.idle = false
	if s.state == seatOpen {
		c.wants = true // as the scheduler takes it
	}
	t.carry(t.node.Used(t.now, c.id, gpu, use))
}

// worth is work in units of a us: what operations are expected to take where that is known, else one
// each.
func worth(submitted, workNS uint64) uint64 {
	if workNS > 0 {
		return max(1, min(workNS/1000, math.MaxInt32))
	}
	return min(submitted, math.MaxInt32)
}

// skip reads words without telling: what was done until now is no part of what is told next.
func (t *Table) skip(c *Container, gpu int) {
	for _, m := range c.processes {
		if m.places[gpu].active {
			m.words(gpu)
		}
	}
	c.seats[gpu].reported = t.now
}

// look finds those that have become active, and GPUs that are not used any more.
func (t *Table) look() {
	for _, c := range t.containers {
		for _, m := range c.processes {
			for gpu := range m.places {
				if !m.places[gpu].active && m.process.Active(gpu) {
					m.found(gpu)
				}
			}
		}
		c.exclude()
		c.remember()
		c.tellThrottled()
	}
	t.carry(nil)
}
