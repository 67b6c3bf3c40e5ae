package cases

// Swap in containers, by whatever starts them: played with the rows of containers_test.go.

import (
	"fmt"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

func TestU8SwapInAContainer(t *testing.T) { onRunc(t, rowU8) }

// U8: a container that has swap by its annotations, or by a rule of the node's where it cannot ask, has what it is told of,
// sees its cap and its swap where it asked for that, and its data whole though most of them lie on the host.
func rowU8(s stage) {
	wish := node.Wish{Name: "swapper", Annotations: map[string]string{
		"weir/memory": "32MiB", "weir/swap": "64MiB", "weir/report": "virtual"}}
	total := int64(96 * mib)
	if s.s.Lacks(wish) != "" {
		s.n.Configure("unasked_gpu = \"default\"\n[[containers]]\nmemory = \"32MiB\"\nswap = \"64MiB\"\n")
		wish, total = node.Wish{Name: "swapper", GPU: true}, 32*mib
	}
	p := s.s.Container(wish).Puppet()
	p.OK("init")
	if info := p.Numbers("info"); info[1] != total {
		s.Errorf("it is told of %d bytes, want %d", info[1], total)
	}
	const count = 10 // of 8 MiB: 80 of 96
	for i := range count {
		p.OK("alloc %d", 8*mib)
		p.OK("fill %d %d", i, i)
	}
	if code := p.Code("alloc %d", 18*mib); code != 2 {
		s.Errorf("beyond cap and swap: code %d", code)
	}
	s.n.Eventually(func() string {
		for _, process := range s.n.Card(0).Processes {
			if m := process.Managed; m.AllocatedBytes == count*8*mib && m.PrefetchOutBytes > 0 && m.ResidentBytes <= 32*mib {
				return ""
			}
		}
		return fmt.Sprintf("no program with so much memory has some of it swapped out: %+v", s.n.Card(0).Processes)
	})
	// The machine's books, each 10 ms: it copies no more, so nothing brings it above its cap again.
	for range 50 {
		time.Sleep(10 * time.Millisecond)
		for _, process := range s.n.Card(0).Processes {
			if there := process.Managed.ResidentBytes; there > 32*mib {
				s.Errorf("%d bytes lie on the card, of 32 MiB", there)
			}
		}
	}
	for i := range count {
		p.OK("check %d %d", i, i)
	}
}
