package e2e

// Swap as an operator sets it: what is refused, and what changes while programs run.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

const swapMiB = 1 << 20

// swapNode has a card of 128 MiB.
func swapNode(t *testing.T, config string) *node.Node {
	t.Helper()
	return node.Start(t, node.Options{Machine: node.Machine("128MiB", "512B"), Config: config})
}

// swapper starts a program with so many allocations of 8 MiB, filled, under a cap of 64 MiB and swap of as much.
func swapper(t *testing.T, n *node.Node, name string, count int) *node.Puppet {
	t.Helper()
	options := node.RunOptions{Name: name, Memory: "64MiB", Flags: []string{"--swap", "64MiB"}}
	p := n.AsPuppet(n.Run(options, node.Build(t, "e2e/prober")))
	p.OK("init 0")
	for i := range count {
		p.OK("alloc %d", 8*swapMiB)
		p.OK("fill %d %d", i, i)
	}
	return p
}

func usePieces(p *node.Puppet, count, ms int) {
	for i := range count {
		p.OK("use %d %d", i, ms)
	}
}

func comparePieces(t *testing.T, p *node.Puppet, count int) {
	t.Helper()
	for i := range count {
		if wrong := p.Number("check %d %d", i, i); wrong != 0 {
			t.Errorf("%d bytes of allocation %d are wrong", wrong, i)
		}
	}
}

// onCard is how much of a program's managed memory lies on the card, by the machine's books.
func onCard(n *node.Node, p *node.Puppet) int64 {
	process, _ := n.Card(0).Process(p.PID())
	return process.Managed.ResidentBytes
}

// More swap than the node's host limit is refused, with both figures, by `run` and by `caps set`.
func TestSwapLargerThanTheHostsLimit(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "swap_host_limit = \"96MiB\"\n")
	out := n.Weir("run", "--name", "large", "--memory", "64MiB", "--swap", "128MiB", "--", "/bin/true")
	if out.Code == 0 || !strings.Contains(out.Stderr, "96MiB") || !strings.Contains(out.Stderr, "swap") {
		t.Errorf("run: exit %d: %q", out.Code, out.Stderr)
	}
	p := swapper(t, n, "small", 10)
	out = n.Weir("caps", "set", "small", "--swap", "128MiB")
	if out.Code == 0 || !strings.Contains(out.Stderr, "96MiB") {
		t.Errorf("caps set: exit %d: %q", out.Code, out.Stderr)
	}
	comparePieces(t, p, 10)
}

// Where a container has no cap, there is nothing to be beyond of.
func TestSwapWithoutACap(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "")
	if out := n.Weir("run", "--swap", "64MiB", "--", "/bin/true"); out.Code != 2 && out.Code != 1 {
		t.Errorf("exit %d: %q", out.Code, out.Stderr)
	}
}

// A cap that is lowered below the working set of a program that runs: the program goes on, and what is above the cap
// goes to the host.
func TestSwapCapIsLoweredWhileItRuns(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "")
	p := swapper(t, n, "shrinks", 8) // 64 MiB: all of its cap
	usePieces(p, 8, 2)
	if got := onCard(n, p); got != 64*swapMiB {
		t.Fatalf("%d bytes lie on the card", got)
	}
	n.MustWeir("caps", "set", "shrinks", "--memory", "24MiB")
	n.Eventually(func() string {
		if got := onCard(n, p); got > 24*swapMiB {
			return fmt.Sprintf("%d bytes still lie on the card", got)
		}
		return ""
	})
	usePieces(p, 3, 2) // what fits
	comparePieces(t, p, 8)
	usePieces(p, 8, 1)
	n.Eventually(func() string {
		if got := onCard(n, p); got > 24*swapMiB {
			return fmt.Sprintf("%d bytes lie on the card again", got)
		}
		return ""
	})
	n.MustWeir("caps", "set", "shrinks", "--memory", "64MiB")
	usePieces(p, 8, 2)
	comparePieces(t, p, 8)
}

