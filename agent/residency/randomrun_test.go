package residency

// What happens in random schedules, and what is checked after each event.

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// event does one thing at random.
func (w *world) event() {
	w.now += []int64{0, w.random.Int64N(ms), w.random.Int64N(sec)}[w.random.IntN(3)]
	if len(w.owners) == 0 || w.random.IntN(60) == 0 && len(w.owners) < 8 {
		w.add()
		return
	}
	o := w.owners[w.random.IntN(len(w.owners))]
	switch n := w.random.IntN(100); {
	case n < 35 && len(w.flights) > 0:
		numbers := make([]uint64, 0, len(w.flights))
		for number := range w.flights {
			numbers = append(numbers, number)
		}
		slices.Sort(numbers) // so that a seed repeats
		w.answer(numbers[w.random.IntN(len(numbers))])
	case n < 50:
		w.allocate(o)
	case n < 55:
		w.free(o)
	case n < 72:
		w.set1(o, State(w.random.IntN(4)))
	case n < 84:
		w.use(o)
	case n < 89:
		w.plain(o)
	case n < 94:
		w.limits(o)
	case n < 95:
		w.end(o)
	case n < 97:
		w.take(w.node.Tick(w.now))
	default:
		w.odd(o)
	}
}

func (w *world) add() {
	gpu := w.random.IntN(len(w.configs))
	card := w.configs[gpu].Card
	o := &owner{id: FlowID(w.id()), gpu: gpu, limit: w.random.Int64N(2 * card), asks: make(map[uint64]int64), all: -1}
	if w.random.IntN(5) > 0 {
		o.swap = w.random.Int64N(2 * card)
	}
	err := w.node.Add(w.now, o.id, gpu, o.limit, o.swap)
	if (err != nil) != (o.swap > w.host) {
		w.fatalf("swap %d of a host limit of %d: %v", o.swap, w.host, err)
	}
	if err == nil {
		w.owners = append(w.owners, o)
	}
}

func (w *world) total(o *owner) int64 {
	return o.at(nowhere, host, resident, coming, filling, going) + o.plain + asked(o)
}

func (w *world) allocate(o *owner) {
	size := 1 + w.random.Int64N(w.configs[o.gpu].Card/3)
	id := AllocID(w.id())
	reserved := int64(0)
	for _, other := range w.owners {
		reserved += w.total(other) - other.plain - asked(other)
	}
	fits := w.total(o)+size <= o.limit+o.swap
	m := &memory{id: id, session: Session(o.id*10 + FlowID(w.random.IntN(3)) + 1), lease: o.lease}
	w.stamps++
	m.stamp = w.stamps
	for piece := w.configs[o.gpu].Piece; size > 0; size -= piece {
		m.pieces, m.sizes = append(m.pieces, nowhere), append(m.sizes, min(piece, size))
	}
	bytes := int64(0)
	for _, n := range m.sizes {
		bytes += n
	}
	fitsHost := reserved+bytes <= w.host
	for i, size := range m.sizes {
		m.sum[m.pieces[i]] += size
	}
	o.memory = append(o.memory, m)
	decisions, err := w.node.Allocate(w.now, o.id, o.gpu, id, m.session, bytes)
	if (err == nil) != (fits && fitsHost) {
		w.fatalf("%d bytes beside %d of %d, %d of %d on the host: %v", bytes, w.total(o)-bytes, o.limit+o.swap,
			reserved, w.host, err)
	}
	if err != nil {
		o.memory = o.memory[:len(o.memory)-1]
		var r *Refusal
		if !errors.As(err, &r) || r.Missing <= 0 || (r.Reason == SwapLimit) == fits {
			w.fatalf("refused without its reason: %v", err)
		}
		return
	}
	w.take(decisions)
}

