package mixes

// Shares: each program gets of the slot's time what its weight asks for, whatever its launches are like.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

const (
	shareOff        = 0.02 // of the whole
	sharesWindow    = 6 * time.Second
	tenfoldMachines = 2                       // of each kind
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

// Who asks for ten times as much waits for the end of ten times as many launches. It takes next to all of what it is due
// before, too, and so does each of the others: what one leaves of its share others get, and lose again when it
// needs that, which no scheduler can help.
const (
	asker = "cost=200000 burst=3 wait=1"
	soon  = settle + getsGoing
	later = soon + growsFor
)

var others = []string{"cost=300000", hog, "cost=500000 wait=1"}

// grows asks for ten times as much from one moment to another of a run.
func grows(from, to time.Duration) mix {
	more := fmt.Sprintf("%s more=10 from=%d to=%d", asker, from.Milliseconds(), to.Milliseconds())
	return mix{"tenfold", of(append([]string{more}, others...)...)}
}

// seen is one phase of a run.
type seen struct {
	*run
	phase int
}

// inPhase is a phase of several runs.
func inPhase(phase int, runs ...*run) (all []seen) {
	for _, r := range runs {
		all = append(all, seen{r, phase})
	}
	return all
}

// mean is what each program was worth in these phases, on average.
func (a alone) mean(phases []seen) []float64 {
	mean := make([]float64, len(phases[0].loads))
	for _, s := range phases {
		for i, worth := range a.worths(s.run, s.phase) {
			mean[i] += worth / float64(len(phases))
		}
	}
	return mean
}

// tenfold is the promise that others do not notice when one asks for ten times as much for some seconds. Each program is up
// to T ahead or behind when a phase ends, which is 1 % of it, so the mean of several machines counts; on half of them the
// larger demand comes first, so that what changes with time alone is left out of it. Beside it stands what
// the same programs' shares change by on machines where nobody asks for more.
func tenfold() *claim {
	played := func(m mix, how how) *run {
		return &run{mix: m, how: how, phases: []time.Duration{getsGoing, growsFor, growsFor}}
	}
	still := mix{"tenfold", of(append([]string{asker}, others...)...)}
	var up, down, steady []*run
	for range tenfoldMachines {
		up = append(up, played(grows(later, later+growsFor), underWeir))
		down = append(down, played(grows(0, later), underWeir))
		steady = append(steady, played(still, underWeir))
	}
	plain := played(up[0].mix, plain)
	runs := withLone(slices.Concat(up, down, steady, []*run{plain}), alone{})
	return &claim{runs: runs, judge: func(known alone) verdict {
		little := known.mean(slices.Concat(inPhase(1, up...), inPhase(2, down...)))
		much := known.mean(slices.Concat(inPhase(2, up...), inPhase(1, down...)))
		changed := apart(little[1:], much[1:])
		change := func(runs ...*run) float64 {
			return apart(known.mean(inPhase(1, runs...))[1:], known.mean(inPhase(2, runs...))[1:])
		}
		return verdict{
			name: "one asks for ten times as much for 5 s", promised: "others' shares change by at most 2 % of the whole",
			got: fmt.Sprintf("%.2f %% (%s, then %s; %.2f %% where nobody does; without weir %.2f %%)", 100*changed,
				percents(little), percents(much), 100*change(steady...), 100*change(plain)), holds: changed <= shareOff,
		}
	}}
}
