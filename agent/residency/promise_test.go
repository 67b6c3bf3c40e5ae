package residency

// What is promised of swap, in the model.

import (
	"math"
	"math/rand/v2"
	"testing"
)

func part(card float64) int64 {
	return int64(card*float64(modelCard)) / (16 * modelPage) * (16 * modelPage)
}

// TestTwoOfThreeQuarters: two programs with sets of 0.75 of the card, each with a minute's work.
func TestTwoOfThreeQuarters(t *testing.T) {
	set, work := part(0.75), 60*sec
	m := newModel(t, Default(modelCard, modelLink, modelLink), set, set)
	got := m.fixed(work)
	serial := 2 * work
	t.Logf("serial %.1f s; by plan %.1f s (%.3f), quantum %.1f s, %d changes of holders, the GPU stood still for %.2f s",
		seconds(serial), seconds(got), ratio(got, serial), seconds(m.quantumMost), m.changes, seconds(m.still))
	if ratio(got, serial) > 1.10 {
		t.Errorf("%.3f of serial, promised 1.10", ratio(got, serial))
	}
	// What two sets exceed the card by has to move at each change, and no more: the first leases have nothing to
	// bring, and the last one is alone.
	excess := 2*set - m.node.gpus[0].config.room()
	moves := int64(m.changes - 2)
	if slack := m.node.gpus[0].config.Piece; m.bytesIn > moves*(excess+slack) || m.bytesIn < (moves-1)*(excess-slack) {
		t.Errorf("%d bytes came in at %d changes, of %d each", m.bytesIn, moves, excess)
	}
	if m.bytesOut > (moves+1)*(excess+m.node.gpus[0].config.Piece) {
		t.Errorf("%d bytes went out at %d changes, of %d each", m.bytesOut, moves+1, excess)
	}
	if most := 1.15 * float64(moves+1) * float64(transfer(excess)); float64(m.still) > most {
		t.Errorf("the GPU stood still for %d ns, at most %g are promised", m.still, most)
	}
	t.Logf("exclusive quanta without prefetch (the driver's faults and its order):")
	for _, quantum := range []int64{5 * sec, m.quantumMost, 30 * sec} {
		g, all := loops(500*ms, work, set, set)
		faults := g.taken(all, quantum)
		t.Logf("  quantum %4.1f s: %.1f s (%.3f), %.2f of the card by faults for each quantum", seconds(quantum),
			seconds(faults), ratio(faults, serial), float64(g.moved)/float64(modelCard)/(float64(faults)/float64(quantum)))
		if quantum == m.quantumMost && faults-serial < 2*(got-serial) {
			t.Errorf("without prefetch %d ns are lost, with it %d", faults-serial, got-serial)
		}
	}
	g, all := loops(100*ms, sec, set, set)
	thrash := g.taken(all, ms)
	t.Logf("unscheduled, slices of 1 ms, a second's work each: %.1f s (%.1f of serial)", seconds(thrash),
		ratio(thrash, 2*sec))
	if ratio(thrash, 2*sec) < 3*ratio(got, serial) {
		t.Errorf("unscheduled takes %.2f of serial, by plan %.2f", ratio(thrash, 2*sec), ratio(got, serial))
	}
}

func seconds(ns int64) float64 { return float64(ns) / float64(sec) }
func ratio(a, b int64) float64 { return float64(a) / float64(b) }
func mean(all []int64) (ns float64) {
	for _, x := range all {
		ns += float64(x) / float64(len(all))
	}
	return ns
}

// TestFourOfFourTenths: bursts of 100 ms of four programs with sets of 0.4, of which some come more often (Zipf).
func TestFourOfFourTenths(t *testing.T) {
	seed := testSeed(t)
	weights := []float64{0.48, 0.24, 0.16, 0.12}
	set := part(0.4)
	const count = 600
	plan := func(config Config) [][]int64 {
		m := newModel(t, config, set, set, set, set)
		m.bursts(rand.New(rand.NewPCG(seed, 1)), sec, weights, count)
		t.Logf("%d bursts, %.2f cards came in, the GPU stood still for %.1f of %.0f s", count,
			float64(m.bytesIn)/float64(modelCard), seconds(m.still), seconds(m.now))
		var waits [][]int64
		for _, p := range m.programs {
			waits = append(waits, p.wait)
		}
		return waits
	}
	config := Default(modelCard, modelLink, modelLink)
	planned := plan(config)
	config.Alpha, config.KeepMax = 0, 0
	lru := plan(config)
	inTurn, shared := pagedBursts(t, seed, set, weights, count, false), pagedBursts(t, seed, set, weights, count, true)
	t.Logf("%8s %28s %28s %28s %28s", "activity", "by plan", "least recently used", "one at a time, by faults",
		"unscheduled")
	var all [4]float64
	for i, w := range weights {
		row := []float64{mean(planned[i]), mean(lru[i]), mean(inTurn[i]), mean(shared[i])}
		for k := range row {
			all[k] += row[k] * w
		}
		t.Logf("%8.2f %25.0f ms %25.0f ms %25.0f ms %25.0f ms", w, row[0]/1e6, row[1]/1e6, row[2]/1e6, row[3]/1e6)
	}
	t.Logf("%8s %25.0f ms %25.0f ms %25.0f ms %25.0f ms", "mean", all[0]/1e6, all[1]/1e6, all[2]/1e6, all[3]/1e6)
	if all[0] > all[2]/1.5 || all[0] > all[3]/1.5 {
		t.Errorf("%.0f ms by plan, %.0f one at a time by faults, %.0f unscheduled", all[0]/1e6, all[2]/1e6, all[3]/1e6)
	}
}

