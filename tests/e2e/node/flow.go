package node

// Flows: programs that keep GPUs busy as a test tells them (clients/flow.c has the settings), and what
// they get of the GPUs, by the simulated machine's own books.

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weir/agent/control"
	"weir/tests/sim"
)

// Flow is one of them. It answers while its launches are held back.
type Flow struct {
	*Puppet
	n    *Node
	Name string // of its container
}

// Hog is a load that always has work on a GPU and at most 16 ms of it ahead.
const Hog = "cost=1000000 burst=8 streams=2 sync=1"

// FlowProgram is the program with its arguments, as a container can run it too.
func (n *Node) FlowProgram() []string {
	n.t.Helper()
	kernels := filepath.Join(n.SimDir, "spin.ptx") // a folder that containers see
	text, err := os.ReadFile(filepath.Join(Root(n.t), "tests/sim/kernels/spin.ptx"))
	if err == nil {
		err = os.WriteFile(kernels, text, 0o644)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return []string{Build(n.t, "e2e/flow"), kernels}
}

// Flow starts one under `weir run`, with contexts on the given GPUs, of which the first is the current one.
func (n *Node) Flow(options RunOptions, gpus ...int) *Flow {
	n.t.Helper()
	words := n.FlowProgram()
	return n.AsFlow(options.Name, n.AsPuppet(n.Run(options, words[0], words[1:]...)), gpus...)
}

// Weighted is Flow for a container of that name and weight, on GPU 0.
func (n *Node) Weighted(name string, weight float64) *Flow {
	n.t.Helper()
	return n.Flow(RunOptions{Name: name, Flags: []string{"--weight", fmt.Sprint(weight)}}, 0)
}

// BareFlow starts one without weir.
func (n *Node) BareFlow(gpus ...int) *Flow {
	n.t.Helper()
	words := n.FlowProgram()
	return n.AsFlow("", n.AsPuppet(n.Bare(words[0], words[1:]...)), gpus...)
}

// AsFlow has a puppet that runs FlowProgram be one.
func (n *Node) AsFlow(name string, p *Puppet, gpus ...int) *Flow {
	n.t.Helper()
	list := ""
	for _, gpu := range gpus {
		list += fmt.Sprintf(" %d", gpu)
	}
	p.OK("init%s", list)
	return &Flow{p, n, name}
}

// Play begins a load and returns its number.
func (f *Flow) Play(settings string) int {
	f.t.Helper()
	return int(f.Number("play %s", settings))
}

// Passed is how many launches of a load are through, and when the last was, of CLOCK_MONOTONIC.
func (f *Flow) Passed(load int) (launches int64, last time.Duration) {
	f.t.Helper()
	n := f.Numbers("passed %d", load)
	return n[0], time.Duration(n[1])
}

// Launches is the first of what Passed says.
func (f *Flow) Launches(load int) int64 {
	f.t.Helper()
	launches, _ := f.Passed(load)
	return launches
}

// Worst is the longest that a launch of a load has taken since this was asked last.
func (f *Flow) Worst(load int) time.Duration {
	f.t.Helper()
	return time.Duration(f.Number("worst %d", load))
}

// Busy is the time for which a GPU has computed for this process, by its pid.
func (f *Flow) Busy(gpu int) time.Duration {
	f.t.Helper()
	process, _ := f.n.Books().GPUs[gpu].Process(f.pid)
	return time.Duration(process.BusyNS)
}

// Queue is its container's entry of `weir queue` on a GPU, once it has one: that comes with its first work.
func (f *Flow) Queue(gpu int) (entry control.Flow) {
	f.t.Helper()
	f.n.Eventually(func() string {
		for _, entry = range f.n.Queue() {
			if entry.Container == f.Name && entry.Index == gpu {
				return ""
			}
		}
		return fmt.Sprintf("weir queue has no entry for %s on GPU %d", f.Name, gpu)
	})
	return entry
}

// Books are those of the simulated machine.
func (n *Node) Books() sim.Books {
	n.t.Helper()
	books, err := sim.Status(n.SimDir)
	if err != nil {
		n.t.Fatal(err)
	}
	return books
}

// Queue is `weir queue -o json`.
func (n *Node) Queue() []control.Flow {
	n.t.Helper()
	var document control.QueueDoc
	n.decode(n.MustWeir("queue", "-o", "json"), &document)
	if document.SchemaVersion != control.SchemaVersion {
		n.t.Fatalf("weir queue -o json has schema version %d", document.SchemaVersion)
	}
	return document.Flows
}

// Gains are what flows get of a GPU in a window from now on.
func Gains(window time.Duration, gpu int, flows ...*Flow) []time.Duration {
	before, gains := make([]time.Duration, len(flows)), make([]time.Duration, len(flows))
	for i, f := range flows {
		f.t.Helper()
		before[i] = f.Busy(gpu)
	}
	time.Sleep(window)
	for i, f := range flows {
		gains[i] = f.Busy(gpu) - before[i]
	}
	return gains
}

// Shares are Gains in percent of their sum.
func Shares(window time.Duration, gpu int, flows ...*Flow) []float64 {
	gains := Gains(window, gpu, flows...)
	var sum time.Duration
	for _, gain := range gains {
		sum += gain
	}
	shares := make([]float64, len(gains))
	for i, gain := range gains {
		shares[i] = 100 * float64(gain) / float64(max(sum, 1))
	}
	return shares
}

// Stall is the longest time in a window from now on in which a flow got nothing of a GPU.
func (f *Flow) Stall(window time.Duration, gpu int) (longest time.Duration) {
	f.t.Helper()
	since, had := time.Now(), f.Busy(gpu)
	for end := since.Add(window); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		busy, now := f.Busy(gpu), time.Now()
		longest = max(longest, now.Sub(since))
		if busy != had {
			since, had = now, busy
		}
	}
	return longest
}

// Holds waits until a flow gets what there is of a GPU, and another one nothing.
func (f *Flow) Holds(gpu int, other *Flow) {
	f.t.Helper()
	f.n.Eventually(func() string {
		gains := Gains(3*time.Millisecond, gpu, f, other)
		if gains[0] == 0 || gains[1] != 0 {
			return fmt.Sprintf("in 3 ms %s got %s and %s got %s", f.Name, gains[0], other.Name, gains[1])
		}
		return ""
	})
}
