package e2e

// Swap in programs with several contexts, threads, processes and cards.

import (
	"fmt"
	"testing"

	"weir/tests/e2e/node"
)

// fillAll gives a program so many allocations of 8 MiB in its current context, filled by their numbers.
func fillAll(p *node.Puppet, count int) {
	for range count {
		slot := p.Number("alloc %d", 8*swapMiB)
		p.OK("fill %d %d", slot, slot)
	}
}

// Three contexts of one card, each with a thread of its own, use 96 MiB of which 32 may lie on it: all data stay whole, also
// beside a child, and beside the end of one of them while memory moves.
func TestSwapOfSeveralContexts(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "")
	options := node.RunOptions{Name: "many", Memory: "32MiB", Flags: []string{"--swap", "64MiB"}}
	p := n.AsPuppet(n.Run(options, node.Build(t, "e2e/prober")))
	p.OK("init 0")
	fillAll(p, 4)
	for range 2 {
		p.OK("context 0")
		fillAll(p, 4)
	}
	for context := range 3 {
		p.OK("turns %d 300", context)
	}
	p.OK("await")
	comparePieces(t, p, 12)
	if code := p.Number("fork"); code == 0 {
		t.Error("a child has memory of its parent's contexts")
	}
	comparePieces(t, p, 12)
	n.Eventually(func() string {
		process, _ := n.Card(0).Process(p.PID())
		if m := process.Managed; m.PrefetchOutBytes == 0 || m.ResidentBytes > 32*swapMiB {
			return fmt.Sprintf("%d bytes were swapped out, and %d are on the card, where it may have 32 MiB", m.PrefetchOutBytes, m.ResidentBytes)
		}
		return ""
	})
	p.OK("turns 0 400")
	p.OK("turns 1 400")
	p.OK("destroy 2")
	p.OK("await")
	p.OK("current 0")
	comparePieces(t, p, 8)
	fillAll(p, 4) // what the context had is free again
	comparePieces(t, p, 12)
	if code := p.Code("alloc %d", 8*swapMiB); code != 2 {
		t.Errorf("beyond cap and swap: code %d", code)
	}
}

// Two programs that use two cards each, with caps and swap of their own on each card: memory moves on both at once, leases
// are had on both, and copies go from card to card.
func TestSwapOnTwoCards(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Machine: node.Machine("128MiB", "512B") + node.Card("128MiB", "512B")})
	var programs []*node.Puppet
	for _, name := range []string{"a", "b"} {
		options := node.RunOptions{Name: name, Memory: "96MiB,1=88MiB", Flags: []string{"--swap", "32MiB"}}
		p := n.AsPuppet(n.Run(options, node.Build(t, "e2e/prober")))
		p.OK("init 0")
		fillAll(p, 9)
		p.OK("context 1")
		fillAll(p, 9)
		programs = append(programs, p)
	}
	for _, p := range programs {
		p.OK("turns 0 1500")
		p.OK("turns 1 1500")
	}
	for _, p := range programs {
		p.OK("await")
	}
	for i, p := range programs {
		p.OK("turns 0 300")
		for range 3 {
			p.OK("peer 12 %d", i)
			p.OK("peer %d 12", i)
		}
		p.OK("await")
		p.OK("fill 12 12")
	}
	for card := range 2 {
		if card := n.Card(card); card.ResidentBytes > 128*swapMiB {
			t.Errorf("%d bytes lie on card %d", card.ResidentBytes, card.Index)
		}
		for _, p := range programs {
			process, _ := n.Card(card).Process(p.PID())
			if m := process.Managed; m.PrefetchInBytes == 0 || m.PrefetchOutBytes == 0 {
				t.Errorf("card %d, of one program: %+v", card, m)
			}
		}
	}
	for _, p := range programs {
		comparePieces(t, p, 18)
		for card, most := range []int{4, 3} {
			p.OK("current %d", card)
			for range most {
				p.OK("alloc %d", 8*swapMiB)
			}
		}
		if code := p.Code("alloc %d", 32*swapMiB); code != 2 {
			t.Errorf("beyond cap and swap of card 1: code %d", code)
		}
	}
}
