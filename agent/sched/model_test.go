package sched

// A small model of a GPU with its programs, to drive a node with: kernels that are not preempted but
// sliced among programs (1024 µs, the open kernel module's default), launches ahead within a window,
// gates, drains, programs that wait for their work, or for each other on two GPUs. Nothing here is a
// figure of hardware. What programs get is counted in kernels, which the scheduler does not see as time.

import (
	"testing"
)

const (
	modelSlice  = 1024 * 1000 // ns
	modelSwitch = 50 * 1000   // from one program to another
	modelWindow = 4 * ms      // what may be in flight among rivals, beyond one kernel
	modelAhead  = 64 * ms     // and alone
	modelGap    = 2 * ms      // without work for so long, a program is idle
	modelReport = 10 * ms
)

// program is one container with one thread that launches.
type program struct {
	id     FlowID
	weight float64
	kernel int64 // ns
	wait   bool  // for the end of each kernel before the next launch, and
	gap    int64 // for so long after it
	// sleep is how long to do nothing more after so many kernels; nil: never.
	sleep   func(done int64) int64
	gone    bool
	stopped bool  // it launches nothing and answers nothing
	pair    int64 // between the launches on its GPUs, ns
	endless bool  // its next kernel never ends
	blocks  bool  // its kernel waits for something that it can do only with its gate open (row T9)
	wake    int64 // and so long after it has opened, ns
	backlog int64 // what it submits while it is alone, ns; 0: modelAhead

	gpus   []*modelGPU // kernels on several begin together, and wait for each other
	queued []int       // kernels on each of them
	step   int         // launches so far
	next   int64       // when the next one is
	left   int64       // of the kernel under way, ns
	done   int64       // kernels
	worth  int64       // what they would have taken alone, ns

	open     bool // its gate
	opened   int64
	leased   uint64
	draining bool
	reopened bool
	wanted   bool // it has said so, and waits
	held     bool // a launch waits at the gate
	before   bool // what it submitted before the gate closed may not be done
	asked    int64
	waits    []int64 // for each lease, ns

	revoked    int64   // when its lease was
	drains     []int64 // from there to the end of each, ns
	idleFrom   int64
	progressed int64
	busy       int64 // since the last report
	told       int64 // kernels reported
}

type modelGPU struct {
	number int
	gated  bool
	rivals bool
	turn   *program // whose slice it is
	until  int64
	ready  int64 // the switch to it is done then
}

type model struct {
	t        *testing.T
	node     *Node
	free     bool // without weir: all gates stay open
	now      int64
	reportAt int64
	gpus     []*modelGPU
	programs []*program
	counts   map[Kind]int
}

func newModel(t *testing.T, configs ...Config) *model {
	node, err := New(configs...)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{t: t, node: node, counts: make(map[Kind]int), reportAt: modelReport}
	for i, c := range configs {
		m.gpus = append(m.gpus, &modelGPU{number: i, gated: c.AlwaysGate})
	}
	return m
}

// add begins a program on these GPUs, the first if none are given.
func (m *model) add(p *program, gpus ...int) *program {
	if len(gpus) == 0 {
		gpus = []int{0}
	}
	for _, gpu := range gpus {
		p.gpus = append(p.gpus, m.gpus[gpu])
	}
	if p.weight == 0 {
		p.weight = 1
	}
	m.programs = append(m.programs, p)
	p.id = FlowID(len(m.programs))
	p.queued = make([]int, len(gpus))
	p.next, p.idleFrom, p.left = m.now, m.now, p.kernel
	if err := m.node.Add(Container{ID: p.id, Weight: p.weight, GPUs: gpus, Leases: 1}); err != nil {
		m.t.Fatal(err)
	}
	m.regate(p)
	return p
}

func (m *model) program(id FlowID) *program { return m.programs[id-1] }

// outstanding: something of p is on a GPU.
func (p *program) outstanding() bool {
	for _, n := range p.queued {
		if n > 0 {
			return true
		}
	}
	return false
}

// ahead is how many kernels the program may have in flight.
func (m *model) ahead(p *program) int {
	switch {
	case p.wait:
		return 1
	case !m.free && (p.gpus[0].rivals || p.gpus[0].gated):
		return int(max(1, modelWindow/p.kernel))
	}
	return int(max(2, max(modelAhead, p.backlog)/p.kernel))
}

// alone is what one kernel takes with the GPU to itself, its program's own gap included.
func (p *program) alone() int64 {
	if p.wait {
		return p.kernel + p.gap
	}
	return p.kernel
}
