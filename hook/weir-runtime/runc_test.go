package main

// A real runc behind the programs as they are installed: what is edited is what it takes, and the hooks
// speak with the agent.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/agent/control/ociapi"
	"weir/agent/control/ociapi/ociapitest"
	"weir/oci"
)

// realNode is a directory with the programs, a library that does nothing, and what a grant is made of.
type realNode struct {
	dir   string
	agent *ociapitest.Agent
	grant oci.Grant
}

func newRealNode(t *testing.T) *realNode {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start containers")
	}
	for _, program := range []string{"runc", "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s in PATH", program)
		}
	}
	dir := t.TempDir()
	n := &realNode{dir, ociapitest.Start(t), oci.Grant{
		ID: "0123456789ab", SocketDir: dir + "/c", LibraryDir: dir + "/lib",
		PreloadFile: dir + "/c/ld.so.preload",
		Hook:        dir + "/weir-hook", ControlSocket: "",
	}}
	n.grant.ControlSocket = n.agent.Socket
	programs, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"c/lib", "lib", "b/rootfs/etc"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	library := exec.Command("gcc", "-shared", "-o", dir+"/lib/libweir.so", "-x", "c", "/dev/null")
	if out, err := library.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, text := range map[string]string{
		"c/ld.so.preload": string(oci.MergePreload(n.grant.Library(), nil)), "c/agent.sock": "a socket",
		"runtime.toml": "control_socket = \"" + n.agent.Socket + "\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	n.agent.Answer(ociapi.Prepared{Grant: &n.grant})
	return n
}

// programs are the two programs as they are installed, built once.
var programs = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "weir-programs-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	built := make(map[string][]byte)
	for _, name := range []string{"weir-hook", "weir-runtime"} {
		build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, name), "weir/hook/"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
		if built[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return built, nil
})

// run runs a shell command in a container that has the machine's programs, and annotations.
func (n *realNode) run(t *testing.T, annotations, script string, env ...string) (string, error) {
	t.Helper()
	n.write(t, "b/config.json", n.spec(t, annotations, script, env...))
	return n.call("run", "--bundle", n.dir+"/b", "weir-test-web")
}

func (n *realNode) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// call calls weir-runtime.
func (n *realNode) call(args ...string) (string, error) { return n.callBy(nil, args...) }

// callBy has another program call it.
func (n *realNode) callBy(caller []string, args ...string) (string, error) {
	words := slices.Concat(caller, []string{n.dir + "/weir-runtime", "--root", n.dir + "/state"}, args)
	command := exec.Command(words[0], words[1:]...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), settingsVariable + "=" + n.dir + "/runtime.toml"}
	out, err := command.CombinedOutput()
	return string(out), err
}

