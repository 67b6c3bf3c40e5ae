package device

// Tests of device nodes. Real ones need root: they are made with the numbers of /dev/null's driver.

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNodesIn(t *testing.T) {
	dir := t.TempDir()
	make := func(name string, minor uint32) {
		t.Helper()
		err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor)))
		if err != nil {
			t.Skipf("no device nodes can be made here: %v", err)
		}
	}
	make("nvidia2", 3)
	if _, err := nodesIn(dir, 2); err == nil || !strings.Contains(err.Error(), "nvidiactl") {
		t.Errorf("without nvidiactl: %v", err)
	}
	make("nvidiactl", 5)
	make("nvidia-uvm-tools", 7)
	got, err := nodesIn(dir, 2)
	want := []Node{{dir + "/nvidia2", 1, 3}, {dir + "/nvidiactl", 1, 5}, {dir + "/nvidia-uvm-tools", 1, 7}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := nodesIn(dir, 3); err == nil {
		t.Error("a node that is not there was found")
	}
	if err := os.WriteFile(filepath.Join(dir, "nvidia4"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := nodesIn(dir, 4); err == nil || !strings.Contains(err.Error(), "is no device node") {
		t.Errorf("%v", err)
	}
}
