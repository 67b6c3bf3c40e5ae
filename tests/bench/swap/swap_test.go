// Package swap measures programs that together need more memory than a simulated card has: under weir with swap, and
// without weir in the ways there are. `make bench SECTION=swap` runs its benchmark. What happened is read from the
// machines' own books, and every program's data are compared with what it wrote.
package swap

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"weir/tests/bench/figures"
)

// tries is how often what weir promises is measured if it does not hold: the processors are other programs', too.
const tries = 3

// scene is what some promises are judged by.
type scene interface {
	name() string
	stages() []*stage // that are played at once
	again() []*stage  // those that weir has part in, anew
	print()
	verdicts() []verdict
}

// verdict is what a promise has come to.
type verdict struct {
	name, promised, got string
	holds               bool
}

func holds(s scene) bool {
	return !slices.ContainsFunc(s.verdicts(), func(v verdict) bool { return !v.holds })
}

// most is how long the longest of what is played anew takes.
func most(scenes []scene) (d time.Duration) {
	for _, s := range scenes {
		for _, p := range s.stages() {
			if p.way >= swapped {
				d = max(d, p.expected())
			}
		}
	}
	return d
}

// BenchmarkSwap plays all scenes, those of which a promise does not hold again, and prints what they have come to.
// WEIR_BENCH_ONLY, a regular expression, chooses scenes by their names.
func BenchmarkSwap(b *testing.B) {
	only, err := regexp.Compile(os.Getenv("WEIR_BENCH_ONLY"))
	if err != nil {
		b.Fatalf("WEIR_BENCH_ONLY: %v", err)
	}
	var scenes []scene
	for _, c := range swapCards(b) {
		scenes = append(scenes, newPair(c, false))
	}
	card := swapCards(b)[0]
	scenes = append(scenes, newPair(card, true), newFit(card), newFour(card), newCaps(card),
		newOver(card, false), newOver(card, true))
	scenes = slices.DeleteFunc(scenes, func(s scene) bool { return !only.MatchString(s.name()) })
	tried := make(map[scene]int)
	now := slices.Clone(scenes)
	for n := 1; n <= tries && len(now) > 0; n++ {
		if n > 1 && !figures.MayTake(most(now)) {
			break
		}
		var stages []*stage
		for _, s := range now {
			tried[s] = n
			if n > 1 {
				stages = append(stages, s.again()...)
			} else {
				stages = append(stages, s.stages()...)
			}
		}
		playStages(b, stages)
		now = slices.DeleteFunc(now, holds)
	}
	for _, s := range scenes {
		s.print()
		for _, v := range s.verdicts() {
			if tried[s] > 1 {
				v.got += fmt.Sprintf(" (try %d)", tried[s])
			}
			figures.Promise(b, v.name, v.promised, v.got, v.holds)
		}
	}
	if only.MatchString(dataName) {
		playData(b)
	}
}
