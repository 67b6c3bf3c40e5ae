package chaos

// Random sequences of calls over all kinds of device memory, on one or both of two GPUs, by up to eight
// processes of one or two containers that fork, are stopped and are killed. What must hold of each GPU
// after every round: the agent's charge is what the simulated card's own books say, and within the
// cap; nothing that fits was refused; and when all have ended, both are nothing.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/agent/control"
	"weir/tests/e2e/node"
	"weir/tests/sim"
)

const (
	gpusMax      = 2
	contextBytes = mib / 4
	poolChunk    = mib
	pageBytes    = mib / 16 // granularity of created memory
	unitBytes    = 512      // of plain memory, arrays, code
)

// container is one container of the test.
type container struct {
	name   string
	socket string
	caps   amounts
}

// theatre is the node that all sequences use, one after the other.
type theatre struct {
	*node.Node
	t       *testing.T
	control *control.Client
	machine *sim.Running
	stages  []*container
	modules []string // files of code
}

func openTheatre(t *testing.T) *theatre {
	t.Helper()
	more := "pool_chunk = \"1MiB\"\nuvm_page = \"64KiB\"\ncount = 2\n"
	machine := node.Machine("512MiB", "256KiB") + more
	n := node.Start(t, node.Options{Machine: machine, CountContext: true})
	running, err := sim.Open(n.SimDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.Close)
	th := &theatre{
		Node: n, t: t, machine: running,
		control: control.NewClient(filepath.Join(n.RunDir, "control.sock")),
	}
	for i, bytes := range []int{16, 300_000, 2 << 20} {
		path := filepath.Join(n.Dir, fmt.Sprintf("code%d.ptx", i))
		text := fmt.Sprintf(".version 7.0\n.target sm_70\n.address_size 64\n"+
			".visible .global .align 16 .b8 big[%d];\n.visible .entry empty() { ret; }\n", bytes)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		th.modules = append(th.modules, path)
	}
	for _, name := range []string{"left", "right"} {
		s := &container{name: name, socket: filepath.Join(n.Dir, name)}
		p := n.Run(node.RunOptions{Name: name, Memory: "64MiB", Env: []string{"CUDA_MODULE_LOADING=EAGER"}},
			node.Build(t, "e2e/acrobat"), s.socket)
		if line := p.Line(); line != "ready" {
			t.Fatalf("the acrobat says %q", line)
		}
		th.stages = append(th.stages, s)
	}
	// The first context of all is charged when it has been made and measured; let that be over.
	first := n.Acrobat(node.RunOptions{Name: "first", Memory: "1MiB"})
	first.OK("init")
	first.OK("@1 init")
	first.Kill()
	return th
}

// setCaps gives a container other caps for the next sequence.
func (th *theatre) setCaps(s *container, caps amounts) {
	th.t.Helper()
	byGPU := map[string]int64{}
	for gpu, bytes := range caps {
		byGPU[strconv.Itoa(gpu)] = bytes
	}
	change := control.CapsChange{Set: control.Caps{MemoryByGPU: byGPU}}
	if _, err := th.control.ChangeCaps(context.Background(), s.name, change); err != nil {
		th.t.Fatal(err)
	}
	s.caps = caps
}

// charges of the containers by the agent: what is used, and with credit.
func (th *theatre) charges() (used, charged []amounts) {
	th.t.Helper()
	all, err := th.control.Containers(context.Background())
	if err != nil {
		th.t.Fatal(err)
	}
	used, charged = make([]amounts, len(th.stages)), make([]amounts, len(th.stages))
	for i, s := range th.stages {
		for _, c := range all {
			if c.Name == s.name {
				for _, gpu := range c.GPUs {
					used[i][gpu.Index] += gpu.UsedBytes
					charged[i][gpu.Index] += gpu.ChargedBytes
				}
			}
		}
	}
	return used, charged
}

