package node

// Puppets: CUDA programs that do what a test tells them, one command a line. clients/puppet.c has
// the commands.

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Puppet is one of them, by its standard input and output.
type Puppet struct {
	t     testing.TB
	in    io.Writer
	lines <-chan string
	about func() string // for messages
	pid   int           // 0: it is in a pid namespace of its own, and cannot be signalled from here
}

// Puppet starts one under `weir run`.
func (n *Node) Puppet(options RunOptions) *Puppet {
	n.t.Helper()
	return n.AsPuppet(n.Run(options, Build(n.t, "e2e/puppet")))
}

// BarePuppet starts one without weir.
func (n *Node) BarePuppet() *Puppet {
	n.t.Helper()
	return n.AsPuppet(n.Bare(Build(n.t, "e2e/puppet")))
}

// Acrobat starts one that knows every kind of device memory (clients/acrobat.c), under `weir run`.
func (n *Node) Acrobat(options RunOptions) *Puppet {
	n.t.Helper()
	dir, err := os.MkdirTemp(n.Dir, "a")
	if err != nil {
		n.t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	stage := n.Run(options, Build(n.t, "e2e/acrobat"), socket)
	if line := stage.Line(); line != "ready" {
		n.t.Fatalf("the acrobat says %q", line)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() })
	lines := make(chan string, 16)
	go scanLines(conn, lines)
	return newPuppet(n.t, conn, lines, stage.about)
}

// AsPuppet has a program that takes commands as puppets do, and was started by Run, be one.
func (n *Node) AsPuppet(p *Program) *Puppet {
	n.t.Helper()
	return newPuppet(n.t, p.in, p.lines, p.about)
}

// AsInnerPuppet is AsPuppet for one whose pid means nothing out here.
func (n *Node) AsInnerPuppet(p *Program) *Puppet {
	n.t.Helper()
	puppet := n.AsPuppet(p)
	puppet.pid = 0
	return puppet
}

// Puppets starts several in one container, each a process of its own.
func (n *Node) Puppets(count int, options RunOptions) []*Puppet {
	n.t.Helper()
	return n.Troupe(count, options, Build(n.t, "e2e/puppet"))
}

// Troupe starts a program several times in one container, each to be used as a puppet.
func (n *Node) Troupe(count int, options RunOptions, program string) []*Puppet {
	n.t.Helper()
	dir, err := os.MkdirTemp(n.Dir, "t")
	if err == nil {
		err = os.Chmod(dir, 0o777) // the puppets may be another user's
	}
	if err != nil {
		n.t.Fatal(err)
	}
	troupe := n.Run(options, Build(n.t, "e2e/troupe"), dir, strconv.Itoa(count), program)
	if line := troupe.Line(); line != "ready" {
		n.t.Fatalf("troupe says %q", line)
	}
	puppets := make([]*Puppet, count)
	for i := range puppets {
		conn, err := net.Dial("unix", filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = conn.Close() })
		lines := make(chan string, 16)
		go scanLines(conn, lines)
		puppets[i] = newPuppet(n.t, conn, lines, troupe.about)
	}
	return puppets
}

// Remote makes a wish's program a puppet at a socket in the node's folder, which does not depend on who started
// it. meet is that puppet, once the container runs.
func (n *Node) Remote(wish Wish) (remote Wish, meet func() *Puppet) {
	n.t.Helper()
	dir, err := os.MkdirTemp(n.SimDir, "r") // which containers may write to
	if err != nil {
		n.t.Fatal(err)
	}
	troupe := strings.Join([]string{Build(n.t, "e2e/troupe"), dir, "1", Build(n.t, "e2e/puppet")}, " ")
	wish.Args = []string{"/bin/sh", "-c", "sleep infinity | exec " + troupe + " >/dev/null"}
	return wish, func() *Puppet {
		n.t.Helper()
		var conn net.Conn
		n.Eventually(func() string {
			if conn, err = net.Dial("unix", filepath.Join(dir, "0")); err != nil {
				return err.Error()
			}
			return ""
		})
		n.t.Cleanup(func() { _ = conn.Close() })
		lines := make(chan string, 16)
		go scanLines(conn, lines)
		puppet := newPuppet(n.t, conn, lines, func() string { return "container " + wish.Name })
		puppet.pid = 0
		return puppet
	}
}

func newPuppet(t testing.TB, in io.Writer, lines <-chan string, about func() string) *Puppet {
	t.Helper()
	p := &Puppet{t: t, in: in, lines: lines, about: about}
	p.pid = int(p.Number("pid"))
	return p
}

