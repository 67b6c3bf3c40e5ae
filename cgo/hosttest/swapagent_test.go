// What the stand-in for the agent knows of movable memory.

package hosttest

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"weir/cgo/abi"
)

// movables is an agent's book of movable memory, in the session that its messages come from.
type movables struct {
	swap     uint64            // of the container on GPU 0
	sizes    map[uint64]uint64 // live ones by id
	highest  uint64
	declared []abi.Request
	moved    []abi.MovedEntry
	used     []uint64
	usedAll  int
	verdict  uint32 // to MOVABLE; 0: granted
	limit    uint64 // of all sizes; 0: none
}

func (a *agent) publishSwap() {
	at := pageGPUs
	atomic.StoreUint64(a.control.word64(at+unsafe.Offsetof(abi.GPUControl{}.Swap_bytes)), a.movable.swap)
	var sum uint64
	for _, bytes := range a.movable.sizes {
		sum += bytes
	}
	atomic.StoreUint64(a.control.word64(at+unsafe.Offsetof(abi.GPUControl{}.Movable_bytes)), sum)
}

// movableMessage handles what is about movable memory. Whether it was.
func (a *agent) movableMessage(s *session, header abi.Header, message []byte) (bool, error) {
	b := &a.movable
	switch header.Type {
	case abi.MsgRequest:
		request := decode[abi.Request](message)
		if request.Kind != abi.KindMovable {
			return false, nil
		}
		return true, a.movableRequest(s, request)
	case abi.MsgFreed:
		named := decode[abi.Named](message)
		for _, id := range named.Ids[:named.Count] {
			if b.sizes[id] == 0 {
				a.t.Errorf("FREED of %d, which is not there", id)
			}
			delete(b.sizes, id)
		}
		a.publishSwap()
	case abi.MsgUsed:
		named := decode[abi.Named](message)
		if named.Count == 0 {
			b.usedAll++
		}
		b.used = append(b.used, named.Ids[:named.Count]...)
	case abi.MsgMoved:
		moved := decode[abi.Moved](message)
		b.moved = append(b.moved, moved.Entries[:moved.Count]...)
	default:
		return false, nil
	}
	return true, nil
}

func (a *agent) movableRequest(s *session, request abi.Request) error {
	b := &a.movable
	if b.sizes == nil {
		b.sizes = map[uint64]uint64{}
	}
	if request.Id == 0 || request.Bytes%abi.MovableUnit != 0 {
		a.t.Errorf("request %+v", request)
	}
	if request.Flags == abi.RequestAgain {
		b.declared = append(b.declared, request)
		b.sizes[request.Id] = request.Bytes
		a.publishSwap()
		return nil
	}
	if request.Id <= b.highest && b.limit == 0 { // of several threads, not all come in order
		a.t.Errorf("id %d after %d", request.Id, b.highest)
	}
	b.highest = max(b.highest, request.Id)
	verdict := abi.Verdict{Header: abi.Header{Type: abi.MsgVerdict, Bytes: uint16(unsafe.Sizeof(abi.Verdict{})), Seq: request.Header.Seq},
		Verdict: abi.Granted, Gpu: request.Gpu, Granted_bytes: request.Bytes}
	sum := request.Bytes
	for _, bytes := range b.sizes {
		sum += bytes
	}
	switch {
	case b.verdict != 0:
		verdict.Verdict, verdict.Granted_bytes = b.verdict, 0
	case b.limit != 0 && sum > b.limit:
		verdict.Verdict, verdict.Granted_bytes = abi.OverSwap, 0
	default:
		b.sizes[request.Id] = request.Bytes
	}
	a.publishSwap()
	return a.send(s, verdict, nil)
}

// startSwap is an agent whose container may have so much beyond its cap, and a program over a driver with managed
// memory.
func startSwap(t *testing.T, b *build, swap uint64, how string) (*agent, *host) {
	a := newAgent(t, 10*mib)
	a.movable.swap = swap
	a.start()
	h := startHost(t, b, a.path)
	h.want("ok 0", "swap %s", how)
	h.want("ok 0", "init")
	h.ok("retain 0")
	return a, h
}

// move asks for moves, in one message.
func (a *agent) move(s *session, entries ...abi.MoveEntry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := abi.Move{Header: abi.Header{Type: abi.MsgMove, Bytes: uint16(unsafe.Sizeof(abi.Move{}))}, Count: uint32(len(entries))}
	copy(m.Entries[:], entries)
	if err := a.send(s, m, nil); err != nil {
		a.t.Error(err)
	}
}

// settle waits until something holds of what the agent knows.
func (a *agent) settle(what string, holds func(b *movables) bool) movables {
	a.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		a.mu.Lock()
		b := a.movable
		done := holds(&a.movable)
		a.mu.Unlock()
		if done {
			return b
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("%s: %+v", what, b)
		}
	}
}
