package cases

// Rows C again, with containerd of two generations: by ctr, and in pods of the CRI.

import (
	"slices"
	"testing"

	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
)

// containerRows are those of containers_test.go, libraries_test.go and swap_containers_test.go.
var containerRows = []struct {
	name string
	play func(stage)
}{
	{"C1C10", rowC1C10}, {"C2", rowC2}, {"C3", rowC3}, {"C4", rowC4}, {"C5", rowC5}, {"C6", rowC6},
	{"C7", rowC7}, {"C8", rowC8}, {"C9", rowC9}, {"C11", rowC11}, {"C12", rowC12}, {"U8", rowU8},
}

// hookRows are those which say something of containers that hooks of weir's are run for, asked or not.
var hookRows = []string{"C1C10", "C2", "C3", "C4", "C6", "C8", "C12", "U8"}

func TestContainerdRows(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
		d := ctrd.Start(t, g, n, ctrd.Options{Mode: "runtime", Hooks: true})
		play(t, "ctr", n, ctrd.Ctr{Daemon: d}, nil)
		play(t, "pod", n, ctrd.CRI{Daemon: d}, nil)
		play(t, "hooked-pod", n, ctrd.CRI{Daemon: d, Handler: ctrd.Hooked}, hookRows)
	})
}

func TestContainerdRowsByCDI(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		if g.Plain {
			t.Skip("containerd before 1.7 knows no CDI")
		}
		n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
		d := ctrd.Start(t, g, n, ctrd.Options{Mode: "cdi"})
		if !g.Old { // its ctr takes such a name for a file
			play(t, "ctr", n, ctrd.Ctr{Daemon: d, Runtime: "runc", CDI: d.CDI(), Flags: []string{"--device", "weir/gpu=0"}}, hookRows)
		}
		play(t, "pod", n, ctrd.CRI{Daemon: d, Handler: "-", Devices: []string{"weir/gpu=0"}}, hookRows)
	})
}

// play plays rows, or all, in one way of starting containers.
func play(t *testing.T, way string, n *node.Node, s node.Starter, only []string) {
	for _, row := range containerRows {
		if only != nil && !slices.Contains(only, row.name) {
			continue
		}
		t.Run(way+"-"+row.name, func(t *testing.T) {
			n := n.For(t)
			n.Configure("")
			row.play(stage{t, n, s.For(t)})
		})
	}
}
