package turns

// Tests of turns: shares, races of messages, tenants that keep to nothing.

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within {
		t.Errorf("%s: %.3f, want %.3f within %.3f", what, got, want, within)
	}
}

// TestSharesByWeight: 1 ms kernels beside 0.1 ms kernels, weights 1 and 3, with gates always closed and as it
// is by default.
func TestSharesByWeight(t *testing.T) {
	for name, change := range map[string]func(*Settings){"always": always, "default": nil} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, change)
			a := w.program(w.box("a", 1), ms, 8, 0)
			b := w.program(w.box("b", 3), 100*us, 64, 0)
			w.run(500 * ms)
			before := gots(a, b)
			w.run(4 * sec)
			near(t, "part of the one of weight 3", parts(before, a, b)[1], 0.75, 0.02)
		})
	}
}

// TestWeightChangesLive: from 1:1 to 1:4 while both run.
func TestWeightChangesLive(t *testing.T) {
	w := newWorld(t, 1, always)
	a, b := w.program(w.box("a", 1), ms, 8, 0), w.program(w.box("b", 1), ms, 8, 0)
	w.run(sec)
	near(t, "before", parts([]int64{0, 0}, a, b)[1], 0.5, 0.02)
	if err := b.in.SetWeight(w.now, 4); err != nil {
		t.Fatal(err)
	}
	before := gots(a, b)
	w.run(4 * sec)
	near(t, "after", parts(before, a, b)[1], 0.8, 0.02)
	if err := b.in.SetWeight(w.now, 0); err == nil || !strings.Contains(err.Error(), "weight") {
		t.Errorf("weight 0: %v", err)
	}
}

// TestWeightDownAndUp: a container that is put aside by a small weight for a moment has its share again right after it.
func TestWeightDownAndUp(t *testing.T) {
	for name, change := range map[string]func(*Settings){"always": always, "default": nil} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, change)
			a, b := w.program(w.box("a", 1), ms, 8, 0), w.program(w.box("b", 1), ms, 8, 0)
			w.run(2 * sec)
			for _, weight := range []float64{0.001, 1} {
				if err := a.in.SetWeight(w.now, weight); err != nil {
					t.Fatal(err)
				}
				before := gots(a, b)
				w.run(500 * ms) // in which its last lease at the small weight ends, or it waits for what that cost
				if weight < 1 {
					continue
				}
				w.run(3 * sec)
				near(t, "with its weight of before", parts(before, a, b)[0], 0.5, 0.04)
			}
		})
	}
}

// TestLongKernelsByWeight: kernels that take longer than a drain may stand still, two in flight, beside a program of
// three times the weight.
func TestLongKernelsByWeight(t *testing.T) {
	for _, kernel := range []int64{30 * ms, 100 * ms, 300 * ms} {
		w := newWorld(t, 1, nil)
		long, short := w.program(w.box("long", 1), kernel, 2, 0), w.program(w.box("short", 3), ms, 8, 0)
		w.run(10 * sec)
		before := gots(long, short)
		w.run(40 * sec)
		near(t, fmt.Sprintf("part of the one with kernels of %d ms", kernel/ms), parts(before, long, short)[0], 0.25, 0.02)
	}
}

// TestAloneIsOpen: who is alone has no lease, no window, and is idle once it rests.
func TestAloneIsOpen(t *testing.T) {
	w := newWorld(t, 1, nil)
	a := w.program(w.box("a", 1), ms, 8, 0)
	w.run(sec)
	if word := a.in.words[0]; word.Lease != 0 || word.Window != 0 || word.Rivals {
		t.Errorf("alone: %+v", word)
	}
	near(t, "of the GPU", float64(a.got)/float64(sec), 1, 0.001)
	a.until = w.now
	w.run(sec)
	if f := w.table.Flows(w.now)[0]; f.State != "idle" || !f.Known[0] || f.Share[0] > 0.2 || f.Leases != 0 {
		t.Errorf("after its work: %+v", f)
	}
	if next := w.table.Next(); next < w.now+50*ms && len(w.table.using) > 0 {
		t.Errorf("nobody is active, and something is due in %d ns", next-w.now)
	}
}

