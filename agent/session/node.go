// Package session is the tenant side of the agent: it keeps the containers of the node, talks to
// the library in their processes, and decides what each may allocate.
//
// One goroutine serves each connection; what a container is, has and has granted is guarded by the
// container's mutex, which is never held across anything that waits for a tenant. Locks are taken
// in the order node, container, and then those of the small parts.
package session

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/control/ociapi"
	"weir/agent/events"
	"weir/agent/ledger"
	"weir/agent/session/proc"
	"weir/agent/session/wire"
	"weir/agent/store"
	"weir/cgo/abi"
	"weir/oci/policy"
)

var _ control.Node = (*Node)(nil)

// gpu is one of the node's GPUs; its place in the list is its index on the wire.
type gpu struct {
	index int
	name  string // for people: "0", or "1:0" of a MIG device
	id    [16]byte
	uuid  string
	known control.GPU
	// asking is full while NVML is asked for the GPU's processes.
	asking chan struct{}
	// limiting is full while the driver changes a limit of its own on the GPU.
	limiting chan struct{}
	// context is what one context takes in bytes, 0 while that is not known; measuring is held by
	// who finds out, and guards the rest: when and why the agent could not make one itself.
	context   atomic.Int64
	measuring sync.Mutex
	failed    time.Time
	failure   error
	swap      swappable
	// plain is what containers whose memory does not move are charged, in bytes.
	plain atomic.Int64
}

// card is what decisions depend on of the GPU.
func (g *gpu) card() policy.GPU {
	return policy.GPU{Name: g.name, UUID: g.uuid, MemoryBytes: g.known.MemoryBytes}
}

// Node is the tenant side of one agent. It implements control.Node.
type Node struct {
	opts    Options
	log     *slog.Logger
	started time.Time
	// recovered is when the charges of an earlier agent had been taken over.
	recovered time.Time
	gpus      []*gpu
	byUUID    map[[16]byte]int
	run       *runDir
	library   string // path of the installed library, for new containers
	boot      string // the machine's boot id
	events    *events.Log
	credits   *store.Credits
	shares    *shares
	host      host // memory that swap may take
	exporters *store.Exporters
	watcher   *watcher
	exits     *exits
	listed    *listed
	time      *timekeeper // nil: GPU time is not scheduled

	connections    atomic.Int64
	connectionsMax int64

	ctx    context.Context // ends when the node stops
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu         sync.Mutex // taken before a container's
	sizes      *store.ContextSizes
	stored     *store.Containers
	containers map[string]*container
	passes     map[ociapi.Key]*pass // of containers that the runtime has not told the end of
	uncapped   map[ociapi.Key]uncapped
	pods       pods
	stopping   bool
}

// New makes a node: it takes the run directory, restores containers, caps and charges of an earlier
// agent, and opens their sockets. Tenants are served when it returns; Serve must be called in the
// end, to stop. Errors name the directory or file and the way out.
func New(opts Options) (*Node, error) {
	opts.setDefaults()
	n := &Node{
		opts:       opts,
		log:        opts.Logger,
		started:    opts.Now(),
		events:     events.New(0, opts.Now),
		containers: make(map[string]*container),
		listed:     newListed(),
		passes:     make(map[ociapi.Key]*pass),
		pods:       make(pods),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.exits = newExits(n)
	n.host.Host = *ledger.NewHost(uint64(*opts.SwapHostLimit))
	if err := n.listGPUs(); err != nil {
		return nil, err
	}
	var err error
	if n.time, err = n.newTimekeeper(); err != nil {
		return nil, err
	}
	boot, err := proc.BootID()
	if err != nil {
		return nil, err
	}
	if n.run, err = openRunDir(opts.RunDir); err != nil {
		return nil, err
	}
	if err := n.start(boot); err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
}

// start is New from the moment the run directory is taken.
func (n *Node) start(boot string) (err error) {
	if err := n.openStateDir(); err != nil {
		return err
	}
	if n.library, err = installLibrary(n.libraryPlaces(), n.opts.Library); err != nil {
		return err
	}
	if n.watcher, err = newWatcher(); err != nil {
		return err
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	// A session needs a socket and a pidfd; the rest of the agent some more.
	n.connectionsMax = int64(min(files.Cur, 1<<24)) / 3
	n.loadContextSizes()
	if n.exporters, err = store.LoadExporters(n.opts.StateDir); err != nil {
		n.log.Warn("programs that cannot have swap will be found out anew", "error", err)
	}
	n.stored = store.NewContainers(n.run.path, boot)
	n.boot = boot
	if err := n.recover(); err != nil {
		return err
	}
	n.tasks.Go(func() { n.learnSwap(n.ctx) })
	n.tasks.Go(func() { n.exits.run(n.ctx) })
	n.tasks.Go(func() { n.rounds(n.ctx) })
	n.tasks.Go(func() { n.reconciling(n.ctx) })
	if n.time != nil {
		n.tasks.Go(func() { n.time.run(n.ctx) })
		n.utilising(n.ctx)
	}
	return nil
}

func (n *Node) openStateDir() (err error) {
	if n.opts.StateDir, err = filepath.Abs(n.opts.StateDir); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := checkText(n.opts.StateDir, "--state-dir"); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(n.opts.StateDir), 0o755); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711 // the library may lie below
	}
	if err := ownDirectory(n.opts.StateDir, mode); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return nil
}

