package residency

// A model of a card, its link and the programs that share it, in virtual time: it carries the policy's decisions out,
// and plays the same programs without it. Pages and costs of faults are those of the simulated A30 at full scale
// (tests/sim/machines/a30.toml). It knows no copies of the programs' own and no slices within a lease.

import (
	"math/rand/v2"
	"slices"
	"testing"
)

const (
	modelCard  = 24 * gib
	modelLink  = 24_000_000_000 // bytes a second, each way
	modelPage  = 2 * mib
	modelFault = 35_000 // ns for a batch, which is a page, without its transfer
	modelStart = 10_000 // ns to start a copy or prefetch
	modelDrain = 5 * ms // what is in flight when a lease ends
)

func transfer(bytes int64) int64 { return int64(float64(bytes) / modelLink * float64(sec)) }

// program has a working set, which each of its passes uses as a whole, and work to do.
type program struct {
	id     FlowID
	set    int64
	left   int64   // ns of work of what it does now
	bursts []int64 // when each burst of it that is not done yet came
	wait   []int64 // how long the others took
}

// wire is one direction of the link.
type wire struct {
	queue []Decision
	until int64 // when the first is done; 0: it has not begun
}

// model plays programs with the policy. Leases are given first come, first served.
type model struct {
	t           *testing.T
	node        *Node
	now         int64
	in, out     wire
	gone        map[uint64]bool // cancelled
	programs    []*program
	queue       []*program // who waits
	holder      *program
	ready       bool
	lease       int64 // when it is to end while others wait
	quantum     int64
	quantumMost int64 // that was asked for
	since       int64 // the holder runs since then
	still       int64 // the GPU stood still for memory
	granted     int64
	blind       bool // the policy is not told in which order programs wait
	changes     int  // of holders
	bytesIn     int64
	bytesOut    int64
}

func newModel(t *testing.T, config Config, sets ...int64) *model {
	node, err := New(16*modelCard, config)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{t: t, node: node, gone: make(map[uint64]bool), quantum: Never}
	for i, set := range sets {
		p := &program{id: FlowID(i + 1), set: set}
		m.programs = append(m.programs, p)
		if err := node.Add(0, p.id, 0, modelCard, 2*modelCard); err != nil {
			t.Fatal(err)
		}
		for k := range int64(16) {
			id := AllocID(int64(p.id)*100 + k)
			decisions, err := node.Allocate(0, p.id, 0, id, Session(p.id), set/16)
			if err != nil {
				t.Fatal(err)
			}
			m.take(decisions)
		}
	}
	return m
}

func (m *model) take(decisions []Decision) {
	for _, d := range slices.Clone(decisions) {
		switch d.Kind {
		case In:
			m.in.queue = append(m.in.queue, d)
		case Out:
			m.out.queue = append(m.out.queue, d)
		case Cancel:
			m.gone[d.Move] = true
		case Ready:
			m.ready, m.since = true, m.now
			m.still += m.now - m.granted
			if m.quantum < Never {
				m.lease = m.now + m.quantum + modelDrain
			}
		case Apart:
			m.quantum = d.Quantum
			m.quantumMost = max(m.quantumMost, d.Quantum)
		case Together:
			m.quantum = Never
		case Over:
			m.t.Errorf("flow %d is above its cap by %d", d.Flow, d.Bytes)
		}
	}
}

// carry begins what is first in a direction, and answers what is done or need not begin.
func (m *model) carry(w *wire) {
	for len(w.queue) > 0 {
		d := w.queue[0]
		switch {
		case w.until == 0 && m.gone[d.Move]:
			w.queue = w.queue[1:]
			m.take(m.node.Moved(m.now, d.Move, Undone))
		case w.until == 0 && d.Fresh:
			w.until = m.now + modelStart
		case w.until == 0:
			w.until = m.now + modelStart + transfer(d.Bytes)
		case w.until > m.now:
			return
		default:
			w.queue, w.until = w.queue[1:], 0
			switch {
			case d.Kind == Out:
				m.bytesOut += d.Bytes
			case !d.Fresh:
				m.bytesIn += d.Bytes
			}
			m.take(m.node.Moved(m.now, d.Move, Done))
		}
	}
}

