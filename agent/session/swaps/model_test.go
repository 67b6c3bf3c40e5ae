package swaps

// A model of processes with the library, of their memory and of the link, in model time: under test is the table, with
// those of turns, the scheduler and the policy behind it.

import (
	"fmt"
	"slices"
	"testing"

	"weir/agent/residency"
	"weir/agent/session/page"
	"weir/agent/session/turns"
)

const (
	us   int64 = 1_000
	sec  int64 = 1_000 * ms
	unit int64 = 2 << 20 // a piece

	modelCard = 48 * unit
	modelLink = unit * 1000 / 2 // a piece in 2 ms, each way
)

// world is a node with its containers.
type world struct {
	t      *testing.T
	now    int64
	turns  *turns.Table
	swaps  *Table
	gpus   int
	boxes  []*box
	wires  [][2]wire // by GPU: to the card, and from it
	events []string
	moved  [2]int64 // bytes, to the card and from it
	still  bool     // no process has the processor to see that moves have ended
}

// wire is one direction of a GPU's link: what it carries is served in order.
type wire struct {
	queue []flying
	until int64 // when the first is done; 0: it has not begun
}

type flying struct {
	lib   *lib
	entry Entry
}

func newWorld(t *testing.T, gpus int, host int64, change func(*turns.Settings)) *world {
	t.Helper()
	return newGuessed(t, gpus, host, modelLink, change)
}

// newGuessed is newWorld with a first guess of what links carry.
func newGuessed(t *testing.T, gpus int, host, link int64, change func(*turns.Settings)) *world {
	t.Helper()
	w := &world{t: t, now: sec, gpus: gpus, wires: make([][2]wire, gpus)}
	settings := turns.Default()
	if change != nil {
		change(&settings)
	}
	var err error
	if w.turns, err = turns.New(turns.Config{GPUs: gpus, Settings: settings}); err != nil {
		t.Fatal(err)
	}
	config := Config{Host: host, Tell: func(e Event) { w.events = append(w.events, e.Kind) }}
	for range gpus {
		c := residency.Default(modelCard, link, link)
		c.Piece, c.Ahead = unit, 4*unit
		config.GPUs = append(config.GPUs, c)
	}
	if w.swaps, err = New(config, w.turns); err != nil {
		t.Fatal(err)
	}
	return w
}

// box is a container.
type box struct {
	*turns.Container
	swap  *Container
	w     *world
	name  string
	words []page.Turn
	libs  []*lib
}

func (b *box) SetTurn(gpu int, t page.Turn) { b.words[gpu] = t }

// box makes a container; without limits it has no swap.
func (w *world) box(limits ...Limits) *box {
	w.t.Helper()
	b := &box{w: w, name: fmt.Sprintf("box-%d", len(w.boxes)), words: make([]page.Turn, w.gpus)}
	var err error
	if b.Container, err = w.turns.Add(w.now, b, b, 1); err != nil {
		w.t.Fatal(err)
	}
	if len(limits) > 0 {
		if b.swap, err = w.swaps.Add(w.now, b, b.Container, limits); err != nil {
			w.t.Fatal(err)
		}
	}
	w.boxes = append(w.boxes, b)
	return b
}

// memory is one allocation; each piece has its place: 0 nowhere yet, 1 host, 2 card.
type memory struct {
	gpu    int
	pieces []int
}

func (m *memory) at(place int) (bytes int64) {
	for _, p := range m.pieces {
		if p == place {
			bytes += unit
		}
	}
	return bytes
}

// lib is a process with the library.
type lib struct {
	*turns.Member
	swap   *Member
	in     *box
	mem    map[uint64]*memory
	lastID uint64
	told   map[uint64]Entry // moves that are not answered
	gone   map[uint64]bool  // of them, cancelled
	seen   map[uint64]bool  // all moves ever
	full   bool             // there is no room in its socket
	hand   bool             // the test answers its moves itself
	busy   bool             // it wants the GPU, all the time

	active []bool
	worked []page.Worked
	wanted uint32
	looked bool
	faults int64
	ran    int64
}

func (b *box) lib() *lib {
	l := &lib{in: b, mem: make(map[uint64]*memory), told: make(map[uint64]Entry), gone: make(map[uint64]bool),
		seen: make(map[uint64]bool), active: make([]bool, b.w.gpus), worked: make([]page.Worked, b.w.gpus)}
	l.Member = b.Join(b.w.now, l, 1000, "model")
	l.Member.Ready(b.w.now)
	if b.swap != nil {
		l.swap = b.swap.Join(b.w.now, l)
	}
	b.libs = append(b.libs, l)
	return l
}

func (l *lib) Active(gpu int) bool        { return l.active[gpu] }
func (l *lib) Worked(gpu int) page.Worked { return l.worked[gpu] }
func (l *lib) Look(int, uint32) bool      { l.looked = true; return true }

// Move takes a message, of which each entry must make sense to a process.
func (l *lib) Move(gpu int, entries []Entry) bool {
	w := l.in.w
	if len(entries) == 0 || len(entries) > EntriesMax {
		w.t.Fatalf("%s: a message of %d entries", l.in.name, len(entries))
	}
	if l.full {
		return false
	}
	for _, e := range entries {
		if e.Cancel {
			if _, told := l.told[e.Move]; (!told && !l.seen[e.Move]) || l.gone[e.Move] || e != (Entry{Move: e.Move, Cancel: true}) {
				w.t.Fatalf("%s: cancelled is %+v", l.in.name, e)
			}
			l.gone[e.Move] = true
			continue
		}
		m := l.mem[e.ID]
		if m == nil || m.gpu != gpu || e.Offset%unit != 0 || e.Bytes <= 0 || e.Bytes%unit != 0 ||
			e.Offset+e.Bytes > int64(len(m.pieces))*unit || l.seen[e.Move] || e.Fresh && e.Out {
			w.t.Fatalf("%s: told to move %+v of %+v", l.in.name, e, m)
		}
		l.seen[e.Move], l.told[e.Move] = true, e
		if way := 0; !l.hand {
			if e.Out {
				way = 1
			}
			q := &w.wires[gpu][way]
			q.queue = append(q.queue, flying{l, e})
		}
	}
	return true
}

