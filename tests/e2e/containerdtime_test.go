package e2e

// Two containers of containerd share a GPU by the weights of their annotations: by ctr, or in pods.

import (
	"math"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
)

func TestContainerdWeights(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		d := containerd(t, g, "runtime")
		if g.Old {
			oneToThree(t, d.Node, ctrd.Ctr{Daemon: d})
		} else {
			oneToThree(t, d.Node, ctrd.CRI{Daemon: d})
		}
	})
}

// oneToThree measures until the shares are as wanted. The processes are told apart by when they came: each has its own
// pid namespace.
func oneToThree(t *testing.T, n *node.Node, s node.Starter) {
	const window, off, tries = 3 * time.Second, 6.0, 3
	known := len(n.Books().GPUs[0].Processes)
	var flows []*node.Flow
	for _, weight := range []string{"1", "3"} {
		wish := node.Wish{Name: "weight-" + weight, Args: n.FlowProgram(),
			Annotations: map[string]string{"weir/weight": weight, "weir/memory": "64MiB"}}
		flow := n.AsFlow(wish.Name, n.AsInnerPuppet(s.Container(wish).Start()), 0)
		flow.Play(node.Hog)
		flows = append(flows, flow)
	}
	time.Sleep(time.Second)
	for range tries {
		before := n.Books().GPUs[0].Processes
		time.Sleep(window)
		after := n.Books().GPUs[0].Processes
		if len(before) != known+2 || len(after) != len(before) {
			t.Fatalf("the books have %d processes, then %d; want %d", len(before), len(after), known+2)
		}
		light := float64(after[known].BusyNS - before[known].BusyNS)
		heavy := float64(after[known+1].BusyNS - before[known+1].BusyNS)
		share := 100 * light / (light + heavy)
		t.Logf("simulated: weight 1 beside weight 3 has %.1f %% of the GPU's time", share)
		if math.Abs(share-25) <= off {
			return
		}
	}
	t.Errorf("%d times weight 1 beside weight 3 did not get 25 %% +- %.0f", tries, off)
	for _, flow := range flows {
		t.Logf("%+v", flow.Queue(0))
	}
}

// What is no weight keeps a container from starting.
func TestContainerdBadWeights(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		d := containerd(t, g, "runtime")
		starter := ctrd.Ctr{Daemon: d}
		for i, weight := range []string{"0", "-1", "NaN", "1e30"} {
			name := "bad-weight-" + strings.Repeat("i", i+1)
			refused(t, d.Node, starter, node.Wish{Name: name, Annotations: map[string]string{"weir/weight": weight}}, "0.001")
		}
	})
}
