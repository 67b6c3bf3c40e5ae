package session

// One container: its accounts, its sessions and its control page.

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"weir/agent/control"
	"weir/agent/ledger"
	"weir/agent/session/page"
	"weir/agent/session/proc"
	"weir/agent/session/swaps"
	"weir/agent/session/turns"
	"weir/agent/store"
	"weir/cgo/abi"
)

// container is one container on this node, with its accounts and sessions.
//
// The write-ahead order holds everywhere under mu: a grant is recorded before the tenant can use
// any of it, and a change of unused credit before it is made, together with what tells whether it
// was.
type container struct {
	node *Node
	// spec is constant, but for the caps, which node.mu guards, and for what registration sets, once
	// and under both locks.
	spec     store.Container
	identity identity
	// root is its weir run, or its first process; nil if that had ended before this agent began, or
	// is not there yet.
	root     *proc.Handle
	rootMark int32
	// bundleSeen: the bundle of a prepared container was there for the agent to see. Guarded by node.mu.
	bundleSeen bool
	turns      *turns.Container // its place where turns are taken; nil: GPU time is not scheduled
	// listed: its container runtime has told of it, and not of its removal. Guarded by node.mu.
	listed   bool
	listener *net.UnixListener

	pace   crowdPace     // of what its sessions say of GPU time
	silent chan struct{} // one token for each connection that has yet to say HELLO
	unsent atomic.Int64  // answers that came late and that their tenants have yet to make room for

	limiting sync.Mutex // held while the driver's limits change; taken before mu
	// limitsTaken: another container has its control group now, and the driver's limits. Set under limiting.
	limitsTaken atomic.Bool

	mu       sync.Mutex
	moves    *swaps.Container // its place where memory is moved; nil: it has had no swap
	ledgers  []*ledger.Ledger // by GPU
	shown    []uint64         // by GPU: what it is charged, as last told to who moves memory
	limits   []driverLimit    // by GPU: the driver's own
	contexts []int64          // by GPU: what a context takes here, where the node does not know
	page     *page.Control
	sessions map[proc.ID]*session
	holders  map[ledger.Holder]*session
	pageless map[*session]bool      // recovered, their usage pages still to be found
	greeting map[*net.UnixConn]bool // connections that have not said HELLO
	waiting  []*waiter
	refused  int64
	rootOver bool // its root has ended: it ends with its last session
	closed   bool // it has ended, or the agent is stopping
	// retryTimed: waiting requests will be decided again when returnWait is over.
	retryTimed bool

	loaded   map[proc.ID]uint64 // images seen to have the library
	reported map[proc.ID]uint64 // images reported to run without it
	unfit    map[proc.ID]string // whose library or driver does not go with the agent, and why
	strays   []stray            // as last seen
	// undeclared is what processes hold on GPUs beyond what they declared, as last reported.
	undeclared map[holding]undeclared
}

// newContainer makes a container without a listener; root may be nil.
func (n *Node) newContainer(spec store.Container, root *proc.Handle) (*container, error) {
	uuids := make([][16]byte, len(n.gpus))
	for i, g := range n.gpus {
		uuids[i] = g.id
	}
	p, err := page.NewControl(uint64(n.opts.Now().UnixNano()), uuids)
	if err != nil {
		return nil, err
	}
	c := &container{
		node:     n,
		spec:     spec,
		identity: identityOf(spec),
		root:     root,
		rootOver: root == nil && !spec.Prepared(),
		page:     p,
		sessions: make(map[proc.ID]*session),
		holders:  make(map[ledger.Holder]*session),
		pageless: make(map[*session]bool),
		silent:   make(chan struct{}, helloMax),
		greeting: make(map[*net.UnixConn]bool),
		loaded:   make(map[proc.ID]uint64),
		reported: make(map[proc.ID]uint64),
		unfit:    make(map[proc.ID]string),
	}
	c.undeclared = make(map[holding]undeclared)
	c.contexts, c.shown = make([]int64, len(n.gpus)), make([]uint64, len(n.gpus))
	c.beginLimits()
	for i, g := range n.gpus {
		c.ledgers = append(c.ledgers, ledger.New(limitOf(spec.Caps, g.uuid)))
		c.ledgers[i].SetSwap(g.swapOf(spec.Caps))
		c.showContext(i)
		c.show(i)
	}
	if err := c.seatAt(n.time); err != nil {
		c.page.Close()
		return nil, err
	}
	c.setMoves(true)
	return c, nil
}

