package turns

// A model of programs with the library on simulated GPUs, in model time: what is under test is the table, with
// the scheduler behind it. Kernels of all programs with open gates are served in time slices.

import (
	"fmt"
	"testing"

	"weir/agent/session/page"
	"weir/cgo/abi"
)

const (
	us  int64 = 1_000
	ms  int64 = 1_000_000
	sec int64 = 1_000_000_000

	// step is the resolution of the model, helperDelay how long a helper takes to see or say something.
	step        = 100 * us
	helperDelay = 100 * us
	slice       = ms
)

// world is a table, its GPUs and the programs on them.
type world struct {
	t      *testing.T
	now    int64
	table  *Table
	gpus   int
	progs  []*program
	turn   []int // by GPU: whose slice it is
	left   []int64
	events []Event
	rush   int // looks that found no room
}

func newWorld(t *testing.T, gpus int, change func(*Settings)) *world {
	t.Helper()
	w := &world{t: t, gpus: gpus, now: sec, turn: make([]int, gpus), left: make([]int64, gpus)}
	s := Default()
	if change != nil {
		change(&s)
	}
	var err error
	w.table, err = New(Config{GPUs: gpus, Settings: s, Tell: func(e Event) { w.events = append(w.events, e) }})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func always(s *Settings) { s.AlwaysGate = true }

// box is a container of the model.
type box struct {
	*Container
	w     *world
	name  string
	words []page.Turn
}

func (b *box) SetTurn(gpu int, t page.Turn) {
	for len(b.words) <= gpu {
		b.words = append(b.words, page.Turn{})
	}
	if was := b.words[gpu]; was.Lease == t.Lease && was == t {
		b.w.t.Errorf("%s: a turn is shown that was shown before: %+v", b.name, t)
	}
	b.words[gpu] = t
}

func (w *world) box(name string, weight float64) *box {
	w.t.Helper()
	b := &box{w: w, name: name}
	for range w.gpus {
		b.words = append(b.words, page.Turn{Lease: 1<<32 - 1})
	}
	var err error
	if b.Container, err = w.table.Add(w.now, b, b, weight); err != nil {
		w.t.Fatal(err)
	}
	return b
}

// program is a process of the model: kernels of one length on one GPU, with gaps between them.
type program struct {
	*Member
	w      *world
	in     *box
	gpu    int
	kernel int64  // ns
	depth  int    // kernels in flight
	gap    int64  // after each kernel, before the next is launched
	from   int64  // when it begins
	until  int64  // and ends
	stuck  bool   // a kernel that does not end
	deaf   bool   // the helper says nothing
	mute   bool   // no WANT arrives
	waived uint32 // the word of a closed gate that it goes through
	frozen bool   // the process is stopped
	ties   int    // so many further launches its kernel waits for
	tieNS  int64  // each of them comes so long after the gate's opening, or the one before
	full   bool   // there is no room in its socket

	active     bool
	flight     []int64 // what is left of each kernel
	next       int64   // when it launches again
	waits      bool
	wanted     uint32 // the word for which it has said WANT
	said       uint32 // the word for which it has said DRAINED
	looked     bool
	attends    bool
	emptySince int64
	progress   int64
	got        int64 // GPU time
	done       int64 // kernels
	longest    int64 // wait at the gate
	waitFrom   int64
	tieAt      int64
	worked     page.Worked
	looks      int
}

func (p *program) Active(gpu int) bool { return gpu == p.gpu && p.active }

func (p *program) Worked(gpu int) page.Worked {
	if gpu != p.gpu {
		return page.Worked{}
	}
	return p.worked
}

func (p *program) Look(gpu int, _ uint32) bool {
	if p.full {
		p.w.rush++
		return false
	}
	if gpu == p.gpu {
		p.looked = true
	}
	p.looks++
	return true
}

func (w *world) program(in *box, kernel int64, depth int, gap int64) *program {
	p := &program{w: w, in: in, kernel: kernel, depth: depth, gap: gap, from: w.now, until: 1 << 62, emptySince: -1}
	p.Member = in.Join(w.now, p, 1000+len(w.progs), fmt.Sprintf("program-%d", len(w.progs)))
	p.Ready(w.now)
	w.progs = append(w.progs, p)
	return p
}

// launch submits what the program has to, as far as the gate lets it.
func (p *program) launch() {
	word := p.in.words[p.gpu]
	if p.frozen {
		return
	}
	p.waits = false
	if p.w.now < p.from || p.w.now >= p.until {
		return
	}
	if p.ties > 0 && len(p.flight) > 0 {
		p.tie(word)
		return
	}
	for len(p.flight) < p.depth && p.w.now >= p.next {
		if p.waived == word.Lease && !word.Open() {
			p.worked.Ungated++
		} else if !word.Open() {
			if p.waits = true; p.waitFrom == 0 {
				p.waitFrom = p.w.now
			}
			if p.wanted != word.Lease {
				p.wanted = word.Lease
				if p.attends, p.active = true, true; !p.mute {
					p.Want(p.w.now, Message{GPU: p.gpu, Lease: word.Lease >> 1})
				}
				if word = p.in.words[p.gpu]; !word.Open() {
					return
				}
				continue
			}
			return
		}
		if p.waitFrom > 0 {
			p.longest = max(p.longest, p.w.now-p.waitFrom)
			p.waitFrom = 0
		}
		p.waits = false
		if window := int64(word.Window) * us; window > 0 && len(p.flight) > 0 && int64(len(p.flight)+1)*p.kernel > window {
			return
		}
		p.active = true
		p.flight = append(p.flight, p.kernel)
		p.worked.Submitted++
		p.worked.WorkNS += uint64(p.kernel)
	}
}

// tie submits what the kernel under way waits for, as far as the gate lets it.
func (p *program) tie(word page.Turn) {
	switch {
	case !word.Open():
		p.waits, p.tieAt = true, 0
		if p.wanted != word.Lease {
			p.wanted = word.Lease
			p.Want(p.w.now, Message{GPU: p.gpu, Lease: word.Lease >> 1})
		}
	case p.tieAt == 0:
		p.tieAt = p.w.now + p.tieNS
	case p.w.now >= p.tieAt:
		p.ties--
		p.tieAt = p.w.now + p.tieNS
		p.worked.Submitted++
		p.worked.Completed++
	}
}

// help is the helper's part.
func (p *program) help() {
	if p.frozen {
		return
	}
	if p.looked {
		p.looked, p.attends = false, true
		p.said = 0
	}
	if !p.attends || p.deaf {
		return
	}
	word := p.in.words[p.gpu]
	waiting := uint32(0)
	if p.waits {
		waiting = 1
	}
	p.worked.Waiting = waiting
	m := Message{GPU: p.gpu, Lease: word.Lease >> 1, Waiting: waiting}
	if len(p.flight) > 0 || p.waits {
		p.emptySince = -1
	} else if p.emptySince < 0 {
		p.emptySince = p.w.now
	}
	if !word.Open() && len(p.flight) == 0 && p.said != word.Lease {
		p.said = word.Lease
		p.Drained(p.w.now, m)
	} else if word.Lease != 0 && p.worked.Completed > uint64(p.progress) && (!word.Open() || p.reopened()) {
		p.progress = int64(p.worked.Completed)
		p.Progress(p.w.now, m)
	}
	rest := 100 * ms
	if word.Rivals {
		rest = 2 * ms
	}
	if p.emptySince >= 0 && p.w.now-p.emptySince >= rest {
		p.active, p.attends, p.emptySince = false, false, -1
		p.Idle(p.w.now, Message{GPU: p.gpu, Lease: word.Lease >> 1})
	}
}

// reopened: the gate is open in a drain. (A helper knows that by the number, which is still that of the drain.)
func (p *program) reopened() bool {
	s := &p.in.seats[p.gpu]
	return s.state == seatReopened || s.state == seatLateOpen
}

// serve gives one step of a GPU to whose slice it is.
func (w *world) serve(gpu int) {
	var busy []*program
	for _, p := range w.progs {
		if p.gpu == gpu && len(p.flight) > 0 {
			p.worked.BusyNS += uint64(step)
			busy = append(busy, p)
		}
	}
	if len(busy) == 0 {
		return
	}
	if w.left[gpu] <= 0 {
		w.turn[gpu]++
		w.left[gpu] = slice
	}
	w.left[gpu] -= step
	p := busy[w.turn[gpu]%len(busy)]
	p.got += step
	for left := step; left > 0 && len(p.flight) > 0 && !p.stuck && p.ties == 0; {
		run := min(left, p.flight[0])
		left -= run
		if p.flight[0] -= run; p.flight[0] == 0 {
			p.flight = p.flight[1:]
			p.done++
			p.worked.Completed++
			p.next = w.now + p.gap
		}
	}
}

// run lets so much time pass.
func (w *world) run(span int64) {
	w.t.Helper()
	for until := w.now + span; w.now < until; w.now += step {
		for _, p := range w.progs {
			p.launch()
		}
		for gpu := range w.gpus {
			w.serve(gpu)
		}
		for _, p := range w.progs {
			p.help()
		}
		for range 10 {
			if w.table.Next() > w.now {
				break
			}
			w.table.Tick(w.now)
		}
		if next := w.table.Next(); next <= w.now {
			w.t.Fatalf("what is due at %d is still due at %d after ten ticks", next, w.now)
		}
		if len(w.progs) < 16 || w.now/step%64 == 0 {
			w.check()
		}
	}
}

// check: what must hold at any time.
func (w *world) check() {
	for gpu := range w.gpus {
		open := 0
		for _, c := range w.table.containers {
			s := &c.seats[gpu]
			if s.holds() {
				open++
			}
			if s.turn != c.owner.(*box).words[gpu] {
				w.t.Fatalf("%s: the page is not the seat's", c.owner.(*box).name)
			}
			if s.state == seatClosed && s.turn.Lease&abi.LeaseClosed == 0 || s.state == seatOpen && s.turn.Lease != 0 {
				w.t.Fatalf("%s: state %d shows word %d", c.owner.(*box).name, s.state, s.turn.Lease)
			}
			active, drained, waiting, looking := 0, 0, 0, 0
			for _, m := range c.processes {
				p := &m.places[gpu]
				if p.active {
					active++
				}
				if s.isDrained(p) {
					drained++
				}
				if s.isWaiting(p) {
					waiting++
				}
				if p.looking {
					looking++
				}
			}
			if active != len(s.users) || drained != s.drained || waiting != s.waiting || looking != s.looking {
				w.t.Fatalf("%s: %d processes are active, %d drained, %d wait, %d are to look; counted are %d, %d, %d, %d",
					c.owner.(*box).name, active, drained, waiting, looking, len(s.users), s.drained, s.waiting, s.looking)
			}
		}
		if open > w.table.config.Slots {
			w.t.Fatalf("%d leases on GPU %d", open, gpu)
		}
		w.checkBeside(gpu)
	}
}

// checkBeside: a lease's page tells whether work of others runs beside it, as far as that is known: of processes that are
// heard of, and for as long as a drain may take.
func (w *world) checkBeside(gpu int) {
	for _, p := range w.progs {
		c, m := p.in.Container, p.Member
		if s := &c.seats[gpu]; p.gpu != gpu || len(p.flight) == 0 || m.absent || m.gone || !m.places[gpu].active || s.holds() ||
			s.residual && w.now >= s.residualFrom+w.table.config.DrainTimeout || p.waived > 0 && !s.beside {
			continue
		}
		for _, other := range w.table.containers {
			if s := &other.seats[gpu]; other != c && s.holds() && !s.turn.Beside {
				w.t.Fatalf("%s has a lease, and work of %s runs beside it, in state %d", other.owner.(*box).name, p.in.name,
					c.seats[gpu].state)
			}
		}
	}
}

// parts are the programs' parts of all GPU time since before.
func parts(before []int64, progs ...*program) (list []float64) {
	sum := int64(0)
	for i, p := range progs {
		sum += p.got - before[i]
	}
	for i, p := range progs {
		list = append(list, float64(p.got-before[i])/float64(sum))
	}
	return list
}

func gots(progs ...*program) (list []int64) {
	for _, p := range progs {
		list = append(list, p.got)
	}
	return list
}
