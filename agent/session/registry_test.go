package session

// Tests of containers' names and ends, of the directories, and of starts that must be refused.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/session/proc"
	"weir/agent/session/sessiontest"
)

// credential is that of a user who is neither root nor, most likely, anybody.
var credential = syscall.Credential{Uid: 54321, Gid: 54321}

func TestNames(t *testing.T) {
	b := start(t)
	uid := uint32(os.Geteuid())
	for _, c := range []struct{ name, command, want string }{
		{"web", "", "web"},
		{"web", "", "web-2"},
		{"web", "", "web-3"},
		{"", "/usr/bin/python3.11", "python3.11"},
		{"", "./a b*c", "a-b-c"},
		{"", "/", "run"},
		{"", "", "run-2"},
		{"", "./---", "run-3"},
		{strings.Repeat("n", 63), "", strings.Repeat("n", 63)},
		{strings.Repeat("n", 63), "", strings.Repeat("n", 61) + "-2"},
	} {
		req := control.RunRequest{Name: c.name}
		if c.command != "" {
			req.Command = []string{c.command}
		}
		got, err := b.StartRun(t.Context(), os.Getpid(), uid, req)
		if err != nil || got.Name != c.want {
			t.Errorf("%q %q: got %q, %v", c.name, c.command, got.Name, err)
		}
	}
	for _, bad := range []string{"-web", "a b", "ä", "a/b", "..", strings.Repeat("n", 64)} {
		_, err := b.StartRun(t.Context(), os.Getpid(), uid, control.RunRequest{Name: bad})
		if !errors.Is(err, control.ErrInvalid) {
			t.Errorf("name %q: %v", bad, err)
		}
	}
}

func TestReferences(t *testing.T) {
	b := start(t)
	grant := b.run(mib)
	for ref, want := range map[string]error{
		grant.ID: nil, grant.ID[:4]: nil, grant.ID[:3]: control.ErrNotFound, "box": nil, "/box": nil,
		"bo": control.ErrNotFound, "": control.ErrNotFound, "default/box": control.ErrNotFound,
	} {
		c, err := b.Container(t.Context(), ref)
		if !errors.Is(err, want) || err == nil && c.ID != grant.ID {
			t.Errorf("%q: %+v, %v", ref, c.ID, err)
		}
	}
}

func TestStartRunChecksItsCaller(t *testing.T) {
	b := start(t)
	uid := uint32(os.Geteuid())
	_, err := b.StartRun(t.Context(), os.Getpid(), uid+1, control.RunRequest{})
	if !errors.Is(err, control.ErrPermission) {
		t.Errorf("for another user: %v", err)
	}
	if _, err := b.StartRun(t.Context(), 1<<22+1, uid, control.RunRequest{}); err == nil {
		t.Error("for a process that is not there")
	}
	negative := int64(-1)
	_, err = b.StartRun(t.Context(), os.Getpid(), uid, control.RunRequest{
		Caps: control.Caps{MemoryBytes: &negative},
	})
	if !errors.Is(err, control.ErrInvalid) {
		t.Errorf("with a negative cap: %v", err)
	}
	if list, err := b.Containers(t.Context()); len(list) != 0 || err != nil {
		t.Errorf("left over: %+v, %v", list, err)
	}
}

func TestEndRun(t *testing.T) {
	b := start(t)
	grant := b.run(mib)
	stranger := uint32(os.Geteuid()) + 1
	if err := b.EndRun(t.Context(), stranger, grant.ID); !errors.Is(err, control.ErrPermission) {
		t.Errorf("by another user: %v", err)
	}
	if err := b.EndRun(t.Context(), 0, "0123"); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	if err := b.EndRun(t.Context(), uint32(os.Geteuid()), grant.ID); err != nil {
		t.Error(err)
	}
	if _, err := b.Container(t.Context(), grant.ID); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("still there: %v", err)
	}
	if _, err := os.Stat(grant.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its socket is still there: %v", err)
	}
}

// TestRunEndsWithItsProcess, killed at any moment.
func TestRunEndsWithItsProcess(t *testing.T) {
	b := start(t)
	root := sessiontest.Start(t)
	grant := b.runAs(root.PID(), mib)
	root.Kill()
	b.eventually("the container has ended", func() bool {
		_, err := b.Container(t.Context(), grant.ID)
		return err != nil
	})
}

