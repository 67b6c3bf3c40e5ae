package main

// Tests of the hook: the test's own binary is the program. Those that mount need root; each is in a mount
// namespace of its own.

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"weir/agent/control/ociapi"
	"weir/agent/control/ociapi/ociapitest"
	"weir/oci"
)

func TestMain(m *testing.M) {
	if os.Getenv("WEIR_TEST_AS_PROGRAM") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func stateOf(bundle string) string {
	return fmt.Sprintf(`{"ociVersion":"1.0.2","id":"web","status":"created","pid":4711,"bundle":%q,"annotations":{}}`, bundle)
}

// call runs the hook and returns what it wrote to stderr; empty: it ended well.
func call(t *testing.T, state string, args ...string) string {
	t.Helper()
	command := exec.Command(os.Args[0], args...)
	command.Env = []string{"WEIR_TEST_AS_PROGRAM=1"}
	command.Stdin = strings.NewReader(state)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	err := command.Run()
	if (err != nil) != (stderr.Len() > 0) {
		t.Errorf("%v: %v, but it said %q", args, err, stderr.String())
	}
	return stderr.String()
}

func TestTellsTheAgent(t *testing.T) {
	agent := ociapitest.Start(t)
	for _, verb := range []string{"register", "release"} {
		if said := call(t, stateOf("/b"), verb, "--socket", agent.Socket, "--id", "0123"); said != "" {
			t.Error(said)
		}
	}
	if got := agent.Events(); !slices.Equal(got, []string{"register 0123", "release 0123"}) {
		t.Errorf("%q", got)
	}
}

// What the image has is told; where it leads out of the image, nothing is.
func TestMerge(t *testing.T) {
	agent := ociapitest.Start(t)
	bundle := bundleWith(t, `{"root":{"path":"rootfs"},"mounts":[{"destination":"/etc/ld.so.preload","source":"/nonexistent"}]}`)
	etc := filepath.Join(bundle, "rootfs/etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(etc, "ld.so.preload"), []byte("/image.so"), 0o644); err != nil {
		t.Fatal(err)
	}
	merge := func() string { return call(t, stateOf(bundle), "merge", "--socket", agent.Socket, "--id", "0123") }
	if said := merge(); said != "" {
		t.Error(said)
	}
	secret := filepath.Join(t.TempDir(), "ld.so.preload")
	if err := os.WriteFile(secret, []byte("/host.so"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(etc), os.Symlink(filepath.Dir(secret), etc)); err != nil {
		t.Fatal(err)
	}
	if said := merge(); said != "" {
		t.Error(said)
	}
	if got := agent.Events(); !slices.Equal(got, []string{"register 0123 /image.so", "register 0123 "}) {
		t.Errorf("%q", got)
	}
}

func TestNamesTheMistake(t *testing.T) {
	for _, test := range []struct {
		state, args, want string
	}{
		{stateOf("/b"), "", "want weir-hook register|merge|release|start|inject"},
		{stateOf("/b"), "restart", "want weir-hook"},
		{stateOf("/b"), "register --socket", "--socket needs a value"},
		{stateOf("/b"), "register --sock /x", `unknown argument "--sock"`},
		{stateOf("/b"), "register --socket x", `--socket "x": want an absolute path`},
		{"", "register", "reading the container's state from stdin"},
		{"{}", "register", "it has no bundle or no id"},
		{`{"id":"web","bundle":"/b"}`, "register", "container web: its state has no pid"},
		{stateOf("/b"), "register --socket /nonexistent/control.sock", "container web: no agent answers at /nonexistent/control.sock"},
		{stateOf("/nonexistent"), "start", "container web: "},
		{stateOf("/nonexistent"), "merge", "container web: "},
	} {
		said := call(t, test.state, strings.Fields(test.args)...)
		if !strings.HasPrefix(said, "weir: ") || !strings.Contains(said, test.want) || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: %q\nwant one line with %q", test.args, said, test.want)
		}
	}
}

func bundleWith(t *testing.T, spec string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestStart(t *testing.T) {
	const asking = `{"root":{"path":"rootfs"},"annotations":{"weir/memory":"1GiB"}}`
	const unasked = `{"root":{"path":"rootfs"},"linux":{"devices":[{"path":"/dev/nvidia0"}]}}`
	const privileged = `{"root":{"path":"rootfs"},"linux":{"resources":{"devices":[{"allow":true,"access":"rwm"}]}}}`
	agent := ociapitest.Start(t)
	for _, test := range []struct {
		spec, socket, refusal, want string
		prepared                    int
	}{
		{asking, agent.Socket, "", "", 1}, {unasked, agent.Socket, "", "", 1}, {`{}`, agent.Socket, "", "", 0},
		{asking, agent.Socket, "no", "container web: no", 1}, {unasked, agent.Socket, "no", "container web: no", 1},
		{privileged, agent.Socket, "no", "", 1},
		{asking, "/nonexistent/s", "", "no agent answers", 0}, {unasked, "/nonexistent/s", "", "", 0},
	} {
		agent.Answer(ociapi.Prepared{})
		if test.refusal != "" {
			agent.Refuse(test.refusal)
		}
		before := len(agent.Prepared())
		said := call(t, stateOf(bundleWith(t, test.spec)), "start", "--socket", test.socket)
		if (said == "") != (test.want == "") || !strings.Contains(said, test.want) {
			t.Errorf("%s at %s: %q", test.spec, test.socket, said)
		}
		prepared := agent.Prepared()[before:]
		if len(prepared) != test.prepared || len(prepared) > 0 && prepared[0].PID != 4711 {
			t.Errorf("%s at %s: %+v", test.spec, test.socket, prepared)
		}
	}
}

// An image that cannot be read makes no exception from the policy: the agent is asked all the same.
// TestRestore: the hooks of a start run when a container is restored, too, where nothing can be injected into it.
func TestRestore(t *testing.T) {
	agent := ociapitest.Start(t)
	grant := oci.Grant{ID: "0123456789ab"}
	agent.Answer(ociapi.Prepared{Grant: &grant})
	const asking = `{"root":{"path":"rootfs"},"annotations":{"weir/memory":"1GiB"}}`
	const unasked = `{"root":{"path":"rootfs"},"linux":{"devices":[{"path":"/dev/nvidia0"}]}}`
	for _, test := range []struct {
		command, verb, spec string
		refused             bool
	}{
		{"restore", "start", asking, true}, {"restore", "start", unasked, true}, {"restore", "start", `{}`, false},
		{"restore", "register", asking, true}, {"restore", "merge", asking, true}, {"restore", "release", asking, false},
		{"create", "start", asking, false}, {"create", "register", asking, false},
	} {
		// A shell that was called as runc is, and runs the script of the command's name.
		dir, bundle := t.TempDir(), bundleWith(t, test.spec)
		script := fmt.Sprintf("echo '%s' | WEIR_TEST_AS_PROGRAM=1 %s %s --socket %s\nexit\n", stateOf(bundle), os.Args[0], test.verb, agent.Socket)
		if err := os.WriteFile(filepath.Join(dir, test.command), []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		runc := exec.Cmd{Path: "/bin/sh", Args: []string{"runc", test.command, "--bundle", bundle, "web"}, Dir: dir}
		out, err := runc.CombinedOutput()
		if refused := strings.Contains(string(out), "container web: weir cannot hold a cap for processes that are restored"); refused != test.refused ||
			(err != nil) != test.refused {
			t.Errorf("%s, %s of %s: %v, %s", test.command, test.verb, test.spec, err, out)
		}
	}
}

func TestStartOfAnUnreadableImage(t *testing.T) {
	agent := ociapitest.Start(t)
	dir := bundleWith(t, `{"root":{"path":"rootfs"},"linux":{"devices":[{"path":"/dev/nvidia0"}]}}`)
	if err := os.Mkdir(filepath.Join(dir, "rootfs/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	huge := make([]byte, ociapi.PreloadBytesMax+1)
	if err := os.WriteFile(filepath.Join(dir, "rootfs/etc/ld.so.preload"), huge, 0o644); err != nil {
		t.Fatal(err)
	}
	start := func() string { return call(t, stateOf(dir), "start", "--socket", agent.Socket) }
	if said := start(); said != "" {
		t.Errorf("where it passes: %q", said)
	}
	agent.Refuse("no")
	if said := start(); !strings.Contains(said, "container web: no") {
		t.Errorf("where it is refused: %q", said)
	}
	agent.Answer(ociapi.Prepared{Grant: &oci.Grant{ID: "0123456789ab"}})
	if said := start(); !strings.Contains(said, "container web: reading /etc/ld.so.preload of the image: it has ") {
		t.Errorf("where it is to have a grant: %q", said)
	}
}

// granted makes a run directory with a grant, and the note of it for a bundle. All is open to others.
func granted(t *testing.T) (socket, bundle, root string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-hook-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, bundle = filepath.Join(dir, "root"), filepath.Join(dir, "bundle")
	for _, d := range []string{"root", "c/lib", "lib", "oci"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"c/ld.so.preload": "preload", "c/agent.sock": "socket", "lib/libweir.so": "library"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	note, err := json.Marshal(ociapi.Note{Root: root, Grant: oci.Grant{SocketDir: filepath.Join(dir, "c"),
		LibraryDir: filepath.Join(dir, "lib"), PreloadFile: filepath.Join(dir, "c/ld.so.preload")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ociapi.NotePath(dir, bundle), note, 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "control.sock"), bundle, root
}

// injected runs the hook in namespaces of its own and prints there what a container would see.
func injected(t *testing.T, namespaces *syscall.SysProcAttr) {
	t.Helper()
	socket, bundle, root := granted(t)
	if len(namespaces.UidMappings) > 0 {
		if err := os.Chown(root, namespaces.UidMappings[0].HostID, namespaces.GidMappings[0].HostID); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("/bin/sh", "-c", `mount --make-rprivate / && WEIR_TEST_AS_PROGRAM=1 "$0" inject --socket "$1" &&
		cat "$2/etc/ld.so.preload" "$2/run/weir/agent.sock" "$2/run/weir/lib/libweir.so" &&
		! touch "$2/run/weir/x" 2>/dev/null`, program(t), socket, root)
	command.Stdin = strings.NewReader(stateOf(bundle))
	command.SysProcAttr = namespaces
	out, err := command.CombinedOutput()
	if err != nil || string(out) != "preloadsocketlibrary" {
		t.Errorf("%v: %s", err, out)
	}
}

// program is this binary where others can reach it, too.
func program(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp("", "weir-hook-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(f.Name()) })
	if _, err := f.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Chmod(0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func TestInject(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	t.Run("as root", func(t *testing.T) {
		injected(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS})
	})
	t.Run("in a user namespace", func(t *testing.T) {
		if text, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(text)) == "0" {
			t.Skip("there are no user namespaces here")
		}
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 65536}}
		injected(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
			Credential: &syscall.Credential{}})
	})
}

func TestInjectNothing(t *testing.T) {
	socket, _, _ := granted(t)
	if said := call(t, stateOf("/another"), "inject", "--socket", socket); said != "" {
		t.Error(said)
	}
}

// What is installed must not be linked to anything, and is started with each container.
func TestIsStaticAndSmall(t *testing.T) {
	const bytesMax = 3 << 20
	path := filepath.Join(t.TempDir(), "weir-hook")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, header := range file.Progs {
		if header.Type == elf.PT_INTERP || header.Type == elf.PT_DYNAMIC {
			t.Errorf("it is linked dynamically: it has a header %v", header.Type)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() > bytesMax {
		t.Errorf("it has %d bytes, more than %d: %v", info.Size(), bytesMax, err)
	}
}
