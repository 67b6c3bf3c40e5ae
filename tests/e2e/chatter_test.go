package e2e

// Tenants that say anything of GPU time.

import (
	"fmt"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// worker starts a program that works on the GPU and never waits (tests/gpu/programs/worker.c): what it
// does alone, in kernels a second, is known when this returns.
func worker(t *testing.T, n *node.Node, name string, kernel time.Duration) (p *node.Program, alone float64) {
	p = n.Run(node.RunOptions{Name: name}, node.Build(t, "gpu/worker"), number(kernel.Nanoseconds()), "64")
	if _, err := fmt.Sscanf(p.Line(), "alone %f", &alone); err != nil {
		t.Fatal(err)
	}
	return p, alone
}

// Containers that flood the agent with messages of GPU time, in order or not, and read its answers or not, keep
// nobody else from working.
func TestNonsenseOfTurns(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{})
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	a, aloneA := worker(t, n, "a", time.Millisecond)
	b, aloneB := worker(t, n, "b", 200*time.Microsecond)
	var chatters []*node.Program
	for i, way := range []string{"read", "read", "deaf"} {
		chatter := n.Run(node.RunOptions{Name: fmt.Sprint("chatter", i)}, node.Build(t, "e2e/chatter"), number(seed+int64(i)), way)
		if line := chatter.Line(); line != "welcome" {
			t.Fatalf("chatter says %q", line)
		}
		chatters = append(chatters, chatter)
	}
	a.Send("go")
	b.Send("go")
	time.Sleep(2 * time.Second)
	done := func(p *node.Program, alone float64) float64 {
		var kernels, ns int64
		p.Send("mark")
		if _, err := fmt.Sscanf(p.Line(), "marked %d %d", &kernels, &ns); err != nil {
			t.Fatal(err)
		}
		return float64(kernels) / alone
	}
	beforeA, beforeB := done(a, aloneA), done(b, aloneB)
	const span = 5
	time.Sleep(span * time.Second)
	gotA, gotB := (done(a, aloneA)-beforeA)/span, (done(b, aloneB)-beforeB)/span
	t.Logf("simulated: %.3f and %.3f of a GPU, beside three that only talk", gotA, gotB)
	for i, chatter := range chatters {
		if code, lines := chatter.Wait(10 * time.Second); code != 0 {
			t.Errorf("chatter %d ends with %d: %v", i, code, lines)
		}
	}
	if min(gotA, gotB) <= 0 {
		t.Error("one of them has got nothing done")
	}
	n.AgentAlive()
}
