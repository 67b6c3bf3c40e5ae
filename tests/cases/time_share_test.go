package cases

// T2, T3, T5, T10 and D2: what containers get of a GPU's time beside each other, by the simulated machine's own
// books. How exact the shares are says `make bench SECTION=time`; the margins here are for a machine that does other
// things too, and a test may try again for the same reason.

import (
	"fmt"
	"math"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

const (
	shareOff = 6.0 // percent of the whole
	tries    = 3
	settle   = time.Second // until rates have been measured
)

// attempt calls probe until it finds nothing wrong, some times.
func attempt(t *testing.T, probe func() string) {
	t.Helper()
	var wrong string
	for range tries {
		if wrong = probe(); wrong == "" {
			return
		}
		t.Log(wrong)
	}
	t.Errorf("%d times: %s", tries, wrong)
}

// expectShares measures until the shares are as wanted, in percent.
func expectShares(t *testing.T, window time.Duration, want []float64, flows ...*node.Flow) {
	t.Helper()
	attempt(t, func() string {
		got := node.Shares(window, 0, flows...)
		line := fmt.Sprintf("simulated: shares of GPU time %.1f %%, wanted %.1f %%", got, want)
		for i := range got {
			if math.Abs(got[i]-want[i]) > shareOff {
				return line
			}
		}
		t.Log(line)
		return ""
	})
}

// T2: kernels of 1 ms and of 10 us, weights 1:1: equal GPU time, not equal launches.
func TestT2LongAndShortKernels(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{})
	long, short := n.Weighted("long", 1), n.Weighted("short", 1)
	long.Play(node.Hog)
	short.Play("cost=10000 burst=800 streams=2 sync=1")
	time.Sleep(settle)
	expectShares(t, 4*time.Second, []float64{50, 50}, long, short)
}

// T3: who has been idle for 10 s and is then busy beside a hog gets its share from then on, and at most a lease of
// priority: T and Q, and what is under way when the gate closes.
func TestT3IdleThenBusy(t *testing.T) {
	t.Parallel()
	const priority = 50*time.Millisecond + 20*time.Millisecond
	const margin = 80 * time.Millisecond // backlogs of both, and a busy machine
	n := node.Start(t, node.Options{})
	hog, late := n.Weighted("hog", 1), n.Weighted("late", 1)
	load := late.Play(node.Hog)
	hog.Play(node.Hog)
	time.Sleep(settle)
	attempt(t, func() string {
		late.OK("stop %d", load)
		time.Sleep(10 * time.Second)
		hogHad, lateHad := hog.Busy(0), late.Busy(0)
		load = late.Play(node.Hog)
		var ahead, got time.Duration
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			got = late.Busy(0) - lateHad
			ahead = max(ahead, got-(hog.Busy(0)-hogHad))
		}
		line := fmt.Sprintf("simulated: back from 10 s of idleness it was ahead by %s at most, wanted %s; got %s in 3 s",
			ahead, priority+margin, got)
		if ahead > priority+margin || got < time.Second {
			return line
		}
		t.Log(line)
		return ""
	})
}

// playing is a load of a flow.
type playing struct {
	*node.Flow
	load int
}

func begin(f *node.Flow, settings string) playing { return playing{f, f.Play(settings)} }

// end ends the load when its work is done.
func (p playing) end() { p.OK("stop %d", p.load) }

// rates are how many launches a second of loads come through in a window from now on.
func rates(window time.Duration, loads ...playing) []float64 {
	began, counts := make([]time.Time, len(loads)), make([]int64, len(loads))
	for i, p := range loads {
		began[i], counts[i] = time.Now(), p.Launches(p.load)
	}
	time.Sleep(window)
	found := make([]float64, len(loads))
	for i, p := range loads {
		found[i] = float64(p.Launches(p.load)-counts[i]) / time.Since(began[i]).Seconds()
	}
	return found
}

// T5: a program that waits for each of its launches, with gaps of 50 us, gets its share beside a hog: half of what it
// gets alone.
func TestT5WaitsForEachLaunch(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{})
	hog, waits := n.Weighted("hog", 1), n.Weighted("waits", 1)
	attempt(t, func() string {
		load := begin(waits, "cost=200000 sync=1 gap=50")
		alone := rates(1500*time.Millisecond, load)[0]
		beside := begin(hog, node.Hog)
		time.Sleep(settle)
		together := rates(4*time.Second, load)[0]
		load.end()
		beside.end()
		line := fmt.Sprintf("simulated: %.0f launches a second alone, %.0f beside a hog: %.1f %%, wanted 50 %%", alone,
			together, 100*together/alone)
		if math.Abs(100*together/alone-50) > 2*shareOff { // the GPU is shared by two, and so is the error
			return line
		}
		t.Log(line)
		return ""
	})
}

// T10: two that each need the GPU for 40 % of the time, with gaps of 1 ms, keep 95 % of what they do alone.
func TestT10TwoWithGaps(t *testing.T) {
	t.Parallel()
	const load = "cost=667000 sync=1 gap=1000"
	n := node.Start(t, node.Options{})
	a, b := n.Weighted("a", 1), n.Weighted("b", 1)
	attempt(t, func() string {
		first := begin(a, load)
		alone := rates(1500*time.Millisecond, first)[0]
		second := begin(b, load)
		time.Sleep(settle)
		kept := rates(3*time.Second, first, second)
		first.end()
		second.end()
		line := fmt.Sprintf("simulated: %.0f launches a second alone, %.0f beside each other, wanted 95 %%", alone, kept)
		if min(kept[0], kept[1]) < 0.95*alone {
			return line
		}
		t.Log(line)
		return ""
	})
}

// D2 for the gate: whatever is held back on one GPU, who is alone on another, or on another MIG device of the same
// card, waits for nobody.
func TestD2GateOfAnotherGPU(t *testing.T) {
	t.Parallel()
	const kept = 0.85 // of the launches: the processors, which all share, have more to do
	n := node.Start(t, node.Options{Machine: dividedMachine(t), Config: always})
	mig := devicesOf(n.Books().GPUs[1])
	on := func(name, uuid string, weight string) playing {
		return begin(n.Flow(node.RunOptions{Name: name, Env: []string{"CUDA_VISIBLE_DEVICES=" + uuid},
			Flags: []string{"--weight", weight}}, 0), node.Hog)
	}
	lone, apart := on("lone", mig[0].UUID, "1"), on("apart", n.Books().GPUs[0].UUID, "1")
	alone := rates(time.Second, lone, apart)
	on("holder", mig[1].UUID, "1000")
	back := on("back", mig[1].UUID, "0.001")
	n.Eventually(func() string {
		if rates(200*time.Millisecond, back)[0] != 0 {
			return "nobody is held back on the third GPU"
		}
		return ""
	})
	attempt(t, func() string {
		now := rates(time.Second, lone, apart)
		for i := range now {
			if now[i] < kept*alone[i] {
				return fmt.Sprintf("%.0f launches a second before, and %.0f once there was load on another GPU", alone, now)
			}
		}
		return ""
	})
	for _, f := range []playing{lone, apart} {
		for _, flow := range n.Queue() {
			if flow.Container == f.Name && (flow.WaitWorstNS != nil && *flow.WaitWorstNS > time.Second.Nanoseconds() || flow.Expired > 0) {
				t.Errorf("%s was held back on a GPU of its own: %+v", f.Name, flow)
			}
		}
	}
}
