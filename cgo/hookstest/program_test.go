// Package hookstest tests the wrappers of the driver's calls that take time of the GPU, or that measuring it has to
// hear of, from outside: a small program (program/) with these wrappers linked in calls them with words of its own;
// the scheduler of time, the driver and the library's books write down what they are asked for. This file compiles
// the program and talks to it.
package hookstest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// hooked are the library's files that are tested.
var hooked = []string{
	"launch.c", "launchmany.c", "graphrun.c", "copy.c", "copyrows.c", "set.c", "transfer.c",
	"streams.c", "sync.c", "context.c", "primary.c",
}

var buildDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-hookstest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var compiled = sync.OnceValues(func() (string, error) {
	output := filepath.Join(buildDir, "program")
	args := []string{
		"-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
		"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-include", "program/timed.h", "-include", "program/used.h", "-o", output,
	}
	for _, file := range hooked {
		args = append(args, "../"+file)
	}
	files, err := filepath.Glob("program/*.c")
	if err != nil {
		return "", err
	}
	// The go command is to know what the results depend on.
	headers, err := filepath.Glob("../*.[hd]*")
	if err != nil {
		return "", err
	}
	for _, file := range slices.Concat(headers, files, args[len(args)-len(hooked):], []string{"program/program.h", "program/timed.h", "program/used.h"}) {
		if _, err := os.ReadFile(file); err != nil {
			return "", err
		}
	}
	if printed, err := exec.Command("gcc", append(args, files...)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the test program: %w\n%s", err, printed)
	}
	return output, nil
})

// program is a running test program.
type program struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T) *program {
	t.Helper()
	path, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	var errors strings.Builder
	cmd.Stderr = &errors
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
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil || errors.String() != "" {
			t.Errorf("test program: %v\n%s", err, &errors)
		}
	})
	return &program{t, in, bufio.NewReader(out)}
}

// do gives a command and returns its answer.
func (p *program) do(format string, args ...any) string {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
	return strings.TrimSpace(line)
}

// addresses are the numbers of an answer.
func (p *program) addresses(format string, args ...any) (numbers []uint64) {
	p.t.Helper()
	for text := range strings.FieldsSeq(p.do(format, args...)) {
		number, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		numbers = append(numbers, number)
	}
	return numbers
}

// call calls a wrapper: its result, and what came to pass.
func (p *program) call(export string, words ...uint64) (uint64, []string) {
	p.t.Helper()
	line := "call " + export
	for _, word := range words {
		line += fmt.Sprintf(" %x", word)
	}
	parts := strings.Split(p.do("%s", line), "|")
	result, err := strconv.ParseUint(parts[0], 16, 32)
	if err != nil {
		p.t.Fatalf("%s: %v", export, parts)
	}
	if len(parts) > 1 && parts[1] == "" {
		parts = parts[:1]
	}
	return result, parts[1:]
}
