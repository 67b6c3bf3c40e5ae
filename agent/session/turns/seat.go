package turns

// A container's seat on one GPU: what its word in the control page says, and why.

import (
	"weir/agent/session/page"
	"weir/cgo/abi"
)

// seatState says what a seat's gate does, and which messages mean something.
type seatState uint8

const (
	seatOpen     seatState = iota // no lease is needed
	seatClosed                    // a lease is needed, and there is none
	seatEntering                  // there is a lease, and the gate is closed until the container's memory is in place
	seatLeased                    // the gate is open on a lease
	seatDraining                  // the lease is to end
	seatReopened                  // its drain has stood still, so the gate is open once more
	seatLate                      // the drain has taken too long; the slot is others' by now
	seatLateOpen                  // and stands still, so the gate is open for a moment
	seatCoRun                     // the container runs beside the leases of the others
)

// leaseMax is the highest number of a lease that there is room for in a word.
const leaseMax = 1<<31 - 1

// seat is what a container has on one GPU.
type seat struct {
	state  seatState
	number uint32 // of the lease, or of the time since its drain; only the closed and the leased show it
	lease  uint64 // as the scheduler calls it; 0: none
	crowd
	patience
	usedAt   int64 // when one last did
	reported int64 // when their words were last read
	turn     page.Turn

	drainFrom     int64            // of the revocation
	closedAt      int64            // when it was closed under its number
	waived        bool             // launches have gone through since
	residual      bool             // what was submitted before the gate closed is not known to be done
	residualFrom  int64            // since when
	gaps          bool             // some of its users have nothing to do, and keep the lease for a moment
	inPlace       bool             // while entering: the container's memory is
	beside        bool             // it is counted among those whose work may run beside others' leases
	throttledFrom int64            // 0: it is not
	stalledAt     int64            // when a drain last stood still; 0: never
	told          map[string]int64 // when an event of a kind was last written
	got           int64            // of the slot time that it has had, what is in the history
	history       history
}

// open tells whether launches pass.
func (s *seat) open() bool { return s.turn.Open() }

// holds: the seat has a lease that still has its slot.
func (s *seat) holds() bool {
	return s.state == seatEntering || s.state == seatLeased || s.state == seatDraining || s.state == seatReopened
}

// isLate: the seat's lease has no slot any more, and its drain goes on.
func (s *seat) isLate() bool { return s.state == seatLate || s.state == seatLateOpen }

// word is the seat's lease as the page has it.
func (s *seat) word() uint32 {
	switch s.state {
	case seatOpen, seatCoRun:
		return 0
	case seatLeased, seatReopened, seatLateOpen:
		return s.number << 1
	}
	return s.number<<1 | abi.LeaseClosed
}

// current is the number that messages of now name.
func (s *seat) current() uint32 { return s.word() >> 1 }

// next begins a new number.
func (s *seat) next() { s.number = s.number%leaseMax + 1 }

// turnTo changes a seat's state. A new number comes with each grant whose gate opens and each end of a drain, and
// where a gate closes that was open to all.
func (c *Container) turnTo(gpu int, state seatState) {
	s := &c.seats[gpu]
	switch {
	case state == seatLate && s.state == seatLateOpen: // as before
	case state == seatLeased, state == seatClosed, state == seatLate, state == seatDraining && s.state == seatEntering:
		s.next()
		s.closedAt, s.waived = c.table.now, false
	}
	if s.state = state; state == seatOpen || state == seatClosed || state == seatCoRun {
		s.lease = 0
	}
	c.stir()
	c.countBeside(gpu)
	c.show(gpu, false)
}

// runsBeside tells whether the seat's work may run beside others' leases. What is left from before the gate closed counts
// for as long as a drain may take: a process that is stopped does not tell of its end.
func (c *Container) runsBeside(gpu int) bool {
	s, t := &c.seats[gpu], c.table
	left := s.residual && t.now < s.residualFrom+t.config.DrainTimeout
	return len(s.users) > 0 && (left || s.waived || s.isLate() || s.state == seatCoRun)
}

// countBeside keeps the count of such seats, and tells the holders of leases where there are any from now on, or none
// any more.
func (c *Container) countBeside(gpu int) {
	s, t := &c.seats[gpu], c.table
	g := &t.gpus[gpu]
	is, was := c.runsBeside(gpu), g.beside
	if is == s.beside {
		return
	}
	c.stir()
	s.beside = is
	if count(&g.beside, is); min(g.beside, was) > 1 {
		return // a holder's own is one of them at most
	}
	for _, other := range t.using {
		if other.seats[gpu].holds() {
			other.show(gpu, false)
		}
	}
}

// isBeside tells whether others' work may run beside the seat's lease.
func (c *Container) isBeside(gpu int) bool {
	s, others := &c.seats[gpu], c.table.gpus[gpu].beside
	if s.beside {
		others--
	}
	return s.holds() && others > 0
}

// show brings the control page up to date.
func (c *Container) show(gpu int, always bool) {
	s, g, t := &c.seats[gpu], &c.table.gpus[gpu], c.table
	turn := page.Turn{Lease: s.word(), WaitMax: milliseconds(c.waitMax(gpu)), Rivals: g.rivals}
	if turn.Beside = c.isBeside(gpu); g.rivals {
		turn.Window = microseconds(t.window(gpu))
	}
	if turn != s.turn || always {
		s.turn = turn
		c.page.SetTurn(gpu, turn)
	}
}
