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
	addedMost      = 5000 // ns
	addedPartMost  = 0.5  // of what the call takes alone, if that is more
	costRounds     = 3
	costRoundLimit = 10 * time.Second
)

var costCalls = []string{"alloc+free", "async", "launch", "info"}

// cost runs cost.c with and without the library in turns, and compares the best median of each.
func (r *run) cost(t *trial) {
	n := r.node.For(t)
	program := node.Build(t, "gpu/cost")
	alone, weir := map[string]float64{}, map[string]float64{}
	rounds := costRounds
	if r.options.simulated {
		rounds = 1 // nobody needs the figures
	}
	for range rounds {
		keepLeast(t, alone, n.Bare(program))
		keepLeast(t, weir, n.Run(r.capped("cost"), program))
	}
	var figures []string
	for _, call := range costCalls {
		before, after := alone[call], weir[call]
		if before == 0 || after == 0 {
			t.Fatalf("no figure for %s", call)
		}
		figures = append(figures, fmt.Sprintf("%s %.0f -> %.0f ns (%.2f)", call, before, after, after/before))
		if !r.options.simulated && after-before > max(addedMost, addedPartMost*before) {
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
