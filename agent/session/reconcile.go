package session

// What NVML says that processes hold, against what they have declared.
//
// A process can hold memory that no charge stands for: one that got round the library (a static
// program, one that had written over its environment before it used CUDA), or memory that comes by
// doors which the library does not watch. NVML sees it all. The comparison is slow and of two moments,
// so it is made now and then, outside all locks, and a difference is believed when it is there twice.

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/session/proc"
)

// A difference is reported beyond a tolerance: one part in so many of what one context takes, which
// grows and shrinks a little with what a driver keeps in it, or of the card, whichever is more.
const (
	toleratedOfContext = 4
	toleratedOfCard    = 1024
)

// holding is one process's memory on one GPU.
type holding struct {
	process proc.ID
	gpu     int
}

// undeclared is how much more a process holds than it declared.
type undeclared struct {
	bytes     int64
	tolerance int64 // so much may be
	program   string
	session   bool // the process has one
}

// suspicion is an undeclared holding, of a container.
type suspicion struct {
	c *container
	holding
	undeclared
}

// reconciling compares now and then, until ctx ends.
func (n *Node) reconciling(ctx context.Context) {
	if n.opts.Devices == nil {
		return
	}
	tick := time.NewTicker(reconcileEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.keepAllLimits()
			n.reconcile(ctx)
		}
	}
}

// reconcile compares once, on all GPUs.
func (n *Node) reconcile(ctx context.Context) {
	if len(n.list()) == 0 {
		return
	}
	found := make(map[holding]suspicion)
	seen := make([]bool, len(n.gpus))
	for gpu := range n.gpus {
		var first map[holding]suspicion
		if first, seen[gpu] = n.suspect(gpu); len(first) == 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reconcileAgain):
		}
		var second map[holding]suspicion
		second, seen[gpu] = n.suspect(gpu)
		for h, s := range first {
			if again, still := second[h]; still {
				s.bytes = min(s.bytes, again.bytes)
				found[h] = s
			}
		}
	}
	n.believe(found, seen)
}

// tolerance is how much a process may hold on a GPU beyond what it declared, in bytes, where a
// context takes so much.
func (g *gpu) tolerance(contextBytes int64) int64 {
	return max(contextBytes/toleratedOfContext, g.known.MemoryBytes/toleratedOfCard)
}

// declaration is what a process with a session has declared on a GPU.
type declaration struct {
	suspicion
	allowed int64
}

// suspect lists the processes of containers that hold more on a GPU now than they declared. ok is
// false where NVML could not tell.
func (n *Node) suspect(gpu int) (found map[holding]suspicion, ok bool) {
	before := n.declarations(gpu)
	listed, ok := n.processes(gpu)
	after := n.declarations(gpu)
	found = make(map[holding]suspicion)
	for pid, bytes := range listed {
		first, knownBefore := before[pid]
		d, known := after[pid]
		switch {
		case known && knownBefore && d.holding == first.holding:
			d.allowed = max(d.allowed, first.allowed)
		case known != knownBefore:
			continue // it is just coming or going
		case !known:
			var ours bool
			if d, ours = n.stranger(pid, gpu); !ours {
				continue
			}
		}
		if strings.HasPrefix(d.program, mpsProgram) {
			d.allowed += n.servedBy(d.c, gpu, listed, after)
		}
		if d.bytes = bytes - d.allowed; d.bytes > d.tolerance {
			found[d.holding] = d.suspicion
		}
	}
	return found, ok
}

// declarations lists what all sessions have declared on a GPU, by pid.
func (n *Node) declarations(gpu int) map[int]declaration {
	declared := make(map[int]declaration)
	for _, c := range n.list() {
		c.mu.Lock()
		for id, s := range c.sessions {
			if c.closed || s.state == exiting {
				continue
			}
			d := declaration{allowed: c.allowed(s, gpu)}
			d.c, d.holding = c, holding{id, gpu}
			d.program, d.session = s.program, true
			d.tolerance = n.gpus[gpu].tolerance(c.contextSize(gpu))
			declared[id.PID] = d
		}
		c.mu.Unlock()
	}
	return declared
}

