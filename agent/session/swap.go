package session

// Where memory could be swapped. Only the driver tells, and not every one of its answers comes soon, so it is
// asked once about each GPU, by a process of the agent's, when the first container asks for swap.

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// swappable is whether a GPU's memory can be swapped, once that is known. The mutex is held by who finds out.
type swappable struct {
	mu           sync.Mutex
	known, never bool
	failed       time.Time
}

// noSwap is why no GPU of the node can have swap; empty where one can, or where its driver does not tell.
func (n *Node) noSwap(ctx context.Context) string {
	if n.opts.Managed == nil || len(n.gpus) == 0 {
		return ""
	}
	never := make([]bool, len(n.gpus))
	var asked sync.WaitGroup
	for i, g := range n.gpus {
		asked.Go(func() { never[i] = n.neverSwaps(ctx, g) })
	}
	asked.Wait()
	for i := range never {
		if !never[i] {
			return ""
		}
	}
	return fmt.Sprintf("no GPU of this node can have swap, since GPU %s (%s) has no concurrent managed access",
		n.gpus[0].name, n.gpus[0].known.Name)
}

func (n *Node) neverSwaps(ctx context.Context, g *gpu) bool {
	g.swap.mu.Lock()
	defer g.swap.mu.Unlock()
	if g.swap.known || n.opts.Now().Sub(g.swap.failed) < makeContextAgain {
		return g.swap.never
	}
	ctx, cancel := context.WithTimeout(ctx, makeContextWait)
	defer cancel()
	can, err := n.opts.Managed(ctx, g.uuid)
	if err != nil {
		g.swap.failed = n.opts.Now()
		n.log.Warn("the driver does not say whether memory can be swapped, so it is taken for possible",
			"gpu", g.known.Name, "error", err)
		return false
	}
	g.swap.known, g.swap.never = true, !can
	return g.swap.never
}
