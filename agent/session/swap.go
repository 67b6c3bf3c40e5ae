package session

// Swap as a setting: which GPUs and how much of the host can have it, and what may be changed while containers run.
// Only the driver tells where memory can be swapped, and not every one of its answers comes soon, so it is asked once
// about each GPU, by a process of the agent's, when the first container asks for swap.

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/ledger"
	"weir/agent/store"
)

// swappable is whether a GPU's memory can be swapped, once that is known. The mutex is held by who finds out.
type swappable struct {
	mu     sync.Mutex
	known  bool
	never  atomic.Bool
	failed time.Time
}

// noSwap is why no GPU of the node can have swap; empty where one can, or where its driver does not tell.
func (n *Node) noSwap(ctx context.Context) string {
	if n.host.Limit() == 0 {
		return "the agent's configuration leaves no host memory for it (swap_host_limit)"
	}
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
		return g.swap.never.Load()
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
	g.swap.known = true
	g.swap.never.Store(!can)
	return !can
}

// learnSwap finds out which GPUs can have swap where containers of an earlier agent's have some.
func (n *Node) learnSwap(ctx context.Context) {
	n.mu.Lock()
	swap := false
	for _, c := range n.containers {
		swap = swap || control.Caps(c.spec.Caps).Swaps()
	}
	n.mu.Unlock()
	if !swap {
		return
	}
	n.noSwap(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.containers {
		c.mu.Lock()
		if !c.closed {
			c.setCaps(c.spec.Caps)
		}
		c.mu.Unlock()
	}
}

// swapOf is what a container with these caps may have beyond its cap on a GPU, in bytes: nothing where it has none, or
// where the GPU cannot.
func (g *gpu) swapOf(caps store.Caps) uint64 {
	if caps.SwapBytes == nil || *caps.SwapBytes <= 0 || limitOf(caps, g.uuid) >= ledger.Unlimited || g.swap.never.Load() {
		return 0
	}
	return uint64(*caps.SwapBytes)
}

// askSwap refuses swap that is asked for where no GPU can have it. It asks the driver, so it is called without locks.
func (n *Node) askSwap(ctx context.Context, asked control.Caps) error {
	if !asked.Swaps() {
		return nil
	}
	if why := n.noSwap(ctx); why != "" {
		return fmt.Errorf("%w: --swap: %s; leave it out", control.ErrUnsupported, why)
	}
	return nil
}

// checkSwap refuses caps whose swap is no limit, or more than the host is to take.
func (n *Node) checkSwap(caps store.Caps) error {
	if caps.SwapBytes == nil || *caps.SwapBytes <= 0 {
		return nil
	}
	swap := *caps.SwapBytes
	switch limit := n.host.Limit(); {
	case caps.MemoryBytes == nil && len(caps.MemoryByGPU) == 0:
		return fmt.Errorf("%w: --swap: %s beyond no cap is no limit; give --memory too, or unset the swap",
			control.ErrInvalid, size(swap))
	case uint64(swap) > limit:
		return fmt.Errorf("%w: --swap: %s is more than the %s of host memory that containers' swap may take here; give less, "+
			"or raise swap_host_limit in the agent's configuration", control.ErrInvalid, size(swap), size(int64(limit)))
	}
	return nil
}

// checkSwapChange refuses swap that is less than what is in use, and, but for a drain, to turn it off while memory lies
// on the host. It tells what is to come back. Called under mu.
func (c *container) checkSwapChange(after store.Caps, drain bool) (message string, err error) {
	var back []string
	for gpu, g := range c.node.gpus {
		was, will := c.ledgers[gpu].Swap(), g.swapOf(after)
		if will >= was {
			continue
		}
		limit, used := limitOf(after, g.uuid), c.used(gpu)
		if beyond := used - min(used, limit); beyond > will {
			return "", fmt.Errorf("%w: caps of %s: --swap: %s are in use on GPU %s, which is %s more than its cap there; have it free some, raise "+
				"the cap, or leave it more swap (what lies on the host then, --drain brings back)", control.ErrConflict,
				c.spec.Name, size(int64(used)), g.name, size(int64(beyond)))
		}
		if swapped := c.swapped(gpu); will == 0 && swapped > 0 {
			if !drain {
				return "", fmt.Errorf("%w: caps of %s: --swap: %s lie on the host, of GPU %s; --drain brings them back first",
					control.ErrConflict, c.spec.Name, size(swapped), g.name)
			}
			back = append(back, fmt.Sprintf("%s come back from the host to GPU %s first", size(swapped), g.name))
		}
	}
	return strings.Join(back, ", "), nil
}

// holdSwap has what a change takes from the container's swap hold at once, with what checkSwapChange has found: no
// allocation and no move comes in between. On an error nothing has changed. Called under mu.
func (c *container) holdSwap(after store.Caps, drain bool) error {
	caps, swaps, less := make([]uint64, len(c.ledgers)), make([]uint64, len(c.ledgers)), false
	for gpu, l := range c.ledgers {
		caps[gpu], swaps[gpu] = l.Cap(), l.Swap()
		less = less || c.node.gpus[gpu].swapOf(after) < swaps[gpu]
	}
	if !less || c.closed {
		return nil
	}
	for gpu, l := range c.ledgers {
		g := c.node.gpus[gpu]
		l.SetCap(min(caps[gpu], limitOf(after, g.uuid)))
		l.SetSwap(min(swaps[gpu], g.swapOf(after)))
	}
	err := c.setMoves(drain)
	if err == nil || drain {
		return nil
	}
	for gpu, l := range c.ledgers {
		l.SetCap(caps[gpu])
		l.SetSwap(swaps[gpu])
	}
	return fmt.Errorf("%w: swap: memory has just gone to the host (%w); --drain brings it back first", control.ErrConflict, err)
}

// draining tells whether memory still comes back from the host since swap is off. Called under mu.
func (c *container) draining() bool {
	for gpu := range c.ledgers {
		if v, _ := c.view(gpu); v.Draining {
			return true
		}
	}
	return false
}

// unswappable says on which GPUs a container that asks for swap has plain memory only.
func (n *Node) unswappable(caps control.Caps) string {
	if !caps.Swaps() {
		return ""
	}
	var never []string
	for _, g := range n.gpus {
		if g.swap.never.Load() {
			never = append(never, fmt.Sprintf("GPU %s (%s)", g.name, g.known.Name))
		}
	}
	if len(never) == 0 {
		return ""
	}
	return "swap: not on " + strings.Join(never, ", ") + ", without concurrent managed access: memory there is plain, and capped"
}

// halfOfMemory is the default of what containers' swap may take of the host.
func halfOfMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit) / 2
}

