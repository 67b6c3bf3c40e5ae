package main

// Tests of the program as a container runtime calls it, with a script in runc's place: the front is in
// front, where there is a C compiler, and the test's own binary is the rest.

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"weir/agent/control/ociapi"
	"weir/agent/control/ociapi/ociapitest"
	"weir/oci"
)

func TestMain(m *testing.M) {
	if os.Getenv("WEIR_TEST_AS_PROGRAM") != "" {
		main()
	}
	code := 1
	if dir, err := os.MkdirTemp("", "weir-runtime-"); err == nil {
		program = buildFront(dir)
		code = m.Run()
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// program is what is called: the front, with this binary beside it.
var program = os.Args[0]

// buildFront builds the front as `make` does, and gives its path; without make or a compiler there is
// only the rest.
func buildFront(dir string) string {
	front := filepath.Join(dir, "weir-runtime")
	build := exec.Command("make", "-s", "-C", "../..", "BUILD="+dir, front)
	if out, err := build.CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			panic(string(out))
		}
		return os.Args[0]
	}
	text, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(front+"-create", text, 0o755)
	}
	if err != nil {
		panic(err)
	}
	return front
}

// node is a machine with a script in runc's place, which writes its pid and arguments to a file.
type node struct {
	t        *testing.T
	dir      string
	program  string
	settings string
	preload  string // of the image
}

func newNode(t *testing.T, socket string) *node {
	dir := t.TempDir()
	n := &node{t, dir, program, filepath.Join(dir, "runtime.toml"), "/image.so\n"}
	script := "#!/bin/sh\necho $$ \"$@\" > " + dir + "/called\nexit 7\n"
	n.write("bin/runc", script, 0o755)
	n.write("runtime.toml", "runtime = \""+dir+"/bin/runc\"\ncontrol_socket = \""+socket+"\" # the agent's\n", 0o644)
	return n
}

func (n *node) write(name, text string, mode os.FileMode) {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) read(name string) string {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.t.Fatal(err)
	}
	return string(text)
}

// call runs the program with a specification. called is what it called runc with; empty: it did not.
func (n *node) call(spec string, args ...string) (called, stderr string) {
	n.t.Helper()
	n.write("b/config.json", spec, 0o644)
	n.write("b/rootfs/etc/ld.so.preload", n.preload, 0o644)
	for _, name := range []string{"called", "log.json"} {
		os.Remove(filepath.Join(n.dir, name))
	}
	command := exec.Command(n.program, args...)
	command.Env = []string{"WEIR_TEST_AS_PROGRAM=1", settingsVariable + "=" + n.settings,
		"PATH=" + filepath.Join(n.dir, "shadow") + ":" + filepath.Join(n.dir, "bin") + ":/usr/bin:/bin"}
	var errors bytes.Buffer
	command.Stderr = &errors
	err := command.Run()
	called = n.read("called")
	if called == "" {
		if command.ProcessState.ExitCode() != 1 {
			n.t.Errorf("%v: neither passed on nor failed: %v, %s", args, err, errors.String())
		}
		return "", errors.String()
	}
	pid, rest, _ := strings.Cut(strings.TrimSpace(called), " ")
	if command.ProcessState.ExitCode() != 7 || pid != itoa(command.Process.Pid) {
		n.t.Errorf("%v: it is not the process that became runc: %v, %s", args, err, called)
	}
	return rest, errors.String()
}

func itoa(n int) string { text, _ := json.Marshal(n); return string(text) }

func (n *node) create(spec string) (called, stderr string) {
	return n.call(spec, "--root", "/r", "--log", n.dir+"/log.json", "--log-format", "json", "create", "--bundle", n.dir+"/b", "web")
}

func (n *node) created() string {
	return "--root /r --log " + n.dir + "/log.json --log-format json create --bundle " + n.dir + "/b web"
}

var grant = oci.Grant{ID: "0123456789ab", SocketDir: "/run/weir/c/0123456789ab", LibraryDir: "/run/weir/lib/x",
	PreloadFile: "/run/weir/c/0123456789ab/ld.so.preload", Hook: "/usr/bin/weir-hook", ControlSocket: "/run/weir/control.sock"}

