package session

// One process's session: how it begins, is replaced, loses its connection and ends.

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/ledger"
	"weir/agent/session/page"
	"weir/agent/session/proc"
	"weir/agent/session/wire"
	"weir/agent/store"
	"weir/cgo/abi"
)

// state is where a session stands, in the words that operators see.
type state string

const (
	connected state = "connected"
	// detached: the connection is gone, the process lives. Its grant stays charged and recallable.
	detached state = "detached"
	// recovered: known from its credit record only, since the agent was started anew.
	recovered state = "recovered"
	// exiting: the process has ended (or runs another program); NVML may list it still.
	exiting state = "exiting"
)

// session is one process's connection, and what outlives the connection. A process has one at most.
type session struct {
	id      uint64
	process proc.ID
	uid     uint32
	image   uint64 // of the program that said HELLO
	since   time.Time
	program string
	library string
	abi     int
	inode   uint64 // of the usage page

	// The container's mu guards the rest.
	state    state
	handle   *proc.Handle
	mark     int32       // of the watch on handle
	out      outlet      // nil unless connected
	usage    *page.Usage // nil where it was not found again or is not to be trusted
	turns    *player     // constant once others know the session
	moves    []uint64    // by GPU: the agent's changes of the unused credit in usage
	record   *store.Credit
	movables movables
	forged   bool
	left     bool // it no longer descends from its container, and an event has said so

	check      *time.Timer // the next look for an exec, while detached or recovered
	checkAfter time.Duration
	rows       []store.Row // of the earlier agent's record, while pageless
	pageSought time.Time   // when the usage page was last sought in the process
	holdUntil  time.Time   // while exiting
	pooled     []uint64    // once it exits: what its shared pools had reserved, by GPU
}

// ending says why a connection ends: the reason on the wire, and words for it.
type ending struct {
	reason uint32
	text   string
}

func (e *ending) packet() []byte { return wire.Close(e.reason, 0, e.text) }

func (s *session) holder() ledger.Holder { return ledger.Holder(s.id) }

func (s *session) dropUsage() {
	if s.usage != nil {
		s.turns.absent()
		s.usage.Close()
		s.usage = nil
	}
}

func (s *session) stopCheck() {
	if s.check != nil {
		s.check.Stop()
		s.check = nil
	}
}

// connected tells whether s is its process's session and has its connection. Called under mu.
func (c *container) connected(s *session) bool {
	return !c.closed && c.sessions[s.process] == s && s.state == connected
}

// pages are the descriptors that a tenant is given. The tenant gets copies of them.
type pages struct{ control, usage int }

func (p pages) close() {
	unix.Close(p.control)
	unix.Close(p.usage)
}

// attach makes a session of an accepted HELLO. A former session of the same process ends: what it
// was granted becomes what the process now declares. On success the handle belongs to the session,
// and the pages are the caller's to close.
func (c *container) attach(v *conversation, m *abi.Hello) (*session, pages, *ending) {
	image := v.image
	if image == 0 {
		st, err := proc.Read(v.peer.PID)
		if err != nil {
			return nil, pages{}, &ending{abi.CloseIdentity, err.Error()}
		}
		image = st.Image
	}
	s := &session{
		id: newSessionID(), process: v.peer.ID, uid: v.uid, image: image, since: c.node.opts.Now(),
		program: wire.Text(m.Program[:]), library: wire.Text(m.Library[:]),
		abi: int(wire.Negotiated(m)), state: connected, handle: v.peer, out: v.out,
		moves: make([]uint64, len(c.node.gpus)),
	}
	usage, fd, err := page.NewUsage(s.id)
	if err != nil {
		return nil, pages{}, c.noRoom(s, err)
	}
	s.usage, s.inode = usage, usage.Inode()
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.enter(s, m)
	if end != nil {
		s.dropUsage()
		unix.Close(fd)
		return nil, pages{}, end
	}
	c.node.opts.step("attached")
	// A copy: the container may end, and its page with it, before the tenant has been answered.
	return s, pages{control: c.page.Dup(), usage: fd}, nil
}

// admit decides whether a process may have a session here. One that has a session is not asked
// again: it keeps what it has, wherever it went since.
func (c *container) admit(h *proc.Handle, uid uint32) *ending {
	c.mu.Lock()
	former := c.sessions[h.ID]
	end := c.unwelcome(former)
	c.mu.Unlock()
	if former != nil && (end != nil || former.uid == uid) {
		return end
	}
	err := c.errRootOver()
	if end == nil {
		err = c.identity.admit(h, uid)
	}
	if err != nil {
		c.event("refused", h.PID, "a process that is none of the container's was refused: %v", err)
		return &ending{abi.CloseIdentity, err.Error()}
	}
	return nil
}

// errRootOver is why nobody new is admitted to a container whose root has ended.
func (c *container) errRootOver() error {
	return fmt.Errorf("the container's %s has ended", c.rootName())
}

