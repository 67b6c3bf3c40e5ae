package turns

// How long launches wait where quanta are long.

import (
	"testing"
	"time"
)

// patienceOf is how long launches of a program wait at the gate of GPU 0.
func patienceOf(p *program) time.Duration {
	return time.Duration(p.in.words[0].WaitMax) * time.Millisecond
}

// TestWhoWaitsKeepsItsPatience: quanta of 28 s get short as one of two ends, with the other, which has waited for longer than
// gate_wait_max, in the middle of its entry. It is not to go through a gate that opens once its memory is there.
func TestWhoWaitsKeepsItsPatience(t *testing.T) {
	const quantum = 28 * time.Second
	w := newWorld(t, 1, nil)
	m := &mover{takes: 3 * sec}
	a, b := w.program(w.box("a", 1), ms, 4, 0), w.program(w.box("b", 1), ms, 4, 0)
	for _, p := range []*program{a, b} {
		p.in.SetMovable(w.now)
	}
	w.table.Apart(w.now, 0, int64(quantum))
	enters := func(p *program) bool { return p.in.Entering(0) != 0 }
	for w.runMoving(m, 10*sec); !enters(a) && !enters(b); {
		w.runMoving(m, 100*ms)
	}
	if enters(b) {
		a, b = b, a
	}
	w.table.Apart(w.now, 0, 1)
	if got := patienceOf(a); got < waitTurns*quantum {
		t.Errorf("who has waited for a lease of %s and enters waits for %s in all, once the other has ended", quantum, got)
	}
	w.runMoving(m, sec)
	if got := patienceOf(a); got < waitTurns*quantum {
		t.Errorf("a second later it waits for %s in all", got)
	}
	w.runMoving(m, waitTurns*int64(quantum))
	if got, want := patienceOf(a), w.table.config.WaitMax; got != want {
		t.Errorf("launches wait for %s when nobody waits since then any more; %s are set", got, want)
	}
}

// TestPatienceIsByWeight: of whom others have many quanta before it is its turn, launches wait for that long.
func TestPatienceIsByWeight(t *testing.T) {
	const quantum = 10 * time.Second
	w := newWorld(t, 1, nil)
	m := &mover{takes: 100 * ms}
	heavy, light := w.program(w.box("heavy", 31), ms, 4, 0), w.program(w.box("light", 1), ms, 4, 0)
	for _, p := range []*program{heavy, light} {
		p.in.SetMovable(w.now)
	}
	w.table.Apart(w.now, 0, int64(quantum))
	w.runMoving(m, 15*sec)
	if got := patienceOf(light); got < 32*quantum {
		t.Errorf("one that has each 32nd quantum of %s waits for %s", quantum, got)
	}
	if got := patienceOf(heavy); got != waitTurns*quantum {
		t.Errorf("one that has nearly all waits for %s", got)
	}
}
