package cases

// D3, as far as it can hold while swap is not enforced.

import (
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

// A container that asks for swap there by an annotation does not start, and its user is told why.
func TestD3ContainerThatAsksForSwap(t *testing.T) {
	node.NeedRunc(t)
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB") + "concurrent_managed_access = false\n"})
	s := stage{t, n, node.Runc{Node: n}}
	s.notStarted(node.Wish{Name: "swapper", Annotations: map[string]string{"weir/memory": "32MiB", "weir/swap": "64MiB"}},
		"weir/swap: no GPU of this node can have swap")
	if said := n.MustWeir("events"); !strings.Contains(said, "start-refused") {
		t.Errorf("no event: %q", said)
	}
	s.s.Container(node.Wish{Name: "plain", Annotations: map[string]string{"weir/memory": "32MiB", "weir/swap": "off"}}).Puppet().OK("init")
}

// D3: a device without concurrent managed access, on which memory could not be swapped even if weir
// swapped. What asks for swap gets plain memory, capped without it, and whoever asks for it is told so:
// by the run, by an event and by a change of the caps.
func TestD3PlainMemoryInPlaceOfSwap(t *testing.T) {
	machine := node.Machine("256MiB", "512B") + "concurrent_managed_access = false\n"
	n := node.Start(t, node.Options{Machine: machine})
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
	const unenforced = "not enforced"
	if said := program.Stderr(); strings.Count(said, unenforced) != 1 || !strings.Contains(said, "swap") {
		t.Errorf("the run says %q, once it should be that swap is not enforced", said)
	}
	if said := n.MustWeir("events"); !strings.Contains(said, "swap: kept, but not enforced") {
		t.Errorf("no event says why: %q", said)
	}
	if said := n.MustWeir("caps", "set", "swapper", "--swap", "32MiB"); !strings.Contains(said, unenforced) {
		t.Errorf("nobody is told: %q", said)
	}
}
