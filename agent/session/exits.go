package session

// The charges of processes that have ended, until the driver has freed their memory.

import (
	"context"
	"sync"
	"time"

	"weir/agent/store"
)

// exits holds the charges of processes that have ended until NVML no longer lists them: a driver
// takes a while to free a dead process's memory, and whoever was promised that memory would be
// refused by the driver.
type exits struct {
	node *Node
	kick chan struct{}

	mu      sync.Mutex
	pending []exit
	leaving uint64                   // movable memory of all whose charges are held
	hungry  map[*container]time.Time // containers with requests that wait for host memory, and since when
}

type exit struct {
	c       *container
	s       *session
	movable uint64
}

func newExits(n *Node) *exits {
	return &exits{node: n, kick: make(chan struct{}, 1), hungry: make(map[*container]time.Time)}
}

// add has s finished once its memory is free. Called under the container's mu.
func (e *exits) add(c *container, s *session) {
	x := exit{c: c, s: s}
	for _, l := range c.ledgers {
		x.movable += l.MovableOf(s.holder())
	}
	e.mu.Lock()
	e.pending = append(e.pending, x)
	e.leaving += x.movable
	e.mu.Unlock()
	e.wake()
}

// wake has run look at what there is.
func (e *exits) wake() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// run serves until ctx ends. While nothing is pending it sleeps.
func (e *exits) run(ctx context.Context) {
	for {
		var again <-chan time.Time
		if e.poll() > 0 {
			again = time.After(exitPoll)
		}
		select {
		case <-ctx.Done():
			return
		case <-e.kick:
		case <-again:
		}
	}
}

// poll releases what may be released, and returns how much there is still to look at.
func (e *exits) poll() int {
	e.mu.Lock()
	pending := e.pending
	e.pending = nil
	e.mu.Unlock()

	listings := make(map[int]listing) // by GPU: asked once for all that have exited before
	var left []exit
	var gone uint64
	for _, x := range pending {
		if e.release(x, listings) {
			gone += x.movable
		} else {
			left = append(left, x)
		}
	}
	e.mu.Lock()
	e.pending = append(e.pending, left...)
	e.leaving -= gone
	e.mu.Unlock()
	e.feed()
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.pending) + len(e.hungry)
}

// listing is what NVML says of the processes on a GPU.
type listing struct {
	processes map[int]int64
	ok        bool
}

// without tells whether NVML is known not to list a process.
func (l listing) without(pid int) bool {
	_, listed := l.processes[pid]
	return l.ok && !listed
}

// release gives back the charges of one ended process on the GPUs that no longer list it, and tells
// whether that were all.
func (e *exits) release(x exit, listings map[int]listing) bool {
	x.c.mu.Lock()
	held := x.c.heldBy(x.s)
	x.c.mu.Unlock()
	for _, gpu := range held { // not under the container's mu: NVML may take its time
		if _, asked := listings[gpu]; !asked && time.Now().Before(x.s.holdUntil) {
			processes, ok := e.node.processes(gpu)
			listings[gpu] = listing{processes, ok}
		}
	}
	defer e.node.retire(x.c)
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	if x.c.closed || x.c.sessions[x.s.process] != x.s {
		x.c.retryWaiting() // the process, after an exec, has said HELLO again; or the agent stops
		return true
	}
	left := 0
	overdue := !time.Now().Before(x.s.holdUntil)
	for _, gpu := range held {
		if !overdue && !listings[gpu].without(x.s.process.PID) {
			left++
			continue
		}
		x.c.bequeath(x.s, gpu)
		if err := x.s.record.Set(gpu, store.Row{}); err != nil {
			e.node.log.Warn("an ended charge is still recorded", "error", err)
		}
		x.c.setMovable(x.s, gpu, 0)
		x.c.ledgers[gpu].Release(x.s.holder())
		x.c.show(gpu)
	}
	if left == 0 {
		x.c.finish(x.s)
	}
	x.c.retryWaiting()
	return left == 0
}

// heldBy lists the GPUs on which a session has a charge, or shared memory. Called under mu.
func (c *container) heldBy(s *session) (gpus []int) {
	shared := c.node.shares.gpusOf(c.sharer(s))
	for gpu := range c.ledgers {
		if c.chargedTo(s, gpu) > 0 || shared[gpu] {
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}

// processes asks NVML for a GPU's processes. ok is false where NVML cannot tell, or not in time: a
// driver that hangs must not hold up its callers for ever. No more than one question a GPU is under
// way; each caller asks anew, since it wants to know what is so now. Without NVML nothing is listed.
func (n *Node) processes(gpu int) (listed map[int]int64, ok bool) {
	if n.opts.Devices == nil {
		return nil, true
	}
	g := n.gpus[gpu]
	late := time.After(exitHold)
	select {
	case g.asking <- struct{}{}:
	case <-late:
		return nil, false
	}
	type answer struct {
		listed map[int]int64
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		defer func() { <-g.asking }()
		listed, err := n.opts.Devices.Processes(g.uuid)
		answered <- answer{listed, err}
	}()
	select {
	case a := <-answered:
		if a.err != nil {
			n.log.Warn("the GPU's processes cannot be listed", "gpu", g.uuid, "error", a.err)
		}
		return a.listed, a.err == nil
	case <-late:
		return nil, false
	}
}
