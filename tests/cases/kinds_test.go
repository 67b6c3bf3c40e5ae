package cases

// M4, M9: stream-ordered memory and arrays; and T8, many processes at once.

import (
	"fmt"
	"testing"

	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// actor is a client of all kinds of memory, under a cap, on a card whose pools grow by
// 1 MiB.
func actor(t *testing.T, name, memory string) (*node.Node, *node.Puppet) {
	t.Helper()
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "512B") + "pool_chunk = \"1MiB\"\n"})
	p := n.Acrobat(node.RunOptions{Name: name, Memory: memory})
	p.OK("init")
	return n, p
}

// M4: ten thousand times from a pool and back: no drift, and never a refusal of what fits.
func TestM4PoolInALoop(t *testing.T) {
	n, p := actor(t, "loop", "8MiB")
	pool := p.Number("pool 0")
	for i := range 10_000 {
		// More than half of the cap: what the round before had must have come back.
		if code := p.Code("pool-alloc %d %d %d", pool, 5*mib-int64(i%7)*4096, i%2); code != 0 {
			t.Fatalf("round %d: code %d", i, code)
		}
		p.OK("free 1")
		if i%500 == 0 {
			p.OK("sync")
			use(t, n, fmt.Sprintf("after %d rounds", i+1), "loop", 0)
			booksAgree(t, n, fmt.Sprintf("after %d rounds", i+1), "loop")
		}
	}
	p.OK("sync")
	use(t, n, "in the end", "loop", 0)
	p.OK("plain %d", 8*mib)
}

// M9: arrays are charged in bytes, all levels and layers of them, and refused at the cap.
func TestM9Arrays(t *testing.T) {
	n, p := actor(t, "arrays", "8MiB")
	for _, array := range []struct {
		command string
		bytes   int64
	}{
		{"array 1000 500", 1000 * 500 * 4},
		{"array 33 0", 33 * 4},
		{"array3d 100 50 20", 100 * 50 * 20 * 8},
		{"mipmap 256 128 3", (256*128 + 128*64 + 64*32) * 8},
	} {
		slot := p.Number("%s", array.command)
		want := (array.bytes + 511) / 512 * 512
		use(t, n, array.command, "arrays", want)
		booksAgree(t, n, array.command, "arrays")
		// All the rest, and not a byte more.
		rest := p.Number("plain %d", 8*mib-want)
		if code := p.Code("%s", array.command); code != outOfMemory {
			t.Errorf("%s at the cap: code %d", array.command, code)
		}
		p.OK("free %d", slot)
		slot = p.Number("%s", array.command)
		p.OK("free %d", rest)
		p.OK("free %d", slot)
		use(t, n, array.command+" destroyed", "arrays", 0)
	}
	for _, command := range []string{"array 4096 1024", "array3d 1024 1024 1", "mipmap 1024 1024 1"} {
		if code := p.Code("%s", command); code != outOfMemory && code != 0 {
			t.Errorf("%s: code %d", command, code)
		}
		if code := p.Code("%s", command); code != outOfMemory {
			t.Errorf("%s beyond the cap: code %d", command, code)
		}
		booksAgree(t, n, command, "arrays")
	}
}

// T8, as far as memory goes: 200 processes at once get their sessions, contexts and memory. How much
// later than without the library is for `make bench SECTION=overhead` to say.
func TestT8ManyStartAtOnce(t *testing.T) {
	const many = 200
	n := node.Start(t, node.Options{Machine: node.Machine("512MiB", "256KiB"), CountContext: true})
	all := n.Puppets(many, node.RunOptions{Name: "many", Memory: "150MiB"})
	for _, p := range all {
		p.Tell("init")
	}
	for _, p := range all {
		if code := p.Answer(); code != 0 {
			t.Fatalf("init: code %d", code)
		}
		p.Tell("alloc %d", mib/2)
	}
	for _, p := range all {
		if code := p.Answer(); code != 0 {
			t.Errorf("half a MiB of 150: code %d", code)
		}
	}
	if used, charged := n.Use("many"); used != 150*mib || charged != 150*mib {
		t.Errorf("%d bytes are used, %d charged", used, charged)
	}
	if sessions := n.Container("many").Sessions; len(sessions) != many {
		t.Errorf("%d sessions", len(sessions))
	}
	if card, err := sim.Status(n.SimDir); err != nil || card.GPUs[0].UsedBytes != 150*mib {
		t.Errorf("the card's books say %d bytes, %v", card.GPUs[0].UsedBytes, err)
	}
}
