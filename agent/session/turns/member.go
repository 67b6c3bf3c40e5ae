package turns

// A process of a container: whether it uses a GPU, what it waits for, what it has done.

import (
	"slices"

	"weir/agent/session/page"
)

// Member is one process at the table.
type Member struct {
	c       *Container
	process Process
	pid     int
	program string
	places  []place
	gone    bool
}

// place is a process on one GPU.
type place struct {
	active  bool // it has used the GPU since it last said that it does not
	wants   bool // and has said that a thread waits at the gate
	drained bool // of the lease that is to end all is done
	looking bool // it is still to be told to look
	waiting uint32

	// What it has said, and when that last changed. The first words are where counting begins: a
	// process counts from its own beginning, whoever the agent was.
	known   bool
	words   page.Worked
	changed int64
	lied    bool
}

// Join adds a process.
func (c *Container) Join(now int64, p Process, pid int, program string) *Member {
	t := c.table
	t.advance(now)
	m := &Member{c: c, process: p, pid: pid, program: program, places: make([]place, len(t.gpus))}
	c.processes = append(c.processes, m)
	if t.processes++; t.processes == 1 {
		t.lookAt = t.now + lookEvery
	}
	return m
}

// Leave takes a process away: it has ended, or cannot be heard of. Its words are not read afterwards.
func (m *Member) Leave(now int64, ended bool) {
	c, t := m.c, m.c.table
	if m.gone {
		return
	}
	t.advance(now)
	if ended {
		c.tellGone(m)
	}
	t.drop(m)
	t.carry(nil)
}

func (t *Table) drop(m *Member) {
	c := m.c
	m.gone = true
	for gpu := range m.places {
		if m.places[gpu].active {
			t.reportSeat(c, gpu)
			m.rest(gpu)
		}
	}
	c.processes = slices.DeleteFunc(c.processes, func(other *Member) bool { return other == m })
	t.processes--
	c.change()
}

// use: the process uses the GPU from now on.
func (m *Member) use(gpu int) {
	p, s, t := &m.places[gpu], &m.c.seats[gpu], m.c.table
	s.usedAt = t.now
	if p.active {
		return
	}
	p.active, p.drained = true, false
	if s.active++; s.active == 1 {
		s.reported = t.now
	}
	if t.active++; t.active == 1 {
		t.reportAt = t.now + reportEvery
	}
	m.c.include(gpu)
}

// rest: it does not any more.
func (m *Member) rest(gpu int) {
	p, s := &m.places[gpu], &m.c.seats[gpu]
	if !p.active {
		return
	}
	p.active, p.wants, p.drained, p.waiting = false, false, false, 0
	s.active--
	s.usedAt = m.c.table.now
	m.c.table.active--
	m.c.change()
}

// look tells the process to look, now or with the next report.
func (m *Member) look(gpu int) {
	m.places[gpu].looking = !m.process.Look(gpu, m.c.seats[gpu].current())
}

// change has the container judged anew once all decisions have been carried out.
func (c *Container) change() {
	if !c.changed && !c.gone {
		c.changed = true
		c.table.changed = append(c.table.changed, c)
	}
}
