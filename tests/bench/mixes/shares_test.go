package mixes

// Shares: each program gets of the slot's time what its weight asks for, whatever its launches are like.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

const (
	shareOff        = 0.02 // of the whole
	sharesWindow    = 6 * time.Second
	growsAfter      = 4 * time.Second
	tenfoldMachines = 3
	getsGoing       = 1500 * time.Millisecond // until the scheduler knows the programs
	growsFor        = 5 * time.Second
)

// eight programs of weights 1 to 8.
func eight() (loads []load) {
	for i := range 8 {
		loads = append(loads, load{hog, float64(i + 1)})
	}
	return loads
}

var oneAndThree = mix{"weights 1 and 3", []load{{hog, 1}, {hog, 3}}}

var shareMixes = []mix{
	{"kernels of 1 ms and of 10 us", of(hog, "cost=10000")},
	oneAndThree,
	{"waits for each launch, beside a hog", of("cost=100000 wait=1", hog)},
	{"graphs of 80 kernels, beside kernels", of(graphs, hog)},
}

// shares are the promises of who gets how much.
func shares(b *testing.B) (claims []*claim) {
	for _, m := range shareMixes {
		claims = append(claims, share(beside(m, window(sharesWindow))))
	}
	// With eight it is seconds until the lightest has another turn.
	claims = append(claims, share(beside(mix{"weights 1 to 8", eight()}, 10*time.Second)))
	if lacking := containersLack(b); lacking != "" {
		fmt.Println("skipped: containers need", lacking)
	} else {
		runs := beside(oneAndThree, window(sharesWindow))
		runs[0].name, runs[0].how = "two containers of containerd, weights 1 and 3 by annotation", inContainers
		claims = append(claims, share(runs))
	}
	return append(claims, tenfold())
}

// containersLack says what is missing for containers of containerd, if anything is.
func containersLack(b *testing.B) string {
	if os.Getuid() != 0 {
		return "root"
	}
	if _, err := exec.LookPath("runc"); err != nil {
		return "runc"
	}
	if _, err := os.Stat(filepath.Join(node.Root(b), "build/containers/containerd")); err != nil {
		return "a containerd in build/containers, as `make e2e` builds it"
	}
	return ""
}

// share is the promise of one mix, which is runs[0]; runs[1] is without weir.
func share(runs []*run) *claim {
	runs = withLone(runs, alone{})
	return &claim{runs: runs, judge: func(known alone) verdict {
		ours, plain, asked := parts(known.worths(runs[0], 0)), parts(known.worths(runs[1], 0)), runs[0].asked()
		off := apart(ours, asked)
		return verdict{
			name: fmt.Sprintf("shares over %s, %s", runs[0].phases[0], runs[0].name), promised: "at most 2 % of the whole off",
			got:   fmt.Sprintf("%.2f %% (%s; asked %s; without weir %s)", 100*off, percents(ours), percents(asked), percents(plain)),
			holds: off <= shareOff,
		}
	}}
}

// tenfold is the promise that others do not notice when one asks for ten times as much: it waits for the end of ten
// times as many launches.
func tenfold() *claim {
	runs := withLone(beside(mix{"tenfold", of(
		fmt.Sprintf("cost=200000 burst=2 wait=1 more=10 from=%d to=1000000", (settle+getsGoing+growsAfter).Milliseconds()),
		"cost=300000",
		"cost=500000 wait=1 gap=200",
	)}, getsGoing, growsAfter, growsFor), alone{})
	// Each program is up to T ahead or behind when a phase ends, which is 1 % of it: so the mean of several machines counts.
	ours := []*run{runs[0]}
	for len(ours) < tenfoldMachines {
		again := *runs[0]
		ours = append(ours, &again)
	}
	return &claim{runs: append(runs, ours[1:]...), judge: func(known alone) verdict {
		mean := func(runs []*run, phase int) []float64 {
			all := make([]float64, len(runs[0].loads))
			for _, r := range runs {
				for i, worth := range known.worths(r, phase) {
					all[i] += worth / float64(len(runs))
				}
			}
			return all
		}
		change := func(runs []*run) float64 { return apart(mean(runs, 1)[1:], mean(runs, 2)[1:]) }
		changed := change(ours)
		return verdict{
			name: "one asks for ten times as much for 5 s", promised: "others' shares change by at most 2 % of the whole",
			got: fmt.Sprintf("%.2f %% (%s, then %s; without weir %.2f %%)", 100*changed, percents(mean(ours, 1)),
				percents(mean(ours, 2)), 100*change(runs[1:2])), holds: changed <= shareOff,
		}
	}}
}