// PID is the puppet's own, not that of the `weir run` around it.
func (p *Puppet) PID() int { return p.pid }

// Tell sends a command without waiting for the answer.
func (p *Puppet) Tell(format string, arguments ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", arguments...); err != nil {
		p.t.Fatalf("telling puppet %d: %v: %s", p.pid, err, p.about())
	}
}

// Do sends a command and returns the words of the answer.
func (p *Puppet) Do(format string, arguments ...any) []string {
	p.t.Helper()
	p.Tell(format, arguments...)
	return strings.Fields(nextLine(p.t, p.lines, p.about))
}

// OK is Do for a command that has to succeed; it returns the values after "ok".
func (p *Puppet) OK(format string, arguments ...any) []string {
	p.t.Helper()
	words := p.Do(format, arguments...)
	if len(words) == 0 || words[0] != "ok" {
		p.t.Fatalf("puppet %d: %s: %s", p.pid, fmt.Sprintf(format, arguments...), strings.Join(words, " "))
	}
	return words[1:]
}

// Number is OK for a command with one number as its answer.
func (p *Puppet) Number(format string, arguments ...any) int64 {
	p.t.Helper()
	return p.Numbers(format, arguments...)[0]
}

// Numbers is OK for a command that answers numbers.
func (p *Puppet) Numbers(format string, arguments ...any) []int64 {
	p.t.Helper()
	p.Tell(format, arguments...)
	return p.AnswerNumbers()
}

// AnswerNumbers waits for the answer to a Tell that has to succeed and returns its numbers.
func (p *Puppet) AnswerNumbers() []int64 {
	p.t.Helper()
	answer := nextLine(p.t, p.lines, p.about)
	words := strings.Fields(answer)
	if len(words) == 0 || words[0] != "ok" {
		p.t.Fatalf("puppet %d: %s", p.pid, answer)
	}
	numbers := make([]int64, len(words)-1)
	for i, word := range words[1:] {
		value, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			p.t.Fatalf("puppet %d: %s: %v", p.pid, answer, err)
		}
		numbers[i] = value
	}
	return numbers
}

// Code is Do for a command that may be refused: the driver's code, 0 for success.
func (p *Puppet) Code(format string, arguments ...any) int {
	p.t.Helper()
	p.Tell(format, arguments...)
	return p.Answer()
}

// Answer waits for the answer to a Tell and returns its code.
func (p *Puppet) Answer() int {
	p.t.Helper()
	words := strings.Fields(nextLine(p.t, p.lines, p.about))
	switch {
	case len(words) > 0 && words[0] == "ok":
		return 0
	case len(words) == 2 && words[0] == "error":
		code, err := strconv.Atoi(words[1])
		if err == nil {
			return code
		}
	}
	p.t.Fatalf("puppet %d: %s", p.pid, strings.Join(words, " "))
	return -1
}

// Kill sends SIGKILL to the puppet and returns when it is dead. It may still be a zombie.
func (p *Puppet) Kill() {
	p.t.Helper()
	p.reachable()
	pidfd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		p.t.Fatalf("opening puppet %d: %v", p.pid, err)
	}
	defer unix.Close(pidfd)
	p.Signal(syscall.SIGKILL)
	ended := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(ended, int(patience.Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err != nil || n != 1:
			p.t.Fatalf("puppet %d does not die: %v", p.pid, err)
		default:
			return
		}
	}
}

// Signal sends a signal to the puppet itself.
func (p *Puppet) Signal(signal syscall.Signal) {
	p.t.Helper()
	p.reachable()
	if err := syscall.Kill(p.pid, signal); err != nil {
		p.t.Fatalf("signal %s to puppet %d: %v", signal, p.pid, err)
	}
}

// reachable fails a test that would signal another process than it means.
func (p *Puppet) reachable() {
	p.t.Helper()
	if p.pid <= 0 {
		p.t.Fatal("a puppet in a pid namespace of its own cannot be signalled; let it leave")
	}
}

// Leave ends the puppet in good order, by the end of its input.
func (p *Puppet) Leave() {
	p.t.Helper()
	closer, ok := p.in.(io.Closer)
	if !ok {
		p.t.Fatal("the puppet's input cannot be closed")
	}
	if err := closer.Close(); err != nil {
		p.t.Fatalf("closing the puppet's input: %v", err)
	}
}