// swapped is what of the container's memory lies on the host, as far as is known, in bytes. Called under mu.
func (c *container) swapped(gpu int) int64 {
	v, _ := c.view(gpu)
	return v.Swapped + v.Going
}

// onCard is what the container has on the card, as far as is known, in bytes. Called under mu.
func (c *container) onCard(gpu int) uint64 {
	v, known := c.view(gpu)
	if !known {
		return c.used(gpu)
	}
	return c.used(gpu) - c.ledgers[gpu].Shelved() - c.ledgers[gpu].Movable() + uint64(v.Here+v.Coming+v.Going)
}

// swapUse describes where the container's movable memory on a GPU is. Called under mu.
func (c *container) swapUse(gpu int) *control.SwapUse {
	l := c.ledgers[gpu]
	if l.Swap() == 0 && l.Movable() == 0 {
		return nil
	}
	u := &control.SwapUse{LimitBytes: int64(l.Swap())}
	if v, known := c.view(gpu); known {
		here := v.Here + v.Coming + v.Going
		u.ResidentBytes, u.SwappedBytes = &here, &v.Swapped
		u.MovedInBytes, u.MovedOutBytes = &v.MovedIn, &v.MovedOut
		u.FaultedBytes, u.DisplacedBytes = &v.Faulted, &v.Displaced
		n := c.cancels(gpu)
		u.CancelledMoves, u.UndoneMoves = &n.Asked, &n.Undone
		u.OverCapBytes, u.OverCapMostBytes = &v.Above, &v.AboveMost
	}
	return u
}
