package swaps

// That the policy hears of all that it decides by: who is next, when the others are, who is idle; and that processes hear
// of what is not to be moved after all.

import (
	"testing"

	"weir/agent/session/turns"
)

// ranTogether is for how long all that are busy ran in a span.
func (w *world) ranTogether(span int64) int64 {
	sum := func() (all int64) {
		for _, b := range w.boxes {
			for _, l := range b.libs {
				all += l.ran
			}
		}
		return all
	}
	before := sum()
	w.run(span)
	return sum() - before
}

// TestNextOnesMemoryComesWhileTheHolderRuns: of three whose sets exceed the card, and of which two fit, the next one's is
// there when its lease begins, so the GPU never stands still.
func TestNextOnesMemoryComesWhileTheHolderRuns(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	for range 3 {
		w.tenant(20) // 60 pieces, of 47 that there is room for
	}
	w.run(20 * sec)
	moved := w.moved[0]
	const span = 20 * sec
	ran := w.ranTogether(span)
	t.Logf("they ran %d ms in %d; %d pieces came", ran/ms, span/ms, (w.moved[0]-moved)/unit)
	if ran < span*95/100 || w.moved[0] == moved {
		t.Errorf("they ran %d ms in %d, and %d pieces came", ran/ms, span/ms, (w.moved[0]-moved)/unit)
	}
}

// TestWhoRunsLastGoes: of four that take turns, the one that has just run gives way, since it is the last to run again; so
// little more moves than must.
func TestWhoRunsLastGoes(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	const set = 16 // 64 pieces, of 47 that there is room for
	for range 4 {
		w.tenant(set)
	}
	w.run(20 * sec)
	in, leases := w.moved[0], w.leases()
	w.run(20 * sec)
	each := float64(w.moved[0]-in) / float64(unit) / float64(w.leases()-leases)
	t.Logf("%d leases, and %.1f pieces came at each", w.leases()-leases, each)
	// Beside the holder's 16 and the next one's there is room for 15 of what the other two have, so of its 16 none keeps more
	// than 7.5 on the average over two turns of others'.
	if each > 9 || each == 0 {
		t.Errorf("%.1f pieces came at each lease, of which 8.5 must", each)
	}
}

// leases is how many there were.
func (w *world) leases() (all uint64) {
	for _, f := range w.turns.Flows(w.now) {
		all += f.Leases
	}
	return all
}

// TestIdleMemoryIsKeptAndThenGoes: for four times what its program usually is away, beside one that is always busy, on a card
// above the pressure; and what is found in place is not moved.
func TestIdleMemoryIsKeptAndThenGoes(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	comes, _ := w.tenant(24), w.tenant(20) // 44 pieces of 48: the pressure begins above 38
	for range 30 {
		comes.busy = true
		w.run(150 * ms)
		comes.busy = false
		w.run(150 * ms)
	}
	if w.moved != [2]int64{} {
		t.Errorf("%d pieces came and %d went of one that is back each 0.3 s", w.moved[0]/unit, w.moved[1]/unit)
	}
	w.run(400 * ms)
	if w.moved != [2]int64{} {
		t.Errorf("%d pieces went within 0.7 s", w.moved[1]/unit)
	}
	w.run(5 * sec)
	if v := comes.in.swap.View(0); w.moved[1]/unit != 6 || v.Swapped != w.moved[1] {
		t.Errorf("then %d pieces went, 6 are above the pressure: %+v", w.moved[1]/unit, v)
	}
	if stands := comes.in.Standing(0); stands != turns.Idle {
		t.Errorf("it stands at %d", stands)
	}
}

// TestWhatIsNotWantedIsCancelled: a process is told of moves that are not wanted any more.
func TestWhatIsNotWantedIsCancelled(t *testing.T) {
	w, _, b := entering(t)
	for range 1000 { // until something is to come to b
		if b.ins() > 0 {
			break
		}
		for _, box := range w.boxes {
			for _, e := range box.libs[0].told {
				if e.Out {
					box.libs[0].done(e, 1, 2*ms)
				}
			}
		}
		w.run(500 * us)
	}
	told := b.ins()
	if told == 0 {
		t.Fatal("nothing is to come")
	}
	b.in.swap.SetCap(w.now, 0, unit)
	w.run(ms)
	cancelled := 0
	for move, e := range b.told {
		if !e.Out && b.gone[move] {
			cancelled++
		}
	}
	if cancelled != told {
		t.Errorf("%d of %d moves are cancelled", cancelled, told)
	}
}

// ins is how many moves to the card the process has been told of.
func (l *lib) ins() (n int) {
	for _, e := range l.told {
		if !e.Out {
			n++
		}
	}
	return n
}
