// Package mixes measures how programs share a simulated GPU, with weir and without it, and prints that beside what
// is promised: `make bench SECTION=time` runs its benchmarks. What programs got is read from the machine's own books.
// Invariant: nothing of a run outlives it, so that the next is not disturbed.
package mixes

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/tests/bench/figures"
	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
	"weir/tests/sim"
)

const (
	settle  = 700 * time.Millisecond // from the beginning of a run to the first look into the books
	startUp = 100 * time.Millisecond // from the word to begin to the beginning
	around  = time.Second            // what starting and ending all of a batch takes
	atATime = 14                     // machines
	// Of programs that take a tenth of a processor each.
	quickMost = 5
)

// load is one program of a mix: a container of its own.
type load struct {
	does   string  // settings of tests/bench/time/load.c
	weight float64 // 0: 1
}

// mix is what runs at once on one GPU.
type mix struct {
	name  string
	loads []load
}

// how programs are started.
type how int

const (
	plain        how = iota // without weir, and without an agent
	underWeir               // under `weir run`
	inContainers            // in containers of containerd, with annotations
)

// run is a mix that is played on a machine of its own.
type run struct {
	mix
	how
	config string          // lines of the agent's weir.toml
	phases []time.Duration // for which the books are looked into one by one
	// got is, by phase and program, the part of the phase's time that the compute engine worked for it.
	got [][]float64
	// told counts the events of GPU time by their types.
	told map[string]int

	scope    *figures.Scope
	node     *node.Node
	programs []*node.Program
}

