package e2e

// weir as an ordinary user has it, and what is left when things end badly.

import (
	"bytes"
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

	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// nobody is an ordinary user that every Debian has.
const nobody = "65534"

// asOrdinaryUser is a command that runs as one, with little in its environment: as nobody where the
// test runs as root, else as whoever runs the test.
func asOrdinaryUser(ctx context.Context, temporary, program string) *exec.Cmd {
	words := []string{"env", "-i", "PATH=/usr/bin:/bin", "HOME=/nonexistent", "TMPDIR=" + temporary, program}
	if os.Getuid() == 0 {
		words = append([]string{"setpriv", "--reuid", nobody, "--regid", nobody, "--clear-groups",
			"--no-new-privs"}, words...)
	}
	return exec.CommandContext(ctx, words[0], words[1:]...)
}

// temporary is a short directory that everybody may write to.
func temporary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-user-")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func leavesNothing(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("the demo leaves %v behind (%v)", left, err)
	}
}

func demo(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"weir", "sim/libcuda.so.1", "demo/trainer", "demo/inference", "demo/hog"} {
		node.Build(t, name)
	}
	return filepath.Join(node.Root(t), "tests/demo/demo.sh")
}

// The demo is the whole path: machine, agent, two programs, refusal, live raise. An ordinary user
// can go it, without a cgroup, without /run/weir, and it leaves nothing behind.
func TestDemoAsOrdinaryUser(t *testing.T) {
	script := demo(t)
	_, systemBefore := os.Stat("/run/weir")
	dir := temporary(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	start := time.Now()
	out, err := asOrdinaryUser(ctx, dir, script).CombinedOutput()
	took := time.Since(start)
	said := string(out)
	t.Logf("%safter %s", said, took.Round(time.Second/10))
	if err != nil {
		t.Fatalf("the demo failed: %v", err)
	}
	if took > time.Minute {
		t.Errorf("the demo takes %s, more than a minute", took)
	}
	for _, want := range []string{
		"simulated", "scale 1/64", "weir ps", "REFUSED", "denied", "caps set trainer", "got it", "has all",
		"every result the same as on the CPU", "weir queue", "light: ", "heavy: ", "of the GPU's time",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the demo does not say %q", want)
		}
	}
	leavesNothing(t, dir)
	if _, err := os.Stat("/run/weir"); errors.Is(systemBefore, os.ErrNotExist) && err == nil {
		t.Error("the demo has made /run/weir")
	}
}

// anotherDriver makes a machine that the demo cannot tell from a real one: its card does not call itself
// simulated, and its driver and NVML find it without WEIR_SIM. Returns where they are.
func anotherDriver(t *testing.T) string {
	t.Helper()
	card, err := sim.LoadMachine("a30")
	if err != nil {
		t.Fatal(err)
	}
	card.GPUs[0].Name = strings.TrimPrefix(card.GPUs[0].Name, "Simulated ")
	// As long as the path that it takes the place of in the libraries, which is the system's machine.
	dir := fmt.Sprintf("/tmp/w%0*d", len(sim.SystemDir)-len("/tmp/w"), os.Getpid())
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := sim.Up(dir, card); err != nil {
		t.Fatal(err)
	}
	libraries := t.TempDir()
	for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		library, err := os.ReadFile(node.Build(t, "sim/"+name))
		if err != nil {
			t.Fatal(err)
		}
		moved := bytes.ReplaceAll(library, []byte(sim.SystemDir), []byte(dir))
		if len(moved) != len(library) || bytes.Equal(moved, library) {
			t.Fatalf("%s does not name %s", name, sim.SystemDir)
		}
		if err := os.WriteFile(filepath.Join(libraries, name), moved, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return libraries
}

// Where a GPU and a driver are, the demo uses them and says so, and starts no simulated machine.
func TestDemoUsesTheCardThatIsThere(t *testing.T) {
	command := exec.Command(demo(t))
	dir := temporary(t)
	command.Env = append(os.Environ(), "TMPDIR="+dir, "LD_LIBRARY_PATH="+anotherDriver(t))
	out, err := command.CombinedOutput()
	said := string(out)
	if err != nil {
		t.Fatalf("the demo failed: %v\n%s", err, said)
	}
	for _, want := range []string{"A GPU is here and is used: A30 24GB with 384MiB", "REFUSED", "got it", "has all"} {
		if !strings.Contains(said, want) {
			t.Errorf("the demo does not say %q:\n%s", want, said)
		}
	}
	if strings.Contains(strings.ToLower(said), "simulated") {
		t.Errorf("the demo says that this card is simulated:\n%s", said)
	}
	leavesNothing(t, dir)
}

// A demo that is interrupted cleans up too.
func TestInterruptedDemoLeavesNothing(t *testing.T) {
	command := exec.Command(demo(t))
	dir := temporary(t)
	command.Env = append(os.Environ(), "TMPDIR="+dir)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	group := -command.Process.Pid
	t.Cleanup(func() { _ = syscall.Kill(group, syscall.SIGKILL) })
	time.Sleep(time.Second)
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the demo does not end after SIGTERM")
	}
	if err := syscall.Kill(group, 0); err == nil {
		t.Error("processes of the interrupted demo are left")
	}
	leavesNothing(t, dir)
}

// `weir run` itself is killed: its program does not go on without it, and nothing is left.
func TestRunItselfIsKilled(t *testing.T) {
	n := node.Start(t, node.Options{})
	puppets := n.Puppets(1, node.RunOptions{Name: "orphan", Memory: "64MiB"})
	p := puppets[0]
	p.OK("init")
	p.OK("alloc %d", 32*mib)
	container := n.Container("orphan")
	if err := syscall.Kill(container.PID, syscall.SIGKILL); err != nil {
		t.Fatalf("killing weir run, pid %d: %v", container.PID, err)
	}
	n.Eventually(func() string {
		if left := n.Containers(); len(left) != 0 {
			return "the container is still listed"
		}
		return ""
	})
	n.Eventually(func() string {
		if gpu := books(t, n); gpu.UsedBytes != 0 {
			return number(gpu.UsedBytes) + " bytes of the card are in use"
		}
		return ""
	})
}
