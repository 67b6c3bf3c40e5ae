package swaps

// Tests of what links are taken to carry.

import "testing"

// TestLinkIsMeasured: by enough moves, and taken into account where it has changed.
func TestLinkIsMeasured(t *testing.T) {
	var l link
	for range linkSure - 1 {
		if l.take(100, sec); l.changed() {
			t.Fatal("after too few moves")
		}
	}
	if l.take(100, sec); !l.changed() || l.counted < 99 || l.counted > 101 {
		t.Errorf("it carries %d", l.counted)
	}
	if l.take(101, sec); l.changed() {
		t.Error("a small change counts")
	}
}

// says has a container say that a piece takes so long each way.
func (w *world) says(l *lib, took int64) {
	for range 4 * linkMoves {
		w.swaps.sample(&flight{member: l.swap, bytes: unit, at: w.now - 20*sec}, took)
		w.swaps.sample(&flight{member: l.swap, bytes: unit, at: w.now - 20*sec, out: true}, took)
	}
	w.swaps.settle()
}

// TestOneContainersLinkHarmsNobody: what one says makes no quantum longer than another's moves and the first guess do.
func TestOneContainersLinkHarmsNobody(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	liar, b := w.tenant(36), w.tenant(36)
	w.run(10 * ms)
	before := w.swaps.gpus[0].quantum
	if w.says(liar, 9*sec); before == 0 || w.swaps.gpus[0].quantum != before {
		t.Errorf("alone it makes the quantum %d ms, after %d", w.swaps.gpus[0].quantum/ms, before/ms)
	}
	const slow = 4 * unit * sec / modelLink
	w.says(b, slow)
	quantum := w.swaps.gpus[0].quantum
	if quantum < 3*before || quantum > 5*before {
		t.Errorf("beside one whose moves take 4 times as long as was guessed the quantum is %d ms, after %d", quantum/ms, before/ms)
	}
	w.says(liar, 8*sec)
	if got := w.swaps.gpus[0].quantum; got != quantum {
		t.Errorf("the quantum goes from %d to %d ms", quantum/ms, got/ms)
	}
	w.says(b, slow/2)
	if got := w.swaps.gpus[0].quantum; got > quantum*5/8 {
		t.Errorf("where the other's moves take half the time, the quantum goes from %d to %d ms", quantum/ms, got/ms)
	}
}

// TestLinkIsBelievedWithinBounds: whatever containers say, quanta are no longer than a minute.
func TestLinkIsBelievedWithinBounds(t *testing.T) {
	w := newWorld(t, 1, 8*modelCard, nil)
	a, b := w.tenant(36), w.tenant(36)
	w.run(10 * ms)
	w.says(a, 9*sec)
	w.says(b, 9*sec)
	if least := int64(modelLink / linkLeast); w.swaps.gpus[0].told != [2]int64{least, least} {
		t.Errorf("it is taken to carry %d bytes a second", w.swaps.gpus[0].told)
	}
	w.swaps.carry(w.swaps.node.Link(w.now, 0, 1, 1))
	if w.swaps.settle(); w.swaps.gpus[0].quantum != quantumMax {
		t.Errorf("the quantum is %d ms", w.swaps.gpus[0].quantum/ms)
	}
	links := a.in.swap.flows[0].links
	for range 2 * linkMoves {
		w.swaps.sample(&flight{member: a.swap, bytes: unit, at: w.now - ms}, 9*sec) // longer than it has been under way
	}
	if a.in.swap.flows[0].links != links {
		t.Error("what cannot be is a sample")
	}
}
