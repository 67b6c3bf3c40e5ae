package cases

// D3, as far as it can hold while swap is not enforced.

import (
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

// D3: a device on which memory cannot be swapped, which is every device as long as weir does not swap.
// What asks for swap gets plain memory, capped without it, and whoever
// asks for it is told so.
func TestD3PlainMemoryInPlaceOfSwap(t *testing.T) {
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "512B")})
	run := node.RunOptions{Name: "swapper", Memory: "8MiB", Flags: []string{"--swap", "64MiB"}}
	program := n.Run(run, node.Build(t, "e2e/puppet"))
	for _, command := range []string{"init", "alloc 8388608", "alloc 512"} {
		program.Send(command)
		want := "ok"
		if command == "alloc 512" {
			want = errorOutOfMemory
		}
		if line := program.Line(); !strings.HasPrefix(line, want) {
			t.Errorf("%s: %s, want %s", command, line, want)
		}
	}
	card := books(t, n).GPUs[0]
	if card.AllocatedBytes != 8*mib || card.Processes[0].Managed.AllocatedBytes != 0 {
		t.Errorf("the card's books: %d bytes of plain memory, %d of managed", card.AllocatedBytes,
			card.Processes[0].Managed.AllocatedBytes)
	}
	if said := n.MustWeir("caps", "set", "swapper", "--swap", "32MiB"); !strings.Contains(said, "not enforced") {
		t.Errorf("nobody is told: %q", said)
	}
}
