package session

// Room on the card for plain memory of containers with swap. A request that fits the caps is charged at once; where it
// does not fit the cap beside the movable memory that the container has on the card, that is swapped out first, and the
// request is answered when it has gone. Invariants:
//   - what waits is charged, in nobody's grant, and within the ledger's cap;
//   - each wait ends: with room, with the connection, or after roomWait, when the request is refused, since the cap is to
//     hold; so a process that does not move its memory makes its own container's allocations fail, and nobody else's;
//   - it depends on no lease: the movers of processes swap out while others hold the GPU, and no gate is passed.

import (
	"fmt"
	"slices"
	"time"

	"weir/agent/ledger"
	"weir/cgo/abi"
)

// roomWait is how long a request waits for room on the card: less than the library waits for its answer.
func (n *Node) roomWait() time.Duration { return n.opts.AgentWait * 3 / 5 }

// plain is what the container has of memory that cannot move, unused credit included, without what waits for room.
// Called under mu.
func (c *container) plain(gpu int) uint64 {
	l := c.ledgers[gpu]
	return l.Charged() - l.Shelved()
}

// grant answers a request that the ledger has granted, or has it wait, charged as it is, where movable memory has to go
// first. Called under mu.
func (c *container) grant(w *waiter) *abi.Verdict {
	gpu, bytes := int(w.request.Gpu), w.request.Bytes+w.spare
	l := c.ledgers[gpu]
	ask, there := c.need(gpu, bytes)
	switch {
	case there:
		c.settleAsk(gpu, ask)
		return c.handOut(w)
	case len(c.waiting)+int(c.unsent.Load()) > waitersMax:
		l.Lower(w.s.holder(), bytes)
		c.settleAsk(gpu, ask)
		c.show(gpu)
		c.refuse(w, fmt.Sprintf("%d requests of its container wait already for memory to be swapped out", waitersMax))
		return c.overCapVerdict(w)
	}
	l.Shelve(w.s.holder(), bytes)
	w.ask = ask
	c.show(gpu)
	time.AfterFunc(c.node.roomWait(), func() { c.endRoom(gpu, ask, false) })
	return nil
}

// need asks for room; there tells whether it is there. In either case settleAsk follows. Called under mu.
func (c *container) need(gpu int, bytes uint64) (ask uint64, there bool) {
	if c.moves == nil {
		return 0, true
	}
	c.shown[gpu] = c.plain(gpu) - bytes // credit may have been recalled for it
	c.node.time.do(func(now int64) {
		c.moves.Plain(now, gpu, int64(c.shown[gpu]))
		ask, there = c.moves.Need(now, gpu, int64(bytes))
	})
	return ask, there
}

// settleAsk ends what need has begun, with what the container is charged now. Called under mu.
func (c *container) settleAsk(gpu int, ask uint64) {
	if c.moves == nil || ask == 0 {
		return
	}
	c.shown[gpu] = c.plain(gpu)
	c.node.time.do(func(now int64) { c.moves.Settle(now, gpu, ask, int64(c.shown[gpu])) })
}

// offerRoom is what stays of an offer to a new session: nothing where there is no room on the card yet, so that it asks, and
// then waits. Called under mu.
func (c *container) offerRoom(s *session, gpu int, offered uint64) uint64 {
	if offered == 0 {
		return 0
	}
	ask, there := c.need(gpu, offered)
	if !there {
		c.ledgers[gpu].Lower(s.holder(), offered)
		offered = 0
	}
	c.settleAsk(gpu, ask)
	return offered
}

// endWait takes what a request waits with from the shelf, for a session or (0) for nobody. Called under mu.
func (c *container) endWait(w *waiter, s *session) {
	gpu, h := int(w.request.Gpu), ledger.Holder(0)
	if s != nil {
		h = s.holder()
	}
	c.ledgers[gpu].Unshelve(h, w.request.Bytes+w.spare)
	ask := w.ask
	w.ask = 0
	c.settleAsk(gpu, ask)
	if s == nil && !c.closed {
		c.show(gpu)
	}
}

// roomMade is told that there is room for a request that waits. Called under the keeper's mutex.
func (n *Node) roomMade(owner any, gpu int, ask uint64) {
	n.tasks.Go(func() { owner.(*container).endRoom(gpu, ask, true) })
}

// endRoom answers a request that waits for room: it is there, or it has waited long enough.
func (c *container) endRoom(gpu int, ask uint64, made bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return // the agent stops: the container's page is gone, or about to go
	}
	i := slices.IndexFunc(c.waiting, func(w *waiter) bool { return w.ask == ask && int(w.request.Gpu) == gpu })
	if i < 0 {
		return // its connection has ended, or it has been answered
	}
	w := c.waiting[i]
	c.waiting = slices.Delete(c.waiting, i, i+1)
	v, known := c.view(gpu)
	// Within its cap it lacks only room that others' memory takes: the driver makes that.
	fits := known && v.Plain+v.Here+v.Coming+v.Going+int64(w.request.Bytes+w.spare) <= v.Cap
	if made || fits {
		c.endWait(w, w.s)
		c.sendLater(w, c.handOut(w))
		return
	}
	c.endWait(w, nil)
	c.refuse(w, fmt.Sprintf("%s of its own memory that can be swapped out are on the card, and did not make room under its cap "+
		"within %s; is one of its processes stopped (swap-silent)?", size(v.Here+v.Coming+v.Going), c.node.roomWait()))
	c.sendLater(w, c.overCapVerdict(w))
	c.retryWaiting()
}

// handOut records a grant that the ledger has made, and answers it. Called under mu.
func (c *container) handOut(w *waiter) *abi.Verdict {
	gpu := int(w.request.Gpu)
	verdict := c.overCapVerdict(w)
	if err := c.handOver(w.s, gpu, w.request.Bytes, w.spare); err != nil {
		c.node.log.Error("no record of a grant", "container", c.spec.Name, "error", err)
		c.refuse(w, err.Error())
	} else {
		verdict.Verdict, verdict.Granted_bytes = abi.Granted, w.request.Bytes
	}
	c.show(gpu)
	l := c.ledgers[gpu]
	verdict.Charged_bytes, verdict.Cap_bytes = l.Charged(), wireCap(l)
	return verdict
}

// overCapVerdict is a refusal. Called under mu.
func (c *container) overCapVerdict(w *waiter) *abi.Verdict {
	l := c.ledgers[w.request.Gpu]
	return &abi.Verdict{Header: abi.Header{Seq: w.request.Header.Seq}, Verdict: abi.OverCap, Gpu: w.request.Gpu,
		Charged_bytes: l.Charged(), Cap_bytes: wireCap(l)}
}
