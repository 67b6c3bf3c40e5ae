package sched

// What programs get, in the model: shares by weight, throughput, priority after waking.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func hog(kernel int64, weight float64) *program { return &program{kernel: kernel, weight: weight} }

func waiter(kernel, gap int64) *program { return &program{kernel: kernel, gap: gap, wait: true} }

// shares is what each program has got of all that was got since before, which it brings up to now.
func (m *model) shares(before []int64) []float64 {
	sum := 0.0
	shares := make([]float64, len(m.programs))
	for i, p := range m.programs {
		shares[i] = float64(p.worth - before[i])
		before[i] = p.worth
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

func TestSharesFollowWeights(t *testing.T) {
	eight := make([]*program, 8)
	for i := range eight {
		eight[i] = hog(ms, float64(i+1))
	}
	for _, mix := range []struct {
		name     string
		programs []*program
	}{
		{"1 ms beside 10 µs", []*program{hog(ms, 1), hog(10_000, 1)}},
		{"weights 1 and 3", []*program{hog(ms, 1), hog(ms, 3)}},
		{"weights 1 to 8", eight},
		{"one that waits for each kernel", []*program{waiter(10_000, 50_000), hog(ms, 1)}},
		{"weights 0.1 and 0.3", []*program{hog(ms, 0.1), hog(300_000, 0.3)}},
		{"long kernels", []*program{hog(40*ms, 1), hog(100_000, 1)}},
	} {
		t.Run(mix.name, func(t *testing.T) {
			m := newModel(t, Default())
			weights := 0.0
			for _, p := range mix.programs {
				m.add(p)
				weights += p.weight
			}
			m.run(10 * sec)
			line := ""
			for i, share := range m.shares(make([]int64, len(m.programs))) {
				asked := m.programs[i].weight / weights
				line += fmt.Sprintf(" %.4f/%.4f", share, asked)
				if math.Abs(share-asked) > 0.02 {
					t.Errorf("program %d got %.3f of the whole, and was to get %.3f", i+1, share, asked)
				}
			}
			t.Logf("got/asked:%s; %v", line, m.counts)
		})
	}
}

// TestTenfoldDemand: others do not notice that one asks for ten times as much.
func TestTenfoldDemand(t *testing.T) {
	m := newModel(t, Default())
	grows := m.add(hog(100_000, 1))
	m.add(hog(300_000, 1))
	m.add(waiter(200_000, 100_000))
	m.run(5 * sec)
	before := make([]int64, 3)
	was := m.shares(before)
	grows.kernel *= 10
	m.run(5 * sec)
	is := m.shares(before)
	t.Logf("shares %.4f, then %.4f", was, is)
	for i := 1; i < 3; i++ {
		if math.Abs(is[i]-was[i]) > 0.02 {
			t.Errorf("program %d got %.3f of the whole, and then %.3f", i+1, was[i], is[i])
		}
	}
}

// throughput is what all programs of a mix get done in a time, as a part of it.
func throughput(t *testing.T, mix []program, free bool) (float64, *model) {
	m := newModel(t, Default())
	m.free = free
	for _, p := range mix {
		m.add(&p)
	}
	m.run(10 * sec)
	sum := 0.0
	for _, p := range m.programs {
		sum += float64(p.worth)
	}
	return sum / float64(m.now), m
}

// TestThroughput: a program alone loses nothing, two busy ones together next to nothing, and no mix more
// than 5 % against plain time slices.
func TestThroughput(t *testing.T) {
	if got, _ := throughput(t, []program{*hog(ms, 1)}, false); got < 0.99 {
		t.Errorf("a program alone gets %.3f of its throughput without weir", got)
	}
	if got, _ := throughput(t, []program{*waiter(ms, 500_000)}, false); got < 0.99 {
		t.Errorf("a program with gaps, alone, gets %.3f of its throughput without weir", got)
	}
	if got, _ := throughput(t, []program{*hog(ms, 1), *hog(200_000, 2)}, false); got < 0.97 {
		t.Errorf("two busy programs together get %.3f of what one gets alone", got)
	}
	kinds := []program{
		*hog(ms, 1), *hog(20_000, 1), *hog(10*ms, 1), *waiter(10_000, 50_000), *waiter(670_000, ms),
		*waiter(3*ms, 3*ms), *waiter(2*ms, 20*ms), *waiter(300_000, 300_000),
	}
	mixes := 0
	for i := range kinds {
		for j := range i + 1 {
			plain, _ := throughput(t, []program{kinds[i], kinds[j]}, true)
			ours, m := throughput(t, []program{kinds[i], kinds[j]}, false)
			mixes++
			t.Logf("kernels of %v and %v ns, gaps of %v and %v: %.3f, plain slices %.3f; %v",
				kinds[i].kernel, kinds[j].kernel, kinds[i].gap, kinds[j].gap, ours, plain, m.counts)
			if ours < 0.95*plain {
				t.Errorf("this mix loses %.1f %%", 100*(1-ours/plain))
			}
		}
	}
	t.Logf("%d mixes", mixes)
}

// TestManyMixes: nobody who has work most of the time gets less than it asks for, whatever the others do. The mixes
// are random, and the same each time.
func TestManyMixes(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	gaps := []int64{20_000, 100_000, 300_000, ms, 2 * ms}
	for range 150 {
		var mix []program
		weights := 0.0
		for range 2 + r.IntN(4) {
			p := program{kernel: []int64{10_000, 100_000, 300_000, ms, 3 * ms}[r.IntN(5)], weight: float64(1 + r.IntN(4))}
			if p.wait = r.IntN(2) == 0; p.wait {
				p.gap = gaps[r.IntN(len(gaps))]
			}
			weights += p.weight
			mix = append(mix, p)
		}
		_, m := throughput(t, mix, false)
		for _, p := range m.programs {
			got, asked := float64(p.worth)/float64(m.now), p.weight/weights
			if got < asked-0.02 {
				t.Errorf("%d of %+v got %.3f, and was to get %.3f; %v", p.id, mix, got, asked, m.counts)
			}
		}
	}
}

// TestT10TwoThatFillEachOthersGaps: with a GPU that has time for both, each gets what it gets alone.
func TestT10TwoThatFillEachOthersGaps(t *testing.T) {
	_, m := throughput(t, []program{*waiter(670_000, ms), *waiter(670_000, ms)}, false)
	for i, p := range m.programs {
		if part := float64(p.worth) / float64(m.now); part < 0.95 {
			t.Errorf("program %d gets %.3f of its throughput alone; %v", i+1, part, m.counts)
		}
	}
}

// TestT3WakesUpBesideAHog: ten idle seconds are not saved up. The one that wakes up has priority for no longer
// than T and a lease.
func TestT3WakesUpBesideAHog(t *testing.T) {
	for _, threshold := range []int64{0, 50 * ms, 5 * sec} {
		c := Default()
		c.Threshold, c.AlwaysGate = threshold, true
		m := newModel(t, c)
		old := m.add(hog(ms, 1))
		sleeper := hog(ms, 1)
		m.add(sleeper)
		m.run(100 * ms)
		sleeper.stopped, sleeper.sleep = false, func(int64) int64 { return 10 * sec }
		m.run(10 * sec)
		sleeper.sleep = nil
		for sleeper.next > m.now && !sleeper.held && !sleeper.outstanding() {
			m.run(ms)
		}
		had, other, most := sleeper.worth, old.worth, int64(0)
		for range 30_000 {
			m.run(ms)
			most = max(most, sleeper.worth-had-(old.worth-other))
		}
		t.Logf("T = %d ms: at most %d ms ahead", threshold/ms, most/ms)
		if most > threshold+c.Quantum+modelWindow+4*ms {
			t.Errorf("T = %d ms: the one that woke up was %d ms ahead of the other", threshold/ms, most/ms)
		}
		if most == 0 {
			t.Errorf("T = %d ms: the one that woke up was never ahead", threshold/ms)
		}
	}
}

// TestGangsAndOthersShare: on each of two GPUs a third for each of two gangs and one flow of its own. A
// gang pays for the slots that it holds until it has all, and others get what it cannot use meanwhile.
func TestGangsAndOthersShare(t *testing.T) {
	for _, always := range []bool{false, true} {
		c := Default()
		c.AlwaysGate = always
		m := newModel(t, c, c)
		m.add(hog(ms, 1), 0, 1)
		m.add(hog(700_000, 1), 1, 0)
		m.add(hog(ms, 1), 0)
		m.add(hog(300_000, 1), 1)
		m.run(20 * sec)
		for i, p := range m.programs {
			got := float64(p.worth) / float64(m.now)
			if t.Logf("program %d got %.3f; %v", i+1, got, m.counts); got < 0.29 { // some is lost to gangs that wait, and to switches
				t.Errorf("program %d got %.3f of its GPUs' time, and was to get a third", i+1, got)
			}
		}
	}
}

// TestNewcomerBesideFullQueue: what a hog has in flight when the newcomer's first lease begins runs beside it, and
// must not make the newcomer's operations look expensive.
func TestNewcomerBesideFullQueue(t *testing.T) {
	for _, late := range []*program{waiter(50_000, 10_000), waiter(10_000, 50_000), hog(50_000, 1)} {
		m := newModel(t, Default())
		m.add(hog(ms, 1))
		m.run(sec)
		m.add(late)
		before := make([]int64, 2)
		m.shares(before)
		m.run(3 * sec)
		share := m.shares(before)[1]
		t.Logf("kernels of %d ns, gaps of %d: %.4f; %v", late.kernel, late.gap, share, m.counts)
		if share < 0.45 {
			t.Errorf("in its first three seconds the newcomer got %.3f of the whole", share)
		}
	}
}
