package session

// Regular looks at what nobody tells the agent of.

import (
	"context"
	"fmt"
	"time"

	"weir/agent/session/proc"
)

// stray is a process of a container that runs without the library, or with one that cannot find the
// agent, so no cap holds for it.
type stray struct {
	proc.Stat
	why string
}

// loadTime is how long a new program may take to load the library.
const loadTime = time.Second

// rounds looks at everything now and then, for what no message and no descriptor tells: a forged
// page of a tenant that asks for nothing, an exec while another process holds the connection open,
// a process that has left its container, one without the library.
func (n *Node) rounds(ctx context.Context) {
	round, inspect := time.NewTicker(roundEvery), time.NewTicker(inspectEvery)
	defer round.Stop()
	defer inspect.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-round.C:
			n.round()
		case <-inspect.C:
			n.inspect()
		}
	}
}

func (n *Node) list() []*container {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sorted()
}

// inspect looks over all usage pages.
func (n *Node) inspect() {
	granted := make([]uint64, len(n.gpus))
	for _, c := range n.list() {
		c.mu.Lock()
		for _, s := range c.sessions {
			if s.usage == nil || c.closed {
				continue
			}
			for gpu, l := range c.ledgers {
				granted[gpu] = l.Granted(s.holder())
			}
			if err := s.usage.Intact(s.id, granted, s.moves); err != nil {
				c.forged(s)
			}
		}
		c.mu.Unlock()
	}
}

func (n *Node) round() {
	containers := n.list()
	if len(containers) == 0 {
		return
	}
	all, err := proc.All()
	if err != nil {
		n.log.Warn("the processes cannot be listed", "error", err)
		return
	}
	byPID := make(map[int]proc.Stat, len(all))
	for _, st := range all {
		byPID[st.PID] = st
	}
	for _, c := range containers {
		c.lookAround(all, byPID)
	}
}

// lookAround is one container's part of a round.
func (c *container) lookAround(all []proc.Stat, byPID map[int]proc.Stat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	inside := make(map[proc.ID]bool)
	for _, st := range proc.Descendants(all, c.rootID()) {
		inside[st.ID] = true
	}
	for _, s := range c.sessions {
		st, there := byPID[s.process.PID]
		if !there || st.ID != s.process || s.state == exiting {
			continue
		}
		if s.state == connected && anotherImage(s, st) {
			c.detach(s, nil)
		}
		// A list of processes is not of one moment, so who seems outside is looked at once more.
		if !s.left && !c.rootOver && !inside[s.process] && !proc.Descends(st.PID, c.rootID()) {
			s.left = true
			c.event("left", s.process.PID, "%s has left its container: it keeps what it has under "+
				"the container's cap, and new processes of it are refused", s.program)
		}
	}
	for _, x := range c.strays(all) {
		if c.reported[x.ID] != x.Image {
			c.reported[x.ID] = x.Image
			c.event("unenforced", x.PID, "%s: %s", x.Name, x.why)
		}
	}
}

func (c *container) rootID() proc.ID { return proc.ID{PID: c.spec.PID, Start: c.spec.Start} }

// strays lists the container's processes that run without the library. Called under mu.
func (c *container) strays(all []proc.Stat) (found []stray) {
	living := make(map[proc.ID]uint64)
	for _, st := range proc.Descendants(all, c.rootID()) {
		living[st.ID] = st.Image
		if st.PID == c.spec.PID || st.Zombie || st.Image == 0 || c.sessions[st.ID] != nil ||
			c.loaded[st.ID] == st.Image || proc.Age(st.Start) < loadTime {
			continue
		}
		there, err := proc.Maps(st.PID, "/libweir.so")
		switch {
		case err != nil: // ended meanwhile, or not to be looked into
		case there && deaf(st.PID):
			found = append(found, stray{st, "WEIR_SOCKET was taken out of its environment, so the " +
				"library in it does not find the agent and no cap holds for it"})
		case there:
			c.loaded[st.ID] = st.Image
		default:
			found = append(found, stray{st, whyStray(st.PID)})
		}
	}
	for _, seen := range []map[proc.ID]uint64{c.loaded, c.reported} {
		for id := range seen {
			if _, lives := living[id]; !lives {
				delete(seen, id)
			}
		}
	}
	return found
}

// deaf tells a program that was started with the library and without its container's socket. One
// that has written over its environment since, as some do with their title, is not suspected.
func deaf(pid int) bool {
	there, err := proc.Started(pid, "LD_PRELOAD", "WEIR_SOCKET")
	return err == nil && there[0] && !there[1]
}

// whyStray says why the library is not in a process.
func whyStray(pid int) string {
	switch loaded, err := proc.HasLoader(pid); {
	case err != nil:
		return "it runs without the library, so no cap holds for it"
	case loaded:
		return "it was started without LD_PRELOAD in its environment, so the library is not " +
			"in it and no cap holds for it"
	}
	return "it is a static program, which cannot load the library, so no cap holds for it; link " +
		"it dynamically"
}

func describeStrays(strays []stray) string {
	text := fmt.Sprintf("process %d (%s): %s", strays[0].PID, strays[0].Name, strays[0].why)
	if more := len(strays) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}