// declare: memory from before the node's time.
func (w *world) declare(o *owner) {
	size := 1 + w.random.Int64N(w.configs[o.gpu].Card/3)
	here := w.random.Int64N(size + 1)
	m := &memory{id: AllocID(w.id()), session: Session(o.id*10 + 1), lease: o.lease}
	w.stamps++
	m.stamp = w.stamps
	for left, piece := size, w.configs[o.gpu].Piece; left > 0; left -= piece {
		m.pieces, m.sizes = append(m.pieces, host), append(m.sizes, min(piece, left))
		m.sum[host] += min(piece, left)
		if i := len(m.pieces) - 1; size-left < here {
			m.put(i, resident)
			w.cards[o.gpu].bring(m, i)
		}
	}
	o.memory, o.excused = append(o.memory, m), true
	o.drain = o.drain || o.swap == 0 && m.sum[host] > 0
	decisions, err := w.node.Declare(w.now, o.id, o.gpu, m.id, m.session, size, here)
	if err != nil {
		w.fatalf("declared memory is refused: %v", err)
	}
	w.take(decisions)
}

// setPlain: plain memory that did not wait for room.
func (w *world) setPlain(o *owner) {
	bytes, fixed := w.random.Int64N(w.configs[o.gpu].Card/4), w.others[o.gpu]
	for _, other := range w.owners {
		if other.gpu == o.gpu && other != o {
			fixed += other.plain + asked(other)
		}
	}
	if fixed+bytes+asked(o) > w.configs[o.gpu].room() {
		return
	}
	o.plain, o.excused = bytes, true
	w.take(w.node.SetPlain(w.now, o.id, o.gpu, bytes))
}

func (w *world) free(o *owner) {
	if all := slices.Clone(o.memory); len(all) > 0 {
		m := all[w.random.IntN(len(all))]
		w.lost(o, m)
		w.take(w.node.Free(w.now, m.id))
	}
}

// end ends a process, or a container.
func (w *world) end(o *owner) {
	if w.random.IntN(2) == 0 {
		session := Session(o.id*10 + FlowID(w.random.IntN(3)) + 1)
		for _, m := range slices.Clone(o.memory) {
			if m.session == session {
				w.lost(o, m)
			}
		}
		w.take(w.node.Ended(w.now, session))
		return
	}
	for _, m := range slices.Clone(o.memory) {
		w.lost(o, m)
	}
	if w.next[o.gpu] == o {
		w.next[o.gpu] = nil
	}
	w.owners = slices.DeleteFunc(w.owners, func(other *owner) bool { return other == o })
	w.take(w.node.Remove(w.now, o.id, o.gpu))
}

func (w *world) set1(o *owner, to State) {
	if o.state == Holder && to != Holder {
		o.lease++
		o.ready = false
	}
	if w.next[o.gpu] == o && to != Next {
		w.next[o.gpu] = nil
	}
	if to == Next && o.state != Next {
		if n := w.next[o.gpu]; n != nil {
			n.state = Waiting
		}
		w.next[o.gpu] = o
	}
	o.state = to
	turn := int64(0)
	if w.random.IntN(2) == 0 {
		turn = w.now + w.random.Int64N(sec)
	}
	w.take(w.node.Set(w.now, o.id, o.gpu, to, turn))
}

// use has a flow use some of its memory. A lease that lasts long counts as several: so the node says.
func (w *world) use(o *owner) {
	f := w.node.gpus[o.gpu].flow(o.id)
	if w.random.IntN(10) == 0 {
		w.sync(o, f)
		o.all = o.lease
		decisions := w.node.UsedAll(w.now, o.id, o.gpu)
		w.resync(o, f)
		w.take(decisions)
		return
	}
	all := slices.Clone(o.memory)
	if len(all) == 0 {
		return
	}
	m := all[w.random.IntN(len(all))]
	w.sync(o, f)
	w.stamps++
	m.lease, m.stamp = o.lease, w.stamps
	met := make(map[int]bool)
	for _, f := range w.flights {
		if f.d.Alloc == m.id && (f.used || f.d.Kind == Out) {
			met[int(f.d.Offset/w.configs[o.gpu].Piece)] = true
		}
	}
	w.cards[o.gpu].use(m, met)
	for i, p := range m.pieces {
		if p == host || p == nowhere {
			m.put(i, resident)
		}
	}
	for _, f := range w.flights {
		f.used = f.used || f.d.Alloc == m.id
	}
	w.take(w.node.Used(w.now, m.id))
}

