package turns

// Gaps in a program's work. Where memory has to move, a lease that ends at a gap of some milliseconds costs as much as one
// that ends with its quantum: the memory of two containers changes places, and again. So a process that says that it has
// nothing to do is believed a little later there, and keeps the lease meanwhile. It is a small part of the time that moving
// takes between two leases anyway.

// lingerPart: so small a part of the quantum a gap may be. Moving takes 25 times as long, at 5 %. No gap is ended before words
// are read again: where that would be too late, all end at once.
const lingerPart = 512

// linger is how long a process that holds a lease is to have had nothing to do until that ends, in ns; 0: it ends at once.
func (c *Container) linger(gpu int) int64 {
	ns := c.table.gpus[gpu].quantum / lingerPart
	if !c.movable || c.seats[gpu].state != seatLeased || ns < reportEvery {
		return 0
	}
	return ns
}

// endGaps goes through the processes that have said that they have nothing to do, and keep their lease: who has something by
// now is to look, and who has not for long enough rests.
func (c *Container) endGaps(gpu int) {
	s, t := &c.seats[gpu], c.table
	for i := len(s.users) - 1; i >= 0 && s.gaps; i-- {
		m := s.users[i]
		p := &m.places[gpu]
		switch {
		case p.gapUntil == 0:
		case m.absent:
			p.gapUntil = 0
		case m.active(gpu):
			p.gapUntil = 0
			m.look(gpu)
		case t.now >= p.gapUntil || s.state != seatLeased:
			p.gapUntil = 0
			t.told(m, gpu)
			m.rest(gpu)
		}
	}
	s.gaps = false
	for _, m := range s.users {
		s.gaps = s.gaps || m.places[gpu].gapUntil != 0
	}
}