// identityOf is how the processes of a container are known.
func identityOf(spec store.Container) identity {
	if spec.Identity == cgroupIdentity {
		g := &grouped{}
		if spec.OCI != nil && spec.OCI.Cgroup != nil {
			g.group.Store((*proc.Cgroup)(spec.OCI.Cgroup))
		}
		return g
	}
	id := proc.ID{PID: spec.PID, Start: spec.Start}
	return descent{root: proc.NewAncestry(id), id: id, uid: spec.UID}
}

// limitOf is the cap on a GPU in the ledger's terms.
func limitOf(caps store.Caps, uuid string) uint64 {
	if bytes, own := caps.MemoryByGPU[uuid]; own {
		return uint64(bytes)
	}
	if caps.MemoryBytes == nil {
		return ledger.Unlimited
	}
	return uint64(*caps.MemoryBytes)
}

// show brings the control page up to date after a change of a GPU's account. Called under mu.
func (c *container) show(gpu int) {
	l := c.ledgers[gpu]
	c.page.SetGPU(gpu, page.Account{
		Cap: wireCap(l), Charged: l.Charged(), Holders: l.Holders(), Swap: l.Swap(), Movable: l.Movable(),
	})
	c.tellPlain(gpu)
}

// wireCap is a ledger's cap as messages and pages have it.
func wireCap(l *ledger.Ledger) uint64 {
	if !l.Capped() {
		return abi.Unlimited
	}
	return l.Cap()
}

// unused reads how much credit a session has that it does not use. A session that claims too much
// is ended and has none. Called under mu.
func (c *container) unused(s *session, gpu int) uint64 {
	granted := c.ledgers[gpu].Granted(s.holder())
	if s.usage == nil || granted == 0 {
		return 0
	}
	credit, err := s.usage.Credit(gpu, granted)
	if err != nil {
		c.forged(s)
		return 0
	}
	return credit
}

// used is what the container's processes hold on a GPU, in bytes, movable memory wherever it lies. Called under mu.
func (c *container) used(gpu int) uint64 {
	sum := c.ledgers[gpu].Charged() + c.ledgers[gpu].Movable()
	for _, s := range c.sessions {
		sum -= c.unused(s, gpu)
	}
	return sum
}

// chargedTo is what a session is charged on a GPU, in bytes. Called under mu.
func (c *container) chargedTo(s *session, gpu int) uint64 {
	return c.ledgers[gpu].Granted(s.holder()) + c.ledgers[gpu].MovableOf(s.holder())
}

// setCaps applies new caps to the accounts, and recalls unused credit that is now over the cap.
// over is what still exceeds it on the GPU where most does. Called under mu.
func (c *container) setCaps(caps store.Caps) (over uint64) {
	c.findPages()
	for gpu, l := range c.ledgers {
		l.SetCap(limitOf(caps, c.node.gpus[gpu].uuid))
		l.SetSwap(c.node.gpus[gpu].swapOf(caps))
		over = max(over, l.Shrink(c.recaller(gpu)))
		c.show(gpu)
	}
	c.setMoves(true)
	c.retryWaiting()
	c.setWeight(caps)
	return over
}

// event writes an event of this container.
func (c *container) event(kind string, pid int, format string, args ...any) {
	c.node.events.Add(c.newEvent(kind, pid, format, args...))
}

func (c *container) newEvent(kind string, pid int, format string, args ...any) control.Event {
	return control.Event{
		Type:      kind,
		Container: c.spec.Name,
		Namespace: c.spec.Namespace,
		PID:       pid,
		Message:   fmt.Sprintf(format, args...),
	}
}
