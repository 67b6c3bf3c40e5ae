// Tests of `weir run` as a process: signals, terminals, orphans, and its end.

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/control/controltest"
)

// running is `weir run` in a test, as a process.
type running struct {
	*exec.Cmd
	node  *controltest.Node
	out   *bufio.Reader
	talk  *bytes.Buffer
	first string // the line with which the program says that it is there
}

// startRun starts this test binary as weir, which starts it again as the child of a mode, and
// waits for the child's first line.
func startRun(t *testing.T, mode string, change func(*exec.Cmd)) *running {
	t.Helper()
	library, err := anyLibrary()
	if err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	r := &running{node: sampleNode(library), talk: &bytes.Buffer{}}
	stop, err := serveFake(dir, r.node)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.Cmd = exec.Command(self, "run", "--name", "x", "--", self)
	r.Env = append(os.Environ(), childMode+"="+mode, weirMode+"=1", runDirEnv+"="+dir)
	r.Stderr = r.talk
	if change != nil {
		change(r.Cmd)
	}
	pipe, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Process.Kill(); r.Wait(); stop(); os.RemoveAll(dir) })
	r.out = bufio.NewReader(pipe)
	if r.first, err = r.out.ReadString('\n'); err != nil {
		t.Fatalf("the child said %q, %v; weir said %s", r.first, err, r.talk)
	}
	return r
}

// finish reads what is left of the output and returns it with the exit code.
func (r *running) finish(t *testing.T) (string, int) {
	t.Helper()
	text, err := io.ReadAll(r.out)
	if err != nil {
		t.Fatal(err)
	}
	r.Wait()
	return string(text), r.ProcessState.ExitCode()
}

func TestRunForwardsSignals(t *testing.T) {
	for _, sig := range forwarded {
		if signal.Ignored(sig) {
			t.Logf("%v is ignored here (nohup?), so the run's child ignores it too", sig)
			continue
		}
		r := startRun(t, "count", nil)
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		text, code := r.finish(t)
		if want := fmt.Sprintf("signal %d: 1\n", int(sig)); text != want || code != 42 {
			t.Errorf("%v: the child said %q and exited with %d; want %q and 42", sig, text, code, want)
		}
	}
}

// A terminal's ^C goes to the whole process group, so to pass it on would make it two: many
// programs take the second for "at once".
func TestTerminalInterruptArrivesOnce(t *testing.T) {
	for key, sig := range map[string]syscall.Signal{"\x03": syscall.SIGINT, "\x1c": syscall.SIGQUIT} {
		terminal, line := openTerminal(t)
		r := startRun(t, "count", func(cmd *exec.Cmd) {
			cmd.Stdin = line
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
		})
		if _, err := io.WriteString(terminal, key); err != nil {
			t.Fatal(err)
		}
		text, code := r.finish(t)
		if want := fmt.Sprintf("signal %d: 1\n", int(sig)); text != want || code != 42 {
			t.Errorf("%v: the child said %q and exited with %d; want %q and 42", sig, text, code, want)
		}
	}
}

// openTerminal makes a pseudo-terminal: what is written to one end is typed at the other.
func openTerminal(t *testing.T) (terminal, line *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	t.Cleanup(func() { terminal.Close() })
	fd := int(terminal.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	line, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	return terminal, line
}

// A shell starts background jobs with SIGINT and SIGQUIT ignored; they must stay so, and so must what
// Go's runtime handles itself.
func TestRunKeepsIgnoredSignals(t *testing.T) {
	r := startRun(t, "", func(cmd *exec.Cmd) {
		const script = `trap "" INT QUIT PIPE ALRM; exec "$0" run -- grep SigIgn /proc/self/status`
		cmd.Args = []string{"sh", "-c", script, cmd.Path}
		cmd.Path = "/bin/sh"
	})
	mask := strings.TrimSpace(strings.TrimPrefix(r.first, "SigIgn:"))
	ignored, err := strconv.ParseUint(mask, 16, 64)
	const want = 1<<(syscall.SIGINT-1) | 1<<(syscall.SIGQUIT-1) |
		1<<(syscall.SIGPIPE-1) | 1<<(syscall.SIGALRM-1)
	if err != nil || ignored&want != want || ignored&(1<<(syscall.SIGTERM-1)) != 0 {
		t.Errorf("the child ignores %x (%q), want %x", ignored, r.first, want)
	}
}

func TestRunIsTheCallerAndTellsItsEnd(t *testing.T) {
	r := startRun(t, "count", nil)
	r.node.Lock()
	if len(r.node.Runs) != 1 || r.node.Runs[0].PID != r.Process.Pid || len(r.node.Ended) != 0 {
		t.Errorf("the agent knows %+v, ended %v; want pid %d", r.node.Runs, r.node.Ended, r.Process.Pid)
	}
	r.node.Unlock()
	r.Process.Signal(syscall.SIGTERM)
	r.finish(t)
	r.node.Lock()
	defer r.node.Unlock()
	if len(r.node.Ended) != 1 {
		t.Errorf("ended %v", r.node.Ended)
	}
}

// What the program leaves behind stays below the run for as long as that lives, and is mentioned.
func TestRunAdoptsOrphans(t *testing.T) {
	r := startRun(t, "orphan", nil)
	var orphan, parent int
	if _, err := fmt.Sscanf(r.first, "orphan %d has parent %d", &orphan, &parent); err != nil {
		t.Fatalf("%q: %v", r.first, err)
	}
	defer syscall.Kill(orphan, syscall.SIGKILL)
	if parent != r.Process.Pid {
		t.Errorf("the orphan's parent is %d, want %d", parent, r.Process.Pid)
	}
	r.Wait()
	if !strings.Contains(r.talk.String(), "x has ended, but processes that it started still run") {
		t.Errorf("weir said %q", r.talk)
	}
}

// Nothing keeps account of a program whose run was killed, so it must not outlive that.
func TestProgramDiesWithItsRun(t *testing.T) {
	r := startRun(t, "sleep", nil)
	r.Process.Kill()
	if rest, err := io.ReadAll(r.out); err != nil || len(rest) > 0 { // ends when nobody can write
		t.Errorf("%q, %v", rest, err)
	}
}

func TestEnvironment(t *testing.T) {
	grant := &control.RunGrant{Library: "/w/lib.so", Socket: "/w/s"}
	for before, want := range map[string]string{
		"":                "/w/lib.so",
		"a.so":            "a.so:/w/lib.so",
		"a.so b.so":       "a.so:b.so:/w/lib.so",
		"/w/lib.so":       "/w/lib.so",
		"/w/lib.so: a.so": "a.so:/w/lib.so",
	} {
		env := environment([]string{"A=1", "LD_PRELOAD=" + before, "WEIR_SOCKET=old", "B="}, grant)
		got := strings.Join(env, "|")
		if got != "A=1|B=|LD_PRELOAD="+want+"|WEIR_SOCKET=/w/s" {
			t.Errorf("LD_PRELOAD=%s: %s", before, got)
		}
	}
	if got := environment([]string{"A=1"}, nil); len(got) != 1 {
		t.Errorf("without a grant: %q", got)
	}
}

func TestTold(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	got := told([]string{"a\xff", long})
	if got[0] != "a?" || len([]rune(got[1])) != toldBytesMax {
		t.Errorf("%.40q", got)
	}
	if got := told(make([]string, 100)); len(got) != toldArgsMax+1 {
		t.Errorf("%d arguments", len(got))
	}
}
