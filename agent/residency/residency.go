// Package residency decides which memory of which container lies on the card, and what moves when, where containers
// together have more than the card holds. It is pure: events go in with their time, decisions come out; no clock,
// goroutine, lock or I/O. What carries decisions out, and other ways to: docs/decisions/0015.
//
// A container on one GPU is a flow, as in agent/sched. Its movable memory is cut into pieces of some megabytes; each
// piece is on the card, on the host, nowhere yet (never touched), or under way. The scheduler says who holds the GPU
// and who is next; the policy brings the next one's recent memory to the card before its lease and swaps out for it
// what is used last, or latest. Only a few pieces are under way at a time, so a plan that changes costs little.
// Invariants, each tested over random schedules:
//   - every byte is in one place: on the card, on the host, nowhere or under way; they add up to what is allocated;
//   - of a holder nothing is swapped out but to keep it within its own cap; of who is next nothing recent, but for a
//     holder that has no room else;
//   - nothing is swapped out for others while the card, with what is to come, is used below the pressure threshold;
//   - what a flow has on the card or under way is within its cap, but for what its kernels faulted in, which is said,
//     and goes as often as moving may take its part of the time, for what its copies did without a lease, which is said and
//     goes at once, and for a cap that was lowered, or plain memory that did not wait, until what is too much has been
//     swapped out;
//   - host memory for all movable memory is set aside when it is allocated, so no swap-out fails for want of it;
//   - a process may end between any two events: what it had is gone from all sums, and answers for it are ignored.
//
// Times are nanoseconds of one monotonic clock, sizes bytes. Methods of Node are to be called one at a time; the
// decisions that one returns are valid until the next.
package residency

// FlowID names a container, AllocID one allocation of the node, Session the process that made it. The caller chooses
// them; none is 0.
type (
	FlowID  uint64
	AllocID uint64
	Session uint64
)

// Kind is what a decision asks the caller to do, or tells it.
type Kind uint8

const (
	// In: bring these bytes to the card. Fresh ones have no data yet, and only take their place. The caller answers
	// each move once, with Moved, in any order.
	In Kind = iota + 1
	// Out: swap these bytes out to the host.
	Out
	// Cancel: this move is not wanted any more. It is answered all the same, as done or not.
	Cancel
	// Ready: the holder's recent memory is in place, as far as it can be: its gate may open.
	Ready
	// Admit: there is room for the plain memory that was asked for with Need.
	Admit
	// Over: kernels or copies have faulted in memory so that the flow is above its cap, by Bytes. Said once until it is below.
	Over
	// Apart: the recent memory of the flows that are active does not fit the card together, so their leases are to be
	// exclusive, with a quantum and a threshold of Quantum, which keep moving within its part of the time. 1 where that
	// of the active ones does fit, and one that is idle has some of its own elsewhere, which it is to find in place.
	Apart
	// Together: it fits again.
	Together
	// Drained: the flow's swap is off; all of its memory is on the card.
	Drained
)

// Why is the reason for a move.
type Why uint8

const (
	ForHolder Why = iota + 1 // the holder lacks it, or lacks room
	ForNext                  // who is next does
	ForCap                   // the flow's own cap asks for it
	ForPlain                 // plain memory is about to be taken
	ForIdle                  // the flow has been idle for longer than usual, and the card is under pressure
	ForDrain                 // the flow's swap is being turned off
	ForRoom                  // the flow's own copies, without a lease, have left no room on the card
)

// Decision is one thing to do or to know.
type Decision struct {
	Kind    Kind
	Why     Why  // of In and Out
	Fresh   bool // of In
	GPU     int
	Flow    FlowID
	Session Session // of In, Out and Cancel: whose process is to do it
	Alloc   AllocID
	Offset  int64
	Bytes   int64
	Move    uint64 // number of In, Out and Cancel
	Ask     uint64 // of Admit
	Quantum int64  // of Apart
}

// Node decides for all GPUs of a node. Make one with New.
type Node struct {
	out      []Decision
	changed  []*gpu // within an event of several allocations
	gpus     []*gpu
	allocs   map[AllocID]*alloc
	sessions map[Session]*alloc // the first of a list
	moves    map[uint64]*move
	spare    []*move // ended
	number   uint64  // of the last move
	host     int64   // most movable memory of the node
	reserved int64   // of it
}

// gpu is one GPU with its flows.
type gpu struct {
	node     *Node
	index    int
	config   Config
	now      int64
	plans    int64 // when it was last decided what moves
	flows    []*flow
	next     *flow // prepared for the next lease
	used     int64 // of the card, by all that is known; what goes counts until it has gone
	others   int64 // of it, by what is no flow
	fixed    int64 // of it, plain memory of flows
	going    int64 // of it, under way to the host
	owed     int64 // within plan: what others before are to have of the free room
	ins      lane
	outs     lane
	stamp    int64      // of the last use
	rests    heap       // allocations that rest
	sleepers []*process // that rest
	hinted   hint
	arrivals arrivals
}

// New makes a node whose movable memory may take host bytes at most, with a GPU for each configuration.
func New(host int64, configs ...Config) (*Node, error) {
	n := &Node{allocs: make(map[AllocID]*alloc), sessions: make(map[Session]*alloc),
		moves: make(map[uint64]*move), host: host}
	for i, config := range configs {
		if err := config.check(i); err != nil {
			return nil, err
		}
		g := &gpu{node: n, index: i, config: config, stamp: 1, rests: heap{which: rests}}
		g.arrivals.begin()
		n.gpus = append(n.gpus, g)
	}
	return n, nil
}

func (n *Node) say(d Decision) { n.out = append(n.out, d) }

// begin starts an event.
func (n *Node) begin() { n.out = n.out[:0] }

// on finds a flow and brings its GPU's clock up to now; nil if there is none.
func (n *Node) on(now int64, id FlowID, gpu int) *flow {
	n.begin()
	if gpu < 0 || gpu >= len(n.gpus) {
		return nil
	}
	g := n.gpus[gpu]
	g.now = max(g.now, now)
	return g.flow(id)
}

func (g *gpu) flow(id FlowID) *flow {
	for _, f := range g.flows {
		if f.id == id {
			return f
		}
	}
	return nil
}

// finish ends an event of this GPU.
func (g *gpu) finish() []Decision {
	g.plans = g.now
	g.wake()
	g.displace()
	g.plan()
	g.hint()
	return g.node.out
}

// change notes that a GPU is to be planned anew, at the end of an event of several allocations.
func (n *Node) change(g *gpu) {
	for _, other := range n.changed {
		if other == g {
			return
		}
	}
	n.changed = append(n.changed, g)
}

// finish ends an event of several allocations, with one plan for each GPU.
func (n *Node) finish() []Decision {
	for _, g := range n.changed {
		g.finish()
	}
	return n.out
}

// Tick: time has passed. To be called at Next.
func (n *Node) Tick(now int64) []Decision {
	n.begin()
	for _, g := range n.gpus {
		g.now = max(g.now, now)
		g.finish()
	}
	return n.out
}

// Next is when Tick has something to do, Never if there is nothing.
func (n *Node) Next() int64 {
	at := Never
	for _, g := range n.gpus {
		at = min(at, g.wakes())
		for _, f := range g.flows {
			if f.over && f.pauseUntil > g.plans {
				at = min(at, f.pauseUntil)
			}
			if f.state == Idle && f.lingers > g.plans && g.hinted.apart {
				at = min(at, f.lingers)
			}
			if f.state == Idle && f.keepUntil > g.plans && f.sum.resident > 0 {
				at = min(at, f.keepUntil)
			}
		}
	}
	return at
}