// TestSyncBesideAHog: a program that waits for each of its short kernels gets its half beside one that
// never waits.
func TestSyncBesideAHog(t *testing.T) {
	w := newWorld(t, 1, always)
	a, hog := w.program(w.box("a", 1), 100*us, 1, 0), w.program(w.box("hog", 1), ms, 8, 0)
	w.run(4 * sec)
	near(t, "of its leases", parts([]int64{0, 0}, a, hog)[0], 0.5, 0.1)
}

// TestStuckHolder: a kernel that never ends loses the slot after the drain timeout, an event names the holder,
// and it gets no lease until it is done.
func TestStuckHolder(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		w := newWorld(t, 1, always)
		a, b := w.program(w.box("a", 1), ms, 8, 0), w.program(w.box("b", 1), ms, 8, 0)
		w.run(200 * ms)
		a.stuck, a.deaf = true, deaf
		w.run(1500 * ms)
		if w.count("drain-long", "a", "1000 (program-0)") != 1 || w.count("drain-long", "b") != 0 {
			t.Errorf("deaf %v: events %+v", deaf, w.events)
		}
		before := b.done
		w.run(sec)
		if got := b.done - before; got < 400 { // time slices beside the kernel that never ends
			t.Errorf("deaf %v: the other has got %d kernels done in a second", deaf, got)
		}
		if f := w.table.Flows(w.now)[0]; f.State != "late" || f.Expired != 1 {
			t.Errorf("deaf %v: %+v", deaf, f)
		}
		a.stuck, a.deaf = false, false
		w.run(2 * sec)
		before2 := gots(a, b)
		w.run(2 * sec)
		near(t, "once it is over", parts(before2, a, b)[0], 0.5, 0.05)
	}
}

// TestHolderEnds: killed while it holds the GPU, with work in flight.
func TestHolderEnds(t *testing.T) {
	w := newWorld(t, 1, always)
	a, b := w.program(w.box("a", 1), ms, 8, 0), w.program(w.box("b", 1), ms, 8, 0)
	for !a.in.seats[0].holds() {
		w.run(ms)
	}
	w.progs = []*program{b}
	a.Leave(w.now)
	if !b.in.seats[0].holds() {
		t.Errorf("the other has no lease at once: %+v", b.in.words[0])
	}
	if w.count("holder-gone", "a", "program-0") != 1 {
		t.Errorf("events %+v", w.events)
	}
	a.Leave(w.now)
	a.Idle(w.now, Message{})
	a.in.Remove(w.now)
	w.run(100 * ms)
	near(t, "the other's", float64(b.got), float64(b.got), 0)
}

// TestHolderEndsUnawaited: a program that ends without having waited for its work, while nobody wants the GPU, is no
// event.
func TestHolderEndsUnawaited(t *testing.T) {
	w := newWorld(t, 1, always)
	a := w.program(w.box("a", 1), ms, 8, 0)
	for !a.in.seats[0].holds() {
		w.run(ms)
	}
	w.run(5 * ms)
	if !a.flies(0) {
		t.Fatal("it has nothing in flight")
	}
	w.progs = nil
	a.Leave(w.now)
	if n := w.count("holder-gone", "a"); n != 0 {
		t.Errorf("events %+v", w.events)
	}
}

// TestLostWants: who waits at a closed gate, or goes through, has its turns though its WANT never arrived.
func TestLostWants(t *testing.T) {
	for _, waived := range []bool{false, true} {
		w := newWorld(t, 1, always)
		a, hog := w.program(w.box("a", 1), ms, 1, 0), w.program(w.box("hog", 1), ms, 8, 0)
		if a.mute = true; waived {
			a.waived = a.in.words[0].Lease
		}
		w.run(300 * ms)
		a.mute = false
		if f := w.table.Flows(w.now)[0]; f.Leases == 0 && f.WaitsFrom == 0 {
			t.Errorf("waived %v: it has no lease, and waits for none: %+v", waived, f)
		}
		before := gots(a, hog)
		w.run(4 * sec)
		near(t, "its part", parts(before, a, hog)[0], 0.5, 0.1)
	}
}

// TestWaiverEnds: who has gone through a closed gate after the longest wait is held again after a while, and what it
// takes of its neighbour's share is charged.
func TestWaiverEnds(t *testing.T) {
	w := newWorld(t, 1, always)
	a, hog := w.program(w.box("a", 1), ms, 8, 0), w.program(w.box("hog", 8), ms, 8, 0)
	w.run(sec)
	for a.in.words[0].Open() {
		w.run(ms)
	}
	a.waived = a.in.words[0].Lease
	before := gots(a, hog)
	w.run(20 * sec)
	near(t, "its part", parts(before, a, hog)[0], 1.0/9, 0.01)
}

