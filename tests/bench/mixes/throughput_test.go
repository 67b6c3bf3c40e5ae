package mixes

// Throughput: what weir costs a program that is alone, programs that are busy together, and a set of mixes beside
// plain time-slicing.

import (
	"fmt"
	"time"
)

const (
	aloneLeast    = 0.99 // of what it does without weir
	togetherLeast = 0.97 // of what one does alone
	gapsLeast     = 0.95 // of what it does alone
	mixLeast      = 0.95 // of plain time-slicing
)

const (
	throughputWindow = 3 * time.Second
	mixWindow        = 2 * time.Second
)

// The kinds that mixes are made of.
const (
	hog       = "cost=1000000"
	shortHog  = "cost=50000"
	longHog   = "cost=10000000 ahead=30000"
	deepHog   = "cost=1000000 ahead=0" // as far ahead as the driver's queue goes
	waiter    = "cost=100000 wait=1 gap=100"
	gaps      = "cost=667000 wait=1 gap=1000" // needs the GPU 40 % of the time
	halfHalf  = "cost=3000000 wait=1 gap=3000"
	seldom    = "cost=2000000 wait=1 gap=20000"
	graphs    = "cost=10000 graph=80"
	manyAhead = "cost=200000 streams=4"
)

func of(does ...string) (loads []load) {
	for _, d := range does {
		loads = append(loads, load{does: d})
	}
	return loads
}

var twenty = []mix{
	{"two hogs", of(hog, hog)},
	{"hog, short hog", of(hog, shortHog)},
	{"hog, long hog", of(hog, longHog)},
	{"hog, deep hog", of(hog, deepHog)},
	{"hog, waiter", of(hog, waiter)},
	{"hog, gaps", of(hog, gaps)},
	{"hog, half", of(hog, halfHalf)},
	{"hog, now and then", of(hog, seldom)},
	{"long hog, waiter", of(longHog, waiter)},
	{"long hog, now and then", of(longHog, seldom)},
	{"two waiters", of(waiter, waiter)},
	{"waiter, gaps", of(waiter, gaps)},
	{"gaps, half", of(gaps, halfHalf)},
	{"two of half", of(halfHalf, halfHalf)},
	{"half, now and then", of(halfHalf, seldom)},
	{"graphs, hog", of(graphs, hog)},
	{"graphs, waiter", of(graphs, waiter)},
	{"streams, short hog", of(manyAhead, shortHog)},
	{"three: hog, gaps, now and then", of(hog, gaps, seldom)},
	{"four: two of gaps, two now and then", of(gaps, gaps, seldom, seldom)},
}

// throughputs are the promises of how much gets done.
func throughputs() (claims []*claim) {
	for _, does := range []string{hog, shortHog, waiter, graphs} {
		claims = append(claims, unhindered(does))
	}
	claims = append(claims, together(), gapsFilled())
	before := alone{}
	for _, m := range twenty {
		claims = append(claims, total(withLone(beside(m, window(mixWindow)), before)))
	}
	return claims
}

// unhindered is the promise that a program which has the GPU for itself loses next to nothing.
func unhindered(does string) *claim {
	runs := beside(mix{does, of(does)}, window(throughputWindow))
	return &claim{runs: runs, judge: func(alone) verdict {
		part := runs[0].got[0][0] / runs[1].got[0][0]
		return verdict{
			name: fmt.Sprintf("alone over %s, %s", runs[0].phases[0], does), promised: "at least 99 % of what it does without weir",
			got: fmt.Sprintf("%.2f %%", 100*part), holds: part >= aloneLeast,
		}
	}}
}

// together is the promise that two which are busy all the time lose little against one.
func together() *claim {
	runs := beside(mix{"two busy ones", of(hog, hog)}, window(throughputWindow))
	return &claim{runs: runs, judge: func(alone) verdict {
		part, plain := sum(runs[0].got[0]), sum(runs[1].got[0])
		return verdict{
			name: fmt.Sprintf("two busy ones together over %s", runs[0].phases[0]), promised: "at least 97 % of one alone",
			got: fmt.Sprintf("%.2f %% (without weir %.2f %%)", 100*part, 100*plain), holds: part >= togetherLeast,
		}
	}}
}

// gapsFilled is row T10: two programs that each need the GPU 40 % of the time, with gaps of 1 ms.
func gapsFilled() *claim {
	runs := withLone(beside(mix{"T10", of(gaps, gaps)}, window(throughputWindow)), alone{})
	return &claim{runs: runs, judge: func(known alone) verdict {
		ours, plain := known.worths(runs[0], 0), known.worths(runs[1], 0)
		return verdict{
			name:     fmt.Sprintf("T10, two at 40 %% with gaps of 1 ms over %s", runs[0].phases[0]),
			promised: "each at least 95 % of what it does alone",
			got:      fmt.Sprintf("%s (without weir %s)", percents(ours), percents(plain)),
			holds:    min(ours[0], ours[1]) >= gapsLeast,
		}
	}}
}

// total is what all programs of a mix get done, beside plain time-slicing.
func total(runs []*run) *claim {
	const row = "%26s %26s %8s"
	return &claim{inSet: true, runs: runs, judge: func(known alone) verdict {
		ours, plain := known.worths(runs[0], 0), known.worths(runs[1], 0)
		gain := sum(ours) / sum(plain)
		return verdict{
			name: runs[0].name, promised: fmt.Sprintf(row, "with weir", "without", "total"), gain: gain, holds: gain >= mixLeast,
			got: fmt.Sprintf(row, percents(ours), percents(plain), fmt.Sprintf("%+.1f %%", 100*(gain-1))),
		}
	}}
}
