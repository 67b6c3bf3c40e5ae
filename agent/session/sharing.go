package session

// What tenants say of shared memory, and what becomes of it.

import (
	"errors"
	"fmt"

	"weir/agent/store"
	"weir/cgo/abi"
)

// errClaimed is returned for a claim on what another has exported.
var errClaimed = errors.New("the key is of memory that another has exported")

func (c *container) sharer(s *session) sharer { return sharer{c, s.process} }

// export decides on an EXPORT: what the session was granted for the piece becomes the container's
// charge. Refused, the piece stays the session's own, and whoever imports it is charged too. There
// is no answer for a session that has ended meanwhile.
func (c *container) export(s *session, m *abi.Share) (*abi.Shared, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected(s) {
		return nil, nil
	}
	answer := &abi.Shared{Header: abi.Header{Seq: m.Header.Seq}, Verdict: abi.NoSuchGPU, Gpu: m.Gpu}
	if int(m.Gpu) >= len(c.ledgers) {
		return answer, nil
	}
	if granted := c.ledgers[m.Gpu].Granted(s.holder()); m.Bytes > granted {
		return nil, fmt.Errorf("EXPORT of %d bytes, where %d were granted", m.Bytes, granted)
	}
	switch err := c.takeOver(s, m); {
	case err == nil:
		answer.Verdict, answer.Bytes = abi.Granted, m.Bytes
	case errors.Is(err, errClaimed):
		answer.Verdict = abi.ChargedElsewhere
	default:
		answer.Verdict = abi.OverCap
		c.event("unshared", s.process.PID, "%s exported %s that the agent cannot keep account of: "+
			"%v; whoever imports it is charged too", s.program, size(int64(m.Bytes)), err)
	}
	c.show(int(m.Gpu))
	return answer, nil
}

// takeOver moves an exported piece's charge from the session to the container. The order makes a
// kill of the agent err on the side of charging it twice, until the process comes back. Called under
// mu.
func (c *container) takeOver(s *session, m *abi.Share) error {
	r, p, gpu := c.node.shares, c.sharer(s), int(m.Gpu)
	r.mu.Lock()
	defer r.mu.Unlock()
	sh := r.byKey[m.Key]
	known := sh != nil
	switch {
	case !known:
		sh = newShare(c, m, true)
		if err := r.add(sh, p, true); err != nil {
			return err
		}
	case !sh.is(c, m) || sh.holds[p] == nil || sh.holds[p].named:
		return errClaimed
	default: // told before, on a connection that ended before the answer: it is charged already
		sh.holds[p].named = true
	}
	l := c.ledgers[gpu]
	row := store.Row{Bytes: l.Granted(s.holder()) - m.Bytes, Moves: s.moves[gpu]}
	if err := s.record.Set(gpu, row); err != nil {
		if !known {
			r.remove(sh, p)
		}
		return err
	}
	c.node.opts.step("exported")
	if known {
		l.Lower(s.holder(), m.Bytes)
	} else {
		l.Export(s.holder(), m.Bytes)
	}
	return nil
}

func newShare(home *container, m *abi.Share, exported bool) *share {
	return &share{
		key: m.Key, gpu: int(m.Gpu), bytes: m.Bytes, home: home, exported: exported,
		holds: make(map[sharer]*hold),
	}
}

// is tells whether a message speaks of sh as memory that is charged to the container.
func (sh *share) is(c *container, m *abi.Share) bool {
	return sh.home == c && sh.gpu == int(m.Gpu) && sh.bytes == m.Bytes
}

