// Package ctrd gives whole-system tests real containerds: Debian's of years ago and one of today, each
// started by the test with root, state and sockets in the node's own folder, configured by `weir runtime configure`
// as a user would, and driven by ctr and crictl. What the machine runs itself is never touched. Invariant: when a
// test ends, however it does, its containerd, shims, containers, mounts and control groups are gone.
package ctrd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

// Generation is a containerd of one time, with the runc, shim and ctr that go with it.
type Generation struct {
	Name  string // "1.6", "2.4"
	Old   bool   // before 2.0: another configuration
	Plain bool   // before 1.7: no CDI, no NRI
	bin   string // what stands first in PATH
}

// Generations are those that tests run on. A test is skipped where a generation's programs are missing, and fails
// where `make` or tests/packages.sh should have brought them (CI is set). WEIR_TEST_CONTAINERD names a folder with the
// programs of another one, which is then the only one.
func Generations() []Generation {
	if bin := os.Getenv("WEIR_TEST_CONTAINERD"); bin != "" {
		return []Generation{other(bin)}
	}
	return []Generation{{Name: "1.6", Old: true, Plain: true, bin: "/usr/bin"}, {Name: "2.4"}}
}

// other is the generation of a folder's programs; need says what is wrong with one that has no version.
func other(bin string) Generation {
	version, _ := exec.Command(filepath.Join(bin, "containerd"), "--version").Output()
	g := Generation{Name: "?", bin: bin}
	if fields := strings.Fields(string(version)); len(fields) > 2 {
		parts := strings.Split(strings.TrimPrefix(fields[2], "v"), ".")
		g.Name, g.Old = strings.Join(parts[:min(2, len(parts))], "."), parts[0] == "1"
		g.Plain = g.Name == "1.6"
	}
	return g
}

// Each runs a test on every generation.
func Each(t *testing.T, test func(*testing.T, Generation)) {
	node.NeedRunc(t)
	for _, g := range Generations() {
		t.Run("containerd-"+g.Name, func(t *testing.T) {
			g.need(t)
			test(t, g)
		})
	}
}

// need finds the generation's programs.
func (g *Generation) need(t testing.TB) {
	t.Helper()
	if g.bin == "" {
		g.bin = filepath.Dir(node.Build(t, "containers/containerd"))
	}
	node.Build(t, "containers/crictl") // for both
	version, err := exec.Command(g.program("containerd"), "--version").Output()
	switch {
	case err == nil && strings.Contains(string(version), " "+g.Name+".") ||
		strings.Contains(string(version), " v"+g.Name+"."):
	case os.Getenv("CI") != "":
		t.Fatalf("containerd %s is not there: %v, %s", g.Name, err, version)
	default:
		t.Skipf("%s is no containerd %s: %v, %s", g.program("containerd"), g.Name, err, version)
	}
}

// program is the path of one of its programs.
func (g *Generation) program(name string) string { return filepath.Join(g.bin, name) }

// path is the variable by which all that is started finds this generation's programs.
func (g *Generation) path() string { return "PATH=" + g.bin + ":" + os.Getenv("PATH") }

// Path is that variable for programs that a test starts by itself.
func (g *Generation) Path() string { return g.path() }