const (
	plain  = `{"root": {"path":"rootfs"}, "x" : 1.0}`
	asking = `{"root":{"path":"rootfs"},"process":{"env":[]},"annotations":{"weir/memory":"1GiB"}}`
	others = `{"root":{"path":"rootfs"},"linux":{"resources":{"devices":[{"allow":true,"access":"rwm"}]}}}` // privileged
	gpu    = `{"root":{"path":"rootfs"},"linux":{"devices":[{"path":"/dev/nvidia0"}]}}`
)

func TestPassesOthersUntouched(t *testing.T) {
	agent := ociapitest.Start(t)
	agent.Answer(ociapi.Prepared{Grant: &grant})
	n := newNode(t, agent.Socket)
	for _, spec := range []string{plain, "no JSON", `{"annotations":{"weir/memory":"1GiB",` +
		`"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-id":"web"}}`} {
		if called, _ := n.create(spec); called != n.created() {
			t.Errorf("called with %q", called)
		}
		if got := n.read("b/config.json"); got != spec {
			t.Errorf("%s became %s", spec, got)
		}
	}
	for _, args := range [][]string{{"state", "web"}, {"--root", "/r", "delete", "--force", "create"}, {"--version"}, {},
		{"exec", "--process", "/p", "web"}} {
		if called, _ := n.call(asking, args...); called != strings.Join(args, " ") {
			t.Errorf("%v: called with %q", args, called)
		}
	}
	if got := agent.Prepared(); len(got) > 0 {
		t.Errorf("the agent was asked about %v", got)
	}
}

func TestEditsWhatIsGranted(t *testing.T) {
	agent := ociapitest.Start(t)
	agent.Answer(ociapi.Prepared{Grant: &grant})
	n := newNode(t, agent.Socket)
	for _, spec := range []string{asking, gpu} {
		if called, stderr := n.create(spec); called != n.created() {
			t.Errorf("called with %q: %s", called, stderr)
		}
		want, err := oci.Edit([]byte(spec), grant)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.read("b/config.json"); got != string(want) {
			t.Errorf("%s became %s", spec, got)
		}
	}
	first := agent.Prepared()[0]
	if first.ID != "web" || first.Bundle != n.dir+"/b" || first.Preload != "/image.so\n" || first.Annotations["weir/memory"] != "1GiB" {
		t.Errorf("%+v", first)
	}
	agent.Answer(ociapi.Prepared{Reason: "it has a GPU and no annotation of weir's"})
	if called, _ := n.create(gpu); called != n.created() || n.read("b/config.json") != gpu {
		t.Errorf("what passes was touched: %s", n.read("b/config.json"))
	}
}

func TestRefusalIsSeen(t *testing.T) {
	agent := ociapitest.Start(t)
	agent.Refuse(`annotation "weir/memory": "x" is not a size`)
	n := newNode(t, agent.Socket)
	for _, spec := range []string{asking, gpu} {
		called, stderr := n.create(spec)
		const want = `weir: container web: annotation "weir/memory": "x" is not a size`
		if called != "" || stderr != want+"\n" {
			t.Errorf("called with %q, and said %q", called, stderr)
		}
		var line struct{ Level, Msg, Time string }
		if err := json.Unmarshal([]byte(n.read("log.json")), &line); err != nil || line.Level != "error" || line.Msg != want {
			t.Errorf("the log has %q, %v", n.read("log.json"), err)
		}
		if n.read("b/config.json") != spec {
			t.Error("the specification was touched")
		}
	}
}

// What an image has in its file need not be UTF-8.
func TestBytesOfThePreload(t *testing.T) {
	agent := ociapitest.Start(t)
	n := newNode(t, agent.Socket)
	n.preload = "/image-\xff.so\n"
	if called, stderr := n.create(asking); called != n.created() {
		t.Errorf("called with %q, and said %q", called, stderr)
	}
	if got := agent.Prepared(); len(got) != 1 || got[0].Preload != n.preload {
		t.Errorf("the agent was told %+v", got)
	}
}

// A privileged container is shown to the agent, and starts whatever that says.
func TestPrivilegedIsToldAndPasses(t *testing.T) {
	agent := ociapitest.Start(t)
	agent.Refuse("no")
	n := newNode(t, agent.Socket)
	if called, stderr := n.create(others); called != n.created() || stderr != "" || n.read("b/config.json") != others {
		t.Errorf("called with %q, and said %q", called, stderr)
	}
	if got := agent.Prepared(); len(got) != 1 || !got[0].AllDevices || got[0].HasGPU {
		t.Errorf("the agent was asked about %+v", got)
	}
}