// importing decides on an IMPORT: whether somebody is charged for the piece. If so, the session is
// one of those that have it from now on, whether or not its import then succeeds: it will say.
func (c *container) importing(s *session, m *abi.Share) *abi.Shared {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected(s) {
		return nil
	}
	r, p := c.node.shares, c.sharer(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	answer := &abi.Shared{Header: abi.Header{Seq: m.Header.Seq}, Verdict: abi.Granted, Gpu: m.Gpu}
	sh := r.byKey[m.Key]
	if sh == nil {
		return answer
	}
	if h := sh.holds[p]; h != nil {
		h.named = true
	} else if err := r.add(sh, p, false); err != nil {
		c.event("unshared", s.process.PID, "%s imports %s that the agent cannot keep account of: "+
			"%v; it is charged for it too", s.program, size(int64(sh.bytes)), err)
		return answer
	}
	c.node.opts.step("imported")
	answer.Verdict, answer.Gpu, answer.Bytes = abi.ChargedElsewhere, uint32(sh.gpu), sh.bytes
	return answer
}

// declareShare takes what a session says, after a reconnect, that it has since before. Mostly that is
// known; what an earlier agent's records do not tell is charged to the session's container. A result
// ends the connection.
func (c *container) declareShare(s *session, m *abi.Share, exporter bool) error {
	var moved []ended
	defer func() { c.node.release(moved) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected(s) {
		return nil
	}
	if int(m.Gpu) >= len(c.ledgers) {
		return fmt.Errorf("shared memory on GPU %d of %d", m.Gpu, len(c.ledgers))
	}
	r, p := c.node.shares, c.sharer(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	sh := r.byKey[m.Key]
	l := c.ledgers[m.Gpu]
	switch {
	case sh == nil:
		if !l.Share(m.Bytes) {
			return errors.New("more shared memory than sums can hold")
		}
		sh = newShare(c, m, exporter)
		if err := r.add(sh, p, exporter); err != nil {
			l.Unshare(m.Bytes)
			return err
		}
		c.show(int(m.Gpu))
		return nil
	case sh.holds[p] == nil:
		if err := r.add(sh, p, exporter); err != nil {
			return err
		}
	}
	sh.holds[p].named = true
	sh.holds[p].exporter = sh.holds[p].exporter || exporter
	if !exporter || sh.is(c, m) && sh.exported {
		return nil
	}
	if sh.exported || sh.gpu != int(m.Gpu) || sh.bytes != m.Bytes || !l.Share(m.Bytes) {
		return errClaimed
	}
	moved = []ended{{account{sh.home, sh.gpu}, sh.bytes}}
	c.show(int(m.Gpu))
	return r.adopt(sh, c)
}

// allDeclared ends what a session has not named since it has reconnected: shared memory, and movable memory.
func (c *container) allDeclared(s *session) {
	c.mu.Lock()
	var over []ended
	if c.connected(s) {
		over = c.node.shares.dropUnnamed(c.sharer(s))
		c.movableDeclared(s)
	}
	c.mu.Unlock()
	c.node.release(over)
}

// drop ends a session's having of a piece. When it returns, what that was charged is free.
func (c *container) drop(s *session, m *abi.Share) *abi.Shared {
	c.mu.Lock()
	var over []ended
	here := c.connected(s)
	if here {
		over = c.node.shares.drop(c.sharer(s), m.Key)
	}
	c.mu.Unlock()
	if !here {
		return nil
	}
	c.node.release(over)
	return &abi.Shared{Header: abi.Header{Seq: m.Header.Seq}, Verdict: abi.Granted, Gpu: m.Gpu}
}

// release takes what nobody has any more from the accounts. No container's mu is held.
func (n *Node) release(over []ended) {
	for _, e := range over {
		e.c.mu.Lock()
		e.c.unshare(e)
		e.c.mu.Unlock()
		n.retire(e.c)
	}
}

// releaseSoon is release for one who holds the container's mu: the container's own at once, those of
// others when there is no risk that two wait for each other. Called under mu.
func (c *container) releaseSoon(over []ended) {
	var others []ended
	for _, e := range over {
		if e.c == c {
			c.unshare(e)
		} else {
			others = append(others, e)
		}
	}
	if len(others) > 0 && !c.closed {
		c.node.tasks.Go(func() { c.node.release(others) })
	}
}

// unshare takes what nobody has any more from the container's account. Called under mu.
func (c *container) unshare(e ended) {
	if c.closed {
		return
	}
	c.ledgers[e.gpu].Unshare(e.bytes)
	c.show(e.gpu)
	c.retryWaiting()
}

// exported is what of the container's charge on a GPU a session has exported and still has, in
// bytes. It is no part of what the session was granted. Called under mu.
func (c *container) exported(s *session, gpu int) uint64 {
	return c.node.shares.exportedBy(c.sharer(s), gpu)
}

// shared is what of the container's charge is shared memory, on all GPUs, in bytes. Called under mu.
func (c *container) shared() (sum uint64) {
	for _, l := range c.ledgers {
		sum += l.Shared()
	}
	return sum
}
