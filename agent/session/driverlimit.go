package session

// The driver's own limits of device memory, as a backstop under the caps.
//
// Drivers from 615 on can hold a limit per control group (of version 2) and card, by whatever means a
// program takes memory. Where the driver can and the container is known by such a group, its limit is the
// cap with an allowance for what the driver counts and the caps do not, so that it refuses nothing that
// the cap allows. It is there before the container's first program runs and before a session gets its
// WELCOME; a cap that rises raises it first, one that falls lowers it last. What fails is tried again
// with each reconciliation; meanwhile the library holds the cap, as it does where there is no such driver.
//
// Invariants: a limit that was set is taken away again, by whichever agent: that there may be one is kept
// with the container before it is set. A group's limits are one container's: of one that is started again, whose group
// has the same name, the predecessor may not have ended for the agent, and leaves them alone from then on.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/agent/control"
	"weir/agent/ledger"
	"weir/agent/session/proc"
	"weir/agent/store"
)

// DriverLimits has the driver hold limits of device memory; package device implements it.
type DriverLimits interface {
	// SetMemoryLimit limits what the processes of a control group of version 2, by its directory, hold on
	// a GPU in bytes; less than 0 takes the limit away. control.ErrUnsupported: the driver holds none
	// there.
	SetMemoryLimit(gpuUUID, directory string, bytes int64) error
}

const (
	// limitWait is how long the driver may take to change a container's limits.
	limitWait = time.Second
	// limitSlack is the part of a cap that the driver may count more of the same memory: it takes whole
	// pages, where caps count multiples of 512 bytes.
	limitSlack = 16

	noLimit      = int64(-1)
	unknownLimit = int64(-2) // of an earlier agent
)

// driverLimit is what the driver holds of a container on one GPU.
type driverLimit struct {
	bytes       int64 // or noLimit, unknownLimit; that of the card stands for a limit that need not be
	unsupported bool
	failed      bool // it is not what it should be, and an event has said so
}

// limitGroup is by what the driver can know the container: its control group, if that is one of version
// 2.
func (c *container) limitGroup() (group proc.Cgroup, ok bool) {
	known, is := c.identity.(*grouped)
	if !is || c.node.opts.Limits == nil || c.limitsTaken.Load() {
		return group, false
	}
	if at := known.group.Load(); at != nil {
		group, ok = *at, at.Controller == ""
	}
	return group, ok
}

// takeLimits makes the limits that the driver may hold of predecessors in the container's control group the
// container's own. Called under node.mu.
func (c *container) takeLimits(predecessors []*container) {
	for _, before := range predecessors {
		before.limiting.Lock()
		before.limitsTaken.Store(true)
		before.limiting.Unlock()
		before.mu.Lock()
		left := slices.Clone(before.limits)
		before.mu.Unlock()
		c.mu.Lock()
		for gpu, limit := range left {
			if limit.bytes != noLimit {
				c.limits[gpu].bytes = unknownLimit
			}
		}
		c.mu.Unlock()
	}
}

// willLimit is the record of a container that is to have these caps: from its first cap on it may have
// limits.
func (n *Node) willLimit(kept *store.OCI, caps store.Caps) *store.OCI {
	v2 := kept != nil && kept.Cgroup != nil && kept.Cgroup.Controller == ""
	if n.opts.Limits == nil || n.opts.LimitsOff || !v2 || caps.MemoryBytes == nil && len(caps.MemoryByGPU) == 0 {
		return kept
	}
	limited := *kept
	limited.DriverLimited = true
	return &limited
}

// beginLimits is what a new agent knows of a container's limits.
func (c *container) beginLimits() {
	before := noLimit
	if c.spec.OCI != nil && c.spec.OCI.DriverLimited {
		before = unknownLimit
	}
	c.limits = make([]driverLimit, len(c.node.gpus))
	for gpu := range c.limits {
		c.limits[gpu].bytes = before
	}
}

// limitFor is the limit that goes with a cap on a GPU, in bytes: with
//   - a part of the cap, for the driver's pages;
//   - for each process a quarter of a context, and no less than 1/1024 of the card: what contexts vary by,
//     and reconciliation tolerates too. Contexts are charged, so no more processes count than have room for one;
//   - where contexts do not count, for each process two contexts' size instead: for a context, and for code.
//
// The number of processes is rounded up to a power of two, so that few of them change the limit. Called
// under mu.
func (c *container) limitFor(gpu int, limit uint64) int64 {
	g := c.node.gpus[gpu]
	card, context := uint64(g.known.MemoryBytes), uint64(c.contextSize(gpu))
	if limit >= ledger.Unlimited || c.node.opts.LimitsOff {
		return noLimit
	}
	processes := uint64(1)
	for processes < uint64(len(c.sessions)) {
		processes *= 2
	}
	each := uint64(g.tolerance(int64(context)))
	switch {
	case !c.node.opts.CountContext && context == 0:
		each = card / contextShareMax // it may be any that is credible
	case !c.node.opts.CountContext:
		each = max(each, 2*context)
	case context > 0:
		processes = min(processes, max(1, limit/context))
	}
	return int64(min(min(limit, card)+min(limit, card)/limitSlack+processes*each, card))
}