// pagedBursts plays the same bursts by faults: one at a time, or all that have come by turns of a page each.
func pagedBursts(t *testing.T, seed uint64, set int64, weights []float64, count int, share bool) [][]int64 {
	sets := make([]int64, len(weights))
	for i := range sets {
		sets[i] = set
	}
	g, programs := loops(100*ms, 0, sets...)
	arrivals := (&model{}).arrivals(rand.New(rand.NewPCG(seed, 1)), sec, weights, count)
	type burst struct {
		arrival
		left int32
	}
	var active []*burst
	waits := make([][]int64, len(weights))
	for len(arrivals) > 0 || len(active) > 0 {
		if len(active) == 0 {
			g.now = max(g.now, arrivals[0].at)
		}
		for len(arrivals) > 0 && arrivals[0].at <= g.now {
			active = append(active, &burst{arrivals[0], programs[0].pages})
			arrivals = arrivals[1:]
		}
		b := active[0]
		programs[b.program].touch(g)
		b.left--
		if b.left == 0 {
			waits[b.program] = append(waits[b.program], g.now-b.at)
		}
		switch {
		case b.left == 0:
			active = active[1:]
		case share:
			active = append(active[1:], b)
		}
	}
	return waits
}

// TestFourInTurn: of programs that take turns, who has just run is the last to run again, so its memory goes first.
func TestFourInTurn(t *testing.T) {
	set, work := part(0.3), 30*sec
	play := func(blind bool) (*model, int64) {
		m := newModel(t, Default(modelCard, modelLink, modelLink), set, set, set, set)
		m.blind = blind
		return m, m.fixed(work)
	}
	known, took := play(false)
	blind, longer := play(true)
	t.Logf("order known: %.3f of serial, %.2f cards in at %d changes; unknown: %.3f, %.2f at %d", ratio(took, 4*work),
		float64(known.bytesIn)/float64(modelCard), known.changes, ratio(longer, 4*work), float64(blind.bytesIn)/float64(modelCard),
		blind.changes)
	perChange := func(m *model) float64 { return float64(m.bytesIn) / float64(m.changes) }
	if perChange(known) > 0.75*perChange(blind) || ratio(took, 4*work) > 1.10 {
		t.Errorf("%.3f of a card at each change, %.3f without knowing the order", perChange(known)/float64(modelCard),
			perChange(blind)/float64(modelCard))
	}
}

// TestAnySets: whatever sets programs have that are always busy, moving takes its part of the time, and a little for
// where leases begin and end.
func TestAnySets(t *testing.T) {
	seed := testSeed(t)
	worst := 0.0
	for i := range uint64(schedules(40)) {
		r := rand.New(rand.NewPCG(seed+i, 3))
		sets := make([]int64, 2+r.IntN(4))
		for k := range sets {
			sets[k] = part(0.05 + 0.9*r.Float64())
		}
		m := newModel(t, Default(modelCard, modelLink, modelLink), sets...)
		const work = 60 * sec
		took := m.fixed(work)
		serial := work * int64(len(sets))
		still := ratio(m.still, took)
		worst = max(worst, ratio(took, serial))
		if still > 0.065 || ratio(took, serial) > 1.10 {
			t.Errorf("WEIR_TEST_SEED=%d: sets %v: %.3f of serial, %.3f stood still, quantum %.2f s", seed+i, sets,
				ratio(took, serial), still, seconds(m.quantumMost))
		}
	}
	t.Logf("worst: %.3f of serial", worst)
}

// TestSetsThatFit: nothing moves, however often holders change.
func TestSetsThatFit(t *testing.T) {
	m := newModel(t, Default(modelCard, modelLink, modelLink), part(0.3), part(0.3), part(0.3))
	m.quantum = 20 * ms
	got := m.fixed(sec)
	if m.bytesIn+m.bytesOut != 0 || math.Abs(ratio(got, 3*sec)-1) > 0.01 {
		t.Errorf("%d bytes came in and %d went out; %.3f of serial", m.bytesIn, m.bytesOut, ratio(got, 3*sec))
	}
}
