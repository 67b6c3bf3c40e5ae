package cases

// Rows C with runc on a node whose control groups are all of version 2, as most are today. The machine of
// the tests may have both versions: then /sys/fs/cgroup is replaced in a mount namespace, where runc, the
// agent and the tests see version 2 alone.

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"weir/tests/e2e/node"
)

const cgroups = "/sys/fs/cgroup"

func TestRowsOnControlGroupsOfVersion2(t *testing.T) {
	if onVersion2(t) {
		for _, row := range containerRows {
			t.Run(row.name, func(t *testing.T) { onRunc(t, row.play) })
		}
		return
	}
	node.NeedRunc(t)
	again := exec.Command(os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
	again.Args = append([]string{"sh", "-c",
		"umount -R " + cgroups + " && mount -t cgroup2 cgroup2 " + cgroups + ` && exec "$@"`, "sh"}, again.Args...)
	again.Path = "/bin/sh"
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	said, err := again.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, said)
	}
	for _, row := range containerRows {
		if passed := "--- PASS: " + t.Name() + "/" + row.name + " "; !strings.Contains(string(said), passed) {
			t.Errorf("row %s was not played:\n%s", row.name, said)
		}
	}
}

// onVersion2 tells whether that is all that is mounted here.
func onVersion2(t *testing.T) bool {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(cgroups, &s); err != nil {
		t.Skipf("no control groups: %v", err)
	}
	return s.Type == unix.CGROUP2_SUPER_MAGIC
}
