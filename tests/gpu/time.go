package main

// GPU time: what two programs get of it by their weights, by the work that they do, how soon the GPU goes
// from one to the other, and what a launch costs.

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"weir/tests/e2e/node"
)

const (
	// shareOff is how far a share may be from what the weights say, in parts of the whole. Far more than it should: a
	// busy machine must not fail it. Without weir both checks are off by more.
	shareOff = 0.1
	// settle is not measured: what programs' work is worth is found out in it.
	settle       = time.Second
	measured     = 5 * time.Second
	workerWait   = 15 * time.Second // until a worker is ready, or has ended
	workerFlight = 64               // kernels of one that does not wait for each

	// Hand-overs: so many at least while they are measured, and half of them as soon as this. A turn takes some 50 to
	// 100 ms where two have as much to do, the end of a drain and a start some 0.1 ms.
	handOvers      = 10
	handOverMost   = 2 * time.Millisecond
	longKernel     = 2 * time.Millisecond // of one that waits for each
	shortKernel    = 50 * time.Microsecond
	hogKernel      = time.Millisecond
	shortHogKernel = 200 * time.Microsecond
)

// worker is a program that works as fast as the GPU lets it.
type worker struct {
	*node.Program
	t     *trial
	alone float64 // kernels a second
}

// work starts a worker in a container of its own, without a cap, and returns once it knows how fast it is
// alone, so nothing else may run beside it.
func (r *run) work(t *trial, name string, weight int, kernel time.Duration, inFlight int) *worker {
	options := node.RunOptions{Name: name}
	if r.options.sabotage != "share" {
		options.Flags = []string{"--weight", strconv.Itoa(weight)}
	}
	program := r.node.For(t).Run(options, node.Build(t, "gpu/worker"), fmt.Sprint(kernel.Nanoseconds()),
		fmt.Sprint(inFlight))
	w := &worker{Program: program, t: t}
	w.said("alone %f", &w.alone)
	return w
}

// said reads the worker's next line.
func (w *worker) said(form string, values ...any) {
	line := w.LineWithin(workerWait)
	if _, err := fmt.Sscanf(line, form, values...); err != nil {
		w.t.Fatalf("the program that works says %q: %v\n%s", line, err, w.Stderr())
	}
}

// done is the GPU time that it has used up to now: what its work takes it alone.
func (w *worker) done() float64 {
	var kernels, ns int64
	w.Send("mark")
	w.said("marked %d %d", &kernels, &ns)
	return float64(kernels) / w.alone
}

// turns ends it, and is when it had the GPU.
func (w *worker) turns() (turns []turn) {
	w.Send("stop")
	code, lines := w.Wait(workerWait)
	if code != 0 {
		w.t.Fatalf("the program that works ends with %d: %s", code, w.Stderr())
	}
	for _, line := range lines {
		t := turn{who: w}
		if _, err := fmt.Sscanf(line, "turn %d %d", &t.begin, &t.end); err != nil {
			w.t.Fatalf("the program that works says %q: %v", line, err)
		}
		turns = append(turns, t)
	}
	return turns
}

// compete lets workers work at once: how much each has done meanwhile, in seconds that it takes alone.
func compete(workers ...*worker) (done []float64) {
	for _, w := range workers {
		w.Send("go")
	}
	time.Sleep(settle)
	for _, w := range workers {
		done = append(done, -w.done())
	}
	time.Sleep(measured)
	for i, w := range workers {
		done[i] += w.done()
	}
	return done
}

// shares fails the check unless the first of two workers gets its part of all that both do.
func (r *run) shares(t *trial, want float64, workers ...*worker) {
	done := compete(workers...)
	all := done[0] + done[1]
	if all <= 0 {
		t.Fatalf("nothing was done")
	}
	got := done[0] / all
	figure := fmt.Sprintf("%.1f %% of all work (%.0f %% by weight); together %.0f %% of what one does alone",
		100*got, 100*want, 100*all/measured.Seconds())
	if off := got - want; max(off, -off) > shareOff {
		t.Errorf("%s", figure)
	}
	t.figure("%s", figure)
}

// equalWeights: one that waits for each of its short kernels, beside one that has 64 of 1 ms queued.
func (r *run) equalWeights(t *trial) {
	r.shares(t, 0.5, r.work(t, "waits", 1, shortKernel, 1), r.work(t, "hog", 1, hogKernel, workerFlight))
}

// unequalWeights: two that never wait.
func (r *run) unequalWeights(t *trial) {
	r.shares(t, 0.25, r.work(t, "light", 1, hogKernel, workerFlight),
		r.work(t, "heavy", 3, shortHogKernel, workerFlight))
}

// turn is a time in which a worker had the GPU, in ns of CLOCK_MONOTONIC.
type turn struct {
	who        *worker
	begin, end int64
}

// handOverTimes are from the end of one worker's turn to the begin of the next one's, the shortest first. Turns
// that overlap are no hand-over: there both ran at once.
func handOverTimes(turns []turn) (times []time.Duration) {
	slices.SortFunc(turns, func(a, b turn) int { return int(a.begin - b.begin) })
	for i := 1; i < len(turns); i++ {
		last, next := turns[i-1], turns[i]
		if last.who != next.who && next.begin >= last.end {
			times = append(times, time.Duration(next.begin-last.end))
		}
	}
	slices.Sort(times)
	return times
}

// handOver: two that wait for each of their kernels, long and short ones, take turns, and nobody's is long to
// begin. Without leases the one with long kernels would have its turn all the time.
func (r *run) handOver(t *trial) {
	long, short := r.work(t, "long", 1, longKernel, 1), r.work(t, "short", 1, shortKernel, 1)
	compete(long, short)
	times := handOverTimes(append(long.turns(), short.turns()...))
	if len(times) < handOvers {
		t.Fatalf("in %s the GPU went only %d times from one to the other, want %d", settle+measured, len(times), handOvers)
	}
	half, most := times[len(times)/2], times[len(times)*99/100]
	if half > handOverMost && !r.options.simulated {
		t.Errorf("half of %d hand-overs take more than %s, want %s at most", len(times), half, handOverMost)
	}
	t.figure("%d, median %s, p99 %s", len(times), half.Round(time.Microsecond), most.Round(time.Microsecond))
}
