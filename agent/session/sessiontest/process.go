package sessiontest

// A tenant process as its test sees it.

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// roleVariable makes a program that calls Main a tenant process.
const roleVariable = "WEIR_SESSIONTEST"

// Process is a tenant in a process of its own, which does what it is told, line by line.
type Process struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	pid   int
	ended bool
}

// Start runs this test's program again as a tenant process; its TestMain must call Main first. The
// process is killed at the end of the test.
func Start(t testing.TB) *Process { return start(t, exec.Command("/proc/self/exe")) }

// StartBelow is Start with a shell between this process and the tenant: PID is the tenant's, and
// Parent the shell's.
func StartBelow(t testing.TB) *Process {
	// The tenant has the shell's input, which a shell takes from what it runs in the background.
	return start(t, exec.Command("/bin/sh", "-c", "exec 3<&0; /proc/"+fmt.Sprint(os.Getpid())+
		"/exe <&3 3<&- & wait"))
}

func start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	cmd.Env = append(os.Environ(), roleVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(p.Kill)
	if _, err := fmt.Sscanf(p.line(), "pid %d", &p.pid); err != nil {
		t.Fatalf("a tenant process did not start: %v", err)
	}
	return p
}

// PID is the pid of the tenant.
func (p *Process) PID() int { return p.pid }

// Parent is the pid of the process that was started: the tenant, or the shell above it.
func (p *Process) Parent() int { return p.cmd.Process.Pid }

// Do has the tenant do one thing and waits for its answer; the commands are listed at Main.
func (p *Process) Do(format string, args ...any) (string, error) {
	p.t.Helper()
	p.Say(format, args...)
	return p.Answer()
}

// Must is Do for what has to succeed.
func (p *Process) Must(format string, args ...any) string {
	p.t.Helper()
	answer, err := p.Do(format, args...)
	if err != nil {
		p.t.Fatalf("tenant %d, %s: %v", p.pid, fmt.Sprintf(format, args...), err)
	}
	return answer
}

// Say tells the tenant what to do without waiting.
func (p *Process) Say(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatalf("tenant %d: %v", p.pid, err)
	}
}

// Answer waits for the answer to what was said.
func (p *Process) Answer() (string, error) {
	p.t.Helper()
	kind, rest, _ := strings.Cut(p.line(), " ")
	if kind != "ok" {
		return "", fmt.Errorf("%s", rest)
	}
	return rest, nil
}

func (p *Process) line() string {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return fmt.Sprintf("error the process has ended (%v)", err)
	}
	return strings.TrimSuffix(line, "\n")
}

// Become has the tenant exec a new tenant, which has no session yet.
func (p *Process) Become() {
	p.t.Helper()
	p.Say("exec tenant")
	var pid int
	if _, err := fmt.Sscanf(p.line(), "pid %d", &pid); err != nil || pid != p.pid {
		p.t.Fatalf("tenant %d has become %d: %v", p.pid, pid, err)
	}
}

// Signal sends a signal to the tenant.
func (p *Process) Signal(s unix.Signal) {
	p.t.Helper()
	if err := unix.Kill(p.pid, s); err != nil {
		p.t.Fatalf("signalling tenant %d: %v", p.pid, err)
	}
}

// Kill ends the tenant by SIGKILL, and the shell above it, and waits for what is this process's
// child.
func (p *Process) Kill() {
	if p.ended {
		return
	}
	p.ended = true
	if p.pid > 0 {
		unix.Kill(p.pid, unix.SIGKILL)
	}
	p.cmd.Process.Kill()
	p.cmd.Wait()
}
