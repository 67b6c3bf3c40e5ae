package session

// Swap: what of containers' movable memory lies where, and what moves when, with the timekeeper's lock and clock around
// package swaps. What containers may have is in their ledgers; here it is followed. A container is there once it has
// swap, and the node's other containers cost nothing but a word that sums up what they are charged.

import (
	"errors"
	"fmt"
	"time"

	"weir/agent/control"
	"weir/agent/residency"
	"weir/agent/session/swaps"
	"weir/agent/session/turns"
	"weir/agent/session/wire"
	"weir/cgo/abi"
)

// Until moves have been seen, the link to a GPU is taken to carry so much each way, in bytes a second: linkCards times the
// card, and no more than PCIe 4 with 16 lanes does. Too much costs a few turns that are too short, too little ones that are
// too long, after which only more is known.
const (
	linkMost  = 24_000_000_000
	linkCards = 4
)

// newSwaps makes the table of a node's swap. How much host memory it may take is kept elsewhere.
func (n *Node) newSwaps(leases *turns.Table) (*swaps.Table, error) {
	config := swaps.Config{Host: residency.Unlimited, Tell: n.tellMoves, Admit: n.roomMade}
	for _, g := range n.gpus {
		card := min(max(g.known.MemoryBytes, abi.MovableUnit), residency.SizeMax)
		link := min(linkCards*card, linkMost)
		config.GPUs = append(config.GPUs, residency.Default(card, link, link))
	}
	return swaps.New(config, leases)
}

// followMoves has the table of swap hear of what has happened to leases and to other memory. Called under the keeper's
// mutex.
func (k *timekeeper) followMoves(now int64) {
	if k.swaps.Empty() {
		return
	}
	for gpu, g := range k.gpus {
		if plain := g.plain.Load(); plain != k.others[gpu] {
			k.others[gpu] = plain
			k.swaps.Others(now, gpu, plain)
		}
	}
	k.swaps.Follow(now)
}

// setMoves follows the container's caps, from its first swap on, or the first movable memory that is left of some. Swap
// that is turned off is drained; without drain that is refused, by a *residency.Refusal, where memory lies on the host, and
// then nothing of swap has changed. Called under mu.
func (c *container) setMoves(drain bool) error {
	k := c.node.time
	if c.turns == nil {
		return nil
	}
	limits, has := c.moveLimits()
	if c.moves == nil {
		if has {
			k.do(func(now int64) { c.beginMoves(now, limits) })
		}
		return nil
	}
	var failed error
	k.do(func(now int64) {
		before := make([]residency.View, len(limits))
		for gpu, l := range limits {
			before[gpu] = c.moves.View(gpu)
			if c.moves.SetCap(now, gpu, l.Cap); before[gpu].Swap != l.Swap {
				failed = errors.Join(failed, c.moves.SetSwap(now, gpu, l.Swap, drain))
			}
		}
		if failed == nil || drain {
			return
		}
		for gpu, v := range before {
			c.moves.SetCap(now, gpu, v.Cap)
			c.moves.SetSwap(now, gpu, v.Swap, true)
		}
	})
	if failed != nil && drain {
		c.node.log.Error("swap has not been changed", "container", c.spec.Name, "error", failed)
	}
	return failed
}

// moveLimits are the container's limits as the table of swap has them, and whether anything is to be moved.
func (c *container) moveLimits() (limits []swaps.Limits, has bool) {
	const most = uint64(residency.Unlimited)
	limits = make([]swaps.Limits, len(c.ledgers))
	for gpu, l := range c.ledgers {
		limits[gpu] = swaps.Limits{Cap: int64(min(l.Cap(), most)), Swap: int64(min(l.Swap(), most))}
		has = has || l.Swap() > 0 || l.Movable() > 0
	}
	return limits, has
}

// beginMoves gives the container its place at the table of swap. Called under mu and the keeper's mutex.
func (c *container) beginMoves(now int64, limits []swaps.Limits) {
	moves, err := c.node.time.swaps.Add(now, c, c.turns, limits)
	if err != nil {
		c.node.log.Error("memory is not moved", "container", c.spec.Name, "error", err)
		return
	}
	c.moves = moves
	for gpu, g := range c.node.gpus {
		g.plain.Add(-int64(c.shown[gpu]))
		c.page.SetPiece(gpu, uint64(c.node.time.swaps.Piece(gpu)))
		moves.Plain(now, gpu, int64(c.shown[gpu]))
	}
	for _, s := range c.sessions {
		if c.connected(s) && s.turns != nil && s.usage != nil {
			s.turns.moves = moves.Join(now, told{s.usage, s.out, s.process.PID})
		}
	}
}

// endMoves takes the container from it.
func (c *container) endMoves(now int64) {
	if c.moves != nil {
		c.moves.Remove(now)
		return
	}
	for gpu, g := range c.node.gpus {
		g.plain.Add(-int64(c.shown[gpu]))
	}
}

// tellPlain tells what the container is charged of memory that cannot move, if that has changed. Called under mu.
func (c *container) tellPlain(gpu int) {
	charged, was := c.plain(gpu), c.shown[gpu]
	if charged == was {
		return
	}
	c.shown[gpu] = charged
	if c.moves == nil {
		c.node.gpus[gpu].plain.Add(int64(charged - was))
		return
	}
	c.node.time.do(func(now int64) { c.moves.Plain(now, gpu, int64(charged)) })
}

