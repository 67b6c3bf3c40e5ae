package e2e

// The driver's own limit under a container's cap: a simulated driver that holds limits per control group of
// version 2, and containers of runc, which puts them in such groups where there are any.

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weir/agent/control"
	"weir/agent/session/proc"
	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// limitOver is what the driver's limit is over a cap on the test's machine, for so many processes: 1/16 of
// the cap, and for each process a quarter of a context (of 1 MiB).
func limitOver(limit, processes int64) int64 { return limit + limit/16 + processes*mib/4 }

// limited is a node whose driver holds limits, where containers are in groups of version 2.
func limited(t *testing.T) *node.Node {
	t.Helper()
	node.NeedRunc(t)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !bytes.Contains(mounts, []byte(" - cgroup2 ")) {
		t.Skipf("control groups of version 2 are not mounted here, so runc makes none: %v", err)
	}
	machine := strings.Replace(node.Machine("256MiB", "1MiB"), `driver = "535.309.01"`,
		"driver = \"615.10\"\nmemory_limits = true", 1)
	return node.Start(t, node.Options{Machine: machine, CountContext: true})
}

// wantHeld waits until the driver holds this of a container, and nothing else, and `weir ps` says so; a
// limit of 0 is none.
func wantHeld(n *node.Node, t *testing.T, name string, want int64) {
	t.Helper()
	n.Eventually(func() string {
		books, err := sim.Status(n.SimDir)
		if err != nil {
			return err.Error()
		}
		held := books.GPUs[0].Limits
		if want == 0 && len(held) == 0 {
			return ""
		}
		if len(held) != 1 || held[0].HardBytes != want {
			return fmt.Sprintf("the driver holds %+v, want %d", held, want)
		}
		c := n.Container(name)
		if shown := c.GPUs[0].DriverLimitBytes; shown == nil || *shown != want || !c.Enforced || *c.EnforcedBy != control.ByDriver {
			return fmt.Sprintf("shown is %+v", c)
		}
		return ""
	})
}