// onCards is what the cards' own books say of all, and of each process: managed memory counts where it
// was allocated, wherever it lies.
func (th *theatre) onCards() (all amounts, each map[int]amounts) {
	th.t.Helper()
	books, err := th.machine.Books()
	if err != nil {
		th.t.Fatal(err)
	}
	each = map[int]amounts{}
	for i, gpu := range books.GPUs {
		all[i] = gpu.UsedBytes - gpu.ResidentBytes
		for _, p := range gpu.Processes {
			if p.Alive {
				all[i] += p.Managed.AllocatedBytes
				own := each[p.PID]
				own[i] = p.AllocatedBytes + p.ContextBytes + p.Managed.AllocatedBytes
				each[p.PID] = own
			}
		}
	}
	return all, each
}

// cardWatch looks at the cards all the time. A pool may be over the cap by one request for the length of
// one call, so each such request in flight is allowed for; what is seen while that changes is not
// judged.
type cardWatch struct {
	machine *sim.Running
	caps    amounts
	allowed [gpusMax]atomic.Int64 // for requests in flight
	changes atomic.Int64
	over    string // what was seen, when it has stopped
	stop    chan struct{}
	done    sync.WaitGroup
}

func (th *theatre) startWatch() *cardWatch {
	w := &cardWatch{machine: th.machine, stop: make(chan struct{})}
	for _, s := range th.stages {
		w.caps.add(s.caps)
	}
	w.done.Go(w.look)
	return w
}

func (w *cardWatch) look() {
	for {
		select {
		case <-w.stop:
			return
		case <-time.After(time.Millisecond):
		}
		var allowed amounts
		changes := w.changes.Load()
		for gpu := range allowed {
			allowed[gpu] = w.allowed[gpu].Load()
		}
		books, err := w.machine.Books()
		if err != nil || changes != w.changes.Load() {
			continue
		}
		for i, gpu := range books.GPUs {
			if used := gpu.UsedBytes - gpu.ResidentBytes; used > w.caps[i]+allowed[i] {
				w.over = fmt.Sprintf("%d bytes were on card %d, under caps of %d in all, with pools' requests of %d",
					used, i, w.caps[i], allowed[i])
			}
		}
	}
}

// allow makes room for a request, or with a sign of -1 takes that back.
func (w *cardWatch) allow(bytes amounts, sign int64) {
	for gpu, n := range bytes {
		w.allowed[gpu].Add(sign * n)
	}
	w.changes.Add(1)
}

// end stops it and returns what it has seen.
func (w *cardWatch) end() string {
	close(w.stop)
	w.done.Wait()
	return w.over
}

// batchLength is how many sequences a node plays. The simulated machine keeps a line for each process
// that ever was, so its books take longer to read the older it is.
const batchLength = 40

// Sequences until a minute is over, or 10,000 of them with LONG=1; WEIR_TEST_SCALE multiplies both.
// Each has a seed of its own, the first WEIR_TEST_SEED, the next one more.
func TestRandomSequences(t *testing.T) {
	first := seed(t)
	count, limit := 1<<30, time.Duration(scaled(t, 60_000))*time.Millisecond
	if os.Getenv("LONG") != "" {
		count, limit = scaled(t, 10_000), 10*time.Hour
	}
	start, sequences, totals := time.Now(), 0, map[string]int{}
	more := func() bool { return sequences < count && time.Since(start) < limit }
	for more() && !t.Failed() {
		t.Run(fmt.Sprintf("from %d", first+uint64(sequences)), func(t *testing.T) {
			th := openTheatre(t)
			for end := sequences + batchLength; sequences < end && more(); sequences++ {
				s := &sequence{theatre: th, seed: first + uint64(sequences), totals: totals}
				s.random = rand.New(rand.NewPCG(s.seed, 3))
				s.play()
			}
			th.AgentAlive()
		})
	}
	t.Logf("%d sequences in %s: %v", sequences, time.Since(start).Round(time.Second), totals)
	for _, what := range []string{"refused", "killed", "killed amid a call", "stopped", "stopped amid a call",
		"imported out of a pool", "inherited"} {
		if limit >= time.Minute && totals[what] == 0 {
			t.Errorf("nothing was %s", what)
		}
	}
}
