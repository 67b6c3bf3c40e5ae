package cases

// Rows C in pods whose runtime knows nothing of weir: containerd asks weir's plugin.

import (
	"testing"

	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
)

func TestPluginRows(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		if g.Plain {
			t.Skip("this containerd has no plugins of this kind")
		}
		n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
		d := ctrd.Start(t, g, n, ctrd.Options{Mode: "nri"})
		play(t, "pod", n, ctrd.CRI{Daemon: d, Handler: "-"}, nil)
	})
}
