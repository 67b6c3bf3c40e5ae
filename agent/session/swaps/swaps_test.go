package swaps

// Tests of swap between leases and processes, each of one behaviour.

import (
	"errors"
	"slices"
	"testing"

	"weir/agent/residency"
	"weir/agent/session/turns"
)

// tenant is a container with one busy process that has so many pieces of movable memory.
func (w *world) tenant(pieces int64) *lib {
	w.t.Helper()
	l := w.box(slices.Repeat([]Limits{{modelCard, 2 * modelCard}}, w.gpus)...).lib()
	for range pieces / 4 {
		if _, err := l.allocate(0, 4*unit); err != nil {
			w.t.Fatal(err)
		}
	}
	l.busy = true
	return l
}

// TestTwoThatDoNotFit: two with 0.75 of the card each take turns, and what moves is where it is needed before a gate opens.
func TestTwoThatDoNotFit(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	a, b := w.tenant(36), w.tenant(36)
	w.run(20 * sec)
	t.Logf("a ran %d ms, b %d; moved in %d, out %d pieces; faults %d and %d", a.ran/ms, b.ran/ms, w.moved[0]/unit,
		w.moved[1]/unit, a.faults/unit, b.faults/unit)
	began, moved, faults := [2]int64{a.ran, b.ran}, w.moved[0], a.faults+b.faults
	w.run(60 * sec)
	ran := [2]int64{a.ran - began[0], b.ran - began[1]}
	moved, faults = w.moved[0]-moved, a.faults+b.faults-faults
	t.Logf("in 60 s they ran %d and %d ms, moved %d pieces, by faults %d", ran[0]/ms, ran[1]/ms, moved/unit, faults/unit)
	if faults*100 > moved || moved == 0 {
		t.Errorf("%d pieces were moved, %d came by faults", moved/unit, faults/unit)
	}
	if sum := ran[0] + ran[1]; sum < 54*sec || sum > 60*sec {
		t.Errorf("they ran %d ms in 60 s", sum/ms)
	}
	if min(ran[0], ran[1]) < 24*sec {
		t.Errorf("one ran %d ms, the other %d", ran[0]/ms, ran[1]/ms)
	}
	if len(w.events) > 0 {
		t.Errorf("events %v", w.events)
	}
}

// TestTwoThatFit: nothing moves, and no gate closes for memory's sake.
func TestTwoThatFit(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	a, b := w.tenant(20), w.tenant(20)
	w.run(5 * sec)
	if w.moved != [2]int64{} || a.faults+b.faults > 0 || w.swaps.gpus[0].quantum != 0 {
		t.Errorf("moved %v, quantum %d", w.moved, w.swaps.gpus[0].quantum)
	}
}

// TestGatesOpenAgainWhenAllFits: one of two ends, and the other is alone.
func TestGatesOpenAgainWhenAllFits(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	a, b := w.tenant(36), w.tenant(36)
	w.run(10 * sec)
	if w.swaps.gpus[0].quantum == 0 || !w.turns.Gated(0) {
		t.Fatal("what does not fit has no turns")
	}
	b.busy = false
	b.Leave(w.now)
	b.swap.Leave(w.now)
	b.in.libs, b.mem = nil, nil
	w.run(3 * sec)
	before := a.ran
	w.run(sec)
	if w.turns.Gated(0) || a.in.words[0].Lease != 0 || a.ran-before < sec-10*ms {
		t.Errorf("alone it runs %d ms in a second, its word %+v", (a.ran-before)/ms, a.in.words[0])
	}
	if v := a.in.swap.View(0); v.Swapped > 0 || v.Here != v.Total {
		t.Errorf("alone it has %+v", v)
	}
}