// spec is the specification of a container of run's, whose root file system is made.
func (n *realNode) spec(t *testing.T, annotations, script string, env ...string) string {
	t.Helper()
	rootfs := n.dir + "/b/rootfs"
	for _, name := range []string{"bin", "lib", "lib64", "sbin"} {
		if err := os.Symlink("usr/"+name, filepath.Join(rootfs, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	quoted := []string{}
	for _, variable := range env {
		quoted = append(quoted, fmt.Sprintf("%q", variable))
	}
	return fmt.Sprintf(`{"ociVersion":"1.0.2","root":{"path":"rootfs"},"annotations":{%s},
		"process":{"user":{"uid":0,"gid":0},"args":["/bin/sh","-c",%q],"cwd":"/","env":["PATH=/bin"%s]},
		"mounts":[{"destination":"/proc","type":"proc","source":"proc"},{"destination":"/dev","type":"tmpfs","source":"tmpfs"},
			{"destination":"/usr","type":"bind","source":"/usr","options":["rbind","ro"]}],
		"linux":{"namespaces":[{"type":"pid"},{"type":"mount"},{"type":"ipc"},{"type":"uts"}]}}`,
		annotations, script, strings.Join(append([]string{""}, quoted...), ","))
}

func TestRunc(t *testing.T) {
	n := newRealNode(t)
	out, err := n.run(t, "", `echo hello; test ! -e /run/weir`)
	if err != nil {
		t.Skipf("runc starts no container here: %v: %s", err, out)
	}
	if events := n.agent.Events(); len(events) > 0 {
		t.Errorf("of a container that asked for nothing the agent heard %q", events)
	}
	// With a cleared environment, by which only /etc/ld.so.preload is left.
	out, err = n.run(t, `"weir/memory":"1GiB"`, `cat /run/weir/agent.sock; env -i /bin/cat /proc/self/maps | `+
		`grep -c /run/weir/lib/libweir.so; touch /run/weir/x /run/weir/lib/x 2>&1 | grep -c Read-only; echo "$LD_PRELOAD"`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(lines) != 3 || !strings.HasPrefix(lines[0], "a socket") || lines[1] != "2" ||
		lines[2] != "/run/weir/lib/libweir.so" {
		t.Errorf("%v: %s", err, out)
	}
	if events := n.agent.Events(); !slices.Equal(events, []string{"register 0123456789ab", "release 0123456789ab"}) {
		t.Errorf("the agent heard %q", events)
	}
}

// TestCrun: what crun reads is what is edited, its specification elsewhere included.
func TestCrun(t *testing.T) {
	n := newRealNode(t)
	if _, err := exec.LookPath("crun"); err != nil {
		t.Skip("there is no crun in PATH")
	}
	n.write(t, "runtime.toml", "control_socket = \""+n.agent.Socket+"\"\nruntime = \"crun\"\n")
	// It wants no control groups of both versions at once, as there may be here, and needs none.
	const alone = `umount -q -l /sys/fs/cgroup/unified; exec "$@"`
	crun := func(args ...string) (string, error) {
		return n.callBy([]string{"unshare", "-m", "sh", "-c", alone, "sh"}, append([]string{"--cgroup-manager", "disabled"}, args...)...)
	}
	n.write(t, "b/config.json", n.spec(t, "", "true"))
	if out, err := crun("run", "-b", n.dir+"/b", "weir-test-web"); err != nil {
		t.Skipf("crun starts no container here: %v: %s", err, out)
	}
	const script = `cat /run/weir/agent.sock`
	n.write(t, "b/config.json", n.spec(t, "", "echo not this"))
	for _, args := range [][]string{
		{"run", "--config", n.dir + "/spec", "--bundle", n.dir + "/b", "weir-test-web"},
		{"run", "-f" + n.dir + "/spec", "-b" + n.dir + "/b", "weir-test-web"},
		{"run", "--conf", n.dir + "/spec", "--bund=" + n.dir + "/b", "weir-test-web"},
	} {
		n.write(t, "spec", n.spec(t, `"weir/memory":"1GiB"`, script))
		if out, err := crun(args...); err != nil || out != "a socket" {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}

// The image's LD_PRELOAD is kept behind ours, and no program of the host's loads it.
func TestRuncHostilePreload(t *testing.T) {
	n := newRealNode(t)
	const proof = "/tmp/weir-test-evil-ran"
	os.Remove(proof)
	source := n.dir + "/evil.c"
	text := `#include <fcntl.h>
		__attribute__((constructor)) static void run(void) { (void)!open("` + proof + `", O_CREAT | O_WRONLY, 0600); }`
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	evil := exec.Command("gcc", "-shared", "-fPIC", "-o", n.dir+"/b/rootfs/evil.so", source)
	if out, err := evil.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := n.run(t, "", "true"); err != nil {
		t.Skipf("runc starts no container here: %v: %s", err, out)
	}
	out, err := n.run(t, `"weir/memory":"1GiB"`, `echo "$LD_PRELOAD"; mkdir -p /tmp; cat /proc/self/maps | grep -c -e evil.so -e libweir.so`,
		"LD_PRELOAD=/proc/self/cwd/evil.so")
	if err != nil || !strings.HasPrefix(out, "/run/weir/lib/libweir.so:/proc/self/cwd/evil.so\n") ||
		strings.HasSuffix(strings.TrimSpace(out), "\n0") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(proof); err == nil {
		os.Remove(proof)
		t.Error("a program of the host's has run the image's code")
	}
}

// An image whose /etc and /run lead out of it: nothing is written there.
func TestRuncHostileLinks(t *testing.T) {
	n := newRealNode(t)
	if out, err := n.run(t, "", "true"); err != nil {
		t.Skipf("runc starts no container here: %v: %s", err, out)
	}
	outside := t.TempDir()
	for _, name := range []string{"etc", "run"} {
		place := filepath.Join(n.dir, "b/rootfs", name)
		if err := os.RemoveAll(place); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, place); err != nil {
			t.Fatal(err)
		}
	}
	out, err := n.run(t, `"weir/memory":"1GiB"`, `cat /run/weir/agent.sock`)
	if err != nil || out != "a socket" {
		t.Errorf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside there is %v, %v", left, err)
	}
}
