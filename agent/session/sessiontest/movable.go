package sessiontest

// A tenant's movable memory.

import (
	"errors"
	"fmt"
	"sync/atomic"

	"weir/cgo/abi"
)

// Errors of AllocMovable.
var (
	ErrOverSwap = errors.New("refused: over cap and swap")
	ErrHostFull = errors.New("refused: the host is full")
)

// movable is one allocation of movable memory.
type movable struct {
	gpu   int
	bytes uint64
	away  uint64 // of it, on the host, as it is declared
}

// RequestMovable is a REQUEST for movable memory; again: it is declared anew, all of it on the card.
func RequestMovable(seq, gpu uint32, n, id uint64, again bool) []byte {
	m := &abi.Request{Gpu: gpu, Kind: abi.KindMovable, Bytes: n, Id: id}
	if again {
		m.Flags, m.Here_bytes = abi.RequestAgain, n
	}
	return Packet(abi.MsgRequest, seq, m)
}

// Freed is a FREED of some allocations.
func Freed(gpu uint32, ids ...uint64) []byte {
	m := &abi.Named{Gpu: gpu, Count: uint32(len(ids))}
	copy(m.Ids[:], ids)
	return Packet(abi.MsgFreed, 0, m)
}

// AllocMovable allocates n bytes of movable memory on a GPU, under a number that was not used before. It is asked for
// once.
func (t *Tenant) AllocMovable(gpu int, n, id uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		if err := t.hello(); err != nil {
			return err
		}
	}
	t.seq++
	var v abi.Verdict
	err := t.roundTrip(RequestMovable(t.seq, uint32(gpu), n, id, false), abi.MsgVerdict, &v)
	switch {
	case err != nil:
		return err
	case v.Verdict == abi.OverSwap:
		return ErrOverSwap
	case v.Verdict == abi.HostFull:
		return ErrHostFull
	case v.Verdict != abi.Granted || v.Granted_bytes != n:
		return fmt.Errorf("verdict %d of %d bytes", v.Verdict, v.Granted_bytes)
	}
	if t.movables == nil {
		t.movables = make(map[uint64]movable)
	}
	t.movables[id] = movable{gpu: gpu, bytes: n}
	return nil
}

// FreeMovable frees one.
func (t *Tenant) FreeMovable(gpu int, id uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.movables, id)
	if t.conn == nil {
		return nil // the next connection's declaration leaves it out
	}
	return t.conn.Send(Freed(uint32(gpu), id))
}

// LoseMovable has the next declaration leave one out.
func (t *Tenant) LoseMovable(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.movables, id)
}

// GrowMovable has the next declaration say that one is larger than it was granted.
func (t *Tenant) GrowMovable(id, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.movables[id]
	m.bytes += n
	t.movables[id] = m
}

// AwayMovable has the next declaration say that so much of one lies on the host.
func (t *Tenant) AwayMovable(id, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.movables[id]
	m.away = n
	t.movables[id] = m
}

// declareMovable says what there is to a new connection.
func (t *Tenant) declareMovable() error {
	for id, m := range t.movables {
		request := &abi.Request{Gpu: uint32(m.gpu), Kind: abi.KindMovable, Bytes: m.bytes, Id: id, Flags: abi.RequestAgain,
			Here_bytes: m.bytes - m.away}
		if err := t.conn.Send(Packet(abi.MsgRequest, 1, request)); err != nil {
			return err
		}
	}
	return nil
}

// Swap is what the control page says of a GPU: what there may be beyond the cap, what movable memory there is, and
// whether reports are to show cap and swap together.
func (t *Tenant) Swap(gpu int) (swap, movable uint64, virtual bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := &t.control.Gpus[gpu]
	return atomic.LoadUint64(&g.Swap_bytes), atomic.LoadUint64(&g.Movable_bytes),
		atomic.LoadUint32(&g.Flags)&abi.GPUVirtual != 0
}

// onMovable does what Main is told of movable memory.
func (t *Tenant) onMovable(command string, numbers [3]uint64) error {
	switch command {
	case "movable":
		return t.AllocMovable(int(numbers[0]), numbers[1], numbers[2])
	case "freed":
		return t.FreeMovable(int(numbers[0]), numbers[1])
	case "lose":
		t.LoseMovable(numbers[0])
	case "grow":
		t.GrowMovable(numbers[0], numbers[1])
	case "away":
		t.AwayMovable(numbers[0], numbers[1])
	}
	return nil
}

// keepMoves notes what a MOVE asks for; other messages are none of it.
func (t *Tenant) keepMoves(packet []byte) error {
	if Type(packet) != abi.MsgMove {
		return nil
	}
	var m abi.Move
	if err := Decode(packet, &m); err != nil {
		return err
	}
	if t.moves == nil {
		t.moves = make(map[uint64]abi.MoveEntry)
	}
	for i, e := range m.Entries {
		_, known := t.moves[e.Move]
		p, has := t.movables[e.Id]
		switch {
		case uint32(i) >= m.Count && e != abi.MoveEntry{}:
			return fmt.Errorf("entry %d of %d is in use: %+v", i, m.Count, e)
		case uint32(i) >= m.Count:
		case e.Flags == abi.MoveCancel:
			// it is answered all the same
		case known || has && (p.gpu != int(m.Gpu) || e.Offset+e.Bytes > p.bytes): // else it was freed meanwhile
			return fmt.Errorf("a move that makes no sense: %+v of %+v", e, p)
		default:
			t.moves[e.Move] = e
		}
	}
	return nil
}

// AnswerMoves says that all moves that it was told of on a GPU are done, or with result 0 nothing, and returns how many
// bytes these are, to the card and from it. No question may be under way.
func (t *Tenant) AnswerMoves(gpu int, result uint32) (in, out uint64, err error) {
	if _, _, err := t.Looks(); err != nil {
		return 0, 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for move, e := range t.moves {
		if e.Flags&abi.MoveOut != 0 {
			out += e.Bytes
		} else {
			in += e.Bytes
		}
		if result == 0 {
			continue
		}
		delete(t.moves, move)
		if err := t.SayMoved(gpu, move, result, uint32(e.Bytes/16)); err != nil {
			return in, out, err
		}
	}
	return in, out, nil
}

// SayMoved says what has become of one move.
func (t *Tenant) SayMoved(gpu int, move uint64, result, ns uint32) error {
	m := &abi.Moved{Gpu: uint32(gpu), Count: 1}
	m.Entries[0] = abi.MovedEntry{Move: move, Result: result, Ns: ns}
	return t.conn.Send(Packet(abi.MsgMoved, 0, m))
}

// Use says that kernels use movable memory; without any, that it is not known which.
func (t *Tenant) Use(gpu int, ids ...uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := &abi.Named{Gpu: uint32(gpu), Count: uint32(len(ids))}
	copy(m.Ids[:], ids)
	return t.conn.Send(Packet(abi.MsgUsed, 0, m))
}
