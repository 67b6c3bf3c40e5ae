package session

// What no library says of movable memory must not cost other containers the host's memory.

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"weir/agent/control"
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

// TestFloodOfMovable: processes that ask, free, say what they use and answer moves all the time, mostly untruly, and do not
// read, keep nobody else from memory or the GPU, and leave nothing behind.
func TestFloodOfMovable(t *testing.T) {
	b := start(t, byTurns(10*time.Millisecond), hostOf(1<<40))
	before := runtime.NumGoroutine()
	grant := b.swapping(8*mib, 64*mib, func(r *control.RunRequest) { r.Name = "flood" })
	stop, ended := make(chan struct{}), make(chan struct{})
	flood := func() {
		conn, err := sessiontest.Dial(grant.Socket)
		if err != nil {
			return
		}
		defer conn.Close()
		conn.Send(sessiontest.Hello("flood"))
		named := &abi.Named{Count: abi.NamedMax}
		for i := range named.Ids {
			named.Ids[i] = uint64(i%8 + 1)
		}
		moved := &abi.Moved{Count: abi.MovedMax}
		for i := range moved.Entries {
			moved.Entries[i] = abi.MovedEntry{Move: 1, Result: abi.MoveUndone, Ns: 1 << 31}
		}
		for i := uint64(1); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if i <= 8 {
				conn.Send(sessiontest.RequestMovable(uint32(i)+1, 0, 8*mib, i, false))
			}
			if conn.Send(sessiontest.Packet(abi.MsgUsed, 0, named)) != nil ||
				conn.Send(sessiontest.Packet(abi.MsgMoved, 0, moved)) != nil {
				return // as it is told: moves that there are not
			}
		}
	}
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				flood()
			}
		}
	}()
	p := b.shifter(512*mib, 512*mib)
	for i := range 40 {
		p.Must("movable 0 %d %d", 400*mib, i+1)
		b.eventually("it has the GPU", func() bool {
			p.Must("work 0 1 0")
			p.say("want")
			p.answer(abi.MoveDone)
			return p.open()
		})
		b.eventually("it has rested", func() bool {
			p.say("drained")
			p.rest()
			return b.flow(p.name).State == "idle"
		})
		p.Must("freed 0 %d", i+1)
	}
	close(stop)
	<-ended
	b.eventually("no goroutine is left of it", func() bool { return runtime.NumGoroutine() < before+50 })
}
