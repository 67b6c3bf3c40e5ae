package ctrd

// The harness's own promise: what runs when a test ends is gone with it.

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"weir/tests/e2e/node"
)

func TestNothingSurvives(t *testing.T) {
	Each(t, func(t *testing.T, g Generation) {
		d := Start(t, g, node.Start(t, node.Options{NoAgent: true}), Options{})
		d.MustCtr("run", "--detach", "--null-io", "--cgroup", d.cgroup()+"/left", "--runc-root", d.file("runc"),
			baseImage, "left", "/bin/sleep", "infinity")
		CRI{Daemon: d, Handler: "-"}.Pod(node.Pod{}, false)
		if shims, members := d.Shims(), d.members(); len(shims) != 2 || len(members) < 2 || len(d.Mounts()) < 2 {
			t.Fatalf("shims %v, processes %v, mounts %v", shims, members, d.Mounts())
		}
		processes := append(d.Shims(), d.members()...)
		d.remove()
		if left := append(append(d.Shims(), d.members()...), d.PID()); slices.ContainsFunc(append(left, processes...), alive) {
			t.Errorf("of processes %v some live on", append(left, processes...))
		}
		if mounts, groups := d.Mounts(), d.cgroupTops(); len(mounts)+len(groups) > 0 {
			t.Errorf("mounts %v and control groups %v are left", mounts, groups)
		}
	})
}

// alive tells whether a process has not ended. Its parent may not have waited for it yet.
func alive(pid int) bool {
	_, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil
}
