package residency

// Caps, swap, host memory: what is refused, and what changes while containers run.

import "fmt"

// Reason names the limit behind a refusal.
type Reason string

const (
	// SwapLimit: the flow would have more than its cap and its swap together.
	SwapLimit Reason = "swap limit"
	// HostLimit: the node's movable memory would be more than the host is to take.
	HostLimit Reason = "host limit"
	// CapLimit: what cannot move would be more than the cap.
	CapLimit Reason = "cap"
	// InUse: memory beyond what the new limit allows is in use, or on the host.
	InUse Reason = "in use"
	// Unknown: there is no such flow, or the request makes no sense.
	Unknown Reason = "unknown"
)

// Refusal is an error that names its limit and the amounts, in bytes.
type Refusal struct {
	Reason  Reason
	Asked   int64
	Held    int64 // before
	Limit   int64
	Missing int64 // by how much it did not fit
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: asked for %d bytes beside %d, limit %d: %d too much", r.Reason, r.Asked, r.Held, r.Limit,
		r.Missing)
}

func refusal(reason Reason, asked, held, limit int64) *Refusal {
	return &Refusal{Reason: reason, Asked: asked, Held: held, Limit: limit, Missing: asked + held - limit}
}

// Add makes a flow known, idle and without memory. Swap is what it may have beyond its cap; 0: it has none.
func (n *Node) Add(now int64, id FlowID, gpu int, limit, swap int64) error {
	if gpu < 0 || gpu >= len(n.gpus) || id == 0 || n.gpus[gpu].flow(id) != nil || limit < 0 || swap < 0 {
		return &Refusal{Reason: Unknown}
	}
	if swap > n.host {
		return refusal(HostLimit, swap, 0, n.host)
	}
	g := n.gpus[gpu]
	g.now = max(g.now, now)
	g.flows = append(g.flows, newFlow(g, id, min(limit, Unlimited), min(swap, Unlimited)))
	return nil
}

// Remove: the container has ended, with all that it had.
func (n *Node) Remove(now int64, id FlowID, gpu int) []Decision {
	f := n.on(now, id, gpu)
	if f == nil {
		return nil
	}
	g := f.on
	for _, a := range n.allocs {
		if a.flow == f {
			n.forget(a)
		}
	}
	g.plain(f, -f.plain)
	f.asks, f.asked, f.drain = nil, 0, false
	f.enter(Idle)
	for i, other := range g.flows {
		if other == f {
			g.flows = append(g.flows[:i], g.flows[i+1:]...)
			break
		}
	}
	return g.finish()
}

// Allocate: a process has asked for movable memory. What is granted has its host memory set aside.
func (n *Node) Allocate(now int64, id FlowID, gpu int, number AllocID, session Session, bytes int64) ([]Decision, error) {
	f := n.on(now, id, gpu)
	if f == nil || bytes <= 0 || bytes > SizeMax || number == 0 || n.allocs[number] != nil {
		return nil, &Refusal{Reason: Unknown, Asked: bytes}
	}
	if held := f.held(); held+bytes > f.limit+f.swap {
		return nil, refusal(SwapLimit, bytes, held, f.limit+f.swap)
	}
	if n.reserved+bytes > n.host {
		return nil, refusal(HostLimit, bytes, n.reserved, n.host)
	}
	n.add(f, number, session, bytes)
	f.lingers = max(f.lingers, f.on.now+f.on.config.Linger) // it is about to use that
	return f.on.finish(), nil
}

// Declare: a process has had this allocation since before it was known, with so much of it on the card, from its
// beginning, and the rest on the host. It is there, so no limit refuses it. Its recency is that of what is allocated. Of a
// flow without swap what is on the host comes back.
func (n *Node) Declare(now int64, id FlowID, gpu int, number AllocID, session Session, bytes, here int64) ([]Decision, error) {
	f := n.on(now, id, gpu)
	if f == nil || bytes <= 0 || bytes > SizeMax || number == 0 || n.allocs[number] != nil {
		return nil, &Refusal{Reason: Unknown, Asked: bytes}
	}
	a := n.add(f, number, session, bytes)
	for i := range a.pieces {
		at := host
		if here > 0 {
			at = resident
		}
		here -= a.bytes(i)
		a.setPiece(i, at)
	}
	f.drain = f.drain || f.swap == 0 && a.sum.host > 0
	return f.on.finish(), nil
}

// add makes an allocation of which nothing has been touched.
func (n *Node) add(f *flow, number AllocID, session Session, bytes int64) *alloc {
	a := &alloc{id: number, session: session, flow: f, size: bytes, usedIn: f.lease}
	pieces := int((bytes + f.on.config.Piece - 1) / f.on.config.Piece)
	if a.pieces, a.line = a.one[:], a.oneLine[:]; pieces > 1 {
		a.pieces, a.line = make([]place, pieces), make([]arrived, pieces)
	}
	for i := range a.line {
		a.line[i].alloc, a.line[i].piece = a, i
	}
	a.sum.fresh = bytes
	n.reserved += bytes
	n.allocs[a.id] = a
	n.list(a)
	a.process = f.process(session)
	a.process.allocs++
	f.tally(a)
	f.touch(a)
	return a
}