// entering is a world in which b is granted a lease, and lacks memory that comes only if the test answers.
func entering(t *testing.T) (w *world, a, b *lib) {
	w = newWorld(t, 1, 8*modelCard, nil)
	a, b = w.tenant(36), w.tenant(36)
	w.run(8 * sec)
	a.hand, b.hand = true, true
	w.wires[0] = [2]wire{}
	for _, l := range []*lib{a, b} {
		for _, e := range l.told {
			l.done(e, residency.Undone, 0)
		}
	}
	for range 20_000 {
		if b.in.Entering(0) != 0 && b.in.swap.flows[0].entering != 0 {
			return w, a, b
		}
		if w.run(500 * us); a.in.Entering(0) != 0 {
			a, b = b, a
		}
	}
	t.Fatal("nobody enters")
	return
}

// TestGateOpensAfterTwiceTheTime: a library that moves nothing does not keep its gate closed, and an operator hears of it.
func TestGateOpensAfterTwiceTheTime(t *testing.T) {
	w, _, b := entering(t)
	f := &b.in.swap.flows[0]
	if f.openBy-w.now > 2*f.lacked*sec/modelLink+entrySlack || b.in.words[0].Open() {
		t.Fatalf("it waits for %d ms", (f.openBy-w.now)/ms)
	}
	w.run(f.openBy - w.now + ms)
	if !b.in.words[0].Open() || !slices.Contains(w.events, EventSlow) {
		t.Errorf("the gate is %v, events %v", b.in.words[0].Open(), w.events)
	}
}

// TestGateWaitsWhileMemoryComes: however slow the link turns out to be, the gate waits while anything comes.
func TestGateWaitsWhileMemoryComes(t *testing.T) {
	w, _, b := entering(t)
	for rounds := 0; b.in.Entering(0) != 0; rounds++ {
		for _, box := range w.boxes {
			for _, e := range box.libs[0].told {
				box.libs[0].done(e, residency.Done, 10*ms) // 5 times what the link was taken to need
				break
			}
		}
		if w.run(10 * ms); rounds > 1000 {
			t.Fatal("it waits for ever")
		}
	}
	if v := b.in.swap.View(0); v.Swapped+v.Coming > 0 || slices.Contains(w.events, EventSlow) {
		t.Errorf("it has begun with %+v, events %v", v, w.events)
	}
}

// TestSilentProcess: moves that nobody answers count as failed, late answers are accepted, and then moves go on.
func TestSilentProcess(t *testing.T) {
	w, _, b := entering(t)
	w.run(answerMax + 2*lookEvery)
	var silent *lib
	for _, box := range w.boxes {
		if l := box.libs[0]; l.swap.silent() {
			silent = l
		}
	}
	if silent == nil || !slices.Contains(w.events, EventSilent) {
		t.Fatalf("nobody is taken for silent; events %v", w.events)
	}
	if n := len(silent.told); n == 0 || n > 8 {
		t.Fatalf("it has been told of %d moves", n)
	}
	_ = b
	for len(silent.told) > 0 {
		for _, e := range silent.told {
			silent.done(e, residency.Done, unit*sec/modelLink)
		}
	}
	if silent.swap.silent() {
		t.Error("it has answered, and counts as silent")
	}
	if err := silent.swap.Moved(w.now, Answer{Move: 1 << 60, Result: residency.Done}); err == nil {
		t.Error("an answer to a move that there is not is accepted")
	}
}

// TestMessagesThatFindNoRoom are sent again, and what is cancelled meanwhile is not sent at all.
func TestMessagesThatFindNoRoom(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	l := w.box(Limits{4 * unit, modelCard}).lib()
	l.busy = true
	w.run(200 * ms)
	l.full, l.hand = true, true
	id, err := l.allocate(0, 4*unit)
	if err != nil {
		t.Fatal(err)
	}
	w.run(20 * ms)
	if len(l.told) != 0 || len(w.swaps.flights) == 0 {
		t.Fatalf("told of %d, decided %d", len(l.told), len(w.swaps.flights))
	}
	if l.busy = false; l.swap.Freed(w.now, id) != nil {
		t.Error("freed memory is not known")
	}
	delete(l.mem, id)
	l.full = false
	w.run(20 * ms)
	for _, e := range l.told {
		t.Errorf("told to move what was freed: %+v", e)
	}
}

