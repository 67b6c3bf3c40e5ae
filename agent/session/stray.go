package session

// Processes of a container for which no cap holds.

import (
	"fmt"
	"time"

	"weir/agent/control"
	"weir/agent/session/proc"
)

// stray is a process of a container that runs without the library, or with one that cannot find the
// agent or does not go with it, so no cap holds for it.
type stray struct {
	proc.Stat
	why string
}

// loadTime is how long a new program may take to load the library.
const loadTime = time.Second

// findStrays looks for strays in containers: into processes, which may take its time, so no lock is
// held. A failure leaves what was found before.
func (n *Node) findStrays(containers []*container) {
	all, err := proc.All()
	if err != nil {
		n.log.Warn("the processes cannot be listed", "error", err)
		return
	}
	for _, c := range containers {
		c.findStrays(all)
	}
}

// findStrays looks into the container's processes that are not known to have the library.
func (c *container) findStrays(all []proc.Stat) {
	within, err := c.identity.members(all)
	if err != nil {
		c.node.log.Warn("a container's processes cannot be listed", "container", c.spec.Name, "error", err)
		return
	}
	var found []stray
	for _, st := range c.unknown(within) {
		why, loaded := whyStray(st.PID, c.spec.Identity == cgroupIdentity)
		switch {
		case loaded:
			c.mu.Lock()
			c.loaded[st.ID] = st.Image
			c.mu.Unlock()
		case why != "":
			found = append(found, stray{st, why})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strays = c.strays[:0]
	for _, x := range found {
		if c.sessions[x.ID] == nil { // it may have come meanwhile
			c.strays = append(c.strays, x)
		}
	}
	living := make(map[proc.ID]bool, len(within))
	for _, st := range within {
		living[st.ID] = true
		if why, unfit := c.unfit[st.ID]; unfit {
			c.strays = append(c.strays, stray{st, why})
		}
	}
	c.forgetDead(living)
}

// unknown are the processes that have to be looked into.
func (c *container) unknown(within []proc.Stat) (list []proc.Stat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range within {
		_, unfit := c.unfit[st.ID]
		run := c.spec.Identity == pathIdentity && st.PID == c.spec.PID // weir run itself
		if run || st.Zombie || st.Image == 0 || c.sessions[st.ID] != nil || unfit ||
			c.loaded[st.ID] == st.Image || proc.Age(st.Start) < loadTime {
			continue
		}
		list = append(list, st)
	}
	return list
}

// forgetDead drops what is remembered of processes that are not in the container any more. Called
// under mu.
func (c *container) forgetDead(living map[proc.ID]bool) {
	for _, seen := range []map[proc.ID]uint64{c.loaded, c.reported} {
		for id := range seen {
			if !living[id] {
				delete(seen, id)
			}
		}
	}
	for id := range c.unfit {
		if !living[id] {
			delete(c.unfit, id)
		}
	}
}

// whyStray says why no cap holds for a process; loaded if one does. Neither where it cannot be told. In
// a container that a container runtime started (mounted), agent and library are found by their places.
func whyStray(pid int, mounted bool) (why string, loaded bool) {
	there, err := proc.Maps(pid, "/libweir.so")
	switch {
	case err != nil: // ended meanwhile, or not to be looked into
		return "", false
	case there && !mounted && deaf(pid):
		return "WEIR_SOCKET was taken out of its environment, so the library in it does not find the " +
			"agent and no cap holds for it", false
	case there:
		return "", true
	}
	return whyNotLoaded(pid, mounted), false
}

// deaf tells a program that was started with the library and without its container's socket. One
// that has written over its environment since, as some do with their title, is not suspected.
func deaf(pid int) bool {
	there, err := proc.Started(pid, "LD_PRELOAD", "WEIR_SOCKET")
	return err == nil && there[0] && !there[1]
}

// whyNotLoaded says why the library is not in a process.
func whyNotLoaded(pid int, mounted bool) string {
	switch loaded, err := proc.HasLoader(pid); {
	case err != nil:
		return "it runs without the library, so no cap holds for it"
	case loaded && mounted:
		return "its loader does not read /etc/ld.so.preload, as that of musl does not, and it was started " +
			"without LD_PRELOAD in its environment, so the library is not in it and no cap holds for it"
	case loaded:
		return "it was started without LD_PRELOAD in its environment, so the library is not " +
			"in it and no cap holds for it"
	}
	return "it is a static program, which cannot load the library, so no cap holds for it; link " +
		"it dynamically"
}

// reasonKind is which of control.ReasonKinds the reason is of unenforced, or of unaided. Called under mu.
func (c *container) reasonKind() string {
	switch {
	case len(c.strays) > 0:
		return control.ReasonNoLibrary
	case len(c.undeclared) > 0:
		return control.ReasonUndeclared
	}
	return ""
}

// unenforced says for which processes no cap holds, or that hold what they have not declared, or
// nothing. Called under mu.
func (c *container) unenforced() string {
	if len(c.strays) == 0 {
		return c.undeclaredText()
	}
	first := c.strays[0]
	text := fmt.Sprintf("process %d (%s): %s", first.PID, first.Name, first.why)
	if more := len(c.strays) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}