// While it has work on the GPU without end, and nobody else wants the GPU.
func TestSwapCapIsLoweredUnderABusyProgram(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "")
	p := swapper(t, n, "busy", 6)
	usePieces(p, 6, 1)
	p.Tell("use 0 3000") // three seconds of one piece
	time.Sleep(200 * time.Millisecond)
	n.MustWeir("caps", "set", "busy", "--memory", "16MiB")
	n.Eventually(func() string {
		if got := onCard(n, p); got > 16*swapMiB {
			return fmt.Sprintf("%d bytes still lie on the card", got)
		}
		return ""
	})
	if code := p.Answer(); code != 0 {
		t.Errorf("the program has failed with %d", code)
	}
	comparePieces(t, p, 6)
}

// Swap is not turned off while memory lies on the host: that is refused with the amount, unless it is to come back first.
func TestSwapIsTurnedOff(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "")
	p := swapper(t, n, "off", 12) // 96 MiB, which is 32 MiB more than its cap
	refused := func(words ...string) {
		t.Helper()
		for _, arguments := range [][]string{{"caps", "set", "off", "--swap", "0"}, {"caps", "unset", "off", "--swap"}} {
			out := n.Weir(arguments...)
			for _, word := range words {
				if out.Code == 0 || !strings.Contains(out.Stderr, word) {
					t.Errorf("%v: exit %d, without %q: %q", arguments, out.Code, word, out.Stderr)
				}
			}
		}
	}
	refused("32MiB") // nothing could bring it back
	for i := 6; i < 12; i++ {
		p.OK("free %d", i)
	}
	usePieces(p, 6, 1)
	// 48 MiB are left. Another program needs 96 of the card's 128, so some of it has to go.
	q := n.AsPuppet(n.Run(node.RunOptions{Name: "big", Memory: "112MiB", Flags: []string{"--swap", "64MiB"}},
		node.Build(t, "e2e/prober")))
	q.OK("init 0")
	for i := range 12 {
		q.OK("alloc %d", 8*swapMiB)
		q.OK("fill %d %d", i, i)
	}
	usePieces(q, 12, 2)
	n.Eventually(func() string {
		if there := onCard(n, p); there >= 40*swapMiB {
			return fmt.Sprintf("%d bytes lie on the card", there)
		}
		return ""
	})
	refused("--drain", "MiB")
	n.MustWeir("caps", "set", "off", "--swap", "0", "--drain")
	n.Eventually(func() string {
		if got := onCard(n, p); got != 48*swapMiB {
			return fmt.Sprintf("%d bytes lie on the card, of 48 MiB", got)
		}
		if len(n.EventsOf("swap-drained", "off")) == 0 {
			return "no event says that all is back: " + n.MustWeir("events")
		}
		return ""
	})
	comparePieces(t, p, 6)
	comparePieces(t, q, 12)
	if code := p.Code("alloc %d", 32*swapMiB); code != 2 {
		t.Errorf("beyond the cap, without swap: code %d", code)
	}
}

// Swap is given to a program that runs: what it takes from then on may lie on the host.
func TestSwapIsTurnedOn(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "")
	p := n.AsPuppet(n.Run(node.RunOptions{Name: "on", Memory: "64MiB"}, node.Build(t, "e2e/prober")))
	p.OK("init 0")
	p.OK("alloc %d", 48*swapMiB)
	p.OK("fill 0 0")
	if code := p.Code("alloc %d", 48*swapMiB); code != 2 {
		t.Fatalf("beyond the cap: code %d", code)
	}
	n.MustWeir("caps", "set", "on", "--swap", "64MiB")
	n.Eventually(func() string {
		if code := p.Code("alloc %d", 48*swapMiB); code != 0 {
			return fmt.Sprintf("with swap: code %d", code)
		}
		return ""
	})
	p.OK("fill 1 1")
	p.OK("use 1 2")
	comparePieces(t, p, 2)
}
