package session

// What operators are told.

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"weir/agent/control"
	"weir/agent/ledger"
	"weir/cgo/abi"
)

// Info says what the agent is and which GPUs it serves.
func (n *Node) Info(context.Context) (control.AgentInfo, error) {
	info := control.AgentInfo{
		Version:  n.opts.Version,
		ABI:      abi.Version,
		PID:      os.Getpid(),
		RunDir:   n.run.path,
		StateDir: n.opts.StateDir,
		Started:  n.started,
		Driver:   n.opts.Driver,
		GPUs:     make([]control.GPU, 0, len(n.gpus)),

		TimeShared: !n.opts.TimeOff,
	}
	n.host.do(func(l *ledger.Host) {
		info.SwapHostLimitBytes, info.SwapHostBytes = int64(l.Limit()), int64(l.Reserved())
	})
	for i := range n.gpus {
		g := n.gpus[i].known
		g.UsedBytes, g.UtilisationRatio = nil, nil
		info.GPUs = append(info.GPUs, g)
		info.Simulated = info.Simulated || g.Simulated
	}
	n.describeLinks(info.GPUs)
	if n.opts.Devices == nil {
		return info, nil
	}
	// What is in use changes; the GPUs themselves are those of the agent's start.
	now, err := n.opts.Devices.GPUs()
	if err != nil {
		n.log.Warn("the GPUs' use cannot be read", "error", err)
		return info, nil
	}
	for i := range info.GPUs {
		for _, g := range now {
			if g.UUID == info.GPUs[i].UUID {
				info.GPUs[i].UsedBytes, info.GPUs[i].UtilisationRatio = g.UsedBytes, g.UtilisationRatio
			}
		}
	}
	return info, nil
}

// Containers lists all containers, the oldest first.
func (n *Node) Containers(context.Context) ([]control.Container, error) {
	n.findStrays(n.list())
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]control.Container, 0, len(n.containers))
	for _, c := range n.sorted() {
		list = append(list, c.report())
	}
	for _, u := range n.running() {
		list = append(list, u.report())
	}
	return list, nil
}

// Container describes one container.
func (n *Node) Container(_ context.Context, ref string) (control.Container, error) {
	n.mu.Lock()
	c, err := n.find(ref)
	if errors.Is(err, control.ErrNotFound) {
		if r, there := n.namedUncapped(ref); there {
			n.mu.Unlock()
			return r, nil
		}
	}
	n.mu.Unlock()
	if err != nil {
		return control.Container{}, err
	}
	n.findStrays([]*container{c})
	n.mu.Lock()
	defer n.mu.Unlock()
	return c.report(), nil
}

// Events returns the events after a number; with wait it blocks until there is one or ctx ends.
func (n *Node) Events(ctx context.Context, afterSeq uint64, wait bool) ([]control.Event, error) {
	if wait {
		return n.events.Wait(ctx, afterSeq)
	}
	return n.events.Since(afterSeq), nil
}

// sorted lists the containers, the oldest first. Called under mu.
func (n *Node) sorted() []*container {
	list := make([]*container, 0, len(n.containers))
	for _, c := range n.containers {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *container) int {
		return cmp.Or(a.spec.Started.Compare(b.spec.Started), cmp.Compare(a.spec.ID, b.spec.ID))
	})
	return list
}

// What a container's caps are enforced by.
var byDriver, byLibrary = control.ByDriver, control.ByLibrary

// capped tells whether the container has a memory cap anywhere. Called under mu.
func (c *container) capped() bool {
	return slices.ContainsFunc(c.ledgers, (*ledger.Ledger).Capped)
}

