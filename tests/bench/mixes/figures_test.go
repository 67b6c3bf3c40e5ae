package mixes

// What is made of runs: worths and shares.

import (
	"fmt"
	"maps"
	"math"
	"os"
	"strings"
	"time"
)

// beside is a mix under weir, and the same without.
func beside(m mix, phases ...time.Duration) []*run {
	return []*run{{mix: m, how: underWeir, phases: phases}, {mix: m, phases: phases}}
}

// withLone adds what each program of a mix that waits for its work does by itself in the same seconds: how fast that
// goes depends on what else the processors do, if it waits often. Of the others those do that have been added before.
func withLone(runs []*run, before alone) []*run {
	for _, l := range runs[0].loads {
		if _, there := before[l.does]; there || !waits(l.does) || changes(l.does) {
			continue
		}
		runs = append(runs, byItself(l.does, plain, runs[0].takes()-settle))
		before[l.does] = 0
	}
	maps.DeleteFunc(before, func(does string, _ float64) bool { return hurries(does) })
	return runs
}

// waits tells whether a program waits for its work; hurries, whether it does so thousands of times a second; changes,
// whether it does not do the same all the time.
func waits(does string) bool   { return strings.Contains(does, "wait=") }
func hurries(does string) bool { return waits(does) && strings.HasPrefix(does, "cost=100000 ") }
func changes(does string) bool { return strings.Contains(does, "more=") }

// byItself is a program that has a GPU to itself.
func byItself(does string, how how, phase time.Duration) *run {
	return &run{mix: mix{does, of(does)}, how: how, phases: []time.Duration{phase}}
}

// window is for how long a mix is measured: what is promised over 10 s is seen sooner unless LONG=1 asks for all of it.
func window(short time.Duration) time.Duration {
	if os.Getenv("LONG") != "" {
		return 10 * time.Second
	}
	return short
}

// alone is, by what a program does, the part of the time that a GPU of its own works for it, without weir. One that
// waits for nothing keeps the GPU busy all the time.
type alone map[string]float64

// learn takes what the runs of single programs tell.
func (a alone) learn(runs []*run) {
	for _, r := range runs {
		if r.how == plain && len(r.loads) == 1 {
			a[r.loads[0].does] = r.got[0][0]
		}
	}
}

// worths is, of each program, how much of what it does alone it has done in a phase: its time in slots, where it has
// the GPU's slot to itself.
func (a alone) worths(r *run, phase int) []float64 {
	worths := make([]float64, len(r.loads))
	for i, l := range r.loads {
		worths[i] = r.got[phase][i]
		if part, measured := a[l.does]; measured && waits(l.does) {
			worths[i] /= part
		}
	}
	return worths
}

func sum(values []float64) (all float64) {
	for _, v := range values {
		all += v
	}
	return all
}

// parts is what each value is of all.
func parts(values []float64) []float64 {
	all, of := sum(values), make([]float64, len(values))
	for i, v := range values {
		of[i] = v / all
	}
	return of
}

// asked is what part of the whole the weights ask for.
func (m mix) asked() []float64 {
	weights := make([]float64, len(m.loads))
	for i, l := range m.loads {
		weights[i] = l.share()
	}
	return parts(weights)
}

// apart is the greatest difference between two lists.
func apart(a, b []float64) (most float64) {
	for i := range a {
		most = max(most, math.Abs(a[i]-b[i]))
	}
	return most
}

// percents of a list, as words.
func percents(values []float64) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprintf("%.1f", 100*v)
	}
	return strings.Join(words, "/") + " %"
}
