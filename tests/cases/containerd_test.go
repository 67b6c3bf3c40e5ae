package cases

// Rows C again, with containerd of two generations: by ctr, and in pods of the CRI.

import (
	"testing"

	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
)

// containerRows are those of containers_test.go.
var containerRows = []struct {
	name string
	play func(stage)
}{
	{"C1C10", rowC1C10}, {"C2", rowC2}, {"C3", rowC3}, {"C4", rowC4}, {"C5", rowC5}, {"C7", rowC7}, {"C8", rowC8},
	{"C9", rowC9}, {"C12", rowC12},
}

func TestContainerdRows(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
		d := ctrd.Start(t, g, n, ctrd.Options{Mode: "runtime"})
		for _, way := range []struct {
			name    string
			starter node.Starter
		}{{"ctr", ctrd.Ctr{Daemon: d}}, {"pod", ctrd.CRI{Daemon: d}}} {
			for _, row := range containerRows {
				t.Run(way.name+"-"+row.name, func(t *testing.T) {
					row.play(stage{t, n.For(t), way.starter.For(t), false})
				})
			}
		}
	})
}