func TestDirectoriesAreClosedToOthers(t *testing.T) {
	b := start(t)
	grant := b.run(mib)
	for path, want := range map[string]os.FileMode{
		filepath.Dir(grant.Socket):                                 0o700,
		grant.Socket:                                               0o600,
		filepath.Join(b.opts.RunDir, "grants"):                     0o600,
		filepath.Join(b.opts.RunDir, "shares"):                     0o600,
		filepath.Join(b.opts.RunDir, "agent.lock"):                 0o600,
		filepath.Join(b.opts.RunDir, "containers-"+b.boot+".json"): 0o600,
		grant.Library:                                              0o555,
	} {
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	if got, err := os.ReadFile(grant.Library); string(got) != string(b.opts.Library) || err != nil {
		t.Errorf("library %q, %v", got, err)
	}
}

// TestAnotherUsersRun: under a system-wide agent the socket is the user's who started the run.
func TestAnotherUsersRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	b := start(t)
	root := exec.Command("/bin/sleep", "1000")
	root.SysProcAttr = &syscall.SysProcAttr{Credential: &credential}
	if err := root.Start(); err != nil {
		t.Fatal(err)
	}
	defer root.Wait()
	defer root.Process.Kill()
	b.eventually("it runs as that user", func() bool {
		grant, err := b.StartRun(t.Context(), root.Process.Pid, credential.Uid, control.RunRequest{})
		if err != nil {
			return false
		}
		var st unix.Stat_t
		err = unix.Stat(grant.Socket, &st)
		if err != nil || st.Uid != credential.Uid || st.Mode&0o777 != 0o600 {
			t.Errorf("socket of user %d, mode %o, %v", st.Uid, st.Mode, err)
		}
		err = unix.Stat(filepath.Dir(grant.Socket), &st)
		if err != nil || st.Uid != 0 || st.Mode&0o777 != 0o711 {
			t.Errorf("directory of user %d, mode %o, %v", st.Uid, st.Mode, err)
		}
		return true
	})
}

// options are those of an agent on a new directory.
func options(t *testing.T) Options {
	dir := t.TempDir()
	return Options{
		RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), Library: []byte("x"),
		Devices: newDevices(1),
	}
}

// refuses checks that no agent starts, and that the error has all of these words.
func refuses(t *testing.T, opts Options, words ...string) {
	t.Helper()
	n, err := New(opts)
	if err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		n.Serve(ctx)
		t.Errorf("an agent started, where %q was due", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in %q", w, err)
		}
	}
}

func TestSecondAgentIsRefused(t *testing.T) {
	b := start(t)
	second := options(t)
	second.RunDir = b.opts.RunDir
	refuses(t, second, "another agent", fmt.Sprintf("pid %d", os.Getpid()), b.opts.RunDir)
	b.run(mib) // the first lives on
}

