package sched

// Single rules of a node, each by hand.

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// newNode makes one GPU for each configuration, and containers 1 to n of weight 1 on the first.
func newNode(t *testing.T, n int, configs ...Config) *Node {
	t.Helper()
	node, err := New(configs...)
	if err != nil {
		t.Fatal(err)
	}
	for id := range n {
		if err := node.Add(Container{ID: FlowID(id + 1), Weight: 1, GPUs: []int{0}, Leases: 1}); err != nil {
			t.Fatal(err)
		}
	}
	return node
}

func gated() Config {
	c := Default()
	c.AlwaysGate = true
	return c
}

// found is the first decision of a kind; the zero value if there is none.
func found(decisions []Decision, kind Kind) Decision {
	for _, d := range decisions {
		if d.Kind == kind {
			return d
		}
	}
	return Decision{}
}

func TestBadInputIsRefused(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"quantum":         func(c *Config) { c.Quantum = 0 },
		"threshold":       func(c *Config) { c.Threshold = -1 },
		"slots":           func(c *Config) { c.Slots = 0 },
		"alpha":           func(c *Config) { c.Alpha = math.NaN() },
		"utilisation_max": func(c *Config) { c.UtilisationMax = 101 },
		"drain_timeout":   func(c *Config) { c.DrainTimeout = TimeMax + 1 },
		"gated_max":       func(c *Config) { c.GatedMax = c.GatedFor - 1 },
	} {
		c := Default()
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("a bad %s: %v", key, err)
		}
	}
	node := newNode(t, 1, Default())
	for _, weight := range []float64{0, -1, math.NaN(), math.Inf(1), 1e30} {
		if err := node.Add(Container{ID: 2, Weight: weight, GPUs: []int{0}, Leases: 1}); err == nil {
			t.Errorf("weight %g was taken", weight)
		}
		if _, err := node.SetWeight(0, 1, weight); err == nil {
			t.Errorf("weight %g was set", weight)
		}
	}
	for _, c := range []Container{
		{ID: 0, Weight: 1, GPUs: []int{0}, Leases: 1}, {ID: 1, Weight: 1, GPUs: []int{0}, Leases: 1},
		{ID: 2, Weight: 1, Leases: 1}, {ID: 2, Weight: 1, GPUs: []int{0, 0}, Leases: 1},
		{ID: 2, Weight: 1, GPUs: []int{1}, Leases: 1}, {ID: 2, Weight: 1, GPUs: []int{0}, Leases: 2},
		{ID: 2, Weight: 1, GPUs: []int{0}},
	} {
		if err := node.Add(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

// TestWeightChangesInTheMiddle: a lease is charged by each weight for the time in which it held.
func TestWeightChangesInTheMiddle(t *testing.T) {
	node := newNode(t, 2, gated())
	lease := found(node.Want(0, 1, 1), Grant).Lease
	node.Want(0, 2, 1)
	if _, err := node.SetWeight(6*ms, 1, 4); err != nil {
		t.Fatal(err)
	}
	if next := found(node.Close(10*ms, 1, lease, true), Grant); next.Flow != 2 {
		t.Fatalf("flow %d is next", next.Flow)
	}
	if got, want := node.View(1)[0].Virtual, float64(6*ms+4*ms/4); got != want {
		t.Errorf("C is %g, not %g", got, want)
	}
	if got := node.View(1)[0].Served; got != 10*ms {
		t.Errorf("it was charged %d ns", got)
	}
}

// TestCostIsTheAgentsTimeWhileOthersWait: whatever the holder reports.
func TestCostIsTheAgentsTimeWhileOthersWait(t *testing.T) {
	for _, busy := range []int64{0, 3 * ms, math.MaxInt64} {
		node := newNode(t, 2, gated())
		lease := found(node.Want(0, 1, 1), Grant).Lease
		node.Want(4*ms, 2, 1) // for 4 ms nobody waited
		node.Used(9*ms, 1, 0, Use{Busy: busy})
		node.Close(9*ms, 1, lease, true)
		want := min(max(busy, 5*ms), 9*ms)
		if got := node.View(1)[0].Served; got != want {
			t.Errorf("9 ms, 5 of them with others waiting, and %d reported: charged %d", busy, got)
		}
	}
}

// TestGrace: a gap of less costs a flow nothing of what it is owed, and others wait for it as long.
func TestGrace(t *testing.T) {
	for _, gap := range []int64{0, 2 * ms, 4 * ms} {
		c := gated()
		c.Threshold, c.Grace = 0, 3*ms
		node := newNode(t, 2, c)
		first := found(node.Want(0, 1, 1), Grant).Lease
		node.Want(0, 2, 1)
		second := found(node.Close(10*ms, 1, first, true), Grant)
		if second.Flow != 2 {
			t.Fatalf("flow %d is next", second.Flow)
		}
		// Flow 2 has had less, and goes idle.
		d := node.Close(12*ms, 2, second.Lease, false)
		if found(d, Grant).Flow == 1 {
			t.Fatal("flow 1 did not wait for the other's grace")
		}
		if gap == 4*ms {
			if d := node.Tick(15 * ms); found(d, Grant).Flow != 1 {
				t.Fatalf("at the end of the grace: %v", d)
			}
			node.Want(16*ms, 2, 1)
			if got := node.View(2)[0].Virtual; got < float64(10*ms) {
				t.Errorf("back from idle, C is %g: it has saved up its turn", got)
			}
			continue
		}
		if d := node.Want(12*ms+gap, 2, 1); found(d, Grant).Flow != 2 {
			t.Errorf("back after %d ms it is not next: %v", gap/ms, d)
		}
	}
}

// TestMemoryStaysForAlphaTimesTheUsualGap: then it may go, and nobody is told before.
func TestMemoryStaysForAlphaTimesTheUsualGap(t *testing.T) {
	c := gated()
	c.Alpha = 3
	node := newNode(t, 1, c)
	now := int64(1)
	for range 5 { // a lease each 100 ms
		node.Tick(now)
		lease := found(node.Want(now, 1, 1), Grant).Lease
		node.Close(now+10*ms, 1, lease, false)
		now += 100 * ms
	}
	idle := now - 90*ms
	for now = node.Next(); now != Never; now = node.Next() {
		if d := found(node.Tick(now), Evictable); d.Flow == 1 {
			if kept := now - idle - c.Grace; kept != 300*ms {
				t.Errorf("it was kept for %d ms", kept/ms)
			}
			return
		}
	}
	t.Error("its memory is kept for ever")
}

// TestNextOneIsPrefetched: when the holder's last quantum begins, and only where memory has to move.
func TestNextOneIsPrefetched(t *testing.T) {
	c := gated()
	c.Threshold = 0
	node := newNode(t, 3, c)
	node.Resident(0, 2, 0, false, 100*ms)
	node.Want(0, 1, 1)
	if d := node.Want(0, 2, 1); found(d, Prefetch).Flow != 0 {
		t.Fatalf("prefetched too early: %v", d)
	}
	if d := node.Tick(c.Quantum); found(d, Revoke).Flow != 1 || found(d, Prefetch).Flow != 2 {
		t.Fatalf("at the end of the quantum: %v", d)
	}
	node.Resident(c.Quantum, 2, 0, true, 0)
	if d := node.Tick(2 * c.Quantum); found(d, Prefetch).Flow != 0 {
		t.Errorf("prefetched again: %v", d)
	}
}

// TestResidentFlowsGoFirst: among those that may run.
func TestResidentFlowsGoFirst(t *testing.T) {
	node := newNode(t, 3, gated())
	node.Resident(0, 2, 0, false, 100*ms)
	lease := found(node.Want(0, 1, 1), Grant).Lease
	node.Want(0, 2, 1)
	node.Want(ms, 3, 1)
	if d := node.Close(2*ms, 1, lease, false); found(d, Grant).Flow != 3 {
		t.Errorf("next: %v", d)
	}
}

// TestSlotsFollowUtilisation: more than one lease only while the GPU has room.
func TestSlotsFollowUtilisation(t *testing.T) {
	for _, busy := range []float64{20, 100} {
		c := gated()
		c.Slots, c.UtilisationMax = 3, 90
		node := newNode(t, 3, c)
		granted := 0
		for range 4 {
			node.Utilisation(0, 0, busy)
		}
		for id := range 3 {
			granted += len(slices.DeleteFunc(node.Want(ms, FlowID(id+1), 1), func(d Decision) bool { return d.Kind != Grant }))
		}
		if busy == 100 && granted != 1 || busy == 20 && granted != 2 {
			t.Errorf("at %g %%: %d leases", busy, granted)
		}
	}
}

// TestGoesBackToItsGPU: unless another serves it sooner by more than moving takes.
func TestGoesBackToItsGPU(t *testing.T) {
	for _, move := range []int64{5 * ms, 500 * ms} {
		node := newNode(t, 2, gated(), gated())
		if err := node.Add(Container{ID: 9, Weight: 1, GPUs: []int{0, 1}, Choose: true, Leases: 1}); err != nil {
			t.Fatal(err)
		}
		node.Resident(0, 9, 0, true, move)
		node.Resident(0, 9, 1, false, move)
		d := found(node.Want(0, 9, 1), Grant)
		if d.GPU != 0 {
			t.Fatalf("it began on GPU %d", d.GPU)
		}
		node.Close(ms, 9, d.Lease, false)
		node.Want(ms, 1, 1)
		node.Want(ms, 2, 1)
		d = found(node.Want(10*ms, 9, 1), Grant)
		if moved := d.Flow == 9 && d.GPU == 1; moved != (move == 5*ms) {
			t.Errorf("moving takes %d ms, two wait on its GPU, none on the other: %+v", move/ms, d)
		}
	}
}

// TestStaysOnItsGPU: where another would serve it as soon, and its memory is on both.
func TestStaysOnItsGPU(t *testing.T) {
	node := newNode(t, 1, gated(), gated())
	if err := node.Add(Container{ID: 9, Weight: 1, GPUs: []int{0, 1}, Choose: true, Leases: 1}); err != nil {
		t.Fatal(err)
	}
	for now := int64(0); now < 10*ms; now += 2 * ms {
		d := found(node.Want(now, 9, 1), Grant)
		if d.GPU != 0 || d.Flow != 9 {
			t.Fatalf("at %d ms: %+v", now/ms, d)
		}
		node.Close(now+ms, 9, d.Lease, false)
	}
}

// TestSwitchingLengthensTheQuantum: T is the switch's cost over the part of time that switches may take.
func TestSwitchingLengthensTheQuantum(t *testing.T) {
	c := Default().Switching(330*ms, 0.05)
	if c.Threshold != 6600*ms || c.Quantum != 2640*ms {
		t.Errorf("T %d ms, Q %d ms", c.Threshold/ms, c.Quantum/ms)
	}
	if c := Default().Switching(ms, 0.05); c != Default() {
		t.Errorf("a switch of 1 ms: %+v", c)
	}
}

// TestGateIsOpenWithoutRivals: the first rival closes it, to be measured.
func TestGateIsOpenWithoutRivals(t *testing.T) {
	node := newNode(t, 2, Default())
	if d := node.Want(0, 1, 1); found(d, Open).Flow != 1 || found(d, Grant).Flow != 0 {
		t.Fatalf("alone: %v", d)
	}
	if d := node.Want(ms, 2, 1); found(d, Gate) == (Decision{}) || found(d, Grant).Flow != 1 {
		t.Fatalf("a rival that was never measured: %v", d)
	}
	node.Used(20*ms, 1, 0, Use{Busy: 19 * ms, Work: 19})
	if d := node.Idle(21*ms, 2); found(d, Open).Kind == Open {
		t.Fatalf("opened before the rival's grace is over: %v", d)
	}
	if d := node.Tick(25 * ms); found(d, Open).Kind != Open {
		t.Errorf("alone again: %v", d)
	}
}

// TestLateCloseIsIgnored: of a lease that was never there, or has ended.
func TestLateCloseIsIgnored(t *testing.T) {
	node := newNode(t, 2, gated())
	lease := found(node.Want(0, 1, 1), Grant).Lease
	node.Close(ms, 1, lease, true)
	again := found(node.Want(ms, 1, 1), Grant)
	before := node.View(1)[0]
	for _, number := range []uint64{0, lease, 12345} {
		if d := node.Close(2*ms, 1, number, false); len(d) != 0 {
			t.Errorf("lease %d: %v", number, d)
		}
	}
	if after := node.View(1)[0]; after != before {
		t.Errorf("%+v became %+v; %v", before, after, again)
	}
}

// TestLeasesBesideWorkFromBeforeAreNotMeasured: what flow 1 submitted before the gate closed runs on beside the first
// lease of flow 2, which is measured on others, unless flow 1 says that it is done. A flow's first measuring is for nothing.
func TestLeasesBesideWorkFromBeforeAreNotMeasured(t *testing.T) {
	for _, done := range []bool{false, true} {
		node := newNode(t, 2, Default())
		node.Resident(0, 1, 0, false, 0) // so that the other goes first
		node.Want(0, 1, 1)
		node.Used(10*ms, 1, 0, Use{Busy: 10 * ms, Work: 10})
		d := node.Want(11*ms, 2, 1)
		if found(d, Gate) == (Decision{}) || found(d, Grant).Flow != 2 {
			t.Fatalf("a newcomer: %v", d)
		}
		node.Resident(11*ms, 1, 0, true, 0)
		if done {
			node.Drained(12*ms, 1, 0)
			d = node.Close(12*ms, 2, found(d, Grant).Lease, true)
		}
		lease, now, leases := found(d, Grant), 12*ms, map[FlowID]int{}
		for node.queues[0].mode.gated && lease.Flow != 0 && leases[1]+leases[2] < 10 {
			leases[lease.Flow]++
			now += 25 * ms
			node.Used(now, lease.Flow, 0, Use{Busy: 25 * ms, Work: 25})
			lease = found(node.Close(now, lease.Flow, lease.Lease, true), Grant)
		}
		if measuredAtOnce := leases[2] == 2; node.queues[0].mode.gated || measuredAtOnce != done {
			t.Errorf("done before: %v: gated %v after %v leases", done, node.queues[0].mode.gated, leases)
		}
	}
}

// TestWorkThatHasBecomeOther: what earlier phases tell is left out once a phase tells something else by far, and counts
// a quarter where they agree.
func TestWorkThatHasBecomeOther(t *testing.T) {
	for name, one := range map[string]struct{ had, work, want float64 }{
		"as before":      {24, 16, (24 + 100.0/4) / (16 + 80.0/4)},
		"a fifth of it":  {20, 80, 20.0 / 80},
		"twice as much":  {20, 8, 20.0 / 8},
		"too short once": {5, 20, (5 + 100.0/4) / (20 + 80.0/4)},
	} {
		n, err := New(Default())
		if err != nil {
			t.Fatal(err)
		}
		q := n.queues[0]
		f := &flow{on: q, rate: rate{work: 80, cost: 100 * float64(ms), tried: true, known: true, aged: 1}}
		q.mode.phase = 2
		q.measure(&lease{flow: f, clean: true, had: int64(one.had * float64(ms)), work: int64(one.work)})
		if got := f.rate.cost / f.rate.work / float64(ms); math.Abs(got-one.want) > 1e-9 {
			t.Errorf("%s: %.3f ms an operation, want %.3f", name, got, one.want)
		}
	}
}

// TestRenewedWhileNobodyWaited: a lease that went on because nobody waited ends at once when somebody does, if its
// flow is too far ahead to be granted one.
func TestRenewedWhileNobodyWaited(t *testing.T) {
	c := gated()
	c.Threshold, c.Grace = 0, sec
	node := newNode(t, 2, c)
	node.Close(0, 2, found(node.Want(0, 2, 1), Grant).Lease, false)
	node.Want(0, 1, 1)
	if d := node.Tick(c.Quantum); found(d, Revoke).Flow != 0 {
		t.Fatalf("nobody waits: %v", d)
	}
	node.Used(25*ms, 1, 0, Use{Busy: 25 * ms})
	node.Want(26*ms, 2, 1)
	if at := node.Next(); at > 26*ms+1 || found(node.Tick(at), Revoke).Flow != 1 {
		t.Errorf("it is %g ns ahead and was not revoked by %d", node.View(1)[0].Virtual-node.View(2)[0].Virtual, at)
	}
}

// TestFewerSlots: leases beyond the slots that are left end at their quantum, whether others wait or not.
func TestFewerSlots(t *testing.T) {
	c := gated()
	c.Slots = 3
	node := newNode(t, 4, c)
	for id := range FlowID(3) {
		if d := node.Want(0, id+1, 1); found(d, Grant).Flow != id+1 {
			t.Fatalf("flow %d: %v", id+1, d)
		}
	}
	c.Slots = 1
	if _, err := node.Configure(ms, 0, c); err != nil {
		t.Fatal(err)
	}
	revoked := map[FlowID]uint64{}
	for _, d := range node.Tick(c.Quantum) {
		if d.Kind == Revoke {
			revoked[d.Flow] = d.Lease
		}
	}
	if len(revoked) != 2 {
		t.Fatalf("three leases and one slot: %v were revoked", revoked)
	}
	for id, lease := range revoked {
		if d := node.Close(21*ms, id, lease, true); found(d, Grant).Flow != 0 {
			t.Errorf("no slot is free: %v", d)
		}
	}
}
