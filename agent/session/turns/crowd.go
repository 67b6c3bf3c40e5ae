package turns

// Containers of many processes. Whatever one of these says is to cost all others the same, however many there are:
// what is true of all is counted, what is cleared of all is cleared by a new epoch, and what has to be
// read of all is read of some at a time.

// readsMax bounds how many processes' words are read at once of a container on one GPU.
const readsMax = 128

// looksMax bounds how many processes of a container are told to look at once: each takes a system call
// that all containers wait for. Those that are at work look by themselves every few ms.
const looksMax = 64

// crowd is what a seat knows of the processes that use its GPU.
type crowd struct {
	users   []*Member
	drained int // of them: of the lease that is to end, all is done
	waiting int // of them: threads wait at the gate
	looking int // of them: they are still to be told to look

	// A place's mark is good in its own epoch only: drains, waits at the gate, and what counts as work.
	drain, wait, work uint64
	opened            uint64 // the epoch of drains before the gate last opened again

	next       int    // whose words are read next
	busy, done uint64 // what was read and has not been told
}

// enter counts a process among the users.
func (s *crowd) enter(m *Member, p *place) {
	p.active, p.at = true, len(s.users)
	p.drain, p.wait, p.work = 0, 0, s.work
	s.users = append(s.users, m)
}

// leave counts it no more.
func (s *crowd) leave(gpu int, p *place) {
	s.setDrained(p, false)
	s.setWaiting(p, false)
	s.setLooking(p, false)
	last := s.users[len(s.users)-1]
	s.users[p.at] = last
	last.places[gpu].at = p.at
	s.users[len(s.users)-1] = nil
	s.users = s.users[:len(s.users)-1]
	p.active = false
}

func (s *crowd) isDrained(p *place) bool { return p.active && p.drain == s.drain+1 }
func (s *crowd) isWaiting(p *place) bool { return p.active && p.wait == s.wait+1 }

func (s *crowd) setDrained(p *place, is bool) { mark(&p.drain, s.drain+1, &s.drained, is) }
func (s *crowd) setWaiting(p *place, is bool) { mark(&p.wait, s.wait+1, &s.waiting, is) }

func (s *crowd) setLooking(p *place, is bool) {
	if is != p.looking {
		p.looking = is
		count(&s.looking, is)
	}
}

// mark sets or takes away a mark of an epoch, and counts it.
func mark(at *uint64, epoch uint64, sum *int, is bool) {
	if was := *at == epoch; was != is {
		if *at = 0; is {
			*at = epoch
		}
		count(sum, is)
	}
}

func count(sum *int, up bool) {
	if up {
		*sum++
	} else {
		*sum--
	}
}

// noneDrained and noneWaiting take the marks of all away.
func (s *crowd) noneDrained() { s.drain, s.drained = s.drain+1, 0 }
func (s *crowd) noneWaiting() { s.wait, s.waiting = s.wait+1, 0 }

// reopen begins the time with the gate open in a drain: who had drained is remembered until it opens again.
func (s *crowd) reopen() {
	s.opened = s.drain
	s.noneDrained()
}

// hadDrained tells whether a process had nothing outstanding when the gate opened again.
func (s *crowd) hadDrained(p *place) bool { return p.drain == s.opened+1 }

// collect reads what a process has done on a GPU, and whether it waits there.
func (s *crowd) collect(m *Member, gpu int) {
	p := &m.places[gpu]
	if m.absent {
		return
	}
	d := m.words(gpu)
	if seat := &m.c.seats[gpu]; seat.state == seatClosed {
		s.setWaiting(p, s.isWaiting(p) || d.waits || d.ungated)
		seat.waived = seat.waived || d.ungated
	}
	if p.work != s.work { // what was done until now does not count
		p.work = s.work
		p.said.carry, p.said.held = 0, 0
		return
	}
	s.busy += d.busy
	s.done += d.work
}

// collectSome reads what some of all have done.
func (s *crowd) collectSome(gpu int) {
	for range min(len(s.users), readsMax) {
		if s.next >= len(s.users) {
			s.next = 0
		}
		s.collect(s.users[s.next], gpu)
		s.next++
	}
}

// skip leaves what was done until now out of what is told next.
func (s *crowd) skip(gpu int) {
	s.work++
	s.collectSome(gpu)
	s.busy, s.done = 0, 0
}

// anyWaits tells whether threads wait at the gate, as far as some of the processes say in their pages.
func (s *crowd) anyWaits(gpu int) bool {
	if s.waiting > 0 {
		return true
	}
	for _, m := range s.users[:min(len(s.users), looksMax)] {
		if !m.absent && m.process.Worked(gpu).Waiting > 0 {
			return true
		}
	}
	return false
}

// find makes those active that say in their pages that they are: between two looks, where that is soon done.
func (c *Container) find(gpu int, look bool) {
	if len(c.processes) > looksMax {
		return
	}
	for _, m := range c.processes {
		if !m.places[gpu].active && m.active(gpu) {
			if m.use(gpu); look {
				m.look(gpu)
			}
		}
	}
}