// sync begins the part of a long lease that the next use falls in.
func (w *world) sync(o *owner, f *flow) {
	if o.state == Holder && w.node.gpus[o.gpu].config.Round <= max(w.now, f.on.now)-f.began {
		o.lease++
	}
}

func (w *world) resync(o *owner, f *flow) {
	if f.state == Holder && uint64(o.lease)+recentLeases != f.lease {
		w.fatalf("flow %d is in lease %d, not %d", o.id, f.lease, o.lease+recentLeases)
	}
}

func (w *world) plain(o *owner) {
	if w.random.IntN(3) == 0 && o.plain > 0 {
		bytes := 1 + w.random.Int64N(o.plain)
		o.plain -= bytes
		w.take(w.node.Release(w.now, o.id, o.gpu, bytes))
		return
	}
	bytes, number := 1+w.random.Int64N(w.configs[o.gpu].Card/4), w.id()
	// The driver refuses plain memory that the card does not have beside other plain memory.
	fixed := w.others[o.gpu] + bytes
	for _, other := range w.owners {
		if other.gpu == o.gpu {
			fixed += other.plain + asked(other)
		}
	}
	if fixed > w.configs[o.gpu].room() {
		return
	}
	held := o.plain + asked(o)
	if o.swap == 0 || o.drain {
		held = w.total(o)
	}
	fits := held+bytes <= o.limit && w.total(o)+bytes <= o.limit+o.swap
	o.asks[number] = bytes
	decisions, err := w.node.Need(w.now, o.id, o.gpu, number, bytes)
	if (err == nil) != fits {
		w.fatalf("%d plain beside %d, cap %d: %v", bytes, held, o.limit, err)
	}
	if err != nil {
		delete(o.asks, number)
		return
	}
	w.take(decisions)
	if _, waits := o.asks[number]; waits && w.random.IntN(4) == 0 {
		delete(o.asks, number)
		w.take(w.node.Withdraw(w.now, o.id, o.gpu, number))
	}
}

func (w *world) limits(o *owner) {
	card := w.configs[o.gpu].Card
	if w.random.IntN(2) == 0 {
		o.limit = w.random.Int64N(2 * card)
		o.excused = true
		w.take(w.node.SetCap(w.now, o.id, o.gpu, o.limit))
		return
	}
	swap, drain := w.random.Int64N(2)*w.random.Int64N(2*card), w.random.IntN(2) == 0
	swapped := o.at(host, coming, going)
	// The library asks by places that it knows, so a fresh piece under way counts as none.
	swapped += o.at(filling)
	refused := swap > w.host || w.total(o)-o.limit > swap ||
		swap == 0 && o.swap > 0 && swapped > 0 && !drain
	wasDrain := o.drain
	if !refused {
		o.drain = swap == 0 && (wasDrain || o.swap > 0 && swapped > 0)
	}
	if o.drain && !wasDrain {
		w.cards[o.gpu].blurred = true // the books are to believe less than there is
		o.distrust()
	}
	before := o.swap
	if !refused {
		o.swap = swap
	}
	decisions, err := w.node.SetSwap(w.now, o.id, o.gpu, swap, drain)
	if (err != nil) != refused {
		w.fatalf("swap from %d to %d, drain %v, with %d swapped: %v", before, swap, drain, swapped, err)
	}
	w.take(decisions)
}

