package session

// What no library says of movable memory must not cost other containers the host's memory.

import (
	"sync/atomic"
	"testing"

	"weir/agent/session/sessiontest"
	"weir/cgo/abi"
)

// rude is a connection of this process's, on which a HELLO has been answered.
func (b *bench) rude(socket string, hello []byte) *sessiontest.Conn {
	b.t.Helper()
	conn, err := sessiontest.Dial(socket)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	conn.Send(hello)
	conn.Receive()
	return conn
}

// asked counts questions, none of which may be asked twice.
var asked atomic.Uint32

// settled waits until all is done that was said on a connection, and tells whether the agent has closed it.
func settled(c *sessiontest.Conn) (closed bool) {
	c.Send(sessiontest.Packet(abi.MsgQuery, 100+asked.Add(1), &abi.Query{}))
	for {
		packet, _, err := c.Receive()
		switch {
		case err != nil || sessiontest.Type(packet) == abi.MsgClose:
			return true
		case sessiontest.Type(packet) == abi.MsgAnswer:
			return false
		}
	}
}

// TestMovableWhileDeclaring: memory that is asked for between a new connection and the end of its declarations is charged,
// and what is freed of it is free, once.
func TestMovableWhileDeclaring(t *testing.T) {
	b := start(t, hostOf(1<<40))
	grant := b.swapping(8*mib, 16*mib)
	conn := b.rude(grant.Socket, sessiontest.Hello("rude"))
	conn.Send(sessiontest.RequestMovable(2, 0, 2*mib, 1, false))
	settled(conn)
	conn = b.rude(grant.Socket, sessiontest.HelloAgain(7, "rude"))
	conn.Send(sessiontest.RequestMovable(2, 0, 4*mib, 2, false))
	conn.Send(sessiontest.RequestMovable(3, 0, 6*mib, 3, false))
	conn.Send(sessiontest.Freed(0, 2))
	conn.Send(sessiontest.RequestMovable(4, 0, 2*mib, 1, true))
	conn.Send(sessiontest.Share(abi.MsgDrop, 5, 0, 0, abi.ShareKey{}, abi.ShareAgain))
	if settled(conn) {
		t.Fatal("its connection is closed")
	}
	b.wantMovable("when all is declared", grant.ID, 8*mib, 8*mib)
	conn.Send(sessiontest.Freed(0, 1, 3))
	settled(conn)
	b.wantMovable("when all is freed", grant.ID, 0, 0)
}

// TestManyOfNoSession: the processes of one container that say they had sessions are believed no more together than the
// container may have.
func TestManyOfNoSession(t *testing.T) {
	b := start(t, hostOf(1<<40))
	grant := b.swapping(8*mib, 16*mib)
	p := b.tenant(grant)
	p.Must("movable 0 %d 1", 20*mib)
	conn := b.rude(grant.Socket, sessiontest.HelloAgain(7, "rude"))
	conn.Send(sessiontest.RequestMovable(2, 0, 6*mib, 1, true))
	if !settled(conn) {
		t.Error("more than cap and swap of two processes is believed")
	}
	b.wantMovable("after it", grant.ID, 20*mib, 20*mib)
}

// TestHostIsForSwap: containers without swap take nothing of the host's account, whatever their cap.
func TestHostIsForSwap(t *testing.T) {
	for name, limit := range map[string]int64{"a cap": 64 * mib, "no cap": 0} {
		t.Run(name, func(t *testing.T) {
			b := start(t, hostOf(1<<40))
			grant := b.run(limit)
			conn := b.rude(grant.Socket, sessiontest.HelloAgain(7, "rude"))
			conn.Send(sessiontest.RequestMovable(2, 0, 2*mib, 1, false))
			if settled(conn) {
				t.Fatal("its connection is closed")
			}
			conn.Send(sessiontest.RequestMovable(3, 0, 2*mib, 2, true))
			if !settled(conn) {
				t.Error("it is believed to have some")
			}
			b.wantMovable("after it", grant.ID, 0, 0)
		})
	}
}

// TestAsManyAsThereMayBe: a REQUEST that overtakes a FREED does not end the session of a library that has as many
// allocations as it keeps account of; more than one FREED tells of does.
func TestAsManyAsThereMayBe(t *testing.T) {
	b := start(t, hostOf(1<<40))
	grant := b.swapping(8*mib, 16*mib)
	conn := b.rude(grant.Socket, sessiontest.Hello("rude"))
	settled(conn)
	has := func(n int) {
		c := b.Node.containers[grant.ID]
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.sessions {
			for id := uint64(1000); len(s.movables.pieces) < n; id++ {
				s.movables.add(id, piece{})
			}
		}
	}
	has(abi.MovablesMax)
	conn.Send(sessiontest.RequestMovable(2, 0, 2*mib, 1, false))
	conn.Send(sessiontest.Freed(0, 1))
	if settled(conn) {
		t.Fatal("its connection is closed")
	}
	has(abi.MovablesMax + abi.NamedMax)
	conn.Send(sessiontest.RequestMovable(3, 0, 2*mib, 2, false))
	if !settled(conn) {
		t.Error("it has more than there may be")
	}
}
