package cases

// U5 to U8: how much moves, what is refused, and what programs see of it.

import (
	"fmt"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

// movedIn is what came to the card for programs, by faults and ahead of use, and what of it came by faults.
func movedIn(t *testing.T, n *node.Node, programs ...*node.Puppet) (all, faulted int64) {
	t.Helper()
	gpu := books(t, n).GPUs[0]
	for _, p := range programs {
		process, _ := gpu.Process(p.PID())
		all += process.Managed.FaultInBytes + process.Managed.PrefetchInBytes
		faulted += process.Managed.FaultInBytes
	}
	return all, faulted
}

// set gives a program so many allocations of 8 MiB, filled.
func set(p *node.Puppet, count int) {
	p.OK("init 0")
	for i := range count {
		p.OK("alloc %d", 8*mib)
		p.OK("fill %d %d", i, i)
	}
}

// pass has it use all of them for some ms each.
func pass(p *node.Puppet, count, ms int) {
	for i := range count {
		p.OK("use %d %d", i, ms)
	}
}

func whole(t *testing.T, p *node.Puppet, count int) {
	t.Helper()
	for i := range count {
		if wrong := p.Number("check %d %d", i, i); wrong != 0 {
			t.Errorf("%d bytes of allocation %d are wrong", wrong, i)
		}
	}
}

// U5: sets that fit the card together stay there. (What that takes of the time is in `make bench SECTION=swap`.)
func TestU5SetsThatFitStay(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "")
	a, b := prober(n, t, "a"), prober(n, t, "b")
	set(a, 4)
	set(b, 4)
	converted(t, n, a)
	pass(a, 4, 1)
	pass(b, 4, 1)
	before, _ := movedIn(t, n, a, b)
	for range 10 {
		pass(a, 4, 3)
		pass(b, 4, 3)
	}
	if now, _ := movedIn(t, n, a, b); now != before {
		t.Errorf("%d bytes came to the card though all fits", now-before)
	}
	whole(t, a, 4)
	whole(t, b, 4)
}

// U6: two programs in turn that have one and a half of the card together: for neither more comes in its turn than its
// set, however often they take turns.
func TestU6NoThrash(t *testing.T) {
	t.Parallel()
	const count, turns = 12, 12 // 96 MiB of 128 each
	n := swapNode(t, "")
	var programs []*node.Puppet
	for _, name := range []string{"a", "b"} {
		options := node.RunOptions{Name: name, Memory: "112MiB", Flags: []string{"--swap", "64MiB"}}
		p := n.AsPuppet(n.Run(options, node.Build(t, "e2e/prober")))
		set(p, count)
		converted(t, n, p)
		programs = append(programs, p)
	}
	for i := range turns {
		p := programs[i%2]
		before, _ := movedIn(t, n, programs...)
		for range 3 {
			pass(p, count, 1)
		}
		now, _ := movedIn(t, n, programs...)
		if moved := now - before; moved > count*8*mib {
			t.Errorf("turn %d: %d bytes came to the card for a set of %d", i+1, moved, count*8*mib)
		}
	}
	for _, p := range programs {
		whole(t, p, count)
	}
}

// U7: where the host has no more for what could be swapped out, an allocation is refused as one beyond the cap is, with
// an event, and nothing else happens to anybody.
func TestU7HostMemoryRunsOut(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "swap_host_limit = \"96MiB\"\n")
	a, b := prober(n, t, "a"), prober(n, t, "b")
	set(a, 8)
	set(b, 4)
	converted(t, n, a)
	if code := b.Code("alloc %d", 8*mib); code != 2 {
		t.Fatalf("beyond the host's limit: code %d, want out of memory", code)
	}
	n.Eventually(func() string {
		for _, event := range n.EventsOf("denied", "b") {
			if strings.Contains(fmt.Sprint(event), "host") {
				return ""
			}
		}
		return "no event says that the host has no more: " + n.MustWeir("events")
	})
	pass(a, 8, 1)
	pass(b, 4, 1)
	whole(t, a, 8)
	whole(t, b, 4)
	a.OK("free 0")
	b.OK("alloc %d", 8*mib)
}

// U7: the end of a process, however it ends, leaves nothing of the host's memory charged.
func TestU7KilledProgramsGiveTheHostsMemoryBack(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "swap_host_limit = \"96MiB\"\n")
	for i := range 4 {
		p := prober(n, t, fmt.Sprint("killed-", i))
		p.OK("init 0")
		n.Eventually(func() string {
			if code := p.Code("alloc %d", 64*mib); code != 0 {
				return fmt.Sprintf("the rest of an ended program is still charged: code %d", code)
			}
			return ""
		})
		p.Kill()
	}
}

// U8: a framework that takes 90 % of the total that is reported. By default that is the cap, and nothing is swapped;
// with report=virtual it is cap and swap, and works.
func TestU8FrameworkThatTakesMostOfTheTotal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags []string
		total int64
	}{{nil, swapCap}, {[]string{"--report", "cap"}, swapCap}, {[]string{"--report", "virtual"}, swapCap + swapMore}} {
		t.Run(fmt.Sprint(c.flags), func(t *testing.T) {
			n := swapNode(t, "")
			p := prober(n, t, "framework", c.flags...)
			p.OK("init 0")
			report := p.Numbers("report")
			if report[1] != c.total || report[2] != c.total {
				t.Errorf("it is told totals of %d and %d, want %d", report[1], report[2], c.total)
			}
			taken := p.Numbers("fit 90")
			if taken[1] != 0 || taken[0] != c.total/100*90/(2*mib) {
				t.Fatalf("it got %d pieces of 2 MiB, then code %d", taken[0], taken[1])
			}
			for i := range int(taken[0]) {
				p.OK("fill %d %d", i, i)
			}
			pass(p, int(taken[0]), 1)
			process, _ := books(t, n).GPUs[0].Process(p.PID())
			out := process.Managed.PrefetchOutBytes + process.Managed.EvictedBytes
			if c.total == swapCap && out != 0 {
				t.Errorf("%d bytes were swapped out of a program that keeps to what it is told", out)
			}
			whole(t, p, int(taken[0]))
			if after := p.Numbers("report"); after[0] > after[1]-taken[0]*2*mib {
				t.Errorf("%d of %d bytes are reported as free", after[0], after[1])
			}
		})
	}
}
