package session

// What one context takes on each kind of GPU. No driver tells, so it is learned from the first process
// that makes one: by what NVML says that process has, less what it has declared. All processes are then
// told by their control pages, before they make theirs.

import (
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

// contextBytes is what one context takes on a GPU: as known, or by what a process with so many has
// there. 0 where it cannot be found out.
func (c *container) contextBytes(s *session, gpu int, contexts int64) int64 {
	g := c.node.gpus[gpu]
	g.measuring.Lock()
	defer g.measuring.Unlock()
	if known := g.context.Load(); known > 0 {
		return known
	}
	bytes := c.measureOnce(s, gpu, contexts)
	if bytes == 0 {
		return 0
	}
	c.node.learn(g, bytes)
	c.event("measured", s.process.PID, "one context takes %s on %s, as GPU %s is: measured by %s, and "+
		"kept for this kind of GPU and driver", size(bytes), g.known.Name, g.name, s.program)
	return bytes
}

// measureOnce asks NVML until two answers in a row agree. A process's other threads may allocate or
// free meanwhile: what they are about to allocate is declared already and not yet there, so a figure is
// rather too small, and the largest is the best.
func (c *container) measureOnce(s *session, gpu int, contexts int64) (best int64) {
	most := c.node.gpus[gpu].known.MemoryBytes / contextShareMax
	last := int64(-1)
	for end := time.Now().Add(measureWait); time.Now().Before(end); time.Sleep(measureAgain) {
		before := c.declaredBy(s, gpu)
		listed, ok := c.node.processes(gpu)
		after := c.declaredBy(s, gpu)
		has, there := listed[s.process.PID]
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
				c.page.SetContext(i, uint64(bytes), n.opts.CountContext)
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
