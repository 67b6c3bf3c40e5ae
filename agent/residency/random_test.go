package residency

// Random schedules, with the invariants of the package checked after each event. The checks keep books of their own:
// where each piece is, by the decisions alone and by what was answered to them.

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// testSeed is new, or what WEIR_TEST_SEED says.
func testSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (WEIR_TEST_SEED repeats it)", seed)
	return seed
}

// schedules is how many of n a test runs: all, or ten times as many with LONG.
func schedules(n int) int {
	if os.Getenv("LONG") != "" {
		return 10 * n
	}
	return n
}

// The books of the test.
type (
	flight struct {
		d         Decision
		cancelled bool
		used      bool // meanwhile
	}
	memory struct {
		id      AllocID
		session Session
		pieces  []place
		sum     [going + 1]int64 // bytes by place
		sizes   []int64
		lease   int // of its last use
		stamp   int
	}
	owner struct {
		id        FlowID
		gpu       int
		state     State
		ready     bool
		limit     int64
		swap      int64
		plain     int64
		asks      map[uint64]int64
		memory    []*memory
		lease     int
		all       int  // the last lease that was not known more closely
		excused   bool // above the cap, for faults or a change of the cap
		overSaid  bool
		drain     bool
		displaced int64
	}
	world struct {
		t       *testing.T
		seed    uint64
		random  *rand.Rand
		node    *Node
		configs []Config
		host    int64
		now     int64
		owners  []*owner
		flights map[uint64]*flight
		next    []*owner // by GPU
		others  []int64
		ids     uint64
		stamps  int
		cancels int
		moved   int64
		cards   []*card // by GPU
		looks   int     // comparisons of the books with cards that have pieces
	}
)

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Logf("WEIR_TEST_SEED=%d, at %d ns", w.seed, w.now)
	w.t.Fatalf(format, args...)
}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 0))
	w := &world{t: t, seed: seed, random: r, flights: make(map[uint64]*flight), now: r.Int64N(1e15)}
	for range 1 + r.IntN(2) {
		card := 1000 + r.Int64N(4000)
		c := Default(card, 1000+r.Int64N(10_000), 1000+r.Int64N(10_000))
		c.Reserve, c.Piece = r.Int64N(card/20), 1+r.Int64N(card/10)
		c.Ahead = c.Piece * (1 + r.Int64N(4))
		c.Pressure = r.Float64() * 0.94
		c.KeepMax, c.Round = r.Int64N(10*sec), 1+r.Int64N(10*sec)
		w.configs = append(w.configs, c)
		w.host += card * r.Int64N(6)
		w.cards = append(w.cards, newCard())
	}
	node, err := New(w.host, w.configs...)
	if err != nil {
		t.Fatal(err)
	}
	w.node, w.next, w.others = node, make([]*owner, len(w.configs)), make([]int64, len(w.configs))
	return w
}

func (w *world) id() uint64 { w.ids++; return w.ids }

// at is a flow's bytes by place, and all that takes room on the card.
func (o *owner) at(places ...place) (bytes int64) {
	for _, m := range o.memory {
		for _, p := range places {
			bytes += m.sum[p]
		}
	}
	return bytes
}

// put has piece i of m in another place.
func (m *memory) put(i int, to place) {
	m.sum[m.pieces[i]] -= m.sizes[i]
	m.sum[to] += m.sizes[i]
	m.pieces[i] = to
}

// distrust: a drain fetches all.
func (o *owner) distrust() {
	for _, m := range o.memory {
		for i, at := range m.pieces {
			if at == resident {
				m.put(i, host)
			}
		}
	}
}

func (o *owner) find(id AllocID) *memory {
	for _, m := range o.memory {
		if m.id == id {
			return m
		}
	}
	return nil
}

func (o *owner) here() int64 { return o.at(resident, coming, filling, going) }

func (o *owner) recent(m *memory) bool {
	return o.lease-m.lease < recentLeases || o.all >= 0 && o.lease-o.all < recentLeases
}

func (w *world) owner(id FlowID, gpu int) *owner {
	for _, o := range w.owners {
		if o.id == id && o.gpu == gpu {
			return o
		}
	}
	w.fatalf("a decision names flow %d on GPU %d", id, gpu)
	return nil
}

// used is what of a card is used by the test's books.
func (w *world) used(gpu int) int64 {
	used := w.others[gpu]
	for _, o := range w.owners {
		if o.gpu == gpu {
			used += o.here() + o.plain
		}
	}
	return used
}

// going is what is under way to the host.
func (w *world) going(gpu int) (bytes int64) {
	for _, o := range w.owners {
		if o.gpu == gpu {
			bytes += o.at(going)
		}
	}
	return bytes
}

