package sched

// Late leases: what they wait for comes in the end, others lose little to them, and the gate stays closed for the
// others' sake.

import (
	"math"
	"math/rand/v2"
	"testing"
)

// belated is a schedule of one flow that is late, and needs its gate to be open so many times more, beside others that
// always have work.
type belated struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	node   *Node
	config Config
	now    int64

	lease    uint64 // of the late flow
	open     bool   // its gate
	opened   int64  // for how long it has been open, ns
	from     int64  // since when it is, this time
	late     bool
	coRun    bool
	stopped  int64 // until when its process is
	launches int   // that it still needs
	takes    int64 // each of them, from the gate's opening on or from the one before
	next     int64

	held    map[FlowID]uint64 // of the others
	drains  map[FlowID]int64  // when they are over
	had     map[FlowID]int64
	granted map[FlowID]int64
	gated   bool
}

func (b *belated) fatalf(format string, args ...any) {
	b.t.Helper()
	b.t.Logf("WEIR_TEST_SEED=%d, at %d ns", b.seed, b.now)
	b.t.Fatalf(format, args...)
}

const belatedID = 1

func newBelated(t *testing.T, seed uint64) *belated {
	r := rand.New(rand.NewPCG(seed, 6))
	c := Default()
	c.AlwaysGate = r.IntN(2) == 0
	c.Quantum = ms + r.Int64N(40*ms)
	c.Threshold = []int64{0, r.Int64N(100 * ms), r.Int64N(2 * sec)}[r.IntN(3)]
	c.DrainTimeout = 100*ms + r.Int64N(sec)
	node, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	b := &belated{t: t, seed: seed, random: r, node: node, config: c, gated: c.AlwaysGate,
		held: map[FlowID]uint64{}, drains: map[FlowID]int64{}, had: map[FlowID]int64{}, granted: map[FlowID]int64{}}
	for id := range FlowID(2 + r.IntN(4)) {
		spec := Container{ID: id + 1, Weight: math.Exp(4*r.Float64() - 2), GPUs: []int{0}, Leases: 1}
		if err := node.Add(spec); err != nil {
			t.Fatal(err)
		}
		b.take(node.Want(0, id+1, 1))
	}
	return b
}

func (b *belated) flow(id FlowID) *flow { return b.node.containers[id].flows[0] }

func (b *belated) take(decisions []Decision) {
	for _, d := range append([]Decision(nil), decisions...) {
		switch {
		case d.Flow == 0:
			b.gated = d.Kind == Gate
			for id := range b.held {
				b.release(id)
			}
			if !b.late {
				b.lease = 0
				b.turn(!b.gated)
			}
		case d.Flow == belatedID:
			b.own(d)
		case d.Kind == Grant:
			b.held[d.Flow], b.granted[d.Flow] = d.Lease, b.now
		case d.Kind == Revoke:
			b.drains[d.Flow] = b.now + b.random.Int64N(4*ms)
		case d.Kind == Expire, d.Kind == Reopen:
			b.fatalf("flow %d always drains at once: %v", d.Flow, d)
		}
	}
}

func (b *belated) own(d Decision) {
	switch d.Kind {
	case Grant:
		b.lease = d.Lease
		b.turn(true)
	case Reopen:
		b.turn(true)
	case Revoke:
		b.turn(false)
	case Expire:
		b.late = true
		b.turn(false)
	case CoRun:
		b.late, b.coRun = false, true
		b.turn(true)
	}
}

func (b *belated) turn(open bool) {
	if b.open && b.late {
		b.opened += b.now - b.from
	}
	if open && !b.open {
		b.next = max(b.now, b.stopped) + b.takes
	}
	b.open, b.from = open, b.now
}

func (b *belated) release(id FlowID) uint64 {
	lease := b.held[id]
	b.had[id] += b.now - b.granted[id]
	delete(b.held, id)
	delete(b.drains, id)
	return lease
}