func TestRunDirectoryIsChecked(t *testing.T) {
	opts := options(t)
	if err := os.Mkdir(opts.RunDir, 0o700); err != nil {
		t.Fatal(err)
	}
	link := opts
	link.RunDir = opts.RunDir + "-link"
	if err := os.Symlink(opts.RunDir, link.RunDir); err != nil {
		t.Fatal(err)
	}
	refuses(t, link, link.RunDir, "symbolic link")

	open := opts
	open.RunDir = opts.RunDir + "-open"
	if err := os.Mkdir(open.RunDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open.RunDir, 0o777); err != nil {
		t.Fatal(err)
	}
	refuses(t, open, open.RunDir, "written by others", "chmod")

	file := opts
	file.RunDir = opts.RunDir + "-file"
	if err := os.WriteFile(file.RunDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, file, file.RunDir, "not a directory")

	odd := opts
	odd.RunDir = opts.RunDir + "-\xff"
	refuses(t, odd, "not UTF-8", "another --run-dir")
	odd = opts
	odd.RunDir, odd.StateDir = opts.RunDir+"-fine", opts.StateDir+"-\xff"
	refuses(t, odd, "not UTF-8", "another --state-dir")

	long := opts
	long.RunDir = opts.RunDir + strings.Repeat("/long", 20)
	refuses(t, long, long.RunDir, "shorter --run-dir")

	if os.Geteuid() == 0 {
		foreign := opts
		foreign.RunDir = opts.RunDir + "-foreign"
		if err := os.Mkdir(foreign.RunDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(foreign.RunDir, int(credential.Uid), 0); err != nil {
			t.Fatal(err)
		}
		refuses(t, foreign, foreign.RunDir, fmt.Sprintf("belongs to user %d", credential.Uid))
	}
}

func TestDamagedStateIsRefused(t *testing.T) {
	opts := options(t)
	boot, err := proc.BootID()
	if err == nil {
		err = os.Mkdir(opts.RunDir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(opts.RunDir, "containers-"+boot+".json")
	if err := os.WriteFile(path, []byte(`{"schema": 1, "cont`), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, opts, path, "move it away")
	refuses(t, opts, path) // and it has let go of everything
}

func TestBadDevicesAreRefused(t *testing.T) {
	opts := options(t)
	devices := newDevices(2)
	opts.Devices = devices
	devices.gpus[1].UUID = "GPU-12"
	refuses(t, opts, `"GPU-12"`)
	devices.gpus[1].UUID = devices.gpus[0].UUID
	refuses(t, opts, "twice")
	opts.Devices = newDevices(65)
	refuses(t, opts, "65 GPUs", "64")
}

func TestLibraryIsNeverWrittenOver(t *testing.T) {
	opts := options(t)
	opts.Library = nil
	refuses(t, opts, "no library in it")
	dir := t.TempDir()
	first, err := installLibrary([]string{dir}, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := installLibrary([]string{dir}, []byte("two"))
	if err != nil || second == first {
		t.Errorf("another library at %s, %v", second, err)
	}
	again, err := installLibrary([]string{dir}, []byte("one"))
	if err != nil || again != first {
		t.Errorf("the same library at %s, %v", again, err)
	}
	if after, err := os.Stat(first); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same library was written again: %v", err)
	}
	os.Chmod(first, 0o644)
	if err := os.WriteFile(first, []byte("tampered"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = installLibrary([]string{dir}, []byte("one"))
	if err == nil || !strings.Contains(err.Error(), first) {
		t.Errorf("a library that was tampered with: %v", err)
	}
}

// TestOldLibraryStaysWhileUsed: what an earlier agent installed goes with the last container that has it.
func TestOldLibraryStaysWhileUsed(t *testing.T) {
	b := start(t)
	old := b.run(mib)
	b.end()
	b.opts.Library = []byte("of the next version")
	b.begin()
	stranger := filepath.Join(b.opts.RunDir, "lib", "not-a-library")
	if err := os.Mkdir(stranger, 0o755); err != nil {
		t.Fatal(err)
	}
	next := b.run(mib)
	if next.Library == old.Library {
		t.Fatalf("the new container is given the old library %s", old.Library)
	}
	there := func(when string, oldToo bool) {
		t.Helper()
		for path, want := range map[string]bool{old.Library: oldToo, next.Library: true, stranger: true} {
			if _, err := os.Stat(path); (err == nil) != want {
				t.Errorf("%s: %s: %v", when, path, err)
			}
		}
	}
	there("both run", true)
	b.end()
	b.begin()
	there("after another restart", true)
	for _, grant := range []control.RunGrant{old, next} {
		if err := b.EndRun(t.Context(), uint32(os.Getuid()), grant.ID); err != nil {
			t.Fatal(err)
		}
		there(grant.ID+" has ended", false)
	}
}

// TestNoexecIsAvoided: /run often forbids what a library needs.
func TestNoexecIsAvoided(t *testing.T) {
	noexec, dir := t.TempDir(), t.TempDir()
	if err := unix.Mount("none", noexec, "tmpfs", unix.MS_NOEXEC, "size=1m"); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	defer unix.Unmount(noexec, 0)
	path, err := installLibrary([]string{noexec, dir}, []byte("one"))
	if err != nil || !strings.HasPrefix(path, dir) {
		t.Errorf("got %s, %v", path, err)
	}
	_, err = installLibrary([]string{noexec}, []byte("one"))
	if err == nil || !strings.Contains(err.Error(), "noexec") {
		t.Errorf("got %v", err)
	}
}

func TestInfo(t *testing.T) {
	b := start(t)
	used := int64(5)
	b.devices.gpus[1].UsedBytes = &used
	info, err := b.Info(t.Context())
	if err != nil || len(info.GPUs) != 2 || info.GPUs[1].UsedBytes == nil ||
		*info.GPUs[1].UsedBytes != 5 ||
		info.PID != os.Getpid() || info.RunDir != b.opts.RunDir || info.Version != "test" {
		t.Errorf("got %+v, %v", info, err)
	}
}

func TestEventsWait(t *testing.T) {
	b := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got := make(chan []control.Event, 1)
	go func() {
		events, err := b.Events(ctx, 0, true)
		if err != nil {
			t.Error(err)
		}
		got <- events
	}()
	b.run(mib)
	if events := <-got; len(events) == 0 || events[0].Type != "started" {
		t.Errorf("got %+v", events)
	}
}

// TestStaticPrograms: a program that cannot load the library is shown as not enforced, with why.
func TestStaticPrograms(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "s.c"), filepath.Join(dir, "s")
	text := "#include <unistd.h>\nint main(void) { sleep(1000); }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	gcc := exec.Command("gcc", "-static", "-o", program, source)
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Skipf("no static programs can be built here: %v: %s", err, out)
	}
	b := start(t)
	root := exec.Command("/bin/sh", "-c", program+" & wait")
	root.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := root.Start(); err != nil {
		t.Fatal(err)
	}
	defer root.Wait()
	defer unix.Kill(-root.Process.Pid, unix.SIGKILL)
	defer root.Process.Kill()
	grant := b.runAs(root.Process.Pid, mib)
	b.eventually("it is shown", func() bool {
		c := b.container(grant.ID)
		return !c.Enforced && strings.Contains(c.Reason, "(s): it is a static program")
	})
}
