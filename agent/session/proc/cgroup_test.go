package proc

// Tests of control groups: of texts as kernels write them, and of real ones where they can be made.

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseCgroups(t *testing.T) {
	got := parseCgroups([]byte("12:cpu,cpuacct:/a:b\n1:name=systemd:/s\n0::/u\nnonsense\n7:x:relative\n"))
	want := map[string]string{"cpu": "/a:b", "cpuacct": "/a:b", "name=systemd": "/s", "": "/u"}
	if !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestWithin(t *testing.T) {
	for _, test := range []struct {
		group, path string
		want        bool
	}{
		{"/a", "/a", true}, {"/a", "/a/b", true}, {"/a", "/ab", false}, {"/a/b", "/a", false}, {"/", "/a", true},
		{"/a", "/../a", false}, {"/a", "/", false},
	} {
		if got := within(test.group, test.path); got != test.want {
			t.Errorf("%s within %s: %v", test.path, test.group, got)
		}
	}
}

func TestCgroupMount(t *testing.T) {
	const mounts = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 /docker/x /in/a\040container rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
34 31 0:30 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
35 31 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
nonsense
`
	for controller, want := range map[string]string{
		"cpu": "/sys/fs/cgroup/cpu,cpuacct", "name=systemd": "/sys/fs/cgroup/systemd", "": "/sys/fs/cgroup/unified", "pids": "",
	} {
		if at, _ := cgroupMount([]byte(mounts), controller); at != want {
			t.Errorf("%q: %s", controller, at)
		}
	}
	long := "30 23 0:27 / /run/rootfs rw - overlay overlay rw,lowerdir=" + strings.Repeat("/snapshots/1/fs:", 8<<10) + "\n"
	if at, _ := cgroupMount([]byte(long+mounts), ""); at != "/sys/fs/cgroup/unified" {
		t.Errorf("behind a long line: %q", at)
	}
	if at, root := cgroupMount([]byte(`32 31 0:29 /docker/x /in/a\040container rw - cgroup cgroup rw,cpu`), "cpu"); at != "/in/a container" || root != "/docker/x" {
		t.Errorf("%s, %s", at, root)
	}
}

// newCgroup makes a control group in the hierarchy that CgroupOf prefers of those that are here.
func newCgroup(t *testing.T, name string) (Cgroup, string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, controller := range append([]string{""}, preferred...) {
		at, root := cgroupMount(mounts, controller)
		dir := filepath.Join(at, name)
		if at == "" || root != "/" || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { removeCgroup(t, dir) })
		return Cgroup{controller, "/" + name}, dir
	}
	t.Skip("no control group can be made here")
	return Cgroup{}, ""
}

// removeCgroup removes a control group once the kernel has seen its processes end.
func removeCgroup(t *testing.T, dir string) {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		} else if time.Now().After(deadline) {
			t.Errorf("a control group is left: %v", err)
			return
		}
	}
}

func TestOwnOf(t *testing.T) {
	shim := map[string]string{"": "/system.slice/containerd.service", "pids": "/system.slice/containerd.service", "devices": "/"}
	for name, c := range map[string]struct {
		all  map[string]string
		want Cgroup
	}{
		"version 2":           {map[string]string{"": "/web"}, Cgroup{"", "/web"}},
		"version 1":           {map[string]string{"pids": "/web", "devices": "/"}, Cgroup{"pids", "/web"}},
		"both, the first":     {map[string]string{"": "/web", "pids": "/web"}, Cgroup{"", "/web"}},
		"both, the other one": {map[string]string{"": shim[""], "pids": "/web"}, Cgroup{"pids", "/web"}},
	} {
		if got, err := ownOf(c.all, shim); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := ownOf(shim, shim); !errors.Is(err, ErrNoCgroup) {
		t.Errorf("its parent's: %+v, %v", got, err)
	}
}

func TestCgroup(t *testing.T) {
	group, dir := newCgroup(t, "weir-test-proc-"+strconv.Itoa(os.Getpid()))
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeCgroup(t, below) })
	if members, err := group.Members(); err != nil || len(members) != 0 {
		t.Errorf("%v, %v", members, err)
	}
	sleep := exec.Command("sleep", "600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sleep.Process.Kill()
		sleep.Wait()
	})
	pid := sleep.Process.Pid
	if has, err := group.Has(pid); err != nil || has {
		t.Errorf("%v, %v", has, err)
	}
	if err := os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
	if has, err := group.Has(pid); err != nil || !has {
		t.Errorf("%v, %v", has, err)
	}
	if members, err := group.Members(); err != nil || len(members) != 1 || !members[pid] {
		t.Errorf("%v, %v", members, err)
	}
	if got, err := CgroupOf(pid); err != nil || got.Path != group.Path+"/below" && got.Controller == group.Controller {
		t.Errorf("%+v, %v", got, err)
	}
	if members, err := (Cgroup{group.Controller, "/weir-no-such-group"}).Members(); err != nil || len(members) != 0 {
		t.Errorf("of one that is gone: %v, %v", members, err)
	}
	sleep.Process.Kill()
	sleep.Wait()
	if _, err := group.Has(pid); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
}