// allowed is what NVML may say that a session's process holds. Called under mu.
func (c *container) allowed(s *session, gpu int) int64 {
	g := c.node.gpus[gpu]
	declared := int64(c.ledgers[gpu].Granted(s.holder()) - c.unused(s, gpu) + c.exported(s, gpu))
	declared += int64(c.ledgers[gpu].MovableOf(s.holder())) // as much of it as lies there
	// What it has imported NVML counts as its own once the exporter has ended.
	declared += int64(c.node.shares.importedBy(c.sharer(s), gpu))
	known := c.contextSize(gpu) > 0
	if c.node.opts.CountContext && known {
		return declared
	}
	// Contexts are not charged. What they take the process says itself; where that is not known,
	// they may take what is believed of any.
	most := g.known.MemoryBytes / contextShareMax
	if !known {
		return declared + most
	}
	var u uint64
	if s.usage != nil {
		contexts, code := s.usage.Shown(gpu, uint64(most))
		u = contexts + code
	}
	return declared + int64(u)
}

// stranger finds the container of a process without a session, if it is one's.
func (n *Node) stranger(pid, gpu int) (d declaration, ours bool) {
	if pid <= 1 {
		return d, false
	}
	h, err := proc.OpenPID(pid)
	if err != nil {
		return d, false
	}
	defer h.Close()
	uid, err := proc.Owner(pid)
	if err != nil {
		return d, false
	}
	for _, c := range n.list() {
		if c.identity.admit(h, uid) != nil {
			continue
		}
		d.c, d.holding = c, holding{h.ID, gpu}
		d.tolerance = n.gpus[gpu].tolerance(n.gpus[gpu].context.Load())
		if st, err := proc.Read(pid); err == nil {
			d.program = st.Name
		}
		return d, true
	}
	return d, false
}

// believe reports what is new among the holdings found, and forgets those that are over, on the GPUs
// that were seen.
func (n *Node) believe(found map[holding]suspicion, seen []bool) {
	for _, c := range n.list() {
		c.mu.Lock()
		for h := range c.undeclared {
			if s, still := found[h]; seen[h.gpu] && (!still || s.c != c) {
				delete(c.undeclared, h)
			}
		}
		c.mu.Unlock()
	}
	for _, s := range found {
		s.c.reportUndeclared(s)
		if n.opts.EndUndeclared {
			n.end(s)
		}
	}
}

// reportUndeclared writes an event about a holding, once, and again when it has changed by more than
// what is tolerated.
func (c *container) reportUndeclared(s suspicion) {
	g := c.node.gpus[s.gpu]
	c.mu.Lock()
	last, known := c.undeclared[s.holding]
	change := s.bytes - last.bytes
	news := !c.closed && (!known || max(change, -change) > s.tolerance)
	if news {
		c.undeclared[s.holding] = s.undeclared
	}
	but := c.butDriver()
	c.mu.Unlock()
	if !news {
		return
	}
	asked := s.bytes
	e := c.newEvent("undeclared", s.process.PID, "%s%s", s.undeclared.text(g.name), but)
	e.GPUUUID, e.Used = g.uuid, &asked
	c.node.events.Add(e)
}

// text says what a process holds, and what can be done.
func (u undeclared) text(gpu string) string {
	if u.session {
		return fmt.Sprintf("%s holds %s on GPU %s that it has not declared, so no cap holds for them; "+
			"graphics, video and debugging interfaces take memory so", u.program, size(u.bytes), gpu)
	}
	return fmt.Sprintf("%s holds %s on GPU %s without the library, so no cap holds for it; start it "+
		"through `weir run` with its environment kept", u.program, size(u.bytes), gpu)
}

// undeclaredText says it of one such process, for `weir ps`. Called under mu.
func (c *container) undeclaredText() string {
	var pid int
	var text string
	for h, u := range c.undeclared {
		if text == "" || h.process.PID < pid {
			pid, text = h.process.PID, u.text(c.node.gpus[h.gpu].name)
		}
	}
	if text == "" {
		return ""
	}
	return fmt.Sprintf("process %d: %s", pid, text)
}

// end kills a process for what it has not declared, by its pidfd.
func (n *Node) end(s suspicion) {
	h, err := proc.Open(s.process)
	if err != nil {
		return // it has ended
	}
	defer h.Close()
	if err := unix.PidfdSendSignal(h.FD(), unix.SIGKILL, nil, 0); err != nil {
		n.log.Error("a process that holds undeclared memory cannot be ended", "pid", h.PID, "error", err)
		return
	}
	s.c.event("undeclared", s.process.PID, "%s was ended for what it had not declared, as the "+
		"configuration has it (undeclared = \"end\")", s.program)
}
