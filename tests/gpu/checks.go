package main

// All checks in the order in which they run, and what they have in common.

import (
	"fmt"
	"runtime"
	"time"

	"weir/tests/e2e/node"
)

// check is one row of the table.
type check struct {
	name  string
	limit time.Duration
	run   func(*run, *trial)
	// beside: it runs beside the others, from the beginning to their end.
	beside bool
}

const (
	rowLimit     = 25 * time.Second // of a check with programs in C
	swapLimit    = 55 * time.Second
	programLimit = 75 * time.Second // of one with programs that take seconds to start, or to compile
)

var checks = []check{
	{"reconciliation", wholeLimit, (*run).reconciliation, true},
	{"exports", rowLimit, (*run).exports, false},
	{"context", rowLimit, (*run).context, false},
	{"context charge", rowLimit, (*run).contextCharge, false},
	{"plain", rowLimit, (*run).plain, false},
	{"reports", rowLimit, (*run).reports, false},
	{"pitched", rowLimit, (*run).pitched, false},
	{"arrays", rowLimit, (*run).arrays, false},
	{"default pool", rowLimit, (*run).defaultPool, false},
	{"own pool", rowLimit, (*run).ownPool, false},
	{"pool loop", rowLimit, (*run).poolLoop, false},
	{"created (VMM)", rowLimit, (*run).created, false},
	{"graphs, built", rowLimit, (*run).graphsBuilt, false},
	{"graphs, captured", rowLimit, (*run).graphsCaptured, false},
	{"IPC", rowLimit, (*run).ipc, false},
	{"descriptors", rowLimit, (*run).descriptors, false},
	{"fork", rowLimit, (*run).fork, false},
	{"exec", rowLimit, (*run).exec, false},
	{"routes", rowLimit, (*run).routes, false},
	{"two processes", rowLimit, (*run).twoProcesses, false},
	{"at the same time", rowLimit, (*run).atOnce, false},
	{"SIGKILL", rowLimit, (*run).kill, false},
	{"live cap", rowLimit, (*run).liveCap, false},
	{"swap", swapLimit, (*run).swap, false},
	{"cost", rowLimit, (*run).cost, false},
	{"time: launches", rowLimit, (*run).launches, false},
	{"time: weights 1:1", rowLimit, (*run).equalWeights, false},
	{"time: weights 1:3", rowLimit, (*run).unequalWeights, false},
	{"time: hand-over", rowLimit, (*run).handOver, false},
	{"CUDA programs", programLimit, (*run).cudaPrograms, false},
	{"PyTorch: cap", programLimit, torchCheck("cap"), false},
	{"PyTorch: expandable", programLimit, torchCheck("expandable"), false},
	{"PyTorch: graphs", programLimit, torchCheck("graphs"), false},
	{"PyTorch: loader", programLimit, torchCheck("loader"), false},
	{"PyTorch: two processes", programLimit, torchCheck("two"), false},
	{"PyTorch: beside a hog", programLimit, (*run).torchBeside, false},
	{"numba", programLimit, (*run).numba, false},
}

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const outOfMemory = 2

// granule is the unit in which plain memory is charged.
const granule = 512

// capped are the options of `weir run` for a container under the cap.
func (r *run) capped(name string) node.RunOptions {
	return r.cappedAt(name, r.capBytes)
}

func (r *run) cappedAt(name string, bytes int64) node.RunOptions {
	if r.options.sabotage == "cap" {
		return node.RunOptions{Name: name}
	}
	return node.RunOptions{Name: name, Memory: fmt.Sprintf("%dMiB", bytes/mib)}
}

// puppet starts one under the cap, with a context.
func (r *run) puppet(t *trial, name string) *node.Puppet {
	p := r.node.For(t).Puppet(r.capped(name))
	p.OK("init")
	return p
}

// pair is two in one container.
func (r *run) pair(t *trial, name string) []*node.Puppet {
	pair := r.node.For(t).Puppets(2, r.capped(name))
	for _, p := range pair {
		p.OK("init")
	}
	return pair
}

// use is what a container uses of the card.
func (r *run) use(t *trial, name string) (used int64) {
	for _, gpu := range r.node.For(t).Container(name).GPUs {
		if gpu.UUID == r.gpuUUID {
			used += gpu.UsedBytes
		}
	}
	return used
}

// room is what is left of its cap.
func (r *run) room(t *trial, name string) int64 { return r.capBytes - r.use(t, name) }

// uses fails the check unless a container uses so many bytes.
func (r *run) uses(t *trial, name, when string, want int64) {
	if used := r.use(t, name); used != want {
		t.Errorf("%s: %d bytes are used, not %d", when, used, want)
	}
}

// refused fails the check unless the program is refused for want of memory.
func refused(t *trial, p *node.Puppet, format string, arguments ...any) {
	if code := p.Code(format, arguments...); code != outOfMemory {
		_, _, line, _ := runtime.Caller(1)
		command := fmt.Sprintf(format, arguments...)
		t.Errorf("line %d: past the cap: %s: code %d, not %d", line, command, code, outOfMemory)
	}
}

// eventually waits until a condition holds, and says how long that took.
func eventually(t *trial, limit time.Duration, what string, holds func() bool) time.Duration {
	start := time.Now()
	for !holds() {
		if time.Since(start) > limit {
			t.Fatalf("after %s still not: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}
