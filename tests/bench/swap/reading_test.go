package swap

// What is made of rows.

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// one row: two programs, of pids 7 and 9.
func rowOf(at, busyA, busyB time.Duration, residentA, residentB int64) row {
	return row{at: at, of: []sample{{busy: busyA, resident: residentA}, {busy: busyB, resident: residentB}}}
}

func TestRowsAreRead(t *testing.T) {
	tenants := []*tenant{{pid: 9, set: 100}, {pid: 7, set: 200}}
	text := "5 7 1 10 20 30 40 50 60 70 80 90 99\n" +
		"6 7 1 11 21 31 41 51 61 71 81 91 99 8 1 0 0 0 0 0 0 0 0 0 0 9 1 12 22 32 42 52 62 72 82 92 102\n" +
		"7 7 1 11 21\n" // cut off
	s := newSeries(tenants, text)
	if len(s.rows) != 2 || s.sets[1] != 200 {
		t.Fatalf("%d rows, sets %v", len(s.rows), s.sets)
	}
	want := sample{busy: 12, launches: 22, fault: 32, resident: 42, faulted: 52, populated: 62, fetched: 72, swappedOut: 82, gone: 92, plain: 102}
	if got := s.rows[1].of[0]; got != want {
		t.Errorf("pid 9 is %+v", got)
	}
	if got := s.rows[0].of[0]; got != (sample{}) {
		t.Errorf("pid 9 is there before it is: %+v", got)
	}
}

// A works from 0 to 100.5 ms, B from 120.3 to 220 ms; 60 of B's 80 bytes lay on the card when A had done, 40 at the least.
func TestHandOverIsTimedWithinARow(t *testing.T) {
	s := &series{sets: []int64{100, 80}}
	for at := time.Duration(0); at <= 220*ms; at += ms {
		busyA, busyB := min(at, 100*ms+ms/2), max(0, at-120*ms-3*ms/10)
		residentB := int64(40)
		if at > 90*ms {
			residentB = 60
		}
		if at > 110*ms {
			residentB = 80
		}
		s.rows = append(s.rows, rowOf(at, busyA, busyB, 100, residentB))
	}
	changes := s.changes()
	if len(changes) != 1 {
		t.Fatalf("%d hand-overs: %+v", len(changes), changes)
	}
	c := changes[0]
	if c.from != 0 || c.to != 1 || c.stood != 19800*time.Microsecond || c.lacked != 40 || c.lacking != 20 {
		t.Errorf("it is %+v", c)
	}
	// At 1 byte a ms: 46 ms for all with what is allowed beyond, of which 20 were moved before.
	if most := c.most(card{link: 1000}); most != 26*ms {
		t.Errorf("it may take %s", most)
	}
}

// Faults within the second lease count as standing still; turns of slices are no hand-overs.
func TestFaultsAndSlices(t *testing.T) {
	s := &series{sets: []int64{1, 1}}
	for i := range 40 { // slices of 1 ms
		at := time.Duration(i) * ms
		s.rows = append(s.rows, rowOf(at, time.Duration((i+1)/2)*ms, time.Duration(i/2)*ms, 0, 0))
	}
	if changes := s.changes(); len(changes) != 0 {
		t.Errorf("slices are hand-overs: %+v", changes)
	}
	a := s.rows[len(s.rows)-1].of[0].busy
	b := s.rows[len(s.rows)-1].of[1].busy
	for i := range 100 {
		at := time.Duration(40+i) * ms
		r := rowOf(at, a+min(time.Duration(i), 50)*ms, b+max(0, time.Duration(i)-50)*ms, 0, 0)
		if i > 60 {
			r.of[1].fault = 5 * ms
		}
		s.rows = append(s.rows, r)
	}
	changes := s.changes()
	if len(changes) != 1 || changes[0].stood != 5*ms {
		t.Errorf("hand-overs: %+v", changes)
	}
}
