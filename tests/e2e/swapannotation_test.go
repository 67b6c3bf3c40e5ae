package e2e

// Swap by annotations, in a container of runc's.

import (
	"testing"

	"weir/tests/e2e/node"
)

// A container has what its annotations ask for: it allocates beyond its cap, and its reports show cap and swap together.
func TestSwapByAnnotations(t *testing.T) {
	node.NeedRunc(t)
	const mib = 1 << 20
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
	runc := node.Runc{Node: n}
	for report, total := range map[string]int64{"cap": 32 * mib, "virtual": 96 * mib} {
		c := runc.Container(node.Wish{Name: "web-" + report, Annotations: map[string]string{
			"weir/memory": "32MiB", "weir/swap": "64MiB", "weir/report": report,
		}})
		p := c.Puppet()
		p.OK("init")
		if info := p.Numbers("info"); info[1] != total {
			t.Errorf("report %s: %d, want a total of %d", report, info, total)
		}
		p.OK("alloc %d", 80*mib)
		if code := p.Code("alloc %d", 18*mib); code != 2 {
			t.Errorf("report %s: beyond cap and swap: %d", report, code)
		}
		n.MustWeir("caps", "set", c.Name(), "--swap", "128MiB")
		p.OK("alloc %d", 18*mib)
	}
	if said := n.MustWeir("events", "--type", "unenforced", "--type", "unconverted"); said != "" {
		t.Errorf("of what holds it is said %q", said)
	}
}
