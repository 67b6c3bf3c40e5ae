package main

// What weir costs a call, over the driver that is there.

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/tests/e2e/node"
)

// A call may take this much longer with weir: far more than it should, so that only what is plainly wrong
// fails on a busy machine; the figures say the rest. The simulated driver's speed says nothing, so
// there nothing is held against it.
const (
	addedMost       = 5000 // ns
	addedLaunchMost = 1000 // ns; ten are promised
	addedPartMost   = 0.5  // of what the call takes alone, if that is more
	costRounds      = 3
	costRoundLimit  = 10 * time.Second
)

var (
	costCalls     = []string{"alloc+free", "async", "launch", "info"}
	launchThreads = []string{"1", "8"}
	launchCalls   = []string{"launch-by-1", "launch-by-8"}
)

func (r *run) cost(t *trial) {
	before, after := map[string]float64{}, map[string]float64{}
	r.measureCost(t, before, after)
	r.compareCosts(t, before, after, costCalls, addedMost)
}

// launches by one thread and by several, while nobody else wants the GPU.
func (r *run) launches(t *trial) {
	before, after := map[string]float64{}, map[string]float64{}
	for _, threads := range launchThreads {
		r.measureCost(t, before, after, threads)
	}
	r.compareCosts(t, before, after, launchCalls, addedLaunchMost)
}

// measureCost runs cost.c without and with the library in turns, and keeps the best median of each.
func (r *run) measureCost(t *trial, before, after map[string]float64, arguments ...string) {
	n := r.node.For(t)
	program := node.Build(t, "gpu/cost")
	rounds := costRounds
	if r.options.simulated {
		rounds = 1 // nobody needs the figures
	}
	for range rounds {
		keepLeast(t, before, n.Bare(program, arguments...))
		keepLeast(t, after, n.Run(r.capped("cost"), program, arguments...))
	}
}

// compareCosts fails the check where a call takes more than so many ns, and half as much again, longer.
func (r *run) compareCosts(t *trial, alone, weir map[string]float64, calls []string, most float64) {
	var figures []string
	for _, call := range calls {
		before, after := alone[call], weir[call]
		if before == 0 || after == 0 {
			t.Fatalf("no figure for %s", call)
		}
		figures = append(figures, fmt.Sprintf("%s %.0f -> %.0f ns (%.2f)", call, before, after, after/before))
		if !r.options.simulated && after-before > max(most, addedPartMost*before) {
			t.Errorf("%s takes %.0f ns with weir, %.0f without", call, after, before)
		}
	}
	t.figure("%s", strings.Join(figures, "; "))
}

// keepLeast reads what a run of cost.c says: lines of a name and nanoseconds.
func keepLeast(t *trial, least map[string]float64, program *node.Program) {
	code, lines := program.Wait(costRoundLimit)
	if code != 0 {
		t.Fatalf("the program that measures ends with %d: %s", code, program.Stderr())
	}
	for _, line := range lines {
		name, text, _ := strings.Cut(line, " ")
		ns, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("reading %q: %v", line, err)
		}
		if known, ok := least[name]; !ok || ns < known {
			least[name] = ns
		}
	}
}
