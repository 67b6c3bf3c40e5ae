package turns

// Gaps in the work of who holds a lease.

import "testing"

// gapped lets two programs whose kernels take a second share a GPU for two minutes, with so long a gap after each kernel and
// quanta of 28 s for whose memory it takes 2 s to come, and tells how many leases they had and what of the time they worked.
func gapped(t *testing.T, gap int64) (leases int, worked float64) {
	const span = 120 * sec
	w := newWorld(t, 1, nil)
	m := &mover{takes: 2 * sec}
	a, b := w.program(w.box("a", 1), sec, 1, gap), w.program(w.box("b", 1), sec, 1, gap)
	for _, p := range []*program{a, b} {
		p.in.SetMovable(w.now)
	}
	w.table.Apart(w.now, 0, 28*sec)
	w.runMoving(m, span)
	return len(m.since), float64(a.got+b.got) / float64(span)
}

// TestGapsKeepALease: gaps of 40 ms, as programs have that get no processor for a while, end no lease that is long since
// memory moves. Longer ones do.
func TestGapsKeepALease(t *testing.T) {
	if leases, worked := gapped(t, 40*ms); leases > 5 || worked < 0.85 {
		t.Errorf("with gaps of 40 ms there were %d leases of 28 s in two minutes, and work in %.2f of the time", leases, worked)
	}
	if leases, _ := gapped(t, 100*ms); leases < 20 {
		t.Errorf("with gaps of 100 ms there were %d leases in two minutes: who has nothing to do holds the GPU", leases)
	}
}
