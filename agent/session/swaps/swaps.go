// Package swaps is swap between the policy and the containers: what turns says of leases and what processes say of
// their memory becomes events for package residency, and what that decides becomes messages to processes, gates that
// open, and quanta.
//
// It has no clock, goroutine, lock or socket of its own: times come in, and processes are an interface. Its methods are
// called under the same lock as those of turns, which it follows. docs/decisions/0015 is what it keeps to. Invariants:
//   - a process is told only of its own allocations, by its own numbers, and each move is answered to the policy once:
//     by the process, by its end or the loss of its connection, or by the time that an answer may take;
//   - the gate of a container that enters opens when the policy says that its memory is in place, or when next to nothing
//     more has come in twice the time that it should have taken;
//   - nothing here waits for a process: a message that finds no room is sent again later;
//   - numbers and sizes that a process says are checked against what it was granted, and harm its own container only.
package swaps

import (
	"math"
	"slices"

	"weir/agent/residency"
	"weir/agent/session/turns"
)

// Never is later than any time.
const Never int64 = math.MaxInt64

const (
	ms int64 = 1_000_000
	// sendAgain is when a message that found no room is sent again, in ns.
	sendAgain = 5 * ms
	// entrySlack is what an entry may take beside what its bytes take: messages, starting moves, the first pieces of a link
	// that is slower than it is taken for, and processes that have no processor for a moment. It goes on while one part in
	// entryPart at least of what lacks comes in twice the time that all should take.
	entrySlack = 100 * ms
	entryPart  = 16
	// quantumMax is the longest quantum, whatever a link is said to carry: others wait for as long.
	quantumMax = 60_000 * ms
	// tellEvery is how often an event of one kind is told of a container and GPU, in ns.
	tellEvery = 60_000 * ms
	// roundsMax bounds how often one event's consequences for leases and memory follow from each other.
	roundsMax = 64
)

// Event is something that an operator should know of.
type Event struct {
	Kind  string
	Owner any // as of Add
	GPU   int
	Bytes int64
	Of    Process // of EventSilent
}

// The kinds of events.
const (
	// EventOver: kernels or copies have fetched memory so that the container is above its cap, by Bytes.
	EventOver = "over-cap"
	// EventSlow: a gate was opened before the memory was in place, Bytes of which lacked.
	EventSlow = "swap-slow"
	// EventSilent: a process has not answered moves.
	EventSilent = "swap-silent"
	// EventDrained: swap that was to be turned off holds nothing any more.
	EventDrained = "swap-drained"
)

// Config is what a table is made from.
type Config struct {
	GPUs []residency.Config // as many as there are seats
	Host int64              // most movable memory of the node, in bytes
	Tell func(Event)
	// Admit: there is room for what a container has asked for with Need, and was not there at once.
	Admit func(owner any, gpu int, ask uint64)
}

// Table is the swap of a node.
type Table struct {
	config Config
	turns  *turns.Table
	node   *residency.Node
	now    int64
	gpus   []gpu

	containers []*Container
	seats      map[*turns.Container]*Container
	flows      map[residency.FlowID]*Container
	members    map[residency.Session]*Member
	flights    map[uint64]*flight // moves, by number
	allocs     map[residency.AllocID]named
	asks       map[uint64]*ask // for plain memory, by number
	lastAsk    uint64
	lastFlow   residency.FlowID
	lastAlloc  residency.AllocID
	session    residency.Session // the last
	lastMove   uint64

	decisions []residency.Decision // still to be carried out
	carrying  bool
	stirred   []*turns.Container // scratch
	outbox    []*Member          // with entries that are to be sent
	sendAt    int64              // when what found no room is sent again
	lookAt    int64
}

// gpu is one with its link.
type gpu struct {
	quantum int64    // that the policy asks for; 0: everything fits
	told    [2]int64 // what its link carries each way, in bytes a second, as the policy has it
	touched bool     // within follow: who waits there is to be told of anew
}

// named is an allocation as its process names it.
type named struct {
	member *Member
	id     uint64
}

// New makes a table without containers. An error names what of the configuration is wrong.
func New(config Config, leases *turns.Table) (*Table, error) {
	node, err := residency.New(config.Host, config.GPUs...)
	if err != nil {
		return nil, err
	}
	t := &Table{
		config: config, turns: leases, node: node, gpus: make([]gpu, len(config.GPUs)),
		seats: make(map[*turns.Container]*Container), flows: make(map[residency.FlowID]*Container),
		members: make(map[residency.Session]*Member), flights: make(map[uint64]*flight),
		allocs: make(map[residency.AllocID]named), asks: make(map[uint64]*ask), sendAt: Never, lookAt: Never,
	}
	for i, c := range config.GPUs {
		t.gpus[i].told = [2]int64{c.In, c.Out}
	}
	return t, nil
}

// Piece is what offsets of moves are multiples of on a GPU, in bytes.
func (t *Table) Piece(gpu int) int64 { return t.config.GPUs[gpu].Piece }

// Host is how much host memory is set aside for movable memory, and how much may be.
func (t *Table) Host() (reserved, limit int64) {
	if len(t.gpus) > 0 {
		_, reserved = t.node.Pressure(0)
	}
	return reserved, t.config.Host
}

// SetHost changes how much movable memory the node may have.
func (t *Table) SetHost(bytes int64) {
	t.config.Host = bytes
	t.node.SetHost(bytes)
}

// Others: so much of a GPU is used by what is none of the table's containers.
func (t *Table) Others(now int64, gpu int, bytes int64) {
	t.advance(now)
	t.carry(t.node.Others(t.now, gpu, bytes))
	t.settle()
}

// advance: time does not go back, whatever the clock says.
func (t *Table) advance(now int64) { t.now = max(t.now, now) }

// Empty tells whether there is nobody whose memory is to be moved, so that nothing has to be followed.
func (t *Table) Empty() bool { return len(t.containers) == 0 }

// Tick does what is due by now.
func (t *Table) Tick(now int64) {
	if t.Empty() {
		return
	}
	t.advance(now)
	if t.node.Next() <= t.now {
		t.carry(t.node.Tick(t.now))
	}
	if t.now >= t.lookAt {
		t.look()
	}
	for _, c := range t.containers {
		c.dueEntries()
	}
	t.settle()
}

// Next is when Tick has something to do, Never if there is nothing.
func (t *Table) Next() int64 {
	if t.Empty() {
		return Never
	}
	at := min(t.node.Next(), t.sendAt, t.lookAt)
	for _, c := range t.containers {
		for gpu := range c.flows {
			if f := &c.flows[gpu]; f.entering != 0 {
				at = min(at, f.openBy)
			}
		}
	}
	return at
}

// tell writes an event, if there was none of the kind for a while.
func (c *Container) tell(kind string, gpu int, bytes int64) {
	c.tellOf(nil, kind, gpu, bytes)
}

// tellOf is tell of a process.
func (c *Container) tellOf(m *Member, kind string, gpu int, bytes int64) {
	t, f := c.table, &c.flows[gpu]
	if last, told := f.told[kind]; told && t.now-last < tellEvery || t.config.Tell == nil {
		return
	}
	if f.told == nil {
		f.told = make(map[string]int64)
	}
	f.told[kind] = t.now
	e := Event{Kind: kind, Owner: c.owner, GPU: gpu, Bytes: bytes}
	if m != nil {
		e.Of = m.process
	}
	t.config.Tell(e)
}

// without keeps the order.
func without[T comparable](list []T, one T) []T {
	return slices.DeleteFunc(list, func(other T) bool { return other == one })
}
