package e2e

// The library for the other machine, under an emulator: against the agent of this one.

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// What it is made of, R10 of cgo/routes checks; that it caps is seen here.
func TestArm64Cap(t *testing.T) {
	const cc, emulator, root = "aarch64-linux-gnu-gcc", "qemu-aarch64-static", "/usr/aarch64-linux-gnu"
	if runtime.GOARCH != "amd64" {
		t.Skip("crosses from amd64 only")
	}
	for _, program := range []string{cc, emulator} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	n := node.Start(t, node.Options{})
	top, dir := node.Root(t), t.TempDir()
	run := func(env []string, name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = top
		cmd.Env = append(os.Environ(), env...)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, said)
		}
	}
	link, library := filepath.Join(dir, "link"), filepath.Join(dir, "libweir.so")
	driver, host := filepath.Join(dir, "libcuda.so.1"), filepath.Join(dir, "host")
	run(nil, "go", "build", "-o", link, "./cgo/link")
	run([]string{"GOARCH=arm64", "CC=" + cc, "CGO_ENABLED=1"}, link, "-o", library)
	sources, err := filepath.Glob(filepath.Join(top, "tests/bench/null/*.c"))
	if err != nil {
		t.Fatal(err)
	}
	run(nil, cc, append([]string{"-std=gnu11", "-O1", "-fPIC", "-fvisibility=hidden", "-shared", "-Wl,-soname,libcuda.so.1",
		"-o", driver}, sources...)...)
	run(nil, cc, "-std=gnu11", "-O1", "-o", host, "tests/e2e/clients/modest.c", driver)
	// The emulator itself is not to load what is for the other machine.
	p := n.Run(node.RunOptions{Name: "arm", Memory: "64MiB", Env: nullDriver(t, n)}, "env", "-u", "LD_PRELOAD",
		emulator, "-L", root, "-E", "LD_PRELOAD="+library, "-E", "LD_LIBRARY_PATH="+dir, host)
	code, lines := p.Wait(2 * time.Minute)
	want := []string{"total 67108864", "48 MiB: 0", "32 MiB more: 2", "free: 0", "32 MiB: 0"}
	if code != 0 || !slices.Equal(lines, want) {
		t.Errorf("exit %d, it says %q, want %q\n%s", code, lines, want, p.Stderr())
	}
	if denied := n.EventsOf("denied", "arm"); len(denied) != 1 {
		t.Errorf("%d events of a refusal, want 1", len(denied))
	}
}
