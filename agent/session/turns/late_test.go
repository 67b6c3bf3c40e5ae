package turns

// Late leases: processes that were stopped for longer than a drain may take, and then need their gate.

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

func testSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (WEIR_TEST_SEED repeats it)", seed)
	return seed
}

// TestLateWorkThatNeedsTheGate: a program whose work waits for some further launches is stopped in its drain until it
// is late. Continued, it gets done in bounded time, and beside it the others have what they would have.
func TestLateWorkThatNeedsTheGate(t *testing.T) {
	seed, schedules := testSeed(t), 60
	if os.Getenv("LONG") != "" {
		schedules *= 10
	}
	late := 0
	for i := range uint64(schedules) {
		r := rand.New(rand.NewPCG(seed+i, 7))
		w := newWorld(t, 1, func(s *Settings) {
			s.AlwaysGate = r.IntN(2) == 0
			s.DrainTimeout = 200*ms + r.Int64N(300*ms)
		})
		p := w.program(w.box("late", 0.5+4*r.Float64()), ms, 8, 0)
		var others []*program
		for range 1 + r.IntN(3) {
			others = append(others, w.program(w.box("other", 0.5+4*r.Float64()), 100*us+r.Int64N(2*ms), 8, 0))
		}
		for from := w.now; p.in.seats[0].state != seatDraining || len(p.flight) == 0; {
			if w.run(step); w.now-from > 60*sec {
				t.Fatalf("seed %d: no drain of the program within a minute", seed+i)
			}
		}
		p.ties, p.tieNS, p.frozen = 1+r.IntN(6), r.Int64N(8*ms), true
		needs := p.ties
		w.run(w.table.config.DrainTimeout + r.Int64N(4*sec))
		if p.in.seats[0].state != seatLate && p.in.seats[0].state != seatLateOpen {
			t.Fatalf("seed %d: state %d after the drain timeout", seed+i, p.in.seats[0].state)
		}
		late++
		p.frozen = false
		from, before := w.now, gots(others...)
		for p.ties > 0 {
			if w.run(step); w.now-from > int64(needs+1)*3*sec {
				t.Fatalf("seed %d: %d of %d launches still to be made after %d ms, state %d", seed+i, p.ties, needs,
					(w.now-from)/ms, p.in.seats[0].state)
			}
		}
		sum := int64(0)
		for j, o := range others {
			sum += o.got - before[j]
		}
		// The kernel that waits has its slices.
		if span := w.now - from; sum < span*4/10-20*ms {
			t.Errorf("seed %d: the others have had %d ms of %d", seed+i, sum/ms, span/ms)
		}
		done := p.done
		if w.run(sec); p.done == done {
			t.Errorf("seed %d: its work is not done, state %d", seed+i, p.in.seats[0].state)
		}
	}
	t.Logf("%d were late", late)
}

// TestLateSeatIsClosed: without threads that wait the gate of a late lease stays closed; with some it is open for a
// small part of the time, under the number that the drain has, and the other one works on with a window.
func TestLateSeatIsClosed(t *testing.T) {
	for _, waits := range []bool{true, false} {
		w := newWorld(t, 1, nil)
		a, b := w.program(w.box("a", 1), ms, 8, 0), w.program(w.box("b", 1), ms, 8, 0)
		for a.in.seats[0].state != seatDraining || len(a.flight) == 0 {
			w.run(step)
		}
		if a.stuck = true; !waits {
			a.until = w.now
		}
		w.run(1100 * ms)
		number, open := a.in.seats[0].number, int64(0)
		for range 5 * sec / step {
			w.run(step)
			if s := &a.in.seats[0]; !s.isLate() || s.number != number {
				t.Fatalf("threads wait: %v: state %d, number %d and then %d", waits, s.state, number, s.number)
			}
			if a.in.words[0].Open() {
				open += step
			}
			if word := b.in.words[0]; word.Window == 0 || !word.Rivals {
				t.Fatalf("threads wait: %v: the other is taken to be alone: %+v", waits, word)
			}
		}
		if waits != (open > 0) || open > 5*sec/12 {
			t.Errorf("threads wait: %v: the gate was open for %d ms of 5 s", waits, open/ms)
		}
		a.stuck, a.until = false, 1<<62
		w.run(3 * sec)
		before := gots(a, b)
		w.run(3 * sec)
		near(t, "once it is over", parts(before, a, b)[0], 0.5, 0.05)
	}
}

// TestLateOnTwoGPUs: a lease is over only when it is drained on both, and its gates open together, that of a GPU which
// the container has come to use since, too.
func TestLateOnTwoGPUs(t *testing.T) {
	w := newWorld(t, 2, always)
	both := w.box("both", 1)
	a := w.program(both, ms, 4, 0)
	b0, b1 := w.program(w.box("b0", 1), ms, 4, 0), w.program(w.box("b1", 1), ms, 4, 0)
	b1.gpu = 1
	for both.seats[0].state != seatDraining || len(a.flight) == 0 {
		w.run(step)
	}
	a.stuck = true
	w.run(1100 * ms)
	peer := w.program(both, ms, 4, 0) // what the kernel waits for
	peer.gpu = 1
	was := gots(b0, b1)
	for from := w.now; len(peer.flight) == 0; {
		if w.run(step); w.now-from > 3*sec {
			t.Fatalf("states %d and %d: the gate of the new GPU stays closed", both.seats[0].state, both.seats[1].state)
		}
	}
	if both.seats[0].state != seatLateOpen || both.seats[1].state != seatLateOpen {
		t.Errorf("states %d and %d", both.seats[0].state, both.seats[1].state)
	}
	for len(peer.flight) > 0 {
		w.run(step)
	}
	if !both.seats[0].isLate() || !both.seats[1].isLate() {
		t.Errorf("drained on one of two: states %d and %d", both.seats[0].state, both.seats[1].state)
	}
	a.stuck = false
	w.run(5 * sec)
	for i, now := range gots(b0, b1) {
		if now-was[i] < sec {
			t.Errorf("beside it on GPU %d: %d ms in five seconds", i, (now-was[i])/ms)
		}
	}
	if both.seats[0].isLate() || both.seats[1].isLate() {
		t.Errorf("afterwards: states %d and %d", both.seats[0].state, both.seats[1].state)
	}
}

// TestStoppedBesideAnother: a process that is stopped, and another one of its container that goes on whenever the gate
// opens in the drain. That is no knot, and costs others nothing.
func TestStoppedBesideAnother(t *testing.T) {
	for _, change := range []func(*Settings){always, nil} {
		w := newWorld(t, 1, change)
		in := w.box("a", 1)
		stopped := w.program(in, ms, 8, 0)
		w.program(in, ms, 8, 0)
		b := w.program(w.box("b", 3), ms, 8, 0)
		w.run(3 * sec)
		stopped.frozen = true
		for range 4 {
			before := b.got
			w.run(10 * sec)
			if part := float64(b.got-before) / float64(10*sec); part < 0.7 {
				t.Errorf("the other has had %.2f of 10 s, with three quarters of the weight", part)
			}
		}
		if n := w.count("co-run", "a"); n > 0 {
			t.Errorf("it was co-run %d times", n)
		}
		stopped.frozen = false
		w.run(3 * sec)
		before := gots(w.progs...)
		w.run(5 * sec)
		near(t, "once it goes on", parts(before, w.progs...)[2], 0.75, 0.03)
	}
}