// odd is what should not happen, or seldom does.
func (w *world) odd(o *owner) {
	switch w.random.IntN(8) {
	case 7:
		session := Session(o.id*10 + FlowID(w.random.IntN(3)) + 1)
		until := w.now + w.random.Int64N(2*sec) - sec
		w.take(w.node.Rest(w.now, session, until))
	case 5:
		w.declare(o)
	case 6:
		w.setPlain(o)
	case 0:
		w.take(w.node.Moved(w.now, math.MaxUint64, Done))
	case 1:
		w.take(w.node.Used(w.now, AllocID(math.MaxUint64)))
	case 2:
		bytes := 1 + w.random.Int64N(1000)
		w.cards[o.gpu].displace(o, bytes)
		w.take(w.node.Displaced(w.now, o.id, o.gpu, bytes))
	case 3:
		w.take(w.node.Link(w.now, o.gpu, w.random.Int64N(10_000), w.random.Int64N(10_000)))
	case 4:
		room := w.configs[o.gpu].room()
		for _, other := range w.owners {
			if other.gpu == o.gpu {
				room -= other.plain + asked(other)
			}
		}
		if room > 0 {
			w.others[o.gpu] = w.random.Int64N(room)
			w.take(w.node.Others(w.now, o.gpu, w.others[o.gpu]))
		}
	}
}

// check compares the node's books with the test's.
func (w *world) check() {
	w.follow()
	w.checkCards()
	reserved := int64(0)
	for gpu, g := range w.node.gpus {
		if g.used != w.used(gpu) {
			w.fatalf("GPU %d: %d used, not %d", gpu, w.used(gpu), g.used)
		}
		if g.used-g.ins.bytes-g.going > g.config.Card && slices.ContainsFunc(g.flows, func(f *flow) bool { return f.sum.resident > 0 }) {
			w.fatalf("GPU %d: %d used of %d", gpu, g.used, g.config.Card)
		}
		for _, lane := range []*lane{&g.ins, &g.outs} {
			if lane.bytes > g.config.Ahead+g.config.Piece || len(lane.moves) > MovesMax {
				w.fatalf("GPU %d: %d bytes under way in %d moves", gpu, lane.bytes, len(lane.moves))
			}
		}
	}
	for _, o := range w.owners {
		reserved += w.total(o) - o.plain - asked(o)
		w.checkFlow(o)
	}
	if reserved != w.node.reserved {
		w.fatalf("%d set aside on the host, not %d", w.node.reserved, reserved)
	}
	for _, f := range w.flights {
		if !f.cancelled {
			w.checkFlight(f.d)
		}
	}
	if len(w.flights) != len(w.node.moves) {
		w.fatalf("%d moves under way, not %d", len(w.node.moves), len(w.flights))
	}
}

// checkFlight checks that a move which is not cancelled is still wanted.
func (w *world) checkFlight(d Decision) {
	o := w.owner(d.Flow, d.GPU)
	next := o == w.next[d.GPU]
	switch {
	case d.Kind == In && (o.state != Holder && !next && !o.drain || o.here()+o.plain > o.limit):
	case d.Kind == Out && o.drain:
	case d.Kind == Out && d.Why != ForCap && o.state == Holder:
	case d.Kind == Out && d.Why == ForNext && next && o.recent(o.find(d.Alloc)):
	default:
		return
	}
	w.fatalf("under way, and not wanted any more: %+v", d)
}

func (w *world) checkFlow(o *owner) {
	f := w.node.gpus[o.gpu].flow(o.id)
	got := f.sum
	want := sums{fresh: o.at(nowhere), host: o.at(host), resident: o.at(resident), coming: o.at(coming, filling),
		going: o.at(going)}
	if got != want || f.plain != o.plain || f.asked != asked(o) || f.set() != w.set(o) {
		w.fatalf("flow %d: %+v plain %d asked %d recent %d, not %+v %d %d %d", o.id, got, f.plain, f.asked, f.set(),
			want, o.plain, asked(o), w.set(o))
	}
	if o.displaced != f.stats.displaced {
		w.fatalf("flow %d: %d displaced, not %d", o.id, f.stats.displaced, o.displaced)
	}
	lack := int64(0)
	for _, m := range o.memory {
		if o.recent(m) && !w.rests(m) {
			lack += m.sum[nowhere] + m.sum[host]
		}
	}
	if lack != f.lackOfSet() {
		w.fatalf("flow %d lacks %d, not %d", o.id, lack, f.lackOfSet())
	}
	// Above the cap it is for a reason, and once below, it stays.
	above := o.here() + o.plain - o.limit
	if above > 0 && !o.excused {
		w.fatalf("flow %d is %d above its cap", o.id, above)
	}
	// It goes as fast as it may: only what stays after faults, cannot go, or finds the link full stays.
	if stays := above + asked(o) - o.at(going); stays > 0 && f.leaver() != nil && f.movable() && !f.pauses() &&
		!f.on.outs.full(&f.on.config) && f.on.plans == f.on.now {
		w.fatalf("flow %d is %d above its cap, and %d of that do not go", o.id, above, stays)
	}
	if above <= 0 {
		o.excused, o.overSaid = false, false
	}
}