// done carries a move out, or not, and answers.
func (l *lib) done(e Entry, result residency.Result, took int64) {
	if _, told := l.told[e.Move]; !told {
		return // it has ended, or lost its connection
	}
	delete(l.told, e.Move)
	m := l.mem[e.ID]
	if m == nil {
		result = residency.Undone // freed meanwhile
	}
	if result == residency.Done {
		to := 2
		if e.Out {
			to = 1
		}
		for i := e.Offset / unit; i < (e.Offset+e.Bytes)/unit; i++ {
			if l.in.w.moved[2-to] += unit; e.Fresh {
				l.in.w.moved[0] -= unit
			}
			m.pieces[i] = to
		}
	}
	if err := l.swap.Moved(l.in.w.now, Answer{e.Move, result, took}); err != nil {
		l.in.w.t.Fatal(err)
	}
}

func (l *lib) allocate(gpu int, bytes int64) (id uint64, err error) {
	l.lastID++
	l.mem[l.lastID] = &memory{gpu: gpu, pieces: make([]int, bytes/unit)}
	if err = l.swap.Allocate(l.in.w.now, gpu, l.lastID, bytes); err != nil {
		delete(l.mem, l.lastID)
	}
	return l.lastID, err
}

// touch uses memory: what is not there is fetched by faults.
func (l *lib) touch(gpu int) {
	var ids []uint64
	for id, m := range l.mem {
		if m.gpu != gpu {
			continue
		}
		ids = append(ids, id)
		for i, p := range m.pieces {
			if m.pieces[i] = 2; p == 1 {
				l.faults += unit
			}
		}
	}
	slices.Sort(ids)
	for ids := range slices.Chunk(ids, 256) {
		l.swap.Used(l.in.w.now, gpu, ids...)
	}
}

// launch is what a process that is always busy does on GPU 0 in a ms.
func (l *lib) launch() {
	word := l.in.words[0]
	switch {
	case !l.busy && l.active[0]:
		l.active[0] = false
		l.Idle(l.in.w.now, turns.Message{Lease: word.Lease >> 1})
	case !l.busy:
	case word.Open():
		l.active[0], l.ran = true, l.ran+ms
		w := &l.worked[0]
		w.Submitted, w.Completed, w.WorkNS, w.BusyNS = w.Submitted+1, w.Completed+1, w.WorkNS+uint64(ms), w.BusyNS+uint64(ms)
		if l.touch(0); l.swap == nil {
			return
		}
	default:
		if l.active[0] = true; l.wanted != word.Lease {
			l.wanted = word.Lease
			l.Want(l.in.w.now, turns.Message{Lease: word.Lease >> 1})
		}
		if l.looked && !l.in.words[0].Open() {
			l.Drained(l.in.w.now, turns.Message{Lease: l.in.words[0].Lease >> 1, Waiting: 1})
		}
		l.looked = false
	}
}

// carry serves the links up to now.
func (w *world) carry(gpu int) {
	if w.still {
		return
	}
	for way := range w.wires[gpu] {
		q := &w.wires[gpu][way]
		for len(q.queue) > 0 {
			f := q.queue[0]
			began := q.until > 0
			switch {
			case !began && f.lib.gone[f.entry.Move]:
				q.queue = q.queue[1:]
				f.lib.done(f.entry, residency.Undone, 0)
				continue
			case !began:
				q.until = w.now + 10*us
				if !f.entry.Fresh {
					q.until += f.entry.Bytes * sec / modelLink
				}
			}
			if q.until > w.now {
				break
			}
			q.queue, q.until = q.queue[1:], 0
			f.lib.done(f.entry, residency.Done, f.entry.Bytes*sec/modelLink)
		}
	}
}

// follow has the table of swaps hear of what has happened at that of turns, and does what is due.
func (w *world) follow() {
	for range 100 {
		w.swaps.Follow(w.now)
		next := min(w.turns.Next(), w.swaps.Next())
		if next > w.now {
			return
		}
		w.turns.Tick(w.now)
		w.swaps.Tick(w.now)
	}
	w.t.Fatalf("at %d something is due at %d (turns) or %d (swaps), after a hundred ticks", w.now, w.turns.Next(), w.swaps.Next())
}

// run lets time pass, in which busy processes run.
func (w *world) run(span int64) {
	w.t.Helper()
	for until := w.now + span; w.now < until; w.now += 500 * us {
		for gpu := range w.gpus {
			w.carry(gpu)
			w.follow()
		}
		if w.now%ms == 0 {
			for _, b := range w.boxes {
				for _, l := range b.libs {
					l.launch()
					w.follow()
				}
			}
		}
		used, _ := w.swaps.node.Pressure(0)
		for id := range w.swaps.flows { // what is to come finds its room then, and what is to go may have gone
			v, _ := w.swaps.node.View(id, 0)
			used -= v.Coming + v.Going
		}
		if used > modelCard {
			w.t.Fatalf("%d bytes are on a card of %d", used, modelCard)
		}
	}
}