// step does what is next.
func (b *belated) step() {
	at := b.now + 5*ms
	at = min(at, max(b.now, b.node.Next()))
	for _, over := range b.drains {
		at = min(at, over)
	}
	if b.open && b.launches > 0 {
		at = min(at, max(b.now, b.next, b.stopped))
	}
	b.now = at
	b.take(b.node.Tick(b.now))
	for id := range FlowID(len(b.node.containers)) {
		if over, is := b.drains[id+1]; is && over <= b.now {
			b.take(b.node.Used(b.now, id+1, 0, Use{Busy: b.now - b.granted[id+1], Work: (b.now - b.granted[id+1]) / 1000}))
			b.take(b.node.Close(b.now, id+1, b.release(id+1), true))
		} else if lease := b.held[id+1]; lease != 0 && !is && b.random.IntN(8) == 0 {
			b.take(b.node.Used(b.now, id+1, 0, Use{Busy: 5 * ms, Work: 5}))
		}
	}
	if b.open && b.launches > 0 && b.now >= max(b.next, b.stopped) {
		b.launches--
		b.next = b.now + b.takes
		b.take(b.node.Progress(b.now, belatedID))
	}
}

// until goes on until something is so, and tells how long that took; longer than most is an error.
func (b *belated) until(what string, most int64, is func() bool) int64 {
	b.t.Helper()
	for from := b.now; ; b.step() {
		if is() {
			return b.now - from
		}
		if b.now-from > most {
			b.fatalf("not %s after %d ms; %+v", what, most/ms, b.node.View(belatedID))
		}
	}
}

// TestLateFlowsGoOn: a flow that was stopped for longer than its drain may take, and whose work needs its gate open some
// times more, gets there in bounded time. Others wait for nothing meanwhile, and keep their bounds.
func TestLateFlowsGoOn(t *testing.T) {
	seed, worst, coRuns := testSeed(t), 0.0, 0
	for i := range schedules(2000) {
		b := newBelated(t, seed+uint64(i))
		b.until("revoked", 600*sec, func() bool {
			f := b.flow(belatedID)
			return len(f.leases) > 0 && f.leases[0].state == leaseDraining
		})
		b.stopped = b.now + b.random.Int64N(5*sec)
		b.launches, b.takes = 1+b.random.IntN(10), b.random.Int64N(8*ms)
		b.until("late", 2*sec, func() bool { return b.late || b.coRun || b.launches == 0 })
		lateFrom, opened := b.now, b.opened
		had := b.sum()
		b.until("continued", 6*sec, func() bool { return b.now >= b.stopped })
		opening := max(b.config.Quantum, b.config.DrainStall)
		if part := float64(b.opened-opened) / float64(b.now-lateFrom+lateRest*opening); b.late && part > 1.0/lateRest {
			b.fatalf("nothing gets done, and its gate was open for %.3f of the time", part)
		}
		most := int64(b.launches+1) * (lateRest + 1) * opening << lateLonger
		took := b.until("helped", most, func() bool { return b.launches == 0 || b.coRun })
		worst = max(worst, float64(took)/float64(most))
		if b.coRun {
			coRuns++
		}
		if span := b.now - lateFrom; b.late && b.sum()-had < span*9/10-5*ms {
			b.fatalf("others had slots for %d ms of %d", (b.sum()-had)/ms, span/ms)
		}
		b.back()
	}
	t.Logf("the longest took %.3f of its bound; %d of the flows were co-run", worst, coRuns)
}

// sum is for how long others have had the slot.
func (b *belated) sum() (sum int64) {
	for id := range b.held {
		sum += b.now - b.granted[id]
	}
	for _, had := range b.had {
		sum += had
	}
	return sum
}

// back: the late flow's work is done. It has paid, and for no more than a drain timeout.
func (b *belated) back() {
	if b.coRun || !b.late {
		return
	}
	b.late = false
	b.take(b.node.Close(b.now, belatedID, b.lease, true))
	f, c := b.flow(belatedID), &b.config
	ahead, most := f.virtual-f.on.gvt, f.threshold()+float64(c.DrainTimeout+2*c.Quantum+c.DrainTimeout)/f.weight
	if ahead < 0 || ahead > most+10 {
		b.fatalf("back, it is %g ahead, %g at most", ahead, most)
	}
}