func (w *world) underWay(gpu int) bool {
	for _, f := range w.flights {
		if f.d.GPU == gpu {
			return true
		}
	}
	return false
}

// lack is what of its recent set a flow lacks, and could have under its cap in whole pieces.
func (w *world) lack(o *owner) (bytes int64) {
	for _, m := range o.memory {
		if o.recent(m) && !w.rests(m) {
			bytes += m.sum[nowhere] + m.sum[host]
		}
	}
	if most := max(0, o.limit-o.plain-asked(o)-o.at(resident, coming, filling)); bytes > most {
		return most - most%w.configs[o.gpu].Piece
	}
	return bytes
}

// rests tells whether nobody is to wait for m: that is the node's to say, and what follows is the test's.
func (w *world) rests(m *memory) bool {
	a := w.node.allocs[m.id]
	return a != nil && (a.restUntil != 0 || a.process.restUntil != 0)
}

// take carries decisions out, and checks what holds at each of them.
func (w *world) take(decisions []Decision) {
	w.follow()
	for _, d := range slices.Clone(decisions) {
		switch d.Kind {
		case In, Out:
			w.begun(d)
		case Cancel:
			f := w.flights[d.Move]
			if f == nil || f.cancelled {
				w.fatalf("cancelled what is not under way: %+v", d)
			}
			f.cancelled = true
			w.cancels++
		case Ready:
			if o := w.owner(d.Flow, d.GPU); o.state != Holder || o.ready {
				w.fatalf("ready, and no holder or ready before: %+v", d)
			} else if lack := w.lack(o); lack > 0 && w.underWay(d.GPU) {
				w.fatalf("ready, and lacks %d while moves are under way: %+v", lack, d)
			} else {
				o.ready = true
			}
		case Admit:
			o := w.owner(d.Flow, d.GPU)
			if o.asks[d.Ask] != d.Bytes {
				w.fatalf("admitted what was not asked for: %+v", d)
			}
			delete(o.asks, d.Ask)
			o.plain += d.Bytes
			if o.here()+o.plain > o.limit {
				w.fatalf("admitted above the cap: %+v", d)
			}
			if w.used(d.GPU) > w.configs[d.GPU].room() && w.going(d.GPU) > 0 {
				w.fatalf("admitted while room is being made: %+v", d)
			}
		case Over:
			o := w.owner(d.Flow, d.GPU)
			if o.overSaid || d.Bytes <= 0 {
				w.fatalf("said twice to be above its cap, or for nothing: %+v", d)
			}
			o.excused, o.overSaid = true, true
		case Drained:
			o := w.owner(d.Flow, d.GPU)
			if !o.drain || o.at(host, coming, going) != 0 {
				w.fatalf("drained, and %d are not back", o.at(host, coming, going))
			}
			o.drain = false
		}
	}
	w.fitCards()
}

// begun checks a move that begins.
func (w *world) begun(d Decision) {
	o, c := w.owner(d.Flow, d.GPU), &w.configs[d.GPU]
	m := o.find(d.Alloc)
	if m == nil || m.session != d.Session || d.Offset%c.Piece != 0 {
		w.fatalf("moves what is not there: %+v", d)
	}
	if w.rests(m) {
		w.fatalf("moves what rests: %+v", d)
	}
	i := int(d.Offset / c.Piece)
	if i >= len(m.pieces) || m.sizes[i] != d.Bytes || w.flights[d.Move] != nil {
		w.fatalf("moves what is no piece: %+v", d)
	}
	w.flights[d.Move] = &flight{d: d}
	was := m.pieces[i]
	if d.Kind == In {
		if want := map[bool]place{true: nowhere, false: host}[d.Fresh]; was != want {
			w.fatalf("brings what is in place %d: %+v", was, d)
		}
		m.put(i, map[bool]place{true: filling, false: coming}[d.Fresh])
		w.begunIn(o, m, d)
		return
	}
	if was != resident {
		w.fatalf("swaps out what is in place %d: %+v", was, d)
	}
	w.begunOut(o, m, d)
	m.put(i, going)
}