// joining moves a process into a container's control group, as one that is exec'd there.
func joining(n *node.Node, t *testing.T, name string, pid int) {
	t.Helper()
	group, err := proc.CgroupOf(n.Container(name).PID)
	var directory string
	if err == nil {
		directory, err = group.Directory()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(directory, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDriverHoldsWhoBypassesTheLibrary(t *testing.T) {
	n := limited(t)
	b := n.Bundle("web", map[string]string{"weir/memory": "32MiB"}, nil)
	p := b.Puppet()
	p.OK("init")
	wantHeld(n, t, b.Name(), limitOver(32*mib, 1))
	if table := n.MustWeir("ps"); !strings.Contains(table, "yes (driver)") {
		t.Errorf("weir ps says %s", table)
	}
	if total := p.Number("total"); total != 32*mib {
		t.Errorf("the card is reported to have %d", total)
	}
	p.OK("via walk") // past the library, which is in it
	p.OK("alloc %d", 24*mib)
	for _, kind := range []string{"alloc %d", "pitch %d 1 4"} {
		if code := p.Code(kind, 16*mib); code != 2 {
			t.Errorf("%s past the cap and the library: code %d, want 2 (out of memory)", kind, code)
		}
	}
	without := n.BarePuppet()
	joining(n, t, b.Name(), without.PID())
	without.OK("init")
	if code := without.Code("alloc %d", 12*mib); code != 2 {
		t.Errorf("without the library: code %d, want 2 (out of memory)", code)
	}
	without.OK("alloc %d", 4*mib)
	n.Eventually(func() string {
		c := n.Container(b.Name())
		if !c.Enforced || !strings.HasPrefix(c.Reason, "only the driver holds process") {
			return fmt.Sprintf("enforced %t: %s", c.Enforced, c.Reason)
		}
		for _, e := range n.EventsOf("undeclared", b.Name()) {
			if strings.Contains(e.Message, "the driver's own limit holds it all the same") {
				return ""
			}
		}
		return "no event tells of memory that was not declared"
	})
	without.Kill()
	p.Leave()
	wantHeld(n, t, b.Name(), 0)
}

// What a cap allows the driver allows too, and so through changes.
func TestDriverLimitFollowsLiveCaps(t *testing.T) {
	n := limited(t)
	b := n.Bundle("web", map[string]string{"weir/memory": "32MiB"}, nil)
	p := b.Puppet()
	p.OK("init")
	wantHeld(n, t, b.Name(), limitOver(32*mib, 1))
	p.OK("hog %d", mib) // all that the cap allows, by the library
	p.OK("free-all")
	n.SetCap(b.Name(), "128MiB")
	wantHeld(n, t, b.Name(), limitOver(128*mib, 1))
	p.OK("alloc %d", 120*mib)
	n.SetCap(b.Name(), "16MiB")
	wantHeld(n, t, b.Name(), limitOver(16*mib, 1))
	p.OK("via walk")
	if code := p.Code("alloc %d", mib); code != 2 {
		t.Errorf("over a cap that has fallen: code %d, want 2 (out of memory)", code)
	}
	n.MustWeir("caps", "unset", b.Name(), "--memory")
	wantHeld(n, t, b.Name(), 0)
	p.OK("alloc %d", 64*mib)
}

// A limit outlives the agent, and does not outlive its container.
func TestDriverLimitOverAgents(t *testing.T) {
	n := limited(t)
	b := n.Bundle("web", map[string]string{"weir/memory": "32MiB"}, nil)
	p := b.Puppet()
	p.OK("init")
	wantHeld(n, t, b.Name(), limitOver(32*mib, 1))
	n.KillAgent()
	p.OK("via walk")
	if code := p.Code("alloc %d", 40*mib); code != 2 {
		t.Errorf("while no agent runs: code %d, want 2 (out of memory)", code)
	}
	n.StartAgent()
	wantHeld(n, t, b.Name(), limitOver(32*mib, 1))
	n.SetCap(b.Name(), "64MiB")
	wantHeld(n, t, b.Name(), limitOver(64*mib, 1))
	n.KillAgent()
	p.Leave()
	n.Eventually(func() string {
		books, err := sim.Status(n.SimDir)
		if err != nil || len(books.LivePIDs) > 0 {
			return fmt.Sprintf("processes %v live, %v", books.LivePIDs, err)
		}
		return ""
	})
	n.StartAgent()
	wantHeld(n, t, b.Name(), 0)
	n.Eventually(func() string {
		if left := n.Containers(); len(left) > 0 {
			return fmt.Sprintf("left is %+v", left)
		}
		return ""
	})
}

// Containers of ctr and in pods have the driver's limit, too, and it ends with them.
func TestDriverLimitUnderContainerd(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		n := limited(t)
		d := ctrd.Start(t, g, n, ctrd.Options{Mode: "runtime"})
		for way, starter := range ways(d) {
			t.Run(way, func(t *testing.T) {
				n := n.For(t)
				p := starter.For(t).Container(node.Wish{Name: "web", Annotations: memory("32MiB")}).Puppet()
				p.OK("init")
				wantHeld(n, t, "web", limitOver(32*mib, 1))
				p.OK("via walk") // past the library, which is in it
				p.OK("alloc %d", 24*mib)
				if code := p.Code("alloc %d", 16*mib); code != outOfMemory {
					t.Errorf("past the cap and the library: code %d, want 2 (out of memory)", code)
				}
				n.SetCap("web", "64MiB")
				wantHeld(n, t, "web", limitOver(64*mib, 1))
				p.Leave()
				wantHeld(n, t, "web", 0)
			})
		}
	})
}

// A driver that holds no limits leaves caps to the library.
func TestDriverWithoutLimits(t *testing.T) {
	node.NeedRunc(t)
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
	b := n.Bundle("web", map[string]string{"weir/memory": "32MiB"}, nil)
	p := b.Puppet()
	p.OK("init")
	c := n.Container(b.Name())
	if !c.Enforced || c.EnforcedBy == nil || *c.EnforcedBy != control.ByLibrary || c.GPUs[0].DriverLimitBytes != nil {
		t.Errorf("%+v", c)
	}
	if failed := n.EventsOf("driver-limit", b.Name()); len(failed) > 0 {
		t.Errorf("%+v", failed)
	}
}
