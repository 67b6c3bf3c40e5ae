package session

// What one context takes on each kind of GPU. No driver tells, so the agent makes one in a process of
// its own when the first is asked about, and reads what NVML says of that process. All containers'
// processes are then told by their control pages, before they make theirs.
//
// Where the agent cannot make one, the size is what the asking process has, less what it has declared.
// A process may hold memory that it does not declare, or lie about its contexts, so that figure is its
// own container's: others do not see it and it is not kept.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/agent/control"
	"weir/agent/session/wire"
	"weir/agent/store"
	"weir/cgo/abi"
)

// contextShareMax: what is measured is believed up to one part in so many of the GPU's memory. More is
// what a process holds otherwise and has not declared.
const contextShareMax = 4

// measure answers a MEASURE, later. A result ends the connection.
func (c *container) measure(s *session, out outlet, m *abi.Measure) *ending {
	if int(m.Gpu) >= len(c.ledgers) {
		return &ending{abi.CloseProtocol, fmt.Sprintf("MEASURE for GPU %d of %d", m.Gpu, len(c.ledgers))}
	}
	if c.unsent.Load() > waitersMax {
		return &ending{abi.CloseLimit, "too many questions are unanswered"}
	}
	c.unsent.Add(1)
	c.node.tasks.Go(func() {
		defer c.unsent.Add(-1)
		answer := &abi.Measured{Header: abi.Header{Seq: m.Header.Seq}, Gpu: m.Gpu}
		answer.Bytes = uint64(c.contextBytes(s, int(m.Gpu), int64(m.Contexts)))
		out.send(wire.Encode(answer))
	})
	return nil
}

// contextBytes is what one context takes on a GPU: as known, as the agent finds out, or by what a
// process with so many has there. 0 where it cannot be found out.
func (c *container) contextBytes(s *session, gpu int, contexts int64) int64 {
	g := c.node.gpus[gpu]
	g.measuring.Lock()
	defer g.measuring.Unlock()
	c.mu.Lock()
	known := c.contextSize(gpu)
	c.mu.Unlock()
	if known > 0 {
		return known
	}
	bytes, err := c.node.contextOfOwn(gpu)
	if err == nil {
		c.node.learn(g, bytes)
		c.event("measured", s.process.PID, "one context takes %s on %s, as GPU %s is: the agent made one "+
			"when %s asked, and keeps the size for this kind of GPU and driver", size(bytes),
			g.known.Name, g.name, s.program)
		return bytes
	}
	pid := s.process.PID
	bytes = c.node.steady(gpu, pid, contexts, func() int64 { return c.declaredBy(s, gpu) })
	if bytes == 0 {
		return 0
	}
	c.mu.Lock()
	c.contexts[gpu] = bytes
	if !c.closed {
		c.showContext(gpu)
	}
	c.mu.Unlock()
	c.event("measured", pid, "one context takes %s on %s, as GPU %s is, by what %s has: this holds for "+
		"its container only, since the agent cannot make a context: %v", size(bytes), g.known.Name,
		g.name, s.program, err)
	return bytes
}

// contextOfOwn has the agent make a context and finds out what it takes; never 0 without an error.
// What has failed is not tried again for a while. Called under the GPU's measuring.
func (n *Node) contextOfOwn(gpu int) (int64, error) {
	g := n.gpus[gpu]
	if n.opts.MakeContext == nil {
		return 0, errors.New("it was started without the means")
	}
	if g.failure != nil && n.opts.Now().Sub(g.failed) < makeContextAgain {
		return 0, g.failure
	}
	bytes, err := n.makeContext(gpu)
	g.failure, g.failed = err, n.opts.Now()
	if err != nil {
		n.log.Warn("the agent cannot make a context to see what it takes, so each container goes by "+
			"what its own processes have", "gpu", g.known.Name, "error", err)
	}
	return bytes, err
}

func (n *Node) makeContext(gpu int) (int64, error) {
	g := n.gpus[gpu]
	ctx, cancel := context.WithTimeout(n.ctx, makeContextWait)
	defer cancel()
	pid, end, err := n.opts.MakeContext(ctx, g.uuid)
	if err != nil {
		return 0, err
	}
	defer end()
	bytes := n.steady(gpu, pid, 1, func() int64 { return 0 })
	if bytes == 0 {
		return 0, fmt.Errorf("NVML says nothing credible of process %d, which made one", pid)
	}
	return bytes, nil
}

// steady is what NVML says that each of a process's contexts takes on a GPU, once two answers in a
// row agree: that is what it has beyond what it has declared. 0 where nothing credible is said. The
// process's threads may allocate or free meanwhile: what they are about to allocate is declared
// already and not yet there, so a figure is rather too small, and the largest is the best.
func (n *Node) steady(gpu, pid int, contexts int64, declared func() int64) (best int64) {
	most := n.gpus[gpu].known.MemoryBytes / contextShareMax
	last := int64(-1)
	for end := time.Now().Add(measureWait); time.Now().Before(end); time.Sleep(measureAgain) {
		before := declared()
		listed, ok := n.processes(gpu)
		after := declared()
		has, there := listed[pid]
		if !there || has < 0 {
			if ok {
				return 0 // NVML knows nothing of it
			}
			continue
		}
		bytes := (has - max(before, after)) / contexts
		if bytes <= 0 || bytes > most {
			continue
		}
		best = max(best, bytes)
		if bytes == last && before == after {
			break
		}
		last = bytes
	}
	return best
}

// contextSize is what one context is known to take in this container, 0 where it is not. Called
// under mu.
func (c *container) contextSize(gpu int) int64 {
	if known := c.node.gpus[gpu].context.Load(); known > 0 {
		return known
	}
	return c.contexts[gpu]
}

// showContext tells the container's processes what a context takes. Called under mu.
func (c *container) showContext(gpu int) {
	c.page.SetContext(gpu, uint64(c.contextSize(gpu)), c.node.opts.CountContext, c.spec.Virtual)
}

// declaredBy is what a session holds on a GPU as it has declared it, what it has exported included.
func (c *container) declaredBy(s *session, gpu int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	granted := c.ledgers[gpu].Granted(s.holder())
	return int64(granted - c.unused(s, gpu) + c.exported(s, gpu))
}

// learn notes what a context takes on all GPUs of a kind, and tells all containers' processes.
func (n *Node) learn(g *gpu, bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := n.sizes.Set(store.ContextSize{
		GPU: g.known.Name, MemoryBytes: g.known.MemoryBytes, Driver: n.opts.Driver, Bytes: bytes,
	})
	if err != nil {
		n.log.Warn("what a context takes will have to be measured again", "error", err)
	}
	n.log.Info("measured what a context takes", "gpu", g.known.Name, "bytes", bytes)
	for i, other := range n.gpus {
		if !sameKind(other.known, g.known) {
			continue
		}
		other.context.Store(bytes)
		for _, c := range n.containers {
			c.mu.Lock()
			if !c.closed {
				c.showContext(i)
			}
			c.mu.Unlock()
		}
	}
}

func sameKind(a, b control.GPU) bool { return a.Name == b.Name && a.MemoryBytes == b.MemoryBytes }

// loadContextSizes takes over what earlier agents have measured.
func (n *Node) loadContextSizes() {
	var err error
	if n.sizes, err = store.LoadContextSizes(n.opts.StateDir); err != nil {
		n.log.Warn("what contexts take will have to be measured again", "error", err)
	}
	for _, g := range n.gpus {
		g.context.Store(n.sizes.Of(g.known.Name, g.known.MemoryBytes, n.opts.Driver))
	}
}