// each does something for all runs at once. A run in which the test has failed ends the benchmark.
func each(b *testing.B, runs []*run, do func(*run)) {
	var all sync.WaitGroup
	for _, r := range runs {
		all.Go(func() { do(r) })
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// play plays groups of runs, the longest first, each run on a machine of its own and those of a group at once. A kernel
// takes no processor time, so they disturb one another as little as the processors have to spare, which is printed.
func play(b *testing.B, groups [][]*run) {
	b.Helper()
	for _, batch := range batches(groups) {
		playAtOnce(b, batch)
	}
}

// takes is for how long groups are played.
func takes(groups [][]*run) (all time.Duration) {
	for _, batch := range batches(groups) {
		all += batch[0].takes() + around
	}
	return all
}

// batches puts groups together, as many runs as the processors have time for.
func batches(groups [][]*run) (all [][]*run) {
	groups = slices.Clone(groups)
	slices.SortStableFunc(groups, func(a, b []*run) int { return cmp.Compare(b[0].takes(), a[0].takes()) })
	for _, group := range groups {
		fits := slices.IndexFunc(all, func(batch []*run) bool {
			return len(batch)+len(group) <= atATime && quick(batch)+quick(group) <= quickMost
		})
		if fits < 0 {
			all = append(all, group)
		} else {
			all[fits] = append(slices.Clone(all[fits]), group...)
		}
	}
	return all
}

// quick is how many programs there are that launch and wait thousands of times a second.
func quick(runs []*run) (count int) {
	for _, r := range runs {
		for _, l := range r.loads {
			if hurries(l.does) {
				count++
			}
		}
	}
	return count
}

func playAtOnce(b *testing.B, runs []*run) {
	for _, r := range runs {
		r.scope = &figures.Scope{TB: b}
	}
	defer each(b, runs, func(r *run) { r.scope.End() })
	from := figures.Monotonic()
	each(b, runs, (*run).prepare)
	before := figures.ReadProcessors()
	begin := figures.Monotonic() + startUp
	each(b, runs, func(r *run) { r.measure(begin) })
	used := figures.ReadProcessors().Since(before)
	each(b, runs, (*run).listen)
	each(b, runs, func(r *run) { r.scope.End() })
	fmt.Printf("(%d machines at once for %.1f s, in %.1f; processors: %s)\n", len(runs), runs[0].takes().Seconds(),
		(figures.Monotonic() - from).Seconds(), used)
}

// takes is how long the run's programs work.
func (r *run) takes() (all time.Duration) {
	for _, phase := range r.phases {
		all += phase
	}
	return settle + all
}

// prepare starts all of a run but its load.
func (r *run) prepare() {
	r.node = node.Start(r.scope, node.Options{NoAgent: r.how == plain, Config: r.config})
	start := r.starter()
	for i, l := range r.loads {
		r.programs = append(r.programs, start(i, l))
	}
	for _, p := range r.programs {
		if line := p.Line(); line != "ready" {
			r.scope.Fatalf("%s: a program says %q: %s", r.name, line, p.Stderr())
		}
	}
}

// starter starts the programs in the run's way.
func (r *run) starter() func(i int, l load) *node.Program {
	const inside = "spin.ptx"
	ptx := filepath.Join(node.Root(r.scope), "tests/sim/kernels/spin.ptx")
	program := node.Build(r.scope, "bench/load")
	settings := func(i int, l load) []string {
		return append([]string{"name=" + programName(i)}, strings.Fields(l.does)...)
	}
	switch r.how {
	case underWeir:
		return func(i int, l load) *node.Program {
			options := node.RunOptions{Name: programName(i), Flags: []string{"--weight", l.weigh()}}
			return r.node.Run(options, program, append([]string{ptx}, settings(i, l)...)...)
		}
	case inContainers:
		daemon := ctrd.Start(r.scope, newest(), r.node, ctrd.Options{Mode: "runtime"})
		return func(i int, l load) *node.Program {
			return ctrd.Ctr{Daemon: daemon}.Container(node.Wish{
				Name: programName(i), Annotations: map[string]string{"weir/weight": l.weigh(), "weir/memory": "64MiB"},
				Image: node.Image{Add: []node.Entry{{Path: inside, File: ptx}}},
				Args:  append([]string{program, "/" + inside}, settings(i, l)...),
			}).Start()
		}
	}
	return func(i int, l load) *node.Program {
		return r.node.Bare(program, append([]string{ptx}, settings(i, l)...)...)
	}
}

// newest is the containerd of today.
func newest() ctrd.Generation {
	all := ctrd.Generations()
	return all[len(all)-1]
}

func (l load) weigh() string { return fmt.Sprint(l.share()) }

func (l load) share() float64 {
	if l.weight == 0 {
		return 1
	}
	return l.weight
}

// programName is how the books tell the programs apart; their pids may be those of containers.
func programName(i int) string { return fmt.Sprintf("load-%d", i+1) }

// measure has the programs work, and looks into the books between the phases.
func (r *run) measure(begin time.Duration) {
	end := begin + r.takes()
	for _, p := range r.programs {
		p.Send(fmt.Sprintf("%d %d", begin.Nanoseconds(), end.Nanoseconds()))
	}
	machine, err := sim.Open(r.node.SimDir)
	if err != nil {
		r.scope.Fatal(err)
	}
	defer machine.Close()
	at := begin + settle
	before := r.look(machine, at)
	for _, phase := range r.phases {
		at += phase
		after := r.look(machine, at)
		got := make([]float64, len(r.loads))
		for i := range got {
			got[i] = (after[i+1] - before[i+1]) / (after[0] - before[0])
		}
		r.got, before = append(r.got, got), after
	}
	for _, p := range r.programs {
		if line := p.LineWithin(time.Minute); !strings.HasPrefix(line, "done ") {
			r.scope.Fatalf("%s: a program says %q: %s", r.name, line, p.Stderr())
		}
	}
}

// listen counts what the agent has told of GPU time: where a promise does not hold, that says why.
func (r *run) listen() {
	r.told = make(map[string]int)
	if r.how == plain {
		return
	}
	for _, event := range r.node.Events() {
		switch event.Type {
		case "co-run", "drain-stalled", "drain-long", "throttled":
			r.told[event.Type]++
		}
	}
}

// told is what the agents of runs have told, as words.
func told(runs []*run) (words string) {
	sum := make(map[string]int)
	for _, r := range runs {
		for what, times := range r.told {
			sum[what] += times
		}
	}
	for _, what := range slices.Sorted(maps.Keys(sum)) {
		words += fmt.Sprintf("; event %s: %d", what, sum[what])
	}
	return words
}

// look reads the books at a moment: that moment, and what the engine has worked for each program, in ns.
func (r *run) look(machine *sim.Running, at time.Duration) []float64 {
	time.Sleep(at - figures.Monotonic())
	books, err := machine.Books()
	if err != nil {
		r.scope.Fatal(err)
	}
	gpu := books.GPUs[0]
	busy := make([]float64, len(r.loads)+1)
	busy[0] = float64(gpu.NowNS)
	for i := range r.loads {
		for _, process := range gpu.Processes {
			if process.Program == programName(i) {
				busy[i+1] += float64(process.BusyNS)
			}
		}
		if busy[i+1] == 0 {
			r.scope.Errorf("%s: program %d has done nothing", r.name, i+1)
		}
	}
	return busy
}
