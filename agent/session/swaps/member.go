package swaps

// A process with the library: its movable memory, what it says of it, and what it is to move.

import (
	"fmt"

	"weir/agent/residency"
)

// Entry is one move, or a move that is not to begin after all.
type Entry struct {
	Move   uint64
	ID     uint64 // of the allocation, as the process calls it
	Offset int64
	Bytes  int64
	Out    bool
	Fresh  bool
	Cancel bool // of Move; all else is zero
}

// EntriesMax is how many entries a message has at most.
const EntriesMax = 32

// Answer is what has become of a move.
type Answer struct {
	Move   uint64
	Result residency.Result
	Took   int64 // the driver's time for it, ns
}

// Process is one process with the library.
type Process interface {
	// Move tells it of moves on a GPU, EntriesMax at most, and whether it could be told: no waiting.
	Move(gpu int, entries []Entry) bool
}

// Member is one process at the table.
type Member struct {
	c       *Container
	process Process // nil once its connection is lost
	session residency.Session
	allocs  map[uint64]residency.AllocID
	unsent  [][]Entry           // by GPU
	queued  bool                // in the table's outbox
	sendAt  int64               // it had no room for a message, and is told again then
	late    map[uint64]struct{} // moves that it has not answered in time, and still is to
	strikes int                 // how often it was late
	good    int                 // moves answered in time since
	gone    bool
}

// Join adds a process.
func (c *Container) Join(now int64, p Process) *Member {
	t := c.table
	t.advance(now)
	t.session++
	m := &Member{c: c, process: p, session: t.session, allocs: make(map[uint64]residency.AllocID),
		late: make(map[uint64]struct{}), unsent: make([][]Entry, len(t.gpus))}
	t.members[m.session] = m
	c.members = append(c.members, m)
	return m
}

// Absent: the connection is lost, and the process lives: its memory stays where it is.
func (m *Member) Absent(now int64) {
	t := m.c.table
	if m.gone || m.process == nil {
		return
	}
	t.advance(now)
	m.process = nil
	m.land()
	t.settle()
}

// Leave takes a process away that has ended, or has come back as another member, with all of its movable memory.
func (m *Member) Leave(now int64) {
	t := m.c.table
	if m.gone {
		return
	}
	t.advance(now)
	m.drop()
	t.settle()
}

func (m *Member) drop() {
	t := m.c.table
	m.gone, m.process = true, nil
	for move, f := range t.flights {
		if f.member == m {
			delete(t.flights, move)
		}
	}
	for _, id := range m.allocs {
		delete(t.allocs, id)
	}
	m.allocs = nil
	delete(t.members, m.session)
	m.c.members = without(m.c.members, m)
	t.carry(t.node.Ended(t.now, m.session))
}

// Allocate: the process is to have movable memory. An error that is a *residency.Refusal names the limit; any other is
// a breach of the protocol.
func (m *Member) Allocate(now int64, gpu int, id uint64, bytes int64) error {
	return m.allocate(now, gpu, id, func(t *Table, number residency.AllocID) ([]residency.Decision, error) {
		return t.node.Allocate(t.now, m.c.id, gpu, number, m.session, bytes)
	})
}

// Declare: the process has had this movable memory since before this connection, so much of it on the card.
func (m *Member) Declare(now int64, gpu int, id uint64, bytes, here int64) error {
	return m.allocate(now, gpu, id, func(t *Table, number residency.AllocID) ([]residency.Decision, error) {
		return t.node.Declare(t.now, m.c.id, gpu, number, m.session, bytes, here)
	})
}

func (m *Member) allocate(now int64, gpu int, id uint64,
	add func(*Table, residency.AllocID) ([]residency.Decision, error)) error {
	t := m.c.table
	if m.gone {
		return nil
	}
	if _, there := m.allocs[id]; there || gpu < 0 || gpu >= len(t.gpus) {
		return fmt.Errorf("movable memory with the number %d on GPU %d, which is there or cannot be", id, gpu)
	}
	t.advance(now)
	number := t.lastAlloc + 1
	// Known before the policy has it moved.
	m.allocs[id], t.allocs[number] = number, named{m, id}
	decisions, err := add(t, number)
	if err != nil {
		delete(m.allocs, id)
		delete(t.allocs, number)
		return err
	}
	t.lastAlloc = number
	t.carry(decisions)
	t.settle()
	return nil
}

// Freed: these are gone.
func (m *Member) Freed(now int64, ids ...uint64) error {
	t := m.c.table
	if m.gone {
		return nil
	}
	t.advance(now)
	var numbers []residency.AllocID
	var wrong error
	for _, id := range ids {
		number, there := m.allocs[id]
		if !there {
			wrong = fmt.Errorf("movable memory with the number %d is freed, which is not there", id)
			break
		}
		delete(m.allocs, id)
		delete(t.allocs, number)
		m.forget(id)
		numbers = append(numbers, number)
	}
	t.carry(t.node.Free(t.now, numbers...))
	t.settle()
	return wrong
}

// Used: kernels use these; without any it is not known which. One that was freed since is no more.
func (m *Member) Used(now int64, gpu int, ids ...uint64) {
	t := m.c.table
	if m.gone || gpu >= len(t.gpus) {
		return
	}
	t.advance(now)
	if len(ids) == 0 {
		t.carry(t.node.UsedAll(t.now, m.c.id, gpu))
	} else {
		var numbers []residency.AllocID
		for _, id := range ids {
			if number, there := m.allocs[id]; there {
				numbers = append(numbers, number)
			}
		}
		t.carry(t.node.Used(t.now, numbers...))
	}
	t.settle()
}

// Moved takes what has become of moves.
func (m *Member) Moved(now int64, answers ...Answer) error {
	t := m.c.table
	if m.gone {
		return nil
	}
	t.advance(now)
	for _, a := range answers {
		f := t.flights[a.Move]
		if _, late := m.late[a.Move]; late {
			if delete(m.late, a.Move); !m.silent() {
				m.answered()
			}
			continue // it counts as failed
		}
		if f == nil && a.Move <= t.lastMove {
			continue // it is of memory or of a connection that is gone
		}
		if f == nil || f.member != m || f.unsent {
			return fmt.Errorf("an answer to move %d, which the process has not been told of", a.Move)
		}
		delete(t.flights, a.Move)
		m.inTime()
		if f.cancelled && a.Result == residency.Undone {
			m.c.flows[f.gpu].cancels.Undone++
		}
		if a.Result == residency.Done && !f.fresh {
			t.sample(f, a.Took)
		}
		t.carry(t.node.Moved(t.now, a.Move, a.Result))
		m.c.tellResident(f.gpu)
	}
	t.settle()
	return nil
}
