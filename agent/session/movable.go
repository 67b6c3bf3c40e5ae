package session

// Movable memory: what a container with swap may have beyond its cap. Each allocation is asked for by its number and
// charged to cap and swap together, and to the node's account of host memory, until it is freed, or its process has
// ended. How much a session has is in its credit record before it is granted, as credit is. Where it lies, and what
// moves, is not decided here.

import (
	"errors"
	"fmt"
	"sync"

	"weir/agent/ledger"
	"weir/agent/session/proc"
	"weir/agent/session/wire"
	"weir/agent/store"
	"weir/cgo/abi"
)

// host is the node's account of host memory. Its mutex is taken after those of containers.
type host struct {
	mu sync.Mutex
	ledger.Host
}

func (h *host) do(what func(*ledger.Host)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what(&h.Host)
}

// reserve sets n bytes aside; missing is how much did not fit, reserved what there was before.
func (h *host) reserve(n uint64) (missing, reserved uint64) {
	h.do(func(l *ledger.Host) { reserved, missing = l.Reserved(), l.Reserve(n) })
	return missing, reserved
}

func (h *host) change(from, to uint64) { h.do(func(l *ledger.Host) { l.Change(from, to) }) }

// piece is one allocation of movable memory.
type piece struct {
	gpu   int
	bytes uint64
}

// movablesMost is how many allocations of movable memory a session may seem to have: as many as its library keeps account
// of, and those of a FREED that a REQUEST of another of its threads has overtaken.
const movablesMost = abi.MovablesMax + abi.NamedMax

// movables are a session's allocations of movable memory, by the numbers that it gave them.
type movables struct {
	pieces map[uint64]piece
	// redeclared, after a reconnect and until all is declared, is what has been, by GPU; then nil. Until then the
	// session is charged what the process had before.
	redeclared []uint64
	// believed: what it had before is not known, so it is taken for what it says, up to its limits.
	believed bool
}

func (m *movables) add(id uint64, p piece) {
	if m.pieces == nil {
		m.pieces = make(map[uint64]piece)
	}
	m.pieces[id] = p
}

// checkMovable refuses a REQUEST for movable memory that no library makes. Called under mu.
func (c *container) checkMovable(s *session, m *abi.Request) error {
	if m.Kind != abi.KindMovable {
		return nil
	}
	_, had := s.movables.pieces[m.Id]
	for _, w := range c.waiting {
		had = had || w.s == s && w.request.Id == m.Id
	}
	switch {
	case had:
		return fmt.Errorf("movable memory of number %d is there already", m.Id)
	case len(s.movables.pieces) >= movablesMost:
		return fmt.Errorf("more than %d allocations of movable memory", movablesMost)
	}
	return nil
}

// swapless: a container has no swap on a GPU, nor anything left of some that it had, so it is to take no host memory.
func swapless(l *ledger.Ledger) bool { return l.Swap() == 0 && l.Movable() == 0 }

// decideMovable is decide for movable memory. Called under mu.
func (c *container) decideMovable(w *waiter) *abi.Verdict {
	gpu, l := int(w.request.Gpu), c.ledgers[w.request.Gpu]
	verdict := &abi.Verdict{
		Header: abi.Header{Seq: w.request.Header.Seq}, Verdict: abi.OverSwap, Gpu: w.request.Gpu,
	}
	if swapless(l) {
		c.refuse(w, "it has no swap there; give it some with --swap SIZE")
		verdict.Charged_bytes, verdict.Cap_bytes = l.Charged(), wireCap(l)
		return verdict
	}
	outcome := l.RequestMovable(w.s.holder(), w.request.Bytes, c.recaller(gpu))
	switch {
	case outcome.Granted && w.s.usage == nil: // the recall found its page to be forged
		l.FreeMovable(w.s.holder(), w.request.Bytes)
	case outcome.Granted:
		if verdict.Verdict = c.takeMovable(w); verdict.Verdict == 0 {
			return nil
		}
	case c.mayWait(w, outcome.Missing):
		return nil
	case !c.connected(w.s) || w.s.handle.Ended():
		return nil
	default:
		c.refuse(w, "")
	}
	if verdict.Verdict == abi.Granted {
		verdict.Granted_bytes = w.request.Bytes
	}
	c.show(gpu)
	verdict.Charged_bytes, verdict.Cap_bytes = l.Charged(), wireCap(l)
	return verdict
}

// takeMovable has the host's account, the record and the books of what lies where follow a grant of the ledger's, or
// undoes it. The verdict is 0 where the request is to wait for host memory. Called under mu.
func (c *container) takeMovable(w *waiter) uint32 {
	gpu, s, bytes := int(w.request.Gpu), w.s, w.request.Bytes
	l := c.ledgers[gpu]
	undo := func(verdict uint32, why string) uint32 {
		l.FreeMovable(s.holder(), bytes)
		c.refuse(w, why)
		return verdict
	}
	if why := c.groupFull(); why != "" {
		return undo(abi.HostFull, why)
	}
	if missing, reserved := c.node.host.reserve(bytes); missing > 0 {
		if c.mayWait(w, missing) || c.mayWaitForHost(w, missing) {
			l.FreeMovable(s.holder(), bytes)
			return 0
		}
		limit := c.node.host.Limit()
		return undo(abi.HostFull, fmt.Sprintf("containers' swap has %s of the %s of host memory that it may take; raise "+
			"swap_host_limit in the agent's configuration, or have others free some", size(int64(reserved)), size(int64(limit))))
	}
	if err := s.record.SetMovable(gpu, l.MovableOf(s.holder())); err != nil {
		c.node.log.Error("no record of movable memory", "container", c.spec.Name, "error", err)
		c.node.host.change(bytes, 0)
		return undo(abi.OverSwap, err.Error())
	}
	c.node.opts.step("movable granted")
	c.tellPlain(gpu) // what was recalled
	if err := s.turns.allocate(gpu, w.request.Id, bytes); err != nil {
		c.setMovable(s, gpu, l.MovableOf(s.holder())-bytes)
		c.refuse(w, err.Error())
		return abi.OverSwap
	}
	s.movables.add(w.request.Id, piece{gpu, bytes})
	if s.movables.redeclared != nil {
		s.movables.redeclared[gpu] += bytes // it is no part of what was had before, and stays charged all the same
	}
	return abi.Granted
}

