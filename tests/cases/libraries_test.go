package cases

// Rows C about what containers load: another version of the library (C6), programs that cannot load it
// (C9), and images whose file system cannot be changed (C4).

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/tests/e2e/node"
)

// onRuncNode is a node whose containers are started by runc.
func onRuncNode(t *testing.T) *node.Node {
	t.Helper()
	node.NeedRunc(t)
	return node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
}

var asks32 = map[string]string{"weir/memory": "32MiB"}

// under asserts that a puppet gets 8 MiB more, and none past the cap of 32.
func under(t *testing.T, p *node.Puppet, when string) {
	t.Helper()
	p.OK("alloc %d", 8*mib)
	if code := p.Code("alloc %d", 32*mib); code != 2 {
		t.Errorf("%s: past the cap: code %d, want 2 (out of memory)", when, code)
	}
}

// nextVersion is a folder with the agent's programs, of which the library differs in a word that means
// nothing: the compiler's name.
func nextVersion(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"weir", "weir-hook"} {
		text, err := os.ReadFile(node.Build(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "weir" {
			library, err := os.ReadFile(node.Build(t, "libweir.so"))
			if err != nil {
				t.Fatal(err)
			}
			at, word := bytes.Index(text, library), bytes.LastIndex(library, []byte("GCC: ("))
			if at < 0 || word < 0 {
				t.Skip("the library is not in the program as it is, or was not made by gcc")
			}
			text[at+word] = 'g'
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// libraries are the versions of the library that lie in the node's run directory.
func libraries(t *testing.T, n *node.Node) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(n.RunDir, "lib", "*", "libweir.so"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestC6LibraryUpgraded(t *testing.T) { onRunc(t, rowC6) }

func rowC6(s stage) {
	t, n := s.T, s.n
	b := s.s.Container(node.Wish{Name: "old", Annotations: asks})
	old := b.Puppet()
	old.OK("init")
	before := libraries(t, n)
	if len(before) != 1 {
		t.Fatalf("before the upgrade there are the libraries %v", before)
	}
	var was unix.Stat_t
	if err := unix.Stat(before[0], &was); err != nil {
		t.Fatal(err)
	}

	n.StopAgent()
	n.Upgrade(nextVersion(t))
	n.StartAgent()
	next := s.s.Container(node.Wish{Name: "next", Annotations: asks})
	p := next.Puppet()
	p.OK("init")
	under(t, old, "the old container")
	under(t, p, "the new container")
	exec := b.Exec()
	exec.OK("init")
	if code := exec.Code("alloc %d", 32*mib); code != 2 {
		t.Errorf("what is exec'd in the old container: code %d, want 2 (out of memory)", code)
	}
	both := libraries(t, n)
	var is unix.Stat_t
	err := unix.Stat(before[0], &is)
	if len(both) != 2 || err != nil || is.Ino != was.Ino || is.Mtim != was.Mtim || is.Size != was.Size {
		t.Errorf("there are the libraries %v, and the old one was touched, or is gone: %v", both, err)
	}
	if loaded := mapped(t, n, next); loaded == before[0] {
		t.Error("the new container has the old library")
	}

	exec.Leave()
	old.Leave()
	n.Eventually(func() string {
		if left := libraries(t, n); len(left) != 1 || left[0] == before[0] {
			return fmt.Sprintf("the old library's last container has ended, and there are %v", left)
		}
		return ""
	})
	under(t, p, "the new container, in the end")
}

// mapped is the file that a container's first process has as its library, by the host's path.
func mapped(t *testing.T, n *node.Node, c node.Container) string {
	t.Helper()
	inside, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/weir/lib/libweir.so", n.Container(c.Name()).PID))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range libraries(t, n) {
		if info, err := os.Stat(path); err == nil && os.SameFile(inside, info) {
			return path
		}
	}
	t.Fatalf("%s has none of the libraries", c.Name())
	return ""
}

// TestC9WithoutTheLibrary: the container runs, and is shown as not enforced with the reason; whoever it
// runs as.
func TestC9WithoutTheLibrary(t *testing.T) {
	n := onRuncNode(t)
	source := filepath.Join(t.TempDir(), "still.c")
	if err := os.WriteFile(source, []byte("#include <unistd.h>\nint main(void) { char c; while (read(0, &c, 1) > 0) continue; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, compiler, why string
		flags               []string
		cleared             bool // its environment, so that LD_PRELOAD is gone
	}{
		{"static", "gcc", "it is a static program", []string{"-static"}, false},
		{"static-pie", "gcc", "it is a static program", []string{"-static-pie"}, false},
		{"musl-static", "musl-gcc", "it is a static program", []string{"-static"}, false},
		{"musl-cleared", "musl-gcc", "its loader does not read /etc/ld.so.preload", nil, true},
		{"musl", "musl-gcc", "", nil, false}, // it has the library, by LD_PRELOAD
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.compiler); err != nil {
				if os.Getenv("CI") != "" {
					t.Fatal(err)
				}
				t.Skipf("there is no %s", c.compiler)
			}
			n := n.For(t)
			program := "/still"
			b := n.Bundle(c.name, asks32, func(s node.Spec) {
				process := s["process"].(node.Spec)
				process["user"] = node.Spec{"uid": 1000, "gid": 1000}
				process["args"] = []any{program}
				if c.cleared {
					process["args"] = []any{"/bin/env", "-i", program}
				}
			})
			build := exec.Command(c.compiler, append(c.flags, "-o", filepath.Join(b.Root, program), source)...)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			loader, err := filepath.Glob("/lib/ld-musl-*")
			if err == nil && c.compiler == "musl-gcc" && len(c.flags) == 0 && len(loader) == 0 {
				t.Skip("there is no loader of musl in /lib")
			}
			b.Start()
			n.Eventually(func() string { return shownAs(n, b, c.why) })
		})
	}
}

// shownAs says how a container is not shown as it should: as enforced, or as not enforced for a reason.
func shownAs(n *node.Node, b *node.Bundle, why string) string {
	for _, c := range n.Containers() {
		if c.Name != b.Name() || c.PID == 0 {
			continue
		}
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.PID))
		loaded := strings.Contains(string(maps), "/libweir.so")
		if why == "" && c.Enforced && loaded || why != "" && !c.Enforced && strings.Contains(c.Reason, why) {
			return ""
		}
		return fmt.Sprintf("it has the library: %v, %v; and is shown as enforced: %v, %q", loaded, err, c.Enforced, c.Reason)
	}
	return "it does not run"
}

