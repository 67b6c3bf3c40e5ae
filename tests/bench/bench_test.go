// Package bench tests the benchmark itself: that it goes on, and says so, whatever a preloaded
// library does to the programs. The figures come from `make bench`.
package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

func library(t *testing.T, name, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cc := exec.Command("gcc", "-shared", "-fPIC", "-xc", "-", "-o", path)
	cc.Stdin = strings.NewReader(source)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return path
}

func TestRivalsMayFail(t *testing.T) {
	overhead := node.Build(t, "bench/overhead")
	node.Build(t, "bench/calls")
	arguments := []string{"--rounds", "1"}
	for name, source := range map[string]string{
		"good.so":   `int nothing;`,
		"crash.so":  `int cuInit(unsigned f) { return *(volatile int *)0; }`,
		"refuse.so": `int cuMemAlloc_v2(unsigned long *p, unsigned long n) { return 2; }`,
	} {
		arguments = append(arguments, "--preload", library(t, name, source))
	}
	out, err := exec.Command(overhead, arguments...).CombinedOutput()
	said := string(out)
	if err != nil {
		t.Fatalf("overhead: %v\n%s", err, said)
	}
	for _, want := range []string{"crash.so failed: calls: signal 11", "refuse.so failed: failed cuMemAlloc_v2 2"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "good.so failed") || strings.Contains(said, "promise:") {
		t.Errorf("it says of a good library, or promises, what is not so:\n%s", said)
	}
}

// A library that does not cap must not look fast: without a cap in force no promise holds.
func TestPassThroughHoldsNoPromise(t *testing.T) {
	overhead := node.Build(t, "bench/overhead")
	weir := node.Build(t, "libweir.so")
	if _, err := os.Stat("/run/weir/agent.sock"); err == nil {
		t.Skip("an agent of this machine would cap it")
	}
	t.Setenv("WEIR_SOCKET", "")
	out, err := exec.Command(overhead, "--rounds", "1", "--preload", weir).CombinedOutput()
	if err == nil || strings.Contains(string(out), "holds yes") {
		t.Errorf("promises hold without an agent (%v):\n%s", err, out)
	}
}