// freed takes note that movable memory is gone. An error is what the tenant may not say.
func (c *container) freed(s *session, m *wire.Freed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected(s) {
		return nil
	}
	gpu, sum, gone := int(m.Gpu), uint64(0), make([]uint64, 0, m.Count)
	if gpu >= len(c.ledgers) {
		return fmt.Errorf("FREED on GPU %d, of %d", gpu, len(c.ledgers))
	}
	var wrong error
	for _, id := range m.Ids[:m.Count] {
		p, had := s.movables.pieces[id]
		if !had || p.gpu != gpu {
			wrong = fmt.Errorf("FREED of number %d, which is no movable memory on GPU %d", id, gpu)
			break
		}
		delete(s.movables.pieces, id)
		gone = append(gone, id)
		sum += p.bytes
		if s.movables.redeclared != nil {
			s.movables.redeclared[gpu] -= p.bytes
		}
	}
	s.turns.freed(gone)
	had := c.ledgers[gpu].MovableOf(s.holder())
	c.setMovable(s, gpu, had-sum)
	c.show(gpu)
	c.retryWaiting()
	return wrong
}

// setMovable changes what a session is charged of movable memory, in all accounts. Called under mu.
func (c *container) setMovable(s *session, gpu int, bytes uint64) {
	l := c.ledgers[gpu]
	c.node.host.change(l.MovableOf(s.holder()), bytes)
	c.chargeMovable(s, gpu, bytes)
}

// chargeMovable is setMovable but for the host's account. Called under mu.
func (c *container) chargeMovable(s *session, gpu int, bytes uint64) {
	l := c.ledgers[gpu]
	if l.MovableOf(s.holder()) == bytes {
		return
	}
	if err := s.record.SetMovable(gpu, bytes); err != nil {
		c.node.log.Error("a charge of movable memory cannot be recorded", "container", c.spec.Name, "error", err)
	}
	l.DeclareMovable(s.holder(), bytes)
}

// inheritMovable charges a session that takes the place of another of its process what that had of movable memory: grants
// gets it, for the record. Called under mu.
func (c *container) inheritMovable(s, former *session, grants []store.Grant) {
	s.movables.redeclared = make([]uint64, len(c.ledgers))
	if former == nil {
		s.movables.believed = true
		return
	}
	for gpu, l := range c.ledgers {
		grants[gpu].Movable = l.MovableOf(former.holder())
	}
}

// declareMovable takes a declaration of movable memory that a process had before it connected again. It was granted,
// so it is in what the session is charged already; an error is what cannot be.
func (c *container) declareMovable(s *session, m *abi.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected(s) {
		return nil
	}
	gpu := int(m.Gpu)
	_, twice := s.movables.pieces[m.Id]
	switch {
	case gpu >= len(c.ledgers):
		return fmt.Errorf("REQUEST on GPU %d, of %d", gpu, len(c.ledgers))
	case s.movables.redeclared == nil:
		return errors.New("movable memory is declared again, and nothing is to be")
	case twice || len(s.movables.pieces) >= movablesMost:
		return fmt.Errorf("movable memory of number %d is declared twice, or too much", m.Id)
	}
	l := c.ledgers[gpu]
	sum := s.movables.redeclared[gpu] + m.Bytes
	if had := l.MovableOf(s.holder()); sum > had {
		if !s.movables.believed || swapless(l) || l.Movable()-had+sum > l.Cap()+l.Swap() {
			return fmt.Errorf("%d bytes of movable memory are declared, and %d were granted", sum, had)
		}
		if missing, _ := c.node.host.reserve(sum - had); missing > 0 {
			return fmt.Errorf("%d bytes of movable memory are declared, where the host has no room for %d", sum, missing)
		}
		c.chargeMovable(s, gpu, sum)
	}
	s.movables.redeclared[gpu] = sum
	s.movables.add(m.Id, piece{gpu, m.Bytes})
	c.show(gpu)
	return s.turns.declare(gpu, m.Id, m.Bytes, m.Here_bytes)
}

// movableDeclared: what was not declared again is had no more. Called under mu.
func (c *container) movableDeclared(s *session) {
	if s.movables.redeclared == nil {
		return
	}
	for gpu, bytes := range s.movables.redeclared {
		c.setMovable(s, gpu, bytes)
		c.show(gpu)
	}
	s.movables.redeclared = nil
	c.retryWaiting()
}

// groupFull is why the container's control groups leave no host memory for what it has been granted; empty where they
// do, or where that is not known. What lies on the host may be in what they count; the rest may have to go there. Called
// under mu.
func (c *container) groupFull() string {
	left, err := proc.HostMemoryLeft(c.spec.PID)
	if err != nil {
		return ""
	}
	var here uint64
	for gpu, l := range c.ledgers {
		here += l.Movable() - min(l.Movable(), uint64(c.swapped(gpu)))
	}
	if here <= uint64(left) {
		return ""
	}
	return fmt.Sprintf("its control group leaves it %s of host memory (memory.max), where all that it has on the GPU may have "+
		"to go; raise that limit, or give it less swap", size(left))
}
