package e2e

// A client that nobody here wrote.

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// numba is a CUDA client that nobody here wrote: it finds the driver through ctypes, and asks it for
// what it needs in its own order. See clients/numba_client.py.
func TestNumbaUnderACap(t *testing.T) {
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-c", "import numba.cuda").CombinedOutput(); err != nil {
		t.Skipf("Debian's python3-numba is not there: %v\n%s", err, out)
	}
	n := node.Start(t, node.Options{})
	script := filepath.Join(node.Root(t), "tests/e2e/clients/numba_client.py")
	ptx := filepath.Join(node.Root(t), "tests/sim/kernels/vector_add.ptx")
	p := n.Run(node.RunOptions{Name: "numba", Memory: "64MiB"}, python, script, ptx)
	code, lines := p.Wait(2 * time.Minute)
	said := strings.Join(lines, "\n")
	t.Log(said)
	if code != 0 || p.Stderr() != "" {
		t.Fatalf("exit %d\n%s", code, p.Stderr())
	}
	for _, want := range []string{"total 67108864", "copies right", "kernel right", "refused at 64 of 64 MiB"} {
		if !strings.Contains(said, want) {
			t.Errorf("numba does not say %q", want)
		}
	}
}