// TestOldNumbersAreIgnored: what names another lease than the seat's changes nothing, and who says it is asked
// to look again.
func TestOldNumbersAreIgnored(t *testing.T) {
	w := newWorld(t, 1, always)
	a, b := w.program(w.box("a", 1), ms, 8, 0), w.program(w.box("b", 1), ms, 8, 0)
	w.run(300 * ms)
	for !a.in.seats[0].holds() || a.in.seats[0].state != seatLeased {
		w.run(ms)
	}
	number, state, looks := a.in.words[0].Lease>>1, a.in.seats[0].state, a.looks
	for _, old := range []uint32{0, number - 1, number + 1, 1<<31 - 1} {
		a.Idle(w.now, Message{Lease: old})
		a.Drained(w.now, Message{Lease: old})
		a.Progress(w.now, Message{Lease: old})
	}
	a.Want(w.now, Message{Lease: number}) // its gate is open
	if s := &a.in.seats[0]; s.state != state || s.turn.Lease>>1 != number || a.looks != looks {
		t.Errorf("state %d -> %d, number %d -> %d, %d looks", state, s.state, number, s.turn.Lease>>1, a.looks-looks)
	}
	a.Drained(w.now, Message{Lease: number}) // of a lease that is not to end
	if a.in.seats[0].state != seatLeased {
		t.Error("a lease has ended before it was to end")
	}
	w.run(sec)
	near(t, "of the GPU", parts([]int64{0, 0}, a, b)[0], 0.5, 0.05)
}

// TestNoRoomForLook: a process that reads nothing is told as soon as there is room.
func TestNoRoomForLook(t *testing.T) {
	w := newWorld(t, 1, always)
	a, b := w.program(w.box("a", 1), ms, 8, 0), w.program(w.box("b", 1), ms, 8, 0)
	w.run(100 * ms)
	a.full = true
	w.run(300 * ms)
	if w.rush == 0 {
		t.Fatal("nothing was lost")
	}
	a.full = false
	w.run(2 * sec)
	before := gots(a, b)
	w.run(2 * sec)
	near(t, "of the GPU", parts(before, a, b)[0], 0.5, 0.05)
}

// TestForgedWords: words that go backwards, or busy time that is faster than time, are nothing done, and
// told once.
func TestForgedWords(t *testing.T) {
	w := newWorld(t, 1, nil)
	a, b := w.program(w.box("a", 1), ms, 8, 0), w.program(w.box("b", 1), ms, 8, 0)
	w.run(100 * ms)
	for i := range 400 {
		switch i % 3 {
		case 0:
			a.worked.BusyNS = math.MaxUint64 - uint64(i)
		case 1:
			a.worked.BusyNS, a.worked.Submitted, a.worked.WorkNS = 0, 0, 0
		case 2:
			a.worked.Submitted, a.worked.WorkNS = math.MaxUint64, math.MaxUint64
		}
		w.run(10 * ms)
	}
	if w.count("forged", "a", "cannot be") != 1 {
		t.Errorf("events %+v", w.events)
	}
	before := gots(a, b)
	w.run(2 * sec)
	if part := parts(before, a, b)[1]; part < 0.45 {
		t.Errorf("the other gets %.3f", part)
	}
}

// TestGang: a container on two GPUs gets both or none, and leaves one that it does not use any more.
func TestGang(t *testing.T) {
	w := newWorld(t, 2, always)
	both := w.box("both", 1)
	a0, a1 := w.program(both, ms, 4, 0), w.program(both, ms, 4, 0)
	a1.gpu = 1
	b0, b1 := w.program(w.box("b0", 1), ms, 4, 0), w.program(w.box("b1", 1), ms, 4, 0)
	b1.gpu = 1
	w.run(500 * ms)
	for range 10_000 {
		w.run(step)
		if both.seats[0].state == seatLeased && both.seats[1].holds() != true {
			t.Fatalf("leased on GPU 0, and state %d on GPU 1", both.seats[1].state)
		}
	}
	w.run(2 * sec)
	before := gots(a0, a1, b0, b1)
	w.run(4 * sec)
	near(t, "on GPU 0", parts(before[:2], a0, b0)[0], 0.5, 0.5)
	if a0.got == before[0] || a1.got == before[1] || b0.got == before[2] || b1.got == before[3] {
		t.Errorf("somebody got nothing: %v -> %v", before, gots(a0, a1, b0, b1))
	}
	a1.until = w.now
	w.run(5 * sec)
	if len(both.gpus) != 1 || both.gpus[0] != 0 {
		t.Errorf("uses %v", both.gpus)
	}
	a1.until = 1 << 62
	was := a1.got
	w.run(sec)
	if len(both.gpus) != 2 || a1.got == was {
		t.Errorf("back on GPU 1: uses %v, got %d", both.gpus, a1.got-was)
	}
}

