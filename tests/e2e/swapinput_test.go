package e2e

// What is no swap: one line that names the flag and the amounts, an exit code, and nothing started or changed.

import (
	"fmt"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

const aSize = "want a size such as 8GiB, 512M, 64MB, or a number of bytes (K, M, G, T and P are powers of 1024)"

// says fails the test unless a command ends with this code and this one line on stderr, and nothing else.
func says(t *testing.T, n *node.Node, code int, line string, arguments ...string) {
	t.Helper()
	if out := n.Weir(arguments...); out.Code != code || out.Stderr != line+"\n" || out.Stdout != "" {
		t.Errorf("weir %s: exit %d, %q on stderr, %q on stdout; want %d and %q", strings.Join(arguments, " "), out.Code, out.Stderr,
			out.Stdout, code, line)
	}
}

// TestBadSwapIsRefused: of `run` nothing is started, by `caps set` and `unset` nothing is changed.
func TestBadSwapIsRefused(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "swap_host_limit = \"96MiB\"\n")
	p := swapper(t, n, "box", 10) // 80 MiB under a cap of 64 and swap of 64
	usePieces(p, 10, 1)
	before := n.Container("box").Caps
	const tooMuch = "--swap: 128MiB is more than the 96MiB of host memory that containers' swap may take here; give less, or " +
		"raise swap_host_limit in the agent's configuration"
	for _, c := range []struct{ swap, line string }{
		{"128MiB", tooMuch},
		{"-1", `--swap: "-1" is negative: ` + aSize},
		{"", "--swap: an empty size: " + aSize},
		{"NaN", `--swap: "NaN" is not a size: ` + aSize},
		{"64MiB,0=1MiB", `--swap: "64MiB,0=1MiB" is not a size: ` + aSize},
		{"1.5B", `--swap: "1.5B" is not a whole number of bytes: ` + aSize},
		{"99999999999999999999", `--swap: "99999999999999999999" is too large, sizes end below 8EiB: ` + aSize},
	} {
		line := "weir caps set: " + c.line
		if c.line == tooMuch {
			line = "weir caps set: caps of box: " + c.line
		}
		says(t, n, 2, "weir run: "+c.line, "run", "--memory", "64MiB", "--swap="+c.swap, "--", "/bin/echo", "started")
		says(t, n, 2, line, "caps", "set", "box", "--swap="+c.swap)
	}
	says(t, n, 2, "weir run: --swap: 64MiB beyond no cap is no limit; give --memory too, or unset the swap",
		"run", "--swap", "64MiB", "--", "/bin/echo", "started")
	says(t, n, 2, `weir run: --report "physical": want cap or virtual`,
		"run", "--memory", "64MiB", "--swap", "64MiB", "--report", "physical", "--", "/bin/echo", "started")
	says(t, n, 2, "weir caps set: --drain is for swap that is turned off: --swap 0 --drain",
		"caps", "set", "box", "--swap", "32MiB", "--drain")
	// 16 MiB more than the cap are in use: nothing could bring them back, and so no --drain helps.
	const inUse = "caps of box: --swap: 80MiB are in use on GPU 0, which is 16MiB more than its cap there; have it free some, " +
		"raise the cap, or leave it more swap (what lies on the host then, --drain brings back)"
	says(t, n, 1, "weir caps set: "+inUse, "caps", "set", "box", "--swap", "0")
	says(t, n, 1, "weir caps set: "+inUse, "caps", "set", "box", "--swap", "0", "--drain")
	says(t, n, 1, "weir caps set: "+inUse, "caps", "set", "box", "--swap", "8MiB")
	says(t, n, 1, "weir caps unset: "+inUse, "caps", "unset", "box", "--swap", "--drain")
	if after := n.Container("box").Caps; fmt.Sprint(*after.MemoryBytes, *after.SwapBytes) != fmt.Sprint(*before.MemoryBytes, *before.SwapBytes) {
		t.Errorf("its caps were %d and %d, and are %d and %d", *before.MemoryBytes, *before.SwapBytes, *after.MemoryBytes, *after.SwapBytes)
	}
	for i := range 2 {
		p.OK("free %d", 9-i)
	}
	p.OK("free 7") // 56 MiB are left, and the last 16 of the ten lay on the host or the first
	usePieces(p, 1, 1)
	comparePieces(t, p, 7)
}