func (w *world) begunIn(o *owner, m *memory, d Decision) {
	c := &w.configs[d.GPU]
	if o.state != Holder && o != w.next[d.GPU] && !o.drain {
		w.fatalf("brings memory of a flow in state %d: %+v", o.state, d)
	}
	if o.here()+o.plain > o.limit {
		w.fatalf("brings more than the cap: %+v", d)
	}
	if w.used(d.GPU) > c.room() {
		w.fatalf("brings more than there is room for: %+v", d)
	}
	if set := w.set(o); d.Why == ForNext && !o.recent(m) &&
		o.at(resident, coming, filling) > int64(c.Recent*float64(set)) {
		w.fatalf("brings %d of a set of %d: %+v", o.at(resident, coming, filling), set, d)
	}
	if d.Why == ForHolder && !o.recent(m) {
		w.fatalf("brings a holder what it does not use: %+v", d)
	}
}

// set is a flow's recent working set.
func (w *world) set(o *owner) (bytes int64) {
	for _, m := range o.memory {
		if o.recent(m) {
			for _, at := range m.sum {
				bytes += at
			}
		}
	}
	return bytes
}

func (w *world) begunOut(o *owner, m *memory, d Decision) {
	c := &w.configs[d.GPU]
	if o.swap == 0 || o.drain {
		w.fatalf("swaps out of a flow without swap: %+v", d)
	}
	if d.Why == ForCap {
		// Above its cap, or at it with newer memory to come.
		newer := slices.ContainsFunc(slices.Clone(o.memory), func(other *memory) bool {
			return other.stamp > m.stamp && (other.sum[host]+other.sum[nowhere] > 0)
		})
		if o.at(resident, coming, filling)+o.plain+asked(o) <= o.limit && !newer {
			w.fatalf("swaps out for a cap that holds: %+v", d)
		}
		return
	}
	if o.state == Holder {
		w.fatalf("swaps out of a holder: %+v", d)
	}
	if d.Why == ForRoom && (o == w.next[d.GPU] || w.used(d.GPU)-w.going(d.GPU) <= c.room()) {
		w.fatalf("makes room where there is some, or of who is next: %+v", d)
	}
	if o == w.next[d.GPU] && o.recent(m) && d.Why != ForHolder && d.Why != ForPlain {
		w.fatalf("swaps out recent memory of who is next: %+v", d)
	}
	lack := int64(0) // that anybody lacks
	for _, other := range w.owners {
		if other.gpu == d.GPU {
			lack += other.at(host, nowhere) + asked(other)
		}
	}
	if w.used(d.GPU)+lack <= c.pressed() {
		w.fatalf("swaps out without pressure: used %d, pressure above %d: %+v", w.used(d.GPU), c.pressed(), d)
	}
	// The least recently used of its flow.
	for _, other := range o.memory {
		if other.stamp < m.stamp && other.sum[resident] > 0 && !w.rests(other) {
			w.fatalf("swaps out what was used later than another: %+v", d)
		}
	}
}

func asked(o *owner) (bytes int64) {
	for _, n := range o.asks {
		bytes += n
	}
	return bytes
}

// answer ends one of the moves under way, as the library could.
func (w *world) answer(number uint64) {
	f := w.flights[number]
	delete(w.flights, number)
	result := Done
	switch {
	case f.cancelled && w.random.IntN(2) == 0, w.random.IntN(20) == 0:
		result = Undone
	case w.random.IntN(50) == 0:
		result = Failed
	}
	o := w.owner(f.d.Flow, f.d.GPU)
	m := o.find(f.d.Alloc)
	i := int(f.d.Offset / w.configs[f.d.GPU].Piece)
	out := f.d.Kind == Out
	switch {
	case !out && f.used:
		m.put(i, resident)
	case result == Done && out, result != Done && !out && !f.d.Fresh:
		m.put(i, host)
	case result != Done && !out:
		m.put(i, nowhere)
	default:
		m.put(i, resident)
	}
	w.cards[o.gpu].answer(m, i, out, result)
	if result == Done {
		w.moved += f.d.Bytes
	}
	w.take(w.node.Moved(w.now, number, result))
}

// lost forgets memory, and what is under way of it: nobody answers for that.
func (w *world) lost(o *owner, m *memory) {
	o.memory = slices.DeleteFunc(o.memory, func(other *memory) bool { return other == m })
	w.cards[o.gpu].lose(m)
	for number, f := range w.flights {
		if f.d.Alloc == m.id {
			delete(w.flights, number)
		}
	}
}

// follow takes what the node has found out by itself: faults, and what others' faults have displaced.
func (w *world) follow() {
	for _, o := range w.owners {
		for _, m := range o.memory {
			if a := w.node.allocs[m.id]; a != nil && a.sum.resident != m.sum[resident] {
				for i := range m.pieces {
					if m.pieces[i] == resident && a.pieces[i] != resident && a.pieces[i] != going {
						m.put(i, host)
						o.displaced += m.sizes[i]
					}
				}
			}
		}
	}
}
