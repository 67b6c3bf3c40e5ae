package e2e

// Busy GPU time as the library measures it (cgo/busy.h), by a program that makes the library's calls
// around its own launches, beside the simulated machine's books.

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

const (
	busyOff = 2.0 // percent of the books' busy time
	// And where lengths are chance: of so few samples as calls allow the mean is known no better.
	busyOffByChance = 10.0
	busyTries       = 3  // a test's processor time is not its own
	busyPerCall     = 64 // launches for one call of the driver's
)

// What a mix has come to: percent off the books, of the measurement and of its halves.
type busyFigures struct {
	trueMS                   float64
	both, events, expected   float64
	launches, later, callsIn float64
}

// measureBusy runs a mix and puts it beside the books.
func measureBusy(t *testing.T, n *node.Node, mix string, wait time.Duration) busyFigures {
	t.Helper()
	ptx := filepath.Join(node.Root(t), "tests/sim/kernels/spin.ptx")
	p := n.Bare(node.Build(t, "e2e/busy"), append([]string{ptx}, strings.Fields(mix)...)...)
	line := p.LineWithin(wait)
	var busy, covered, work, launches, later, calls float64
	if _, err := fmt.Sscanf(line, "measured %f %f %f %f %f %f", &busy, &covered, &work, &launches, &later, &calls); err != nil {
		t.Fatalf("%s: the program says %q", mix, line)
	}
	process, found := books(t, n).Process(p.PID())
	if !found {
		t.Fatalf("the books do not know pid %d", p.PID())
	}
	off := func(ns float64) float64 { return 100 * (ns/float64(process.BusyNS) - 1) }
	return busyFigures{float64(process.BusyNS) / 1e6, off(busy), off(covered), off(work), launches, later, calls}
}

func (f busyFigures) String() string {
	calls := "-"
	if f.later > 0 {
		calls = fmt.Sprintf("%.2f", f.callsIn*busyPerCall/f.later)
	}
	return fmt.Sprintf("books %9.2f ms; off by %+7.2f %%; events alone %+8.2f %%, expectations alone %+8.2f %%; calls to 64 launches %s",
		f.trueMS, f.both, f.events, f.expected, calls)
}

// busyAlways are the rows that every run plays, as long as nothing is measured by this yet; LONG=1 plays all, for longer.
var busyAlways = []string{"back to back, 50 us", "5 us, each waited for", "graphs of 80 kernels each 1 ms, waited for",
	"20 us each 100 us, no grid twice", "captures, streams and resets under way"}