// report describes the container. Called under node.mu.
func (c *container) report() control.Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := control.Container{
		ID: c.spec.ID, Name: c.spec.Name, Namespace: c.spec.Namespace, Identity: c.identity.kind(),
		PID: c.spec.PID, Command: slices.Clone(c.spec.Command), Started: c.spec.Started,
		Caps: control.Caps(c.spec.Caps), Refused: c.refused, Enforced: true, State: "running",
		Report: control.ReportCap, Sessions: []control.Session{},
	}
	if c.spec.Virtual {
		r.Report = control.ReportVirtual
	}
	switch {
	case c.rootOver:
		r.State = "ending"
	case c.spec.Prepared():
		r.State = "prepared"
	}
	r.ReasonKind = c.reasonKind()
	switch reason := c.unenforced(); {
	case c.heldByDriver():
		r.EnforcedBy, r.Reason = &byDriver, c.unaided()
	case reason != "":
		r.Enforced, r.Reason = false, reason
	case c.capped():
		r.EnforcedBy = &byLibrary
	}
	sessions := make([]*session, 0, len(c.sessions))
	for _, s := range c.sessions {
		sessions = append(sessions, s)
	}
	slices.SortFunc(sessions, func(a, b *session) int {
		return cmp.Compare(a.process.PID, b.process.PID)
	})
	c.describeListed(&r)
	r.GPUs = c.uses()
	for _, s := range sessions {
		r.Sessions = append(r.Sessions, c.reportSession(s))
	}
	return r
}

// uses describes what the container has on each GPU. Called under mu.
func (c *container) uses() []control.GPUUse {
	list := make([]control.GPUUse, 0, len(c.ledgers))
	for gpu, l := range c.ledgers {
		u := c.use(gpu, c.plain(gpu), c.credit(gpu), l.Shared(), l.Movable())
		u.Swap = c.swapUse(gpu)
		for _, s := range c.sessions {
			c.addParts(&u, s, gpu)
		}
		list = append(list, u)
	}
	return list
}

func (c *container) reportSession(s *session) control.Session {
	r := control.Session{
		ID: s.id, PID: s.process.PID, Program: s.program, State: string(s.state),
		Since: s.since.Round(time.Millisecond), Library: s.library, ABI: s.abi,
		GPUs: []control.GPUUse{},
	}
	for gpu, l := range c.ledgers {
		granted, exported := l.Granted(s.holder()), c.exported(s, gpu)
		u := c.use(gpu, granted, c.unused(s, gpu), exported, l.MovableOf(s.holder()))
		c.addParts(&u, s, gpu)
		if u.ChargedBytes > 0 || exported > 0 || u.ContextBytes > 0 {
			r.GPUs = append(r.GPUs, u)
		}
	}
	return r
}

// addParts adds what a session says that its contexts take: of what it uses, where they count. Called
// under mu.
func (c *container) addParts(u *control.GPUUse, s *session, gpu int) {
	if s.usage == nil {
		return
	}
	contexts, code := s.usage.Shown(gpu, uint64(c.node.gpus[gpu].known.MemoryBytes))
	if c.node.opts.CountContext {
		used := c.ledgers[gpu].Granted(s.holder()) - c.unused(s, gpu)
		contexts = min(contexts, used)
		code = min(code, used-contexts)
	}
	u.ContextBytes += int64(contexts)
	u.CodeBytes += int64(code)
}

// credit is all unused credit of the container on a GPU. Called under mu.
func (c *container) credit(gpu int) (sum uint64) {
	for _, s := range c.sessions {
		sum += c.unused(s, gpu)
	}
	return sum
}

func (c *container) use(gpu int, plain, credit, shared, movable uint64) control.GPUUse {
	charged := plain + movable
	u := control.GPUUse{
		Index: c.node.gpus[gpu].index, MIG: c.node.gpus[gpu].known.MIG, UUID: c.node.gpus[gpu].uuid,
		ChargedBytes: int64(charged),
		UsedBytes:    int64(charged - credit), CreditBytes: int64(credit), SharedBytes: int64(shared), MovableBytes: int64(movable),
	}
	if l := c.ledgers[gpu]; l.Capped() {
		limit := int64(l.Cap())
		u.CapBytes = &limit
	}
	if limit := c.limits[gpu].bytes; limit >= 0 {
		u.DriverLimitBytes = &limit
	}
	return u
}
