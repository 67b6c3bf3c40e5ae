package ctrd

// The harness itself, and the least that it is for.

import (
	"testing"

	"weir/tests/e2e/node"
)

const mib = 1 << 20

// start is a node and a containerd that weir is configured for.
func start(t *testing.T, g Generation, mode string) *Daemon {
	t.Helper()
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
	return Start(t, g, n, Options{Mode: mode})
}

func TestCapped(t *testing.T) {
	Each(t, func(t *testing.T, g Generation) {
		d := start(t, g, "runtime")
		for name, starter := range map[string]node.Starter{"ctr": Ctr{Daemon: d}, "cri": CRI{Daemon: d}} {
			c := starter.Container(node.Wish{Name: name, Annotations: map[string]string{"weir/memory": "32MiB"}})
			p := c.Puppet()
			p.OK("init")
			p.OK("alloc %d", 24*mib)
			if code := p.Code("alloc %d", 16*mib); code != 2 {
				t.Errorf("16MiB more: code %d, want 2 (out of memory)", code)
			}
			if !c.Touched() {
				t.Error("nothing was put into its specification")
			}
			second := c.Exec()
			second.OK("init")
			if code := second.Code("alloc %d", 16*mib); code != 2 {
				t.Errorf("the cap is not one for both: code %d", code)
			}
		}
	})
}