// TestLateFlowIsARival: beside one that is late the gate stays closed to a single other one, which has lease after
// lease, and is opened to it as to one that is alone once the late one is gone.
func TestLateFlowIsARival(t *testing.T) {
	for _, comesBack := range []bool{true, false} {
		m := newModel(t, Default())
		late := m.add(hog(ms, 1))
		m.run(sec)
		other := m.add(hog(ms, 1))
		for m.run(ms); late.leased == 0 || m.counts[Revoke] == 0; {
			m.run(ms)
		}
		late.stopped, late.endless = true, true
		m.run(2 * sec)
		if state := m.node.View(late.id)[0].State; state != "late" {
			t.Fatalf("it is %s", state)
		}
		got, gates := other.worth, m.counts[Open]+m.counts[Gate]
		m.run(10 * sec)
		if !m.gpus[0].gated || m.counts[Open]+m.counts[Gate] != gates {
			t.Errorf("beside a late flow the gates were opened; %v", m.counts)
		}
		// A slice in turn is that kernel's, and each change of programs costs.
		if part := float64(other.worth-got) / float64(10*sec); part < 0.47 {
			t.Errorf("the other one gets %.3f of the time, and its slices are half of it", part)
		}
		if comesBack {
			late.stopped, late.endless, late.next = false, false, m.now
			m.run(3 * sec)
			before := make([]int64, 2)
			m.shares(before)
			m.run(4 * sec)
			if share := m.shares(before)[0]; math.Abs(share-0.5) > 0.03 {
				t.Errorf("back, it gets %.3f of the whole", share)
			}
			continue
		}
		late.gone, late.next = true, Never
		m.take(m.node.Gone(m.now, late.id))
		if m.run(ms); m.gpus[0].gated || m.gpus[0].rivals {
			t.Errorf("the late one is gone, and the other has rivals: %+v", m.gpus[0])
		}
	}
}

// TestBacklogFromBeforeTheRival: what a program has submitted while it was alone takes longer than a drain may. The
// rival that comes has a window all the time, so that both share as soon as that is done.
func TestBacklogFromBeforeTheRival(t *testing.T) {
	m := newModel(t, Default())
	first := hog(ms, 1)
	first.backlog = 2 * sec
	m.add(first)
	m.run(3 * sec)
	second := hog(ms, 1)
	second.backlog = 2 * sec
	m.add(second)
	m.run(300 * ms)
	from := m.now
	for first.queued[0] > 100 {
		m.run(10 * ms)
		if second.queued[0] > 64 {
			t.Fatalf("the second one has %d kernels in flight", second.queued[0])
		}
	}
	m.run(200 * ms)
	before := make([]int64, 2)
	for span := range 3 {
		m.shares(before)
		m.run(sec)
		share := m.shares(before)[0]
		t.Logf("%d ms after the rival came: %.3f; %v", (m.now-from)/ms, share, m.counts)
		if span > 0 && math.Abs(share-0.5) > 0.05 {
			t.Errorf("in a second the first one got %.3f of the whole", share)
		}
	}
}

// TestT9StoppedForLongerThanADrain: its work waits for work behind the gate, and its process is stopped meanwhile.
func TestT9StoppedForLongerThanADrain(t *testing.T) {
	for _, wake := range []int64{0, 7 * ms, 15 * ms, 30 * ms} {
		c := Default()
		c.AlwaysGate, c.DrainTimeout = true, 300*ms
		m := newModel(t, c)
		p := hog(ms, 1)
		p.blocks, p.wake = true, wake
		m.add(p)
		other := m.add(hog(ms, 1))
		for m.run(ms); !p.draining || !p.outstanding(); {
			m.run(ms)
		}
		p.stopped = true
		m.run(3 * sec)
		if m.counts[Expire] != 1 {
			t.Fatalf("it is not late: %v", m.counts)
		}
		got := other.worth
		m.run(3 * sec)
		// The kernel that waits has its slices, and each change of programs costs.
		if part := float64(other.worth-got) / float64(3*sec); part < 0.47 {
			t.Errorf("the other one gets %.3f of its throughput", part)
		}
		p.stopped, p.next = false, m.now
		for done, from := p.done, m.now; p.done == done; {
			if m.run(ms); m.now-from > 3*sec {
				t.Fatalf("wakes after %d ms: in %d ms nothing was done; %v", wake/ms, (m.now-from)/ms, m.counts)
			}
		}
	}
}
