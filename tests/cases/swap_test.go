package cases

// D3: devices on which memory cannot be swapped.

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

// D3: a device without concurrent managed access, on which memory cannot be swapped. Where the node has no other, swap is
// refused to whoever asks for it; where it has, programs on this one have plain memory, capped without swap, and an event
// says so.
func TestD3PlainMemoryInPlaceOfSwap(t *testing.T) {
	cannot := node.Machine("256MiB", "512B") + "concurrent_managed_access = false\n"
	n := node.Start(t, node.Options{Machine: cannot})
	refused := n.Weir("run", "--memory", "8MiB", "--swap", "64MiB", "--", "true")
	if refused.Code != 6 || !strings.Contains(refused.Stderr, "no GPU of this node can have swap, since GPU 0 (Simulated test card)") {
		t.Errorf("a run with swap: exit %d, %q", refused.Code, refused.Stderr)
	}

	n = node.Start(t, node.Options{Machine: cannot + node.Card("256MiB", "512B")})
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
	const why = "swap: not on GPU 0 (Simulated test card), without concurrent managed access: memory there is plain, and capped"
	if said := n.MustWeir("events", "--type", "unenforced"); !strings.Contains(said, why) {
		t.Errorf("no event says why: %q", said)
	}
	n.MustWeir("caps", "set", "swapper", "--swap", "32MiB")
	if said := n.MustWeir("events", "--type", "caps"); !strings.Contains(said, why) {
		t.Errorf("no event of the change says why: %q", said)
	}
}
