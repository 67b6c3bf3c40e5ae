package mixes

// Promises: what they are judged by, how often they are tried, and how they are printed.

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"weir/tests/bench/figures"
)

// tries is how often a promise that does not hold is measured: the processors are other programs', too. timeFirst is for
// how long BenchmarkTime measures all of them once.
const (
	tries     = 3
	timeFirst = 42 * time.Second
)

// claim is a promise, or one mix of the set that has a promise as a whole: the runs by which it is judged, all at once,
// and how, once they have been played.
type claim struct {
	runs  []*run
	judge func(known alone) verdict
	inSet bool
}

// verdict is what a claim has come to.
type verdict struct {
	name, promised, got string
	holds               bool
	gain                float64 // of a mix of the set: what it gets done in total, as a part of what it does without weir
	tries               int
}

// try plays the claims that do not hold yet, and judges them, each by what was learned with it, if it was. All have a
// first try; those for whose next there is no time stay as they are.
func try(b *testing.B, claims []*claim, known alone, verdicts map[*claim]verdict) {
	var groups [][]*run
	var now []*claim
	for _, c := range claims {
		more := append(slices.Clone(groups), c.runs)
		if !verdicts[c].holds && (verdicts[c].tries == 0 || figures.MayTake(takes(more))) {
			now, groups = append(now, c), more
		}
	}
	for _, r := range slices.Concat(groups...) {
		r.got, r.programs = nil, nil
	}
	play(b, groups)
	for _, c := range now {
		known.learn(c.runs)
	}
	for _, c := range now {
		known.learn(c.runs)
		v := c.judge(known)
		if !v.holds {
			v.got += told(c.runs)
		}
		v.tries = verdicts[c].tries + 1
		verdicts[c] = v
	}
}

// chosen are the claims that have a mix whose name WEIR_BENCH_ONLY matches, a regular expression; all without one.
func chosen(b *testing.B, claims []*claim) []*claim {
	only, err := regexp.Compile(os.Getenv("WEIR_BENCH_ONLY"))
	if err != nil {
		b.Fatalf("WEIR_BENCH_ONLY: %v", err)
	}
	return slices.DeleteFunc(claims, func(c *claim) bool { return !only.MatchString(c.runs[0].name) })
}

// BenchmarkTime plays the runs of all promises, and then prints what they have come to.
func BenchmarkTime(b *testing.B) {
	claims := chosen(b, slices.Concat(shares(b), throughputs()))
	known, verdicts := alone{}, make(map[*claim]verdict)
	for range tries {
		try(b, claims, known, verdicts)
	}
	var set []verdict
	for _, c := range claims {
		if v := verdicts[c]; c.inSet {
			set = append(set, v)
		} else {
			v.print(b)
		}
	}
	if len(set) > 0 {
		printSet(b, set)
	}
}

// print says what was promised beside what was got.
func (v verdict) print(b *testing.B) {
	figures.Promise(b, v.name, v.promised, v.got+v.again(), v.holds)
}

// again says which try it was that counts, if it was not the first.
func (v verdict) again() string {
	if v.tries > 1 {
		return fmt.Sprintf(" (try %d)", v.tries)
	}
	return ""
}

// printSet prints the mixes of the set, and the promise that all of them make.
func printSet(b *testing.B, set []verdict) {
	fmt.Printf("%-36s %s\n", "mix, in percent of each alone", set[0].promised)
	worst := set[0]
	for _, v := range set {
		fmt.Printf("%-36s %s%s\n", v.name, v.got, v.again())
		if v.gain < worst.gain {
			worst = v
		}
	}
	figures.Promise(b, fmt.Sprintf("total throughput of %d mixes over %s", len(set), window(mixWindow)),
		"none more than 5 % below plain time-slicing",
		fmt.Sprintf("%+.1f %% in the worst (%s)%s", 100*(worst.gain-1), worst.name, mostTries(set)), worst.holds)
}

// mostTries says how often that mix of a set was played which was played most often, if that was more than once.
func mostTries(set []verdict) string {
	most := slices.MaxFunc(set, func(a, b verdict) int { return cmp.Compare(a.tries, b.tries) })
	return most.again()
}