// TestRefusals: each limit by its name, and what was refused is not there.
func TestRefusals(t *testing.T) {
	w := newWorld(t, 1, 12*unit, nil)
	l := w.box(Limits{4 * unit, 8 * unit}).lib()
	other := w.box(Limits{modelCard, 12 * unit}).lib()
	var refusal *residency.Refusal
	if _, err := l.allocate(0, 16*unit); !errors.As(err, &refusal) || refusal.Reason != residency.SwapLimit {
		t.Errorf("more than cap and swap: %v", err)
	}
	id, err := l.allocate(0, 8*unit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.allocate(0, 6*unit); !errors.As(err, &refusal) || refusal.Reason != residency.HostLimit {
		t.Errorf("more than the host: %v", err)
	}
	if err := l.swap.Allocate(w.now, 0, id, unit); err == nil || errors.As(err, &refusal) {
		t.Errorf("a number that is in use: %v", err)
	}
	if err := l.swap.Freed(w.now, 99); err == nil {
		t.Error("freed is what was never there")
	}
	l.in.swap.Plain(w.now, 0, 3*unit)
	if _, err := l.allocate(0, 2*unit); !errors.As(err, &refusal) || refusal.Reason != residency.SwapLimit {
		t.Errorf("beside plain memory more than cap and swap: %v", err)
	}
	if reserved, limit := w.swaps.Host(); reserved != 8*unit || limit != 12*unit {
		t.Errorf("%d of %d on the host", reserved, limit)
	}
	if _, err := w.swaps.Add(w.now, l.in, l.in.Container, []Limits{{unit, 13 * unit}}); !errors.As(err, &refusal) {
		t.Errorf("swap larger than the host's limit: %v", err)
	}
}

// TestSwapOffLive: refused with the amount while memory is swapped; drained, it comes back first.
func TestSwapOffLive(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	a, b := w.tenant(36), w.tenant(36)
	w.run(8 * sec)
	b.busy = false
	w.run(5 * sec)
	if a.busy = false; b.in.swap.View(0).Swapped == 0 {
		a, b = b, a
	}
	w.run(sec)
	swapped := b.in.swap.View(0).Swapped
	err := b.in.swap.SetSwap(w.now, 0, 0, false)
	var refusal *residency.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != residency.InUse || refusal.Held != swapped || swapped == 0 {
		t.Fatalf("with %d swapped: %v", swapped, err)
	}
	if err := b.in.swap.SetSwap(w.now, 0, 0, true); err != nil {
		t.Fatal(err)
	}
	w.run(5 * sec)
	if v := b.in.swap.View(0); v.Swapped != 0 || v.Draining || !slices.Contains(w.events, EventDrained) {
		t.Errorf("%+v, events %v", v, w.events)
	}
}

// TestCapLoweredWhileItRuns: it shrinks by swapping out, and goes on.
func TestCapLoweredWhileItRuns(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	l := w.tenant(32)
	onCard := func() (here int64) {
		for _, m := range l.mem {
			here += m.at(2)
		}
		return here
	}
	w.run(sec)
	if here := onCard(); here != 32*unit {
		t.Fatalf("%d pieces of 32 are on the card", here/unit)
	}
	ran := l.ran
	l.busy = false // what it uses now it would have back at once
	w.run(sec)
	l.in.swap.SetCap(w.now, 0, 10*unit)
	w.run(sec)
	if here := onCard(); here > 10*unit || here < 9*unit {
		t.Errorf("%d pieces are on the card, under a cap of 10", here/unit)
	}
	l.busy = true
	if w.run(sec); l.ran < ran+sec/2 {
		t.Errorf("then it ran %d ms in a second", (l.ran-ran)/ms)
	}
}

// TestOthersWithoutSwap take turns with those that move, and their gates wait for nothing.
func TestOthersWithoutSwap(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, func(s *turns.Settings) { s.AlwaysGate = true })
	a := w.tenant(36)
	plain := w.box().lib()
	plain.busy = true
	w.run(5 * sec)
	if a.ran < 2*sec || plain.ran < 2*sec {
		t.Errorf("one ran %d ms, the one without swap %d", a.ran/ms, plain.ran/ms)
	}
}

