package swaps

// Processes that are late: stopped, without the processor, or that answer as they like. One of which a move is late moves
// nothing until it has answered all that it was asked, and nobody waits for it: the policy has others' memory move instead,
// or kernels fetch what lacks. The more often it was late the sooner it is taken for late again, and the longer it is left
// alone once it has answered. So what others lose to it is bounded, and a process that had no processor for once loses
// little.

import "weir/agent/residency"

const (
	// lookEvery is how often moves are looked at that have not been answered; answerMax is how long that may take, half as
	// long for each time that the process was late, strikesMax times at most. A gate that opens without its memory has
	// moves of lateMin count as late.
	lookEvery  = 100 * ms
	answerMax  = 2000 * ms
	lateMin    = 100 * ms
	strikesMax = 10
	answerHalf = 4
	// goodMoves answered in time make up for having been late once.
	goodMoves = 64
	// aloneFirst is for how long a process moves nothing once it has answered, the second time, and twice as long each time.
	aloneFirst = 100 * ms
)

// silent: it has not answered in time, so it is asked for no more.
func (m *Member) silent() bool { return len(m.late) > 0 }

// patience is how long an answer may take.
func (m *Member) patience() int64 { return answerMax >> min(m.strikes, answerHalf) }

// look finds moves that have not been answered for too long.
func (t *Table) look() {
	t.lookAt = Never
	for _, move := range t.moves(nil) {
		f := t.flights[move]
		switch {
		case f == nil: // it has ended by what followed from another's
		case t.now-f.at < f.member.patience():
			t.lookAt = t.now + lookEvery
		default:
			f.member.giveUp(f)
		}
	}
}

// blame takes those for late for whom a gate has waited in vain.
func (t *Table) blame(gpu int) {
	for _, move := range t.moves(nil) {
		if f := t.flights[move]; f != nil && f.gpu == gpu && t.now-f.at >= lateMin {
			f.member.giveUp(f)
		}
	}
}

// giveUp: nobody waits for m any more, since it has not answered this move. All that it was asked counts as failed, and is
// cancelled, so that it does not do later what nobody expects then; it is still to answer.
func (m *Member) giveUp(f *flight) {
	t := m.c.table
	m.strikes, m.good = min(m.strikes+1, strikesMax), 0
	m.c.tellOf(m, EventSilent, f.gpu, f.bytes)
	t.carry(t.node.Rest(t.now, m.session, residency.Never))
	for _, move := range t.moves(m) {
		f := t.flights[move]
		if f == nil {
			continue
		}
		if m.late[move] = struct{}{}; !f.cancelled {
			m.queue(f.gpu, Entry{Move: move, Cancel: true})
		}
		delete(t.flights, move)
		t.carry(t.node.Moved(t.now, move, residency.Failed))
	}
	for gpu := range t.gpus {
		m.c.tellResident(gpu)
	}
}

// answered: one that was late has answered all.
func (m *Member) answered() {
	until, t := int64(0), m.c.table
	if m.strikes > 1 {
		until = t.now + aloneFirst<<(m.strikes-2)
	}
	t.carry(t.node.Rest(t.now, m.session, until))
}

// inTime: it has answered a move.
func (m *Member) inTime() {
	if m.good++; m.good >= goodMoves {
		m.strikes, m.good = max(0, m.strikes-1), 0
	}
}

// forgetLate drops late moves of an allocation that is gone, if the process was not told of them.
func (m *Member) forgetLate(id uint64) {
	for gpu := range m.unsent {
		for i := 0; i < len(m.unsent[gpu]); {
			e := m.unsent[gpu][i]
			if e.Cancel || e.ID != id {
				i++
				continue
			}
			m.unqueue(gpu, e.Move)
			delete(m.late, e.Move)
		}
	}
	if !m.silent() {
		m.answered()
	}
}
