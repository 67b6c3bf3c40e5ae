package e2e

// That a container with swap has no more on the card than its cap, by the simulated machine's books, which are looked at
// each few milliseconds: whatever brings memory there, and but for what faults bring, which the container's books tell.

import (
	"sync"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// capWatch samples a program's memory on the card.
type capWatch struct {
	most    int64         // above its cap, in bytes
	longest time.Duration // above it without a break
	last    time.Time     // when it was last seen above it
	samples int
	stop    func()
}

func watchCap(n *node.Node, p *node.Puppet, limit int64) *capWatch {
	w, done := &capWatch{}, make(chan struct{})
	var sampled sync.WaitGroup
	w.stop = func() { close(done); sampled.Wait() }
	sampled.Go(func() {
		var since time.Time // when it was first seen above its cap
		for {
			process, _ := n.Card(0).Process(p.PID())
			above := process.AllocatedBytes + process.Managed.ResidentBytes - limit
			now := time.Now()
			if above <= swapMiB { // a context's few bytes, and what is rounded up
				since = time.Time{}
			} else {
				if w.last = now; since.IsZero() {
					since = now
				}
				w.longest = max(w.longest, now.Sub(since))
			}
			w.most, w.samples = max(w.most, above), w.samples+1
			select {
			case <-done:
				return
			case <-time.After(3 * time.Millisecond):
			}
		}
	})
	return w
}

// Plain memory that does not fit beside a program's own movable memory waits until that has gone: in no sample does the
// program have more on the card than its cap.
func TestSwapPlainMemoryWaitsForRoom(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "")
	p := swapper(t, n, "waits", 8) // 64 MiB: all of its cap
	usePieces(p, 8, 2)
	if got := onCard(n, p); got < 56*swapMiB {
		t.Fatalf("%d bytes lie on the card", got)
	}
	w := watchCap(n, p, 64*swapMiB)
	for range 24 {
		p.OK("alloc %d", swapMiB) // too small to move
		time.Sleep(5 * time.Millisecond)
	}
	w.stop()
	if w.longest > 10*time.Millisecond || w.samples < 3 {
		t.Errorf("above its cap for %s, by %d bytes at most, in %d samples", w.longest, w.most, w.samples)
	}
	comparePieces(t, p, 8)
}

// Whatever brings a container's memory to the card, it is soon within its cap, stays there, and what was above is told: by
// figure and event. A program that only copies used to have a piece too much there for good.
func TestSwapOfCopiesKeepsTheCap(t *testing.T) {
	t.Parallel()
	const limit, count = 64 * swapMiB, 14 // of 8 MiB: 112 of 128
	rounds := func(p *node.Puppet, each ...string) {
		for i := range 2 * count {
			for _, command := range each {
				p.OK(command+" %d 1", i%count)
			}
		}
	}
	for name, use := range map[string]func(p *node.Puppet){
		"copies":  func(p *node.Puppet) { rounds(p, "fill") },
		"sets":    func(p *node.Puppet) { rounds(p, "set") },
		"streams": func(p *node.Puppet) { rounds(p, "push"); p.OK("fill 0 1") },
		"reads":   func(p *node.Puppet) { rounds(p, "check") },
		"beside":  func(p *node.Puppet) { rounds(p, "fill", "use") },
		"slowly": func(p *node.Puppet) {
			for i := range count {
				p.OK("fill %d 1", i)
				time.Sleep(30 * time.Millisecond)
			}
		},
		// As a program that is idle, whose lease is over when its use is told.
		"seldom": func(p *node.Puppet) {
			rounds(p, "fill")
			for i := range 3 {
				time.Sleep(1300 * time.Millisecond)
				p.OK("fill %d 1", i)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := swapNode(t, "")
			p := n.AsPuppet(n.Run(node.RunOptions{Name: "copier", Memory: "64MiB", Flags: []string{"--swap", "64MiB"}},
				node.Build(t, "e2e/prober")))
			p.OK("init 0")
			for range count {
				p.OK("alloc %d", 8*swapMiB)
			}
			w := watchCap(n, p, limit)
			use(p)
			ended := time.Now()
			n.Eventually(func() string {
				if got := onCard(n, p); got > limit {
					return "more is on the card than its cap"
				}
				return ""
			})
			time.Sleep(300 * time.Millisecond)
			w.stop()
			settled, told := w.last.Sub(ended), *n.Container("copier").GPUs[0].Swap.OverCapMostBytes
			t.Logf(name+": above for %s, by %d KiB, %d KiB of it told; %s after the last use; %d samples", w.longest, w.most>>10, told>>10,
				settled, w.samples)
			if settled > 2*time.Second || w.samples < 3 {
				t.Errorf("above its cap until %s after it used anything, in %d samples", settled, w.samples)
			}
			if w.most > told+swapMiB || w.most > swapMiB && len(n.EventsOf("over-cap", "copier")) == 0 {
				t.Errorf("%d bytes above its cap, and %d were told: %s", w.most, told, n.MustWeir("events"))
			}
		})
	}
}
