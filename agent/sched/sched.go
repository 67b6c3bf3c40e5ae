// Package sched decides who may submit work to which GPU, and for how long: MQFQ-Sticky over GPU
// slot time. It is pure: events go in with their time, decisions come out; no clock, goroutine, lock
// or I/O. Sources: docs/decisions/0011, which names the papers and what differs from them.
//
// A container on one GPU is a flow. Of a flow the scheduler keeps its virtual time
//
//	C += cost / weight	at each settlement, by the weight of that moment
//	P  = C + what its leases are still expected to cost / weight
//
// and of a GPU its global virtual time, GVT = min C over the flows that wait, hold a lease, or have
// held one a moment ago (their grace). A flow that returns from idle has C = max(C, GVT): it has
// saved up nothing. A lease is granted, or renewed, only where P - GVT <= T. Invariants, each tested
// over random schedules:
//   - GVT never falls, and no flow that counts for it has C < GVT;
//   - a slot is free only while no flow that may have it waits;
//   - of two flows that wait or run all the time, neither gets ahead of the other by more than
//     T + its longest lease / weight (for several leases at once: their sum).
//
// Cost is slot time: all of a lease's time while others wait, whatever its holder says; otherwise
// the busy time that it reports. So nobody can report itself free.
//
// All times are nanoseconds of one monotonic clock, which may not go back. All methods of Node are to be
// called one at a time; the decisions that one returns are valid until the next.
package sched

// FlowID names a container; the caller chooses it. 0 is not one: decisions use it for "all".
type FlowID uint64

// Kind is what a decision asks the caller to do, or tells it.
type Kind uint8

// The decisions. What concerns gates is to be carried out in the order given.
const (
	// Open: the gate is open without a lease, of Flow, or of all flows of the GPU if that is 0 (then all
	// leases there have ended). Rivals tells whether several flows use the GPU: each then keeps what
	// it has in flight within the window, so that closing the gate would not leave much to drain.
	Open Kind = iota + 1
	// Gate: only leases open gates on this GPU from now on.
	Gate
	// Grant: Lease begins; the flow's gate opens.
	Grant
	// Revoke: the flow's gate closes, and its submitted work drains. Close ends the lease.
	Revoke
	// Reopen: the drain has stood still, so what it waits for may be held back by the gate, which opens
	// again until Close or the next Revoke. Of an expired lease it may name a GPU, too, on which the gang
	// had none, since what waits may be held back there.
	Reopen
	// Expire: the drain has taken longer than the drain timeout. The slot goes to others, and the flow
	// gets no lease until this one is closed. Its gate is closed but for what Reopen and Revoke say of it.
	// To be told to an operator, with the holder's name.
	Expire
	// CoRun: drains of this flow stand still again and again, so it runs beside the others without
	// leases, charged by what it reports. To be told to an operator.
	CoRun
	// Leased: the flow is co-run no more; its gate follows its leases.
	Leased
	// Throttle: the flow waits, and is so far ahead of others that it may not have a slot yet.
	Throttle
	// Prefetch: this flow is expected to be next and its memory is not on the GPU.
	Prefetch
	// Evictable: this flow has been idle for longer than usual; its memory need not stay on the GPU.
	Evictable
)

// Decision is one thing to do or to know.
type Decision struct {
	Kind   Kind
	GPU    int
	Flow   FlowID
	Lease  uint64 // of Grant, Revoke, Reopen, Expire; a gang has the same on all its GPUs
	Rivals bool   // of Open
}

// Use is what a flow has done since its last report.
type Use struct {
	// Busy is the time with something of it outstanding on the GPU, in ns.
	Busy int64
	// Work counts its gated operations; what one of them takes does not matter.
	Work int64
}

// board is what the schedulers of a node share.
type board struct {
	out      []Decision
	number   uint64     // of the last lease
	hurries  uint64     // counts gangs that hurry
	reserved []*flow    // members of gangs that may go on, or not go on
	switched []*queue   // GPUs whose gates have just been opened or closed
	recent   *container // has got the last lease: most events are of holders
}

func (b *board) say(d Decision) { b.out = append(b.out, d) }

// queue is the scheduler of one GPU.
type queue struct {
	*board
	config Config
	gpu    int
	now    int64
	last   FlowID // that has got a lease here

	gvt float64
	top float64 // the largest C that any flow has reached

	table   table
	active  heap[float64]   // flows that count for GVT, by C
	ready   []heap[float64] // flows that wait for a slot here, by class, then by P - T; see class
	probes  heap[float64]   // gangs' flows that wait until they may have a slot here, by P - T
	timers  heap[int64]
	waiting int // flows that wait, ready or not
	late    int // flows whose lease has expired and is not closed
	leases  []*lease
	spare   []*lease // ended
	passed  []*flow  // scratch of lift
	turn    int64    // moving mean of what a lease costs, ns
	util    float64  // expected utilisation, percent
	sample  float64  // its moving mean, as measured

	mode  mode
	gangs []*container // that use this GPU
}

func newQueue(b *board, gpu int, config Config) *queue {
	q := &queue{board: b, config: config, gpu: gpu, turn: config.Quantum}
	q.active = heap[float64]{table: &q.table, which: inActive}
	q.timers = heap[int64]{table: &q.table, which: inTimers}
	q.makeReady()
	q.mode.gated, q.mode.hold = config.AlwaysGate, config.OpenFor
	return q
}

// makeReady makes the heaps of those that wait, empty.
func (q *queue) makeReady() {
	q.probes = heap[float64]{table: &q.table, which: inProbes}
	q.ready = make([]heap[float64], classes(q.config.Slots))
	for i := range q.ready {
		q.ready[i] = heap[float64]{table: &q.table, which: inReady}
	}
}

// advance brings GVT up to the flows that count for it. Without any, nobody is owed anything: it
// goes up to the largest tag given, as in SFQ at the end of a busy period.
func (q *queue) advance() {
	if q.active.len() > 0 {
		q.gvt = max(q.gvt, q.active.least())
	} else {
		q.gvt = max(q.gvt, q.top)
	}
}

// finish ends each event: slots that are free find their flows, and leases are charged by whether
// others wait from now on. What that charges may let others run.
func (q *queue) finish() {
	for again := true; again; again = q.recount() {
		q.advance()
		q.probe()
		q.review()
		q.fill()
	}
}

// tick does what is due by now.
func (q *queue) tick(now int64) {
	q.now = max(q.now, now)
	for f := q.timers.first(); f != nil && f.timer <= q.now; f = q.timers.first() {
		q.expired(f)
	}
	for i := 0; i < len(q.leases); {
		l := q.leases[i]
		if l.due <= q.now {
			q.dueLease(l)
		}
		if i < len(q.leases) && q.leases[i] == l {
			i++ // else it has ended, and another stands in its place
		}
	}
}

// next is when tick has something to do, Never if there is nothing.
func (q *queue) next() int64 {
	at := Never
	if f := q.timers.first(); f != nil {
		at = f.timer
	}
	for _, l := range q.leases {
		at = min(at, l.due)
	}
	return min(at, q.reviewDue())
}
