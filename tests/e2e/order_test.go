package e2e

// The library's own calls add no order between streams.

import (
	"path/filepath"
	"testing"

	"weir/tests/e2e/node"
)

// The library finds out how far each stream has come. In the default stream it may not record for that: what is
// recorded there waits for all other streams, and these wait for it.
func TestNothingIsRecordedInTheDefaultStream(t *testing.T) {
	n := node.Start(t, node.Options{})
	program, ptx := node.Build(t, "e2e/order"), filepath.Join(node.Root(t), "tests/sim/kernels/spin.ptx")
	// Long enough for the agent to find that the program has begun to use the GPU, and for the library to look.
	const wait = "400"
	if said := n.Bare(program, ptx, wait).Line(); said != "done" {
		t.Fatalf("without weir: %s", said)
	}
	if said := n.Run(node.RunOptions{Name: "order"}, program, ptx, wait).Line(); said != "done" {
		t.Errorf("under weir: %s", said)
	}
}
