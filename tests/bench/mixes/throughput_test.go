package mixes

// Throughput: what weir costs a program that is alone, programs that are busy together, and a set of mixes beside
// plain time-slicing.

import (
	"fmt"
	"testing"
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
func throughputs() (claims []claim) {
	for _, does := range []string{hog, shortHog, waiter, graphs} {
		claims = append(claims, unhindered(does))
	}
	return append(claims, together(), gapsFilled(), byMixes())
}

// unhindered is the promise that a program which has the GPU for itself loses next to nothing.
func unhindered(does string) claim {
	runs := beside(mix{does, of(does)}, window(throughputWindow))
	return claim{[][]*run{runs}, func(b *testing.B) {
		part := runs[0].got[0][0] / runs[1].got[0][0]
		promise(b, fmt.Sprintf("alone over %s, %s", runs[0].phases[0], does), "at least 99 % of what it does without weir",
			fmt.Sprintf("%.2f %%", 100*part), part >= aloneLeast)
	}}
}

// together is the promise that two which are busy all the time lose little against one.
func together() claim {
	runs := beside(mix{"two busy ones", of(hog, hog)}, window(throughputWindow))
	return claim{[][]*run{runs}, func(b *testing.B) {
		part, plain := sum(runs[0].got[0]), sum(runs[1].got[0])
		promise(b, fmt.Sprintf("two busy ones together over %s", runs[0].phases[0]), "at least 97 % of one alone",
			fmt.Sprintf("%.2f %% (without weir %.2f %%)", 100*part, 100*plain), part >= togetherLeast)
	}}
}

// gapsFilled is row T10: two programs that each need the GPU 40 % of the time, with gaps of 1 ms.
func gapsFilled() claim {
	runs := withLone(beside(mix{"T10", of(gaps, gaps)}, window(throughputWindow)))
	return claim{[][]*run{runs}, func(b *testing.B) {
		known := alone{}
		known.learn(runs)
		ours, plain := known.worths(runs[0], 0), known.worths(runs[1], 0)
		promise(b, fmt.Sprintf("T10, two at 40 %% with gaps of 1 ms over %s", runs[0].phases[0]),
			"each at least 95 % of what it does alone", fmt.Sprintf("%s (without weir %s)", percents(ours), percents(plain)),
			min(ours[0], ours[1]) >= gapsLeast)
	}}
}

// byMixes is the promise for what all programs of a mix get done.
func byMixes() claim {
	var groups [][]*run
	for _, m := range twenty {
		groups = append(groups, withLone(beside(m, window(mixWindow))))
	}
	return claim{groups, func(b *testing.B) {
		worst, name := 2.0, ""
		fmt.Printf("%-36s %26s %26s %8s\n", "mix, in percent of each alone", "with weir", "without", "total")
		for _, runs := range groups {
			known := alone{}
			known.learn(runs)
			ours, plain := known.worths(runs[0], 0), known.worths(runs[1], 0)
			ratio := sum(ours) / sum(plain)
			fmt.Printf("%-36s %26s %26s %+6.1f %%\n", runs[0].name, percents(ours), percents(plain), 100*(ratio-1))
			if ratio < worst {
				worst, name = ratio, runs[0].name
			}
		}
		promise(b, fmt.Sprintf("total throughput of %d mixes over %s", len(twenty), groups[0][0].phases[0]),
			"none more than 5 % below plain time-slicing", fmt.Sprintf("%+.1f %% in the worst (%s)", 100*(worst-1), name),
			worst >= mixLeast)
	}}
}