// held is all that a flow has or is about to have.
func (f *flow) held() int64 { return f.sum.total() + f.plain + f.asked }

// Need: a process is about to take plain memory. Admit says when there is room for it.
func (n *Node) Need(now int64, id FlowID, gpu int, number uint64, bytes int64) ([]Decision, error) {
	f := n.on(now, id, gpu)
	if f == nil || bytes <= 0 || bytes > SizeMax {
		return nil, &Refusal{Reason: Unknown, Asked: bytes}
	}
	fixed := f.plain + f.asked
	if f.swap == 0 || f.drain {
		fixed = f.held()
	}
	if fixed+bytes > f.limit {
		return nil, refusal(CapLimit, bytes, fixed, f.limit)
	}
	if held := f.held(); held+bytes > f.limit+f.swap {
		return nil, refusal(SwapLimit, bytes, held, f.limit+f.swap)
	}
	f.asks = append(f.asks, ask{number, bytes})
	f.asked += bytes
	return f.on.finish(), nil
}

// Release: plain memory is gone, or was not taken after all.
func (n *Node) Release(now int64, id FlowID, gpu int, bytes int64) []Decision {
	f := n.on(now, id, gpu)
	if f == nil {
		return nil
	}
	f.on.plain(f, -min(bytes, f.plain))
	return f.on.finish()
}

// Withdraw: who asked with Need does not any more.
func (n *Node) Withdraw(now int64, id FlowID, gpu int, number uint64) []Decision {
	f := n.on(now, id, gpu)
	if f == nil {
		return nil
	}
	for i, a := range f.asks {
		if a.number == number {
			f.asks = append(f.asks[:i:i], f.asks[i+1:]...)
			f.asked -= a.bytes
			break
		}
	}
	return f.on.finish()
}

// SetPlain: so much plain memory the flow has, by who keeps account of it, and does not wait for room: the driver makes
// it, if need be. What the cap does not leave room for goes.
func (n *Node) SetPlain(now int64, id FlowID, gpu int, bytes int64) []Decision {
	f := n.on(now, id, gpu)
	if f == nil {
		return nil
	}
	f.on.plain(f, max(0, bytes)-f.plain)
	return f.on.finish()
}

func (g *gpu) plain(f *flow, bytes int64) {
	f.plain += bytes
	g.fixed += bytes
	g.used += bytes
}

// SetCap changes a flow's cap. What is above it goes, least recently used first, while the program runs on; a flow
// that has more than cap and swap together gets nothing more.
func (n *Node) SetCap(now int64, id FlowID, gpu int, limit int64) []Decision {
	f := n.on(now, id, gpu)
	if f == nil {
		return nil
	}
	f.limit, f.pauseUntil = min(max(0, limit), Unlimited), 0
	return f.on.finish()
}

// SetSwap changes how much a flow may have beyond its cap. Less than what is in use is refused. To turn it off while
// something is on the host is refused with that amount, unless it is to be drained: then all comes back first, and
// Drained says when. That all is there is to be true then, so what is believed to be on the card is fetched, too: of
// what the driver gave up by itself the books know how much it was, at best. To fetch what is there moves nothing.
func (n *Node) SetSwap(now int64, id FlowID, gpu int, swap int64, drain bool) ([]Decision, error) {
	f := n.on(now, id, gpu)
	if f == nil || swap < 0 {
		return nil, &Refusal{Reason: Unknown}
	}
	if swap > n.host {
		return nil, refusal(HostLimit, swap, 0, n.host)
	}
	if beyond := f.held() - f.limit; beyond > swap {
		return nil, refusal(InUse, 0, beyond, swap)
	}
	if swapped := f.sum.host + f.sum.coming + f.sum.going; swap == 0 && f.swap > 0 && swapped > 0 {
		if !drain {
			return nil, refusal(InUse, 0, swapped, 0)
		}
		if !f.drain {
			f.drain = true
			n.distrust(f)
		}
	} else if swap > 0 {
		f.drain = false
	}
	f.swap = min(swap, Unlimited)
	return f.on.finish(), nil
}

// SetHost changes how much movable memory the node may have. What is above it stays; nothing more is granted.
func (n *Node) SetHost(bytes int64) { n.host = max(0, bytes) }

// distrust takes what f is believed to have on the card for what lies on the host.
func (n *Node) distrust(f *flow) {
	for _, a := range n.allocs {
		if a.flow != f {
			continue
		}
		for i, at := range a.pieces {
			if at == resident {
				a.setPiece(i, host)
			}
		}
	}
}
