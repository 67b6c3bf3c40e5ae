package session

// What a new agent takes over from the one before.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weir/agent/session/page"
	"weir/agent/session/proc"
	"weir/agent/store"
	"weir/cgo/abi"
)

// pageSoughtAgain is how soon a usage page that was not found is sought again, when it is needed.
const pageSoughtAgain = 100 * time.Millisecond

// recover restores what an earlier agent has left: containers with their caps, and the charge of
// each process that had a session, whether or not it ever comes back.
func (n *Node) recover() error {
	specs, err := n.stored.Load()
	if err != nil {
		return err
	}
	records, damaged := store.LoadCredits(n.run.grants(), n.boot)
	uuids := make([][16]byte, len(n.gpus))
	for i, g := range n.gpus {
		uuids[i] = g.id
	}
	if n.credits, err = store.NewCredits(n.run.grants(), n.boot, uuids); err != nil {
		return err
	}
	file, holds, spoilt, err := store.OpenShares(n.run.shares(), n.boot)
	if err != nil {
		return err
	}
	n.shares = newShares(file)
	for _, err := range append(damaged, spoilt...) {
		n.log.Error("a charge is not known until its process connects again", "error", err)
	}
	n.mu.Lock()
	for _, spec := range specs {
		if err = n.recoverContainer(spec); err != nil {
			break
		}
	}
	if err == nil {
		n.recoverShares(holds)
	}
	for _, r := range records {
		if err == nil {
			err = n.recoverSession(r)
		}
	}
	if err == nil {
		err = n.credits.Commit()
	}
	n.dropStrangersShares()
	n.recovered = time.Now()
	for _, c := range n.sorted() {
		if err == nil {
			err = c.begin()
		}
	}
	if err == nil {
		err = errors.Join(n.removeStrangers(), n.removeNotes(), n.dropLibraries(), n.save())
	}
	restored := n.sorted()
	for _, c := range restored {
		if known, is := c.identity.(*grouped); is && known.group.Load() != nil && !c.over() {
			if before, err := n.predecessors(c, *known.group.Load(), c.root.ID); err == nil {
				c.takeLimits(before)
			}
		}
	}
	n.mu.Unlock()
	for _, c := range restored {
		if err == nil {
			n.retire(c) // if nothing of it is left
			c.keepLimits(true)
		}
	}
	return err
}

func (n *Node) recoverContainer(spec store.Container) error {
	root, err := proc.Open(proc.ID{PID: spec.PID, Start: spec.Start})
	if err != nil && !errors.Is(err, proc.ErrGone) {
		return err
	}
	c, err := n.newContainer(spec, root)
	if err != nil {
		root.Close()
		return err
	}
	n.containers[spec.ID] = c
	return nil
}

