package turns

// Containers whose memory moves before their leases.

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// mover is who moves memory: it follows where containers stand, and says when memory is in place.
type mover struct {
	stands map[*Container][]Standing
	heard  []*Container
	takes  int64 // how long memory takes, where it is not random
	since  map[uint64]int64
}

// move lets gates open: with r at random, else at once, or after the time that memory takes.
func (m *mover) move(w *world, r *rand.Rand) {
	if m.stands == nil {
		m.stands, m.since = make(map[*Container][]Standing), make(map[uint64]int64)
	}
	m.heard = w.table.Stirred(m.heard[:0])
	for _, c := range w.table.containers {
		if !c.movable {
			continue
		}
		m.follow(w, c)
		for gpu := range c.seats {
			lease := c.Entering(gpu)
			if lease == 0 {
				continue
			}
			began, known := m.since[lease]
			switch {
			case r != nil && r.IntN(4) == 0:
				c.Hold(w.now, lease, w.now+r.Int64N(100*ms))
			case r != nil && r.IntN(4) > 0:
			case r == nil && !known && m.takes > 0:
				m.since[lease] = w.now
				c.Hold(w.now, lease, w.now+2*m.takes)
			case r != nil || w.now-began >= m.takes:
				c.InPlace(w.now, gpu)
			}
		}
	}
}

// follow checks that a container that has not stirred stands where it stood.
func (m *mover) follow(w *world, c *Container) {
	stands := make([]Standing, len(c.seats))
	for gpu := range c.seats {
		stands[gpu] = c.Standing(gpu)
	}
	if was := m.stands[c]; was != nil && !slices.Equal(was, stands) && !slices.Contains(m.heard, c) {
		w.t.Fatalf("a container stands at %v, stood at %v, and has not stirred", stands, was)
	}
	m.stands[c] = stands
}

// runMoving lets so much time pass, in which memory takes its time before leases.
func (w *world) runMoving(m *mover, span int64) {
	for until := w.now + span; w.now < until; {
		m.move(w, nil)
		w.run(step)
	}
}

// TestGateOpensWhenMemoryIsInPlace: until then nothing passes, and the quantum begins then.
func TestGateOpensWhenMemoryIsInPlace(t *testing.T) {
	w := newWorld(t, 1, nil)
	m := &mover{takes: 100 * ms}
	a, b := w.program(w.box("a", 1), ms, 4, 0), w.program(w.box("b", 1), ms, 4, 0)
	for _, p := range []*program{a, b} {
		p.in.SetMovable(w.now)
	}
	w.table.Apart(w.now, 0, 500*ms)
	w.runMoving(m, 2*sec)
	before, leases := gots(a, b), -len(m.since)
	w.runMoving(m, 20*sec)
	leases += len(m.since)
	got, moving := a.got+b.got-before[0]-before[1], int64(leases)*100*ms
	if leases < 10 || got > 20*sec-moving || got < 20*sec-moving-int64(leases)*10*ms {
		t.Errorf("the programs ran for %d ms of 20 s, beside %d leases whose memory took 100 ms each", got/ms, leases)
	}
	near(t, "part of one", parts(before, a, b)[0], 0.5, 0.05)
	if want := milliseconds(4 * time.Second); a.in.words[0].WaitMax < want {
		t.Errorf("threads wait for %d ms at the gate", a.in.words[0].WaitMax)
	}
	if us := a.in.words[0].Window; us != 500_000/windowTurns {
		t.Errorf("%d us may be in flight", us)
	}
	w.table.Apart(w.now, 0, 0)
	w.runMoving(m, 5*sec)
	if word := a.in.words[0]; word.WaitMax != milliseconds(w.table.config.WaitMax) {
		t.Errorf("threads wait for %d ms at the gate when all fits again", word.WaitMax)
	}
}

// TestExpectedWhileAnotherHolds: who waits is told of, and who holds is not.
func TestExpectedWhileAnotherHolds(t *testing.T) {
	w := newWorld(t, 1, always)
	m := &mover{}
	a, b := w.program(w.box("a", 1), ms, 4, 0), w.program(w.box("b", 1), ms, 4, 0)
	a.in.SetMovable(w.now)
	b.in.SetMovable(w.now)
	w.runMoving(m, 100*ms)
	stands := map[Standing]*box{a.in.Standing(0): a.in, b.in.Standing(0): b.in}
	if stands[Holder] == nil || stands[Waiting] == nil {
		t.Fatalf("one stands at %v, the other at %v", a.in.Standing(0), b.in.Standing(0))
	}
	var list []*Container
	w.table.Expected(0, func(c *Container, at int64) {
		if list = append(list, c); at < w.now {
			t.Errorf("a lease is expected at %d, and it is %d", at, w.now)
		}
	})
	if !slices.Equal(list, []*Container{stands[Waiting].Container}) {
		t.Errorf("%d are expected to have leases", len(list))
	}
}

// TestGangOpensWhenAllIsInPlace: memory that is in place on one GPU does not open the gate there.
func TestGangOpensWhenAllIsInPlace(t *testing.T) {
	w := newWorld(t, 2, always)
	both := w.box("both", 1)
	both.SetMovable(w.now)
	w.program(both, ms, 2, 0)
	w.program(both, ms, 2, 0).gpu = 1
	w.run(10 * ms)
	if both.Entering(0) == 0 || both.Entering(0) != both.Entering(1) {
		t.Fatalf("leases %d and %d", both.Entering(0), both.Entering(1))
	}
	both.InPlace(w.now, 0)
	both.InPlace(w.now, 0)
	if both.words[0].Open() || both.words[1].Open() {
		t.Error("a gate is open, and on the other GPU memory is not in place")
	}
	both.InPlace(w.now, 1)
	if !both.words[0].Open() || !both.words[1].Open() {
		t.Error("all memory is in place, and not all gates are open")
	}
}

// TestRevokedBeforeItsGateOpened: a lease that ends before is over at once: nothing was submitted on it.
func TestRevokedBeforeItsGateOpened(t *testing.T) {
	w := newWorld(t, 1, always)
	a, b := w.program(w.box("a", 1), ms, 2, 0), w.box("b", 1)
	a.in.SetMovable(w.now)
	w.run(10 * ms)
	lease := a.in.Entering(0)
	w.program(b, ms, 2, 0)
	w.run(200 * ms)
	if lease == 0 || a.in.Entering(0) == lease {
		t.Errorf("lease %d, then %d", lease, a.in.Entering(0))
	}
	if b.Standing(0) == Idle || w.progs[1].got == 0 {
		t.Error("the other one got nothing")
	}
	for _, e := range w.events {
		t.Errorf("event %+v", e)
	}
}
