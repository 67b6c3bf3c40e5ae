package session

// What one question costs the agent.

import (
	"testing"

	"weir/agent/session/sessiontest"
	"weir/cgo/abi"
)

// BenchmarkRequest is a grant from the packet to the answer, its record included, without the
// socket.
func BenchmarkRequest(b *testing.B) {
	bench := newFuzzBench(b)
	v := bench.converse(b, bench.target)
	if end := v.packet(sessiontest.Hello("bench")); end != nil {
		b.Fatal(end.text)
	}
	for seq := uint32(1); b.Loop(); seq++ {
		if end := v.packet(sessiontest.Request(seq, 0, 512)); end != nil {
			b.Fatal(end.text)
		}
		if seq%1024 == 0 { // far from the cap
			bench.target.ledgers[0].Declare(v.s.holder(), 0)
			v.s.usage.Take(0, v.s.moves[0], 1<<40, 1<<40, func(uint64) error { return nil })
			v.s.moves[0]++
		}
	}
	v.over(nil)
}

// BenchmarkRoundTrip is a QUERY from a tenant's system call to its answer, through the socket.
func BenchmarkRoundTrip(b *testing.B) {
	bench := newFuzzBench(b)
	socket := bench.node.run.socket(bench.target.spec.ID)
	conn, err := sessiontest.Dial(socket)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Send(sessiontest.Hello("bench")); err != nil {
		b.Fatal(err)
	}
	if _, _, err := conn.Receive(); err != nil {
		b.Fatal(err)
	}
	for seq := uint32(1); b.Loop(); seq++ {
		if err := conn.Send(sessiontest.Packet(abi.MsgQuery, seq, &abi.Query{})); err != nil {
			b.Fatal(err)
		}
		if _, _, err := conn.Receive(); err != nil {
			b.Fatal(err)
		}
	}
}
