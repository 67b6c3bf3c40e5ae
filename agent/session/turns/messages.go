package turns

// What processes say.

// Message is what WANT, DRAINED, PROGRESS and IDLE have in common: a GPU of the node, by its place, the
// number of the lease that the sender saw, and how many of its threads wait.
type Message struct {
	GPU     int
	Lease   uint32
	Waiting uint32
}

// Want: a thread waits at the gate. The number does not matter: whoever waits at a closed gate is to get a
// lease, and one too many comes back soon.
func (m *Member) Want(now int64, w Message) {
	c, t := m.c, m.c.table
	if m.gone || w.GPU >= len(c.seats) {
		return
	}
	t.advance(now)
	m.use(w.GPU)
	if !c.seats[w.GPU].open() {
		c.seats[w.GPU].setWaiting(&m.places[w.GPU], true)
		if !c.seats[w.GPU].holds() {
			c.want()
		}
		if c.seats[w.GPU].state == seatLate { // a sign of life
			c.waiters = true
			t.carry(t.node.Waiters(t.now, c.id, true))
		}
	}
	t.carry(nil)
}

// Drained: of a lease that is to end, all is done.
func (m *Member) Drained(now int64, w Message) {
	c, t := m.c, m.c.table
	if m.gone || !m.current(now, w) {
		return
	}
	s, p := &c.seats[w.GPU], &m.places[w.GPU]
	if !p.active || s.state != seatDraining && s.state != seatLate && !s.residual {
		return
	}
	s.setDrained(p, true)
	if w.Waiting > 0 {
		s.setWaiting(p, true)
	}
	c.change()
	t.carry(nil)
}

// Progress: of a lease that is to end, something is done.
func (m *Member) Progress(now int64, w Message) {
	c, t := m.c, m.c.table
	if m.gone || !m.current(now, w) {
		return
	}
	s := &c.seats[w.GPU]
	if m.places[w.GPU].active && (s.state == seatDraining || s.state == seatReopened || s.isLate()) {
		s.setWaiting(&m.places[w.GPU], w.Waiting > 0)
		c.tellWaiters()
		if !m.goesOn() {
			t.carry(t.node.Progress(t.now, c.id))
		}
	}
}

// goesOn tells whether gates have opened again in a drain for which this process was not waited for on any GPU: what it
// does now is new, and says nothing of what the drain waits for.
func (m *Member) goesOn() bool {
	opened := false
	for gpu := range m.places {
		p, s := &m.places[gpu], &m.c.seats[gpu]
		if !p.active || s.state != seatReopened && s.state != seatLateOpen {
			continue
		}
		if opened = true; !s.hadDrained(p) {
			return false
		}
	}
	return opened
}

// Idle: the process has nothing submitted on the GPU, and none of its threads waits.
func (m *Member) Idle(now int64, w Message) {
	t := m.c.table
	if m.gone || !m.current(now, w) || !m.places[w.GPU].active {
		return
	}
	if m.active(w.GPU) { // again, by now
		m.look(w.GPU)
		return
	}
	if gap := m.c.linger(w.GPU); gap > 0 {
		if p := &m.places[w.GPU]; p.gapUntil == 0 { // said again, it lasts no longer
			p.gapUntil = t.now + gap
		}
		m.c.seats[w.GPU].gaps = true
		return
	}
	t.told(m, w.GPU)
	m.rest(w.GPU)
	t.carry(nil)
}

// current tells whether a message is of the seat's lease. A process that is out of date is to look again, and
// says it again if it still is so: else it would be waited for in vain.
func (m *Member) current(now int64, w Message) bool {
	if w.GPU >= len(m.places) {
		return false
	}
	m.c.table.advance(now)
	if w.Lease == m.c.seats[w.GPU].current() {
		return true
	}
	// With the next report: who sends such messages again and again is not to keep the agent busy.
	p := &m.places[w.GPU]
	m.c.seats[w.GPU].setLooking(p, p.active)
	return false
}

// found: the process says in its page that it uses the GPU.
func (m *Member) found(gpu int) {
	m.use(gpu)
	m.look(gpu)
	if m.c.seats[gpu].open() {
		m.c.want()
	}
}
