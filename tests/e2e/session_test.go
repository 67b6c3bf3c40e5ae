package e2e

// A session ends with its process: not before, not after.

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// usesNothing waits until a container uses nothing any more.
func usesNothing(t *testing.T, n *node.Node, name string) {
	t.Helper()
	n.Eventually(func() string {
		if used, charged := n.Use(name); used != 0 || charged != 0 {
			return fmt.Sprintf("%s uses %d bytes, is charged %d", name, used, charged)
		}
		return ""
	})
}

// A forked child that does nothing holds the parent's socket open. The charge goes with the parent.
func TestForkedChildHoldsTheSocket(t *testing.T) {
	for _, kind := range []string{"hold", "exec"} {
		t.Run(kind, func(t *testing.T) {
			n := node.Start(t, node.Options{})
			// Another process keeps the container alive.
			puppets := n.Puppets(2, node.RunOptions{Name: "family", Memory: "64MiB"})
			parent, other := puppets[0], puppets[1]
			parent.OK("init")
			parent.OK("alloc %d", 48*mib)
			child := int(parent.Number("fork %s", kind))
			if child <= 0 { // Kill(-1) would end every process of the machine
				t.Fatalf("fork %s: %d", kind, child)
			}
			t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
			if used, _ := n.Use("family"); used != 48*mib {
				t.Errorf("after the fork %d bytes are used", used)
			}
			parent.Kill()
			usesNothing(t, n, "family")
			other.OK("init")
			other.OK("alloc %d", 64*mib)
			if err := syscall.Kill(child, 0); err != nil {
				t.Fatalf("the child does not live any more: %v", err)
			}
		})
	}
}

// The child of a process that has used CUDA, or of one that has not, does not disturb the parent.
func TestChildUsesCUDA(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "parent", Memory: "64MiB"})
	if code := p.Code("child %d", 32*mib); code != 0 {
		t.Errorf("a child that uses CUDA before its parent does: code %d", code)
	}
	usesNothing(t, n, "parent")
	p.OK("init")
	p.OK("alloc %d", 16*mib)
	p.OK("fill 0 7")
	p.Code("child %d", mib) // the driver may refuse it; what counts is the parent
	p.OK("check 0 7")
	p.OK("alloc %d", 48*mib)
	if used, _ := n.Use("parent"); used != 64*mib {
		t.Errorf("%d bytes are used", used)
	}
}

// Daemons close all descriptors. The memory is still there, so is the charge; and it goes with the
// process.
func TestHostClosesOurDescriptors(t *testing.T) {
	n := node.Start(t, node.Options{})
	puppets := n.Puppets(2, node.RunOptions{Name: "closer", Memory: "64MiB"})
	p, other := puppets[0], puppets[1]
	p.OK("init")
	p.OK("alloc %d", 32*mib)
	p.OK("closefrom 3")
	time.Sleep(200 * time.Millisecond)
	if used, _ := n.Use("closer"); used != 32*mib {
		t.Errorf("after closefrom %d bytes are used", used)
	}
	other.OK("init")
	if code := other.Code("alloc %d", 32*mib+1); code != outOfMemory {
		t.Errorf("what the closer holds could be allocated again: code %d", code)
	}
	// It goes on to work.
	p.OK("alloc %d", 16*mib)
	p.OK("free 0")
	other.OK("alloc %d", 40*mib)
	p.Kill()
	n.Eventually(func() string {
		if used, _ := n.Use("closer"); used != 40*mib {
			return fmt.Sprintf("%d bytes are used", used)
		}
		return ""
	})
	other.OK("alloc %d", 24*mib)
}

// A host that has closed our descriptors opens files under their numbers. Nothing may be written there,
// and the session finds another way.
func TestHostReusesOurDescriptors(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "reuser", Memory: "64MiB"})
	p.OK("init")
	p.OK("alloc %d", 32*mib)
	file := filepath.Join(n.Dir, "hosts-own")
	if count := p.Number("reuse %s", file); count == 0 {
		t.Fatal("no descriptor was reused")
	}
	p.OK("alloc %d", 16*mib)
	p.OK("free 0")
	p.OK("alloc %d", 48*mib)
	if code := p.Code("alloc 1"); code != outOfMemory {
		t.Errorf("one byte over the cap: code %d", code)
	}
	if data, err := os.ReadFile(file); err != nil || len(data) != 0 {
		t.Errorf("the host's file has %d bytes of ours (%v)", len(data), err)
	}
	if used, _ := n.Use("reuser"); used != 64*mib {
		t.Errorf("%d bytes are used", used)
	}
}

// The same while the agent is restarted, as an ordinary user, who can look less into others.
func TestClosedDescriptorsAndRestart(t *testing.T) {
	n := node.Start(t, node.Options{OrdinaryUser: true})
	pair := n.Puppets(2, node.RunOptions{Name: "pair", Memory: "64MiB"})
	for _, p := range pair {
		p.OK("init")
		p.OK("alloc %d", 16*mib)
	}
	pair[0].OK("churn 10 %d", 16*mib)
	pair[0].OK("closefrom 3")
	n.KillAgent()
	n.StartAgent()
	pair[0].OK("alloc %d", 8*mib)
	pair[1].OK("alloc %d", 24*mib)
	for _, p := range pair {
		if code := p.Code("alloc 1"); code != outOfMemory {
			t.Errorf("one byte over the cap: code %d", code)
		}
	}
	pair[0].Kill()
	pair[1].OK("alloc %d", 24*mib)
}

// exec keeps the pid and loses the memory.
func TestExecGivesBack(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "exec", Memory: "64MiB"})
	p.OK("init")
	p.OK("alloc %d", 60*mib)
	p.Tell("exec")
	if pid := int(p.Number("pid")); pid != p.PID() {
		t.Fatalf("exec has changed the pid from %d to %d", p.PID(), pid)
	}
	usesNothing(t, n, "exec")
	p.OK("init")
	p.OK("alloc %d", 64*mib)
	if sessions := n.Container("exec").Sessions; len(sessions) != 1 {
		t.Errorf("sessions after exec: %+v", sessions)
	}
}

// A stopped process keeps what it uses, and its unused credit is not lost to the others.
func TestStoppedProcessKeepsOnlyWhatItUses(t *testing.T) {
	n := node.Start(t, node.Options{})
	puppets := n.Puppets(2, node.RunOptions{Name: "stopped", Memory: "64MiB"})
	sleeper, other := puppets[0], puppets[1]
	for _, p := range puppets {
		p.OK("init")
	}
	sleeper.OK("alloc %d", 16*mib)
	sleeper.OK("churn 100 %d", 40*mib) // leaves it credit for as much as the library likes to keep
	sleeper.Signal(syscall.SIGSTOP)
	other.OK("alloc %d", 48*mib)
	if code := other.Code("alloc 1"); code != outOfMemory {
		t.Errorf("one byte over the cap: code %d", code)
	}
	other.OK("free-all")
	sleeper.Signal(syscall.SIGCONT)
	sleeper.OK("alloc %d", 48*mib)
}

// SIGKILL at the cap: what the dead held is there for the next request, without a wait.
func TestKilledProcessFreesAtOnce(t *testing.T) {
	n := node.Start(t, node.Options{})
	puppets := n.Puppets(5, node.RunOptions{Name: "chain", Memory: "64MiB"})
	for i, p := range puppets {
		p.OK("init")
		p.OK("alloc %d", 64*mib)
		p.OK("fill 0 %d", i)
		p.OK("check 0 %d", i)
		p.Kill()
	}
	usesNothing(t, n, "chain")
}