// view is what is known of where the container's movable memory on a GPU lies; false where nothing moves it by plan.
// Called under mu.
func (c *container) view(gpu int) (v residency.View, known bool) {
	if c.moves == nil {
		return v, false
	}
	c.node.time.do(func(int64) { v = c.moves.View(gpu) })
	return v, true
}

// cancels are how many of the container's moves on a GPU were taken back, of those that it is known to have. Called under mu.
func (c *container) cancels(gpu int) (n swaps.Cancels) {
	c.node.time.do(func(int64) { n = c.moves.Cancels(gpu) })
	return n
}

// describeLinks says what the links to the GPUs are found to carry.
func (n *Node) describeLinks(gpus []control.GPU) {
	if n.time == nil {
		return
	}
	n.time.do(func(int64) {
		for i := range gpus {
			if in, out, seen := n.time.swaps.Link(i); seen {
				gpus[i].LinkInBytesPerSecond, gpus[i].LinkOutBytesPerSecond = &in, &out
			}
		}
	})
}

// Move tells the process of moves, unless there is no room for the message.
func (t told) Move(gpu int, entries []swaps.Entry) bool {
	m := &abi.Move{Gpu: uint32(gpu), Count: uint32(len(entries))}
	for i, e := range entries {
		w := &m.Entries[i]
		*w = abi.MoveEntry{Move: e.Move, Id: e.ID, Offset: uint64(e.Offset), Bytes: uint64(e.Bytes)}
		for flag, is := range map[uint32]bool{abi.MoveOut: e.Out, abi.MoveFresh: e.Fresh, abi.MoveCancel: e.Cancel} {
			if is {
				w.Flags |= flag
			}
		}
	}
	return t.out.now(wire.Encode(m))
}

// movable does something with the process's movable memory, if it is moved.
func (p *player) movable(what func(m *swaps.Member, now int64) error) (err error) {
	if p == nil {
		return nil
	}
	p.time.do(func(now int64) {
		if p.moves != nil {
			err = what(p.moves, now)
		}
	})
	return err
}

// allocate: the process is given movable memory, to which nothing is to be lacking any more.
func (p *player) allocate(gpu int, id, bytes uint64) error {
	return p.movable(func(m *swaps.Member, now int64) error { return m.Allocate(now, gpu, id, int64(bytes)) })
}

// declare: it has had it since before it connected, so much of it on the card.
func (p *player) declare(gpu int, id, bytes, here uint64) error {
	return p.movable(func(m *swaps.Member, now int64) error { return m.Declare(now, gpu, id, int64(bytes), int64(here)) })
}

// freed: it has these no more.
func (p *player) freed(ids []uint64) {
	p.movable(func(m *swaps.Member, now int64) error { return m.Freed(now, ids...) })
}

// used takes what a tenant says that its kernels use.
func (v *conversation) used(m *wire.Used) *ending {
	return v.ofMoves(m.Gpu, func(member *swaps.Member, now int64) error {
		member.Used(now, int(m.Gpu), m.Ids[:m.Count]...)
		return nil
	})
}

// moved takes what has become of moves.
func (v *conversation) moved(m *abi.Moved) *ending {
	answers := make([]swaps.Answer, m.Count)
	for i, e := range m.Entries[:m.Count] {
		answers[i] = swaps.Answer{Move: e.Move, Result: results[e.Result], Took: int64(e.Ns)}
	}
	return v.ofMoves(m.Gpu, func(member *swaps.Member, now int64) error { return member.Moved(now, answers...) })
}

var results = map[uint32]residency.Result{
	abi.MoveDone: residency.Done, abi.MoveUndone: residency.Undone, abi.MoveFailed: residency.Failed,
}

// wait has a tenant that says too much wait, and nobody else.
func (v *conversation) wait() {
	now := time.Now()
	time.Sleep(max(v.pace.take(now, paceRate), v.c.pace.take(now)))
}

// ofMoves takes a message of a tenant's about its movable memory.
func (v *conversation) ofMoves(gpu uint32, say func(*swaps.Member, int64) error) *ending {
	if int(gpu) >= len(v.c.node.gpus) {
		return &ending{abi.CloseProtocol, fmt.Sprintf("movable memory on GPU %d, of %d", gpu, len(v.c.node.gpus))}
	}
	v.wait()
	return breach(v.s.turns.movable(say))
}

// tellMoves writes an event of swap. Called under the keeper's mutex.
func (n *Node) tellMoves(e swaps.Event) {
	c, amount := e.Owner.(*container), size(e.Bytes)
	text := map[string]string{
		swaps.EventOver: "its kernels or copies have fetched memory so that it has " + amount + " more there than its cap; as much is " +
			"swapped out, as often as moving may take its part of the time: do they use more than the cap (inspect, OVER-CAP)?",
		swaps.EventSlow: "its turn has begun while " + amount + " of its memory were not there yet, since nothing more came: " +
			"its kernels fetch them page by page",
		swaps.EventSilent: "this process does not move memory that it is asked to: is it stopped? Its memory stays where it is " +
			"until it answers, and that of others is moved instead",
		swaps.EventDrained: "its swap is off, and all of its memory is there",
	}[e.Kind]
	event := control.Event{Type: e.Kind, Container: c.spec.Name, Namespace: c.spec.Namespace,
		Message: fmt.Sprintf("on GPU %s: %s", n.gpus[e.GPU].name, text), GPUUUID: n.gpus[e.GPU].uuid}
	if process, named := e.Of.(told); named {
		event.PID = process.pid
	}
	n.events.Add(event)
}

var _ swaps.Process = told{}
