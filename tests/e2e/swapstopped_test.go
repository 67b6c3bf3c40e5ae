package e2e

// A process with swap that is stopped by SIGSTOP, beside another of its container and other containers: nobody waits for
// its answers for long, and once it goes on all is as before.

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// fillPieces gives a prober so many allocations of 8 MiB, filled by their numbers.
func fillPieces(p *node.Puppet, count int) {
	p.OK("init 0")
	fillAll(p, count)
}

// inOut is what the books say of how much of a program's memory was moved by plan, to the card and from it.
func inOut(n *node.Node, p *node.Puppet) (in, out int64) {
	process, _ := n.Card(0).Process(p.PID())
	return process.Managed.PrefetchInBytes, process.Managed.PrefetchOutBytes
}

// roundsOf has two programs use all of their memory in turn until the time is over. How many rounds there were, and how long
// the longest use of all of a program's memory took.
func roundsOf(window time.Duration, a, b *node.Puppet, counts ...int) (rounds int, longest time.Duration) {
	for end := time.Now().Add(window); time.Now().Before(end); rounds++ {
		for i, p := range []*node.Puppet{a, b} {
			began := time.Now()
			usePieces(p, counts[i], 2)
			longest = max(longest, time.Since(began))
		}
	}
	return rounds, longest
}

// Of two processes of a container one is stopped while its memory is on the card. Another container does not fit beside the
// second process: with who is stopped out of the way both have their leases, their memory moves, and `swap-silent` names who
// does not answer.
func TestSwapOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	const (
		few, count = 2, 9            // pieces of 8 MiB: of who is stopped, and of each of the others
		longest    = 3 * time.Second // the most that others may wait: for an answer and a drain of who is stopped
	)
	n := swapNode(t, "")
	options := node.RunOptions{Name: "two", Memory: "96MiB", Flags: []string{"--swap", "64MiB"}}
	two := n.Troupe(2, options, node.Build(t, "e2e/prober"))
	stopped, other := two[0], two[1]
	far := n.AsPuppet(n.Run(node.RunOptions{Name: "far", Memory: "96MiB", Flags: []string{"--swap", "64MiB"}},
		node.Build(t, "e2e/prober")))
	fillPieces(stopped, few)
	fillPieces(other, count)
	fillPieces(far, count+1)
	usePieces(stopped, few, 2)
	n.Eventually(func() string { // it is stopped at rest: see T4 for one that is stopped in its turn
		for _, flow := range n.Queue() {
			if flow.Container == "two" && flow.State != "idle" {
				return "its container is " + flow.State
			}
		}
		return ""
	})
	stopped.Signal(syscall.SIGSTOP)
	var waited time.Duration
	n.Eventually(func() string {
		_, took := roundsOf(100*time.Millisecond, other, far, count, count+1)
		waited = max(waited, took)
		for _, event := range n.EventsOf("swap-silent", "two") {
			if event.PID == stopped.PID() {
				return ""
			}
		}
		return "no event names who is stopped: " + n.MustWeir("events")
	})

	in, out := inOut(n, other)
	rounds, took := roundsOf(2*time.Second, other, far, count, count+1)
	nowIn, nowOut := inOut(n, other)
	waited = max(waited, took)
	t.Logf("simulated: %d rounds in 2 s, the longest use of all took %s; of the other process %d bytes came and %d went", rounds,
		waited, nowIn-in, nowOut-out)
	if nowIn == in || nowOut == out {
		t.Errorf("the memory of the other process does not move: %d bytes came, %d went", nowIn-in, nowOut-out)
	}
	if waited > longest {
		t.Errorf("a use of memory took %s", waited)
	}
	comparePieces(t, far, count+1)
	comparePieces(t, other, count)

	stopped.Signal(syscall.SIGCONT)
	_, out = inOut(n, stopped)
	n.Eventually(func() string {
		usePieces(stopped, few, 2)
		roundsOf(100*time.Millisecond, other, far, count, count+1)
		if _, now := inOut(n, stopped); now == out {
			return fmt.Sprintf("the memory of who was stopped does not move: %d bytes went so far", now)
		}
		return ""
	})
	for p, pieces := range map[*node.Puppet]int{stopped: few, other: count, far: count + 1} {
		comparePieces(t, p, pieces)
	}
}
