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
}

type exit struct {
	c *container
	s *session
}

func newExits(n *Node) *exits { return &exits{node: n, kick: make(chan struct{}, 1)} }

// add has s finished once its memory is free. Called under the container's mu.
func (e *exits) add(c *container, s *session) {
	e.mu.Lock()
	e.pending = append(e.pending, exit{c, s})
	e.mu.Unlock()
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

// poll releases what may be released and returns how many exits are still pending.
func (e *exits) poll() int {
	e.mu.Lock()
	pending := e.pending
	e.pending = nil
	e.mu.Unlock()

	listings := make(map[int]map[int]int64) // by GPU: asked once for all that have exited before
	var left []exit
	for _, x := range pending {
		if !e.release(x, listings) {
			left = append(left, x)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pending = append(e.pending, left...)
	return len(e.pending)
}

// release gives back the charges of one ended process on the GPUs that no longer list it, and tells
// whether that were all.
func (e *exits) release(x exit, listings map[int]map[int]int64) bool {
	x.c.mu.Lock()
	held := x.c.heldBy(x.s)
	x.c.mu.Unlock()
	for _, gpu := range held { // not under the container's mu: NVML may take its time
		if _, asked := listings[gpu]; !asked && time.Now().Before(x.s.holdUntil) {
			listings[gpu] = e.node.processes(gpu)
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
		if _, listed := listings[gpu][x.s.process.PID]; listed && !overdue {
			left++
			continue
		}
		if err := x.s.record.Set(gpu, store.Row{}); err != nil {
			e.node.log.Warn("an ended charge is still recorded", "error", err)
		}
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
	for gpu, l := range c.ledgers {
		if l.Granted(s.holder()) > 0 || shared[gpu] {
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}

// processes asks NVML for a GPU's processes. It is nil where that cannot be told, or not in time: a
// driver that hangs must not hold charges for ever. No more than one question a GPU is under way.
func (n *Node) processes(gpu int) map[int]int64 {
	if n.opts.Devices == nil {
		return nil
	}
	g := n.gpus[gpu]
	if !g.asking.CompareAndSwap(false, true) {
		return nil
	}
	answer := make(chan map[int]int64, 1)
	go func() {
		defer g.asking.Store(false)
		listed, err := n.opts.Devices.Processes(g.uuid)
		if err != nil {
			n.log.Warn("the GPU's processes cannot be listed", "gpu", g.uuid, "error", err)
			listed = nil
		}
		answer <- listed
	}()
	select {
	case listed := <-answer:
		return listed
	case <-time.After(exitHold):
		return nil
	}
}