func (m *model) carryAll() {
	for moves := -1; moves != int(m.node.number); {
		moves = int(m.node.number)
		m.carry(&m.in)
		m.carry(&m.out)
	}
}

// want has p wait for a lease.
func (m *model) want(p *program) {
	m.queue = append(m.queue, p)
	m.take(m.node.Set(m.now, p.id, 0, Waiting, m.turn(len(m.queue)-1)))
}

// turns gives the lease on, and says who is next and when the others are.
func (m *model) turns() {
	if m.holder == nil && len(m.queue) > 0 {
		m.holder, m.queue = m.queue[0], m.queue[1:]
		m.ready, m.granted = false, m.now
		m.changes++
		m.lease = Never
		m.take(m.node.Set(m.now, m.holder.id, 0, Holder, 0))
	}
	for i, p := range m.queue {
		v, _ := m.node.View(p.id, 0)
		switch {
		case i > 0:
			m.take(m.node.Set(m.now, p.id, 0, Waiting, m.turn(i)))
		case v.State != "next":
			m.take(m.node.Set(m.now, p.id, 0, Next, 0))
		}
	}
}

// turn is when the program in this place of the queue may expect its lease.
func (m *model) turn(place int) int64 {
	if m.blind {
		return 0
	}
	at := m.now + 1
	for _, p := range m.queue[:place] {
		at += min(m.quantum, p.left)
	}
	return at
}

// next is when something happens.
func (m *model) next() int64 {
	at := m.node.Next()
	for _, w := range []*wire{&m.in, &m.out} {
		if w.until > 0 {
			at = min(at, w.until)
		}
	}
	if m.holder != nil && m.ready {
		at = min(at, m.since+m.holder.left)
		if len(m.queue) > 0 {
			at = min(at, max(m.now, m.lease))
		}
	}
	return at
}

// step goes on to at, or to what happens before. done is called when a program has done what it had to.
func (m *model) step(at int64, done func(*program)) {
	m.now = min(at, m.next())
	m.take(m.node.Tick(m.now))
	m.carryAll()
	if p := m.holder; p != nil && m.ready {
		ran := m.now - m.since
		switch {
		case ran >= p.left:
			m.end(p, ran)
			m.take(m.node.Set(m.now, p.id, 0, Idle, 0))
			p.left = 0
			done(p)
		case len(m.queue) > 0 && m.now >= m.lease:
			m.end(p, ran)
			m.want(p)
		}
	}
	m.turns()
	m.carryAll()
}

// end ends p's lease, in which it has used all that it has.
func (m *model) end(p *program, ran int64) {
	p.left -= ran
	m.holder = nil
	for k := range int64(16) {
		m.take(m.node.Used(m.now, AllocID(int64(p.id)*100+k)))
	}
}

// fixed plays programs that have the same work to do, and tells when all is done.
func (m *model) fixed(work int64) int64 {
	running := 0
	for _, p := range m.programs {
		p.left = work
		running++
		m.want(p)
	}
	m.turns()
	m.carryAll()
	for running > 0 && m.now < 1e6*sec {
		m.step(Never, func(p *program) {
			running--
			m.take(m.node.Remove(m.now, p.id, 0))
		})
	}
	return m.now
}