// unwelcome says why a process with this former session, or none, is not to have one (again). Called
// under mu.
func (c *container) unwelcome(former *session) *ending {
	switch {
	case former == nil && c.rootOver:
		return &ending{abi.CloseIdentity, c.errRootOver().Error()}
	case former != nil && former.forged:
		return &ending{abi.ClosePage, "this process has forged its usage page before"}
	}
	return nil
}

// declared is what a HELLO says the process holds, by GPU, and which GPUs it names because it is about
// to hold something there. Called under mu.
func (c *container) declared(s *session, m *abi.Hello) (grants []store.Grant, wanted []bool) {
	grants, wanted = make([]store.Grant, len(c.node.gpus)), make([]bool, len(c.node.gpus))
	for i, g := range c.node.gpus {
		grants[i].UUID = g.id
	}
	for _, h := range m.Held[:m.Held_count] {
		if i, known := c.node.byUUID[h.Uuid]; known {
			grants[i].Bytes, wanted[i] = h.Bytes, h.Bytes == 0
		} else if h.Bytes > 0 {
			c.event("unenforced", s.process.PID, "%s holds %s on a GPU that the agent does not "+
				"know; restart the agent if a GPU was added", s.program, size(int64(h.Bytes)))
		}
	}
	return grants, wanted
}

// enter makes s its process's session, with what its HELLO declares. A library that does not know of
// an earlier session (it was loaded anew, by exec) has nothing that was shared in that. Called under
// mu.
func (c *container) enter(s *session, m *abi.Hello) *ending {
	former, again := c.sessions[s.process], m.Session != 0
	grants, wanted := c.declared(s, m)
	unwelcome := c.unwelcome(former)
	switch {
	case c.closed:
		return &ending{abi.CloseShutdown, "the container has ended or the agent is stopping"}
	case unwelcome != nil:
		return unwelcome
	case s.handle.Ended():
		return &ending{abi.CloseIdentity, proc.ErrGone.Error()}
	case former == nil && len(c.sessions) >= abi.SessionsMax:
		return c.tooMany(fmt.Sprintf("the container has %d sessions, which is the most",
			len(c.sessions)))
	}
	switch {
	case again:
		c.inheritMovable(s, former, grants)
	case former == nil:
		c.offer(s, grants, wanted)
	}
	var err error
	if s.record, err = c.node.credits.Create(s.describe(c.spec.ID, grants)); err != nil {
		c.withdraw(s)
		return c.noRoom(s, err)
	}
	c.node.opts.step("record created")
	had := make([]uint64, len(c.ledgers)) // which nobody is to take meanwhile: the host's account changes once
	if former != nil {
		for gpu, l := range c.ledgers {
			had[gpu] = l.MovableOf(former.holder())
		}
		c.replace(former, s)
	} else if err := c.watch(s); err != nil {
		s.record.Remove()
		c.withdraw(s)
		return c.noRoom(s, err)
	}
	for gpu, l := range c.ledgers {
		l.Declare(s.holder(), grants[gpu].Bytes)
		l.DeclareMovable(s.holder(), grants[gpu].Movable)
		c.node.host.change(had[gpu], l.MovableOf(s.holder()))
		c.show(gpu)
	}
	if c.moves == nil {
		c.setMoves(true) // what it has of movable memory, though its swap is off
	}
	c.play(s, former)
	c.sessions[s.process], c.holders[s.holder()] = s, s
	if again {
		c.node.shares.reconnected(c.sharer(s))
	} else {
		c.releaseSoon(c.node.shares.dropAll(c.sharer(s)))
	}
	if former != nil {
		c.retryWaiting() // the charge is what the process declares now, which may be less
	}
	return nil
}

// offer lends a new session what it will ask for next: a context, on the GPUs that its HELLO names,
// and spare credit as for any request. It lies unused in the page, so it can be recalled at any time;
// the record that is written next tells of it, and only then the tenant gets the page. Called under
// mu.
func (c *container) offer(s *session, grants []store.Grant, wanted []bool) {
	for gpu, l := range c.ledgers {
		bytes := uint64(c.contextSize(gpu))
		if !c.node.opts.CountContext || bytes == 0 || !wanted[gpu] || grants[gpu].Bytes > 0 {
			continue
		}
		grants[gpu].Bytes = c.offerRoom(s, gpu, l.Offer(s.holder(), bytes))
		s.usage.Begin(gpu, grants[gpu].Bytes)
	}
}

// withdraw takes back what was offered to a session that is not to be. Called under mu.
func (c *container) withdraw(s *session) {
	for _, l := range c.ledgers {
		l.Release(s.holder())
	}
}

// watch has the end of s's process noticed.
func (c *container) watch(s *session) (err error) {
	id := s.process
	s.mark, err = c.node.watcher.add(s.handle, func() { c.processEnded(id) })
	return err
}

// describe is a session's credit record.
func (s *session) describe(container string, grants []store.Grant) store.Record {
	return store.Record{
		Container: container, PID: s.process.PID, Start: s.process.Start, UID: s.uid,
		Image: s.image, Session: s.id, Inode: s.inode, Since: s.since, ABI: s.abi,
		Program: s.program, Library: s.library, GPUs: grants,
	}
}