// TestC4FixedFileSystem: nothing can be made in the image. With the places there it is as usual; without
// them the library lies below /dev, and is loaded by LD_PRELOAD alone.
func TestC4FixedFileSystem(t *testing.T) {
	n := onRuncNode(t)
	for _, places := range []bool{true, false} {
		t.Run(fmt.Sprintf("places %v", places), func(t *testing.T) {
			n := n.For(t)
			b := n.Bundle(fmt.Sprintf("fixed-%v", places), asks32, nil)
			for _, dir := range []string{"proc", "dev", "usr", "run", strings.TrimPrefix(filepath.Dir(node.Build(t, "weir")), "/"),
				strings.TrimPrefix(n.SimDir, "/")} {
				if err := os.MkdirAll(filepath.Join(b.Root, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if places {
				if err := os.Mkdir(filepath.Join(b.Root, "run/weir"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(b.Root, "etc/ld.so.preload"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			fix(t, b.Root)
			p := b.Puppet()
			p.OK("init")
			under(t, p, "on a file system that cannot be changed")
			p.Leave()
			n.Eventually(func() string {
				for _, c := range n.Containers() {
					if c.Name == b.Name() {
						return "it has not ended"
					}
				}
				return ""
			})
		})
	}
}

// fix makes a directory a file system that cannot be changed, for as long as the test runs.
func fix(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(time.Minute); unix.Unmount(dir, 0) != nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%s is still mounted", dir)
				return
			}
		}
	})
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
}
