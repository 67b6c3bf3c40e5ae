package session

// Tests of moves between real processes and an agent with its own clock: that they are told and answered, and that gates
// wait for them. What moves when is tested in package residency, what follows from it in package swaps.

import (
	"fmt"
	"testing"
	"time"

	"weir/agent/control"
	"weir/cgo/abi"
)

// shifter is a process with movable memory that takes turns on GPU 0.
type shifter struct {
	taker
	grant control.RunGrant
}

func (b *bench) shifter(limit, swap int64) shifter {
	b.t.Helper()
	grant := b.swapping(limit, swap)
	return shifter{taker{b.tenant(grant), b, grant.Name}, grant}
}

// fills has it fill its cap with movable memory, on the card.
func (m shifter) fills(bytes uint64) {
	m.b.t.Helper()
	m.Must("movable 0 %d 1", bytes)
	m.Must("work 0 1 0")
	m.say("want")
	m.answers(bytes, 0)
}

// answer answers all moves that have come, and tells their bytes.
func (m shifter) answer(result int) (in, out uint64) {
	m.b.t.Helper()
	if _, err := fmt.Sscan(m.Must("moves 0 %d", result), &in, &out); err != nil {
		m.b.t.Fatal(err)
	}
	return in, out
}

// answers answers until so much has come in or gone out.
func (m shifter) answers(in, out uint64) {
	m.b.t.Helper()
	m.b.eventually(fmt.Sprintf("%d bytes come, %d go", in, out), func() bool {
		a, b := m.answer(abi.MoveDone)
		in, out = in-min(in, a), out-min(out, b)
		return in == 0 && out == 0
	})
}

// TestMemoryComesBeforeTheGateOpens: a lease's gate is closed until the process has said that what it lacked is there.
func TestMemoryComesBeforeTheGateOpens(t *testing.T) {
	b := start(t, byTurns(time.Hour), hostOf(1<<40))
	p := b.shifter(512*mib, 512*mib)
	p.Must("movable 0 %d 1", 400*mib)
	p.Must("work 0 1 0")
	p.say("want")
	b.eventually("it is told of moves", func() bool { in, _ := p.answer(0); return in > 0 })
	if p.open() {
		t.Fatal("the gate is open, and its memory is not there")
	}
	p.answers(400*mib, 0)
	b.eventually("its gate opens", p.open)
	use := b.container("box").GPUs[0].Swap
	if use == nil || use.ResidentBytes == nil || *use.ResidentBytes != 400*mib || *use.SwappedBytes != 0 {
		t.Errorf("use %+v", use)
	}
}

// TestGateOpensWithoutAnswers: a process that moves nothing runs all the same, after a while.
func TestGateOpensWithoutAnswers(t *testing.T) {
	b := start(t, byTurns(time.Hour), hostOf(1<<40))
	p := b.shifter(512*mib, 512*mib)
	p.Must("movable 0 %d 1", 400*mib)
	p.want()
	b.wantEvent("swap-slow", "memory were not there yet")
}

// TestCapIsHeldByMoving: a cap that is lowered, and plain memory under it, have movable memory go.
func TestCapIsHeldByMoving(t *testing.T) {
	b := start(t, byTurns(time.Hour), hostOf(1<<40))
	p := b.shifter(480*mib, 480*mib)
	p.Must("movable 0 %d 1", 240*mib)
	p.Must("movable 0 %d 2", 240*mib)
	p.Must("work 0 1 0")
	p.say("want")
	p.answers(480*mib, 0)
	q := b.tenant(p.grant)
	q.Say("alloc 0 %d", 48*mib)
	p.answers(0, 48*mib)
	if _, err := q.Answer(); err != nil {
		t.Fatal(err)
	}
	limit := int64(240 * mib)
	if _, err := b.ChangeCaps(t.Context(), p.name, control.CapsChange{Set: control.Caps{MemoryBytes: &limit}}); err != nil {
		t.Fatal(err)
	}
	b.eventually("it shrinks", func() bool { // in pieces, so by a little more than it has to
		p.answer(abi.MoveDone)
		v := b.container("box").GPUs[0].Swap
		return *v.ResidentBytes <= 192*mib && *v.ResidentBytes+*v.SwappedBytes == 480*mib
	})
	if _, err := p.Do("alloc 0 %d", 240*mib); err == nil {
		t.Error("plain memory above the cap is given")
	}
}

// TestAnswersThatCannotBe: a number that was never given ends the connection.
func TestAnswersThatCannotBe(t *testing.T) {
	b := start(t, byTurns(time.Hour), hostOf(1<<40))
	b.shifter(512*mib, 512*mib).Must("moved 0 %d", 1<<40)
	b.eventually("its session ends", func() bool { return b.hasEvent("session-ended", "has not been told of") })
}

// TestMovesAfterAReconnect: what a process declares anew is where it says, and goes on to move.
func TestMovesAfterAReconnect(t *testing.T) {
	b := start(t, byTurns(time.Hour), hostOf(1<<40))
	p := b.shifter(512*mib, 512*mib)
	p.Must("movable 0 %d 1", 240*mib)
	b.restart()
	p.Must("again")
	b.eventually("what it has is known", func() bool {
		v := b.container("box").GPUs[0].Swap
		return v != nil && v.ResidentBytes != nil && *v.ResidentBytes == 240*mib
	})
	p.Must("movable 0 %d 2", 48*mib)
	p.Must("work 0 1 0")
	p.say("want")
	p.answers(48*mib, 0)
	b.eventually("its gate opens", p.open)
	p.Must("use 0 1")
	p.Must("use 0")
	p.Must("freed 0 1")
	p.Must("freed 0 2")
	b.eventually("all is free", func() bool { return b.container("box").GPUs[0].MovableBytes == 0 })
}