// Without an agent only those fail that asked.
func TestNoAgent(t *testing.T) {
	n := newNode(t, filepath.Join(t.TempDir(), "control.sock"))
	for settings, want := range map[string]string{
		n.settings:                  "; control_socket in " + n.settings + " would name another",
		"/nonexistent/runtime.toml": "; control_socket in /nonexistent/runtime.toml, which is not there, would name another",
	} {
		m := *n
		m.settings = settings
		if called, stderr := m.create(asking); called != "" || !strings.Contains(stderr, "container web: no agent answers at ") ||
			!strings.HasSuffix(stderr, want+"\n") {
			t.Errorf("called with %q, and said %q", called, stderr)
		}
	}
	for _, spec := range []string{plain, gpu} {
		if called, _ := n.create(spec); called != n.created() || n.read("b/config.json") != spec {
			t.Errorf("%s: called with %q", spec, called)
		}
	}
}

// A container out of a checkpoint is not given what it asks, and does not start without it.
func TestRestore(t *testing.T) {
	agent := ociapitest.Start(t)
	n := newNode(t, agent.Socket)
	restore := func(spec string) (called, stderr string) {
		return n.call(spec, "--root", "/r", "restore", "--image-path", "/i", "--bundle", n.dir+"/b", "--detach", "web")
	}
	const want = "weir: container web: weir cannot hold a cap for processes that are restored from a checkpoint; "
	if called, stderr := restore(asking); called != "" || !strings.HasPrefix(stderr, want) {
		t.Errorf("called with %q, and said %q", called, stderr)
	}
	for _, spec := range []string{plain, gpu} { // the policy lets what has a GPU pass
		if called, stderr := restore(spec); !strings.HasPrefix(called, "--root /r restore ") || n.read("b/config.json") != spec {
			t.Errorf("%s: called with %q: %s", spec, called, stderr)
		}
	}
	agent.Answer(ociapi.Prepared{Grant: &grant}) // or gives it defaults
	if called, stderr := restore(gpu); called != "" || !strings.HasPrefix(stderr, want) {
		t.Errorf("called with %q, and said %q", called, stderr)
	}
	if got := agent.Events(); !slices.Equal(got, []string{"release " + grant.ID}) {
		t.Errorf("the agent heard %q", got)
	}
}