// count is how many events of a kind there are of a container, with all words.
func (w *world) count(kind, name string, words ...string) (count int) {
	for _, e := range w.events {
		found := e.Kind == kind && e.Owner.(*box).name == name
		for _, word := range words {
			found = found && strings.Contains(e.Text, word)
		}
		if found {
			count++
		}
	}
	return count
}

// TestHungUpAtEachTurn: a container whose process closes its connection whenever its turn is over, and launches on,
// gets no more than the one beside it by that: its turn lasts until the drain timeout, and then it has none.
func TestHungUpAtEachTurn(t *testing.T) {
	w := newWorld(t, 1, always)
	a, b := w.program(w.box("a", 1), ms, 8, 0), w.program(w.box("b", 1), ms, 8, 0)
	w.run(200 * ms)
	for a.in.seats[0].state != seatDraining {
		w.run(step)
	}
	a.Absent(w.now)
	a.deaf = true
	w.run(900 * ms)
	if !a.in.seats[0].holds() || w.count("drain-long", "a") != 0 {
		t.Fatalf("its turn is over before the drain timeout: %+v", w.events)
	}
	w.run(500 * ms)
	if s := &a.in.seats[0]; s.state != seatLate || w.count("drain-long", "a", "program-0") != 1 || !b.in.seats[0].holds() {
		t.Fatalf("state %d after the drain timeout: %+v", s.state, w.events)
	}
	a.Absent(w.now)
	again := w.program(a.in, ms, 8, 0)
	again.Succeed(w.now, a.Member)
	again.flight, a.until = a.flight, 0
	w.run(2 * sec)
	before := gots(again, b)
	w.run(2 * sec)
	near(t, "once it is back", parts(before, again, b)[0], 0.5, 0.05)
	if len(a.in.processes) != 1 {
		t.Errorf("%d processes", len(a.in.processes))
	}
}

// TestNeighbourIsNotThrottled: who waits for a drain of another is not said to have had too much.
func TestNeighbourIsNotThrottled(t *testing.T) {
	w := newWorld(t, 1, func(s *Settings) { s.AlwaysGate, s.DrainTimeout = true, 10*sec })
	a, _ := w.program(w.box("a", 1), ms, 8, 0), w.program(w.box("b", 1), ms, 8, 0)
	w.run(300 * ms)
	for !a.in.seats[0].holds() {
		w.run(step)
	}
	a.stuck = true
	w.run(5 * sec)
	if w.count("throttled", "b") != 0 {
		t.Errorf("events %+v", w.events)
	}
}

// TestLooksAreBounded: a container of very many processes does not keep the agent busy with its revocations, and
// all of them are told in the end.
func TestLooksAreBounded(t *testing.T) {
	w := newWorld(t, 1, always)
	crowd := w.box("crowd", 1)
	var all []*program
	for range 300 {
		p := w.program(crowd, ms, 1, 0)
		p.deaf = true
		all = append(all, p)
	}
	w.progs = nil
	w.program(w.box("b", 1), ms, 8, 0)
	for _, p := range all {
		p.Want(w.now, Message{Lease: crowd.words[0].Lease >> 1})
	}
	told := func() (count int) {
		for _, p := range all {
			count += p.looks
			p.looks = 0
		}
		return count
	}
	told()
	for most := 0; crowd.seats[0].state != seatDraining; most = max(most, told()) {
		if w.run(step); most > looksMax {
			t.Fatalf("%d are told at once", most)
		}
	}
	told()
	sum := 0
	for range 100 {
		w.run(ms)
		now := told()
		if sum += now; now > looksMax {
			t.Fatalf("%d are told at once", now)
		}
	}
	if sum < 300-2*looksMax { // some are told in the step that revokes
		t.Errorf("%d of 300 were told", sum)
	}
}

