package node

// Programs that run on the node: under `weir run`, or bare on the simulated GPU.

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// Program is a running process of a test.
type Program struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr *SyncBuffer
	in     io.WriteCloser
	lines  chan string // of its standard output, closed at its end
	ended  chan struct{}
}

// StartLocked starts a command whose Pdeathsig must not fire when a Go thread ends: the kernel
// means the parent thread by it.
func StartLocked(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		// Never unlocked: the thread must live as long as the process may.
		runtime.LockOSThread()
		started <- cmd.Start()
		select {}
	}()
	return <-started
}

// RunOptions are flags of `weir run`.
type RunOptions struct {
	Name   string
	Memory string   // cap; empty: none
	Env    []string // more of the environment
	Flags  []string // others
}

// Run starts a program under `weir run`.
func (n *Node) Run(options RunOptions, program string, arguments ...string) *Program {
	n.t.Helper()
	flags := []string{"run"}
	if options.Name != "" {
		flags = append(flags, "--name", options.Name)
	}
	if options.Memory != "" {
		flags = append(flags, "--memory", options.Memory)
	}
	flags = append(append(flags, options.Flags...), "--")
	flags = append(append(flags, n.options.Through...), program)
	return n.start(options.Env, Build(n.t, "weir"), append(flags, arguments...)...)
}

// Bare starts a program on the simulated machine without weir.
func (n *Node) Bare(program string, arguments ...string) *Program {
	n.t.Helper()
	return n.start(nil, program, arguments...)
}

func (n *Node) start(env []string, program string, arguments ...string) *Program {
	n.t.Helper()
	cmd := exec.Command(program, arguments...)
	cmd.Env = append(n.Env(), env...)
	cmd.SysProcAttr = n.attributes()
	p := &Program{t: n.t, cmd: cmd, stderr: &SyncBuffer{}, lines: make(chan string, 1024), ended: make(chan struct{})}
	cmd.Stderr = p.stderr
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		n.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	go scanLines(out, p.lines)
	go func() {
		state, err := cmd.Process.Wait()
		if err == nil {
			cmd.ProcessState = state
		}
		close(p.ended)
	}()
	n.t.Cleanup(p.end)
	return p
}

// end asks by end of input, then kills.
func (p *Program) end() {
	_ = p.in.Close()
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// PID is that of the process that was started: for Run, of `weir run` itself.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Stderr is what it has written there so far.
func (p *Program) Stderr() string { return p.stderr.String() }

// Wait returns its exit code, -1 if a signal ended it, and all lines not read yet.
func (p *Program) Wait(limit time.Duration) (code int, lines []string) {
	p.t.Helper()
	_ = p.in.Close()
	select {
	case <-p.ended:
	case <-time.After(limit):
		p.t.Fatalf("%s has not ended after %s\n%s", p.cmd, limit, p.stderr)
	}
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return p.cmd.ProcessState.ExitCode(), lines
			}
			lines = append(lines, line)
		case <-time.After(time.Second):
			// A child that it left behind holds the pipe.
			return p.cmd.ProcessState.ExitCode(), lines
		}
	}
}

// Send writes a line to its standard input.
func (p *Program) Send(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatalf("writing to %s: %v", p.about(), err)
	}
}

// Line is its next line of output.
func (p *Program) Line() string {
	p.t.Helper()
	return nextLine(p.t, p.lines, p.about)
}

// LineWithin is Line for a program that takes its time. It may be called from any goroutine, so it
// does not fail the test: at the end of output, or of the time, it says so in place of a line.
func (p *Program) LineWithin(limit time.Duration) string {
	select {
	case line, ok := <-p.lines:
		if !ok {
			return "(it has ended)"
		}
		return line
	case <-time.After(limit):
		return fmt.Sprintf("(nothing for %s)", limit)
	}
}

func (p *Program) about() string { return fmt.Sprintf("%s\n%s", p.cmd, p.stderr) }

func nextLine(t testing.TB, lines <-chan string, about func() string) string {
	t.Helper()
	select {
	case line, ok := <-lines:
		if !ok {
			t.Fatalf("ended: %s", about())
		}
		return line
	case <-time.After(patience):
		t.Fatalf("says nothing for %s: %s", patience, about())
	}
	return ""
}

// scanLines reads a stream to its end, line by line.
func scanLines(stream io.Reader, lines chan<- string) {
	scanner := bufio.NewScanner(stream)
	for scanner.Scan() {
		lines <- scanner.Text()
	}
	close(lines)
}

// Kill sends SIGKILL to the started process and waits for its end.
func (p *Program) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}
