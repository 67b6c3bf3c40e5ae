// Package turns is GPU time between the scheduler and the containers: what processes say becomes events
// for package sched, and what that decides becomes words of control pages and messages to processes.
//
// It has no clock, goroutine, lock or socket of its own: times come in, and pages and processes are
// interfaces. docs/decisions/0012 is the protocol that it keeps the agent's side of. Invariants:
//   - each container has a seat on each GPU of the node, whether or not it uses it: the seat's word in the
//     control page is closed where the GPU's gates are closed and the container has no lease;
//   - a message that names another lease than the seat's is out of date and changes nothing, but for WANT;
//   - nothing here waits for a process: a message that finds no room is sent again at the next look;
//   - what a process says harms its own container only.
package turns

import (
	"fmt"
	"slices"

	"weir/agent/sched"
	"weir/agent/session/page"
)

// Page is a container's control page, as far as it is of GPU time.
type Page interface {
	SetTurn(gpu int, t page.Turn)
}

// Process is one process with the library.
type Process interface {
	// Active tells whether it says that it uses a GPU.
	Active(gpu int) bool
	// Worked is what it says that it has done there.
	Worked(gpu int) page.Worked
	// Look has it look at the GPU and tells whether it could be told: no waiting.
	Look(gpu int, lease uint32) bool
}

// Event is something that an operator should know of.
type Event struct {
	Kind  string
	Owner any // as of Add
	GPU   int
	PID   int // 0: of no single process
	Text  string
}

// Config is what a table is made from.
type Config struct {
	GPUs int // how many there are
	Settings
	Tell func(Event)
}

// reportEvery is how often active processes' words are read, lookEvery those of the resting ones, in ns.
const (
	reportEvery int64 = 10_000_000
	lookEvery   int64 = 100_000_000
)

// gpu is what holds for all seats on one.
type gpu struct {
	gated  bool
	rivals bool
	beside int // seats whose work may run beside others' leases

	quantum int64   // where leases are long since memory moves, how long, in ns; else 0
	weights float64 // of those that use it, together
}

// Table is where the containers of a node take turns. Its methods are to be called one at a time, with
// times in ns of one monotonic clock.
type Table struct {
	config     Config
	node       *sched.Node
	now        int64
	gpus       []gpu
	containers []*Container
	byID       map[sched.FlowID]*Container
	last       sched.FlowID
	processes  int
	using      []*Container // those with a process that uses a GPU

	decisions []sched.Decision // still to be carried out
	changed   []*Container     // whose processes have said something, or have ended
	carrying  bool
	stirred   []*Container     // see memory.go
	expected  []sched.Expected // scratch

	reportAt, lookAt int64
}

// New makes a table without containers. An error names the key of the configuration that is wrong.
func New(config Config) (*Table, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	t := &Table{
		config: config, byID: make(map[sched.FlowID]*Container), gpus: make([]gpu, config.GPUs),
		reportAt: sched.Never, lookAt: sched.Never,
	}
	configs := make([]sched.Config, config.GPUs)
	for i := range configs {
		configs[i] = config.Config
		t.gpus[i] = gpu{gated: config.AlwaysGate, rivals: config.AlwaysGate}
	}
	var err error
	t.node, err = sched.New(configs...)
	return t, err
}

// Container is one container at the table.
type Container struct {
	table     *Table
	id        sched.FlowID
	owner     any
	page      Page
	weight    float64
	seats     []seat
	processes []*Member
	active    int   // places in use, of all processes and GPUs
	at        int   // its place in the table's list of those that have any
	gpus      []int // that the scheduler knows it to use, in order
	idle      bool  // the scheduler has been told that it has none, and nothing since
	waiters   bool  // the scheduler takes it that threads wait at the gate of a lease that is to end
	changed   bool
	gone      bool
	movable   bool // its memory moves before its leases
	stirs     bool // it is one of the table's stirred
}

// Add gives a container its place. owner is what events name it by.
func (t *Table) Add(now int64, owner any, p Page, weight float64) (*Container, error) {
	t.advance(now)
	if err := sched.CheckWeight(weight); err != nil {
		return nil, err
	}
	t.last++
	c := &Container{table: t, id: t.last, owner: owner, page: p, weight: weight, idle: true, seats: make([]seat, len(t.gpus))}
	t.containers = append(t.containers, c)
	t.byID[c.id] = c
	for i := range c.seats {
		if t.gpus[i].gated {
			c.seats[i].state, c.seats[i].number = seatClosed, 1
		}
		c.show(i, true)
	}
	return c, nil
}

// Remove takes a container away, with all of its processes. Its page is not touched afterwards.
func (c *Container) Remove(now int64) {
	t := c.table
	t.advance(now)
	for len(c.processes) > 0 {
		t.drop(c.processes[0])
	}
	t.carry(nil)
	c.gone = true
	t.containers = slices.DeleteFunc(t.containers, func(other *Container) bool { return other == c })
	delete(t.byID, c.id)
	t.carry(t.node.Gone(t.now, c.id))
}

// SetWeight changes the container's weight from now on.
func (c *Container) SetWeight(now int64, weight float64) error {
	t := c.table
	t.advance(now)
	decisions, err := t.node.SetWeight(t.now, c.id, weight)
	if err != nil {
		return fmt.Errorf("weight: %w", err)
	}
	c.weight = weight
	t.carry(decisions)
	return nil
}

// Utilisation takes a sample of how busy a GPU is, in percent, which slots may follow.
func (t *Table) Utilisation(now int64, gpu int, percent float64) {
	t.advance(now)
	t.carry(t.node.Utilisation(t.now, gpu, percent))
}

// advance: time does not go back, whatever the clock says.
func (t *Table) advance(now int64) { t.now = max(t.now, now) }

// Tick does what is due by now.
func (t *Table) Tick(now int64) {
	t.advance(now)
	if t.node.Next() <= t.now {
		t.carry(t.node.Tick(t.now))
	}
	if t.now >= t.reportAt {
		t.reportAt = t.now + reportEvery
		t.report()
	}
	if t.now >= t.lookAt {
		t.lookAt = t.now + lookEvery
		t.look()
	}
}

// Next is when Tick has something to do, sched.Never if there is nothing.
func (t *Table) Next() int64 {
	next := t.node.Next()
	if len(t.using) > 0 {
		next = min(next, t.reportAt)
	}
	if t.processes > 0 {
		next = min(next, t.lookAt)
	}
	return next
}