// TestResidueIsTold: what was in flight when the gates closed is over once all have said so, and only then rates
// are taken.
func TestResidueIsTold(t *testing.T) {
	w := newWorld(t, 1, nil)
	a := w.program(w.box("a", 1), ms, 64, 0)
	w.run(200 * ms)
	b := w.program(w.box("b", 1), 50*us, 1, 0)
	for !w.table.gpus[0].gated {
		w.run(step)
	}
	if s := &a.in.seats[0]; !s.residual && s.state == seatClosed {
		t.Error("what a had in flight is forgotten")
	}
	w.run(500 * ms)
	if a.in.seats[0].residual || b.in.seats[0].residual {
		t.Errorf("residual after half a second: %+v, %+v", a.in.seats[0], b.in.seats[0])
	}
	before := gots(a, b)
	w.run(6 * sec)
	near(t, "of GPU time, of the one that waits for each kernel", parts(before, a, b)[1], 0.5, 0.12)
}

// TestBesideWhatNeverEnds: a lease's page tells that a kernel which has lost its slot runs on beside it, for as long as
// that does. What is left from before the gates closed checkBeside looks at.
func TestBesideWhatNeverEnds(t *testing.T) {
	w := newWorld(t, 1, always)
	a, b := w.program(w.box("a", 1), ms, 4, 0), w.program(w.box("b", 1), ms, 4, 0)
	w.run(200 * ms)
	b.stuck, b.deaf = true, true
	w.run(1500 * ms)
	if !a.in.seats[0].holds() || !a.in.words[0].Beside {
		t.Errorf("beside it: %+v", a.in.words[0])
	}
	b.stuck, b.deaf = false, false
	w.run(sec)
	if a.in.words[0].Beside || b.in.words[0].Beside {
		t.Errorf("after it: %+v, %+v", a.in.words[0], b.in.words[0])
	}
}

// TestStalledDrain: while threads wait at the gate a drain that stands still has it opened again, which is told
// if it happens again; where none waits it cannot help, and is not done.
func TestStalledDrain(t *testing.T) {
	for _, waits := range []bool{true, false} {
		w := newWorld(t, 1, func(s *Settings) { s.AlwaysGate, s.DrainTimeout = true, 10*sec })
		a := w.program(w.box("a", 1), ms, 8, 0)
		w.program(w.box("b", 1), ms, 8, 0)
		for range 4 {
			for a.stuck = false; a.in.seats[0].state != seatDraining || len(a.flight) == 0; {
				w.run(step)
			}
			if a.stuck = true; !waits {
				a.until = w.now
			}
			w.run(300 * ms)
			a.until = 1 << 62
		}
		reopened := w.table.Flows(w.now)[0].Reopened
		if told := w.count("drain-stalled", "a", "program-0"); waits != (reopened > 1) || waits != (told == 1) {
			t.Errorf("threads wait: %v; opened %d times, told %d times", waits, reopened, told)
		}
	}
}

// TestCrowdSharesToo: a container of more processes than are read or told at once gets its share, and no more, and
// what a message costs does not grow with them.
func TestCrowdSharesToo(t *testing.T) {
	w := newWorld(t, 1, always)
	in := w.box("crowd", 1)
	var crowd []*program
	for range 2 * readsMax {
		crowd = append(crowd, w.program(in, 100*us, 1, 0))
	}
	b := w.program(w.box("b", 1), ms, 8, 0)
	w.run(300 * ms)
	before, was := gots(crowd...), b.got
	w.run(sec)
	sum := int64(0)
	for i, p := range crowd {
		sum += p.got - before[i]
	}
	near(t, "of the crowd", float64(sum)/float64(sum+b.got-was), 0.5, 0.05)
	for _, p := range crowd {
		p.until = w.now
	}
	w.run(300 * ms)
	if n := len(in.seats[0].users); n != 0 || in.seats[0].drained != 0 || in.seats[0].waiting != 0 || in.seats[0].looking != 0 {
		t.Errorf("after all have ended their work: %+v", in.seats[0].crowd)
	}
}