// bursts plays 100 ms bursts of the programs until so many have come, and lets all of them end.
func (m *model) bursts(r *rand.Rand, each int64, weights []float64, count int) {
	arrivals := m.arrivals(r, each, weights, count)
	done := func(p *program) {
		p.wait = append(p.wait, m.now-p.bursts[0])
		if p.bursts = p.bursts[1:]; len(p.bursts) > 0 {
			p.left = 100 * ms
			m.want(p)
		}
	}
	for len(arrivals) > 0 || m.holder != nil || len(m.queue) > 0 {
		at := Never
		if len(arrivals) > 0 {
			at = arrivals[0].at
		}
		m.step(at, done)
		for len(arrivals) > 0 && arrivals[0].at <= m.now {
			p := m.programs[arrivals[0].program]
			if p.bursts = append(p.bursts, arrivals[0].at); len(p.bursts) == 1 {
				p.left = 100 * ms
				m.want(p)
			}
			arrivals = arrivals[1:]
		}
		m.turns()
		m.carryAll()
	}
}

type arrival struct {
	at      int64
	program int
}

// arrivals are of a Poisson process, each of a program by its weight.
func (m *model) arrivals(r *rand.Rand, each int64, weights []float64, count int) (all []arrival) {
	at := m.now
	for range count {
		at += int64(r.ExpFloat64() * float64(each))
		x, i := r.Float64(), 0
		for ; i < len(weights)-1 && x >= weights[i]; i++ {
			x -= weights[i]
		}
		all = append(all, arrival{at, i})
	}
	return all
}

// paging is the card without a policy: pages come by faults, and those of whichever program go that came longest ago:
// the driver sees no uses that do not fault (tests/sim/residency.c has its sources).
type paging struct {
	before, after []int32 // a ring of the pages that are there, from the one that came first on; 0 is its head
	there         []bool
	held, room    int
	now           int64
	moved         int64
}

func newPaging(pages int) *paging {
	return &paging{before: make([]int32, pages+1), after: make([]int32, pages+1), there: make([]bool, pages+1),
		room: int((modelCard - modelCard/64) / modelPage)}
}

func (g *paging) unlink(i int32) {
	g.after[g.before[i]], g.before[g.after[i]] = g.after[i], g.before[i]
}

// touch uses page i (from 1 on), which takes a kernel so long beside what it stands still for the page.
func (g *paging) touch(i int32, takes int64) {
	g.now += takes
	if g.there[i] {
		return
	}
	g.now += modelFault + transfer(modelPage)
	g.moved += modelPage
	if g.held++; g.held > g.room {
		g.now += transfer(modelPage)
		oldest := g.after[0]
		g.unlink(oldest)
		g.there[oldest] = false
		g.held--
	}
	g.there[i] = true
	last := g.before[0]
	g.after[last], g.before[i], g.after[i], g.before[0] = i, last, 0, i
}

// loop is a program that goes over its pages again and again.
type loop struct {
	first, pages, at int32
	left             int64 // ns of work
	step             int64 // ns of work a page
}

func (p *loop) touch(g *paging) {
	g.touch(p.first+p.at, p.step)
	p.at = (p.at + 1) % p.pages
	p.left -= p.step
}

// loops are programs with these sets, a pass of which takes so long.
func loops(pass int64, work int64, sets ...int64) (g *paging, all []*loop) {
	first := int32(1)
	for _, set := range sets {
		pages := int32(set / modelPage)
		all = append(all, &loop{first: first, pages: pages, left: work, step: pass / int64(pages)})
		first += pages
	}
	return newPaging(int(first)), all
}

// taken plays programs by turns of so long each, faults included, until all are done.
func (g *paging) taken(all []*loop, turn int64) int64 {
	for len(all) > 0 {
		for _, p := range slices.Clone(all) {
			for end := g.now + turn; p.left > 0 && (g.now < end || len(all) == 1); {
				p.touch(g)
			}
			if p.left <= 0 {
				all = slices.DeleteFunc(all, func(other *loop) bool { return other == p })
				for i := p.first; i < p.first+p.pages; i++ { // its memory is freed
					if g.there[i] {
						g.unlink(i)
						g.there[i] = false
						g.held--
					}
				}
			}
		}
	}
	return g.now
}