// rest answers all moves until nothing is under way any more, and checks that it comes to that.
func (w *world) rest() {
	for n := 0; len(w.flights) > 0 || w.retry(); n++ {
		if n > 10_000 {
			w.fatalf("moves go on for ever")
		}
		if n > 9_980 {
			for _, f := range w.flights {
				w.t.Logf("%+v", f.d)
			}
		}
		numbers := make([]uint64, 0, len(w.flights))
		for number := range w.flights {
			numbers = append(numbers, number)
		}
		slices.Sort(numbers)
		w.answer(numbers[0])
		w.check()
	}
	for _, o := range w.owners {
		f := w.node.gpus[o.gpu].flow(o.id)
		if o.state == Holder && !o.ready {
			w.fatalf("flow %d holds, nothing is under way, and it is not ready", o.id)
		}
		if above := o.here() + o.plain - o.limit; above > 0 && o.swap > 0 && !o.drain && o.here() > 0 {
			w.fatalf("flow %d stays %d above its cap", o.id, above)
		}
		if g := f.on; o.state == Holder && f.wanted(ForHolder) > 0 && g.victim(f, ForHolder) != nil &&
			g.free() < w.configs[o.gpu].Piece {
			w.fatalf("flow %d lacks %d, and there is what could go: free %d, owed %d, headroom %d, %+v", o.id,
				f.wanted(ForHolder), g.free(), g.owed, f.headroom(), f.sum)
		}
	}
}

// retry goes past the times for which nothing moves after a failure, and tells whether something does then.
func (w *world) retry() bool {
	w.now += sec
	w.take(w.node.Tick(w.now))
	for n := 0; n < 100 && len(w.flights) == 0; n++ { // what stays after faults does so for longer
		next := w.node.Next()
		if next == Never {
			break
		}
		w.now = max(w.now, next)
		w.take(w.node.Tick(w.now))
	}
	return len(w.flights) > 0
}

func TestRandomSchedules(t *testing.T) {
	seed := testSeed(t)
	var moved int64
	cancels, looks := 0, 0
	for i := range uint64(schedules(10_000)) {
		w := newWorld(t, seed+i)
		for range 120 {
			w.event()
			w.check()
		}
		w.rest()
		for len(w.owners) > 0 {
			o := w.owners[0]
			for _, m := range slices.Clone(o.memory) {
				w.lost(o, m)
			}
			w.owners = w.owners[1:]
			if w.next[o.gpu] == o {
				w.next[o.gpu] = nil
			}
			w.take(w.node.Remove(w.now, o.id, o.gpu))
			w.check()
		}
		for _, g := range w.node.gpus {
			if g.used != g.others || g.going != 0 || g.fixed != 0 || w.node.reserved != 0 || len(w.node.allocs)+
				len(w.node.sessions)+len(w.node.moves)+len(g.ins.moves)+len(g.outs.moves) != 0 {
				w.fatalf("something is left: %+v", g)
			}
		}
		moved, cancels, looks = moved+w.moved, cancels+w.cancels, looks+w.looks
	}
	t.Logf("%d bytes moved, %d moves cancelled, %d looks at the cards", moved, cancels, looks)
	if moved == 0 || cancels == 0 || looks == 0 {
		t.Error("nothing moved, or nothing was cancelled: the schedules show nothing")
	}
}