// TestSomeAnswersAreNotEnough: who answers a move now and then, and keeps others, is asked for no more, and the list of
// what it has not answered does not grow.
func TestSomeAnswersAreNotEnough(t *testing.T) {
	w, _, _ := entering(t)
	w.run(answerMax + 2*lookEvery)
	var silent *lib
	for _, box := range w.boxes {
		if l := box.libs[0]; l.swap.silent() {
			silent = l
		}
	}
	if silent == nil {
		t.Fatal("nobody is taken for silent")
	}
	told := len(silent.seen)
	for range 8 {
		if err := silent.swap.Moved(w.now, Answer{Move: 1, Result: residency.Done}); err != nil {
			t.Fatal(err)
		}
		for _, e := range silent.told {
			if len(silent.told) > 1 {
				silent.done(e, residency.Undone, 0)
			}
			break
		}
		w.run(answerMax + 2*lookEvery)
	}
	if len(silent.seen) != told || !silent.swap.silent() {
		t.Errorf("it has been told of %d moves, then of %d; silent: %v", told, len(silent.seen), silent.swap.silent())
	}
}

// TestGateDoesNotWaitForDrips: who makes room for another's memory piece by piece does not keep its gate closed.
func TestGateDoesNotWaitForDrips(t *testing.T) {
	w, _, b := entering(t)
	f := &b.in.swap.flows[0]
	began, lacked := w.now, f.lacked
	for rounds := 0; b.in.Entering(0) != 0; rounds++ {
		w.run(max(500*us, f.openBy-w.now-ms))
		for _, box := range w.boxes {
			for _, e := range box.libs[0].told {
				box.libs[0].done(e, residency.Done, 2*ms)
				break
			}
		}
		if w.run(ms); rounds > 1000 {
			t.Fatal("it waits for ever")
		}
	}
	if took, most := w.now-began, 8*lacked*sec/modelLink; lacked < 18*unit || took > most {
		t.Errorf("for %d pieces that lack the gate was closed for %d ms, at most %d wanted", lacked/unit, took/ms, most/ms)
	}
}

// TestFreedMovesAreForgotten: who allocates and frees, and answers no move, leaves nothing behind.
func TestFreedMovesAreForgotten(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	l := w.box(Limits{modelCard, modelCard}).lib()
	l.busy = true
	w.run(200 * ms)
	l.hand = true
	for range 100 {
		id, err := l.allocate(0, 4*unit)
		if err != nil {
			t.Fatal(err)
		}
		w.run(ms)
		if err := l.swap.Freed(w.now, id); err != nil {
			t.Fatal(err)
		}
		delete(l.mem, id)
	}
	if len(l.told) < 100 || len(w.swaps.flights) > 0 {
		t.Errorf("told of %d moves, %d are kept", len(l.told), len(w.swaps.flights))
	}
	for _, e := range l.told {
		l.done(e, residency.Undone, 0)
	}
}

// TestCancelsAreCounted: moves that a changed plan takes back, as their processes were told, and those of them that had
// not begun.
func TestCancelsAreCounted(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	all := []*lib{w.tenant(36), w.tenant(36), w.tenant(36)}
	for i := range int64(2000) {
		w.run(7 * ms)
		l := all[i%3]
		l.busy = i%4 != 0
		l.in.swap.SetCap(w.now, 0, (i%5+1)*modelCard/5)
	}
	told, counted := 0, Cancels{}
	for _, l := range all {
		n := l.in.swap.Cancels(0)
		told += len(l.gone)
		counted.Asked += n.Asked
		counted.Undone += n.Undone
	}
	if counted.Asked != int64(told) || counted.Undone == 0 || counted.Undone > counted.Asked {
		t.Errorf("processes were told of %d cancelled moves, counted are %+v", told, counted)
	}
	t.Logf("%+v", counted)
}
