package rootfs

// Tests on root file systems that are made to lead elsewhere. Those that mount need root: each is run in
// a mount namespace of its own.

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/oci"
)

// image makes a root file system and something outside of it, with links from one to the other.
func image(t *testing.T, links map[string]string) (root *Root, dir, outside string) {
	t.Helper()
	base := tempDir(t)
	dir, outside = filepath.Join(base, "root"), filepath.Join(base, "outside")
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "ld.so.preload"), []byte("secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range links {
		target = strings.ReplaceAll(target, "OUTSIDE", outside)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, dir, outside
}

func TestReadFile(t *testing.T) {
	root, dir, _ := image(t, map[string]string{
		"etc/absolute": "/etc/ld.so.preload", "etc/relative": "../../../../etc/ld.so.preload", "etc/out": "OUTSIDE/ld.so.preload",
		"etc/loop": "loop", "etc/magic": "/proc/self/root/etc/passwd", "etc/null": "/dev/null",
	})
	if err := os.WriteFile(filepath.Join(dir, "etc/ld.so.preload"), []byte("/a.so\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "etc/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"/etc/ld.so.preload": "/a.so\n", "etc/absolute": "/a.so\n", "/etc/relative": "/a.so\n",
		"../../etc/ld.so.preload": "/a.so\n",
	} {
		if text, err := root.ReadFile(name, 100); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for name, want := range map[string]error{
		"/etc/none": os.ErrNotExist, "/etc/out": os.ErrNotExist, "/etc/loop": unix.ELOOP, "/etc/null": os.ErrNotExist,
		"/etc/magic": os.ErrNotExist, "/etc/pipe": ErrOther, "/etc": ErrOther,
	} {
		if text, err := root.ReadFile(name, 100); !errors.Is(err, want) {
			t.Errorf("%s: %q, %v; want %v", name, text, err, want)
		}
	}
	if _, err := root.ReadFile("/etc/ld.so.preload", 5); err == nil || !strings.Contains(err.Error(), "5 are the most") {
		t.Errorf("%v", err)
	}
	if !root.Has("/etc/absolute") || root.Has("/etc/out") || root.ReadOnly() {
		t.Error("what is there is not seen, or what is not there is")
	}
}

// inNamespace runs a test again in a mount namespace of its own, and tells whether this is that run.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv("WEIR_TEST_NAMESPACE") == t.Name() {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), "WEIR_TEST_NAMESPACE="+t.Name(), "WEIR_TEST_DIR="+t.TempDir())
	again.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	out, err := again.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// tempDir is a temporary directory. In a namespace it is removed by who made that, without its mounts.
func tempDir(t *testing.T) string {
	t.Helper()
	parent := os.Getenv("WEIR_TEST_DIR")
	if parent == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// ours are the mounts of a grant, from directories of the test's own.
func ours(t *testing.T) []oci.Mount {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	base := tempDir(t)
	grant := oci.Grant{SocketDir: filepath.Join(base, "c"), LibraryDir: filepath.Join(base, "lib"),
		PreloadFile: filepath.Join(base, "c/ld.so.preload")}
	for _, d := range []string{"c/lib", "lib"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"c/ld.so.preload", "c/agent.sock", "lib/libweir.so"} {
		if err := os.WriteFile(filepath.Join(base, f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return grant.Mounts()
}

func TestMount(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	mounts := ours(t)
	for name, links := range map[string]map[string]string{
		"an empty image":     nil,
		"/etc leads out":     {"etc": "OUTSIDE"},
		"/run leads out":     {"run": "OUTSIDE"},
		"/run is relative":   {"run": "var/run"},
		"all lead elsewhere": {"etc": "/other", "run": "../../../../other"},
	} {
		root, dir, outside := image(t, links)
		if err := os.MkdirAll(filepath.Join(dir, "other"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "var/run"), 0o755); err != nil {
			t.Fatal(err)
		}
		failed := false
		for _, m := range mounts {
			if err := root.Mount(m); err != nil {
				failed = true
			}
		}
		leadsOut := strings.Contains(name, "leads out")
		for place, want := range map[string]string{
			"/etc/ld.so.preload": "c/ld.so.preload", "/run/weir/agent.sock": "c/agent.sock",
			"/run/weir/lib/libweir.so": "lib/libweir.so",
		} {
			text, err := root.ReadFile(place, 100)
			if !leadsOut && (err != nil || string(text) != want) {
				t.Errorf("%s: %s is %q, %v", name, place, text, err)
			}
		}
		if failed != leadsOut {
			t.Errorf("%s: failed: %v", name, failed)
		}
		left, err := os.ReadDir(outside)
		if err != nil || len(left) != 1 {
			t.Errorf("%s: outside there is %v, %v", name, left, err)
		}
		if text, err := os.ReadFile(filepath.Join(outside, "ld.so.preload")); err != nil || string(text) != "secret\n" {
			t.Errorf("%s: outside is %q, %v", name, text, err)
		}
	}
}

func TestMountIsReadOnly(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	root, dir, _ := image(t, nil)
	for _, m := range ours(t) {
		if err := root.Mount(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"etc/ld.so.preload", "run/weir/agent.sock", "run/weir/lib/libweir.so", "run/weir/new"} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE, 0o644)
		if !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: %v", name, err)
			f.Close()
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Join(dir, "run/weir"), &st); err != nil ||
		st.Flags&unix.ST_NOSUID == 0 || st.Flags&unix.ST_NODEV == 0 || st.Flags&unix.ST_NOEXEC == 0 {
		t.Errorf("flags %#x, %v", st.Flags, err)
	}
}

// A root that the runtime has made read-only before hooks run gets its places, and is as read-only as before.
func TestMountInALockedRoot(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	mounts := ours(t)
	_, dir, _ := image(t, nil)
	for _, flags := range []uintptr{unix.MS_BIND, unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID} {
		if err := unix.Mount(dir, dir, "", flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	locked, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	for _, m := range mounts {
		if err := locked.Mount(m); err != nil {
			t.Error(err)
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Flags&unix.ST_RDONLY == 0 || st.Flags&unix.ST_NOSUID == 0 {
		t.Errorf("flags %#x, %v", st.Flags, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "run/weir/lib/libweir.so")); err != nil || string(text) != "lib/libweir.so" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestMountRefuses(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	mounts := ours(t)
	root, dir, _ := image(t, map[string]string{"etc/ld.so.preload": "nowhere"})
	if err := root.Mount(mounts[2]); err == nil {
		t.Error("a link that leads nowhere was followed")
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, m := range map[string]oci.Mount{
		"no regular file":            {Source: mounts[2].Source, Destination: "/pipe"},
		"is no directory":            {Source: mounts[0].Source, Destination: "/pipe"},
		`option "exec" is not known`: {Source: mounts[0].Source, Destination: "/x", Options: []string{"exec"}},
		"looking at it":              {Source: "/nonexistent", Destination: "/x"},
		"the root itself":            {Source: mounts[0].Source, Destination: "/.."},
	} {
		if err := root.Mount(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	fixed, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fixed.Close()
	if err := fixed.Mount(mounts[0]); err == nil || !strings.Contains(err.Error(), "file system cannot be changed") || !fixed.ReadOnly() {
		t.Errorf("%v", err)
	}
}
