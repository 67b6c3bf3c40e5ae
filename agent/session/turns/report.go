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
	t, some := c.table, false
	if !slices.ContainsFunc(c.gpus, func(gpu int) bool { return c.seats[gpu].state == seatDraining }) {
		return
	}
	for _, gpu := range c.gpus {
		for _, m := range c.processes {
			p := &m.places[gpu]
			some = some || p.wants || p.waiting > 0 || p.active && !m.absent && m.process.Worked(gpu).Waiting > 0
		}
	}
	if some != c.waiters {
		c.waiters = some
		t.carry(t.node.Waiters(t.now, c.id, some))
	}
}

// looksMax bounds how many processes of a container are told to look at once: each takes a system call
// that all containers wait for. Those that are at work look by themselves every few ms.
const looksMax = 64

func (t *Table) lookAgain(c *Container, gpu int) {
	left := looksMax
	for _, m := range c.processes {
		if p := &m.places[gpu]; p.looking && left > 0 {
			left--
			m.look(gpu)
		}
	}
}

// reportSeat tells the scheduler what a container's processes have done on a GPU. The sum of their busy times
// may be more than the time that has passed: how far they overlap they cannot know.
func (t *Table) reportSeat(c *Container, gpu int) {
	s := &c.seats[gpu]
	passed := t.now - s.reported
	s.reported = t.now
	var busy, work uint64
	for _, m := range c.processes {
		if m.places[gpu].active && !m.absent {
			d := m.words(gpu, passed)
			busy += d.busy
			work += d.work
		}
	}
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
		if m.places[gpu].active && !m.absent {
			m.words(gpu, 0)
			m.places[gpu].said.carry, m.places[gpu].said.held = 0, 0
		}
	}
	c.seats[gpu].reported = t.now
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
	t.carry(nil)
}