// recoverSession restores the session that a credit record tells of. That of a process which has
// ended meanwhile is restored too, to end as every session does.
func (n *Node) recoverSession(r store.Record) error {
	id := proc.ID{PID: r.PID, Start: r.Start}
	handle, err := proc.Open(id)
	if err != nil && !errors.Is(err, proc.ErrGone) {
		return err
	}
	c := n.containers[r.Container]
	if c == nil {
		if handle != nil {
			n.log.Error("a process lives on whose container is not kept: no cap holds for it",
				"pid", r.PID, "program", r.Program)
		}
		handle.Close()
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &session{
		id: r.Session, process: id, uid: r.UID, image: r.Image, since: r.Since, program: r.Program,
		library: r.Library, abi: r.ABI, state: recovered, handle: handle, inode: r.Inode,
		moves: make([]uint64, len(n.gpus)), checkAfter: imageCheckFirst,
	}
	grants := c.regrant(s, r.GPUs)
	for gpu, l := range c.ledgers {
		s.rows = append(s.rows, grants[gpu].Row)
		l.Declare(s.holder(), grants[gpu].Most())
		l.DeclareMovable(s.holder(), grants[gpu].Movable)
		n.host.change(0, l.MovableOf(s.holder()))
	}
	if s.record, err = n.credits.Create(s.describe(c.spec.ID, grants)); err != nil {
		handle.Close()
		return err
	}
	c.sessions[id], c.holders[s.holder()] = s, s
	if handle == nil {
		c.beginExit(s, "its process ended while the agent was away")
		return nil
	}
	if err := c.watch(s); err != nil {
		return err
	}
	c.pageless[s] = true
	c.findPages()
	c.checkLater(s, 0)
	return nil
}

// regrant brings recorded grants into the order of this agent's GPUs.
func (c *container) regrant(s *session, recorded []store.Grant) []store.Grant {
	grants := make([]store.Grant, len(c.node.gpus))
	for i, g := range c.node.gpus {
		grants[i].UUID = g.id
	}
	for _, g := range recorded {
		if i, known := c.node.byUUID[g.UUID]; known {
			grants[i].Row, grants[i].Movable = g.Row, g.Movable
		} else if g.Bytes > 0 || g.Movable > 0 {
			c.event("unenforced", s.process.PID, "%s was granted %s on a GPU that the agent no "+
				"longer finds", s.program, size(int64(g.Bytes+g.Movable)))
		}
	}
	return grants
}

// findPages opens the usage pages that an earlier agent gave to processes which have not come back,
// so that their unused credit can be recalled all the same. One that is not found now may be later:
// the process may not have taken it out of its socket yet. Called under mu.
func (c *container) findPages() {
	for s := range c.pageless {
		if time.Since(s.pageSought) < pageSoughtAgain {
			continue
		}
		s.pageSought = time.Now()
		usage, err := page.Reopen(s.process.PID, s.inode)
		if err != nil {
			continue
		}
		delete(c.pageless, s)
		s.usage = usage
		for gpu := range c.ledgers {
			c.settle(s, gpu)
		}
		s.rows = nil
	}
}

// settle makes a recovered session's charge exact, which until its page was found was the most that
// its record allows for. Called under mu.
func (c *container) settle(s *session, gpu int) {
	if s.usage == nil {
		return // found to be forged on another GPU
	}
	moves := s.usage.Moves(gpu)
	granted, known := s.rows[gpu].After(moves)
	if !known {
		c.forged(s)
		return
	}
	s.moves[gpu] = moves
	if err := s.record.Set(gpu, store.Row{Bytes: granted, Moves: moves}); err != nil {
		c.node.log.Error("a recovered charge cannot be recorded", "error", err)
		return
	}
	c.ledgers[gpu].Declare(s.holder(), granted)
	c.show(gpu)
}

// recoverShares restores who has which shared memory. Called under mu, before sessions are restored:
// the end of one is the end of what it has.
func (n *Node) recoverShares(holds map[int]store.Hold) {
	r := n.shares
	r.mu.Lock()
	defer r.mu.Unlock()
	for place, h := range holds {
		home, c := n.containers[h.Home], n.containers[h.Container]
		gpu, known := n.byUUID[h.UUID]
		sh := r.byKey[abi.ShareKey{Bytes: h.Key}]
		if home == nil || c == nil || !known || sh != nil && (sh.home != home || sh.gpu != gpu) {
			n.log.Error("shared memory is not charged until its processes connect again",
				"container", h.Home, "pid", h.PID, "bytes", h.Bytes)
			if err := r.file.Remove(place); err != nil {
				n.log.Warn("a hold of shared memory is still recorded", "error", err)
			}
			continue
		}
		if sh == nil {
			sh = newShare(home, &abi.Share{
				Key: abi.ShareKey{Bytes: h.Key}, Gpu: uint32(gpu), Bytes: h.Bytes,
			}, h.Exported)
			home.ledgers[gpu].Share(h.Bytes)
			home.show(gpu)
		}
		p := sharer{c, proc.ID{PID: h.PID, Start: h.Start}}
		r.enter(sh, p, &hold{place: place, exporter: h.Exporter})
	}
}

// dropStrangersShares ends what is shared by processes without a session: they ended when the
// earlier agent did. Called under mu.
func (n *Node) dropStrangersShares() {
	n.shares.mu.Lock()
	var strangers []sharer
	for p := range n.shares.bySharer {
		if p.c.sessions[p.process] == nil {
			strangers = append(strangers, p)
		}
	}
	n.shares.mu.Unlock()
	for _, p := range strangers {
		for _, e := range n.shares.dropAll(p) {
			e.c.mu.Lock()
			e.c.unshare(e)
			e.c.mu.Unlock()
		}
	}
}

// removeStrangers removes directories of containers that are not kept. Called under mu.
func (n *Node) removeStrangers() error {
	entries, err := os.ReadDir(n.run.containers())
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	for _, e := range entries {
		if n.containers[e.Name()] == nil {
			if err := os.RemoveAll(filepath.Join(n.run.containers(), e.Name())); err != nil {
				return fmt.Errorf("run directory: %w", err)
			}
		}
	}
	return nil
}
