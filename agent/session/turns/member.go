package turns

// A process of a container: whether it uses a GPU, what it waits for, what it has done.

import "slices"

// Member is one process at the table.
type Member struct {
	c       *Container
	process Process
	pid     int
	program string
	places  []place
	ready   bool // it may be told to look
	absent  bool // its connection is lost, and its words cannot be read
	gone    bool
}

// place is a process on one GPU. What it says of drains and waits is marked by the crowd's epochs.
type place struct {
	active            bool  // it has used the GPU since it last said that it does not
	looking           bool  // it is still to be told to look
	flying            bool  // once it is absent: it had something submitted that was not done
	at                int   // among the users
	gapUntil          int64 // it has said that it has nothing to do, which is believed then; 0: it has not
	drain, wait, work uint64

	said said
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

// Ready: the process has been welcomed, so it understands what it is told. Nothing is sent to it before.
func (m *Member) Ready(now int64) {
	m.c.table.advance(now)
	m.ready = true
	for gpu := range m.places {
		if m.places[gpu].looking && !m.gone {
			m.look(gpu)
		}
	}
}

// Leave takes a process away that has ended. Its words are not read afterwards.
func (m *Member) Leave(now int64) {
	c, t := m.c, m.c.table
	if m.gone {
		return
	}
	t.advance(now)
	c.tellGone(m)
	t.drop(m)
	t.carry(nil)
}

// Absent: the process lives, and cannot be heard of any more; its words are not read afterwards. What it had
// submitted may still run, and it launches as it likes: it counts as at work, so that nobody gains by
// closing a connection. Its container's turn ends when it comes back, ends, or has had the drain timeout.
func (m *Member) Absent(now int64) {
	if m.gone || m.absent {
		return
	}
	t := m.c.table
	t.advance(now)
	for gpu := range m.places {
		if p, s := &m.places[gpu], &m.c.seats[gpu]; p.active {
			s.collect(m, gpu)
			p.flying = m.flies(gpu)
			s.setWaiting(p, false)
			s.setLooking(p, false)
		} else if m.process.Active(gpu) {
			m.use(gpu)
		}
	}
	m.absent, m.process = true, nil
	t.carry(nil)
}

// flies tells whether the process has anything submitted that is not done, as far as it says.
func (m *Member) flies(gpu int) bool {
	if m.absent {
		return m.places[gpu].flying
	}
	w := m.process.Worked(gpu)
	return w.Submitted > w.Completed || w.Waiting > 0
}

// Succeed: the process has come back as m. Where it was at work it is taken to be still.
func (m *Member) Succeed(now int64, former *Member) {
	t := m.c.table
	if former.gone {
		return
	}
	t.advance(now)
	for gpu := range former.places {
		if former.places[gpu].active {
			m.use(gpu)
			m.look(gpu)
		}
	}
	t.drop(former)
	t.carry(nil)
}

func (t *Table) drop(m *Member) {
	c := m.c
	for gpu := range m.places {
		if m.places[gpu].active {
			t.told(m, gpu)
		}
	}
	m.gone, m.absent = true, true // so nothing that follows finds it active again
	for gpu := range m.places {
		m.rest(gpu)
	}
	c.processes = slices.DeleteFunc(c.processes, func(other *Member) bool { return other == m })
	t.processes--
	c.change()
}

// use: the process uses the GPU from now on.
func (m *Member) use(gpu int) {
	p, s, t := &m.places[gpu], &m.c.seats[gpu], m.c.table
	s.usedAt, p.gapUntil = t.now, 0
	if p.active {
		return
	}
	p.said.read = t.now
	if s.enter(m, p); len(s.users) == 1 {
		s.reported = t.now
	}
	m.c.work(1)
	m.c.stir()
	m.c.countBeside(gpu)
	m.c.include(gpu)
}

// rest: it does not any more.
func (m *Member) rest(gpu int) {
	p, s := &m.places[gpu], &m.c.seats[gpu]
	if !p.active {
		return
	}
	s.leave(gpu, p)
	p.gapUntil = 0
	m.c.countBeside(gpu)
	s.usedAt = m.c.table.now
	m.c.work(-1)
	m.c.change()
}

// work counts the places in use, and keeps the list of containers that have any.
func (c *Container) work(places int) {
	t := c.table
	was := c.active
	c.active += places
	switch {
	case was == 0:
		c.at = len(t.using)
		if t.using = append(t.using, c); len(t.using) == 1 {
			t.reportAt = t.now + reportEvery
		}
	case c.active == 0:
		c.remember()
		last := t.using[len(t.using)-1]
		t.using[c.at], last.at = last, c.at
		t.using = t.using[:len(t.using)-1]
	}
}

// look tells the process to look, now or, where there is no room for that, with the next report.
func (m *Member) look(gpu int) {
	sent := m.ready && !m.absent && m.process.Look(gpu, m.c.seats[gpu].current())
	m.c.seats[gpu].setLooking(&m.places[gpu], !sent && !m.absent)
}

// active tells whether the process says in its page that it uses a GPU.
func (m *Member) active(gpu int) bool { return !m.absent && m.process.Active(gpu) }

// change has the container judged anew once all decisions have been carried out.
func (c *Container) change() {
	c.stir()
	if !c.changed && !c.gone {
		c.changed = true
		c.table.changed = append(c.table.changed, c)
	}
}