// replace ends a former session of the process of s, whose record has taken the place of the
// former's. The watch on the process goes on. Called under mu.
func (c *container) replace(former, s *session) {
	c.disconnect(former, nil)
	former.stopCheck()
	former.dropUsage()
	delete(c.pageless, former)
	delete(c.holders, former.holder())
	for _, l := range c.ledgers {
		l.Release(former.holder())
	}
	s.handle.Close()
	s.handle, s.mark, s.left = former.handle, former.mark, former.left
	former.handle = nil
}

// disconnect closes a session's connection, after a last message if there is an end to tell of.
// Called under mu.
func (c *container) disconnect(s *session, end *ending) {
	if s.out == nil {
		return
	}
	if end != nil {
		s.out.now(end.packet())
	}
	s.out.close()
	s.out = nil
	s.turns.absent()
	c.dropWaiting(s)
}

// detach ends a session's connection, not what it has been granted. Called under mu.
func (c *container) detach(s *session, end *ending) {
	if s.state != connected {
		return
	}
	s.state = detached
	c.disconnect(s, end)
	s.checkAfter = imageCheckFirst
	c.checkLater(s, imageCheckPatience)
}

// hungUp is called when a connection has ended; end tells why if it was the agent that ended it.
func (c *container) hungUp(s *session, out outlet, end *ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected(s) || s.out != out {
		return
	}
	if end != nil {
		c.event("session-ended", s.process.PID, "%s: its connection was closed: %s; what it holds "+
			"stays charged until it ends", s.program, end.text)
	}
	c.detach(s, end)
}

// checkLater has a session without a connection looked at for an exec. Called under mu.
func (c *container) checkLater(s *session, after time.Duration) {
	s.check = time.AfterFunc(after, func() { c.checkImage(s) })
}

// byExec is why a session ends whose process lives on.
const byExec = "its process runs another program now (exec)"

// checkImage ends a session without a connection whose process runs another program by now: exec
// has freed what it held. The look is repeated at growing intervals.
func (c *container) checkImage(s *session) {
	st, err := proc.Read(s.process.PID)
	c.mu.Lock()
	switch {
	case c.closed || c.sessions[s.process] != s || s.state != detached && s.state != recovered:
	case err == nil && anotherImage(s, st):
		c.beginExit(s, byExec)
	default:
		c.checkLater(s, s.checkAfter)
		s.checkAfter = min(2*s.checkAfter, imageCheckLast)
	}
	c.mu.Unlock()
	c.node.retire(c)
}

// anotherImage tells whether a process runs another program than the one that said HELLO.
func anotherImage(s *session, st proc.Stat) bool {
	return st.ID == s.process && s.image != 0 && st.Image != 0 && st.Image != s.image
}

// processEnded is called when a process with a session has ended.
func (c *container) processEnded(id proc.ID) {
	c.mu.Lock()
	if s := c.sessions[id]; s != nil && !c.closed {
		c.beginExit(s, "its process has ended")
	}
	c.mu.Unlock()
	c.node.retire(c)
}

// beginExit ends a session but for its charge, which is held until NVML no longer lists the
// process. Called under mu.
func (c *container) beginExit(s *session, why string) {
	if s.state == exiting {
		return
	}
	s.turns.leave()
	c.disconnect(s, nil)
	s.state = exiting
	s.stopCheck()
	s.pooled = c.pooled(s)
	s.dropUsage()
	delete(c.pageless, s)
	s.holdUntil = time.Now().Add(exitHold)
	c.node.shares.exits(c.sharer(s))
	c.node.log.Debug("session ended", "container", c.spec.Name, "pid", s.process.PID, "why", why)
	c.event("session-ended", s.process.PID, "%s: %s", s.program, why)
	if len(c.heldBy(s)) == 0 {
		c.finish(s)
		return
	}
	c.node.exits.add(c, s)
}

// finish forgets a session that holds nothing any more. Called under mu.
func (c *container) finish(s *session) {
	c.releaseSoon(c.node.shares.dropAll(c.sharer(s)))
	c.node.watcher.remove(s.mark)
	s.handle.Close()
	if err := s.record.Remove(); err != nil {
		c.node.log.Warn("a credit record could not be removed", "error", err)
	}
	delete(c.sessions, s.process)
	delete(c.holders, s.holder())
}

// tooMany refuses a connection because a bound is reached. Called under mu.
func (c *container) tooMany(text string) *ending {
	c.event("refused", 0, "a connection was refused: %s", text)
	return &ending{abi.CloseLimit, text}
}

// noRoom refuses a session that the agent lacks a resource for.
func (c *container) noRoom(s *session, err error) *ending {
	c.node.log.Error("no session could be made", "container", c.spec.Name, "error", err)
	c.event("refused", s.process.PID, "%s: no session could be made: %v", s.program, err)
	if errors.Is(err, proc.ErrGone) {
		return &ending{abi.CloseIdentity, err.Error()}
	}
	return &ending{abi.CloseLimit, "the agent lacks a resource: " + err.Error()}
}
