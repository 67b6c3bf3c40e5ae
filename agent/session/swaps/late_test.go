package swaps

// Tests of processes that are late.

import (
	"slices"
	"testing"

	"weir/agent/residency"
)

// stopped has one of two processes of b's container stop, and another of the same container beside it go on; a is another
// container that does not fit beside them.
func stopped(t *testing.T) (w *world, a, b, stopped *lib) {
	w = newWorld(t, 1, 8*modelCard, nil)
	a, b = w.tenant(36), w.tenant(24)
	stopped = b.in.lib()
	for range 3 {
		if _, err := stopped.allocate(0, 4*unit); err != nil {
			t.Fatal(err)
		}
	}
	stopped.busy = true
	w.run(10 * sec)
	stopped.busy, stopped.hand = false, true
	w.run(10 * ms) // it ends its turn, as one that is stopped at rest
	return w, a, b, stopped
}

// TestStoppedProcessHoldsUpNobody: the memory of others of its container moves on, and all have their turns.
func TestStoppedProcessHoldsUpNobody(t *testing.T) {
	w, a, b, stopped := stopped(t)
	w.run(5 * sec)
	ran, moved, faults := [2]int64{a.ran, b.ran}, w.moved, a.faults+b.faults
	seen := len(stopped.seen)
	w.run(20 * sec)
	ran = [2]int64{a.ran - ran[0], b.ran - ran[1]}
	in, byFaults := w.moved[0]-moved[0], a.faults+b.faults-faults
	t.Logf("they ran %d and %d ms in 20 s, %d pieces moved, %d by faults", ran[0]/ms, ran[1]/ms, in/unit, byFaults/unit)
	if min(ran[0], ran[1]) < 6*sec || ran[0]+ran[1] < 17*sec {
		t.Errorf("they ran %d and %d ms in 20 s", ran[0]/ms, ran[1]/ms)
	}
	if in == 0 || byFaults*100 > in {
		t.Errorf("%d pieces moved, %d by faults", in/unit, byFaults/unit)
	}
	if !stopped.swap.silent() || !slices.Contains(w.events, EventSilent) || len(stopped.seen) > seen {
		t.Errorf("it is silent: %v; events %v; told of %d moves more", stopped.swap.silent(), w.events, len(stopped.seen)-seen)
	}
}

// TestStoppedProcessGoesOn: once it has answered all, its memory moves again.
func TestStoppedProcessGoesOn(t *testing.T) {
	w, _, _, stopped := stopped(t)
	w.run(5 * sec)
	for len(stopped.told) > 0 {
		for _, e := range stopped.told {
			if !stopped.gone[e.Move] {
				t.Errorf("move %d counts as failed, and is not cancelled", e.Move)
			}
			stopped.done(e, residency.Undone, 0)
		}
	}
	if stopped.swap.silent() {
		t.Fatal("it has answered, and is silent")
	}
	seen := len(stopped.seen)
	stopped.hand, stopped.busy = false, true
	w.run(10 * sec)
	if len(stopped.seen) == seen || stopped.ran == 0 {
		t.Errorf("it has been told of %d moves since", len(stopped.seen)-seen)
	}
}

// TestWhoDoesNotRead: a process that takes no messages is waited for once, and is asked again once it reads.
func TestWhoDoesNotRead(t *testing.T) {
	w, a, b, deaf := stopped(t)
	deaf.full = true
	w.run(5 * sec)
	if !deaf.swap.silent() || len(deaf.told) > 0 {
		t.Fatalf("it counts as silent: %v, and was told of %d", deaf.swap.silent(), len(deaf.told))
	}
	ran := a.ran + b.ran
	if w.run(10 * sec); a.ran+b.ran-ran < 85*sec/10 {
		t.Errorf("the others ran %d ms in 10 s", (a.ran+b.ran-ran)/ms)
	}
	kept := 0
	for _, entries := range deaf.swap.unsent {
		kept += len(entries)
	}
	if kept > 20 {
		t.Errorf("%d entries are kept for it", kept)
	}
	deaf.full = false
	w.run(2 * lookEvery)
	for _, e := range deaf.told {
		if !deaf.gone[e.Move] {
			t.Errorf("move %d is late, and not cancelled", e.Move)
		}
		deaf.done(e, residency.Undone, 0)
	}
	if deaf.swap.silent() {
		t.Error("it has read and answered all, and is silent")
	}
}

// TestLateAgainAndAgain: who answers as late as it may is taken for late ever sooner, and left alone for ever longer.
func TestLateAgainAndAgain(t *testing.T) {
	w, _, _, late := stopped(t)
	began := w.now
	var asked int64 // for how long it had moves to answer that count
	for w.now < began+120*sec {
		w.run(10 * ms)
		for _, f := range w.swaps.flights {
			if f.member == late.swap {
				asked += 10 * ms
				break
			}
		}
		if late.swap.silent() {
			for _, e := range late.told {
				late.done(e, residency.Undone, 0)
			}
		}
	}
	t.Logf("others waited for it for %d ms of 120 s, %d times", asked/ms, late.swap.strikes)
	if asked > 10*sec || late.swap.strikes < 3 {
		t.Errorf("others waited for it for %d ms of 120 s", asked/ms)
	}
	for range goodMoves {
		late.swap.inTime()
	}
	if late.swap.strikes >= strikesMax {
		t.Error("moves in time make up for nothing")
	}
}

// TestFreedWhileLate: what is freed before its process was told of late moves is not told of.
func TestFreedWhileLate(t *testing.T) {
	w, _, _, deaf := stopped(t)
	deaf.full = true
	w.run(5 * sec)
	for id := range deaf.mem {
		if err := deaf.swap.Freed(w.now, id); err != nil {
			t.Fatal(err)
		}
		delete(deaf.mem, id)
	}
	if deaf.swap.silent() {
		t.Errorf("it is still to answer %d moves", len(deaf.swap.late))
	}
	deaf.full = false
	w.run(sec)
	if len(deaf.told) > 0 {
		t.Errorf("told of %d moves of what is gone", len(deaf.told))
	}
}

// TestSlowLinkIsNotLate: moves that take long since the link is slower than it is taken for, and whose processes have no
// processor for 60 ms now and then, are waited for.
func TestSlowLinkIsNotLate(t *testing.T) {
	w := newGuessed(t, 1, 8*modelCard, 12*modelLink, nil)
	a, b := w.tenant(36), w.tenant(36)
	for range 100 {
		w.run(97 * ms)
		w.still = true
		w.run(60 * ms)
		w.still = false
	}
	if len(w.events) > 0 || a.swap.strikes+b.swap.strikes > 0 {
		t.Errorf("events %v; they count as late %d and %d times", w.events, a.swap.strikes, b.swap.strikes)
	}
	if w.moved[0] == 0 || (a.faults+b.faults)*50 > w.moved[0] {
		t.Errorf("%d pieces moved, %d by faults", w.moved[0]/unit, (a.faults+b.faults)/unit)
	}
}