// keepLimits brings the driver's limits to where they belong, if they are not there; what has failed before
// only with again. It takes limitWait at most, and needs no lock.
func (c *container) keepLimits(again bool) {
	if _, limitable := c.limitGroup(); !limitable {
		return
	}
	c.limiting.Lock()
	defer c.limiting.Unlock()
	c.applyLimits(nil, again)
}

// keepAllLimits does so for all containers.
func (n *Node) keepAllLimits() {
	for _, c := range n.list() {
		c.keepLimits(true)
	}
}

// applyLimits brings the driver's limits to where they belong for the present caps, or for these if they
// are higher. Called under limiting.
func (c *container) applyLimits(rising *store.Caps, again bool) {
	group, limitable := c.limitGroup()
	if !limitable {
		return
	}
	ctx, cancel := context.WithTimeout(c.node.ctx, limitWait)
	defer cancel()
	for gpu, g := range c.node.gpus {
		c.mu.Lock()
		limit := c.ledgers[gpu].Cap()
		if rising != nil {
			limit = max(limit, limitOf(*rising, g.uuid))
		}
		want, has := c.limitFor(gpu, limit), c.limits[gpu]
		settled := c.closed || has.unsupported || has.bytes == want || has.failed && !again
		c.mu.Unlock()
		if !settled {
			c.setLimit(ctx, gpu, group, want)
		}
	}
}

// clearLimits takes all limits away that there are. Called at the container's end.
func (c *container) clearLimits() {
	group, limitable := c.limitGroup()
	c.limiting.Lock()
	defer c.limiting.Unlock()
	ctx, cancel := context.WithTimeout(c.node.ctx, limitWait)
	defer cancel()
	for gpu, has := range c.limits {
		if limitable && !has.unsupported && has.bytes != noLimit {
			c.setLimit(ctx, gpu, group, noLimit)
		}
	}
}

// setLimit has the driver hold another limit, and notes what came of it: a failure is an event once.
// Called under limiting.
func (c *container) setLimit(ctx context.Context, gpu int, group proc.Cgroup, bytes int64) {
	g := c.node.gpus[gpu]
	err := c.node.askLimit(ctx, g, group, bytes)
	c.mu.Lock()
	defer c.mu.Unlock()
	has := &c.limits[gpu]
	switch {
	case err == nil:
		*has = driverLimit{bytes: bytes}
	case errors.Is(err, control.ErrUnsupported):
		*has = driverLimit{bytes: noLimit, unsupported: true}
		c.node.log.Debug("the driver holds no limit", "container", c.spec.Name, "gpu", g.uuid, "reason", err)
	case c.closed:
		c.node.log.Warn("the driver may still have a limit of an ended container", "container", c.spec.Name, "gpu",
			g.uuid, "error", err)
	default:
		// What the driver holds now is not known.
		if has.bytes = unknownLimit; !has.failed {
			has.failed = true
			c.event("driver-limit", c.spec.PID, "the driver's own limit on GPU %s could not be changed: %v; it is tried "+
				"again, and the library holds the cap meanwhile", g.name, err)
		}
	}
}

// askLimit changes a limit, if the driver does it before ctx ends: one that hangs must not hold up its
// callers for ever, and no more than one change a GPU is under way, so that none overtakes another.
func (n *Node) askLimit(ctx context.Context, g *gpu, group proc.Cgroup, bytes int64) error {
	directory, err := group.Directory()
	if err != nil {
		return err
	}
	if bytes >= g.known.MemoryBytes {
		bytes = noLimit // the card is the limit
	}
	select {
	case g.limiting <- struct{}{}:
	case <-ctx.Done():
		return errors.New("the driver has yet to make an earlier change")
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-g.limiting }()
		done <- n.opts.Limits.SetMemoryLimit(g.uuid, directory, bytes)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the driver did not do it within %v", limitWait)
	}
}

// heldByDriver tells whether the driver holds all of the container's caps, of which there are some. Called
// under mu.
func (c *container) heldByDriver() bool {
	capped := false
	for gpu, l := range c.ledgers {
		if !l.Capped() {
			continue
		}
		if capped = true; c.limits[gpu].bytes < 0 {
			return false
		}
	}
	return capped
}

// unaided names a process that has not the library or holds what it has not declared, where the driver
// holds it all the same; or nothing. Called under mu.
func (c *container) unaided() string {
	pid, program := 0, ""
	if len(c.strays) > 0 {
		pid, program = c.strays[0].PID, c.strays[0].Name
	}
	for h, u := range c.undeclared {
		if len(c.strays) == 0 && (pid == 0 || h.process.PID < pid) {
			pid, program = h.process.PID, u.program
		}
	}
	if pid == 0 {
		return ""
	}
	return fmt.Sprintf("only the driver holds process %d (%s)", pid, program)
}

// butDriver is what an event adds that says that no cap holds. Called under mu.
func (c *container) butDriver() string {
	if c.heldByDriver() {
		return "; the driver's own limit holds it all the same"
	}
	return ""
}
