package swaps

// What the policy decides, carried out.

import (
	"slices"

	"weir/agent/residency"
)

// flight is a move that has been decided and is to be answered yet.
type flight struct {
	member    *Member
	id        uint64 // of the allocation
	gpu       int
	out       bool
	fresh     bool
	bytes     int64
	at        int64
	unsent    bool // the process has not been told
	cancelled bool // it has been told, or is to be, that the move is not to begin after all
}

// carry carries out decisions, and those that follow from them, in their order.
func (t *Table) carry(decisions []residency.Decision) {
	t.decisions = append(t.decisions, decisions...)
	if t.carrying {
		return
	}
	t.carrying = true
	for i := 0; i < len(t.decisions); i++ {
		t.decide(t.decisions[i])
	}
	t.decisions, t.carrying = t.decisions[:0], false
}

func (t *Table) decide(d residency.Decision) {
	c := t.flows[d.Flow]
	switch d.Kind {
	case residency.In, residency.Out:
		t.begin(d)
	case residency.Cancel:
		t.cancel(d)
	case residency.Ready:
		if c != nil {
			c.flows[d.GPU].ready = true
			c.open(d.GPU)
		}
	case residency.Admit:
		t.admit(d)
	case residency.Apart, residency.Together:
		t.gpus[d.GPU].quantum = min(d.Quantum, quantumMax)
		t.turns.Apart(t.now, d.GPU, t.gpus[d.GPU].quantum)
	case residency.Over:
		if c != nil {
			c.tell(EventOver, d.GPU, d.Bytes)
		}
	case residency.Drained:
		if c != nil {
			c.tell(EventDrained, d.GPU, 0)
		}
	}
}

// begin has a process move a piece. One that cannot be told, or does not answer, moves nothing.
func (t *Table) begin(d residency.Decision) {
	t.lastMove = max(t.lastMove, d.Move)
	m, a := t.members[d.Session], t.allocs[d.Alloc]
	if m == nil || a.member != m || m.process == nil || m.silent() {
		if m == nil || m.process == nil || m.silent() { // else the allocation is just being freed
			t.carry(t.node.Rest(t.now, d.Session, residency.Never))
		}
		t.carry(t.node.Moved(t.now, d.Move, residency.Failed))
		return
	}
	t.flights[d.Move] = &flight{member: m, id: a.id, gpu: d.GPU, out: d.Kind == residency.Out, fresh: d.Fresh, bytes: d.Bytes,
		at: t.now, unsent: true}
	m.queue(d.GPU, Entry{Move: d.Move, ID: a.id, Offset: d.Offset, Bytes: d.Bytes, Out: d.Kind == residency.Out,
		Fresh: d.Fresh})
}

func (t *Table) cancel(d residency.Decision) {
	f := t.flights[d.Move]
	switch {
	case f == nil: // it has failed, or is of memory that is gone
	case f.unsent:
		f.member.unqueue(f.gpu, d.Move)
		delete(t.flights, d.Move)
		t.carry(t.node.Moved(t.now, d.Move, residency.Undone))
	default:
		f.cancelled = true
		f.member.c.flows[f.gpu].cancels.Asked++
		f.member.queue(f.gpu, Entry{Move: d.Move, Cancel: true})
	}
}

func (m *Member) queue(gpu int, e Entry) {
	m.unsent[gpu] = append(m.unsent[gpu], e)
	if t := m.c.table; !m.queued {
		m.queued = true
		t.outbox = append(t.outbox, m)
	}
}

// unqueue drops what the process was to be told of a move.
func (m *Member) unqueue(gpu int, move uint64) {
	m.unsent[gpu] = slices.DeleteFunc(m.unsent[gpu], func(e Entry) bool { return e.Move == move })
}

// forget drops the moves of an allocation that is gone: what the process has been told of them it may answer, and need
// not.
func (m *Member) forget(id uint64) {
	t := m.c.table
	for move, f := range t.flights {
		if f.member != m || f.id != id {
			continue
		}
		if delete(t.flights, move); f.unsent {
			m.unqueue(f.gpu, move)
		}
	}
	if m.silent() {
		m.forgetLate(id)
	}
}

// send tells processes of what they are to move, as far as there is room.
func (t *Table) send() {
	t.sendAt = Never
	left := t.outbox[:0]
	for _, m := range t.outbox {
		if t.now >= m.sendAt && !m.send() {
			if m.sendAt = t.now + sendAgain; m.silent() {
				m.sendAt = t.now + lookEvery
			}
		}
		if m.queued = t.now < m.sendAt; m.queued {
			left = append(left, m)
			t.sendAt = min(t.sendAt, m.sendAt)
		}
	}
	clear(t.outbox[len(left):])
	t.outbox = left
	if len(t.flights) > 0 {
		t.lookAt = min(t.lookAt, t.now+lookEvery)
	}
}

// send tells one process, and whether it could be told of all.
func (m *Member) send() bool {
	t := m.c.table
	for gpu, entries := range m.unsent {
		for len(entries) > 0 && m.process != nil {
			part := entries[:min(len(entries), EntriesMax)]
			if !m.process.Move(gpu, part) {
				m.unsent[gpu] = entries
				return false
			}
			for _, e := range part {
				if f := t.flights[e.Move]; f != nil {
					f.unsent = false
				}
			}
			entries = entries[len(part):]
		}
		m.unsent[gpu] = nil
	}
	return true
}

// land ends all moves of a process that does not answer any more.
func (m *Member) land() {
	t := m.c.table
	t.carry(t.node.Rest(t.now, m.session, residency.Never))
	for _, move := range t.moves(m) {
		delete(t.flights, move)
		t.carry(t.node.Moved(t.now, move, residency.Failed))
	}
	clear(m.late)
	clear(m.unsent)
}

// moves are the numbers of those that m has not answered, or all have not (nil), in order.
func (t *Table) moves(m *Member) (list []uint64) {
	for move, f := range t.flights {
		if m == nil || f.member == m {
			list = append(list, move)
		}
	}
	slices.Sort(list)
	return list
}
