package sched

// A container that uses other GPUs while it runs, and what can be seen of its flows.

import "testing"

func setGPUs(t *testing.T, node *Node, now int64, id FlowID, gpus ...int) []Decision {
	t.Helper()
	d, err := node.SetGPUs(now, id, gpus)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestOneMoreGPU: the lease on the one that it has goes on, and it goes first on the other, with the same
// lease. From then on it is granted both or none.
func TestOneMoreGPU(t *testing.T) {
	node := newNode(t, 2, gated(), gated())
	if err := node.Add(Container{ID: 9, Weight: 1, GPUs: []int{1}, Leases: 1}); err != nil {
		t.Fatal(err)
	}
	lease := found(node.Want(0, 1, 1), Grant).Lease
	other := found(node.Want(0, 9, 1), Grant).Lease
	node.Want(0, 2, 1)
	if d := setGPUs(t, node, 10*ms, 1, 0, 1); found(d, Revoke).Flow != 9 {
		t.Fatalf("its gang waits for GPU 1, whose holder has had half a quantum: %v", d)
	}
	if got := node.View(1)[0]; got.State != "leased" || got.Leases != 1 {
		t.Errorf("on the GPU that it had: %+v", got)
	}
	if d := found(node.Close(11*ms, 9, other, true), Grant); d.Flow != 1 || d.GPU != 1 || d.Lease != lease {
		t.Fatalf("on the new GPU: %+v", d)
	}
	if d := found(node.Close(12*ms, 1, lease, true), Grant); d.Flow != 2 && d.Flow != 9 {
		t.Fatalf("after it: %+v", d)
	}
	for _, v := range node.View(1) {
		if want := []float64{float64(12 * ms), float64(ms)}[v.GPU]; v.State == "leased" || v.Virtual != want {
			t.Errorf("after its end: %+v, C was to be %g", v, want)
		}
	}
}

// TestOneGPULess: a gang that waited for it begins without it, and what it has had there is kept.
func TestOneGPULess(t *testing.T) {
	node := newNode(t, 1, gated(), gated())
	if err := node.Add(Container{ID: 9, Weight: 2, GPUs: []int{0, 1}, Leases: 1}); err != nil {
		t.Fatal(err)
	}
	lease := found(node.Want(0, 9, 1), Grant).Lease
	node.Want(0, 1, 1)
	node.Close(8*ms, 9, lease, true)
	had := node.View(9)
	setGPUs(t, node, 8*ms, 9, 1)
	if got := node.View(9); len(got) != 1 || got[0].GPU != 1 || got[0].Virtual < had[1].Virtual {
		t.Errorf("it had %+v, and has %+v", had, got)
	}
	if got, uses := node.ViewOn(9, 1); !uses || got.State != "leased" {
		t.Errorf("it waited for GPU 0 only, which it does not use any more: %+v", got)
	}
	if got, uses := node.ViewOn(9, 0); uses {
		t.Errorf("on the GPU that it has left: %+v", got)
	}
	setGPUs(t, node, 9*ms, 9, 1, 0)
	if got := node.View(9)[0]; got.Virtual < had[0].Virtual || got.Leases != 1 {
		t.Errorf("back after a millisecond: %+v; it had %+v", got, had[0])
	}
}

func TestGPUsThatAreRefused(t *testing.T) {
	node := newNode(t, 1, gated(), gated())
	if err := node.Add(Container{ID: 9, Weight: 1, GPUs: []int{0, 1}, Choose: true, Leases: 1}); err != nil {
		t.Fatal(err)
	}
	for _, gpus := range [][]int{nil, {2}, {-1}, {0, 0}} {
		if _, err := node.SetGPUs(0, 1, gpus); err == nil {
			t.Errorf("GPUs %v were taken", gpus)
		}
	}
	if _, err := node.SetGPUs(0, 9, []int{0}); err == nil {
		t.Error("one that may choose was given GPUs")
	}
	if d, err := node.SetGPUs(0, 77, []int{0}); err != nil || d != nil {
		t.Errorf("one that is not there: %v, %v", d, err)
	}
}

// stalledDrain is a flow of weight 1 whose lease has just been revoked, with another that waits.
func stalledDrain(t *testing.T) (node *Node, now int64) {
	t.Helper()
	c := gated()
	c.Threshold = 0
	node = newNode(t, 2, c)
	node.Want(0, 1, 1)
	node.Want(0, 2, 1)
	if d := node.Tick(c.Quantum); found(d, Revoke).Flow != 1 {
		t.Fatalf("at the end of the quantum: %v", d)
	}
	return node, c.Quantum
}

// TestGateOpensAgainForWhoWaitsThereOnly: a drain that stands still is helped by an open gate only where
// somebody waits at the closed one.
func TestGateOpensAgainForWhoWaitsThereOnly(t *testing.T) {
	node, revoked := stalledDrain(t)
	node.Waiters(revoked+ms, 1, false)
	for now := node.Next(); now < revoked+100*ms; now = node.Next() {
		if d := node.Tick(now); found(d, Reopen).Flow != 0 {
			t.Fatalf("nobody waits at the gate, and it was opened %d ms after the revocation", (now-revoked)/ms)
		}
	}
	node.Waiters(revoked+100*ms, 1, true)
	at := node.Next()
	if d := node.Tick(at); found(d, Reopen).Flow != 1 || at > revoked+101*ms {
		t.Fatalf("somebody waits at the gate of a drain that stands still: %v at %d ms", d, (at-revoked)/ms)
	}
	if got := node.View(1)[0].Reopened; got != 1 {
		t.Errorf("%d drains were helped", got)
	}
}

// TestWaitersAreForgottenAtTheNextRevocation: what was so at an earlier one tells nothing.
func TestWaitersAreForgottenAtTheNextRevocation(t *testing.T) {
	node, revoked := stalledDrain(t)
	lease := node.containers[1].flows[0].leases[0].number
	node.Waiters(revoked, 1, false)
	second := found(node.Close(revoked+ms, 1, lease, true), Grant)
	now := revoked + ms
	for node.Tick(now); node.View(2)[0].State != "draining"; node.Tick(now) {
		now = node.Next()
	}
	node.Close(now, 2, second.Lease, true)
	for range 1000 {
		now = node.Next()
		if d := node.Tick(now); found(d, Reopen).Flow == 1 {
			return
		}
	}
	t.Error("its second drain stands still for ever, and its gate was not opened again")
}

// TestViewTellsWhatIsAskedFor: the share of the weights that count now, and waits that go on.
func TestViewTellsWhatIsAskedFor(t *testing.T) {
	node := newNode(t, 3, gated())
	if _, err := node.SetWeight(0, 2, 3); err != nil {
		t.Fatal(err)
	}
	node.Want(ms, 1, 1)
	node.Want(2*ms, 2, 1)
	for id, want := range map[FlowID]View{
		1: {Weight: 1, Asked: 0.25, State: "leased"},
		2: {Weight: 3, Asked: 0.75, State: "waiting", WaitsFrom: 2 * ms},
		3: {Weight: 1, Asked: 0.2, State: "idle"},
	} {
		got := node.View(id)[0]
		if got.Weight != want.Weight || got.Asked != want.Asked || got.State != want.State || got.WaitsFrom != want.WaitsFrom {
			t.Errorf("flow %d: %+v", id, got)
		}
	}
	if n := testing.AllocsPerRun(10, func() { node.ViewOn(1, 0) }); n != 0 {
		t.Errorf("ViewOn makes garbage, %g times", n)
	}
}

// TestGangIsAtWorkOnAllItsGPUs: one that is found to be busy on one GPU with the gates open is granted both once
// they close, though nobody has said that it waits.
func TestGangIsAtWorkOnAllItsGPUs(t *testing.T) {
	node := newNode(t, 1, Default(), Default())
	if err := node.Add(Container{ID: 9, Weight: 1, GPUs: []int{0, 1}, Leases: 1}); err != nil {
		t.Fatal(err)
	}
	if err := node.Add(Container{ID: 8, Weight: 1, GPUs: []int{1}, Leases: 1}); err != nil {
		t.Fatal(err)
	}
	node.Used(10*ms, 9, 1, Use{Busy: 10 * ms, Work: 10})
	node.Want(10*ms, 1, 1)
	node.Want(10*ms, 8, 1)
	for now := int64(11 * ms); now < 500*ms; now += ms {
		node.Tick(now)
		for _, id := range []FlowID{1, 8, 9} {
			if l := node.containers[id].flows[0].leases; len(l) > 0 && l[0].state == leaseDraining {
				node.Close(now, id, l[0].number, true)
			}
		}
		if a, b := node.View(9)[0], node.View(9)[1]; a.State == "leased" || b.State == "leased" {
			if a.State != b.State {
				t.Errorf("it is %s on one GPU and %s on the other", a.State, b.State)
			}
			return
		}
	}
	t.Error("it was granted nothing")
}
