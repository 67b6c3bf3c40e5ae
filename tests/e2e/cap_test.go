// Package e2e tests weir as its users have it: a simulated machine, the agent, `weir run`, and CUDA
// programs in C and Python. tests/e2e/node starts all that.
package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/agent/control"
	"weir/tests/e2e/node"
)

const (
	mib         = int64(1) << 20
	gib         = mib << 10
	outOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY
)

// The whole story of the README: a program is refused at its cap, the cap is raised while it runs,
// it goes on; ps and events tell it.
func TestCapRefusesAndIsRaisedLive(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "trainer", Memory: "64MiB"})
	p.OK("init")
	p.OK("alloc %d", 40*mib)
	p.OK("alloc %d", 24*mib)
	if code := p.Code("alloc 1"); code != outOfMemory {
		t.Fatalf("one byte over the cap: code %d", code)
	}

	denied := n.EventsOf("denied", "trainer")
	if len(denied) != 1 {
		t.Fatalf("%d denied events, want 1: %+v", len(denied), n.Events())
	}
	event := denied[0]
	if event.PID != p.PID() || *event.Asked != 512 || *event.Used != 64*mib || *event.Cap != 64*mib {
		t.Errorf("the event says pid %d asked %d used %d cap %d", event.PID, *event.Asked, *event.Used, *event.Cap)
	}
	if !strings.Contains(event.Message, "weir caps set") {
		t.Errorf("the event names no way out: %q", event.Message)
	}
	if table := n.MustWeir("ps"); !strings.Contains(table, "64MiB / 64MiB") || !strings.Contains(table, "trainer") {
		t.Errorf("weir ps:\n%s", table)
	}

	n.SetCap("trainer", "80MiB")
	if code := p.Code("alloc %d", 16*mib); code != 0 {
		t.Errorf("after the cap was raised: code %d", code)
	}
	if code := p.Code("alloc 1"); code != outOfMemory {
		t.Errorf("one byte over the raised cap: code %d", code)
	}
	if used, charged := n.Use("trainer"); used != 80*mib || charged != 80*mib {
		t.Errorf("inspect says %d used, %d charged, want %d", used, charged, 80*mib)
	}
	if refused := n.Container("trainer").Refused; refused != 2 {
		t.Errorf("inspect says %d refusals, want 2", refused)
	}
	if len(n.EventsOf("caps", "trainer")) == 0 {
		t.Errorf("no event tells of the changed cap: %+v", n.Events())
	}
}

// Two containers on one GPU have a cap each; neither feels the other's.
func TestTwoContainersShareOneGPU(t *testing.T) {
	n := node.Start(t, node.Options{})
	a := n.Puppet(node.RunOptions{Name: "a", Memory: "100MiB"})
	b := n.Puppet(node.RunOptions{Name: "b", Memory: "50MiB"})
	for _, p := range []*node.Puppet{a, b} {
		p.OK("init")
	}
	if got := a.Numbers("hog %d", mib); got[0] != 100 || got[1] != outOfMemory {
		t.Errorf("a got %d MiB of 100, then code %d", got[0], got[1])
	}
	if got := b.Numbers("hog %d", mib); got[0] != 50 || got[1] != outOfMemory {
		t.Errorf("b got %d MiB of 50, then code %d", got[0], got[1])
	}
	for slot := range 50 {
		a.OK("fill %d %d", slot, 1000+slot)
		b.OK("fill %d %d", slot, 2000+slot)
	}
	for slot := range 50 {
		a.OK("check %d %d", slot, 1000+slot)
		b.OK("check %d %d", slot, 2000+slot)
	}
	a.OK("free-all")
	if used, _ := n.Use("a"); used != 0 {
		t.Errorf("a has freed all, and inspect says %d bytes used", used)
	}
	if used, _ := n.Use("b"); used != 50*mib {
		t.Errorf("b: inspect says %d bytes used", used)
	}
}

// Every way of the driver to give memory draws on the same cap.
func TestAllKindsDrawOnOneCap(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "kinds", Memory: "64MiB"})
	p.OK("init")
	p.OK("alloc %d", 16*mib)
	p.OK("managed %d", 16*mib)
	pitch := p.Numbers("pitch %d %d 4", 4096, 16*mib/4096)[1]
	if pitch < 4096 {
		t.Fatalf("pitch %d", pitch)
	}
	rest := 64*mib - 32*mib - pitch*(16*mib/4096)
	p.OK("alloc %d", rest)
	for _, command := range []string{"alloc 1", "managed 1", "pitch 64 1 4"} {
		if code := p.Code("%s", command); code != outOfMemory {
			t.Errorf("%s at the cap: code %d", command, code)
		}
	}
	if used, _ := n.Use("kinds"); used != 64*mib {
		t.Errorf("inspect says %d bytes used", used)
	}
}

// A cap can be set on what runs without one, taken away again, and tried first.
func TestCapsSetUnsetDryRun(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "free"})
	p.OK("init")
	p.OK("alloc %d", 32*mib)
	n.MustWeir("caps", "set", "free", "--memory", "16MiB", "--dry-run")
	p.OK("alloc %d", mib)
	said := n.SetCap("free", "16MiB")
	if !strings.Contains(said, "33MiB in use") {
		t.Errorf("a cap below the use is set without a word of it: %q", said)
	}
	if code := p.Code("alloc 1"); code != outOfMemory {
		t.Errorf("above the new cap: code %d", code)
	}
	n.MustWeir("caps", "unset", "free", "--memory")
	p.OK("alloc %d", 32*mib)
	if caps := n.Container("free").Caps; caps.MemoryBytes != nil {
		t.Errorf("after unset the cap is %d", *caps.MemoryBytes)
	}
}

func TestRunPassesTheChildsCodeOn(t *testing.T) {
	n := node.Start(t, node.Options{})
	for code, command := range map[int]string{0: "true", 7: "exit 7", 143: "kill -TERM $$", 137: "kill -KILL $$"} {
		if out := n.Weir("run", "--", "/bin/sh", "-c", command); out.Code != code {
			t.Errorf("%q under weir run: exit %d, want %d\n%s", command, out.Code, code, out.Stderr)
		}
	}
	if out := n.Weir("run", "--", "/nonexistent/program"); out.Code != 127 {
		t.Errorf("a command that is not there: exit %d\n%s", out.Code, out.Stderr)
	}
	n.Eventually(func() string {
		if left := n.Containers(); len(left) > 0 {
			return fmt.Sprintf("%d containers are left", len(left))
		}
		return ""
	})
}

// Names address containers; two of one name are told apart.
func TestContainersOfOneName(t *testing.T) {
	n := node.Start(t, node.Options{})
	n.Puppet(node.RunOptions{Name: "twin"})
	if out := n.Weir("run", "--name", "twin", "--", "/bin/true"); out.Code == 0 {
		// Allowed, then both must have an id of their own.
		t.Log("a second container of one name is allowed")
	}
	containers := n.Containers()
	index := slices.IndexFunc(containers, func(c control.Container) bool { return c.Name == "twin" })
	if index < 0 {
		t.Fatalf("no container twin: %+v", containers)
	}
	if by := n.Container(containers[index].ID); by.Name != "twin" {
		t.Errorf("by its id %s the container is %q", containers[index].ID, by.Name)
	}
	if out := n.Weir("inspect", "nobody"); out.Code != 3 {
		t.Errorf("inspect of nobody: exit %d, want 3", out.Code)
	}
}
