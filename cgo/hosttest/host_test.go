// Package hosttest tests the library's memory accounting from outside: a small program (host/) with the
// library linked in runs over a driver of its own and is led by the tests, which play the agent. The same
// program is compiled plain, with the address and undefined-behaviour sanitizers and with the thread
// sanitizer. This file starts it and talks to it.
package hosttest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// How long the test program may take for one command. Only a hang takes so long.
const answerWait = 60 * time.Second

// build is one way to compile the test program, compiled at most once.
type build struct {
	name  string
	flags []string
	once  sync.Once
	path  string
	err   error
}

var (
	plain   = &build{name: "plain", flags: []string{"-O2"}}
	address = &build{name: "asan", flags: []string{"-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"}}
	threads = &build{name: "tsan", flags: []string{"-O1", "-g", "-fsanitize=thread"}}
)

var buildDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-hosttest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// sources lists the C files of the library and of the test program. It reads them, so that the go
// command knows what this test's result depends on.
func sources() ([]string, error) {
	var found []string
	for _, pattern := range []string{"../*.c", "../*_" + runtime.GOARCH + ".S", "host/*.c"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		found = append(found, files...)
	}
	headers, err := filepath.Glob("../*.[hd]*")
	if err != nil {
		return nil, err
	}
	read := append(append([]string{"host/host.h", "host/driver.h", "../abi/weir_abi.h"}, headers...), found...)
	for _, file := range read {
		if _, err := os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (b *build) compile() {
	var files []string
	if files, b.err = sources(); b.err != nil {
		return
	}
	b.path = filepath.Join(buildDir, b.name)
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "gcc"
	}
	args := append([]string{
		"-std=gnu11", "-D_GNU_SOURCE", "-fno-stack-protector", "-U_FORTIFY_SOURCE",
		"-Wall", "-Wextra", "-Werror", "-pthread", "-o", b.path,
	}, b.flags...)
	out, err := exec.Command(compiler, append(args, files...)...).CombinedOutput()
	if err != nil {
		b.err = fmt.Errorf("compiling the test program: %w\n%s", err, out)
	}
}

// host is a running test program.
type host struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	errs  *strings.Builder
	ended chan error
}

// asAsked is the build with the address sanitizer in place of the plain one where WEIR_HOST_BUILD says
// so: every test can be run under it.
func (b *build) asAsked() *build {
	if b == plain && os.Getenv("WEIR_HOST_BUILD") == address.name {
		return address
	}
	return b
}

// startHost starts the test program with a socket to find its agent at; none if that is empty.
func startHost(t testing.TB, b *build, socket string, env ...string) *host {
	t.Helper()
	b = b.asAsked()
	b.once.Do(b.compile)
	if b.err != nil {
		t.Fatal(b.err)
	}
	h := &host{t: t, cmd: exec.Command(b.path), lines: make(chan string, 16), errs: new(strings.Builder), ended: make(chan error, 1)}
	if b == threads { // its shadow memory wants the usual layout
		h.cmd = exec.Command("setarch", "-R", b.path)
	}
	h.cmd.Env = append(os.Environ(), "TSAN_OPTIONS=halt_on_error=1", "ASAN_OPTIONS=detect_leaks=0")
	if socket != "" {
		h.cmd.Env = append(h.cmd.Env, "WEIR_SOCKET="+socket)
	}
	h.cmd.Env = append(h.cmd.Env, env...)
	h.cmd.Stderr = h.errs
	var err error
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go h.read(out)
	t.Cleanup(h.stop)
	return h
}

func (h *host) read(out io.Reader) {
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		h.lines <- scanner.Text()
	}
	close(h.lines)
	h.ended <- h.cmd.Wait()
}

// stop ends the program as a program ends, and fails the test if it did not end well.
func (h *host) stop() {
	h.in.Close()
	for range h.lines {
	}
	err := <-h.ended
	h.ended <- err
	text := h.errs.String()
	if text != "" || (err != nil && !h.t.Failed() && err.Error() != "signal: killed") {
		h.t.Errorf("test program: %v\n%s", err, text)
	}
}

func (h *host) kill() {
	h.cmd.Process.Kill()
}

// send gives a command whose answer is awaited with answer.
func (h *host) send(format string, args ...any) {
	h.t.Helper()
	if _, err := fmt.Fprintf(h.in, format+"\n", args...); err != nil {
		h.t.Fatalf("command %q: %v\n%s", fmt.Sprintf(format, args...), err, h.errs)
	}
}

func (h *host) answer() string {
	h.t.Helper()
	select {
	case line, ok := <-h.lines:
		if !ok {
			h.t.Fatalf("test program ended\n%s", h.errs)
		}
		return line
	case <-time.After(answerWait):
		h.kill()
		h.t.Fatal("test program hangs")
	}
	return ""
}

// do gives commands, several with semicolons between them, and returns the last one's answer.
func (h *host) do(format string, args ...any) string {
	h.t.Helper()
	h.send(format, args...)
	for range strings.Count(format, ";") {
		h.answer()
	}
	return h.answer()
}

// ok gives a command that must succeed and returns the numbers of its answer.
func (h *host) ok(format string, args ...any) []uint64 {
	h.t.Helper()
	line := h.do(format, args...)
	fields := strings.Fields(line)
	if len(fields) == 0 || fields[0] != "ok" {
		h.t.Fatalf("%s: got %q, want ok", fmt.Sprintf(format, args...), line)
	}
	var numbers []uint64
	for _, field := range fields[1:] {
		var n uint64
		if _, err := fmt.Sscan(field, &n); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// want gives a command and checks its answer.
func (h *host) want(answer, format string, args ...any) {
	h.t.Helper()
	if line := h.do(format, args...); line != answer {
		h.t.Fatalf("%s: got %q, want %q", fmt.Sprintf(format, args...), line, answer)
	}
}
