package swap

// One machine with programs whose sets exceed its card, from their start to the check of their data.

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/tests/bench/figures"
	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// ways of sharing a card whose memory is not enough.
type way int

const (
	serially    way = iota // one after the other, plain memory, without weir
	unscheduled            // at once, managed memory, without weir
	exclusively            // managed memory, without weir; in turns, by a lock that is held for a quantum
	swapped                // under weir with swap
	unswapped              // under weir without
)

func (w way) String() string {
	return [...]string{"serial", "unscheduled", "exclusive, no prefetch", "weir", "weir, swap off"}[w]
}

// A pass uses all of a set once: by one kernel over four allocations, or by kernels that use a piece each, of two dozen.
const (
	capPart  = 0.85                    // of the card: what a container may have there
	swapPart = 0.85                    // of the card: what it may have beyond
	pass     = 5 * time.Millisecond    // of a kernel that uses all of a set
	piece    = 1042 * time.Microsecond // of one that uses a piece of it
	calm     = 300 * time.Millisecond  // from the word to begin to the beginning
	patient  = 120 * time.Second       // with a program's answer, beyond what it has to do
)

// play is what the programs of a stage do.
type play struct {
	byPieces bool              // its kernels use a piece each
	work     time.Duration     // of each, or of each burst
	limit    time.Duration     // for all of it
	arrivals [][]time.Duration // of bursts, by program; nil: all at once
	rounds   int               // of that work, each after the one before; 0: one
	with     *meeting          // rounds begin together with others'; nil: alone
	plain    int64             // bytes of memory that does not move, which each takes and frees as it works
	// window is what a program uses in a round: of so many pieces from that one on; nil: all.
	window func(round, program int) (first, count int)
	// beside goes on beside a round; nil: nothing. A round ends when that has ended.
	beside func(s *stage, round int, begin time.Duration)
}

// stage is a machine, what happens there, and what came of it.
type stage struct {
	card
	way
	play
	sets  []float64 // of the programs, as parts of the card
	caps  []float64 // so too; nil: capPart for each
	watch bool      // the machine's books, and what the agent says of these caps
	mark  int64     // bytes of each MiB that are written and checked; 0: all of them

	took    time.Duration     // until all are done, of all rounds together
	tooks   []time.Duration   // of each round
	done    []int64           // kernels, by program
	delays  [][]time.Duration // of bursts
	checked int64             // bytes
	wrong   int64             // of them
	books   sim.GPUBooks      // when all were done
	before  sim.GPUBooks      // at the beginning
	series  *series           // of watched ones
	limits  [][]limit         // of each program, the latest last
	reports [][]report        // of watched ones: what the agent said of each program

	scope    *figures.Scope
	node     *node.Node
	tenants  []*tenant
	lockFile string
	watcher  *node.Program
	polls    *polls
}

// cost is what a kernel takes, kernels how many there are to be.
func (p *play) cost() time.Duration {
	if p.byPieces {
		return piece
	}
	return pass
}

func (p *play) kernels() int64 { return int64(p.work / p.cost()) }

func (s *stage) run() {
	options := node.Options{Machine: s.machine, NoAgent: s.way < swapped, CountContext: true}
	s.node = node.Start(s.scope, options)
	s.lockFile = filepath.Join(s.node.Dir, "lock")
	if err := os.WriteFile(s.lockFile, make([]byte, 16), 0o600); err != nil {
		s.scope.Fatal(err)
	}
	if s.way == serially {
		s.runSerially()
		return
	}
	for i := range s.sets {
		s.start(i)
	}
	s.before = s.look()
	if s.way == swapped && s.arrivals == nil {
		s.warmUp()
	}
	if s.watch {
		s.watcher = s.node.Bare(node.Build(s.scope, "bench/watch"), filepath.Join(s.node.SimDir, "machine"), "1",
			filepath.Join(s.node.Dir, "rows"))
	}
	if s.caps != nil && s.watch {
		s.polls = startPolls(s.node.ControlSocket(), len(s.sets))
	}
	for n := range max(s.rounds, 1) {
		if s.with != nil {
			s.with.meet()
		}
		s.round(n)
	}
	s.books = s.look()
	if s.watch {
		s.read()
	}
	for _, t := range s.tenants {
		s.check(t)
	}
}