// listGPUs takes the list of GPUs that holds for the agent's life.
func (n *Node) listGPUs() error {
	n.byUUID = make(map[[16]byte]int)
	if n.opts.Devices == nil {
		return nil
	}
	list, err := n.opts.Devices.GPUs()
	if err != nil {
		return fmt.Errorf("listing the GPUs: %w", err)
	}
	if len(list) > abi.GPUsMax {
		return fmt.Errorf("the node has %d GPUs, and this version serves %d at most", len(list),
			abi.GPUsMax)
	}
	for i, known := range list {
		id, err := parseUUID(known.UUID)
		if err != nil {
			return fmt.Errorf("listing the GPUs: GPU %d: %w", known.Index, err)
		}
		if _, twice := n.byUUID[id]; twice {
			return fmt.Errorf("listing the GPUs: UUID %s is there twice", known.UUID)
		}
		n.byUUID[id] = i
		n.gpus = append(n.gpus, &gpu{
			index: known.Index, name: control.GPUName(known.Index, known.MIG), id: id, uuid: known.UUID,
			known: known, asking: make(chan struct{}, 1), limiting: make(chan struct{}, 1),
		})
	}
	return nil
}

// parseUUID reads "GPU-" or "MIG-" and 32 hexadecimal digits, as NVML writes UUIDs.
func parseUUID(s string) (id [16]byte, err error) {
	_, digits, _ := strings.Cut(s, "-")
	raw, err := hex.DecodeString(strings.ReplaceAll(digits, "-", ""))
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("UUID %q is not GPU- or MIG- and 32 hexadecimal digits", s)
	}
	return [16]byte(raw), nil
}

// Serve blocks until ctx ends, then stops in good order: tenants are told that the agent is away,
// and what they were granted stays recorded for the next agent.
func (n *Node) Serve(ctx context.Context) error {
	<-ctx.Done()
	return n.stop()
}

func (n *Node) stop() error {
	n.mu.Lock()
	n.stopping = true
	containers := n.sorted()
	n.mu.Unlock()
	n.cancel()
	bye := wire.Close(abi.CloseShutdown, 0, "the agent is stopping")
	for _, c := range containers {
		c.leave(bye)
	}
	n.tasks.Wait()
	var err error
	for _, c := range containers {
		err = errors.Join(err, c.letGo())
	}
	if n.watcher != nil {
		n.watcher.close()
	}
	if n.shares != nil {
		err = errors.Join(err, n.shares.file.Close())
	}
	if n.credits != nil {
		err = errors.Join(err, n.credits.Close())
	}
	n.run.close()
	return err
}

// leave tells the container's tenants that the agent stops, and serves them no longer.
func (c *container) leave(bye []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.shut()
	c.page.End()
	for _, s := range c.sessions {
		s.stopCheck()
		if s.out != nil {
			s.out.now(bye)
			s.out.close()
			s.out = nil
		}
	}
}

// letGo closes what the container holds open; nobody uses it any more.
func (c *container) letGo() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		c.node.watcher.remove(s.mark)
		s.handle.Close()
		s.dropUsage()
	}
	if c.root != nil {
		c.node.watcher.remove(c.rootMark)
		c.root.Close()
	}
	c.identity.close()
	c.closePage()
	return err
}
