package cases

// What no cap holds for, and what becomes of it by the configuration.

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/agent/control"
	"weir/tests/e2e/node"
)

// capsOf are lines of weir.toml.
const (
	endsUndeclared    = "undeclared = \"end\"\n"
	passIncompatible  = "incompatible = \"pass\"\n"
	undeclaredTimeout = 20 * time.Second
)

// escape starts a program in a container that gets round the library, and takes GPU memory: it writes
// over the environment in which the library would find the agent.
func escape(t *testing.T, n *node.Node, name string, bytes int64) *node.Puppet {
	t.Helper()
	p := n.Puppet(node.RunOptions{Name: name, Memory: "8MiB"})
	p.OK("blank WEIR_SOCKET")
	p.OK("init")
	p.OK("alloc %d", bytes)
	return p
}

// undeclared waits for an event about a process, and returns it.
func undeclared(t *testing.T, n *node.Node, container string, pid int, words string) (found control.Event) {
	t.Helper()
	n.Eventually(func() string {
		for _, e := range n.EventsOf("undeclared", container) {
			if e.PID == pid && strings.Contains(e.Message, words) {
				found = e
				return ""
			}
		}
		return fmt.Sprintf("no event undeclared of process %d with %q", pid, words)
	})
	return found
}

// blameless starts a program that keeps to its cap, and one of no container, with as much memory.
func blameless(n *node.Node) (honest, bare *node.Puppet) {
	honest = n.Puppet(node.RunOptions{Name: "honest", Memory: "64MiB"})
	bare = n.BarePuppet()
	for _, p := range []*node.Puppet{honest, bare} {
		p.OK("init")
		p.OK("alloc %d", 48*mib)
	}
	return honest, bare
}

// A program whose memory no charge stands for is reported, and goes on. Those of no container are left
// alone, and so is what keeps to its caps.
func TestUndeclaredIsReported(t *testing.T) {
	n := counting(t, "256MiB", "")
	blameless(n)
	p := escape(t, n, "blank", 32*mib)
	e := undeclared(t, n, "blank", p.PID(), "without the library")
	if e.Used == nil || *e.Used != 32*mib+contextBytes {
		t.Errorf("the event says %v bytes, want %d: %s", e.Used, 32*mib+contextBytes, e.Message)
	}
	if c := n.Container("blank"); c.Enforced || !strings.Contains(c.Reason, "without the library") {
		t.Errorf("shown as enforced: %v, %q", c.Enforced, c.Reason)
	}
	p.OK("alloc %d", 512) // it lives
	time.Sleep(4 * time.Second)
	events := n.Events()
	for _, e := range events {
		if e.Type == "undeclared" && (e.PID != p.PID() || e.Count != 1) {
			t.Errorf("event %+v", e)
		}
	}
}

// Under undeclared = "end" it is ended, and nothing else is.
func TestUndeclaredIsEnded(t *testing.T) {
	n := counting(t, "256MiB", endsUndeclared)
	honest, bare := blameless(n)
	p := escape(t, n, "blank", 32*mib)
	undeclared(t, n, "blank", p.PID(), "was ended")
	for end := time.Now().Add(undeclaredTimeout); syscall.Kill(p.PID(), 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it still runs")
		}
	}
	honest.OK("alloc %d", 512)
	bare.OK("alloc %d", 512)
}

// oldDriver is a machine with a driver older than any that is served.
func oldDriver(t *testing.T, config string) *node.Node {
	t.Helper()
	machine := strings.Replace(node.Machine("256MiB", "1MiB"), `cuda = "12.2"`, `cuda = "11.2"`, 1)
	return node.Start(t, node.Options{Machine: machine, Config: config})
}

// incompatible checks the one event about a process that does not go with the agent.
func incompatible(t *testing.T, n *node.Node, container, becomes string) {
	t.Helper()
	events := n.EventsOf("incompatible", container)
	if len(events) != 1 || !strings.Contains(events[0].Message, "CUDA version 11.2 is older than 11.4") ||
		!strings.Contains(events[0].Message, "update the driver") ||
		!strings.Contains(events[0].Message, becomes) {
		t.Errorf("events %+v", events)
	}
}

// An old driver: memory is refused by default, and given without a cap where the configuration has it so.
// Either is told to operators; the program's output is its own.
func TestOldDriverIsRefused(t *testing.T) {
	n := oldDriver(t, "")
	program := n.Run(node.RunOptions{Name: "old", Memory: "8MiB"}, node.Build(t, "e2e/puppet"))
	program.Send("init") // makes a context
	if line := program.Line(); line != errorOutOfMemory {
		t.Errorf("under an old driver memory is given: %q", line)
	}
	silent(t, program)
	incompatible(t, n, "old", "refused")
}

func TestOldDriverIsPassed(t *testing.T) {
	n := oldDriver(t, passIncompatible)
	program := n.Run(node.RunOptions{Name: "old", Memory: "8MiB"}, node.Build(t, "e2e/puppet"))
	for _, command := range []string{"init", "alloc 33554432"} {
		program.Send(command)
		if line := program.Line(); !strings.HasPrefix(line, "ok") {
			t.Errorf("%s: %q", command, line)
		}
	}
	if c := n.Container("old"); c.Enforced || !strings.Contains(c.Reason, "runs without a cap") {
		t.Errorf("shown as enforced: %v, %q", c.Enforced, c.Reason)
	}
	silent(t, program)
	incompatible(t, n, "old", "without a cap")
}

// silent ends a program, which must have said nothing but its answers.
func silent(t *testing.T, program *node.Program) {
	t.Helper()
	code, rest := program.Wait(patience)
	if code != 0 || len(rest) != 0 || program.Stderr() != "" {
		t.Errorf("exit %d, more on stdout %q, stderr %q", code, rest, program.Stderr())
	}
}

// An agent that knows no GPU starts nothing under a cap, which would hold on none.
func TestNoGPUNoCap(t *testing.T) {
	n := node.Start(t, node.Options{NoAgent: true})
	n.MustWeir("sim", "down", "--dir", n.SimDir)
	n.StartAgent()
	run := n.Weir("run", "--memory", "1GiB", "--", "true")
	if run.Code != 6 || run.Stdout != "" || !strings.Contains(run.Stderr, "knows no GPU") {
		t.Errorf("exit %d, %q, %q", run.Code, run.Stdout, run.Stderr)
	}
	if run := n.Weir("run", "--", "true"); run.Code != 0 || run.Stderr != "" {
		t.Errorf("without a cap: exit %d, %q", run.Code, run.Stderr)
	}
	run = n.Weir("run", "--memory", "1GiB", "--allow-unenforced", "--", "true")
	if run.Code != 0 || !strings.Contains(run.Stderr, "NOT ENFORCED") {
		t.Errorf("allowed: exit %d, %q", run.Code, run.Stderr)
	}
}

// The same refusal over and over is one event that counts.
func TestRepeatedRefusalsAreOneEvent(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "stubborn", Memory: "8MiB"})
	p.OK("init")
	for range 40 {
		if code := p.Code("alloc %d", 16*mib); code != outOfMemory {
			t.Fatalf("code %d", code)
		}
	}
	events := n.EventsOf("denied", "stubborn")
	if len(events) == 0 || len(events) > 7 || events[len(events)-1].Count < 31 {
		t.Errorf("%d events: %+v", len(events), events)
	}
}
