package e2e

// `make demo-containers`, as a newcomer's first look at containers: it has to work, and to leave nothing.

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
)

// containersDemo is the script, with the containerd of a generation first in its path.
func containersDemo(t *testing.T, g ctrd.Generation) (command *exec.Cmd, dir string) {
	t.Helper()
	for _, name := range []string{"weir", "weir-runtime", "weir-runtime-create", "weir-hook", "sim/libcuda.so.1", "demo/trainer"} {
		node.Build(t, name)
	}
	dir = temporary(t)
	command = exec.Command(filepath.Join(node.Root(t), "tests/demo/containers.sh"))
	command.Env = append(os.Environ(), "TMPDIR="+dir, g.Path())
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return command, dir
}

// leavesNoTrace asserts that no file, process or control group of a demo is there any more.
func leavesNoTrace(t *testing.T, dir string, groups []string) {
	t.Helper()
	leavesNothing(t, dir)
	if after := groupsOfDemo(t); !slices.Equal(after, groups) {
		t.Errorf("control groups are left: %q, before: %q", after, groups)
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), dir+"/") {
			t.Errorf("a process is left: %q", text)
		}
	}
}

// groupsOfDemo are the control groups that demos have made.
func groupsOfDemo(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/weir-demo-*", "/sys/fs/cgroup/*/weir-demo-*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

func TestContainersDemo(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		command, dir := containersDemo(t, g)
		before := groupsOfDemo(t)
		out, err := command.CombinedOutput()
		said := string(out)
		if err != nil {
			t.Fatalf("the demo failed: %v\n%s", err, said)
		}
		for _, want := range []string{
			"$ weir runtime configure", "$ ctr run --rm --runc-binary", "--annotation weir/memory=64MiB", "trainer: REFUSED", "/ 64MiB",
			"cgroup", "denied", "memory 64MiB -> 128MiB", "has all", "128 ", `accepted: weir/memory, or weir/memory.other`,
			"start-refused", "put back $D/containerd/config.toml", "That is weir under containerd",
		} {
			if !strings.Contains(said, want) {
				t.Errorf("the demo does not say %q:\n%s", want, said)
			}
		}
		leavesNoTrace(t, dir, before)
	})
}

// One that is interrupted while its container runs takes everything away, too.
func TestInterruptedContainersDemo(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		command, dir := containersDemo(t, g)
		before := groupsOfDemo(t)
		said := &node.SyncBuffer{}
		command.Stdout, command.Stderr = said, said
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = command.Wait()
			close(ended)
		}()
		for over := false; !over && !strings.Contains(said.String(), "REFUSED"); {
			select {
			case <-ended:
				over = true
			case <-time.After(5 * time.Millisecond):
			}
		}
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("the demo does not end after SIGTERM:\n%s", said)
		}
		if code := command.ProcessState.ExitCode(); code != 143 {
			t.Errorf("exit code %d, want 143:\n%s", code, said)
		}
		leavesNoTrace(t, dir, before)
	})
}