// Each mix of launches within 2 % of the books, but for kernels of one grid whose length is chance.
// One without a bound is printed: contexts that end with work in them.
func TestBusyTimeIsThatOfTheBooks(t *testing.T) {
	for _, row := range []struct {
		name, mix string
		bound     float64
	}{
		{"back to back, 5 us", "cost=5000", busyOff},
		{"back to back, 50 us", "cost=50000", busyOff},
		{"back to back, 1 ms", "cost=1000000", busyOff},
		{"back to back, 5 us, 8 streams", "cost=5000 streams=8", busyOff},
		{"back to back, 1 ms, 8 streams", "cost=1000000 streams=8", busyOff},
		{"5 us, each waited for", "cost=5000 sync=1", busyOff},
		{"50 us, each waited for", "cost=50000 sync=1", busyOff},
		{"1 ms, each waited for", "cost=1000000 sync=1", busyOff},
		{"1 s, each waited for", "cost=1000000000 sync=1 ms=2500", busyOff},
		{"20 ms, 8 in a row each 200 ms", "cost=20000000 burst=8 gap=200000", busyOff},
		{"5 us each 100 us, never waited for", "cost=5000 gap=100", busyOff},
		{"50 us each 100 us, never waited for", "cost=50000 gap=100", busyOff},
		{"1 ms each 3 ms", "cost=1000000 gap=3000", busyOff},
		{"100 of 5 us each 2 ms", "cost=5000 gap=2000 burst=100 sync=1", busyOff},
		{"100 of 5 us on 8 streams each 2 ms", "cost=5000 gap=2000 burst=100 streams=8 sync=1", busyOff},
		{"8 of 5 us on 8 streams each 100 us", "cost=5000 gap=100 burst=8 streams=8", busyOff},
		{"3 of 200 us on 3 streams each 2 ms", "cost=200000 gap=2000 burst=3 streams=3", busyOff},
		{"8 threads, 1 ms each 12 ms, waited for", "cost=1000000 gap=12000 threads=8 sync=1", busyOff},
		{"kernels of 10, 20, 40 and 80 us each 300 us", "cost=10000 keys=4 gap=300", busyOff},
		{"20 us each 100 us, no grid twice", "cost=20000 grids=60000 gap=100", busyOff},
		{"300 grids of up to 60 us each 150 us", "cost=2000 block=200 grids=300 gap=150", busyOff},
		{"20,000 grids of up to 42 us, pairs on 4 streams", "cost=2000 block=2 grids=20000 gap=300 burst=2 streams=4 sync=1", busyOff},
		{"graphs of 80 kernels of 5 us", "cost=5000 graph=80", busyOff},
		{"graphs of 80 kernels each 1 ms, waited for", "cost=5000 graph=80 sync=1 gap=1000", busyOff},
		{"captures, streams and resets under way", "cost=100000 trouble=1 ms=6000", busyOff},
		{"the same, and contexts", "cost=100000 trouble=2 ms=3000", math.Inf(1)},
		{"8 threads, 5 us each 200 us", "cost=5000 gap=200 threads=8", busyOff},
		{"8 threads, 1 ms each 9 ms, waited for", "cost=1000000 gap=9000 threads=8 sync=1", busyOff},
		{"8 threads, 1 ms, each waited for", "cost=1000000 threads=8 sync=1", busyOff},
		{"5 to 35 us by chance each 100 us", "cost=20000 vary=1 gap=100", busyOffByChance},
	} {
		t.Run(row.name, func(t *testing.T) {
			if os.Getenv("LONG") == "" && !slices.Contains(busyAlways, row.name) {
				t.Skip("LONG=1 plays it")
			}
			n := node.Start(t, node.Options{NoAgent: true})
			mix := row.mix
			if !strings.Contains(mix, "ms=") {
				mix += " ms=1500"
			}
			if os.Getenv("LONG") != "" {
				mix += " ms=10000"
			}
			for try := range busyTries {
				figures := measureBusy(t, n, mix, time.Minute)
				t.Logf("simulated: %s: %s", row.name, figures)
				if math.Abs(figures.both) <= row.bound {
					return
				}
				if try == busyTries-1 {
					t.Errorf("%s: %.2f %% off the books, want at most %.0f", row.name, figures.both, row.bound)
				}
			}
		})
	}
}

// Over the null driver: the calls that measuring makes, and what it adds to a launch.
func TestBusyTimeCostsLittle(t *testing.T) {
	program := node.Build(t, "e2e/busy")
	for _, threads := range []string{"1", "8"} {
		run := exec.Command(program, "null", threads)
		run.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(node.Build(t, "bench/libcuda.so.1")))
		out, err := run.CombinedOutput()
		var bare, added, calls float64
		if _, scan := fmt.Sscanf(string(out), "cost %f %f %f", &bare, &added, &calls); err != nil || scan != nil {
			t.Fatalf("busy null %s: %v\n%s", threads, err, out)
		}
		t.Logf("%s threads: a bare launch %.2f ns, measuring adds %.2f ns; %.3f calls to 64 launches", threads, bare, added, calls)
		if calls > 1 {
			t.Errorf("%s threads: %.3f calls to 64 launches, want at most 1", threads, calls)
		}
	}
}
