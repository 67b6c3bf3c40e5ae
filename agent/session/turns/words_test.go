package turns

// Tests of what is made of processes' words.

import (
	"testing"

	"weir/agent/session/page"
)

// TestLearning: operations whose length the library has guessed at count as those that follow.
func TestLearning(t *testing.T) {
	var s said
	now, w := sec, page.Worked{Submitted: 3, WorkNS: 3000}
	say := func(operations, each uint64) uint64 {
		now += 10 * ms
		w.Submitted += operations
		w.WorkNS += operations * each
		d, lie := s.take(now, w)
		if lie {
			t.Error("it is called a lie")
		}
		return d.work
	}
	for i, c := range []struct{ operations, each, want uint64 }{
		{0, 0, 0}, {5, guessNS, 0}, {0, 0, 0}, {7, guessNS, 0}, // nothing is known
		{10, 400_000, 0},        // of some of them
		{10, 1_000_000, 32_000}, // 5 + 7 + 10 + 10 of 1 ms
		{4, 500_000, 2000}, {3, guessNS, 3},
	} {
		if got := say(c.operations, c.each); got != c.want {
			t.Errorf("report %d: %d, want %d", i, got, c.want)
		}
	}
}

// TestShortOperations: where operations are as short as the guess it is taken for true in the end.
func TestShortOperations(t *testing.T) {
	var s said
	sum, now, w := uint64(0), sec, page.Worked{Submitted: 1}
	for range 400 {
		now += 10 * ms
		w.Submitted += 100
		w.WorkNS += 100 * guessNS
		d, _ := s.take(now, w)
		sum += d.work
	}
	if want := uint64(399 * 100); sum != want {
		t.Errorf("%d of %d", sum, want)
	}
}

// TestBusyTimeIsSpentAsTimePasses: what comes at once is told over the time that follows, and what cannot
// be is nothing.
func TestBusyTimeIsSpentAsTimePasses(t *testing.T) {
	var s said
	now, w := sec, page.Worked{BusyNS: 1}
	s.take(now, w)
	now += 10 * ms
	w.BusyNS += uint64(25 * ms)
	if _, lie := s.take(now, w); lie {
		t.Error("a little too early is called a lie")
	}
	for i, want := range []uint64{10, 10, 5, 0} {
		if got := s.spend(10 * ms); got != want*uint64(ms) {
			t.Errorf("report %d: %d ns, want %d ms", i, got, want)
		}
	}
	w.BusyNS += uint64(10 * sec)
	if _, lie := s.take(now+sec, w); !lie || s.spend(sec) != 0 {
		t.Error("ten seconds in one are believed")
	}
	w.BusyNS--
	if _, lie := s.take(now+2*sec, w); !lie {
		t.Error("busy time that goes back is believed")
	}
}
