package turns

// What is looked at regularly: the words of active processes every 10 ms, and whether the others have
// become active ten times a second.

import (
	"math"
	"slices"

	"weir/agent/sched"
)

// unusedAfter is how long a container may leave a GPU unused that the scheduler grants it together with
// others, in ns.
const unusedAfter int64 = 3_000_000_000

// report reads the words of all active processes.
func (t *Table) report() {
	for i := 0; i < len(t.using); i++ { // which may grow meanwhile
		c := t.using[i]
		for gpu := range c.seats {
			if s := &c.seats[gpu]; len(s.users) > 0 {
				t.lookAgain(c, gpu)
				t.reportSeat(c, gpu)
				c.endGaps(gpu)
				c.countBeside(gpu) // for how long has passed
			}
		}
		c.tellWaiters()
		c.wantAgain()
	}
	t.carry(nil)
}

// tellWaiters: a drain that stands still is helped only if threads wait at the gate.
func (c *Container) tellWaiters() {
	t, some := c.table, false
	drains := func(gpu int) bool { return c.seats[gpu].state == seatDraining || c.seats[gpu].state == seatLate }
	if !slices.ContainsFunc(c.gpus, drains) {
		return
	}
	for _, gpu := range c.gpus {
		some = some || c.seats[gpu].anyWaits(gpu)
	}
	if some != c.waiters {
		c.waiters = some
		t.carry(t.node.Waiters(t.now, c.id, some))
	}
}

func (t *Table) lookAgain(c *Container, gpu int) {
	s, left := &c.seats[gpu], looksMax
	for i := 0; i < len(s.users) && s.looking > 0 && left > 0; i++ {
		if m := s.users[i]; m.places[gpu].looking {
			left--
			m.look(gpu)
		}
	}
}

// told takes what a process has done, at the end of its activity; it is told with that of the others, if there are
// any.
func (t *Table) told(m *Member, gpu int) {
	s := &m.c.seats[gpu]
	if s.collect(m, gpu); len(s.users) == 1 {
		t.reportSeat(m.c, gpu)
	}
}

// reportSeat tells the scheduler what a container's processes have done on a GPU. The sum of their busy times
// may be more than the time that has passed: how far they overlap they cannot know.
func (t *Table) reportSeat(c *Container, gpu int) {
	s := &c.seats[gpu]
	passed := max(0, t.now-s.reported)
	s.reported = t.now
	s.collectSome(gpu)
	if s.isLate() { // all of this time is charged once its drain is over
		s.busy, s.done = 0, 0
		return
	}
	use := sched.Use{Busy: int64(min(s.busy, uint64(passed))), Work: int64(min(s.done, math.MaxInt32))}
	s.busy, s.done = 0, 0
	if use == (sched.Use{}) && !t.node.Wants(c.id) {
		return
	}
	c.idle = false
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

// look finds those that have become active, and GPUs that are not used any more.
func (t *Table) look() {
	for _, c := range t.containers {
		for _, m := range c.processes {
			for gpu := range m.places {
				if !m.places[gpu].active && m.active(gpu) {
					m.found(gpu)
				}
			}
		}
	}
	for i := 0; i < len(t.using); i++ {
		t.using[i].exclude()
		t.using[i].remember()
		t.using[i].tellThrottled()
	}
	t.weigh()
	t.carry(nil)
}
