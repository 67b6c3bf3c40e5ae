package sched

// Leases whose holders bring their memory first.

import (
	"slices"
	"testing"
)

// entering is a GPU whose gates are closed, with three flows that want it.
func entering(t *testing.T, quantum int64) *Node {
	t.Helper()
	n, err := New(Default().Moving(quantum))
	if err != nil {
		t.Fatal(err)
	}
	for id := FlowID(1); id <= 3; id++ {
		if err := n.Add(Container{ID: id, Weight: 1, GPUs: []int{0}, Leases: 1}); err != nil {
			t.Fatal(err)
		}
		n.Want(0, id, 1)
	}
	return n
}

// TestQuantumBeginsWhenMemoryIsThere: what brings the memory is charged, and takes nothing off the quantum.
func TestQuantumBeginsWhenMemoryIsThere(t *testing.T) {
	n := entering(t, 100*ms)
	l := n.queues[0].leases[0]
	n.Begins(0, 1, l.number, 300*ms)
	if n.Next() != 400*ms {
		t.Errorf("a lease whose gate opens at 300 ms at the latest is due at %d", n.Next())
	}
	n.Begins(150*ms, 1, l.number, 150*ms)
	if decisions := n.Tick(249 * ms); len(decisions) > 0 {
		t.Errorf("%+v before the quantum is over", decisions)
	}
	if decisions := n.Tick(250 * ms); len(decisions) != 1 || decisions[0].Kind != Revoke {
		t.Errorf("%+v when it is", decisions)
	}
	n.Begins(251*ms, 1, l.number, 251*ms)
	n.Close(260*ms, 1, l.number, true)
	if v, _ := n.ViewOn(1, 0); v.Served != 260*ms {
		t.Errorf("%d ns are charged", v.Served)
	}
	n.Begins(261*ms, 1, l.number, sec) // of a lease that is over, and of nobody
	n.Begins(261*ms, 9, l.number, sec)
	if n.Next() > 400*ms {
		t.Errorf("the next lease is due at %d", n.Next())
	}
}

// TestMovingTellsNothingOfOperations: their cost is measured from the beginning of the quantum on.
func TestMovingTellsNothingOfOperations(t *testing.T) {
	n := entering(t, 100*ms)
	l := n.queues[0].leases[0]
	n.Begins(150*ms, 1, l.number, 150*ms)
	n.Used(170*ms, 1, 0, Use{Busy: 20 * ms, Work: 20})
	if n.queues[0].settle(l); l.had != 20*ms {
		t.Errorf("%d ns for 20 operations", l.had)
	}
}

// TestWhoIsExpectedNext: in the order of virtual time, one lease after the other.
func TestWhoIsExpectedNext(t *testing.T) {
	n := entering(t, 100*ms)
	want := []Expected{{2, 100 * ms}, {3, 200 * ms}}
	if got := n.Expected(0, nil); !slices.Equal(got, want) {
		t.Errorf("at first %v", got)
	}
	lease := n.queues[0].leases[0].number
	n.Tick(100 * ms)
	n.Close(150*ms, 1, lease, true)
	want = []Expected{{3, 250 * ms}, {1, 350 * ms}}
	if got := n.Expected(0, nil); !slices.Equal(got, want) {
		t.Errorf("after the first lease %v", got)
	}
	open, _ := New(Default())
	if got := open.Expected(0, nil); len(got) != 0 {
		t.Errorf("with the gate open %v", got)
	}
}

// TestLongQuantumLeavesDrainsTheirPatience: a knot in a drain is undone before the drain is given up, however long a
// quantum lasts.
func TestLongQuantumLeavesDrainsTheirPatience(t *testing.T) {
	n := entering(t, 11*sec)
	lease := n.queues[0].leases[0].number
	n.Tick(11 * sec)
	for n.Next() < 12*sec {
		for _, d := range n.Tick(n.Next()) {
			if d.Kind == Reopen && d.Lease == lease {
				return
			}
		}
	}
	t.Error("the drain is given up, and the gate was never open")
}

func TestMovingConfigurations(t *testing.T) {
	c := Default()
	for quantum, want := range map[int64]int64{1: c.Quantum, 2 * sec: 2 * sec, 2 * TimeMax: TimeMax} {
		m := c.Moving(quantum)
		if m.Quantum != want || m.Threshold != max(want-1, c.Threshold) || !m.AlwaysGate || m.Check() != nil {
			t.Errorf("a quantum of %d gives %d, threshold %d: %v", quantum, m.Quantum, m.Threshold, m.Check())
		}
	}
}

// TestGatesCloseByConfiguration: also where nobody has ever used the GPU, and while somebody is paid what it is owed.
func TestGatesCloseByConfiguration(t *testing.T) {
	n, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := n.Configure(sec, 0, Default().Moving(sec))
	if err != nil || len(decisions) != 1 || decisions[0].Kind != Gate {
		t.Errorf("%+v, %v", decisions, err)
	}
	n.queues[0].mode.paying = true
	if n.Configure(sec, 0, Default().Moving(2*sec)); n.queues[0].mode.paying {
		t.Error("it goes on as if the gates would open soon")
	}
	if decisions, _ = n.Configure(2*sec, 0, Default()); len(decisions) != 1 || decisions[0].Kind != Open {
		t.Errorf("%+v when all fits again", decisions)
	}
}
