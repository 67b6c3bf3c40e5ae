// The agent's own context on a GPU, made to see what one takes. The driver never comes into the agent:
// a process of this same binary makes it, and ends with the agent, when told, or after a while,
// whatever the driver is doing.

package main

// #cgo LDFLAGS: -ldl
// #include "context.h"
import "C"

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// contextProgram is the name by which this binary is started to make a context.
	contextProgram = "weir-context"
	// contextMade is what it says when it has.
	contextMade = "made"
	// contextLife is how long it lives at most.
	contextLife = 10 * time.Second
)

// makeContext starts a process that makes a context on a GPU; see session.MakeContext.
func makeContext(ctx context.Context, gpuUUID string) (pid int, end func(), err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{contextProgram}
	cmd.Env = contextEnvironment(os.Environ(), gpuUUID)
	// Its input ends with this process.
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, fmt.Errorf("starting %s: %w", contextProgram, err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, nil, errors.Join(fmt.Errorf("starting %s: %w", contextProgram, err), in.Close())
	}
	end = func() {
		// Neither can fail but for a process that has ended already.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	// What the driver has started may keep the other end open.
	stop := context.AfterFunc(ctx, func() { _ = out.Close() })
	defer stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	line = strings.TrimSuffix(line, "\n")
	switch {
	case line == contextMade:
		return cmd.Process.Pid, end, nil
	case ctx.Err() != nil:
		err = errors.New("the driver took too long")
	case line != "":
		err = errors.New(line)
	default:
		err = fmt.Errorf("%s ended before it had made one: %w", contextProgram, err)
	}
	end()
	return 0, nil, err
}

// contextEnvironment is the agent's own, without what would make the process a tenant, and with one
// GPU to be seen.
func contextEnvironment(env []string, gpuUUID string) []string {
	var kept []string
	for _, entry := range env {
		switch name, _, _ := strings.Cut(entry, "="); name {
		case "LD_PRELOAD", "WEIR_SOCKET", "CUDA_VISIBLE_DEVICES":
		default:
			kept = append(kept, entry)
		}
	}
	return append(kept, "CUDA_VISIBLE_DEVICES="+gpuUUID)
}

// contextProcess makes a context, says so or why not, and keeps it until its input ends. It returns
// the process's exit code where it has failed.
func contextProcess(in io.Reader, out io.Writer) int {
	time.AfterFunc(contextLife, func() { leave(1) })
	go func() {
		_, _ = io.Copy(io.Discard, in)
		leave(0)
	}()
	var text [512]C.char
	if C.weir_context_make(&text[0], C.size_t(len(text))) != 0 {
		fmt.Fprintln(out, C.GoString(&text[0]))
		return 1
	}
	fmt.Fprintln(out, contextMade)
	select {}
}

// leave ends the process whatever the driver does: without the C library, which may wait for a lock
// that the loader of the driver holds.
func leave(code uintptr) {
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, code, 0, 0)
}