// round has all programs do their work.
func (s *stage) round(n int) {
	begin, took := figures.Monotonic()+calm, time.Duration(0)
	for i := range s.tenants {
		s.order(i, n, begin)
	}
	var beside sync.WaitGroup
	if s.beside != nil {
		beside.Go(func() { s.beside(s, n, begin) })
	}
	for i := range s.tenants {
		took = max(took, s.answer(i)-begin)
	}
	beside.Wait()
	s.tooks = append(s.tooks, took)
	s.took += took
}

// expected is how long a stage takes about, if all is well.
func (s *stage) expected() time.Duration {
	if s.arrivals != nil {
		return s.limit + 3*time.Second
	}
	return s.play.work*time.Duration(len(s.sets)*max(s.rounds, 1))*11/10 + 3*time.Second
}

// warmUp has the programs do a little in turn, so that weir has seen what the link carries. Until then it takes the
// link to be as fast as the card is large, as real ones are about; these cards are small for their links.
func (s *stage) warmUp() {
	const little = 300 * time.Millisecond
	for range 2 {
		for i, t := range s.tenants {
			begin := figures.Monotonic()
			t.Send(fmt.Sprintf("fixed %d %d %d", begin, little/s.cost(), begin+time.Minute))
			s.answer(i)
		}
	}
	s.done, s.before = nil, s.look()
}

// runSerially starts each when the one before it has ended.
func (s *stage) runSerially() {
	for i := range s.sets {
		t := s.start(i)
		begin := figures.Monotonic() + calm
		s.order(i, 0, begin)
		s.took += s.answer(i) - begin
		s.check(t)
		t.Wait(patient)
	}
	s.books = s.look()
}

func (s *stage) look() sim.GPUBooks {
	books, err := sim.Status(s.node.SimDir)
	if err != nil {
		s.scope.Fatal(err)
	}
	return books.GPUs[0]
}

// read ends the watcher and takes what it has seen.
func (s *stage) read() {
	s.watcher.Wait(patient)
	if s.polls != nil {
		s.reports = s.polls.end()
	}
	rows, err := os.ReadFile(filepath.Join(s.node.Dir, "rows"))
	if err != nil {
		s.scope.Fatal(err)
	}
	s.series = newSeries(s.tenants, string(rows))
}

// moved is what all programs moved over the link and what of it came by faults, from the beginning to the end.
func (s *stage) moved() (all, faulted int64) {
	for _, side := range []struct {
		books sim.GPUBooks
		sign  int64
	}{{s.books, 1}, {s.before, -1}} {
		for _, p := range side.books.Processes {
			m := p.Managed
			all += side.sign * (m.FaultInBytes + m.PrefetchInBytes + m.PrefetchOutBytes + m.EvictedBytes)
			faulted += side.sign * m.FaultInBytes
		}
	}
	return all, faulted
}

// times is how long all of its work takes as a multiple of another's; of one that was stopped, by what it had done.
func (s *stage) times(other *stage) (factor float64, stopped bool) {
	var done, asked int64
	for _, kernels := range s.done {
		done += kernels
		asked += s.kernels()
	}
	part := float64(done) / float64(asked)
	return float64(s.took) / float64(other.took) / part, done < asked
}

// playStages plays all at once, the first one's processors printed, and ends them.
func playStages(b *testing.B, stages []*stage) {
	for _, s := range stages {
		s.scope = &figures.Scope{TB: b}
	}
	from, before := figures.Monotonic(), figures.ReadProcessors()
	var all sync.WaitGroup
	for _, s := range stages {
		all.Go(s.run)
	}
	all.Wait()
	used := figures.ReadProcessors().Since(before)
	for _, s := range stages {
		s.scope.End()
	}
	if b.Failed() {
		b.FailNow()
	}
	longest := slices.MaxFunc(stages, func(a, b *stage) int { return cmp.Compare(a.took, b.took) })
	fmt.Printf("(%d machines at once for up to %.1f s, in %.1f; processors: %s)\n", len(stages), longest.took.Seconds(),
		(figures.Monotonic() - from).Seconds(), used)
}