// A specification that is not the bundle's is the one that counts.
func TestSpecElsewhere(t *testing.T) {
	agent := ociapitest.Start(t)
	agent.Answer(ociapi.Prepared{Grant: &grant})
	n := newNode(t, agent.Socket)
	n.write("spec", asking, 0o644)
	create := []string{"create", "-b", n.dir + "/b", "-f", n.dir + "/spec", "web"}
	if called, stderr := n.call(plain, create...); called != strings.Join(create, " ") {
		t.Errorf("called with %q: %s", called, stderr)
	}
	want, err := oci.Edit([]byte(asking), grant)
	if err != nil || n.read("spec") != string(want) || n.read("b/config.json") != plain {
		t.Errorf("it became %s, %v", n.read("spec"), err)
	}
	n.write("spec", plain, 0o644)
	if called, _ := n.call(asking, create...); called != strings.Join(create, " ") || n.read("spec") != plain {
		t.Errorf("called with %q, and made %s", called, n.read("spec"))
	}
	if err := syscall.Mkfifo(n.dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	called, stderr := n.call(plain, "run", "-b", n.dir+"/b", "--config", n.dir+"/pipe", "web")
	if called != "" || !strings.Contains(stderr, n.dir+"/pipe: it is no regular file") {
		t.Errorf("called with %q, and said %q", called, stderr)
	}
}

// An image that cannot be read makes no exception from the policy: the agent is asked all the same.
func TestUnreadableImage(t *testing.T) {
	agent := ociapitest.Start(t)
	n := newNode(t, agent.Socket)
	n.preload = strings.Repeat("x", ociapi.PreloadBytesMax+1)
	if called, _ := n.create(gpu); called != n.created() || n.read("b/config.json") != gpu {
		t.Errorf("where it passes, called with %q", called)
	}
	agent.Refuse("no")
	if called, stderr := n.create(gpu); called != "" || stderr != "weir: container web: no\n" {
		t.Errorf("where it is refused, called with %q, and said %q", called, stderr)
	}
	agent.Answer(ociapi.Prepared{Grant: &grant})
	for _, spec := range []string{gpu, asking} {
		called, stderr := n.create(spec)
		if called != "" || !strings.Contains(stderr, "container web: reading /etc/ld.so.preload of the image: it has ") {
			t.Errorf("%s: called with %q, and said %q", spec, called, stderr)
		}
	}
	if got := agent.Events(); !slices.Equal(got, []string{"release " + grant.ID, "release " + grant.ID}) {
		t.Errorf("the agent heard %q", got)
	}
	for _, asked := range agent.Prepared() {
		if !strings.HasPrefix(asked.Obstacle, "reading /etc/ld.so.preload of the image: it has ") {
			t.Errorf("the agent was told %q", asked.Obstacle)
		}
	}
}

func TestBrokenSettings(t *testing.T) {
	agent := ociapitest.Start(t)
	n := newNode(t, agent.Socket)
	n.write("runtime.toml", "runtime = runc\n", 0o644)
	if called, _ := n.create(plain); called != n.created() {
		t.Errorf("called with %q", called)
	}
	if called, stderr := n.create(asking); called != "" || !strings.Contains(stderr, `runtime.toml:1: want KEY = "VALUE"`) {
		t.Errorf("called with %q, and said %q", called, stderr)
	}
}

// Under the name runc and first in PATH it finds the one behind it.
func TestShadow(t *testing.T) {
	n := newNode(t, "/nonexistent")
	n.write("runtime.toml", "", 0o644)
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	n.write("shadow/runc", string(text), 0o755)
	n.program = filepath.Join(n.dir, "shadow/runc")
	if called, stderr := n.call(plain, "create", "-b", n.dir+"/b", "web"); called != "create -b "+n.dir+"/b web" {
		t.Errorf("called with %q: %s", called, stderr)
	}
	n.write("runtime.toml", "runtime = \""+n.program+"\"\n", 0o644)
	if called, stderr := n.call(plain, "state", "web"); called != "" || !strings.Contains(stderr, "is weir-runtime itself") {
		t.Errorf("called with %q: %s", called, stderr)
	}
	n.write("runtime.toml", "runtime = \"no-such-runtime\"\n", 0o644)
	if called, stderr := n.call(plain, "state", "web"); called != "" || !strings.Contains(stderr, "there is no no-such-runtime in PATH; name it as runtime in "+n.settings) {
		t.Errorf("called with %q: %s", called, stderr)
	}
}

func TestSettings(t *testing.T) {
	usual := settings{Runtime: "runc", ControlSocket: "/run/weir/control.sock"}
	for text, want := range map[string]settings{
		"":                               usual,
		"# x\n\n runtime = 'crun' # y\n": {Runtime: "crun", ControlSocket: usual.ControlSocket},
		"control_socket=\"/a\\u0062\"\nruntime=\"/usr/bin/a#b\"": {Runtime: "/usr/bin/a#b", ControlSocket: "/ab"},
	} {
		if got, err := parseSettings(text, usual); got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"runtime":                   `1: want KEY = "VALUE"`,
		"\nruntime = \"a":           `2: want KEY = "VALUE"`,
		"runtime = 'a":              `1: want KEY = "VALUE"`,
		"runtime = \"a\" b":         `1: want KEY = "VALUE"`,
		"runtime = \"\"":            `1: runtime: "": want an absolute path`,
		"runtime = \"./runc\"":      `1: runtime: "./runc": want an absolute path`,
		"control_socket = \"here\"": `1: control_socket: "here": want an absolute path`,
		"[runtime]":                 `1: want KEY = "VALUE"`,
		"runtimes = \"x\"":          `1: unknown key "runtimes"; accepted: runtime, control_socket`,
	} {
		if _, err := parseSettings(text, usual); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzSettings(f *testing.F) {
	f.Add("runtime = \"crun\" # x\ncontrol_socket = '/a'\n")
	f.Fuzz(func(t *testing.T, text string) {
		read, err := parseSettings(text, settings{Runtime: "runc", ControlSocket: "/s"})
		if err == nil && (read.Runtime == "" || !filepath.IsAbs(read.ControlSocket)) {
			t.Errorf("%q: %+v", text, read)
		}
	})
}
